"""The beta-binomial distribution: counts whose rate varies from repertoire to repertoire, fitted by maximum likelihood.

Letters: B repertoires, each with k hits in n trials.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, digamma, expit, gammaln, zeta

from deeprc.arrays import Floats

__all__ = [
    "compute_beta_binomial_log_odds",
    "compute_beta_binomial_log_pmf",
    "fit_beta_binomial",
    "fit_two_beta_binomials",
]

_MIN_SIZE, _MAX_SIZE = -12.0, 21.0  # log(alpha + beta); above 1e9 the distribution is nearly binomial
_STARTS = range(-6, 22, 3)  # log(alpha + beta)
_LARGE = 100.0  # from here on Stirling's series in `_compute_log_gamma_ratio` is exact to 1e-17
_MAX_STEP = 2.0
_MAX_STEPS = 200
_MIN_DAMPING, _MAX_DAMPING = 1e-12, 1e12


class _Derivatives(NamedTuple):
    """First and second derivatives of the loss by the two numbers that are optimised, `rate` and `size`."""

    by_rate: float
    by_size: float
    rate_rate: float
    size_size: float
    rate_size: float


def compute_beta_binomial_log_pmf(k: ArrayLike, n: ArrayLike, alpha: float, beta: float) -> Floats:
    """Return the log-probability of k hits in n trials, (B,), if the rate of each repertoire is beta-distributed."""
    hits, trials = np.asarray(k, np.float64), np.asarray(n, np.float64)
    log_binomial = -np.log1p(trials) - betaln(trials - hits + 1, hits + 1)
    return np.asarray(log_binomial + _compute_log_beta_ratio(hits, trials, alpha, beta))


def fit_two_beta_binomials(k: ArrayLike, n: ArrayLike, positive: NDArray[np.bool_]) -> Floats:
    """Return alpha and beta of the negative and of the positive repertoires, (2, 2); (0, 2) if there is no hit."""
    hits, trials = np.asarray(k), np.asarray(n)
    if not hits.any():
        return np.zeros((0, 2))
    return np.array([fit_beta_binomial(hits[chosen], trials[chosen]) for chosen in (~positive, positive)])


def compute_beta_binomial_log_odds(distributions: Floats, k: ArrayLike, n: ArrayLike) -> Floats:
    """Return the log-odds, without a prior, that repertoires with k hits in n trials are positive, (B,).

    `distributions` are those of `fit_two_beta_binomials`; without any, the log-odds are 0.
    """
    if len(distributions) == 0:
        return np.zeros(np.shape(k))
    negative, positive = (compute_beta_binomial_log_pmf(k, n, *distribution) for distribution in distributions.tolist())
    return positive - negative


def fit_beta_binomial(k: ArrayLike, n: ArrayLike) -> tuple[float, float]:
    """Return the maximum-likelihood estimates of alpha and beta, given k hits in n trials of each repertoire, (B,).

    If all k are 0, the maximum-likelihood rate is 0, which would make any hit impossible. Then the result is the
    posterior of one common rate under Jeffreys' prior: Beta(1/2, 1/2 + sum of n). If all k are n, it is the mirror
    image. If the counts vary no more than binomial ones, the likelihood rises with alpha + beta without end; the result
    then has alpha + beta of about 1e9.
    """
    pairs = np.stack([np.asarray(k, np.float64), np.asarray(n, np.float64)])
    n_hits, n_trials = pairs.sum(axis=1).tolist()
    if n_hits in (0.0, n_trials):
        return 0.5 + n_hits, 0.5 + n_trials - n_hits
    # Sorted, so that the sums do not depend on the order of the repertoires.
    (hits, trials), weights = np.unique(pairs, axis=1, return_counts=True)
    rate = float(np.log(n_hits / (n_trials - n_hits)))
    losses = [_compute_loss(hits, trials, weights, *_convert_to_alpha_beta(rate, start)) for start in _STARTS]
    return _convert_to_alpha_beta(*_minimise_loss(hits, trials, weights, rate, float(_STARTS[int(np.argmin(losses))])))


def _convert_to_alpha_beta(rate: float, size: float) -> tuple[float, float]:
    """Return alpha and beta from the two numbers that are optimised: log(alpha / beta) and log(alpha + beta)."""
    return float(np.exp(size) * expit(rate)), float(np.exp(size) * expit(-rate))


def _minimise_loss(k: Floats, n: Floats, weights: NDArray[np.int64], rate: float, size: float) -> tuple[float, float]:
    """Return the rate and the size of least loss, by Newton's method; a step is damped until it lowers the loss."""
    loss, damping = _compute_loss(k, n, weights, *_convert_to_alpha_beta(rate, size)), _MIN_DAMPING
    for _ in range(_MAX_STEPS):
        derivatives = _compute_derivatives(k, n, weights, *_convert_to_alpha_beta(rate, size))
        is_at_end = (size >= _MAX_SIZE and derivatives.by_size < 0) or (size <= _MIN_SIZE and derivatives.by_size > 0)
        if is_at_end:
            derivatives = derivatives._replace(by_size=0.0, rate_size=0.0)  # the size stays at the end of its range
        while True:
            rate_step, size_step = _compute_newton_step(derivatives, damping)
            new = rate + rate_step, min(max(size + size_step, _MIN_SIZE), _MAX_SIZE)
            new_loss = _compute_loss(k, n, weights, *_convert_to_alpha_beta(*new))
            if new_loss <= loss or damping > _MAX_DAMPING:
                break
            damping *= 10
        if new_loss > loss or loss - new_loss <= 1e-14 * abs(loss):
            return (rate, size) if new_loss > loss else new
        (rate, size), loss, damping = new, new_loss, max(damping / 100, _MIN_DAMPING)
    return rate, size


