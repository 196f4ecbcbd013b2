"""The log-probabilities of the hypergeometric distribution against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from deeprc.baselines.association_tests import log_factorials, log_pmf


@pytest.mark.parametrize(("n", "n_positive", "n_all"), [(5, 4, 12), (12, 4, 12), (0, 3, 7), (40, 55, 150), (7, 0, 9)])
def test_probabilities_are_those_of_binomial_coefficients(n: int, n_positive: int, n_all: int) -> None:
    logs = log_factorials(n_all)
    for x in range(max(0, n - (n_all - n_positive)), min(n, n_positive) + 1):
        exact = Fraction(comb(n_positive, x) * comb(n_all - n_positive, n - x), comb(n_all, n))
        assert np.exp(log_pmf(x, n, n_positive, n_all, logs)) == pytest.approx(float(exact), rel=1e-12)


def test_the_order_of_the_sums_changes_a_stratified_test_by_less_than_rounding_shows() -> None:
    """Two orders of the same sum of log-factorials, of which the tests of clones once had one each."""
    rng = np.random.default_rng(0)
    n_all = 500
    logs = log_factorials(n_all)
    for _ in range(1000):
        n, n_class = rng.integers(0, n_all + 1, 2).tolist()
        x = int(rng.integers(max(0, n - (n_all - n_class)), min(n, n_class) + 1))
        ways = logs[n_class] - logs[x] - logs[n_class - x]
        ways += logs[n_all - n_class] - logs[n - x] - logs[n_all - n_class - n + x]
        other = ways - (logs[n_all] - logs[n] - logs[n_all - n])
        assert log_pmf(x, n, n_class, n_all, logs) == pytest.approx(other, abs=2e-12)
