"""Seeds of motifs: gapped k-mers of residues with high attribution that are more frequent than in the background.

Residues are indices, and sequences are end to end. Letters: R residues, n attended sequences, L positions.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import INVALID
from deeprc.interpretation.motifs.enrichment import compute_fisher_log_p
from deeprc.interpretation.motifs.matching import count_pattern_carriers
from deeprc.interpretation.motifs.patterns import ANY, Masks, compute_pattern_cost

__all__ = ["ComparedSequences", "find_attended_residues", "find_seeds"]

_SIZES = (3, 4)  # numbers of residues of a seed
_FEWEST = 3  # smallest number of sequences in which a seed has the highest attributions
_MIN_SHARE = 0.25  # smallest share of these among the attended carriers of the seed; by chance about half
_ATTENDED = 8  # number of residues of a sequence, with the highest attributions, from which seeds are made


class ComparedSequences(NamedTuple):
    """Attended and background sequences, end to end; the first `n` are the attended ones."""

    residues: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    n: int

    @property
    def others(self) -> int:
        """Number of background sequences."""
        return len(self.offsets) - 1 - self.n

    def counts(self, patterns: list[Masks]) -> NDArray[np.int64]:
        """Return the numbers of attended and of background sequences that carry each of M patterns, (2, M)."""
        attended = count_pattern_carriers(self.residues, self.offsets[: self.n + 1], patterns)
        return np.stack([attended, count_pattern_carriers(self.residues, self.offsets[self.n :], patterns)])

    def log_p(self, patterns: list[Masks]) -> NDArray[np.float64]:
        """Return the natural logarithms of the p-values of the enrichment of M patterns, (M,)."""
        n_with, others_with = self.counts(patterns)
        return np.asarray(compute_fisher_log_p(n_with, self.n, others_with, self.others))


def find_attended_residues(attributions: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the residues from which seeds are made, (n, L) bool: the 8 highest of each sequence, if above 0."""
    values = np.nan_to_num(attributions, nan=0.0)
    threshold = np.sort(values, axis=1)[:, -_ATTENDED:][:, :1]
    return np.asarray((values > 0) & (values >= threshold))


def find_seeds(samples: ComparedSequences, attended: NDArray[np.bool_], *, span: int, max_seeds: int) -> list[Masks]:
    """Return the seeds that are most enriched among the attended sequences, best first.

    Parameters
    ----------
    samples
        Attended and background sequences.
    attended
        Whether a seed may contain each residue of the attended sequences, (n, L), see `find_attended_residues`.
    span
        Largest number of positions from the first to the last residue of a seed.
    max_seeds
        Largest number of seeds.

    Returns
    -------
    Patterns of 3 or 4 residues. At least 3 of the attended sequences that carry one, and at least a quarter of them,
    have their highest attributions on it.
    """
    on = Counter(seed for row in range(samples.n) for seed in _make_seeds(samples, attended[row], row, span))
    patterns = [_make_masks(seed) for seed in sorted(seed for seed, n in on.items() if n >= _FEWEST)]
    n_on = np.array([n for _, n in sorted(on.items()) if n >= _FEWEST])
    if not patterns:
        return []
    n_with, others_with = samples.counts(patterns)
    log_p = compute_fisher_log_p(n_with, samples.n, others_with, samples.others)
    score = log_p + np.array([compute_pattern_cost(masks) for masks in patterns])
    score[n_on < _MIN_SHARE * n_with] = np.inf
    best = np.argsort(score, kind="stable")[:max_seeds]
    return [patterns[i] for i in best if np.isfinite(score[i])]


_Seed = tuple[tuple[int, int], ...]


def _make_seeds(samples: ComparedSequences, attended: NDArray[np.bool_], row: int, span: int) -> set[_Seed]:
    """Return the seeds of one sequence, each as pairs of position, relative to its first residue, and residue."""
    residues = samples.residues[samples.offsets[row] : samples.offsets[row + 1]].tolist()
    positions = [position for position in np.flatnonzero(attended).tolist() if residues[position] != INVALID]
    return {
        tuple((position - chosen[0], residues[position]) for position in chosen)
        for size in _SIZES
        for chosen in combinations(positions, size)
        if chosen[-1] - chosen[0] < span
    }


def _make_masks(seed: _Seed) -> Masks:
    masks = np.full(seed[-1][0] + 1, ANY, np.uint32)
    for place, residue in seed:
        masks[place] = 1 << residue
    return masks
