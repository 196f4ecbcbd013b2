"""Evidence for a label from the number of associated clones among all clones of a repertoire.

Letters: B repertoires, F folds, A alternatives.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeprc.arrays import Floats
from deeprc.baselines.beta_binomial import compute_beta_binomial_log_odds, fit_two_beta_binomials

__all__ = [
    "N_PARAMETERS",
    "EvidenceDirection",
    "EvidenceKind",
    "EvidenceLevel",
    "HeldOutEvidence",
    "choose_evidence_sign",
    "compute_evidence",
    "compute_held_out_evidence",
    "compute_loss",
    "fit_evidence",
]

EvidenceKind = Literal["odds", "rate"]
"""Kind of evidence: `odds`, the log-odds of two beta-binomial distributions, for classes; `rate`, a linear function of
the logarithm of the rate of associated clones, for numbers."""

EvidenceDirection = Literal["up", "down"]
"""`up` if repertoires with a higher label carry the clones more often, `down` if those with a lower label do."""

N_PARAMETERS = 4
"""Number of parameters of the evidence.

`odds`: alpha and beta of both classes, the negative class first; `rate`: slope, mean of the log rates, log rate of all
repertoires together, 0."""


class EvidenceLevel(NamedTuple):
    """The evidence from the stored clones with a p-value below a threshold.

    The evidence from all stored clones is a weighted sum over levels. So clones with a smaller p-value count more.

    Attributes
    ----------
    threshold
        The threshold.
    weight
        Factor of the evidence of this level in the sum.
    parameters
        Parameters of the evidence of this level, (4,), see `N_PARAMETERS`.
    """

    threshold: float
    weight: float
    parameters: Floats


def choose_evidence_sign(kind: EvidenceKind, direction: EvidenceDirection) -> float:
    """Return the factor of evidence in a score: -1 for odds of the direction `down`, else 1."""
    return -1.0 if kind == "odds" and direction == "down" else 1.0


def fit_evidence(
    kind: EvidenceKind,
    direction: EvidenceDirection,
    k: NDArray[np.int64],
    n: NDArray[np.int64],
    values: Floats,
) -> Floats:
    """Return the parameters, (4,), of the evidence from k associated clones among n; all are 0 without evidence.

    There is no evidence either if the clones are not more frequent in the repertoires in which they are expected: for
    `odds`, if their share of all clones is not higher there, for `rate`, if the slope has the wrong sign. The slope is
    that of a ridge regression, whose penalty has the weight of one more repertoire.

    Parameters
    ----------
    kind, direction
        Kind and direction of the evidence. For `odds` the values say where clones are expected, not the direction.
    k, n
        Number of associated clones, and number of all clones, in each repertoire, (B,) each.
    values
        Targets, (B,): for `odds`, 1 if the clones are expected, else 0; for `rate`, numbers.
    """
    parameters, k = np.zeros(N_PARAMETERS), np.minimum(k, n)  # as in `compute_evidence`
    if not k.any():
        return parameters
    if kind == "odds":
        expected = values > 0
        if k[expected].sum() * n[~expected].sum() > k[~expected].sum() * n[expected].sum():  # a higher rate
            parameters[:] = fit_two_beta_binomials(k, n, expected).ravel()
        return parameters
    overall_log_rate = float(np.log((k.sum() + 0.5) / (n.sum() + 1.0)))
    rates = _compute_log_rates(k, n, overall_log_rate)
    centred, spread = rates - rates.mean(), rates.var()
    if spread > 0:
        slope = (centred * (values - values.mean())).mean() / (spread * (1 + 1 / len(k)))
        if slope * (1 if direction == "up" else -1) > 0:
            parameters[:] = slope, rates.mean(), overall_log_rate, 0.0
    return parameters


def compute_evidence(kind: EvidenceKind, parameters: Floats, k: ArrayLike, n: ArrayLike) -> Floats:
    """Return the evidence from k associated clones among n, (B,): log-odds without a prior, or a difference of numbers.

    The evidence is 0 if all parameters are 0.
    """
    if not parameters.any():
        return np.zeros(np.shape(k))
    k = np.minimum(k, n)  # one sequence may retrieve several clones
    if kind == "odds":
        return compute_beta_binomial_log_odds(parameters.reshape(2, 2), k, n)
    slope, mean_log_rate, overall_log_rate, _ = parameters
    return np.where(np.asarray(n) > 0, slope * (_compute_log_rates(k, n, overall_log_rate) - mean_log_rate), 0.0)


def _compute_log_rates(k: ArrayLike, n: ArrayLike, overall_log_rate: float) -> Floats:
    """Return log rates, (B,), after adding half a clone at the overall rate, which shrinks those of few clones."""
    return np.asarray(np.log((np.asarray(k) + 0.5) / (np.asarray(n) + 0.5 * np.exp(-overall_log_rate))))


class HeldOutEvidence(NamedTuple):
    """The evidence for held-out repertoires by several alternatives.

    Attributes
    ----------
    scores
        Evidence of each alternative, (A, B).
    baseline_outputs
        Prediction for each repertoire without evidence, from the other folds, (B,): log-odds, or the mean.
    """

    scores: Floats
    baseline_outputs: Floats


def compute_held_out_evidence(
    kind: EvidenceKind,
    direction: EvidenceDirection,
    counts: NDArray[np.int64],
    n: NDArray[np.int64],
    values: Floats,
    folds: NDArray[np.int64],
) -> HeldOutEvidence:
    """Return the evidence for each repertoire by parameters that were fitted without its fold.

    Parameters
    ----------
    kind, direction, values
        Kind and direction of the evidence, and targets, see `fit_evidence`.
    counts
        Number of associated clones in each repertoire, by alternative and by the fold that is held out, (A, B, F + 1).
    n
        Number of clones in each repertoire among which they are, by alternative, (A, B).
    folds
        Fold of each repertoire, (B,).
    """
    scores, baseline_outputs = np.zeros(counts.shape[:2]), np.zeros(len(values))
    for fold in range(counts.shape[2] - 1):
        is_held_out = folds == fold
        is_training = ~is_held_out
        baseline_outputs[is_held_out] = _predict_without_evidence(kind, values[is_training])
        for alternative, (k, n_clones) in enumerate(zip(counts[:, :, fold], n, strict=True)):
            parameters = fit_evidence(kind, direction, k[is_training], n_clones[is_training], values[is_training])
            held_out = k[is_held_out], n_clones[is_held_out]
            scores[alternative, is_held_out] = compute_evidence(kind, parameters, *held_out)
    return HeldOutEvidence(scores, baseline_outputs)


def _predict_without_evidence(kind: EvidenceKind, values: Floats) -> float:
    """Return the log-odds of the classes, after adding one repertoire of each, or the mean number."""
    if kind == "rate":
        return float(values.mean())
    n_positive, n_negative = values.sum(), (1 - values).sum()
    return float(np.log((n_positive + 1) / (n_negative + 1)))


def compute_loss(kind: EvidenceKind, outputs: Floats, values: Floats) -> Floats:
    """Return the loss of each output, (..., B): the cross entropy in nats, or half the squared error."""
    if kind == "odds":
        return np.asarray(np.logaddexp(0, np.where(values > 0, -outputs, outputs)))
    return np.asarray(0.5 * (outputs - values) ** 2)
