"""Base classes of all estimators for repertoires: checks of input, probabilities, and saving without pickle.

Letters: B repertoires, C classes, V values of a parameter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import save_file
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from deeprc.arrays import digest_arrays
from deeprc.baselines.inner_folds import assign_grouped_folds
from deeprc.baselines.parameters import check_types
from deeprc.calibration import IDENTITY, compute_mean_and_sd, fit_platt_scaling
from deeprc.datasets.cache import digest_with_genes
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import abbreviate, parse_json, read_arrays, to_plain, validate
from deeprc.errors import InputError
from deeprc.files import write_safetensors
from deeprc.groups import validate_groups
from deeprc.labels import encode_two_classes, find_canonical_order, validate_dataset, validate_numbers

__all__ = [
    "BinaryClassifier",
    "RepertoireClassifier",
    "RepertoireEstimator",
    "RepertoireRegressor",
    "collect_fitted_state",
]

_FORMAT, _VERSION = "deeprc-estimator", 1
_N_FOLDS = 5  # folds of the cross-fitted scores for the calibration
_RENAMED = {"places": "kmer_offsets"}
"""New names of parameters that were renamed, by the old name, because saved estimators have the old names."""
_Estimator = TypeVar("_Estimator", bound="RepertoireEstimator")
_Binary = TypeVar("_Binary", bound="BinaryClassifier")
_Regressor = TypeVar("_Regressor", bound="RepertoireRegressor")


def collect_fitted_state(attributes: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the attributes whose names end in `_`: arrays of numbers, and all others as values for JSON."""
    fitted = {name: value for name, value in attributes.items() if name.endswith("_")}
    of_arrays = {name: value for name, value in fitted.items() if isinstance(value, np.ndarray)}
    numbers = {name: array for name, array in of_arrays.items() if array.dtype.kind in "biuf"}  # or booleans
    texts = {name: {"text": array.tolist()} for name, array in of_arrays.items() if name not in numbers}
    values = {name: {"value": value} for name, value in fitted.items() if name not in of_arrays}
    return numbers, {**texts, **values}


class RepertoireEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator for repertoires. Its fitted attributes, whose names end in `_`, can be saved."""

    path_parameter: ClassVar[str | None] = None
    """Name of a parameter for which many values take about the time of one; see `BinaryClassifier.decision_path`."""

    path_uses_groups: ClassVar[bool] = False
    """Whether `decision_path` takes the `groups` of X."""

    uses_validation: ClassVar[bool] = False
    """Whether `fit` takes `X_validation` and `y_validation` for early stopping; without them it keeps a share of X."""

    uses_groups: ClassVar[bool] = False
    """Whether `fit` takes `groups`, the donor of each repertoire of X.

    If it also takes `X_validation`, it takes their donors as `groups_validation`."""

    @property
    def sheet_columns(self) -> Sequence[str]:
        """Names of the columns of the metadata sheet that the method reads, besides target and donors."""
        return ()

    def check_parameters(self) -> None:
        """Raise InputError if a parameter has a value that is wrong whatever the cohort is."""
        check_types(self)

    @classmethod
    def check_cohort(cls, X: RepertoireDataset) -> None:
        """Raise InputError if a cohort lacks something that the method needs, such as genes or a simulation recipe."""

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache everything that does not depend on labels, before several processes need it."""

    def save(self, path: Path | str) -> None:
        """Write the fitted estimator into one safetensors file, without pickle."""
        check_is_fitted(self)
        arrays, values = self._state()
        header = {"format": _FORMAT, "version": _VERSION, "class": type(self).__name__}
        text = json.dumps(to_plain({**header, "parameters": self.get_params(deep=False), "values": values}))
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        metadata = {"deeprc": text, "digest": digest_arrays(contiguous, text)}
        write_safetensors(Path(path), lambda temporary_path: save_file(contiguous, temporary_path, metadata))

    @classmethod
    def load(cls: type[_Estimator], path: Path | str) -> _Estimator:
        """Read an estimator that `save` wrote.

        Raises
        ------
        InputError
            If the file is missing or damaged, or holds another estimator or version.
        """
        arrays, texts = read_arrays(Path(path), expected="a saved estimator")
        text = texts.get("deeprc", "{}")
        if texts.get("digest", "") not in ("", digest_arrays(arrays, text)):  # files of earlier versions have none
            raise InputError(f"{path}: is damaged: its numbers are not those that were written")
        body = validate(parse_json(text, source=str(path)), dict[str, Any], str(path))
        header = tuple(body.get(name) for name in ("format", "version", "class"))
        if header != (_FORMAT, _VERSION, cls.__name__):
            expected = f"expected a {cls.__name__} of version {_VERSION}"
            raise InputError(f"{path}: {expected}, found {header[2] or 'no estimator'} of version {header[1]}")
        given = validate(body.get("parameters"), dict[str, Any], f"{path}: parameters")
        parameters = {_RENAMED.get(name, name): value for name, value in given.items()}
        values = validate(body.get("values"), dict[str, dict[str, Any]], f"{path}: values")
        try:
            estimator = cls(**parameters)
            estimator._restore(arrays, values)
        except (LookupError, TypeError, AttributeError, RuntimeError, ValueError) as error:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "  # a ValueError says it in words
            reason = " ".join(f"{kind}{error}".split())
            raise InputError(f"{path}: is damaged: {reason}") from error
        return estimator

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the fitted attributes: arrays of numbers, and all others as values for JSON."""
        return collect_fitted_state(vars(self))

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        """Set the fitted attributes from arrays and values that `_state` returned."""
        for name in (*arrays, *values):
            if name.startswith("_") or not name.endswith("_"):
                raise InputError(f"expected names of fitted attributes, which end in _, found {name!r}")
        for name, array in arrays.items():
            setattr(self, name, array)
        for name, holder in values.items():
            is_text = "value" not in holder
            setattr(self, name, _restore_texts(name, holder.get("text")) if is_text else holder["value"])


def _restore_texts(name: str, texts: object) -> NDArray[np.str_]:
    """Return an array of texts from the value of an attribute in a file; raise InputError if it is none."""
    restored = np.array(validate(texts, list[Any], name), dtype=str)
    if restored.ndim != 1:
        raise InputError(f"{name}: expected a list of texts, found {abbreviate(texts)}")
    return restored


class RepertoireClassifier(ClassifierMixin, RepertoireEstimator):  # type: ignore[misc]
    """A classifier of repertoires. It predicts the most probable class, or the second of two classes from a cutoff."""

    classes_: NDArray[Any]

    @property
    def min_probability(self) -> float:
        """Probability from which the second of two classes is predicted."""
        return IDENTITY.min_probability

    def predict_proba(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the probability of each class, (B, C), in the order of X and of `classes_`."""
        raise NotImplementedError

    def predict(self, X: RepertoireDataset) -> NDArray[Any]:
        """Return the class of each repertoire, (B,): by `min_probability` if there are two, else the most probable."""
        probability = self.predict_proba(X)  # before `classes_`: raises if the model is not fitted
        is_binary = probability.shape[1] == 2
        index = probability[:, 1] >= self.min_probability if is_binary else probability.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[index.astype(np.int64)]
        return predicted


