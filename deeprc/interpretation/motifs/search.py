"""The search for patterns that set the attended sequences apart from the background.

After DREME (Bailey 2011): the most enriched seed is generalised step by step, the windows that match are erased, and
the search begins anew. Here a step gives one position the set of residues that lowers the corrected p-value most; and
in the end a pattern is made to say what its windows have in common, see `described`.

Letters: W positions of a pattern, P positions that a step may change.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.interpretation.motifs.enrichment import fisher_log_p
from deeprc.interpretation.motifs.matching import erased, freed_residues, prefix_counts, residue_counts
from deeprc.interpretation.motifs.matrices import Composition, Matrix, aligned, windows_of
from deeprc.interpretation.motifs.patterns import ANY, LONGEST, Masks, pattern_cost, trimmed
from deeprc.interpretation.motifs.seeds import ComparedSequences, attended_residues, find_seeds

__all__ = ["SIGNIFICANT", "Candidate", "climb", "common_residues", "described", "score_of", "search_windows"]

SIGNIFICANT = log(0.05)
"""The highest natural logarithm of a corrected p-value that is called significant."""

_FLANK = 4  # a step may reach so far beyond a pattern's ends
_SEEDS = 8  # that are generalised; the best of what becomes of them is kept
_TRIES = 5  # steps that are tried, the most promising first
_MAX_ACCEPTED = 6  # residues, unless all are
_RARE = 0.05  # a residue must have this share of the windows to be accepted
_COMMON = 0.9  # residues that have this share of the windows together are required, whatever the p-value
_ABOVE = 1.5  # times as frequent as expected must a residue be

_EVIDENCE = 0.5  # of a pattern's (in logarithms) must be left when it is described


class Candidate(NamedTuple):
    """A pattern, and the natural logarithm of its corrected p-value, not capped at 0."""

    masks: Masks
    score: float


def search_windows(
    samples: ComparedSequences,
    composition: Composition,
    attributions: NDArray[np.float64],
    *,
    span: int,
    max_patterns: int,
) -> list[Candidate]:
    """Return up to `max_patterns` significant patterns, each found on what the ones before it left.

    Parameters
    ----------
    samples, composition
        The sequences, and the background's residues.
    attributions
        Attributions of the attended sequences' residues, (n, L), positive where the network looks.
    span
        The largest distance from the first residue of a seed to its last, inclusive.
    max_patterns
        How many patterns to return, at most.
    """
    attended, found = attended_residues(attributions), list[Candidate]()
    while len(found) < max_patterns:
        seeds = find_seeds(samples, attended, span=span, max_seeds=_SEEDS)
        climbed = [climb(samples, seed) for seed in seeds]
        best = min(climbed, key=lambda candidate: candidate.score, default=None)
        if best is None or best.score > SIGNIFICANT:
            break
        found.append(described(samples, composition, attributions, best))
        for masks in (found[-1].masks, best.masks):
            samples = samples._replace(residues=erased(samples.residues, samples.offsets, masks))
    return found


def score_of(samples: ComparedSequences, masks: Masks) -> float:
    """Return the natural logarithm of a pattern's corrected p-value, not capped at 0."""
    return float(samples.log_p([masks])[0]) + pattern_cost(masks)


def climb(samples: ComparedSequences, masks: Masks) -> Candidate:
    """Change one position of a pattern after the other, inside or around it, as long as its corrected p-value falls."""
    best = Candidate(masks, score_of(samples, masks))
    while True:
        for expected, changed in _steps(samples, best.masks)[:_TRIES]:
            score = score_of(samples, changed) if expected < best.score - 1e-9 else np.inf
            if score < best.score - 1e-9:
                best = Candidate(changed, score)
                break
        else:
            return best


