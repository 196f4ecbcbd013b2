"""Attended sequences and sequences of the background, between which patterns are compared.

Residues are indices, and sequences are end to end. Letters: R residues, n attended sequences.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.interpretation.motifs.enrichment import compute_fisher_log_p
from deeprc.interpretation.motifs.matching import count_pattern_carriers
from deeprc.interpretation.motifs.patterns import Masks

__all__ = ["ComparedSequences"]


class ComparedSequences(NamedTuple):
    """Attended and background sequences, end to end; the first `n` are the attended ones."""

    residues: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    n: int

    @property
    def others(self) -> int:
        """Number of background sequences."""
        return len(self.offsets) - 1 - self.n

    def count_carriers(self, patterns: list[Masks]) -> NDArray[np.int64]:
        """Return the numbers of attended and of background sequences that carry each of M patterns, (2, M)."""
        attended = count_pattern_carriers(self.residues, self.offsets[: self.n + 1], patterns)
        return np.stack([attended, count_pattern_carriers(self.residues, self.offsets[self.n :], patterns)])

    def log_p(self, patterns: list[Masks]) -> NDArray[np.float64]:
        """Return the natural logarithms of the p-values of the enrichment of M patterns, (M,)."""
        n_with, others_with = self.count_carriers(patterns)
        return np.asarray(compute_fisher_log_p(n_with, self.n, others_with, self.others))
