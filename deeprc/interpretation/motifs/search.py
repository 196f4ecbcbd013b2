"""Search for patterns that are more frequent in the attended sequences than in the background.

The search is like DREME (Bailey 2011): the most enriched initial pattern is generalised step by step, the matching
windows are erased, and the search begins again. Here a step gives one position the set of residues that lowers the
corrected p-value most. At the end, the pattern is changed to the residues that its windows share, see
`describe_windows`.

An initial pattern has residues of high attribution that occur together in a sequence. Residues are indices, and
sequences are end to end.

Letters: W positions of a pattern, P positions that a step may change, R residues, n attended sequences, L positions.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import INVALID
from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.interpretation.motifs.enrichment import compute_fisher_log_p
from deeprc.interpretation.motifs.matching import count_prefixes, count_residues, erase_matches, find_freed_residues
from deeprc.interpretation.motifs.matrices import PositionFrequencyMatrix, align_windows, find_windows
from deeprc.interpretation.motifs.patterns import ANY, LONGEST, Masks, compute_pattern_cost, trim_pattern

__all__ = [
    "SIGNIFICANT",
    "Candidate",
    "describe_windows",
    "find_attended_residues",
    "find_common_residues",
    "find_initial_patterns",
    "improve_pattern",
    "score_pattern",
    "search_windows",
]

SIGNIFICANT = log(0.05)
"""Largest natural logarithm of a corrected p-value that is significant."""

_FLANK = 4  # number of positions beyond the ends of a pattern that a step may change
_INITIAL_PATTERNS = 8  # number of initial patterns that are generalised; the best result is kept
_TRIES = 5  # number of changes that are tried, most promising first
_MAX_ACCEPTED = 6  # largest number of residues that a position accepts, unless it accepts all
_RARE = 0.05  # smallest share of the windows that an accepted residue must have
_COMMON = 0.9  # residues that have this share of the windows together are required, whatever the p-value is
_ABOVE = 1.5  # smallest ratio of observed and expected frequency of a required residue
_LEAST_GAIN = 1e-9  # smallest decrease of a score that is no rounding error
_EVIDENCE = 0.5  # share of the logarithm of the p-value that the described pattern must keep
_SIZES = (3, 4)  # numbers of residues of an initial pattern
_FEWEST = 3  # smallest number of sequences in which a pattern has the highest attributions
_MIN_SHARE = 0.25  # smallest share of these among the attended carriers of the pattern; by chance about half
_ATTENDED = 8  # number of residues of a sequence, with the highest attributions, from which patterns are made


class Candidate(NamedTuple):
    """A pattern, and the natural logarithm of its corrected p-value, not capped at 0."""

    masks: Masks
    score: float


def search_windows(
    samples: ComparedSequences,
    attributions: NDArray[np.float64],
    *,
    span: int,
    max_patterns: int,
) -> list[Candidate]:
    """Return at most `max_patterns` significant patterns, found one after the other.

    Parameters
    ----------
    samples
        Attended and background sequences.
    attributions
        Attributions of the residues of the attended sequences, (n, L), positive in the direction of the change.
    span
        Largest number of positions from the first to the last residue of an initial pattern.
    max_patterns
        Largest number of patterns.
    """
    attended, candidates = find_attended_residues(attributions), list[Candidate]()
    while len(candidates) < max_patterns:
        patterns = find_initial_patterns(samples, attended, span=span, max_patterns=_INITIAL_PATTERNS)
        known = dict[bytes, Candidate]()
        improved = [improve_pattern(samples, masks, known) for masks in patterns]
        best = min(improved, key=lambda candidate: candidate.score, default=None)
        if best is None or best.score > SIGNIFICANT:
            break
        candidates.append(describe_windows(samples, attributions, best))
        for masks in (candidates[-1].masks, best.masks):
            samples = samples._replace(residues=erase_matches(samples.residues, samples.offsets, masks))
    return candidates


def score_pattern(samples: ComparedSequences, masks: Masks) -> float:
    """Return the natural logarithm of a pattern's corrected p-value, not capped at 0."""
    return float(samples.log_p([masks])[0]) + compute_pattern_cost(masks)


