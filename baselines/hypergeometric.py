"""The hypergeometric distribution from a table of log-factorials, for compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from deeprc.compilation import njit

__all__ = ["log_factorials", "log_pmf"]


def log_factorials(n: int) -> NDArray[np.float64]:
    """Return the logarithms of the factorials of 0 to n, (n + 1,)."""
    return np.asarray(gammaln(np.arange(n + 1) + 1.0))


@njit(nogil=True)
def log_pmf(x: int, n: int, n_positive: int, n_all: int, logs: NDArray[np.float64]) -> Any:
    """Return the log-probability that x of n units are positive, which are drawn at random from `n_all` units.

    `n_positive` is the number of positive units among all. `logs` are the log-factorials of 0 to `n_all` at least.
    """
    n_negative, y = n_all - n_positive, n - x
    log_tables = logs[n_positive] - logs[x] - logs[n_positive - x] + logs[n_negative] - logs[y] - logs[n_negative - y]
    return log_tables - (logs[n_all] - logs[n] - logs[n_all - n])