class BinaryClassifier(RepertoireClassifier):
    """A classifier of two classes by a score. A higher score means that the second class is more probable.

    A subclass defines `_fit` and `_score_repertoires`. Scores of training repertoires are too optimistic to calibrate
    probabilities: a model that separates its training repertoires would give them a probability of nearly 0 or 1. So
    `fit` also cross-fits scores: each fifth of the training repertoires is scored by a model that was fitted to the
    others. Platt scaling of these scores gives the slope and the intercept that turn a score into log-odds. Scores are
    compared in the units of their model, see `deeprc.calibration.compute_mean_and_sd`, because models of different
    folds may differ in their units.

    Attributes
    ----------
    calibration_
        Slope (above 0) and intercept of the calibration, (2,).
    """

    uses_groups = True
    calibrates_itself: ClassVar[bool] = False
    """Whether `_fit` itself sets `calibration_`, or its scores are log-odds that also hold for new repertoires.

    Then `fit` need not cross-fit scores, which would take five more fits.
    """

    calibration_: NDArray[np.float64]

    def fit(self: _Binary, X: RepertoireDataset, y: ArrayLike, *, groups: ArrayLike | None = None) -> _Binary:
        """Learn from the repertoires X, (B,), with labels y, (B,), of two classes.

        Repertoires with equal values in `groups`, (B,), are from one donor: the calibration keeps them in one fold.

        Raises
        ------
        TypeError
            If X is not a `RepertoireDataset`.
        ValueError
            If X and y differ in length, if y does not have two classes, if a label is missing, if a parameter is out of
            range, or if X lacks something that the method needs.
        """
        self.fit_uncalibrated(X, y, groups=groups)
        if not self.calibrates_itself:
            self.calibration_ = self._calibrate(X, y, groups)
        return self

    def fit_uncalibrated(
        self: _Binary, X: RepertoireDataset, y: ArrayLike, *, groups: ArrayLike | None = None
    ) -> _Binary:
        """Learn as `fit` does, but without calibration, if only `decision_function` is needed.

        The scores are the same as after `fit`. `predict_proba` then uses them as log-odds, unless `calibrates_itself`.
        """
        positive = self._start_fit(X, y)
        validate_groups(X, groups, several=False)
        order = find_canonical_order(X, positive)
        self._fit(X[order], positive[order])
        return self

    def _start_fit(self, X: RepertoireDataset, y: ArrayLike) -> NDArray[np.bool_]:
        """Check X and y, set `classes_` and an identity calibration, and return who has the second class, (B,) bool."""
        classes, positive = encode_two_classes(X, y)
        self.check_cohort(X)
        self.classes_ = classes
        self.calibration_ = np.array([1.0, 0.0])
        return positive

    def _calibrate(self, X: RepertoireDataset, y: ArrayLike, groups: ArrayLike | None) -> NDArray[np.float64]:
        """Return the slope and the intercept, (2,), of cross-fitted scores of the training repertoires.

        If there are too few repertoires or groups for folds, the scores of the model itself are used.
        """
        _, positive = encode_two_classes(X, y)
        donors = validate_groups(X, groups, several=False)
        order = find_canonical_order(X, positive)
        X, positive, donors = X[order], positive[order], None if donors is None else donors[order]
        own_scores = self.decision_function(X)
        mean, sd = (moment.item() for moment in compute_mean_and_sd(own_scores))
        scores = (own_scores - mean) / sd  # those of left-out repertoires are replaced
        fold_of = assign_grouped_folds(digest_with_genes(X), positive.astype(np.int64), _N_FOLDS, groups=donors)
        for fold in range(1 + int(fold_of.max())):
            is_fitted, is_left_out = fold_of != fold, fold_of == fold
            if len(np.unique(positive[is_fitted])) == 2:
                own_donors = None if donors is None else donors[is_fitted]
                fitted = self._copy_for_fold().fit_uncalibrated(X[is_fitted], positive[is_fitted], groups=own_donors)
                fold_scores = fitted.decision_function(X)
                fold_mean, fold_sd = compute_mean_and_sd(fold_scores[is_fitted])
                scores[is_left_out] = (fold_scores[is_left_out] - fold_mean) / fold_sd
        slope, intercept = fit_platt_scaling(scores, positive, unit=1.0)
        # slope * (score - mean) / sd + intercept, for scores in the units of this model
        return np.array([slope / sd, intercept - slope * mean / sd])

    def _copy_for_fold(self: _Binary) -> _Binary:
        """Return an unfitted copy of this fitted model for a fold of the calibration; subclasses may make it faster."""
        copy: _Binary = clone(self)
        return copy

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        """Learn from repertoires in canonical order; `positive` says which have the second class, (B,)."""
        raise NotImplementedError

    def _score_repertoires(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the score of each repertoire, (B,), of at least one."""
        raise NotImplementedError

    def decision_function(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the score of each repertoire, (B,)."""
        check_is_fitted(self)
        if len(validate_dataset(X)) == 0:
            return np.zeros(0)
        self.check_cohort(X)
        return np.asarray(self._score_repertoires(X), np.float64)

    def predict_proba(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the probability of each class, (B, 2), in the order of X and of `classes_`."""
        return self.compute_probabilities(self.decision_function(X))

    def compute_probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of each class, (B, 2), for scores of `decision_function`, (B,)."""
        slope, intercept = self.calibration_
        probability = expit(slope * scores + intercept)
        return np.stack([1 - probability, probability], axis=1)

    def decision_path(
        self, X: RepertoireDataset, y: ArrayLike, X_new: RepertoireDataset, values: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return the scores, (V, B), of new repertoires X_new, (B,), for each value of `path_parameter`.

        The result is the same as from `fit_uncalibrated(X, y).decision_function(X_new)` with each value. `_path` shares
        work between the values. `self` does not change.
        """
        model = clone(self)
        positive = model._start_fit(X, y)
        if len(X_new) == 0 or len(values) == 0:
            return np.zeros((len(values), len(X_new)))
        model.check_cohort(X_new)
        order = find_canonical_order(X, positive)
        return np.asarray(model._path(X[order], positive[order], X_new, list(values)), np.float64)

    def _path(
        self, X: RepertoireDataset, positive: NDArray[np.bool_], X_new: RepertoireDataset, values: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return the scores of new repertoires, (V, B), for each value of `path_parameter`; by default by one fit each.

        X and `positive` are as for `_fit`.
        """
        assert self.path_parameter is not None
        models = [clone(self).set_params(**{self.path_parameter: value}) for value in values]
        return np.array([model.fit_uncalibrated(X, positive).decision_function(X_new) for model in models])


class RepertoireRegressor(RegressorMixin, RepertoireEstimator):  # type: ignore[misc]
    """A regressor: it predicts a number for each repertoire.

    A subclass defines `_fit`, `_predict` and, with a `path_parameter`, `_path`. These methods get and return
    standardised numbers, which have mean 0 and variance 1 in training.

    Attributes
    ----------
    mean_, scale_
        Mean and standard deviation of the training labels.
    """

    mean_: float
    scale_: float

    def fit(self: _Regressor, X: RepertoireDataset, y: ArrayLike) -> _Regressor:
        """Learn from the repertoires X, (B,), with numbers y, (B,). The order of the repertoires does not matter.

        Raises
        ------
        TypeError
            If X is not a `RepertoireDataset`.
        ValueError
            If X and y differ in length, if all numbers are equal, if one is missing, if a parameter is out of range, or
            if X lacks something that the method needs.
        """
        X, standard = self._standardise(X, y)
        self._fit(X, standard)
        return self

    def _standardise(self, X: RepertoireDataset, y: ArrayLike) -> tuple[RepertoireDataset, NDArray[np.float64]]:
        """Set `mean_` and `scale_`; return the repertoires in canonical order, and their standardised numbers."""
        numbers = validate_numbers(X, y)
        self.check_cohort(X)
        order = find_canonical_order(X, numbers)
        numbers = numbers[order]
        self.mean_, self.scale_ = float(numbers.mean()), float(numbers.std())
        return X[order], (numbers - self.mean_) / self.scale_

    def _fit(self, X: RepertoireDataset, numbers: NDArray[np.float64]) -> None:
        """Learn from repertoires in canonical order and their standardised numbers, (B,)."""
        raise NotImplementedError

    def _predict(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the predicted standardised number of each repertoire, (B,), of at least one."""
        raise NotImplementedError

    def predict(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the number predicted for each repertoire, (B,)."""
        check_is_fitted(self)
        if len(validate_dataset(X)) == 0:
            return np.zeros(0)
        self.check_cohort(X)
        return np.asarray(self.mean_ + self.scale_ * self._predict(X), np.float64)

    def decision_path(
        self, X: RepertoireDataset, y: ArrayLike, X_new: RepertoireDataset, values: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return the predicted numbers, (V, B), of new repertoires X_new, (B,), for each value of `path_parameter`.

        The result is that of `fit(X, y).predict(X_new)` with each value; `_path` shares work. `self` does not change.
        """
        model = clone(self)
        X, standard = model._standardise(X, y)
        if len(X_new) == 0 or len(values) == 0:
            return np.zeros((len(values), len(X_new)))
        model.check_cohort(X_new)
        return np.asarray(model.mean_ + model.scale_ * model._path(X, standard, X_new, list(values)), np.float64)

    def _path(
        self, X: RepertoireDataset, numbers: NDArray[np.float64], X_new: RepertoireDataset, values: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return standardised predictions for new repertoires, (V, B), for each value of `path_parameter`."""
        raise NotImplementedError
