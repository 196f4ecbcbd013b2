"""The jobs of `accuracy.py`: the measurement of a method on one fold, with one small file for each.

Letters: B repertoires, V settings.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from accuracy_cohorts import N_FOLDS, Source, make_file_name
from accuracy_intervals import add_interval
from accuracy_ranking import make_classifier, measure_ranking
from accuracy_results import FORMAT, VERSION, Outcome
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import roc_auc_score
from torch import Tensor

from deeprc.airr_ml.ranking import can_rank
from deeprc.benchmarking.cohort_digest import digest_values
from deeprc.benchmarking.cross_fitting import assign_mixed_folds, cross_fit
from deeprc.benchmarking.methods import Method, choose_methods
from deeprc.benchmarking.search import Setting, apply_setting
from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.representations import compute_kmer_matrix
from deeprc.device import resolve_device
from deeprc.errors import InputError
from deeprc.evaluation.auc_comparison import compute_midrank_aucs
from deeprc.evaluation.reliability import judge_probabilities
from deeprc.evaluation.splits import Split
from deeprc.stacking import Stack
from deeprc.training.calibration import calibrate_model
from deeprc.training.history import find_kept_weights
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.model import TrainedModel
from deeprc.training.state import TrainingState
from deeprc.training.trainer import Trainer
from deeprc.versions import package_version

__all__ = ["JUDGED", "METHODS", "Entry", "Job", "count_kmers", "list_entries", "measure", "measure_job"]

METHODS: Mapping[str, str | None] = {
    "deeprc": None,
    "ensemble": None,
    "known-motif": "known-motif-binary",
    "known-recipe": "known-recipe",
    "logistic": "logistic",
    "gapped": "gapped-logistic",
    "boosted": "boosted",
    "stack": "stack",
    "svm": "svm-minmax",
    "burden": "burden-test",
    "public-clones": "public-clones",
    "v-genes": "v-gene-usage",
    "diversity": "diversity",
}
"""Names of the other methods in `deeprc.benchmarking.methods`, by their names here."""
JUDGED = ("brier", "calibration_error")
"""Measures of the probabilities of DeepRC and the stack, which calibrate them."""
_SEARCH = "quick"


@dataclass(frozen=True)
class Entry:
    """A row of the table: DeepRC with one configuration, or another method.

    Attributes
    ----------
    name, label
        Name in files, and name in tables.
    config, together
        Only for DeepRC: its configuration, and whether four networks predict together, each with another validation
        fold.
    method, settings
        Only for another method: the method, and the settings to try.
    """

    name: str
    label: str
    config: Config | None = None
    together: bool = False
    method: Method | None = None
    settings: tuple[Setting, ...] = ({},)

    def key(self, source: Source, fold: int, device: torch.device) -> str:
        """Return a digest of everything on which the outcome depends."""
        if self.config is not None:
            what: Any = [self.config.to_mapping(), device.type]
        else:
            assert self.method is not None
            what = [self.method.name, self.method.estimator.get_params(), self.settings]
        version = package_version("deeprc")
        return digest_values(FORMAT, VERSION, version, source.digest, source.seed, N_FOLDS, fold, self.name, what)


def list_entries(
    source: Source, names: Sequence[str], configs: Mapping[str, Config]
) -> tuple[list[Entry], dict[str, str]]:
    """Return the entries for a cohort, and the reasons for methods that cannot be used with it.

    Parameters
    ----------
    source
        The cohort.
    names
        Names of `METHODS`.
    configs
        Configurations of DeepRC, by name.
    """
    entries, left_out = [], {}
    for name in names:
        known = METHODS[name]
        if known is None:
            together = name == "ensemble"
            entries += [_make_deeprc_entry(preset, config, source, together) for preset, config in configs.items()]
            continue
        try:
            (method,), _ = choose_methods([known], preset=_SEARCH, dataset=source.dataset)
        except InputError as error:
            left_out[name] = str(error).partition(": ")[2]
            continue
        settings = [setting for setting in method.search.list_settings([source.seed]) if _is_tried(setting, source)]
        entries.append(Entry(name, method.label, method=method, settings=tuple(settings)))
    return entries, left_out


def _make_deeprc_entry(preset: str, config: Config, source: Source, together: bool) -> Entry:
    if config.network.abundance == "log" and not source.has_counts:  # log(1) is 0
        config = replace(config, network=replace(config.network, abundance="none"))
    name, label = ("ensemble", f"{N_FOLDS - 1} x DeepRC") if together else ("deeprc", "DeepRC")
    return Entry(f"{name}-{make_file_name(preset)}", f"{label} ({preset})", config=config, together=together)


def _is_tried(setting: Setting, source: Source) -> bool:
    if setting.get("penalty", "l1") != "l1":
        return False
    # simulated sequences are shared only by chance, and the comparison needs all of them in memory
    return source.cohort is None or setting.get("feature") != "sequence"


def count_kmers(dataset: RepertoireDataset) -> float:
    """Count the 4-mers that several methods use, unless they are counted already; return the seconds."""
    started = time.perf_counter()
    compute_kmer_matrix(dataset[:0])
    return time.perf_counter() - started


@dataclass(frozen=True)
class Job:
    """A measurement that a worker makes.

    Attributes
    ----------
    index
        Index among the jobs of the caller.
    entry, source, fold
        Method, cohort and index of the test fold.
    device
        Name of the device.
    container
        Path of the cohort's container; None simulates the sequences when they are read.
    checkpoints
        Folder for the checkpoints of its trainings.
    """

    index: int
    entry: Entry
    source: Source
    fold: int
    device: str
    container: Path | None
    checkpoints: Path


def measure_job(job: Job) -> Outcome:
    """Measure a method on one fold, in a process that may be another machine's."""
    dataset = job.source.dataset if job.container is None else open_dataset(job.container)
    return measure(job.entry, job.source, dataset, job.fold, resolve_device(job.device), job.checkpoints)


