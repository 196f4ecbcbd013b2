"""The challenge's predictor: it trains methods on the training folder, predicts, and ranks sequences."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pandas as pd
import torch
from joblib import effective_n_jobs
from numpy.typing import NDArray

from deeprc.airr_ml.folders import (
    LABEL,
    SHEET,
    Folder,
    convert,
    find_locus,
    find_original_gene_names,
    read_folder,
)
from deeprc.airr_ml.ranking import rank_sequences
from deeprc.benchmarking.cross_fitting import assign_mixed_folds, cross_fit
from deeprc.benchmarking.methods import choose_methods
from deeprc.benchmarking.search import apply_setting
from deeprc.config import load_config
from deeprc.datasets.cache import digest_with_genes
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.device import resolve_device
from deeprc.errors import InputError
from deeprc.estimators import RepertoireClassifier
from deeprc.groups import index_groups, pass_groups
from deeprc.stacking import Stack
from deeprc.threads import count_cores
from deeprc.training.estimator import DeepRCClassifier

__all__ = ["COLUMNS", "EVIDENCE_COLUMNS", "METHODS", "NOT_APPLICABLE", "ImmuneStatePredictor"]

COLUMNS = ("ID", "dataset", "label_positive_probability", "junction_aa", "v_call", "j_call")
"""Columns of the table of predictions and of the table of associated sequences."""

EVIDENCE_COLUMNS = ("ID", "junction_aa", "v_call", "j_call", "method", "evidence", "excess")
"""Columns of the table that says why a sequence is among the associated ones."""

NOT_APPLICABLE = -999.0
"""The value of a column that does not apply, and of an unknown gene."""

METHODS = ("stack", "gapped-logistic", "logistic", "public-clones", "deeprc")
"""The methods that predict and rank sequences; `method="auto"` is the first."""

_PRESET = "quick"  # preset of the benchmark from which a single method has its search space
_MIN_AUC = 0.55  # with a lower AUC, predictions are close to guessing
_MIN_REPERTOIRES = 5  # smallest number of repertoires of each class with which methods are compared
_METHOD_FOR_FEW = "gapped-logistic"  # the method of `auto` if a class has fewer
_N_IMPORTANT = 50_000  # number of sequences that the challenge asks for

_logger = logging.getLogger(__name__)


class ImmuneStatePredictor:
    """A predictor of immune states, which also names the associated sequences, as the challenge's template asks.

    Parameters
    ----------
    n_jobs
        Cores to use; -1: all. With more than one, files are read by several processes, for which a script needs
        `if __name__ == "__main__":`.
    device
        Device on which DeepRC computes: `cpu`, `cuda`, `auto`.
    method
        One of `METHODS`. `auto`: the stack, see `deeprc.stacking.Stack`, in which DeepRC and the methods of
        `deeprc benchmark` predict together; or with fewer than 5 repertoires of a class `gapped-logistic`.
    n_folds
        Number of folds of the training repertoires by which members are weighted and settings chosen. At least 2; fewer
        where a class has fewer repertoires.
    seed
        The seed of DeepRC.
    locus
        Chain to keep, such as TRB, if files hold several.
    group_by
        A column of the training folder's `metadata.csv`. Repertoires with the same value are of one donor: no fold
        separates them.
    config, overrides
        Configuration of DeepRC: a preset or YAML file, and changes of it, such as `n_updates=5000`.

    Attributes
    ----------
    method_
        The method that predicts.
    cross_validated_auc_
        AUC in cross-validation over the training repertoires, by method: that of the stack and of its members. It is
        slightly too high, because settings were chosen on the same folds.
    important_sequences_
        Table of the 50,000 sequences that are most associated with the positive label; see
        `identify_associated_sequences`.
    evidence_
        Table with the reason for each of these sequences, with the columns `EVIDENCE_COLUMNS`. `method` is the method
        that counts most, `evidence` the list of this method that has the sequence, and `excess` the share of the
        sequences with about its score in this list that chance does not explain; see `deeprc.airr_ml.ranking`.

    Raises
    ------
    InputError
        If a parameter or an override does not exist or cannot be used.
    """

    def __init__(
        self,
        n_jobs: int = 1,
        device: str = "cpu",
        *,
        method: str = "auto",
        n_folds: int = 5,
        seed: int = 0,
        locus: str | None = None,
        group_by: str | None = None,
        config: str = "deeprc",
        **overrides: Any,
    ) -> None:
        if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or (n_jobs < 1 and n_jobs != -1):
            raise InputError(f"n_jobs: expected at least 1, or -1 for all cores, found {n_jobs!r}")
        if method not in ("auto", *METHODS):
            raise InputError(f"method: expected auto, {', '.join(METHODS)}, found {method!r}")
        if isinstance(n_folds, bool) or not isinstance(n_folds, int | np.integer) or n_folds < 2:
            raise InputError(f"n_folds: expected a whole number of at least 2, found {n_folds!r}")
        load_config(config, overrides)
        resolve_device(device)
        self.n_jobs, self.device, self.method, self.n_folds = int(n_jobs), device, method, int(n_folds)
        self.seed, self.locus, self.group_by, self.config, self.overrides = seed, locus, group_by, config, overrides
        self.important_sequences_: pd.DataFrame | None = None
        self.evidence_: pd.DataFrame | None = None
        self._training: _Training | None = None

    def fit(self, train_dir_path: str | os.PathLike[str]) -> ImmuneStatePredictor:
        """Choose a method, train it and rank the training sequences.

        Files that are listed but missing, repertoires without a label, and repertoires without a usable sequence are
        left out, with a warning.

        Raises
        ------
        InputError
            If the folder lacks something, a file cannot be read, or there is one class only.
        """
        folder = read_folder(train_dir_path, labelled=True, group_by=self.group_by)
        with _limit_threads(self._n_cores):
            working_folder = Path(tempfile.mkdtemp(prefix="deeprc-"))  # kept: sequences may be asked for later
            weakref.finalize(self, shutil.rmtree, working_folder, ignore_errors=True)
            X, report = convert(folder, working_folder, locus=self.locus, jobs=self._n_cores)
            y = np.array([folder.labels[name] for name in X.repertoire_ids], np.bool_)
            if len(np.unique(y)) < 2:
                raise InputError(f"{folder.path / SHEET}: only one class of {LABEL!r} has repertoires with sequences")
            with _name_folder(folder, X):
                groups = _index_donors(folder, X)
                self.method_, estimator = self._fit(X, y, groups)
            self._training = _Training(X, y, groups, estimator, find_original_gene_names(report), find_locus(report))
        self.important_sequences_, self.evidence_ = self._rank(folder.name, _N_IMPORTANT)
        return self

    def predict_proba(self, test_dir_path: str | os.PathLike[str]) -> pd.DataFrame:
        """Return the probability of the positive label for every repertoire of a folder, in the form of `COLUMNS`.

        Ids are those of `metadata.csv`, in its order; without one, the names of the `*.tsv` files, sorted. A repertoire
        whose file is missing or cannot be read, or of which no sequence can be used, gets the share of positive
        training repertoires, with a warning.

        Raises
        ------
        InputError
            If the folder does not exist or holds no repertoire, or if its files lack genes that the method has learned.
        """
        training, folder = self._get_training(), read_folder(test_dir_path, labelled=False)
        with _limit_threads(self._n_cores), tempfile.TemporaryDirectory(prefix="deeprc-") as working_folder:
            X, _ = convert(folder, Path(working_folder), locus=training.locus, jobs=self._n_cores)
            with _name_folder(folder, X):
                known = dict(zip(X.repertoire_ids, training.estimator.predict_proba(X)[:, 1].tolist(), strict=True))
        missing = [name for name in folder.repertoire_ids if name not in known]
        prevalence = float(training.y.mean())
        if missing:
            text = "%s: %d repertoires without a sequence get the share of positive training repertoires, %.3f: %s"
            _logger.warning(text, folder.path, len(missing), prevalence, ", ".join(missing[:10]))
        probability = [known.get(name, prevalence) for name in folder.repertoire_ids]
        return _make_frame(folder.repertoire_ids, folder.name, label_positive_probability=probability)

    def identify_associated_sequences(self, dataset_name: str, top_k: int = _N_IMPORTANT) -> pd.DataFrame:
        """Return a table of the training sequences most associated with the positive label, the best first.

        The columns are `COLUMNS`. Each combination of `junction_aa`, `v_call` and `j_call` occurs once. There are fewer
        than `top_k` if the cohort has fewer. Genes are named as in the files. `deeprc.airr_ml.ranking` says how
        sequences are ranked.

        Raises
        ------
        InputError
            If `top_k` is less than 1.
        """
        if top_k < 1:
            raise InputError(f"top_k: expected at least 1, found {top_k}")
        return self._rank(dataset_name, top_k)[0]

    def _rank(self, dataset_name: str, top_k: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the table of the most associated sequences, and the table of the reasons, see `evidence_`."""
        training = self._get_training()
        with _limit_threads(self._n_cores):
            ranked = rank_sequences(training.estimator, training.X, training.y, top_k, groups=training.groups)
        columns: dict[str, Any] = {"junction_aa": ranked["junction_aa"].tolist()}
        for field, names in training.names.items():
            if field in ranked:
                columns[field] = [names.get(name, name) or NOT_APPLICABLE for name in ranked[field]]
        table = _make_frame([f"{dataset_name}_seq_top_{i + 1}" for i in range(len(ranked))], dataset_name, **columns)
        method = ranked["method"].where(ranked["method"] != "", self.method_)
        evidence = ranked.assign(ID=table["ID"], method=method, **{name: table[name] for name in columns})
        return table, evidence.reindex(columns=list(EVIDENCE_COLUMNS), fill_value=NOT_APPLICABLE)

    @property
    def _n_cores(self) -> int:
        return min(int(effective_n_jobs(self.n_jobs)), count_cores())

    def _get_training(self) -> _Training:
        if self._training is None:
            raise RuntimeError("the predictor has not been fitted yet: call `fit` first")
        return self._training

    def _fit(
        self, X: RepertoireDataset, y: NDArray[np.bool_], groups: NDArray[np.int64] | None
    ) -> tuple[str, RepertoireClassifier]:
        """Return the name of the method, and its estimator, fitted with its best setting."""
        self.cross_validated_auc_: dict[str, float] = {}
        digests = np.array(digest_with_genes(X))
        n_smallest = min(len(np.unique(digests[y == label])) for label in (False, True))  # different repertoires
        method = self._choose_method(n_smallest)
        _logger.info("training %s on %d repertoires", method, len(X))
        common: dict[str, Any] = {"config": self.config, "overrides": dict(self.overrides), "device": self.device}
        if method == "deeprc":
            return method, DeepRCClassifier(**common, seed=self.seed).fit(X, y, groups=groups)
        if method == "stack":
            stack = Stack(n_folds=self.n_folds, **common, seed=self.seed).fit(X, y, groups=groups)
            members = zip(stack.member_names_.tolist(), stack.member_aucs_.tolist(), strict=True)
            self.cross_validated_auc_ = {method: stack.auc_, **dict(members)}
            _warn_if_guessing(stack.auc_)
            return method, stack
        return method, self._fit_baseline(method, X, y, groups, n_smallest)

    def _choose_method(self, n_smallest: int) -> str:
        """Return the name of the method, given the number of different repertoires of the smallest class."""
        if self.method != "auto":
            return self.method
        if n_smallest >= _MIN_REPERTOIRES:
            return METHODS[0]
        message = "a class has only %d different repertoires, too few to compare methods: %s is used"
        _logger.warning(message, n_smallest, _METHOD_FOR_FEW)
        return _METHOD_FOR_FEW

    def _fit_baseline(
        self, name: str, X: RepertoireDataset, y: NDArray[np.bool_], groups: NDArray[np.int64] | None, n_smallest: int
    ) -> RepertoireClassifier:
        """Fit a method of the benchmark, with the setting that has the highest AUC over folds if there are enough."""
        ((method,), _) = choose_methods([name], preset=_PRESET, dataset=X)
        estimator, settings = method.estimator, method.search.list_settings([self.seed])
        fold_of = assign_mixed_folds(X, y, min(self.n_folds, max(2, n_smallest)), groups)
        if n_smallest >= _MIN_REPERTOIRES and fold_of.any():
            choice = cross_fit(estimator, settings, X, y.astype(np.int64), fold_of, groups)
            self.cross_validated_auc_[name] = choice.auc
            _warn_if_guessing(choice.auc)
            estimator = apply_setting(estimator, choice.setting)
        fitted: RepertoireClassifier = estimator.fit(X, y, **pass_groups(estimator, groups))
        return fitted