def _compute_newton_step(derivatives: _Derivatives, damping: float) -> tuple[float, float]:
    """Return Newton's step of rate and size; enough is added to both second derivatives that it lowers the loss."""
    by_rate, by_size, rate_rate, size_size, mixed = derivatives
    middle = (rate_rate + size_size) / 2
    radius = float(np.hypot((rate_rate - size_size) / 2, mixed))  # the eigenvalues are middle +- radius
    added = max(0.0, radius - middle) + damping * (abs(middle) + radius) + 1e-300
    rate_rate, size_size = rate_rate + added, size_size + added
    determinant = rate_rate * size_size - mixed**2
    rate_step = (mixed * by_size - size_size * by_rate) / determinant
    size_step = (mixed * by_rate - rate_rate * by_size) / determinant
    return min(max(rate_step, -_MAX_STEP), _MAX_STEP), min(max(size_step, -_MAX_STEP), _MAX_STEP)


def _compute_loss(k: Floats, n: Floats, weights: NDArray[np.int64], alpha: float, beta: float) -> float:
    """Return the negative log-likelihood, up to a constant, of pairs of k and n that occur `weights` times."""
    return -float((weights * _compute_log_beta_ratio(k, n, alpha, beta)).sum())


def _compute_derivatives(k: Floats, n: Floats, weights: NDArray[np.int64], alpha: float, beta: float) -> _Derivatives:
    """Return the derivatives of the loss at these alpha and beta."""
    size, half_mean = alpha + beta, alpha * beta / (alpha + beta)  # half the harmonic mean of alpha and beta
    counts = ((k, alpha), (n - k, beta), (n, size))
    first = [float((weights * (digamma(m + x) - digamma(x))).sum()) for m, x in counts]
    second = [float((weights * (zeta(2, m + x) - zeta(2, x))).sum()) for m, x in counts]  # zeta(2, x): digamma's slope
    by_alpha, by_beta = first[0] - first[2], first[1] - first[2]
    by_rate, by_size = half_mean * (by_alpha - by_beta), alpha * by_alpha + beta * by_beta
    rate_rate = half_mean**2 * (second[0] + second[1]) + by_rate * (beta - alpha) / size
    size_size = alpha**2 * second[0] + beta**2 * second[1] - size**2 * second[2] + by_size
    mixed = half_mean * (alpha * second[0] - beta * second[1]) + by_rate
    return _Derivatives(-by_rate, -by_size, -rate_rate, -size_size, -mixed)


def _compute_log_beta_ratio(k: Floats, n: Floats, alpha: float, beta: float) -> Floats:
    """Return log(B(k + alpha, n - k + beta) / B(alpha, beta)), (B,)."""
    return (
        _compute_log_gamma_ratio(alpha, k)
        + _compute_log_gamma_ratio(beta, n - k)
        - _compute_log_gamma_ratio(alpha + beta, n)
    )


def _compute_log_gamma_ratio(x: float, m: Floats) -> Floats:
    """Return log(gamma(x + m) / gamma(x)), (B,); Stirling's series avoids the cancellation of two large numbers."""
    if x < _LARGE:
        return np.asarray(gammaln(x + m) - gammaln(x))
    y = x + m
    series = (1 / y - 1 / x) / 12 - (1 / y**3 - 1 / x**3) / 360 + (1 / y**5 - 1 / x**5) / 1260
    return np.asarray((x - 0.5) * np.log1p(m / x) + m * (np.log(y) - 1) + series)
