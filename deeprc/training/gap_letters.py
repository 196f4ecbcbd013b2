"""The letters at the gaps of motifs: with some, a motif is more strongly associated with the label than with others.

A gap of a motif is a position where any residue may be. If witnesses have any residue there, the motif is more enriched
with a residue that is rare elsewhere. A kernel should then match the motif better with that residue.
Letters: B repertoires with a label, W residues that a motif spans, G gaps of all motifs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from deeprc import ranks
from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.outputs import output_slices
from deeprc.progress import open_step
from deeprc.rank_calls import compute_parts, divide_repertoires
from deeprc.tasks import Task
from deeprc.training.enrichment import EnrichedMotif
from deeprc.training.fold import Fold
from deeprc.training.kmer_candidates import ANY
from deeprc.training.kmer_frequencies import Codes, iterate_blocks
from deeprc.training.search_targets import find_known, make_target

__all__ = ["Advantages", "describe_advantages", "find_advantages"]

Floats = NDArray[np.float64]

Advantages = dict[int, tuple[float, ...]]
"""By gap, its offset in the motif: the association of the motif with each letter there, divided by the largest, (20,).

A letter with which the motif is not associated, or in the other direction, has 0. A gap at which no letter is certainly
better than the others is not there.
"""

_N_LETTERS = len(AMINO_ACIDS)
_NAMED = 0.5  # smallest advantage of a letter that is named to the user
_LEVEL = 0.01  # largest p-value of equal associations, divided by the number of gaps


def find_advantages(motifs: Sequence[EnrichedMotif], fold: Fold, tasks: Sequence[Task]) -> list[Advantages]:
    """Return how strongly each motif is associated with its output, by the letter at each of its gaps.

    The association of a motif with one letter at a gap is the slope of its frequency over the label, divided by its
    mean frequency. The slopes of the 20 letters are compared by Cochran's Q. If they differ, each is drawn towards
    their mean, the more so the less it is certain (DerSimonian and Laird 1986).

    Rank 0 decides; the other ranks count their parts, as in `find_confirmed_motifs`.

    Parameters
    ----------
    motifs
        Motifs that are associated with an output.
    fold, tasks
        Training repertoires with their labels and donors, and the tasks of the labels.
    """
    return ranks.compute_once(partial(_find_advantages, motifs, fold, tasks), shared=[fold.dataset.container])


def describe_advantages(motifs: Sequence[EnrichedMotif], advantages: Sequence[Advantages]) -> str:
    """Return the continuation of a sentence, which names the best letters at the gaps of motifs; empty if none is."""
    named = [
        f"{motif.pattern} (position {gap + 1}: {_list_best_letters(values)})"
        for motif, of_motif in zip(motifs, advantages, strict=True)
        for gap, values in of_motif.items()
    ]
    if not named:
        return ""
    return f". Letters at gaps whose association with the label is strongest, or half as strong: {', '.join(named)}"


def _list_best_letters(values: Sequence[float]) -> str:
    best = sorted(range(_N_LETTERS), key=lambda letter: -values[letter])
    return " ".join(AMINO_ACIDS[letter] for letter in best if values[letter] >= _NAMED)


def _find_advantages(motifs: Sequence[EnrichedMotif], fold: Fold, tasks: Sequence[Task]) -> list[Advantages]:
    gaps = [
        (m, offset) for m, motif in enumerate(motifs) for offset, letter in enumerate(motif.letters) if letter == ANY
    ]
    found: list[Advantages] = [{} for _ in motifs]
    if not gaps:
        return found
    counts = _count_letters(fold.dataset, [motif.letters for motif in motifs], gaps)
    slices = output_slices(tasks)
    for i, (m, offset) in enumerate(gaps):
        motif = motifs[m]
        index = next(i for i, part in enumerate(slices) if motif.output < part.stop)
        every = make_target(fold, tasks[index], slices[index], fold.labels[:, index])
        target = every.take([motif.output - slices[index].start])
        known = find_known(fold, fold.labels[:, index])
        sizes = target.dataset.n_sequences
        slopes, variances = _fit_slopes(
            counts[known, i] / sizes[:, None], sizes, target.values[:, 0], target.weigh(), target.donors
        )
        advantage = _shrink(np.sign(motif.correlation) * slopes, variances, _LEVEL / len(gaps))
        if advantage is not None:
            found[m][offset] = tuple(advantage.tolist())
    return found


def _fit_slopes(
    frequencies: Floats, sizes: Codes, values: Floats, weights: Floats, donors: Codes
) -> tuple[Floats, Floats]:
    """Return the slope of each column of frequencies over the values, relative to its mean, and its variance.

    The variance is that of the donors' deviations from the line, and at least that of counting.

    Parameters
    ----------
    frequencies
        Frequencies, (B, 20).
    sizes, values, weights, donors
        Number of sequences, label, weight and donor of each repertoire, (B,) each.

    Returns
    -------
    Slopes and variances, (20,) each; both are NaN for a letter that never occurs.
    """
    weights = weights / weights.sum()
    centred = values - weights @ values
    influence = weights * centred / (weights @ centred**2)  # (B,)
    mean = weights @ frequencies  # (20,)
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes = influence @ frequencies / mean
        expected = mean * (1 + slopes * centred[:, None])
        residuals = influence[:, None] * (frequencies - expected) / mean  # (B, 20)
        by_donor = np.zeros((int(donors.max()) + 1, frequencies.shape[1]))
        np.add.at(by_donor, donors, residuals)
        variances = np.maximum((by_donor**2).sum(0), (influence**2 / sizes).sum() / mean)
    return slopes, variances


def _shrink(slopes: Floats, variances: Floats, level: float) -> Floats | None:
    """Return the slopes drawn towards their mean, divided by the largest, (20,); None if they may all be equal.

    The parameters are those that `_fit_slopes` returns, and the largest p-value of equal slopes.
    """
    known = np.isfinite(slopes)
    if known.sum() < 2:
        return None
    certainty = 1 / variances[known]
    mean = certainty @ slopes[known] / certainty.sum()
    q, free = float(certainty @ (slopes[known] - mean) ** 2), int(known.sum()) - 1
    if mean <= 0 or chi2.sf(q, free) > level:
        return None
    between = max(0.0, (q - free) / (certainty.sum() - (certainty**2).sum() / certainty.sum()))
    shrunk = np.full(len(slopes), mean)
    shrunk[known] += (slopes[known] - mean) * between / (between + variances[known])
    return np.asarray(np.maximum(shrunk, 0) / shrunk.max())


def _count_letters(
    dataset: RepertoireDataset, motifs: Sequence[Sequence[int]], gaps: Sequence[tuple[int, int]]
) -> Codes:
    """Return how often a motif occurs in each repertoire with each letter at one of its gaps, (B, G, 20).

    Parameters
    ----------
    dataset
        The repertoires.
    motifs
        Letters of each motif; -1 stands for any residue.
    gaps
        Motif and offset of each gap, motif by motif.
    """
    letters = np.full((len(motifs), max(map(len, motifs))), ANY)
    for own, motif in zip(letters, motifs, strict=True):
        own[: len(motif)] = motif
    spans = np.array([len(motif) for motif in motifs])
    function = partial(_count_part, letters, spans, np.array(gaps))
    return np.concatenate(compute_parts(function, divide_repertoires(dataset)))


def _count_part(letters: Codes, spans: Codes, gaps: Codes, dataset: RepertoireDataset) -> Codes:
    first_gaps = np.searchsorted(gaps[:, 0], np.arange(len(spans) + 1))
    counts = np.zeros((len(dataset), len(gaps), _N_LETTERS), np.int64)
    with open_step("letters at the gaps of motifs", int(dataset.n_sequences.sum())) as step:
        for rows, residues, offsets, bounds in iterate_blocks(dataset, step):
            _tally(residues, offsets, bounds, letters, spans, first_gaps, gaps[:, 1].copy(), counts[rows])
    return counts


@njit(parallel=True, nogil=True)
def _tally(
    residues: NDArray[np.uint8],
    offsets: Codes,
    bounds: Codes,
    letters: Codes,
    spans: Codes,
    first_gaps: Codes,
    gaps: Codes,
    counts: Codes,
) -> None:
    """Add the occurrences of motifs in the sequences of each repertoire, (rows, G, 20).

    Motif m has the letters letters[m, : spans[m]], and the gaps first_gaps[m] to first_gaps[m + 1] - 1.
    """
    for b in numba.prange(len(bounds) - 1):
        for s in range(bounds[b], bounds[b + 1]):
            for start in range(offsets[s], offsets[s + 1]):
                for m in range(len(spans)):
                    if letters[m, 0] == residues[start] and start + spans[m] <= offsets[s + 1]:
                        offset = 1
                        while offset < spans[m] and (
                            letters[m, offset] == ANY or letters[m, offset] == residues[start + offset]
                        ):
                            offset += 1
                        if offset == spans[m]:
                            for i in range(first_gaps[m], first_gaps[m + 1]):
                                counts[b, i, residues[start + gaps[i]]] += 1
