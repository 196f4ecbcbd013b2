"""The compiled loops of `LogisticMIL`: the highest score among a repertoire's 4-mers, and training with it.

Letters: B repertoires, E epochs, F features, K restarts, M 4-mers, V versions of the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.atchley import ATCHLEY_FACTORS
from deeprc.baselines.kmer_abundance import KmerAbundances
from deeprc.compilation import njit, run_in_blocks, run_in_parts

__all__ = ["N_FEATURES", "Checkpoints", "Sample", "Schedule", "score", "train"]

_N_LETTERS, _N_FACTORS = ATCHLEY_FACTORS.shape
_K = 4
N_FEATURES = _K * _N_FACTORS + 1
"""Number of features, F: the factors of the four residues, one after the other, and the logarithm of the abundance."""

_ABUNDANCE, _BIAS = N_FEATURES - 1, N_FEATURES  # indices among weights and bias
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # parameters of Adam


class Sample(NamedTuple):
    """The training repertoires.

    Attributes
    ----------
    rows, labels
        Rows of the repertoires in the container, each with at least one 4-mer, and their classes, 1 or 0, (B,) each.
    mean_and_sd
        Mean and standard deviation of each feature, (2, F).
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.float64]
    mean_and_sd: NDArray[np.float64]


class Schedule(NamedTuple):
    """The order and size of updates.

    Attributes
    ----------
    order
        Indices of the repertoires in the order of each epoch, (E, B).
    batch_size
        Number of repertoires of an update.
    learning_rate
        Step size of Adam.
    """

    order: NDArray[np.int64]
    batch_size: int
    learning_rate: float


class Checkpoints(NamedTuple):
    """The weights and the losses that training keeps.

    Attributes
    ----------
    epochs
        Numbers of epochs after which weights are kept, in rising order, (V,).
    parameters
        Weights and biases of the features in their original units, (V, K, F + 1); `train` fills them.
    losses
        Mean cross-entropy of the training repertoires, (V, K); `train` fills it.
    """

    epochs: NDArray[np.int64]
    parameters: NDArray[np.float64]
    losses: NDArray[np.float64]


def score(
    abundances: KmerAbundances, rows: NDArray[np.int64], parameters: NDArray[np.float64], scores: NDArray[np.float64]
) -> None:
    """Write the scores, (V, B), of the repertoires at the given rows; minus infinity for one without a 4-mer.

    `parameters` are weights and biases of the features in their original units, (V, F + 1).
    """
    run_in_parts(_score_repertoires, len(rows), abundances, rows, parameters, scores)


