"""Compiled code of `LogisticMIL`: the highest score among a repertoire's 4-mers, and training by it.

Letters: B repertoires, E epochs, F features, K restarts, M 4-mers, V versions of the weights.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.atchley import ATCHLEY_FACTORS
from deeprc.baselines.kmer_abundance import KmerAbundances
from deeprc.compilation import njit

__all__ = ["N_FEATURES", "score", "train"]

_N_LETTERS, _N_FACTORS = ATCHLEY_FACTORS.shape
_K = 4
N_FEATURES = _K * _N_FACTORS + 1
"""F: the factors of the four residues, one residue after the other, and the logarithm of the abundance."""

_ABUNDANCE, _BIAS = N_FEATURES - 1, N_FEATURES  # places among weights and bias
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # of Adam


@njit(parallel=True, nogil=True)
def score(
    known: KmerAbundances, rows: NDArray[np.int64], parameters: NDArray[np.float64], scores: NDArray[np.float64]
) -> None:
    """Fill in the scores, (V, B), of repertoires at some rows; minus infinity where one has no 4-mer.

    `parameters` are weights and biases of features as they are, (V, F + 1).
    """
    for number in numba.prange(len(rows)):
        tables, guess = np.empty((_K, _N_LETTERS)), -1
        for version in range(len(parameters)):
            _tabulate(parameters[version], tables)
            slope = parameters[version, _ABUNDANCE]
            scores[version, number], guess = _highest_of(known, rows[number], tables, slope, guess)


@njit(parallel=True, nogil=True)
def train(
    known: KmerAbundances,
    rows: NDArray[np.int64],
    labels: NDArray[np.float64],
    order: NDArray[np.int64],
    standard: NDArray[np.float64],
    starts: NDArray[np.float64],
    rate: float,
    size: int,
    checkpoints: NDArray[np.int64],
    found: NDArray[np.float64],
    losses: NDArray[np.float64],
) -> None:
    """Train each restart by itself, with Adam on the mean cross-entropy of a batch.

    Parameters
    ----------
    known, rows, labels
        The repertoires, each with at least one 4-mer, and 1 or 0 for their classes, (B,).
    order
        Which repertoires come when, (E, B).
    standard
        Mean and standard deviation of the features, (2, F).
    starts
        Weights and biases of standardised features, (K, F + 1).
    rate, size
        Adam's learning rate, and the number of repertoires of an update.
    checkpoints
        Numbers of epochs, rising, (V,).
    found, losses
        To fill in: weights and biases of features as they are, (V, K, F + 1), and their mean cross-entropy, (V, K).
    """
    for restart in numba.prange(len(starts)):
        own, raw = starts[restart].copy(), np.empty(N_FEATURES + 1)
        gradient, moments = np.zeros(N_FEATURES + 1), np.zeros((2, N_FEATURES + 1))
        tables = np.empty((_K, _N_LETTERS))
        guesses = np.full(len(rows), -1)
        step = checkpoint = 0
        for epoch in range(len(order)):
            for begin in range(0, len(rows), size):
                batch = order[epoch, begin : begin + size]
                gradient[:] = 0
                slope = _as_they_are(own, standard, raw, tables)
                for at in batch:
                    odds, guesses[at] = _highest_of(known, rows[at], tables, slope, guesses[at])
                    values = known.highest[rows[at]] if slope >= 0 else known.lowest[rows[at]]
                    residual = (1 / (1 + np.exp(-odds)) - labels[at]) / len(batch)
                    _add(gradient, residual, guesses[at], values[guesses[at]], standard)
                step += 1
                _adam(own, gradient, moments, rate, step)
            if epoch + 1 == checkpoints[checkpoint]:
                slope = _as_they_are(own, standard, raw, tables)
                found[checkpoint, restart] = raw
                for at in range(len(rows)):
                    odds, guesses[at] = _highest_of(known, rows[at], tables, slope, guesses[at])
                    loss = max(odds, 0.0) + np.log1p(np.exp(-abs(odds))) - labels[at] * odds
                    losses[checkpoint, restart] += loss / len(rows)
                checkpoint += 1


@njit(nogil=True)
def _as_they_are(
    own: NDArray[np.float64], standard: NDArray[np.float64], raw: NDArray[np.float64], tables: NDArray[np.float64]
) -> float:
    """Turn weights and bias of standardised features into those of features as they are, and these into tables.

    Returns the weight of the abundance.
    """
    raw[_BIAS] = own[_BIAS]
    for feature in range(N_FEATURES):
        raw[feature] = own[feature] / standard[1, feature]
        raw[_BIAS] -= raw[feature] * standard[0, feature]
    _tabulate(raw, tables)
    return raw[_ABUNDANCE]  # type: ignore[no-any-return]


@njit(nogil=True)
def _tabulate(raw: NDArray[np.float64], tables: NDArray[np.float64]) -> None:
    """Fill in what each amino acid adds to a score at each place, (4, 20); the bias is added at the first."""
    tables[:] = 0
    tables[0] = raw[_BIAS]
    for place in range(_K):
        for letter in range(_N_LETTERS):
            for factor in range(_N_FACTORS):
                tables[place, letter] += raw[place * _N_FACTORS + factor] * ATCHLEY_FACTORS[letter, factor]


@njit(nogil=True)
def _highest_of(
    known: KmerAbundances, row: int, tables: NDArray[np.float64], slope: float, guess: int
) -> tuple[float, int]:
    """Return the highest score of a repertoire's instances, and its 4-mer; see `_highest`.

    Of a 4-mer's instances the most abundant scores highest if the weight of the abundance is positive, and the least
    abundant if it is negative.
    """
    if slope >= 0:
        values, bounds = known.highest[row], known.highest_bounds[row]
    else:
        values, bounds = known.lowest[row], known.lowest_bounds[row]
    best, at = _highest(values, bounds, tables, slope, guess)
    return best, at


@njit(nogil=True)
def _highest(
    values: NDArray[np.float32],
    bounds: NDArray[np.float32],
    tables: NDArray[np.float64],
    slope: float,
    guess: int,
) -> tuple[float, int]:
    """Return the highest score of a repertoire's 4-mers, and the first 4-mer that has it.

    Of 4-mers that begin alike none is looked at if what they can reach is less than the score of the guess, or of
    another that was looked at. It is exact, because rounding keeps the order of sums.

    Parameters
    ----------
    values
        Logarithms of abundances, (M,); 1 where a 4-mer is not.
    bounds
        Their extremes among 4-mers that begin alike, (400 + 8000,).
    tables
        What each amino acid adds at each place, (4, 20).
    slope
        The weight of the abundance.
    guess
        A 4-mer that is there; -1 for none.
    """
    best, at = -np.inf, guess
    third, fourth = tables[2], tables[3]
    most_third, most_fourth = third.max(), fourth.max()
    if guess >= 0:
        start = (tables[0, guess // 8000] + tables[1, guess // 400 % 20]) + third[guess // 20 % 20]
        best = start + (fourth[guess % 20] + slope * values[guess])
    for pair in range(400):
        begin, bound = tables[0, pair // 20] + tables[1, pair % 20], bounds[pair]
        if bound > 0 or (begin + most_third) + (most_fourth + slope * bound) < best:
            continue
        for triple in range(20 * pair, 20 * pair + 20):
            start, bound = begin + third[triple % 20], bounds[400 + triple]
            if bound > 0 or start + (most_fourth + slope * bound) < best:
                continue
            top, last = _highest_last(values[20 * triple : 20 * triple + 20], fourth, start, slope, best)
            if top > best or (top == best and 20 * triple + last < at):
                best, at = top, 20 * triple + last
    return best, at


@njit(nogil=True)
def _highest_last(
    values: NDArray[np.float32], fourth: NDArray[np.float64], start: float, slope: float, least: float
) -> tuple[float, int]:
    """Return the highest score of 4-mers that begin with the same three residues, and the first fourth one that has it.

    The residue is not looked for where the score is less than `least`.
    """
    top = -np.inf
    for last in range(20):  # no jump in it, for the sake of speed
        reached = start + (fourth[last] + slope * values[last])
        top = max(top, reached if values[last] <= 0 else -np.inf)
    if top < least:
        return top, 20
    for last in range(20):
        if values[last] <= 0 and start + (fourth[last] + slope * values[last]) == top:
            return top, last
    return top, 20


@njit(nogil=True)
def _add(
    gradient: NDArray[np.float64], residual: float, code: int, abundance: float, standard: NDArray[np.float64]
) -> None:
    """Add to a gradient, (F + 1,), the standardised features of a 4-mer times the residual of its repertoire."""
    mean, deviation = standard
    for place in range(_K):
        letter = code // _N_LETTERS ** (_K - 1 - place) % _N_LETTERS
        for factor in range(_N_FACTORS):
            feature = place * _N_FACTORS + factor
            gradient[feature] += residual * (ATCHLEY_FACTORS[letter, factor] - mean[feature]) / deviation[feature]
    gradient[_ABUNDANCE] += residual * (abundance - mean[_ABUNDANCE]) / deviation[_ABUNDANCE]
    gradient[_BIAS] += residual


@njit(nogil=True)
def _adam(
    parameters: NDArray[np.float64], gradient: NDArray[np.float64], moments: NDArray[np.float64], rate: float, step: int
) -> None:
    """Make one update, in place (Kingma and Ba 2015); moments are (2, F + 1)."""
    for i in range(len(parameters)):
        moments[0, i] = _BETA_1 * moments[0, i] + (1 - _BETA_1) * gradient[i]
        moments[1, i] = _BETA_2 * moments[1, i] + (1 - _BETA_2) * gradient[i] ** 2
        first, second = moments[0, i] / (1 - _BETA_1**step), moments[1, i] / (1 - _BETA_2**step)
        parameters[i] -= rate * first / (np.sqrt(second) + _EPSILON)
