"""Fit a stack to a container, and predict a container: the functions behind `deeprc stack`.

Letters: B repertoires.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.cohort_cautions import find_divided_donor_cautions
from deeprc.evaluation.donors import DonorColumn, count_divided_donors
from deeprc.evaluation.splits import NEW
from deeprc.files import check_output_path
from deeprc.stacking.stack import Stack
from deeprc.task_labels import encode_labels
from deeprc.tasks import parse_tasks

__all__ = ["fit_stack", "list_prediction_columns", "predict_with_stack"]

_logger = logging.getLogger(__name__)


def fit_stack(
    cohort: str | os.PathLike[str] | RepertoireDataset,
    target: str,
    output: str | os.PathLike[str] | None = None,
    *,
    group_by: str | None = None,
    stack: Stack | None = None,
) -> Stack:
    """Fit a stack to all repertoires of a cohort that have a label, and save it.

    Parameters
    ----------
    cohort
        A container made by `deeprc preprocess`, or a dataset.
    target
        Target with two classes; see `deeprc.tasks.parse_tasks`.
    output
        File to write; None writes nothing.
    group_by
        Column of the metadata. Repertoires with equal values are of one donor; no fold separates them.
    stack
        Unfitted stack; None: `Stack()`.

    Raises
    ------
    InputError
        If an argument cannot be used; nothing is written then.
    """
    stack = Stack() if stack is None else stack
    stack.check_parameters()
    if output is not None:
        check_output_path(Path(output))
        if Path(output).exists():
            raise InputError(f"{output}: exists; choose another `output`")
    dataset = cohort if isinstance(cohort, RepertoireDataset) else open_dataset(cohort)
    source = str(dataset.container.path)
    (task,) = parse_tasks([target], dataset.metadata, source=source)
    if task.kind != "binary":
        raise InputError(f"`target={target!r}`: a stack predicts two classes, found a {task.kind} target")
    donors = DonorColumn.require(dataset.metadata, group_by, source).index_if_known()
    label = encode_labels([task], dataset.metadata)[:, 0]
    rows = np.flatnonzero(~np.isnan(label))
    _logger.info("%d of %d repertoires have a label of %s", len(rows), len(dataset), task.title)
    labelled_dataset, y = dataset[rows], label[rows].astype(np.int64)
    labelled_donors = None if donors is None else donors[rows]
    try:
        _warn_of_donors_in_several_folds(stack, labelled_dataset, y, labelled_donors)
        stack.fit(labelled_dataset, y, groups=labelled_donors)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{source}: {error}") from error
    stack.target_, stack.positive_class_ = task.title, task.positive
    if output is not None:
        stack.save(Path(output))
    return stack


def _warn_of_donors_in_several_folds(
    stack: Stack, dataset: RepertoireDataset, y: NDArray[np.int64], donors: NDArray[np.int64] | None
) -> None:
    if not count_divided_donors(dataset.metadata, np.arange(len(dataset))):  # each has one repertoire
        return
    fold_of = stack.assign_folds(dataset, y, groups=donors)
    for caution in find_divided_donor_cautions(dataset.metadata, fold_of, apart="folds"):
        _logger.warning("%s", caution.text)


def list_prediction_columns(stack: Stack) -> list[str]:
    """Return the columns by which a table of `predict_with_stack` is recognised; earlier versions had no others."""
    contributions = [f"contribution={name}" for name in stack.member_names_]
    return ["repertoire_id", "split", "probability", "positive_class", "log_odds", *contributions]


def predict_with_stack(stack: Stack, dataset: RepertoireDataset) -> pd.DataFrame:
    """Return the predictions for repertoires, one row each, in their order.

    `split` is "train" for training repertoires of the stack, else "new"; it is empty for a stack of an earlier version,
    which does not know them. `target` is that of the stack. `label` is 1 for repertoires of the positive class, 0 for
    others, and missing if the metadata does not say it. `probability` and `log_odds` are those of the positive class.
    `contribution=MEMBER` is the part of the log-odds that a member adds; the sum of these parts and of the stack's
    intercept is the log-odds.

    Raises
    ------
    InputError
        If the numbers of the stack give no finite prediction.
    """
    added = stack.contributions(dataset)
    log_odds = stack.combination_.intercept + added.to_numpy().sum(axis=1)
    if not np.isfinite(log_odds).all():
        raise InputError("the stack: its numbers give no finite prediction; the file is damaged")
    return pd.DataFrame(
        {
            "repertoire_id": dataset.repertoire_ids,
            "split": _find_parts(stack, dataset),
            "target": stack.target_,
            "label": _find_labels(stack, dataset),
            "probability": expit(log_odds),
            "positive_class": stack.positive_class_,
            "log_odds": log_odds,
            **{f"contribution={name}": added[name].to_numpy() for name in added},
        }
    )


def _find_parts(stack: Stack, dataset: RepertoireDataset) -> NDArray[np.object_]:
    """Return the part of the split of each repertoire, (B,), and warn of predictions that are too good."""
    if not len(stack.training_identities_):
        _logger.warning(
            "This stack does not know its training repertoires (a file of an earlier version). If this is its training "
            "cohort, the predictions are too good."
        )
        return np.full(len(dataset), "", object)
    known = stack.is_known(dataset)
    if known.any():
        _logger.warning(
            "%d of %d repertoires are training repertoires of the stack (split 'train'): their predictions are too "
            "good. Judge the stack by the others.",
            known.sum(),
            len(known),
        )
    return np.where(known, "train", NEW).astype(object)


def _find_labels(stack: Stack, dataset: RepertoireDataset) -> pd.Series[Any]:
    """Return the label of each repertoire, (B,): 1 for the positive class, 0 for others, missing if it is unknown."""
    unknown = pd.Series(np.full(len(dataset), np.nan), dtype="Float64").astype("Int64")
    if not stack.target_:  # the stack was fitted in Python, to labels without a name
        return unknown
    try:
        (task,) = parse_tasks([stack.target_], dataset.metadata, source=str(dataset.container.path))
        if task.kind == "binary" and task.positive == stack.positive_class_:
            labels = encode_labels([task], dataset.metadata)[:, 0]
            return pd.Series(labels, dtype="Float64").astype("Int64")
    except InputError as error:
        _logger.info("The column 'label' stays empty: %s", error)
        return unknown
    _logger.info(
        "The column 'label' stays empty: the positive class of %s is %r here, and %r for the stack",
        task.name,
        task.positive,
        stack.positive_class_,
    )
    return unknown