def measure(
    entry: Entry, source: Source, dataset: RepertoireDataset, fold: int, device: torch.device, checkpoints: Path
) -> Outcome:
    """Measure a method on one fold; trainings of DeepRC continue from their files in `checkpoints`, if there are any.

    The result has the `auc` on the test fold with its 95% interval (`ci_low`, `ci_high`), `n_positive`, `n_negative`,
    `validation_auc` and `seconds` of learning (for DeepRC including its search for motifs). A method that ranks
    sequences also has the keys of `measure_ranking`, and DeepRC and the stack have `JUDGED`; some methods have further
    keys. Four networks together have no `validation_auc` and no ranking, but the `member_aucs` on the test fold.
    """
    split = source.split(fold)
    label = source.labels[split.test, 0].astype(np.int64)
    n_positive, n_negative = int(label.sum()), int((1 - label).sum())
    if not (n_positive and n_negative):
        raise InputError(f"{source.name}: the test side of fold {fold} has one class only")
    if entry.config is None:
        scores, found = _fit_method(entry, source, dataset, split)
    elif entry.together:
        splits = [source.split(fold, other) for other in range(N_FOLDS) if other != fold]
        members, found = _train_together(_Setup(entry.config, source, dataset, device, checkpoints), splits)
        found["member_aucs"] = compute_midrank_aucs(label, members).tolist()
        scores = members.mean(axis=0)
    else:
        scores, found = _train_alone(_Setup(entry.config, source, dataset, device, checkpoints), split)
    auc = float(compute_midrank_aucs(label, scores[None])[0])
    counts = {"n_train": len(split.train), "n_positive": n_positive, "n_negative": n_negative}
    return add_interval({"auc": auc, **counts, **found}, source, split.test, scores)


@dataclass(frozen=True)
class _Setup:
    """What trainings of DeepRC on one fold have in common; each has a file for its checkpoints in `checkpoints`."""

    config: Config
    source: Source
    dataset: RepertoireDataset
    device: torch.device
    checkpoints: Path


@dataclass(frozen=True)
class _Trained:
    """DeepRC after a training like `deeprc train`, with the scores of the test fold, (B,), and the seconds of both."""

    trainer: Trainer
    state: TrainingState
    model: TrainedModel
    scores: NDArray[np.float64]
    seconds: float
    test_seconds: float


def _train_and_score(setup: _Setup, split: Split, index: int) -> _Trained:
    """Train DeepRC on a split, and score its test fold; `index` counts the trainings on this fold from 0."""
    source, dataset = setup.source, setup.dataset
    every = LabelledRepertoires(dataset, source.labels, source.groups)
    sides = [every.take(rows) for rows in (split.train, split.validation)]
    setup.checkpoints.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    trainer = Trainer(
        setup.config,
        [source.task],
        *sides,
        seed=source.seed,
        device=setup.device,
        monitor=_compute_validation_auc,
        checkpoint=setup.checkpoints / f"{index}.safetensors",
    )
    seconds = time.perf_counter() - started
    state = trainer.fit()
    seconds += state.seconds
    started = time.perf_counter()
    model = trainer.make_model()
    scores = model.compute_outputs(dataset[split.test])[:, 0].double().numpy()
    return _Trained(trainer, state, model, scores, seconds, time.perf_counter() - started)


def _train_alone(setup: _Setup, split: Split) -> tuple[NDArray[np.float64], Outcome]:
    """Return the scores of the test fold, (B,), and facts about the training."""
    source, dataset = setup.source, setup.dataset
    trained = _train_and_score(setup, split, 0)
    state, trainer = trained.state, trained.trainer
    kept = find_kept_weights(pd.DataFrame(state.history))
    found = {
        "validation_auc": None if np.isnan(kept.auc) else kept.auc,
        "validation_loss": kept.loss,
        "updates": state.update,
        "best_update": kept.update,
        "seeded_kernels": len(trainer.start_motifs),
        "seconds": trained.seconds,
        "test_seconds": trained.test_seconds,
    }
    rows = _find_learning_rows(source, split)
    classifier = make_classifier(trained.model, dataset[split.train], dataset[split.validation])
    ranking = measure_ranking(classifier, source, dataset[rows], source.labels[rows, 0] == 1)
    calibration = calibrate_model(trained.model, trainer.validation).tasks[0].calibration
    found |= _measure_probabilities(source, split, calibration.slope * trained.scores + calibration.intercept)
    return trained.scores, {**found, **ranking}


