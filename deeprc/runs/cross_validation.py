"""Cross-validation: an ensemble for every test fold, perhaps repeated with other folds and seeds."""

from __future__ import annotations

import json
import logging
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.checks.cautions import find_duplicate_cautions, find_shortcut_cautions
from deeprc.checks.of_run import check_for_training, read_checks
from deeprc.config import Config, load_config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.evaluation.adjustment import find_adjustment_cautions, to_column_names
from deeprc.evaluation.caution import Caution, read_cautions, write_cautions
from deeprc.evaluation.cohort_cautions import find_divided_donor_cautions, find_donor_cautions
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.motif_stability import count_motifs
from deeprc.evaluation.significance import is_few
from deeprc.evaluation.splits import N_FOLDS
from deeprc.evaluation.stored_tables import read_start_motifs
from deeprc.files import name_write_errors, write_text
from deeprc.jobs import Workers, get_result, run_jobs
from deeprc.progress import open_step
from deeprc.rich import render_details, render_interval, render_table
from deeprc.runs.cross_controls import judge_folds
from deeprc.runs.cross_metrics import make_folds_table
from deeprc.runs.cross_plan import (
    RUNS,
    CrossValidationFolds,
    CrossValidationHeader,
    assign_test_folds,
    begin_cross_validation,
    check_folder,
    index_runs,
    plan_cross_validation,
)
from deeprc.runs.experiment import Progress
from deeprc.runs.out_of_fold import FoldPrediction, FoldRuns, cross_calibrate, make_out_of_fold_table, predict_fold
from deeprc.runs.run import read_splits, save_predictions
from deeprc.runs.several import train_runs
from deeprc.runs.split_cautions import ONE_CLASS_PART
from deeprc.tasks import Task, encode_labels, parse_tasks

__all__ = ["CrossValidation", "cross_validate"]


_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CrossValidation:
    """The results of a cross-validation.

    Attributes
    ----------
    path
        Folder with the files that are named below, and the runs in `runs/`.
    metrics
        Metrics by target, see `measure_folds`: `metrics.json`.
    predictions
        Out-of-fold predictions, see `make_out_of_fold_table`: `predictions.tsv`.
    folds
        Metrics of each fold, see `make_folds_table`: `folds.tsv`.
    motifs
        Numbers of runs, test folds and repeats in which the search found each motif, see `count_motifs`: `motifs.tsv`.
    cautions
        Warnings about the metrics: `warnings.json`.
    """

    path: Path
    metrics: Mapping[str, Mapping[str, Any]]
    predictions: pd.DataFrame
    folds: pd.DataFrame
    motifs: pd.DataFrame
    cautions: Sequence[Caution]

    def __repr__(self) -> str:
        return f"CrossValidation('{self.path}', {', '.join(map(str, self.metrics))}; see its metrics)"

    def _repr_html_(self) -> str:
        """Return the AUC, or r2, of each target with its interval as HTML for a notebook."""
        rows, pictures = [], []
        for target, metrics in self.metrics.items():
            (measure, heading), chance = (("r2", "r²"), None) if "r2" in metrics else (("auc", "AUC"), 0.5)
            value, limits = metrics.get(measure), metrics.get(f"{measure}_ci")
            low, high = (math.nan, math.nan) if limits is None else limits
            shown = "not defined" if value is None else f"{value:.3f}"
            rows.append([target, heading, shown, "" if limits is None else f"{low:.3f} to {high:.3f}"])
            pictures.append(render_interval(low, math.nan if value is None else value, high, chance=chance))
        return render_details(
            f"Cross-validation {self.path}", [], render_table(["target", "", "", "95% interval"], rows, pictures)
        )


