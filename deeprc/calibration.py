"""Calibration of log-odds or logits, so that the probabilities computed from them agree with observed frequencies.

Letters: B repertoires, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from deeprc.arrays import Floats

__all__ = [
    "IDENTITY",
    "Calibration",
    "calibrate_probabilities",
    "choose_cutoff",
    "compute_mean_and_scale",
    "compute_mean_and_sd",
    "fit_calibration",
    "fit_platt_scaling",
    "fit_temperature",
]

_PRIOR_SD = 0.5
_MAX_LOG_SLOPE = 5.0
_MAX_INTERCEPT = 50.0
_SMALLEST = 1e-12
_ROUNDING = 1e-9
_MIN_SLOPE, _SLOPE_SD = 1e-3, 10.0  # limit and prior of the slope in `fit_platt_scaling`, per unit of the scores
_MAX_CUTOFF = 1e3

Loss = Callable[[float, float], tuple[float, float, float]]


@dataclass(frozen=True)
class Calibration:
    """Change of the outputs of a class target, before probabilities are computed and classes are called.

    Attributes
    ----------
    slope
        Factor of the log-odds of two classes, or of the logits of several classes (1 / temperature). It is above 0, so
        the order of the repertoires does not change.
    intercept
        Number that is added to the log-odds of two classes; 0 for several classes.
    cutoff
        Calibrated log-odds from which the positive one of two classes is called. It is 0 for several classes, because
        there the most probable class is called.
    """

    slope: float = field(default=1.0, metadata={"low": 1e-3, "high": 1e3})
    intercept: float = field(default=0.0, metadata={"low": -1e3, "high": 1e3})
    cutoff: float = field(default=0.0, metadata={"low": -_MAX_CUTOFF, "high": _MAX_CUTOFF})

    @property
    def min_probability(self) -> float:
        """Probability from which the positive one of two classes is called."""
        return float(expit(self.cutoff))


IDENTITY = Calibration()
"""The calibration that changes nothing."""


def fit_calibration(log_odds: Floats, positive: NDArray[np.bool_]) -> Calibration:
    """Return the slope and intercept that fit log-odds to labels; the repertoires must not be from the training fold.

    This is Platt scaling (Platt 1999), shrunk towards no change. The loss is the cross entropy with Platt's targets,
    (n+ + 1) / (n+ + 2) and 1 / (n- + 2), where n+ and n- are the numbers of positive and negative repertoires. A normal
    prior with standard deviation 0.5 holds the logarithm of the slope and the intercept near 0: 10 labels cannot
    determine a slope, and 100 can overrule the prior. In simulations with 10 repertoires, whose log-odds are right and
    have a standard deviation of 2, Platt scaling without the prior raises the expected log loss by 0.07, and with the
    prior by 0.01. If the log-odds are three times too large, the loss falls by 0.20 in spite of the prior.

    Parameters
    ----------
    log_odds
        Log-odds of the positive class, (B,).
    positive
        Whether each repertoire is positive, (B,). If all are equal, the result is `IDENTITY`.
    """
    if positive.all() or not positive.any():
        return IDENTITY
    return _minimise_loss(_compute_platt_loss(log_odds, positive))


def choose_cutoff(log_odds: Floats) -> float:
    """Return the log-odds from which the positive class is called.

    The cutoff maximises the expected sum of F1 and balanced accuracy. The expected number of true positives is the sum
    of the probabilities of the called repertoires. A cutoff of 0 would maximise the accuracy, but if one repertoire in
    ten is positive, it calls hardly any repertoire positive. The labels are used by the calibration only: in
    simulations, a cutoff that maximises a measure of 20 to 100 labels directly is worse. `docs/experiments.md` compares
    such rules.

    Parameters
    ----------
    log_odds
        Calibrated log-odds of the positive class, (B,), for repertoires that are not from the training fold. The cutoff
        is halfway between two of them, or the lowest; it is 0 if there are none.
    """
    if len(log_odds) == 0:
        return 0.0
    ordered = np.sort(log_odds)[::-1]
    probability, n_called = expit(ordered), np.arange(1, len(ordered) + 1)
    true_positives = np.cumsum(probability)
    n_positive, n_negative = true_positives[-1], np.sum(expit(-ordered))
    f1 = 2 * true_positives / (n_called + n_positive)
    sensitivity = true_positives / max(n_positive, _SMALLEST)
    specificity = 1 - np.cumsum(expit(-ordered)) / max(n_negative, _SMALLEST)
    is_last = np.append(ordered[:-1] > ordered[1:], True)  # repertoires with equal log-odds are called together
    last = int(np.argmax(np.where(is_last, f1 + (sensitivity + specificity) / 2, -np.inf)))
    cutoff = ordered[last : last + 2].mean()
    return float(np.clip(cutoff, -_MAX_CUTOFF, _MAX_CUTOFF))


def fit_platt_scaling(scores: Floats, positive: NDArray[np.bool_], *, unit: float | None = None) -> Floats:
    """Return the slope and the intercept, (2,), that turn scores in any units, (B,), into log-odds (Platt 1999).

    Unlike in `fit_calibration`, there is no prior near no change. The slope has a weak normal prior with mean 0 and
    standard deviation 10 per unit. It matters if scores differ only by thousandths of a unit: they carry no
    information, but without the prior, chance would give them a slope of hundreds. The slope is at least 0.001 per
    unit. So if the scores carry no information, all probabilities are nearly equal, but still in the order of the
    scores.

    Parameters
    ----------
    scores, positive
        Score of each repertoire, and whether it is positive, (B,) each.
    unit
        Typical difference of two scores; None takes their standard deviation.
    """
    if unit is None:
        _, unit = compute_mean_and_scale(scores)
    centre = float(scores.mean())
    loss = _compute_platt_loss((scores - centre) / unit, positive)

    def penalised(parameters: Floats) -> tuple[float, Floats]:
        value, by_slope, by_intercept = loss(*parameters)
        slope = float(parameters[0])
        return value + slope**2 / (2 * _SLOPE_SD**2), np.array([by_slope + slope / _SLOPE_SD**2, by_intercept])

    prior = float(np.log((int(positive.sum()) + 1) / (int((~positive).sum()) + 1)))
    start, bounds = np.array([_MIN_SLOPE, prior]), [(_MIN_SLOPE, None), (None, None)]
    parameters = minimize(penalised, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return np.array([parameters[0] / unit, parameters[1] - parameters[0] * centre / unit])


def compute_mean_and_sd(scores: Floats) -> tuple[Floats, Floats]:
    """Return the mean and standard deviation, (..., 1), of the scores of a model's training repertoires, (..., B).

    If all scores are equal up to rounding, the standard deviation is infinite, so that the standardised scores are 0.
    """
    spread = scores.std(axis=-1, keepdims=True)
    is_constant = spread <= _ROUNDING * np.abs(scores).max(axis=-1, keepdims=True)
    return scores.mean(axis=-1, keepdims=True), np.where(is_constant, np.inf, spread)


def compute_mean_and_scale(numbers: Floats) -> tuple[float, float]:
    """Return the mean and the standard deviation of numbers, of at least one.

    The latter is 1 if all are equal, or so small that their squares are 0 in 64 bits.
    """
    if numbers.min() == numbers.max():  # the computed deviation of equal numbers may be a rounding error
        return float(numbers.flat[0]), 1.0
    return float(numbers.mean()), float(numbers.std()) or 1.0


def _compute_platt_loss(scores: Floats, positive: NDArray[np.bool_]) -> Loss:
    """Return the cross entropy with Platt's targets (see `fit_calibration`) as a function of slope and intercept.

    The function returns the value and both derivatives. `scores` and `positive` have the shape (B,).
    """
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    target = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))

    def loss(slope: float, intercept: float) -> tuple[float, float, float]:
        log_odds = slope * scores + intercept
        residual = expit(log_odds) - target
        value = float(np.sum(np.logaddexp(0, log_odds) - target * log_odds))
        return value, float(residual @ scores), float(residual.sum())

    return loss


def fit_temperature(logits: Floats, classes: NDArray[np.int64]) -> Calibration:
    """Return the slope (1 / temperature) that makes logits fit the labels, shrunk as in `fit_calibration`.

    The target of a repertoire's own class is (n + 1) / (n + C), and 1 / (n + C) of each other class, where n is the
    number of repertoires in its own class. For two classes, these are Platt's targets.

    Parameters
    ----------
    logits
        Logits of each class, (B, C).
    classes
        Index of the class of each repertoire, (B,). If all are equal, the result is `IDENTITY`.
    """
    if len(np.unique(classes)) < 2:
        return IDENTITY
    n_classes = logits.shape[1]
    size = np.bincount(classes, minlength=n_classes)[classes]  # (B,)
    target = (np.eye(n_classes)[classes] * size[:, None] + 1) / (size[:, None] + n_classes)  # (B, C)

    def loss(slope: float, _: float) -> tuple[float, float, float]:
        """Return the cross-entropy, and its derivatives by slope and intercept; there is no intercept."""
        residual = softmax(slope * logits, axis=1) - target
        return float(-(target * log_softmax(slope * logits, axis=1)).sum()), float((residual * logits).sum()), 0.0

    return _minimise_loss(loss)


def _minimise_loss(loss: Loss) -> Calibration:
    """Return the slope and intercept with the smallest sum of loss and prior; `loss` returns value and derivatives."""

    def penalised(parameters: Floats) -> tuple[float, Floats]:
        slope = float(np.exp(parameters[0]))
        value, by_slope, by_intercept = loss(slope, float(parameters[1]))
        gradient = np.array([by_slope * slope, by_intercept]) + parameters / _PRIOR_SD**2
        return value + float(parameters @ parameters) / (2 * _PRIOR_SD**2), gradient

    bounds = [(-_MAX_LOG_SLOPE, _MAX_LOG_SLOPE), (-_MAX_INTERCEPT, _MAX_INTERCEPT)]
    parameters = minimize(penalised, np.zeros(2), jac=True, bounds=bounds, method="L-BFGS-B").x
    return Calibration(float(np.exp(parameters[0])), float(parameters[1]))


def calibrate_probabilities(probability: Floats, known: Floats, labels: NDArray[np.int64]) -> tuple[Floats, float]:
    """Return the probabilities of new repertoires, calibrated by those of repertoires whose label is known.

    With two classes, the repertoires with a known label also determine the cutoff, see `choose_cutoff`. The logarithms
    of the probabilities are used as logits. Probabilities below 1e-12 count as 1e-12.

    Parameters
    ----------
    probability, known
        Probabilities of each class for new repertoires, (B, C), and for repertoires with a known label, (n, C).
    labels
        Index of the class of each repertoire with a known label, (n,).

    Returns
    -------
    The calibrated probabilities, (B, C), and the probability from which the second of two classes is called. Two
    classes are calibrated by a slope and an intercept, more classes by a temperature.
    """
    new, known_logs = (np.log(np.maximum(array, _SMALLEST)) for array in (probability, known))
    if probability.shape[1] > 2:
        return np.asarray(softmax(fit_temperature(known_logs, labels).slope * new, axis=1)), IDENTITY.min_probability
    log_odds = known_logs[:, 1] - known_logs[:, 0]
    calibration = fit_calibration(log_odds, labels == 1)
    calibration = replace(calibration, cutoff=choose_cutoff(calibration.slope * log_odds + calibration.intercept))
    positive = expit(calibration.slope * (new[:, 1] - new[:, 0]) + calibration.intercept)
    return np.stack([1 - positive, positive], axis=1), calibration.min_probability