def improve_pattern(samples: ComparedSequences, masks: Masks, known: dict[bytes, Candidate] | None = None) -> Candidate:
    """Change one position of a pattern after the other, inside or around it, as long as its corrected p-value falls.

    `known` has the result for each pattern that earlier calls with the same samples have reached, because the ways of
    many initial patterns meet. This call adds its own.
    """
    known = {} if known is None else known
    best, passed = Candidate(masks, score_pattern(samples, masks)), list[bytes]()
    while (key := best.masks.tobytes()) not in known:
        passed.append(key)
        better = _find_better(samples, best)
        if better is None:
            known[key] = best
        else:
            best = better
    known.update(dict.fromkeys(passed, known[key]))
    return known[key]


def _find_better(samples: ComparedSequences, candidate: Candidate) -> Candidate | None:
    """Return the first of the most promising changes that lowers the corrected p-value; None if there is none."""
    for change in _rank_changes(samples, candidate.masks)[:_TRIES]:
        if change.score < candidate.score - _LEAST_GAIN:
            score = score_pattern(samples, change.masks)
            if score < candidate.score - _LEAST_GAIN:
                return Candidate(change.masks, score)
    return None


def _rank_changes(samples: ComparedSequences, masks: Masks) -> list[Candidate]:
    """Return the best change of each position with its expected score, best first.

    The residues of a position are sorted by their odds, and the first ones of this order are accepted. For two classes,
    the best set is always of this form, as in decision trees (Breiman et al. 1984).
    """
    rows, bits = find_freed_residues(samples.residues, samples.offsets, masks, _FLANK)
    n_attended = int(np.searchsorted(rows, samples.n_attended))
    order, n_common = _sort_residues(count_residues(bits, n_attended))
    sums = count_prefixes(bits, n_attended, order)
    log_p = compute_fisher_log_p(
        sums[:, :, 0].ravel(), samples.n_attended, sums[:, :, 1].ravel(), samples.n_background
    ).reshape(order.shape)
    padded = np.concatenate([np.full(_FLANK, ANY, np.uint32), masks, np.full(_FLANK, ANY, np.uint32)])
    changes = list[Candidate]()
    for position in range(len(padded)):
        accepted = np.bitwise_or.accumulate(np.uint32(1) << order[position].astype(np.uint32))
        sets = [*range(min(_MAX_ACCEPTED, int(n_common[position]))), len(accepted) - 1]  # the last one accepts all
        options = []
        for index in sets:
            changed = padded.copy()
            changed[position] = accepted[index]
            changed = trim_pattern(changed)
            if accepted[index] != padded[position] and 0 < len(changed) <= LONGEST:
                options.append(Candidate(changed, float(log_p[position, index]) + compute_pattern_cost(changed)))
        if options:
            changes.append(min(options, key=lambda option: option.score))
    return sorted(changes, key=lambda change: change.score)