def cross_validate(
    cohort: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    targets: Sequence[str] | str,
    folds: int | str = N_FOLDS,
    repeats: int = 1,
    members: int | None = None,
    group_by: str | None = None,
    adjust_for: Sequence[str] = (),
    config: Config | None = None,
    seed: int = 0,
    device: str = "auto",
    keep_sketches: bool = True,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> CrossValidation:
    """Measure by cross-validation how well targets can be predicted in a cohort; `deeprc.cv` is this function.

    Each fold is the test fold once. An ensemble of runs that has not seen it predicts it. The call trains `folds` times
    `members` times `repeats` runs. If it is interrupted, or called again with more `repeats`, it continues.

    Parameters
    ----------
    cohort
        Path of a container made by `deeprc preprocess`.
    output
        Folder for the results. It must not exist, be empty, or be from a call with the same arguments.
    targets
        Texts of the targets, see `deeprc.tasks.parse_tasks`.
    folds
        Number of folds, at least 3; or `leave-one-out:COLUMN`: each value of a metadata column, such as a batch, is a
        test fold, and the other repertoires are divided into 5 folds, one of which is for validation in each run.
    repeats
        Number of repeats, each with other folds and another seed.
    members
        Number of runs that predict a test fold together, each with another validation fold. None: one run for each fold
        except the test fold. Then the ensemble has learned from all repertoires outside the test fold.
    group_by
        Metadata column; repertoires with the same value stay in one fold.
    adjust_for
        Metadata columns to adjust for, see `SplitOptions`.
    config
        Configuration; None is the default preset.
    seed
        Seed of the first repeat; the seed of each further repeat is larger by 1.
    device
        Name of the device: `auto`, `cpu`, `cuda` ...
    keep_sketches
        Whether the runs keep hashes of junctions, see `train_run`.
    jobs
        Number of processes of this machine that train at the same time.
    scheduler
        Address of a Dask scheduler. Then its workers train instead of processes of this machine.
    progress
        Function that gets the progress of each run that is trained in this process, see `train_run`.

    Raises
    ------
    InputError
        If anything the user gave cannot be used; nothing is written then.
    """
    folder, dataset = Path(output), open_dataset(cohort)
    target_texts = (targets,) if isinstance(targets, str) else tuple(targets)
    cohort_path = str(Path(cohort).absolute())
    test_folds = CrossValidationFolds.parse(folds, dataset.metadata, cohort_path)
    header = CrossValidationHeader(
        cohort=cohort_path,
        targets=target_texts,
        folds=test_folds.n,
        repeats=repeats,
        members=test_folds.n_validation_folds if members is None else members,
        group_by=group_by,
        seed=seed,
        adjust_for=to_column_names(adjust_for),
        left_out=test_folds.left_out,
    )
    plans = plan_cross_validation(header, dataset)
    tasks = parse_tasks(target_texts, dataset.metadata, source=str(cohort))
    folds_by_repeat = [assign_test_folds(dataset, tasks, header, seed + repeat) for repeat in range(repeats)]
    workers = Workers(processes=jobs, scheduler=scheduler)
    check_folder(folder, header)
    train_runs(
        cohort,
        folder / RUNS,
        plans,
        targets=target_texts,
        config=config or load_config(),
        device=device,
        keep_sketches=keep_sketches,
        workers=workers,
        progress=progress,
        begin=partial(begin_cross_validation, folder, header),
    )
    fold_predictions = _predict(folder, header, workers, device)
    if (config or load_config()).training.calibrate:
        fold_predictions = cross_calibrate(fold_predictions)
    metrics, cautions = judge_folds(fold_predictions, dataset, group_by, header.adjust_for)
    cautions += [
        *_find_cohort_check_cautions(dataset, tasks, folder, header, folds_by_repeat),
        *_find_metric_cautions(dataset, tasks, folder, header, folds_by_repeat[0]),
    ]
    cautions += _find_run_cautions([folder / RUNS / name for name in index_runs(header)])
    runs = index_runs(header).items()
    motifs = count_motifs(
        {run_index: read_start_motifs(folder / RUNS / name / "seeds.tsv") for name, run_index in runs}
    )
    return _write(folder, dataset, metrics, fold_predictions, motifs, cautions)


def _predict(folder: Path, header: CrossValidationHeader, workers: Workers, device: str) -> list[FoldPrediction]:
    """Return the prediction of the ensemble of each test fold, by repeat and fold."""
    members: dict[tuple[int, int], list[Path]] = {}
    for name, run in index_runs(header).items():
        members.setdefault((run.repeat, run.fold), []).append(folder.absolute() / RUNS / name)
    cohort = Path(header.cohort)
    fold_runs = [FoldRuns(repeat, fold, tuple(runs), cohort, device) for (repeat, fold), runs in members.items()]
    predictions = []
    with (
        open_step("test folds", len(fold_runs)) as step,
        closing(run_jobs(predict_fold, fold_runs, workers, in_order=True, hint="the same call continues")) as ended,
    ):
        for each, future in ended:
            predictions.append(get_result(future, f"fold {each.fold} of repeat {each.repeat}"))
            step.advance()
    return predictions


def _find_cohort_check_cautions(
    dataset: RepertoireDataset,
    tasks: list[Task],
    folder: Path,
    header: CrossValidationHeader,
    folds_by_repeat: Sequence[NDArray[np.int64]],
) -> list[Caution]:
    """Return warnings from the check of the cohort: shortcuts to the label, and copies in several folds of a repeat."""
    checks = read_checks(folder / RUNS / next(iter(index_runs(header))))  # the check is the same in all runs
    if checks is None or not checks.is_current(dataset):
        checks = check_for_training(dataset, tasks, header.group_by)
    fold_table = np.stack(folds_by_repeat, axis=1)  # (B, number of repeats)
    labelled = np.flatnonzero(fold_table[:, 0] >= 0)
    folds_of = {str(dataset.repertoire_ids[row]): tuple(fold_table[row].tolist()) for row in labelled}
    return [
        *find_duplicate_cautions(checks.findings, folds_of, apart="folds"),
        *find_shortcut_cautions(checks.findings),
    ]


def _find_run_cautions(runs: Sequence[Path]) -> list[Caution]:
    """Return the warnings of runs whose training or validation repertoires have one class, with how many have each."""
    found = [each for run in runs for each in read_cautions(run) if each.name == ONE_CLASS_PART]
    counts = Counter(each.text for each in found)
    return [
        replace(each, text=f"{counts[each.text]} of {len(runs)} runs: {each.text}")
        for each in {each.text: each for each in found}.values()
    ]


def _find_metric_cautions(
    dataset: RepertoireDataset,
    tasks: Sequence[Task],
    folder: Path,
    header: CrossValidationHeader,
    fold_of: NDArray[np.int64],
) -> list[Caution]:
    """Return warnings about the metrics: donors in several folds, few donors, only one repeat ..."""
    cautions = find_divided_donor_cautions(dataset.metadata, fold_of, apart="folds")
    donor_column = DonorColumn.choose(dataset.metadata, header.group_by)
    column, donors = donor_column.name, donor_column.index_if_known()
    labels = encode_labels(list(tasks), dataset.metadata)
    for task, label in zip(tasks, labels.T, strict=True):
        tested = ~np.isnan(label) & (fold_of >= 0)
        classes = {name: tested & (label == c) for c, name in enumerate(task.class_names)} or {"": tested}
        if donors is not None and column is not None:
            cautions += find_donor_cautions(donors, column, classes, kind=task.kind, where="")
        smallest = min(int(rows.sum()) for rows in classes.values())
        if is_few(task.kind, smallest):
            what = "with a number" if task.kind == "regression" else "in the smallest class"
            text = f"{task.name}: {smallest:,} repertoires {what}: the metrics are uncertain."
            cautions.append(Caution("warning", text, "performance", "few", {"target": task.name, "n": smallest}))
    if header.adjust_for:
        training_ids = [read_splits(folder / RUNS / name)[0]["train"] for name in index_runs(header)]
        training_labels = [labels[np.isin(dataset.repertoire_ids.astype(str), ids), 0] for ids in training_ids]
        cautions += find_adjustment_cautions(header.adjust_for, tasks[0].kind, training_labels)
    if header.repeats == 1:
        text = (
            "There was only one repeat, so the intervals do not include the variation between seeds and divisions into "
            "folds. The same call with `repeats=3` adds two repeats."
        )
        cautions.append(Caution("note", text, "performance", "one-repeat"))
    return cautions


def _write(
    folder: Path,
    dataset: RepertoireDataset,
    metrics: dict[str, dict[str, Any]],
    fold_predictions: Sequence[FoldPrediction],
    motifs: pd.DataFrame,
    cautions: Sequence[Caution],
) -> CrossValidation:
    """Write the results; old metrics are deleted first and new ones written last, as the sign of complete results."""
    predictions = make_out_of_fold_table(fold_predictions, dataset)
    fold_table = make_folds_table(fold_predictions)
    with name_write_errors(folder):
        (folder / "metrics.json").unlink(missing_ok=True)
    save_predictions(folder / "predictions.tsv", predictions)
    write_text(folder / "folds.tsv", fold_table.to_csv(sep="\t", index=False))
    write_text(folder / "motifs.tsv", motifs.to_csv(sep="\t", index=False))
    write_cautions(folder, cautions)
    write_text(folder / "metrics.json", json.dumps(metrics, indent=1) + "\n")
    return CrossValidation(folder, metrics, predictions, fold_table, motifs, cautions)
