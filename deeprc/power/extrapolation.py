"""The inverse power law of a learning curve: AUC(n) = ceiling - loss * n ^ -exponent, for n repertoires to learn from.

Letters: S numbers of repertoires, G exponents that are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

__all__ = ["PowerLaw", "fit_power_law"]

Floats = NDArray[np.float64]

_CHANCE = 0.5
_EXPONENTS = np.geomspace(0.1, 3.0, 60)


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
    scale = float(n.max())  # powers of n / max n are of similar size, whatever n is

    def squares(log_exponent: float) -> float:
        return float(_fit_lines(np.exp([log_exponent]), n / scale, auc, weights)[2][0])

    _, _, sums = _fit_lines(_EXPONENTS, n / scale, auc, weights)
    best = int(sums.argmin())
    logs = np.log(_EXPONENTS)
    limits = logs[max(best - 1, 0)], logs[min(best + 1, len(logs) - 1)]
    found = minimize_scalar(squares, bounds=limits, method="bounded", options={"xatol": 1e-9})
    exponent = np.exp(found.x if found.fun < sums[best] else logs[best])
    ceiling, loss, _ = _fit_lines(np.array([exponent]), n / scale, auc, weights)
    return PowerLaw(float(ceiling[0]), float(loss[0] * scale**exponent), float(exponent))


def _fit_lines(exponents: Floats, n: Floats, auc: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ceiling, loss and the weighted sum of squares for each exponent, (G,)."""
    x = n[None, :] ** -exponents[:, None]  # (G, S)
    w = weights / weights.sum()
    mean_x, mean_y = x @ w, float(auc @ w)
    spread = ((x - mean_x[:, None]) ** 2) @ w
    covariance = ((x - mean_x[:, None]) * (auc - mean_y)) @ w
    loss = np.where(spread > 0, -covariance / np.where(spread > 0, spread, 1.0), 0.0)
    loss = np.maximum(loss, 0.0)
    ceiling = mean_y + loss * mean_x
    bounded = np.clip(ceiling, _CHANCE, 1.0)
    refitted = np.maximum(((bounded[:, None] - auc) * x) @ w / ((x**2) @ w), 0.0)  # loss for a given ceiling
    loss = np.where(bounded == ceiling, loss, refitted)
    residuals = bounded[:, None] - loss[:, None] * x - auc
    return bounded, loss, (residuals**2) @ w
