"""Cross-validation: an ensemble for every test fold, perhaps repeated with other folds and seeds."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from deeprc.config import Config, load_config
from deeprc.datasets.dataset import open_dataset
from deeprc.evaluation.adjustment import to_column_names
from deeprc.evaluation.caution import Caution, write_cautions
from deeprc.evaluation.folds_from_column import list_left_out_values
from deeprc.evaluation.motif_stability import count_motifs
from deeprc.evaluation.splits import N_FOLDS
from deeprc.evaluation.stored_tables import read_start_motifs
from deeprc.files import check_output_path, name_write_errors, write_text
from deeprc.jobs import Workers, get_result, run_jobs
from deeprc.notebook_html import render_details, render_interval, render_table
from deeprc.progress import open_step
from deeprc.runs.cross_cautions import find_cross_validation_cautions
from deeprc.runs.cross_controls import judge_folds
from deeprc.runs.cross_metrics import make_folds_table
from deeprc.runs.cross_plan import (
    RUNS,
    CrossValidationFolds,
    CrossValidationHeader,
    PreparedCrossValidation,
    check_folder,
    prepare_cross_validation,
    write_header,
)
from deeprc.runs.experiment import TrainingProgress
from deeprc.runs.out_of_fold import FoldPrediction, FoldRuns, cross_calibrate, make_out_of_fold_table, predict_fold
from deeprc.runs.run import save_predictions
from deeprc.runs.run_settings import format_cohort_path
from deeprc.runs.several_runs import RunOptions, train_runs

__all__ = ["CrossValidation", "cross_validate"]


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
    progress: TrainingProgress | None = None,
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
    dataset, config = open_dataset(cohort), config or load_config()
    cohort_path = format_cohort_path(cohort)
    test_folds = CrossValidationFolds.parse(folds, dataset.metadata, cohort_path)
    header = CrossValidationHeader(
        cohort=cohort_path,
        targets=(targets,) if isinstance(targets, str) else tuple(targets),
        folds=test_folds.n,
        repeats=repeats,
        members=test_folds.n_validation_folds if members is None else members,
        group_by=group_by,
        seed=seed,
        adjust_for=to_column_names(adjust_for),
        left_out=test_folds.left_out,
    )
    prepared = prepare_cross_validation(Path(output), header, dataset, source=str(cohort))
    workers = Workers(processes=jobs, scheduler=scheduler)
    check_folder(prepared.folder, header)
    train_runs(
        cohort,
        prepared.folder / RUNS,
        prepared.plans,
        RunOptions(targets=header.targets, config=config, device=device, keep_sketches=keep_sketches),
        workers=workers,
        progress=progress,
        begin=partial(write_header, prepared.folder, header),
    )
    predictions = _predict_test_folds(prepared, workers, device)
    if config.training.calibrate:
        predictions = cross_calibrate(predictions)
    metrics, metric_cautions = judge_folds(predictions, dataset, group_by, header.adjust_for)
    cautions = [*metric_cautions, *find_cross_validation_cautions(prepared)]
    return _write_results(prepared, metrics, predictions, cautions)


def _predict_test_folds(prepared: PreparedCrossValidation, workers: Workers, device: str) -> list[FoldPrediction]:
    """Return the prediction of the ensemble of each test fold, by repeat and fold."""
    members: dict[tuple[int, int], list[Path]] = {}
    for folder, run in prepared.run_folders.items():
        members.setdefault((run.repeat, run.fold), []).append(folder.absolute())
    cohort = Path(prepared.header.cohort)
    fold_runs = [FoldRuns(repeat, fold, tuple(runs), cohort, device) for (repeat, fold), runs in members.items()]
    predictions = []
    with (
        open_step("test folds", len(fold_runs)) as step,
        closing(run_jobs(predict_fold, fold_runs, workers, in_order=True, hint="the same call continues")) as ended,
    ):
        for runs_of_fold, future in ended:
            job_name = f"fold {runs_of_fold.fold} of repeat {runs_of_fold.repeat}"
            predictions.append(get_result(future, job_name))
            step.advance()
    return predictions


def _write_results(
    prepared: PreparedCrossValidation,
    metrics: dict[str, dict[str, Any]],
    fold_predictions: Sequence[FoldPrediction],
    cautions: Sequence[Caution],
) -> CrossValidation:
    """Write the results; old metrics are deleted first and new ones written last, as the sign of complete results."""
    folder = prepared.folder
    motifs = count_motifs(
        {run: read_start_motifs(run_folder / "seeds.tsv") for run_folder, run in prepared.run_folders.items()}
    )
    predictions = make_out_of_fold_table(fold_predictions, prepared.dataset)
    column, metadata = prepared.header.left_out, prepared.dataset.metadata
    left_out = [] if column is None else list_left_out_values(metadata, column, prepared.header.cohort)
    fold_table = make_folds_table(fold_predictions, left_out)
    for name in ("predictions.tsv", "folds.tsv", "motifs.tsv", "warnings.json", "metrics.json"):
        check_output_path(folder / name)  # before the old metrics are deleted
    with name_write_errors(folder / "metrics.json"):
        (folder / "metrics.json").unlink(missing_ok=True)
    save_predictions(folder / "predictions.tsv", predictions)
    write_text(folder / "folds.tsv", fold_table.to_csv(sep="\t", index=False))
    write_text(folder / "motifs.tsv", motifs.to_csv(sep="\t", index=False))
    write_cautions(folder, cautions)
    write_text(folder / "metrics.json", json.dumps(metrics, indent=1) + "\n")
    return CrossValidation(folder, metrics, predictions, fold_table, motifs, cautions)
