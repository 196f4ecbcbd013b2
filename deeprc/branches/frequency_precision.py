"""The precision of frequencies in repertoires: it says whether they vary more than the counting of sequences explains.

Letters: B repertoires, M features such as k-mers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats, Integers

__all__ = ["FrequencyPrecision"]


class FrequencyPrecision(NamedTuple):
    """Precision of frequencies, which depends on numbers of sequences and donors.

    Attributes
    ----------
    size
        Effective number of sequences: with it, counting alone gives the mean sampling variance of a frequency.
    n_donors
        Effective number of donors, if all had equal weight. Frequencies in repertoires of one donor may vary together,
        so these repertoires count once.
    """

    size: float
    n_donors: float

    @classmethod
    def from_repertoires(cls, weights: Floats, sizes: Integers, donors: Integers) -> FrequencyPrecision:
        """Return the precision from weights, numbers of sequences and donors of repertoires, (B,) each; none is empty.

        The donors are numbered from 0.
        """
        total = float(weights.sum())
        return cls(total / float((weights / sizes).sum()), total**2 / float((np.bincount(donors, weights) ** 2).sum()))

    def compute_relative_excess(self, mean: Floats, variance: Floats) -> Floats:
        """Return the squared coefficient of variation of frequencies, minus its part by counting, (M,); at least 0."""
        occurs = mean > 0
        safe = np.where(occurs, mean, 1)
        return np.where(occurs, np.maximum(variance - mean / self.size, 0) / safe**2, 0)

    def compute_z_scores(self, mean: Floats, variance: Floats, inherited: Floats) -> Floats:
        """Return how many standard deviations the variance of each k-mer's frequencies is above its expectation, (M,).

        A count with mean m and a relative excess c has the variance m e, with e = 1 + c m. The ratio of the observed
        variance and m has the mean e and, with D donors, at most the variance (2 e^2 + 1 / m) / D. This limit holds if
        m is known and not estimated; it excludes rare k-mers, whose ratio has a skewed distribution.

        Parameters
        ----------
        mean, variance
            Mean and variance of the frequencies, (M,).
        inherited
            Expected relative excess, (M,).
        """
        count = np.where(mean > 0, mean, 1) * self.size
        expected = 1 + inherited * count
        deviation = np.sqrt((2 * expected**2 + 1 / count) / self.n_donors)
        return np.where(mean > 0, (variance * self.size**2 / count - expected) / deviation, 0)
