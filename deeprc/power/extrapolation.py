"""The inverse power law of a learning curve: AUC(n) = ceiling - loss * n ^ -exponent, for n repertoires to learn from.

Letters: D samples of AUCs, S numbers of repertoires, G exponents that are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["PowerLaw", "fit_power_law", "fit_power_laws"]

Floats = NDArray[np.float64]

_CHANCE = 0.5
_EXPONENTS = (0.1, 3.0)
_N_TRIED = 30  # at a time
_N_REFINEMENTS = 3


@dataclass(frozen=True)
class PowerLaw:
    """An inverse power law.

    Attributes
    ----------
    ceiling
        AUC that the law approaches with more and more repertoires, 0.5 to 1.
    loss
        Difference between the ceiling and the AUC with one repertoire, at least 0.
    exponent
        Exponent of the number of repertoires: how fast the AUC approaches the ceiling.
    """

    ceiling: float
    loss: float
    exponent: float

    def auc(self, n: float) -> float:
        """Return the AUC with n repertoires to learn from."""
        return float(self.ceiling - self.loss * n**-self.exponent)

    def n_for(self, auc: float) -> float:
        """Return the number of repertoires with which an AUC is reached; infinity if it never is."""
        if self.auc(1) >= auc:
            return 1.0
        if auc >= self.ceiling or self.loss <= 0:
            return float("inf")
        log_n = np.log(self.loss / (self.ceiling - auc)) / self.exponent
        return float(np.exp(log_n)) if log_n < 700 else float("inf")


def fit_power_law(n: Floats, auc: Floats, weights: Floats) -> PowerLaw:
    """Return the inverse power law with the least weighted squares, whose ceiling is 0.5 to 1 and which never falls.

    Parameters
    ----------
    n, auc, weights
        Number of repertoires, AUC with this number, and weight of this AUC, (S,) each; S is at least 1.
    """
    return fit_power_laws(n, auc[None], weights)[0]


def fit_power_laws(n: Floats, auc: Floats, weights: Floats) -> list[PowerLaw]:
    """Return `fit_power_law` of each row of AUCs, (D, S)."""
    scale = float(n.max())  # powers of n / max n are of similar size, whatever n is
    exponents = np.broadcast_to(np.geomspace(*_EXPONENTS, _N_TRIED), (len(auc), _N_TRIED))
    rows = np.arange(len(auc))
    for _ in range(_N_REFINEMENTS):
        best = _fit_lines(exponents, n / scale, auc, weights)[2].argmin(axis=1)
        low = exponents[rows, np.maximum(best - 1, 0)]
        high = exponents[rows, np.minimum(best + 1, _N_TRIED - 1)]
        exponents = np.geomspace(low, high, _N_TRIED, axis=1)  # (D, G)
    ceiling, loss, squares = _fit_lines(exponents, n / scale, auc, weights)
    best = squares.argmin(axis=1)
    of_best = ceiling[rows, best], loss[rows, best] * scale ** exponents[rows, best], exponents[rows, best]
    return [PowerLaw(*values) for values in zip(*(each.tolist() for each in of_best), strict=True)]


def _fit_lines(exponents: Floats, n: Floats, auc: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ceiling, loss and the weighted sum of squares for each exponent, (D, G)."""
    x = n ** -exponents[:, :, None]  # (D, G, S)
    y = auc[:, None, :]  # (D, 1, S)
    w = weights / weights.sum()
    mean_x, mean_y = x @ w, y @ w
    spread = ((x - mean_x[:, :, None]) ** 2) @ w
    covariance = ((x - mean_x[:, :, None]) * (y - mean_y[:, :, None])) @ w
    loss = np.where(spread > 0, -covariance / np.where(spread > 0, spread, 1.0), 0.0)
    loss = np.maximum(loss, 0.0)
    ceiling = mean_y + loss * mean_x
    bounded = np.clip(ceiling, _CHANCE, 1.0)
    refitted = np.maximum(((bounded[:, :, None] - y) * x) @ w / ((x**2) @ w), 0.0)  # of a ceiling that is given
    loss = np.where(bounded == ceiling, loss, refitted)
    residuals = bounded[:, :, None] - loss[:, :, None] * x - y
    return bounded, loss, (residuals**2) @ w
