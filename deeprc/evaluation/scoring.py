"""Scoring of predictions for each kind of target: measures, their intervals, and the paired test of two methods.

The measure of two classes is the AUC; that of several classes the mean of the AUCs of each class against all others
(macro AUC); that of numbers r2. A fold is here a data frame with one method's predictions for the repertoires of one
test fold, in the order of their ids. Letters: B repertoires of a fold, C classes, F folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from deeprc.errors import InputError
from deeprc.evaluation.auc_comparison import (
    PairedTest,
    run_paired_auc_test,
    run_paired_error_test,
    run_paired_macro_auc_test,
)
from deeprc.evaluation.auc_intervals import compute_fold_aucs_interval
from deeprc.evaluation.intervals import compute_r2, compute_r2_interval, compute_rank_correlation
from deeprc.evaluation.metrics import compute_binary_metrics, compute_macro_auc, compute_macro_metrics
from deeprc.evaluation.reliability import judge_probabilities
from deeprc.evaluation.scoring_base import (
    KEY_COLUMNS,
    Estimate,
    Scoring,
    compute_sd,
    convert_to_numbers,
    list_fold_donors,
    refuse,
)

__all__ = [
    "BINARY",
    "BinaryScoring",
    "MulticlassScoring",
    "RegressionScoring",
    "choose_scoring",
]


class BinaryScoring(Scoring):
    """Two classes: the columns label (0 or 1), score (higher for class 1), probability (of class 1) and cutoff.

    Class 1 is called where its probability reaches the cutoff; by default 0.5.
    """

    kind = "binary"
    measure_name, heading = "auc", "AUC"
    estimate_column, sd_column = "auc_mean", "auc_sd"
    chance_level = 0.5
    optional: ClassVar[Mapping[str, float]] = {"cutoff": 0.5}
    headings: ClassVar[Mapping[str, str]] = {
        "auc": "AUC",
        "f1": "F1",
        "balanced_accuracy": "Balanced acc.",
        "average_precision": "Avg. precision",
    }
    interval_note = (
        "95% interval: of the mean AUC, from the class sizes (Newcombe's method 5). It is wider if donors have several "
        "repertoires, and because folds share training repertoires."
    )
    test_note = "two-sided paired DeLong test by fold"
    means_note = (
        "F1, balanced accuracy: of the predicted classes. The cutoff of the probability was chosen on the validation "
        "fold; where none was chosen, it is 0.5."
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a table of predictions."""
        return (*KEY_COLUMNS, "label", "score", "probability", "cutoff")

    def validate(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with the types of its columns set; raise InputError at the first value that is wrong."""
        table = convert_to_numbers(table, ("label", "score", "probability", "cutoff"))
        refuse(table, ~table["label"].isin([0, 1]), "expected a label of 0 or 1")
        refuse(table, table["score"].isna(), "expected a score, found none")
        for name in ("probability", "cutoff"):
            refuse(table, ~table[name].between(0, 1), f"expected a {name} from 0 to 1")
        return table.astype({"label": np.int64})

    def is_measured(self, fold: pd.DataFrame) -> bool:
        """Return whether a fold has both classes."""
        return bool(0 < fold["label"].sum() < len(fold))

    def measure_fold(self, fold: pd.DataFrame) -> dict[str, float]:
        """Return every metric of one fold, see `compute_binary_metrics`."""
        # ranks, because a score may be infinite
        score = rankdata(fold["score"])
        label, probability, cutoff = (fold[name].to_numpy() for name in ("label", "probability", "cutoff"))
        return compute_binary_metrics(label, probability, score=score, cutoff=cutoff)

    def judge_probabilities(self, table: pd.DataFrame) -> dict[str, float]:
        """Return how good the probabilities of a table are, see `judge_probabilities`."""
        return judge_probabilities(table["label"].to_numpy(), table["probability"].to_numpy())

    def estimate_over_folds(self, folds: Sequence[pd.DataFrame]) -> Estimate:
        """Return the mean AUC over folds."""
        labels, scores = ([fold[name].to_numpy() for fold in folds] for name in ("label", "score"))
        interval = compute_fold_aucs_interval(labels, scores, list_fold_donors(folds))
        return Estimate(float(interval.aucs.mean()), compute_sd(interval.aucs), interval.low, interval.high)

    def count_repertoires(self, folds: Sequence[pd.DataFrame]) -> dict[str, int]:
        """Return the number of repertoires in the folds, in all and of each class."""
        positive = sum(int(fold["label"].sum()) for fold in folds)
        negative = sum(map(len, folds)) - positive
        smallest = min(positive, negative)
        by_class = {"n_positive": positive, "n_negative": negative}
        return {"n_repertoires": positive + negative, "n_smallest": smallest, **by_class}

    def test(self, first: Sequence[pd.DataFrame], second: Sequence[pd.DataFrame], *, seed: int = 0) -> PairedTest:
        """Test whether two methods have the same mean AUC, see `run_paired_auc_test`."""
        labels = [fold["label"].to_numpy() for fold in first]
        scores = ([fold["score"].to_numpy() for fold in folds] for folds in (first, second))
        return run_paired_auc_test(labels, *scores, donors=list_fold_donors(first), seed=seed)


class MulticlassScoring(Scoring):
    """Several classes: the columns label (the name of the class) and `score=CLASS`, `probability=CLASS` of each class.

    Parameters
    ----------
    classes
        The names of the classes.
    """

    kind = "multiclass"
    measure_name, heading = "auc", "Macro AUC"
    estimate_column, sd_column = "auc_mean", "auc_sd"
    chance_level = 0.5
    headings: ClassVar[Mapping[str, str]] = {
        "auc": "Macro AUC",
        "balanced_accuracy": "Balanced acc.",
        "f1": "Macro F1",
        "accuracy": "Accuracy",
    }
    interval_note = (
        "95% interval: each class against all others has an interval (Newcombe's method 5). It is wider if donors have "
        "several repertoires, and because folds share training repertoires. The table has the means of the lower and "
        "of the upper limits over the classes. They are cautious: they are exact only if the AUCs of the classes rose "
        "and fell together."
    )
    test_note = "two-sided permutation test: the two methods' ranks are exchanged for random donors"
    means_note = (
        "Macro: the mean over classes, each against all others. The other metrics judge the most probable class."
    )

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a table of predictions."""
        scores, probabilities = ([f"{prefix}={name}" for name in self.classes] for prefix in ("score", "probability"))
        return (*KEY_COLUMNS, "label", *scores, *probabilities)

    def validate(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with the types of its columns set; raise InputError at the first value that is wrong."""
        table = convert_to_numbers(table, self.columns[len(KEY_COLUMNS) + 1 :])
        table["label"] = table["label"].astype(str)
        refuse(table, ~table["label"].isin(self.classes), f"expected a label of {', '.join(self.classes)}")
        for name in self.classes:
            refuse(table, table[f"score={name}"].isna(), f"expected a score of {name}, found none")
            wrong = ~table[f"probability={name}"].between(0, 1)
            refuse(table, wrong, f"expected a probability of {name} from 0 to 1")
        return table

    def binarize_class(self, fold: pd.DataFrame, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return whether each repertoire belongs to a class (0 or 1), and its score for that class, (B,) each."""
        member: NDArray[np.int64] = np.array([label == name for label in fold["label"]], np.int64)
        return member, np.asarray(fold[f"score={name}"], np.float64)

    def is_measured(self, fold: pd.DataFrame) -> bool:
        """Return whether a fold has every class."""
        return set(fold["label"]) == set(self.classes)

    def measure_fold(self, fold: pd.DataFrame) -> dict[str, float]:
        """Return auc, balanced_accuracy, f1 (macro), accuracy, log_loss and brier of one fold."""
        index, scores = self._get_classes_and_ranks(fold)
        judged = self.judge_probabilities(fold)
        metrics = {
            "auc": compute_macro_auc(index, scores),
            **compute_macro_metrics(index, self._get_probabilities(fold)),
        }
        return {**metrics, "log_loss": judged["log_loss"], "brier": judged["brier"]}

    def judge_probabilities(self, table: pd.DataFrame) -> dict[str, float]:
        """Return how good the probabilities of a table are, see `judge_probabilities`."""
        return judge_probabilities(self._get_classes_and_ranks(table)[0], self._get_probabilities(table))

    def _get_probabilities(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probability of each class, (B, C)."""
        return table[[f"probability={name}" for name in self.classes]].to_numpy(np.float64)

    def _get_classes_and_ranks(self, fold: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the index of each repertoire's class, (B,), and the ranks of the scores for each class, (B, C)."""
        index: NDArray[np.int64] = np.array([self.classes.index(label) for label in fold["label"]], np.int64)
        scores = fold[[f"score={name}" for name in self.classes]].to_numpy(np.float64)
        return index, np.asarray(rankdata(scores, axis=0), np.float64)

    def estimate_over_folds(self, folds: Sequence[pd.DataFrame]) -> Estimate:
        """Return the mean over classes and folds of the AUC of each class against all others."""
        aucs, limits = [], []
        for name in self.classes:
            labels, scores = zip(*(self.binarize_class(fold, name) for fold in folds), strict=True)
            interval = compute_fold_aucs_interval(labels, scores, list_fold_donors(folds))
            aucs.append(interval.aucs)
            limits.append((interval.low, interval.high))
        macro_aucs = np.mean(aucs, axis=0)  # one for each fold
        low, high = np.mean(limits, axis=0).tolist()
        return Estimate(float(macro_aucs.mean()), compute_sd(macro_aucs), low, high)

    def count_repertoires(self, folds: Sequence[pd.DataFrame]) -> dict[str, int]:
        """Return the number of repertoires in the folds, and of those in the smallest class."""
        labels = pd.concat([fold["label"] for fold in folds]) if folds else pd.Series([], dtype=object)
        smallest = min((int((labels == name).sum()) for name in self.classes), default=0)
        return {"n_repertoires": len(labels), "n_smallest": smallest}

    def test(self, first: Sequence[pd.DataFrame], second: Sequence[pd.DataFrame], *, seed: int = 0) -> PairedTest:
        """Test whether two methods have the same mean macro AUC, see `run_paired_macro_auc_test`."""
        indices = [self._get_classes_and_ranks(fold)[0] for fold in first]
        scores = ([self._get_classes_and_ranks(fold)[1] for fold in folds] for folds in (first, second))
        return run_paired_macro_auc_test(indices, *scores, donors=list_fold_donors(first), seed=seed)


class RegressionScoring(Scoring):
    """Numbers: the columns label and prediction, in the units of the target.

    r2 is measured over all test repertoires together, each predicted by the model of its fold. In a single fold the
    labels vary by chance, so r2 is too low on average, and lower in smaller folds.
    """

    kind = "regression"
    measure_name, heading = "r2", "r²"
    estimate_column, sd_column = "r2", "r2_sd"
    chance_level = 0.0
    headings: ClassVar[Mapping[str, str]] = {"r2": "r²", "spearman": "Spearman", "mae": "Mean abs. error"}
    lower_is_better = frozenset({"mae"})
    interval_note = (
        "95% interval: of r² by the jackknife of log(1 - r²) over donors (Miller 1968). It is about the trained "
        "models; an interval of an AUC also covers training on other repertoires."
    )
    test_note = "two-sided paired test of the squared errors by random signs"
    means_note = "r²: of all test repertoires together. 1 is perfect, 0 is no better than their mean."

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a table of predictions."""
        return (*KEY_COLUMNS, "label", "prediction")

    def validate(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with the types of its columns set; raise InputError at the first value that is wrong."""
        table = convert_to_numbers(table, ("label", "prediction"))
        for column in ("label", "prediction"):
            refuse(table, ~np.isfinite(table[column]), f"expected a number as {column}")
        return table

    def is_measured(self, fold: pd.DataFrame) -> bool:
        """Return whether a fold has a repertoire; all folds are measured together."""
        return len(fold) > 0

    def measure_fold(self, fold: pd.DataFrame) -> dict[str, float]:
        """Return r2, spearman and mae of one fold."""
        label, predicted = fold["label"].to_numpy(), fold["prediction"].to_numpy()
        return {
            "r2": compute_r2(label, predicted),
            "spearman": compute_rank_correlation(label, predicted),
            "mae": float(np.abs(label - predicted).mean()),
        }

    def estimate_over_folds(self, folds: Sequence[pd.DataFrame]) -> Estimate:
        """Return r2 of all folds together."""
        pooled = pd.concat(folds)
        label, predicted = pooled["label"].to_numpy(), pooled["prediction"].to_numpy()
        fold_r2s = np.array([self.measure_fold(fold)["r2"] for fold in folds])
        donors = list_fold_donors(folds)
        interval = compute_r2_interval(label, predicted, None if donors is None else np.concatenate(donors))
        low, high = (np.nan, np.nan) if interval is None else interval
        return Estimate(self.measure_fold(pooled)["r2"], compute_sd(fold_r2s), low, high)

    def count_repertoires(self, folds: Sequence[pd.DataFrame]) -> dict[str, int]:
        """Return the number of repertoires in the folds."""
        n = sum(map(len, folds))
        return {"n_repertoires": n, "n_smallest": n}

    def test(self, first: Sequence[pd.DataFrame], second: Sequence[pd.DataFrame], *, seed: int = 0) -> PairedTest:
        """Test whether two methods have the same r2, see `run_paired_error_test`."""
        label = pd.concat(first)["label"].to_numpy()
        predicted = [pd.concat(folds)["prediction"].to_numpy() for folds in (first, second)]
        donors = list_fold_donors(first)
        all_donors = None if donors is None else np.concatenate(donors)
        return run_paired_error_test(label, predicted[0], predicted[1], all_donors, seed=seed)


BINARY = BinaryScoring()
"""The scoring of two classes."""


def choose_scoring(kind: str, classes: Sequence[Any] = ()) -> Scoring:
    """Return the scoring of a kind of target; `classes` are those of a multiclass target.

    Raises
    ------
    InputError
        If there is no such kind.
    """
    if kind == "multiclass":
        return MulticlassScoring([str(name) for name in classes])
    if kind not in ("binary", "regression"):
        raise InputError(f"expected a kind of target of binary, multiclass or regression, found {kind!r}")
    return BINARY if kind == "binary" else RegressionScoring()
