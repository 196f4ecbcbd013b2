"""Two forms of a learning curve, for n repertoires to learn from.

The inverse power law, AUC(n) = ceiling - deficit * n ^ -exponent, rises most steeply at its beginning. A method that
has to select few of many features stays near 0.5 at first, and rises later. Such a curve is described by the separation
of the classes in standard deviations: separation(n) = limit * (1 + delay / n) ^ -steepness, and AUC(n) =
Phi(separation). With a steepness of 1/2 this is the exact curve of the difference of class means of independent normal
features.

Letters: D samples of AUCs, S numbers of repertoires, G exponents or curves that are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from deeprc.arrays import Floats

__all__ = ["LateCurve", "PowerLaw", "fit_late_curves", "fit_power_law", "fit_power_laws"]

_CHANCE = 0.5
_EXPONENTS = (0.1, 3.0)
_N_TRIED = 30  # number of exponents that are tried in each refinement
_N_REFINEMENTS = 3
_LIMITS = (*np.arange(0.5, 0.9, 0.02).tolist(), 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 0.999)  # AUCs
_STEEPNESS = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class PowerLaw:
    """An inverse power law.

    Attributes
    ----------
    ceiling
        AUC that the law approaches with more and more repertoires, 0.5 to 1.
    deficit
        Difference between the ceiling and the AUC with one repertoire, at least 0.
    exponent
        Exponent of the number of repertoires: how fast the AUC approaches the ceiling.
    """

    ceiling: float
    deficit: float
    exponent: float

    def predict_auc(self, n: float) -> float:
        """Return the AUC with n repertoires to learn from."""
        return float(self.ceiling - self.deficit * n**-self.exponent)

    def solve_n(self, auc: float) -> float:
        """Return the number of repertoires with which the law reaches an AUC; infinity if it never does."""
        if self.predict_auc(1) >= auc:
            return 1.0
        if auc >= self.ceiling or self.deficit <= 0:
            return float("inf")
        log_n = np.log(self.deficit / (self.ceiling - auc)) / self.exponent
        return float(np.exp(log_n)) if log_n < 700 else float("inf")


@dataclass(frozen=True)
class LateCurve:
    """A learning curve that may rise late.

    Attributes
    ----------
    limit
        Separation of the classes that the curve approaches with more and more repertoires, at least 0.
    delay
        Number of repertoires with which the separation is 2 ^ -steepness times the limit, at least 0.
    steepness
        Exponent of the number of repertoires at the beginning of the curve.
    """

    limit: float
    delay: float
    steepness: float

    def predict_auc(self, n: float) -> float:
        """Return the AUC with n repertoires to learn from."""
        return float(norm.cdf(self.limit * (1 + self.delay / n) ** -self.steepness))

    def solve_n(self, auc: float) -> float:
        """Return the number of repertoires with which the curve reaches an AUC, at least 1; else infinity."""
        separation = norm.ppf(auc)
        if self.limit < separation or (self.limit == separation and self.delay > 0):
            return float("inf")
        excess = (self.limit / separation) ** (1 / self.steepness) - 1
        return max(1.0, float(self.delay / excess)) if self.delay > 0 else 1.0


def fit_late_curves(n: Floats, auc: Floats, weights: Floats) -> list[LateCurve]:
    """Fit a curve to each row of AUCs, (D, S): return the curve of a grid with the least weighted squares.

    Parameters
    ----------
    n, auc, weights
        Number of repertoires, (S,), AUCs, (D, S), and weights of the AUCs, (S,).
    """
    delays = np.r_[0.0, np.geomspace(float(n.min()) / 4, float(n.max()) * 60, 80)]
    grid = np.meshgrid(norm.ppf(_LIMITS), delays, _STEEPNESS, indexing="ij")
    limit, delay, steepness = (coordinate.ravel() for coordinate in grid)  # (G,)
    curves = norm.cdf(limit[:, None] * (1 + delay[:, None] / n) ** -steepness[:, None])  # (G, S)
    # The sum of squares of each curve, (D, G), without the term that is the same for all curves.
    squares = curves**2 @ weights - 2 * (auc * weights) @ curves.T
    return [LateCurve(float(limit[g]), float(delay[g]), float(steepness[g])) for g in squares.argmin(axis=1)]


def fit_power_law(n: Floats, auc: Floats, weights: Floats) -> PowerLaw:
    """Fit an inverse power law by least weighted squares; its ceiling is 0.5 to 1, and it never falls.

    Parameters
    ----------
    n, auc, weights
        Number of repertoires, AUC with this number, and weight of this AUC, (S,) each; S is at least 1.
    """
    return fit_power_laws(n, auc[None], weights)[0]


def fit_power_laws(n: Floats, auc: Floats, weights: Floats) -> list[PowerLaw]:
    """Fit an inverse power law to each row of AUCs, (D, S); see `fit_power_law`."""
    scale = float(n.max())  # powers of n / max n are of similar size, whatever n is
    exponents = np.broadcast_to(np.geomspace(*_EXPONENTS, _N_TRIED), (len(auc), _N_TRIED))
    rows = np.arange(len(auc))
    for _ in range(_N_REFINEMENTS):
        best = _fit_lines(exponents, n / scale, auc, weights)[2].argmin(axis=1)
        low = exponents[rows, np.maximum(best - 1, 0)]
        high = exponents[rows, np.minimum(best + 1, _N_TRIED - 1)]
        exponents = np.geomspace(low, high, _N_TRIED, axis=1)  # (D, G)
    ceiling, deficit, squares = _fit_lines(exponents, n / scale, auc, weights)
    best = squares.argmin(axis=1)
    exponent = exponents[rows, best]
    best_parameters = ceiling[rows, best], deficit[rows, best] * scale**exponent, exponent
    return [PowerLaw(*values) for values in zip(*(parameter.tolist() for parameter in best_parameters), strict=True)]


def _fit_lines(exponents: Floats, n: Floats, auc: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ceiling, deficit and the weighted sum of squares for each exponent, (D, G)."""
    x = n ** -exponents[:, :, None]  # (D, G, S)
    y = auc[:, None, :]  # (D, 1, S)
    w = weights / weights.sum()
    mean_x, mean_y = x @ w, y @ w
    spread = ((x - mean_x[:, :, None]) ** 2) @ w
    covariance = ((x - mean_x[:, :, None]) * (y - mean_y[:, :, None])) @ w
    deficit = np.where(spread > 0, -covariance / np.where(spread > 0, spread, 1.0), 0.0)
    deficit = np.maximum(deficit, 0.0)
    ceiling = mean_y + deficit * mean_x
    bounded = np.clip(ceiling, _CHANCE, 1.0)
    refitted = np.maximum(((bounded[:, :, None] - y) * x) @ w / ((x**2) @ w), 0.0)  # with the bounded ceiling
    deficit = np.where(bounded == ceiling, deficit, refitted)
    residuals = bounded[:, :, None] - deficit[:, :, None] * x - y
    return bounded, deficit, (residuals**2) @ w
