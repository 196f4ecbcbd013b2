"""Patterns with which the search for motifs begins: residues of high attribution that occur together.

Residues are indices, and sequences are end to end. Letters: R residues, n attended sequences, L positions.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import INVALID
from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.interpretation.motifs.enrichment import compute_fisher_log_p
from deeprc.interpretation.motifs.patterns import ANY, Masks, compute_pattern_cost

__all__ = ["find_attended_residues", "find_initial_patterns"]

_SIZES = (3, 4)  # numbers of residues of an initial pattern
_FEWEST = 3  # smallest number of sequences in which a pattern has the highest attributions
_MIN_SHARE = 0.25  # smallest share of these among the attended carriers of the pattern; by chance about half
_ATTENDED = 8  # number of residues of a sequence, with the highest attributions, from which patterns are made


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
