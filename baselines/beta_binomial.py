"""The beta-binomial distribution: counts whose rate varies from repertoire to repertoire, fitted by maximum likelihood.

Letters: B repertoires, n different pairs of counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, digamma, expit, gammaln, zeta

__all__ = ["beta_binomial_log_pmf", "fit_beta_binomial"]

Floats = NDArray[np.float64]

_LOWEST, _HIGHEST = -12.0, 21.0  # log(alpha + beta); beyond 1e9 it is as good as binomial
_STARTS = range(-6, 22, 3)  # log(alpha + beta)
_LARGE = 100.0  # from here on the series below is exact to 1e-17
_LONGEST = 2.0  # step
_MOST_STEPS = 200
_LEAST_DAMPING, _MOST_DAMPING = 1e-12, 1e12


def beta_binomial_log_pmf(k: ArrayLike, n: ArrayLike, alpha: float, beta: float) -> Floats:
    """Return the log-probability of k of n, (B,), where each rate is drawn from a beta distribution."""
    hits, trials = np.asarray(k, np.float64), np.asarray(n, np.float64)
    ways = -np.log1p(trials) - betaln(trials - hits + 1, hits + 1)
    return np.asarray(ways + _log_ratio(hits, trials, alpha, beta))


def fit_beta_binomial(k: ArrayLike, n: ArrayLike) -> tuple[float, float]:
    """Return alpha and beta of greatest likelihood, given k of n for each repertoire, (B,).

    Where all k are 0, the likeliest rate is 0 and forbids everything else; the result then is what is known of one
    common rate after these counts, Beta(1/2, 1/2 + sum of n) (Jeffreys' prior), and mirrored where all k are n. Where
    the counts vary as little as the binomial's, alpha + beta is infinite; the result then is 1e9 in size.
    """
    pairs = np.stack([np.asarray(k, np.float64), np.asarray(n, np.float64)])
    hits, total = pairs.sum(axis=1).tolist()
    if hits in (0.0, total):
        return 0.5 + hits, 0.5 + total - hits
    # Sorted, so that the sums do not depend on the order of the repertoires.
    (some, trials), weights = np.unique(pairs, axis=1, return_counts=True)
    rate = float(np.log(hits / (total - hits)))
    losses = [_loss(some, trials, weights, *_alpha_beta(rate, start)) for start in _STARTS]
    return _alpha_beta(*_descend(some, trials, weights, rate, float(_STARTS[int(np.argmin(losses))])))


def _alpha_beta(rate: float, size: float) -> tuple[float, float]:
    """Return alpha and beta of the two numbers that are searched: log(alpha / beta) and log(alpha + beta)."""
    return float(np.exp(size) * expit(rate)), float(np.exp(size) * expit(-rate))


def _descend(k: Floats, n: Floats, weights: NDArray[np.int64], rate: float, size: float) -> tuple[float, float]:
    """Go from a rate and a size down to the least loss: Newton's method, damped until a step helps."""
    loss, damping = _loss(k, n, weights, *_alpha_beta(rate, size)), _LEAST_DAMPING
    for _ in range(_MOST_STEPS):
        (by_rate, by_size), curvature = _derivatives(k, n, weights, *_alpha_beta(rate, size))
        if (size >= _HIGHEST and by_size < 0) or (size <= _LOWEST and by_size > 0):
            by_size, curvature = 0.0, (curvature[0], curvature[1], 0.0)  # the size stays at the end of its range
        while True:
            step = _step(by_rate, by_size, curvature, damping)
            new = rate + step[0], min(max(size + step[1], _LOWEST), _HIGHEST)
            found = _loss(k, n, weights, *_alpha_beta(*new))
            if found <= loss or damping > _MOST_DAMPING:
                break
            damping *= 10
        if found > loss or loss - found <= 1e-14 * abs(loss):
            return (rate, size) if found > loss else new
        (rate, size), loss, damping = new, found, max(damping / 100, _LEAST_DAMPING)
    return rate, size


def _step(by_rate: float, by_size: float, curvature: tuple[float, float, float], damping: float) -> tuple[float, float]:
    """Return Newton's step, with as much added to both second derivatives that it goes down."""
    a, b, mixed = curvature
    middle, spread = (a + b) / 2, float(np.hypot((a - b) / 2, mixed))
    added = max(0.0, spread - middle) + damping * (abs(middle) + spread) + 1e-300
    a, b = a + added, b + added
    scale = a * b - mixed**2
    x, y = (mixed * by_size - b * by_rate) / scale, (mixed * by_rate - a * by_size) / scale
    return min(max(x, -_LONGEST), _LONGEST), min(max(y, -_LONGEST), _LONGEST)


def _loss(k: Floats, n: Floats, weights: NDArray[np.int64], alpha: float, beta: float) -> float:
    """Return the negative log-likelihood, up to a constant, of n pairs of counts that occur `weights` times."""
    return -float((weights * _log_ratio(k, n, alpha, beta)).sum())


def _derivatives(
    k: Floats, n: Floats, weights: NDArray[np.int64], alpha: float, beta: float
) -> tuple[tuple[float, float], tuple[float, float, float]]:
    """Return the loss's derivatives by rate and size, and its second ones: of rate, of size, mixed."""
    size, spread = alpha + beta, alpha * beta / (alpha + beta)
    counts = ((k, alpha), (n - k, beta), (n, size))
    one = [float((weights * (digamma(m + x) - digamma(x))).sum()) for m, x in counts]
    two = [float((weights * (zeta(2, m + x) - zeta(2, x))).sum()) for m, x in counts]  # zeta(2, x): digamma's slope
    by_alpha, by_beta = one[0] - one[2], one[1] - one[2]
    by_rate, by_size = spread * (by_alpha - by_beta), alpha * by_alpha + beta * by_beta
    rate_rate = spread**2 * (two[0] + two[1]) + by_rate * (beta - alpha) / size
    size_size = alpha**2 * two[0] + beta**2 * two[1] - size**2 * two[2] + by_size
    mixed = spread * (alpha * two[0] - beta * two[1]) + by_rate
    return (-by_rate, -by_size), (-rate_rate, -size_size, -mixed)


def _log_ratio(k: Floats, n: Floats, alpha: float, beta: float) -> Floats:
    """Return log(B(k + alpha, n - k + beta) / B(alpha, beta)), (B,)."""
    return _log_rising(alpha, k) + _log_rising(beta, n - k) - _log_rising(alpha + beta, n)


def _log_rising(x: float, m: Floats) -> Floats:
    """Return log(gamma(x + m) / gamma(x)), (B,), without the cancellation of two large numbers (Stirling's series)."""
    if x < _LARGE:
        return np.asarray(gammaln(x + m) - gammaln(x))
    y = x + m
    series = (1 / y - 1 / x) / 12 - (1 / y**3 - 1 / x**3) / 360 + (1 / y**5 - 1 / x**5) / 1260
    return np.asarray((x - 0.5) * np.log1p(m / x) + m * (np.log(y) - 1) + series)
