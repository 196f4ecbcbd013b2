"""`DeepRCClassifier` and `DeepRCRegressor`: DeepRC as scikit-learn estimators over `RepertoireDataset`.

Letters: B repertoires, C classes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from deeprc.calibration import compute_mean_and_scale
from deeprc.config import config_from_mapping, load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.device import resolve_device
from deeprc.earlier_names import update_names
from deeprc.estimators import RepertoireClassifier, RepertoireEstimator, RepertoireRegressor, collect_fitted_state
from deeprc.groups import choose_donor_column, index_groups, validate_groups
from deeprc.labels import encode_classes, validate_dataset, validate_numbers
from deeprc.nn.inference import compute_attention_weights
from deeprc.outputs import activate
from deeprc.targets import format_labels
from deeprc.tasks import Task
from deeprc.training.calibration import calibrate_model, describe_calibration, restore_calibration
from deeprc.training.inner_split import split_repertoires
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.log_abundance import replace_log_abundance
from deeprc.training.model import TrainedModel, describe_network, load_weights, rebuild_network
from deeprc.training.trainer import Trainer

__all__ = ["DeepRCClassifier", "DeepRCRegressor"]

_logger = logging.getLogger(__name__)

_NETWORK_FIELDS = ("genes", "branches", "calibration")  # fields that describe the network in a file


def _warn_of_donors(X: RepertoireDataset) -> None:
    """Warn if the metadata say that donors have several repertoires, because without groups each has its own donor."""
    column = choose_donor_column(X.metadata)
    if column is None:
        return
    n_donors = len(np.unique(index_groups(X.metadata[column])))
    if n_donors < len(X):
        _logger.warning(
            "groups: %d repertoires are of %d donors (column %r), but are taken as independent without groups, so what "
            "is learned may be the donor; give groups=X.metadata[%r]",
            len(X),
            n_donors,
            column,
            column,
        )


class DeepRCEstimator(RepertoireEstimator):
    """Base class of DeepRC's classifier and regressor: parameters, training, outputs and saving."""

    uses_validation = True
    uses_groups = True

    def __init__(
        self,
        *,
        config: str = "deeprc",
        overrides: dict[str, Any] | None = None,
        validation_fraction: float = 0.2,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.config = config
        self.overrides = overrides
        self.validation_fraction = validation_fraction
        self.seed = seed
        self.device = device

    def check_parameters(self) -> None:
        """Raise ValueError if the configuration or another parameter cannot be used."""
        super().check_parameters()
        self._check_validation_fraction()
        load_config(self.config, self.overrides or {})

    def _make_task(self) -> Task:
        """Return the task that is predicted."""
        raise NotImplementedError

    def _train(
        self, train: LabelledRepertoires, validation: LabelledRepertoires, *, branches_use_validation: bool
    ) -> None:
        """Train on some repertoires, with early stopping on others."""
        config = load_config(self.config, self.overrides or {})
        if not branches_use_validation:
            config = replace(config, training=replace(config.training, branches_use_validation=False))
        config = replace_log_abundance(config, [train.dataset, validation.dataset])
        trainer = Trainer(
            config, [self._make_task()], train, validation, seed=self.seed, device=resolve_device(self.device)
        )
        self.history_ = trainer.fit().history
        self.model_ = replace(calibrate_model(trainer.make_model(), trainer.validation), pooled_value_cache=None)
        self.train_digests_, self.validation_digests_ = (
            np.array(identify_repertoires(repertoires.dataset), dtype=str) for repertoires in (train, validation)
        )

    def _encode_validation_labels(self, X: RepertoireDataset, y: ArrayLike | None) -> NDArray[np.float64]:
        """Return the label of each validation repertoire, (B,); raise ValueError if one is missing or unknown."""
        raise NotImplementedError

    def _split_given(
        self,
        given: LabelledRepertoires,
        X_validation: RepertoireDataset | None,
        y_validation: ArrayLike | None,
        groups_validation: ArrayLike | None,
    ) -> tuple[LabelledRepertoires, LabelledRepertoires]:
        """Return the repertoires to learn from, and those for early stopping; without X_validation, parts of `given`.

        `given` has X, y and groups of `fit`, whose other parameters are the same.
        """
        if X_validation is not None:
            labels = self._encode_validation_labels(X_validation, y_validation)
            groups = validate_groups(X_validation, groups_validation, several=False)
            return given, LabelledRepertoires(X_validation, labels[:, None], groups)
        for name, value in (("y_validation", y_validation), ("groups_validation", groups_validation)):
            if value is not None:
                raise ValueError(f"{name}: expected None, because there is no X_validation")
        if given.groups is None:
            _warn_of_donors(given.dataset)
        stratify = isinstance(self, RepertoireClassifier)
        return split_repertoires(given, self.validation_fraction, stratify=stratify, seed=self.seed)

    def _check_validation_fraction(self) -> None:
        """Raise ValueError if the share of repertoires for early stopping is not between 0 and 1."""
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction: expected a share between 0 and 1, found {self.validation_fraction}")

    def _compute_outputs(self, X: RepertoireDataset) -> torch.Tensor:
        check_is_fitted(self)
        return self.model_.compute_outputs(validate_dataset(X))

    def attention(self, X: RepertoireDataset) -> list[NDArray[np.float64]]:
        """Return the attention weights of each repertoire's sequences, (N, H), which sum to 1 per head.

        They are those of the predictions: 0 for sequences beyond the setting `top_fraction`, if these are dropped.
        """
        check_is_fitted(self)
        inference = self.model_.make_inference(X)
        logits = (inference.compute_logits(i) for i in range(len(X)))
        return [compute_attention_weights(logit, inference.top_fraction).numpy() for logit in logits]

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, values = collect_fitted_state({name: value for name, value in vars(self).items() if name != "model_"})
        network = self.model_.network
        tensors = {f"network.{name}": tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items()}
        described_network = {**describe_network(network), "calibration": describe_calibration(self.model_.tasks)}
        described = {f"{name}_": {"value": value} for name, value in described_network.items()}
        return {**arrays, **tensors}, {**values, **described, "config_": {"value": self.model_.config.to_mapping()}}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        arrays, values = update_names(arrays), update_names(values)
        weights = {name: array for name, array in arrays.items() if name.startswith("network.")}
        described = {name: values[f"{name}_"]["value"] for name in _NETWORK_FIELDS if f"{name}_" in values}
        self.train_digests_ = self.validation_digests_ = np.zeros(0, dtype=str)  # older files have none
        fields_of_model = {"config", *described}
        super()._restore(
            {name: array for name, array in arrays.items() if name not in weights},
            {name: value for name, value in values.items() if name.removesuffix("_") not in fields_of_model},
        )
        where = "the estimator's file"
        config, tasks = config_from_mapping(values["config_"]["value"], source=where), (self._make_task(),)
        network = rebuild_network(config, tasks, described, device=resolve_device(self.device), where=where)
        tensors = {name.removeprefix("network."): torch.from_numpy(array) for name, array in weights.items()}
        load_weights(network, tensors, where)
        self.model_ = TrainedModel(restore_calibration(tasks, described, where), network.eval(), config)


class DeepRCClassifier(RepertoireClassifier, DeepRCEstimator):
    """A classifier of repertoires by DeepRC.

    Parameters
    ----------
    config
        Name of a preset, or path of a YAML file.
    overrides
        Changes of the configuration, such as `{"n_updates": 500}`.
    validation_fraction
        Share of the repertoires given to `fit` that are used for early stopping; at least one per class. It is at most
        0.5 if `fit` gets `groups`.
    seed
        Seed of the inner split, the initial weights and the sampling.
    device
        Name of the device: `auto`, `cpu`, `cuda` ...

    Attributes
    ----------
    classes_
        Labels in sorted order, (C,).
    model_
        The trained `deeprc.training.model.TrainedModel`, for the functions of `deeprc.interpretation`.
    history_
        History of the training, one row per evaluation.
    train_digests_, validation_digests_
        Digests of the training repertoires, and of those for early stopping; see `identify_repertoires`. They are empty
        if an older version saved the estimator.
    """

    def fit(
        self,
        X: RepertoireDataset,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        X_validation: RepertoireDataset | None = None,
        y_validation: ArrayLike | None = None,
        groups_validation: ArrayLike | None = None,
    ) -> DeepRCClassifier:
        """Train on the repertoires X, (B,), with labels y, (B,), of any type; each class needs at least two.

        Early stopping uses the validation repertoires if they are given, and otherwise a share of X. Branches of the
        network also learn from this share of X, but never from X_validation. Repertoires with equal `groups`, (B,), are
        from one donor: they are never separated by a split, and tests of motifs permute labels between donors.
        `groups_validation` are the groups of X_validation. A warning says if the metadata of X name the donors, but
        there are neither groups nor X_validation. The order of X does not matter.

        Raises
        ------
        TypeError
            If X is no `RepertoireDataset`.
        ValueError
            If X and y differ in length; y has one class or a missing label; a validation label is none of y's; all
            donors of a class are needed for early stopping; there are labels or groups of validation repertoires
            without these; or a parameter is out of range.
        """
        self._check_validation_fraction()
        self.classes_, index = encode_classes(X, y)
        given = LabelledRepertoires(X, index.astype(np.float64)[:, None], validate_groups(X, groups))
        train, validation = self._split_given(given, X_validation, y_validation, groups_validation)
        if X_validation is None:
            self._check_classes(train, validation)
        self._train(train, validation, branches_use_validation=X_validation is None)
        return self

    def _check_classes(self, train: LabelledRepertoires, validation: LabelledRepertoires) -> None:
        """Raise ValueError if a class is missing among training repertoires; warn if one is among the others."""
        index = np.arange(len(self.classes_))
        missing = [self.classes_[np.setdiff1d(index, part.labels[:, 0])].tolist() for part in (train, validation)]
        advice = "its donors cannot be divided between training and validation; give X_validation, or more donors"
        if missing[0]:
            raise ValueError(f"groups: no training repertoire is of class {missing[0][0]!r}: {advice}")
        if missing[1]:
            _logger.warning("groups: no validation repertoire is of class %r: %s", missing[1][0], advice)

    def _encode_validation_labels(self, X: RepertoireDataset, y: ArrayLike | None) -> NDArray[np.float64]:
        """Return the index of the class of each validation repertoire, (B,)."""
        labels = np.asarray(y)
        if y is None or labels.shape != (len(X),):
            raise ValueError(f"y_validation: expected {len(X)} labels, found {'none' if y is None else labels.shape}")
        unknown = [label for label in labels.tolist() if label not in self.classes_.tolist()]
        if unknown:
            raise ValueError(f"y_validation: expected the classes {self.classes_.tolist()}, found {unknown[0]!r}")
        return np.searchsorted(self.classes_, labels).astype(np.float64)

    def decision_function(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the log-odds of the second of two classes, (B,), or the logits of more classes, (B, C).

        They are not calibrated, like the outputs that `deeprc.interpretation` explains.
        """
        outputs = self._compute_outputs(X).double().numpy()
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    @property
    def min_probability(self) -> float:
        """Probability from which the second of two classes is predicted, chosen on the validation repertoires."""
        check_is_fitted(self)
        return self.model_.tasks[0].calibration.min_probability

    def predict_proba(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the calibrated probability of each class, (B, C), in the order of X and of `classes_`."""
        probability = activate(self._compute_outputs(X), self.model_.tasks)[0]
        return np.stack([1 - probability, probability], axis=1) if probability.ndim == 1 else probability

    def _make_task(self) -> Task:
        names = tuple(str(name) for name in format_labels(pd.Series(self.classes_)))  # 1 for 1.0, as in a sheet
        return Task("y", "y", "binary" if len(names) == 2 else "multiclass", names)


class DeepRCRegressor(RepertoireRegressor, DeepRCEstimator):
    """A regressor by DeepRC, which predicts a number for each repertoire.

    The parameters are those of `DeepRCClassifier`.

    Attributes
    ----------
    mean_, scale_
        Mean and standard deviation of the training labels.
    model_, history_, train_digests_, validation_digests_
        Model, history and digests as in `DeepRCClassifier`.
    """

    def fit(
        self,
        X: RepertoireDataset,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        X_validation: RepertoireDataset | None = None,
        y_validation: ArrayLike | None = None,
        groups_validation: ArrayLike | None = None,
    ) -> DeepRCRegressor:
        """Train on the repertoires X, (B,), with numbers y, (B,), of which at least two must differ.

        The other parameters, and the errors, are those of `DeepRCClassifier.fit`.
        """
        self._check_validation_fraction()
        given = LabelledRepertoires(X, validate_numbers(X, y)[:, None], validate_groups(X, groups))
        train, validation = self._split_given(given, X_validation, y_validation, groups_validation)
        self.mean_, self.scale_ = compute_mean_and_scale(train.labels)
        self._train(train, validation, branches_use_validation=X_validation is None)
        return self

    def _encode_validation_labels(self, X: RepertoireDataset, y: ArrayLike | None) -> NDArray[np.float64]:
        """Return the number of each validation repertoire, (B,)."""
        numbers = np.asarray(y, np.float64)
        if numbers.shape != (len(X),) or not np.isfinite(numbers).all():
            raise ValueError(f"y_validation: expected {len(X)} numbers, found {y!r}")
        return numbers

    def predict(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the number predicted for each repertoire, (B,)."""
        return activate(self._compute_outputs(X), [self._make_task()])[0]

    def _make_task(self) -> Task:
        return Task("y", "y", "regression", mean=self.mean_, scale=self.scale_)