@njit(nogil=True)
def _score_repertoires(
    start: int,
    stop: int,
    abundances: KmerAbundances,
    rows: NDArray[np.int64],
    parameters: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> None:
    """Write the scores of the repertoires from `start` to `stop`; see `score`."""
    tables = np.empty((_K, _N_LETTERS))
    for index in range(start, stop):
        guess = -1
        for version in range(len(parameters)):
            _tabulate_letters(parameters[version], tables)
            abundance_weight = parameters[version, _ABUNDANCE]
            scores[version, index], guess = _find_highest_of(abundances, rows[index], tables, abundance_weight, guess)


def train(
    abundances: KmerAbundances,
    sample: Sample,
    schedule: Schedule,
    starts: NDArray[np.float64],
    checkpoints: Checkpoints,
) -> None:
    """Train each restart independently, by Adam on the mean cross-entropy of a batch; fill the checkpoints.

    `abundances` are the abundances of the container's 4-mers, `starts` weights and biases of standardised features,
    (K, F + 1).
    """
    run_in_blocks(_train_restarts, len(starts), 1, abundances, sample, schedule, starts, checkpoints)


@njit(nogil=True)
def _train_restarts(
    first: int,
    stop: int,
    abundances: KmerAbundances,
    sample: Sample,
    schedule: Schedule,
    starts: NDArray[np.float64],
    checkpoints: Checkpoints,
) -> None:
    """Train the restarts from `first` to `stop`; see `train`."""
    for restart in range(first, stop):
        _train_restart(abundances, sample, schedule, starts[restart], checkpoints, restart)


@njit(nogil=True)
def _train_restart(
    abundances: KmerAbundances,
    sample: Sample,
    schedule: Schedule,
    start: NDArray[np.float64],
    checkpoints: Checkpoints,
    restart: int,
) -> None:
    """Train one set of weights from its start, and write its weights and losses at the epochs of the checkpoints."""
    rows, labels, mean_and_sd = sample
    order, batch_size, learning_rate = schedule
    parameters, raw = start.copy(), np.empty(N_FEATURES + 1)
    gradient, moments = np.zeros(N_FEATURES + 1), np.zeros((2, N_FEATURES + 1))
    tables = np.empty((_K, _N_LETTERS))
    guesses = np.full(len(rows), -1)
    step = checkpoint = 0
    for epoch in range(len(order)):
        for begin in range(0, len(rows), batch_size):
            batch = order[epoch, begin : begin + batch_size]
            for feature in range(len(gradient)):
                gradient[feature] = 0.0
            abundance_weight = _unstandardise_weights(parameters, mean_and_sd, raw, tables)
            for i in batch:
                log_odds, guesses[i] = _find_highest_of(abundances, rows[i], tables, abundance_weight, guesses[i])
                values = abundances.highest[rows[i]] if abundance_weight >= 0 else abundances.lowest[rows[i]]
                residual = (1 / (1 + np.exp(-log_odds)) - labels[i]) / len(batch)
                _add_features(gradient, residual, guesses[i], values[guesses[i]], mean_and_sd)
            step += 1
            _update_weights(parameters, gradient, moments, learning_rate, step)
        if epoch + 1 == checkpoints.epochs[checkpoint]:
            abundance_weight = _unstandardise_weights(parameters, mean_and_sd, raw, tables)
            for feature in range(len(raw)):
                checkpoints.parameters[checkpoint, restart, feature] = raw[feature]
            for i in range(len(rows)):
                log_odds, guesses[i] = _find_highest_of(abundances, rows[i], tables, abundance_weight, guesses[i])
                loss = max(log_odds, 0.0) + np.log1p(np.exp(-abs(log_odds))) - labels[i] * log_odds
                checkpoints.losses[checkpoint, restart] += loss / len(rows)
            checkpoint += 1


@njit(nogil=True)
def _unstandardise_weights(
    parameters: NDArray[np.float64],
    mean_and_sd: NDArray[np.float64],
    raw: NDArray[np.float64],
    tables: NDArray[np.float64],
) -> float:
    """Convert weights and bias of standardised features to those of features in their original units.

    Fills `raw`, (F + 1,), and the tables of `_tabulate_letters`; returns the weight of the abundance.
    """
    raw[_BIAS] = parameters[_BIAS]
    for feature in range(N_FEATURES):
        raw[feature] = parameters[feature] / mean_and_sd[1, feature]
        raw[_BIAS] -= raw[feature] * mean_and_sd[0, feature]
    _tabulate_letters(raw, tables)
    return raw[_ABUNDANCE]  # type: ignore[no-any-return]


@njit(nogil=True)
def _tabulate_letters(raw: NDArray[np.float64], tables: NDArray[np.float64]) -> None:
    """Write the number that each amino acid adds at each position of a 4-mer, (4, 20); the first includes the bias."""
    for position in range(_K):
        for letter in range(_N_LETTERS):
            tables[position, letter] = raw[_BIAS] if position == 0 else 0.0
            for factor in range(_N_FACTORS):
                tables[position, letter] += raw[position * _N_FACTORS + factor] * ATCHLEY_FACTORS[letter, factor]


@njit(nogil=True)
def _find_highest_of(
    abundances: KmerAbundances, row: int, tables: NDArray[np.float64], abundance_weight: float, guess: int
) -> tuple[float, int]:
    """Return the highest score of a repertoire's instances, and the 4-mer that has it; see `_find_highest`.

    Among the instances of one 4-mer, the most abundant has the highest score if the weight of the abundance is
    positive. If it is negative, the least abundant has it.
    """
    if abundance_weight >= 0:
        values, bounds = abundances.highest[row], abundances.highest_bounds[row]
    else:
        values, bounds = abundances.lowest[row], abundances.lowest_bounds[row]
    best, code = _find_highest(values, bounds, tables, abundance_weight, guess)
    return best, code


@njit(nogil=True)
def _find_highest(
    values: NDArray[np.float32],
    bounds: NDArray[np.float32],
    tables: NDArray[np.float64],
    abundance_weight: float,
    guess: int,
) -> tuple[float, int]:
    """Return the highest score of a repertoire's 4-mers, and the first 4-mer that has it.

    4-mers with the same first residues are skipped together if an upper bound of their scores is below the best score
    found so far. The result is exact, because rounding keeps the order of sums. The code of a 4-mer with the residues
    a, b, c and d is 8000 a + 400 b + 20 c + d.

    Parameters
    ----------
    values
        Logarithm of the abundance of each 4-mer, (M,); 1 if the repertoire does not have it.
    bounds
        Extremes of these values among the 4-mers with the same first two, and three, residues, (400 + 8000,).
    tables
        Number that each amino acid adds to a score at each position of a 4-mer, (4, 20).
    abundance_weight
        Weight of the abundance.
    guess
        Code of a 4-mer that the repertoire has, with a probably high score; -1 for none.
    """
    best, code = -np.inf, guess
    third, fourth = tables[2], tables[3]
    max_third = max_fourth = -np.inf
    for letter in range(_N_LETTERS):
        max_third, max_fourth = max(max_third, third[letter]), max(max_fourth, fourth[letter])
    if guess >= 0:
        start = (tables[0, guess // 8000] + tables[1, guess // 400 % 20]) + third[guess // 20 % 20]
        best = start + (fourth[guess % 20] + abundance_weight * values[guess])
    for pair in range(400):
        begin, bound = tables[0, pair // 20] + tables[1, pair % 20], bounds[pair]
        if bound > 0 or (begin + max_third) + (max_fourth + abundance_weight * bound) < best:
            continue
        for triple in range(20 * pair, 20 * pair + 20):
            start, bound = begin + third[triple % 20], bounds[400 + triple]
            if bound > 0 or start + (max_fourth + abundance_weight * bound) < best:
                continue
            last_values = values[20 * triple : 20 * triple + 20]
            top, last = _find_highest_last(last_values, fourth, start, abundance_weight, best)
            if top > best or (top == best and 20 * triple + last < code):
                best, code = top, 20 * triple + last
    return best, code


@njit(nogil=True)
def _find_highest_last(
    values: NDArray[np.float32], fourth: NDArray[np.float64], start: float, abundance_weight: float, least: float
) -> tuple[float, int]:
    """Return the highest score of 4-mers with the same first three residues, and the first fourth residue that has it.

    If the score is below `least`, the residue is not determined and 20 is returned.
    """
    top = -np.inf
    for last in range(20):  # without a branch, which is faster
        reached = start + (fourth[last] + abundance_weight * values[last])
        top = max(top, reached if values[last] <= 0 else -np.inf)
    if top < least:
        return top, 20
    for last in range(20):
        if values[last] <= 0 and start + (fourth[last] + abundance_weight * values[last]) == top:
            return top, last
    return top, 20


@njit(nogil=True)
def _add_features(
    gradient: NDArray[np.float64], residual: float, code: int, abundance: float, mean_and_sd: NDArray[np.float64]
) -> None:
    """Add the standardised features of a 4-mer, times the residual of its repertoire, to a gradient, (F + 1,)."""
    mean, deviation = mean_and_sd
    for position in range(_K):
        letter = code // _N_LETTERS ** (_K - 1 - position) % _N_LETTERS
        for factor in range(_N_FACTORS):
            feature = position * _N_FACTORS + factor
            gradient[feature] += residual * (ATCHLEY_FACTORS[letter, factor] - mean[feature]) / deviation[feature]
    gradient[_ABUNDANCE] += residual * (abundance - mean[_ABUNDANCE]) / deviation[_ABUNDANCE]
    gradient[_BIAS] += residual


@njit(nogil=True)
def _update_weights(
    parameters: NDArray[np.float64], gradient: NDArray[np.float64], moments: NDArray[np.float64], rate: float, step: int
) -> None:
    """Make one update of Adam in place (Kingma and Ba 2015); `moments` are the running means, (2, F + 1)."""
    for i in range(len(parameters)):
        moments[0, i] = _BETA_1 * moments[0, i] + (1 - _BETA_1) * gradient[i]
        moments[1, i] = _BETA_2 * moments[1, i] + (1 - _BETA_2) * gradient[i] ** 2
        first, second = moments[0, i] / (1 - _BETA_1**step), moments[1, i] / (1 - _BETA_2**step)
        parameters[i] -= rate * first / (np.sqrt(second) + _EPSILON)