def _steps(samples: ComparedSequences, masks: Masks) -> list[tuple[float, Masks]]:
    """Return the best change at every position with the score that it should have, the best first.

    The residues that a position may accept are taken in the order of their odds, as a decision tree takes the values of
    a category: for two classes, the best set is one of the first ones of that order (Breiman et al. 1984).
    """
    bits = freed_residues(samples.residues, samples.offsets, masks, _FLANK)
    counts = residue_counts(bits, samples.n)  # (P, 20, 2)
    odds = (counts[:, :, 0] + 0.5) / (counts[:, :, 1] + 0.5)
    rare = counts[:, :, 0] < _RARE * counts[:, :, 0].sum(axis=1, keepdims=True)
    order = np.argsort(np.where(rare, odds.max() + 1 / (1 + odds), -odds), axis=1, kind="stable")  # the rare ones last
    sums = prefix_counts(bits, samples.n, order)
    log_p = fisher_log_p(sums[:, :, 0].ravel(), samples.n, sums[:, :, 1].ravel(), samples.others).reshape(order.shape)
    padded = np.concatenate([np.full(_FLANK, ANY, np.uint32), masks, np.full(_FLANK, ANY, np.uint32)])
    steps = list[Candidate]()
    for position in range(len(padded)):
        most = min(_MAX_ACCEPTED, int((~rare[position]).sum()))
        accepted = np.bitwise_or.accumulate(np.uint32(1) << order[position].astype(np.uint32))
        options = []
        for place in [*range(most), len(accepted) - 1]:
            changed = padded.copy()
            changed[position] = accepted[place]
            changed = trimmed(changed)
            if accepted[place] != padded[position] and 0 < len(changed) <= LONGEST:
                options.append(Candidate(changed, float(log_p[position, place]) + pattern_cost(changed)))
        if options:
            steps.append(min(options, key=lambda option: option.score))
    return [(step.score, step.masks) for step in sorted(steps, key=lambda step: step.score)]


def described(
    samples: ComparedSequences, composition: Composition, attributions: NDArray[np.float64], candidate: Candidate
) -> Candidate:
    """Return the pattern that says what the windows of a pattern have in common, if that is about as significant.

    Enrichment alone may leave out a residue that nearly all windows have, as where the background sequences that carry
    the rest of a motif carry all of it; and may ask for what is there anyhow, as the germline's last residues behind a
    motif near the end. So a position requires the residues that are well above what is expected at such places if
    nearly all windows have them, and otherwise if that lowers the corrected p-value.
    """
    masks = candidate.masks
    windows = windows_of(samples, masks, attributions)
    matrix = aligned(samples, composition, windows, _FLANK, len(masks) + _FLANK)
    common, share = common_residues(matrix)
    share *= matrix.counts.sum(axis=1) / windows.weights.sum()
    inside = np.pad(np.ones(len(masks), np.bool_), _FLANK)
    required = np.where((share >= _COMMON) | inside, common, ANY).astype(np.uint32)
    if not 0 < len(trimmed(required)) <= LONGEST:
        required[~inside] = ANY
    if len(trimmed(required)) == 0:
        return candidate
    best = Candidate(trimmed(required), score_of(samples, trimmed(required)))
    for position in np.flatnonzero(inside & (share < _COMMON) & (required != ANY)):
        freed = required.copy()
        freed[position] = ANY
        score = score_of(samples, trimmed(freed)) if len(trimmed(freed)) else np.inf
        if score < best.score:
            required, best = freed, Candidate(trimmed(freed), score)
    return best if best.score <= min(SIGNIFICANT, _EVIDENCE * candidate.score) else candidate


def common_residues(matrix: Matrix) -> tuple[Masks, NDArray[np.float64]]:
    """Return the residues of each position that are well above what is expected, (W,), and their share, (W,)."""
    frequencies = matrix.counts / np.maximum(matrix.counts.sum(axis=1, keepdims=True), 1e-300)
    above = (frequencies >= _RARE) & (frequencies >= _ABOVE * matrix.expected)
    masks = (above << np.arange(above.shape[1])).sum(axis=1).astype(np.uint32)
    return np.where(masks == 0, ANY, masks).astype(np.uint32), (frequencies * above).sum(axis=1)
