"""The members of a stack: methods of `deeprc benchmark`, each fitted to the same repertoires.

Letters: B repertoires.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from deeprc.arrays import Floats
from deeprc.benchmarking.cross_fitting import cross_fit
from deeprc.benchmarking.methods import Method
from deeprc.benchmarking.search import Setting, apply_setting
from deeprc.calibration import compute_mean_and_sd
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.groups import pass_groups

__all__ = ["Member", "TrainingFolds", "fit_member", "is_network", "score_with"]


_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingFolds:
    """The repertoires and labels from which the members learn.

    Attributes
    ----------
    X, y
        Repertoires, (B,), and whether each is positive, (B,) of 0 and 1.
    fold_of
        Index of the fold of each repertoire, (B,).
    donors
        Index of the donor of each repertoire, (B,); None: each repertoire has its own donor.
    seed
        Seed of random draws of settings.
    """

    X: RepertoireDataset
    y: NDArray[np.int64]
    fold_of: NDArray[np.int64]
    donors: NDArray[np.int64] | None
    seed: int


@dataclass(frozen=True)
class Member:
    """A fitted member.

    Attributes
    ----------
    name
        Name of the method.
    models
        Fitted estimators, whose scores are averaged.
    centre, scale
        Units of the score; see `deeprc.calibration.compute_mean_and_sd`.
    """

    name: str
    models: Sequence[BaseEstimator]
    centre: float = 0.0
    scale: float = 1.0

    @property
    def scores_are_log_odds(self) -> bool:
        """Whether the scores are calibrated log-odds; those of the other members have no unit."""
        return all(is_network(model) for model in self.models)

    def scores(self, X: RepertoireDataset) -> Floats:
        """Return the score of each repertoire, (B,)."""
        scores = np.mean([score_with(model, X) for model in self.models], axis=0)
        return np.asarray((scores - self.centre) / self.scale)


def is_network(estimator: BaseEstimator) -> bool:
    """Return whether an estimator is DeepRC: the only method that stops its training by validation repertoires.

    Its parameters include `config`, `overrides` and `device`, and its scores are log-odds that its task calibrates.
    """
    return bool(estimator.uses_validation)


def score_with(model: BaseEstimator, X: RepertoireDataset) -> Floats:
    """Return the score of each repertoire, (B,); for DeepRC its calibrated log-odds, which can be averaged."""
    scores = np.asarray(model.decision_function(X), np.float64)
    if not is_network(model):
        return scores
    calibration = model.model_.tasks[0].calibration
    return np.asarray(calibration.slope * scores + calibration.intercept)


def fit_member(method: Method, training: TrainingFolds) -> tuple[Member, Floats]:
    """Fit a method to repertoires; return it with the cross-fitted score of each repertoire, (B,).

    For a method with a search space, the setting with the highest AUC over the folds is chosen, and the method is then
    fitted to all repertoires. DeepRC stops early by validation repertoires, so it is neither searched nor fitted again:
    the models of all folds predict together.
    """
    estimator, settings = method.estimator, method.search.list_settings([training.seed])
    if is_network(estimator):
        return _fit_per_fold(method.name, estimator, training)
    fitted = cross_fit(estimator, settings, training.X, training.y, training.fold_of, training.donors)
    _logger.info("%s: AUC %.3f with %s", method.name, fitted.auc, _format_setting(fitted.setting))
    model = apply_setting(estimator, fitted.setting).fit_uncalibrated(training.X, training.y, groups=training.donors)
    mean, spread = compute_mean_and_sd(score_with(model, training.X))
    return Member(method.name, [model], mean.item(), spread.item()), fitted.scores


def _fit_per_fold(name: str, estimator: BaseEstimator, training: TrainingFolds) -> tuple[Member, Floats]:
    """Fit a network without each fold in turn; return the networks as one member, and the scores of these folds."""
    scores = np.zeros(len(training.y))
    models = []
    for fold in range(1 + int(training.fold_of.max())):
        held_out = training.fold_of == fold
        learned = ~held_out
        groups = pass_groups(estimator, None if training.donors is None else training.donors[learned])
        model = clone(estimator).fit(training.X[learned], training.y[learned], **groups)
        scores[held_out] = score_with(model, training.X[held_out])
        models.append(model)
        _logger.info("%s: fold %d of %d is trained", name, fold + 1, 1 + int(training.fold_of.max()))
    return Member(name, models), scores


def _format_setting(setting: Setting) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items()) or "its defaults"