def _warn_if_guessing(auc: float) -> None:
    if auc < _MIN_AUC:
        text = "the cross-validated AUC is %.3f, close to guessing: probabilities and sequences mean little"
        _logger.warning(text, auc)


def _index_donors(folder: Folder, X: RepertoireDataset) -> NDArray[np.int64] | None:
    """Return the index of the donor of each repertoire, (B,); None if the donors are not known."""
    if not folder.donors:
        return None
    return index_groups(np.array([folder.donors.get(name) for name in X.repertoire_ids], object))


@dataclass(frozen=True)
class _Training:
    """The data and the estimator of a fitted predictor; `names` holds, by field, the names of genes in the files."""

    X: RepertoireDataset
    y: NDArray[np.bool_]
    groups: NDArray[np.int64] | None
    estimator: RepertoireClassifier
    names: dict[str, dict[str, str]]
    locus: str | None


def _make_frame(ids: Sequence[str], dataset: str, **columns: Any) -> pd.DataFrame:
    """Return a table of `COLUMNS`, with `NOT_APPLICABLE` in those that are not given."""
    values = {"ID": pd.Series(list(ids), dtype=object), "dataset": dataset}
    return pd.DataFrame({**values, **{name: columns.get(name, NOT_APPLICABLE) for name in COLUMNS[2:]}})


@contextmanager
def _name_folder(folder: Folder, X: RepertoireDataset) -> Iterator[None]:
    """Let messages name the folder in place of the temporary container of its repertoires, which a user does not know.

    Other values that a method cannot use are an `InputError`, too.
    """
    try:
        yield
    except InputError as error:
        container = f"{X.container.path}: "
        if not str(error).startswith(container):
            raise
        raise InputError(f"{folder.path}: {str(error).removeprefix(container)}") from error
    except ValueError as error:
        raise InputError(f"{folder.path}: {error}") from error


@contextmanager
def _limit_threads(n: int) -> Iterator[None]:
    """Let compiled code use n cores within the context."""
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(n)
    numba.set_num_threads(min(n, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])