def _measure_probabilities(source: Source, split: Split, log_odds: NDArray[np.float64]) -> Outcome:
    """Return the measures `JUDGED` of the probabilities on the test fold, from log-odds, (B,)."""
    judged = judge_probabilities(source.labels[split.test, 0].astype(np.int64), expit(log_odds))
    return {name: judged[name] for name in JUDGED}


def _train_together(setup: _Setup, splits: Sequence[Split]) -> tuple[NDArray[np.float64], Outcome]:
    """Train once for each split; return the scores of the test fold, (members, B), and the seconds."""
    members = [_train_and_score(setup, split, index) for index, split in enumerate(splits)]
    seconds, test_seconds = (sum(getattr(member, name) for member in members) for name in ("seconds", "test_seconds"))
    found = {"validation_auc": None, "seconds": seconds, "test_seconds": test_seconds}
    return np.stack([member.scores for member in members]), found


def _compute_validation_auc(outputs: Tensor, known: Tensor) -> dict[str, float]:
    label = known[:, 0].cpu()
    return {"validation_auc": float(roc_auc_score(label, outputs[:, 0].cpu()))} if len(label.unique()) == 2 else {}


def _fit_method(
    entry: Entry, source: Source, dataset: RepertoireDataset, split: Split
) -> tuple[NDArray[np.float64], Outcome]:
    """Fit a method to training and validation folds; return scores of the test fold, (B,), and facts about the fit."""
    assert entry.method is not None
    rows = _find_learning_rows(source, split)
    X, y, X_test = dataset[rows], source.labels[rows, 0].astype(np.int64), dataset[split.test]
    started = time.perf_counter()
    groups = None if source.groups is None else source.groups[rows]
    setting, auc = _choose_setting(entry.method, X, y, entry.settings, groups)
    estimator = apply_setting(entry.method.estimator, setting)
    estimator.fit_uncalibrated(X, y, groups=groups)
    found: Outcome = {"validation_auc": auc, "setting": setting, "seconds": time.perf_counter() - started}
    if isinstance(estimator, Stack):
        found["validation_auc"] = estimator.auc_
        scores, of_stack = _measure_stack(estimator, source, dataset, split)
        return scores, {**found, **of_stack}
    scores = estimator.decision_function(X_test)
    ranking = measure_ranking(estimator, source, X, y == 1) if can_rank(estimator) else {}
    return np.asarray(scores, np.float64), {**found, **ranking}


def _measure_stack(
    stack: Stack, source: Source, dataset: RepertoireDataset, split: Split
) -> tuple[NDArray[np.float64], Outcome]:
    """Return the scores of the test fold by a stack, (B,), and measures of the stack and of each of its members.

    `members` has for each member its row in `Stack.member_table`, its AUC on the test fold (`test_auc`), its `scores`,
    (B,), and, if it ranks sequences, the keys of `measure_ranking`. The networks of DeepRC, one for each fold, predict
    and rank together.
    """
    rows = _find_learning_rows(source, split)
    X, positive = dataset[rows], source.labels[rows, 0] == 1
    member_scores = stack.member_scores(dataset[split.test]).to_numpy()  # (B, M)
    log_odds = stack.combination_.log_odds(member_scores)
    aucs = compute_midrank_aucs(source.labels[split.test, 0].astype(np.int64), member_scores.T)
    described: dict[str, Outcome] = stack.member_table().to_dict("index")
    for (member, _), auc, own in zip(stack.shares(), aucs.tolist(), member_scores.T.tolist(), strict=True):
        models = member.models
        ranker = models if len(models) > 1 else models[0]
        ranking = measure_ranking(ranker, source, X, positive) if can_rank(models[0]) else {}
        described[member.name] |= {"test_auc": auc, "scores": own, **ranking}
    found = {
        "members": described,
        **_measure_probabilities(source, split, log_odds),
        **measure_ranking(stack, source, X, positive),
    }
    return np.asarray(log_odds, np.float64), found


def _find_learning_rows(source: Source, split: Split) -> NDArray[np.int64]:
    """Return the rows of the labelled training and validation repertoires, in the order of the cohort."""
    rows = np.sort(np.concatenate([split.train, split.validation]))
    return rows[~np.isnan(source.labels[rows, 0])]


def _choose_setting(
    method: Method,
    X: RepertoireDataset,
    y: NDArray[np.int64],
    settings: Sequence[Setting],
    groups: NDArray[np.int64] | None,
) -> tuple[Setting, float | None]:
    """Return the first setting with the highest mean AUC over inner folds, and this AUC; None for a single setting."""
    if len(settings) < 2:
        return settings[0], None
    found = cross_fit(method.estimator, settings, X, y, assign_mixed_folds(X, y == 1, N_FOLDS, groups), groups)
    return found.setting, found.auc