def _sort_residues(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the residues of each position by their odds, rare ones last, (P, 20), and the number of the others, (P,).

    `counts` is the number of attended and of background sequences with each residue at each position, (P, 20, 2).
    """
    odds = (counts[:, :, 0] + 0.5) / (counts[:, :, 1] + 0.5)
    is_rare = counts[:, :, 0] < _RARE * counts[:, :, 0].sum(axis=1, keepdims=True)
    order = np.argsort(np.where(is_rare, odds.max() + 1 / (1 + odds), -odds), axis=1, kind="stable")
    return order, np.asarray((~is_rare).sum(axis=1), np.int64)


def describe_windows(samples: ComparedSequences, attributions: NDArray[np.float64], candidate: Candidate) -> Candidate:
    """Return the pattern of the residues that the windows of a pattern share, if it is about as significant.

    Enrichment alone may leave out a residue that nearly all windows have, if background sequences with the rest of a
    motif have this residue, too. And it may require residues that are expected anyway, such as the last germline
    residues after a motif near the end. So a position requires the residues that are clearly more frequent than
    expected there if nearly all windows have them, and otherwise only if this lowers the corrected p-value.
    """
    masks = candidate.masks
    windows = find_windows(samples, masks, attributions)
    matrix = align_windows(samples, windows, _FLANK, len(masks) + _FLANK)
    common, share = find_common_residues(matrix)
    share *= matrix.counts.sum(axis=1) / windows.weights.sum()
    is_inside = np.pad(np.ones(len(masks), np.bool_), _FLANK)
    required = np.where((share >= _COMMON) | is_inside, common, ANY).astype(np.uint32)
    if not 0 < len(trim_pattern(required)) <= LONGEST:
        required[~is_inside] = ANY
    if len(trim_pattern(required)) == 0:
        return candidate
    best = Candidate(trim_pattern(required), score_pattern(samples, trim_pattern(required)))
    for position in np.flatnonzero(is_inside & (share < _COMMON) & (required != ANY)):
        freed = required.copy()
        freed[position] = ANY
        score = score_pattern(samples, trim_pattern(freed)) if len(trim_pattern(freed)) else np.inf
        if score < best.score:
            required, best = freed, Candidate(trim_pattern(freed), score)
    return best if best.score <= min(SIGNIFICANT, _EVIDENCE * candidate.score) else candidate


def find_common_residues(matrix: PositionFrequencyMatrix) -> tuple[Masks, NDArray[np.float64]]:
    """Return the residues of each position that are clearly more frequent than expected, and their share, (W,) each."""
    frequencies = matrix.counts / np.maximum(matrix.counts.sum(axis=1, keepdims=True), 1e-300)
    above = (frequencies >= _RARE) & (frequencies >= _ABOVE * matrix.expected)
    masks = (above << np.arange(above.shape[1])).sum(axis=1).astype(np.uint32)
    return np.where(masks == 0, ANY, masks).astype(np.uint32), (frequencies * above).sum(axis=1)


def find_attended_residues(attributions: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the residues from which patterns are made, (n, L) bool: the 8 highest of each sequence, if above 0."""
    values = np.nan_to_num(attributions, nan=0.0)
    threshold = np.sort(values, axis=1)[:, -_ATTENDED:][:, :1]
    return np.asarray((values > 0) & (values >= threshold))


def find_initial_patterns(
    samples: ComparedSequences, attended: NDArray[np.bool_], *, span: int, max_patterns: int
) -> list[Masks]:
    """Return the patterns that are most enriched among the attended sequences, best first.

    Parameters
    ----------
    samples
        Attended and background sequences.
    attended
        Whether a pattern may contain each residue of the attended sequences, (n, L), see `find_attended_residues`.
    span
        Largest number of positions from the first to the last residue of a pattern.
    max_patterns
        Largest number of patterns.

    Returns
    -------
    Patterns of 3 or 4 residues. At least 3 of the attended sequences that carry one, and at least a quarter of them,
    have their highest attributions on it.
    """
    n_attributed = Counter(
        pattern for row in range(samples.n_attended) for pattern in _list_patterns(samples, attended[row], row, span)
    )
    frequent = sorted(pattern for pattern, n in n_attributed.items() if n >= _FEWEST)
    patterns = [_convert_to_masks(pattern) for pattern in frequent]
    if not patterns:
        return []
    attended_with, background_with = samples.count_carriers(patterns)
    log_p = compute_fisher_log_p(attended_with, samples.n_attended, background_with, samples.n_background)
    score = log_p + np.array([compute_pattern_cost(masks) for masks in patterns])
    score[np.array([n_attributed[pattern] for pattern in frequent]) < _MIN_SHARE * attended_with] = np.inf
    best = np.argsort(score, kind="stable")[:max_patterns]
    return [patterns[i] for i in best if np.isfinite(score[i])]


_Residues = tuple[tuple[int, int], ...]


def _list_patterns(samples: ComparedSequences, attended: NDArray[np.bool_], row: int, span: int) -> set[_Residues]:
    """Return the patterns of one sequence, each as pairs of position, counted from its first residue, and residue."""
    residues = samples.residues[samples.offsets[row] : samples.offsets[row + 1]].tolist()
    positions = [position for position in np.flatnonzero(attended).tolist() if residues[position] != INVALID]
    return {
        tuple((position - chosen[0], residues[position]) for position in chosen)
        for size in _SIZES
        for chosen in combinations(positions, size)
        if chosen[-1] - chosen[0] < span
    }


def _convert_to_masks(residues: _Residues) -> Masks:
    """Return the pattern of some residues, with any residue between them."""
    masks = np.full(residues[-1][0] + 1, ANY, np.uint32)
    for position, residue in residues:
        masks[position] = 1 << residue
    return masks
