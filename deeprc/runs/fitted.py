"""Models that were fitted in Python and have no run directory, in the form that reports and predictions take.

Letters: B repertoires.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import KnownRepertoires, identify_repertoires
from deeprc.errors import InputError
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.splits import NEW
from deeprc.runs.run import Run
from deeprc.shift.summary import TrainingSummary, summarise_training
from deeprc.training.estimator import DeepRCEstimator
from deeprc.training.model import TrainedModel

__all__ = ["FittedModel", "set_labels"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FittedModel:
    """A model that was fitted in Python, with its history and a summary of its training repertoires.

    Attributes
    ----------
    model
        The trained model.
    part_of
        Part of the split, train or validation, of each repertoire given to `fit`, by its identity;
        see `identify_repertoires`.
    history
        History of the training, one row per evaluation on the validation repertoires.
    summary
        Summary of the training repertoires, with which other repertoires are compared.
    """

    model: TrainedModel
    part_of: dict[str, str]
    history: pd.DataFrame
    summary: TrainingSummary = field(default_factory=TrainingSummary)
    group_by: str | None = field(default=None, init=False)
    runs: tuple[Run, ...] = field(default=(), init=False)

    @classmethod
    def of(
        cls, estimator: DeepRCEstimator, target: str | None = None, cohort: RepertoireDataset | None = None
    ) -> FittedModel:
        """Return the model of a fitted `DeepRCClassifier` or `DeepRCRegressor`.

        Parameters
        ----------
        estimator
            The fitted estimator.
        target
            Name of the metadata column with the labels; None keeps the name "y".
        cohort
            Repertoires that include the training repertoires, to summarise them; None makes no summary.
        """
        check_is_fitted(estimator)
        (task,) = estimator.model_.tasks
        named_task = task if target is None else replace(task, name=target, column=target)
        part_of = {str(digest): "validation" for digest in estimator.validation_digests_}
        part_of |= {str(digest): "train" for digest in estimator.train_digests_}
        if not part_of:
            _logger.warning("the saved model does not say which repertoires it was fitted with: all count as new")
        summary = TrainingSummary() if cohort is None else _summarise_training(cohort, part_of)
        return cls(replace(estimator.model_, tasks=(named_task,)), part_of, pd.DataFrame(estimator.history_), summary)

    def histories(self) -> dict[str, pd.DataFrame]:
        """Return the history of the training, by the name of the model."""
        return {self.model.name: self.history}

    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the part of the split in which each repertoire was in training, or "new", (B,).

        A repertoire is recognised by its content, whatever its id is. With other genes it is also recognised if only
        one repertoire given to `fit` has its sequences and counts.
        """
        return _find_parts(dataset, self.part_of)

    def summaries(self) -> list[TrainingSummary]:
        """Return the summary of the training repertoires."""
        return [self.summary]


def _find_parts(dataset: RepertoireDataset, part_of: Mapping[str, str]) -> list[str]:
    """Return the part of the split of each repertoire, or "new", (B,); for `part_of`, see `FittedModel`."""
    known_repertoires, parts = KnownRepertoires(list(part_of)), list(part_of.values())
    indices = [known_repertoires.find(identity, with_other_genes=True) for identity in identify_repertoires(dataset)]
    return [NEW if index is None else parts[index] for index in indices]


def _summarise_training(cohort: RepertoireDataset, part_of: dict[str, str]) -> TrainingSummary:
    """Summarise the repertoires of a cohort with which a model was fitted; for `part_of`, see `FittedModel`."""
    fitted = cohort[[i for i, part in enumerate(_find_parts(cohort, part_of)) if part != NEW]]
    return summarise_training(fitted, DonorColumn.choose(fitted.metadata, None).index_if_known())


def set_labels(dataset: RepertoireDataset, column: str, labels: ArrayLike) -> RepertoireDataset:
    """Return the dataset with labels, (B,), as a column of its metadata; it replaces a column of the same name.

    Raises
    ------
    InputError
        If there is not one label for each repertoire.
    """
    values = np.asarray(labels)
    if values.shape != (len(dataset),):
        raise InputError(f"labels: expected {len(dataset)}, one for each repertoire, found {values.shape}")
    metadata = dataset.whole().metadata
    if np.issubdtype(values.dtype, np.floating):
        column_values = np.full(len(metadata), np.nan)
        column_values[dataset.repertoire_indices] = values
    else:
        column_values = np.full(len(metadata), None, dtype=object)
        column_values[dataset.repertoire_indices] = [None if pd.isna(value) else str(value) for value in values]
    metadata[column] = column_values
    return dataset.with_metadata(metadata)
