"""Training of one model, from a container to a run directory, and its continuation after an interruption.

`train_run` checks its arguments, makes the run directory and trains; `resume_run` reads the run directory and trains.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from deeprc import ranks
from deeprc.config import Config, TrainingConfig, load_config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.device import resolve_device
from deeprc.errors import InputError
from deeprc.evaluation.caution import write_cautions
from deeprc.evaluation.cohort_cautions import find_divided_donor_cautions, index_split_parts
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.splits import PARTS, Split, SplitOptions, make_split
from deeprc.files import check_links_stay_inside, name_write_errors, write_text
from deeprc.locks import take_lock
from deeprc.nn.sequence_scores import OutputParts
from deeprc.outputs import get_output_slices
from deeprc.runs.assess import assess_outputs
from deeprc.runs.composition_table import make_composition_table
from deeprc.runs.file_digests import write_digests
from deeprc.runs.learned_tables import make_clones_table, make_start_motifs_table
from deeprc.runs.run import Run, load_run, read_splits, save_predictions
from deeprc.runs.run_cautions import find_one_class_cautions
from deeprc.runs.run_settings import RunSettings, format_cohort_path, read_settings
from deeprc.runs.run_start import PreparedRun, begin_run, check_output, warn_of_hidden_singletons
from deeprc.runs.training_data import check_training_data, digest_split_columns, digest_training_data
from deeprc.task_labels import describe_classes, encode_labels, set_label_scale
from deeprc.tasks import Task, parse_tasks
from deeprc.training.calibration import calibrate_model
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.log_abundance import replace_log_abundance
from deeprc.training.loggers import check_logger, make_attention_histograms, open_logger
from deeprc.training.model import TrainedModel
from deeprc.training.state import TrainingState
from deeprc.training.trainer import Trainer

__all__ = ["describe_end", "resume_run", "train_run"]

TrainingProgress = Callable[[TrainingState, Tensor], None]
"""Function that is called after each update with the state of the training and the loss."""

_logger = logging.getLogger(__name__)

_N_COMPOSITION = 200  # number of features of each output, direction and kind in `composition.tsv`


def train_run(
    cohort: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    targets: Sequence[str] | str,
    config: Config | None = None,
    split: SplitOptions | None = None,
    seed: int = 0,
    device: str = "auto",
    logger: str | None = None,
    keep_sketches: bool = True,
    progress: TrainingProgress | None = None,
) -> Run:
    """Train a model on a cohort and write a run directory; `deeprc.train` is this function.

    Parameters
    ----------
    cohort
        Path of a container made by `deeprc preprocess`.
    output
        Path of the run directory; it must not exist, or must be empty.
    targets
        Texts of the targets, see `deeprc.tasks.parse_tasks`.
    config
        Configuration; None is the default preset.
    split
        Options of the split into training, validation and test; None takes the defaults of `SplitOptions`.
    seed
        Seed of every random choice: the split, the initial weights and the sampling.
    device
        Name of the device: `auto`, `cpu`, `cuda` ...
    logger
        Name of a logger; `tensorboard` writes event files into the folder `tensorboard` of the run at each evaluation.
    keep_sketches
        Whether the run keeps hashes of some junctions of each training repertoire, by which copies of it are
        recognised.
    progress
        Function that is called after every update with the state of the training and the loss of the update.

    Raises
    ------
    InputError
        If anything the user gave cannot be used; nothing is written then.
    """
    folder = Path(output)
    ranks.compute_once(lambda: check_output(folder))
    check_logger(logger)
    torch_device = resolve_device(device)
    cohort_path = format_cohort_path(cohort)
    dataset = open_dataset(cohort)
    targets = [targets] if isinstance(targets, str) else targets
    tasks = parse_tasks(targets, dataset.metadata, source=str(cohort))
    options = split or SplitOptions()
    division = make_split(dataset.metadata, tasks, options, seed=seed, source=str(cohort))
    _log_donors_and_classes(dataset, tasks, division)
    tasks = set_label_scale(tasks, encode_labels(tasks, dataset.metadata)[division.train])
    config = replace_log_abundance(config or load_config(), [dataset[division.train], dataset[division.validation]])
    warn_of_hidden_singletons(config, dataset)
    settings = RunSettings(
        cohort=cohort_path,
        fingerprint=digest_training_data(dataset, tasks, config),
        targets=tuple(targets),
        tasks=tuple(tasks),
        split_options=options,
        seed=seed,
        device=device,
        config=config,
        split_columns=digest_split_columns(dataset.metadata, options),
    )
    prepared = PreparedRun(folder, settings, dataset, division, torch_device)
    _make_trainer(prepared, checkpoint=None)  # raises what it cannot use before anything is written
    ranks.compute_once(partial(begin_run, prepared, keep_sketches), shared=[dataset.container])
    return _run_training(prepared, logger, progress)


def resume_run(
    path: str | os.PathLike[str],
    *,
    cohort: str | os.PathLike[str] | None = None,
    logger: str | None = None,
    progress: TrainingProgress | None = None,
) -> Run:
    """Continue a run that was interrupted; on the CPU of one machine, the result is that of an uninterrupted run.

    Parameters
    ----------
    path
        Path of the run directory.
    cohort
        Path of the container, if it has moved.
    logger, progress
        Logger and progress function, see `train_run`; the interrupted run may have had no logger.

    Raises
    ------
    InputError
        If there is nothing to continue, the container's repertoires are not those of the run, or a link in the run
        directory leads out of it.
    """
    check_logger(logger)
    folder = Path(path)
    settings, ids = ranks.compute_once(lambda: _read_unfinished_run(folder))
    dataset = open_dataset(cohort or settings.cohort)
    position_of = {str(repertoire_id): position for position, repertoire_id in enumerate(dataset.repertoire_ids)}
    missing = [repertoire_id for part in PARTS for repertoire_id in ids[part] if repertoire_id not in position_of]
    if missing:
        raise InputError(f"{dataset.container.path}: no repertoire {missing[0]!r}, which {folder}/splits.json names")
    check_training_data(dataset, settings, folder)
    split = Split(**{part: np.array([position_of[i] for i in ids[part]], np.int64) for part in PARTS})
    prepared = PreparedRun(folder, settings, dataset, split, resolve_device(settings.device))
    return _run_training(prepared, logger, progress)


def _read_unfinished_run(folder: Path) -> tuple[RunSettings, dict[str, list[str]]]:
    """Return the settings of a run that has not ended, and the ids of each part of its split."""
    settings = read_settings(folder)
    if (folder / "metrics.json").exists():
        raise InputError(f"{folder}: training has ended; there is nothing to resume")
    check_links_stay_inside(folder)
    return settings, read_splits(folder)[0]


def _log_donors_and_classes(dataset: RepertoireDataset, tasks: Sequence[Task], split: Split) -> None:
    """Warn if donors have repertoires in several parts of the split, and log what is positive and what negative."""
    part_of = index_split_parts(split, len(dataset))
    for caution in find_divided_donor_cautions(dataset.metadata, part_of, apart="parts"):
        _logger.warning("%s", caution.text)
    for task in tasks:
        if task.kind == "binary":
            _logger.info("%s", describe_classes(task, dataset.metadata))


def _make_trainer(prepared: PreparedRun, checkpoint: Path | None) -> Trainer:
    """Return the trainer of a run, which continues from the checkpoint if that exists."""
    settings, metadata = prepared.settings, prepared.dataset.metadata
    donors = DonorColumn.require(metadata, settings.split_options.group_by, settings.cohort).index_if_known()
    cohort = LabelledRepertoires(prepared.dataset, encode_labels(settings.tasks, metadata), donors)
    return Trainer(
        settings.config,
        settings.tasks,
        cohort.take(prepared.split.train),
        cohort.take(prepared.split.validation),
        seed=settings.seed,
        device=prepared.device,
        monitor=lambda outputs, labels: _compute_validation_auc(outputs, labels, settings.tasks),
        checkpoint=checkpoint,
    )


def _run_training(prepared: PreparedRun, logger: str | None, progress: TrainingProgress | None) -> Run:
    """Train the model, or continue its training, and write the results into the run directory."""
    folder, settings, split = prepared.folder, prepared.settings, prepared.split
    with _lock_checkpoints(folder) as checkpoint:
        trainer = _make_trainer(prepared, checkpoint / "last.safetensors")
        model = _fit_with_checkpoints(trainer, folder, settings, logger, progress)
        dataset = prepared.dataset[np.sort(np.concatenate([split.train, split.validation, split.test]))]
        output_parts = model.compute_output_parts(dataset)
        device = str(prepared.device)
        ranks.compute_once(lambda: _write_results(load_run(folder, device=device), dataset, output_parts))
        splits, identities = ranks.compute_once(lambda: read_splits(folder))
    if ranks.is_main():
        shutil.rmtree(checkpoint, ignore_errors=True)
    return Run(folder, settings, splits, identities, replace(model, name=str(folder), pooled_value_cache=None))


@contextmanager
def _lock_checkpoints(folder: Path) -> Iterator[Path]:
    """Yield a run's folder of checkpoints, locked so that no other process trains this run.

    Rank 0 makes it if needed, and locks it.

    Raises
    ------
    InputError
        If another process trains the run, or has ended its training meanwhile.
    """
    checkpoint = folder / "checkpoint"
    if not ranks.is_main():
        yield checkpoint
        return
    with name_write_errors(checkpoint):
        checkpoint.mkdir(exist_ok=True)
        lock = (checkpoint / "lock").open("ab")
    with lock:
        if take_lock(lock, checkpoint / "lock") is False:
            raise InputError(f"{folder}: another process is training this run; wait until it has ended")
        if (folder / "metrics.json").exists():
            shutil.rmtree(checkpoint, ignore_errors=True)
            raise InputError(f"{folder}: another process has trained this run; there is nothing to resume")
        yield checkpoint


def _fit_with_checkpoints(
    trainer: Trainer, folder: Path, settings: RunSettings, logger: str | None, progress: TrainingProgress | None
) -> TrainedModel:
    """Train the model, calibrate and save it; write start motifs, clones and the history while it is trained."""
    trainer.initialise_network()
    _write_table(folder / "seeds.tsv", make_start_motifs_table(trainer.start_motifs, settings.tasks))
    _write_table(folder / "clones.tsv", make_clones_table(trainer.make_model()))
    with open_logger(logger if ranks.is_main() else None, folder, update=trainer.state.update) as log:

        def report_update(state: TrainingState, loss: Tensor) -> None:
            if state.history and state.history[-1]["update"] == state.update:
                _write_table(folder / "history.tsv", pd.DataFrame(state.history))
                if log is not None:
                    scalars = {name: value for name, value in state.history[-1].items() if "update" not in name}
                    log.log(state.update, scalars, make_attention_histograms(*trainer.compute_validation_attention()))
            if progress is not None:
                progress(state, loss)

        state = trainer.fit(report_update)
    _logger.info("%s", describe_end(state, settings.config.training))
    _write_table(folder / "history.tsv", pd.DataFrame(state.history))
    trainer.network.requires_grad_(True).zero_grad(set_to_none=True)  # as in a loaded network
    trained = calibrate_model(trainer.make_model(), trainer.validation)
    ranks.compute_once(lambda: trained.save(folder / "model.safetensors", update=state.kept_update))
    return trained


def _write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table on rank 0."""
    if ranks.is_main():
        write_text(path, table.to_csv(sep="\t", index=False))


def describe_end(state: TrainingState, settings: TrainingConfig) -> str:
    """Return a sentence that says when a training ended, why, and which weights were kept."""
    best = f"best at {state.best_update or 'the start'}"
    if state.update >= settings.n_updates:
        return f"trained for all {settings.n_updates} updates, {best}{_describe_choice(state)}"
    if state.best_loss <= settings.least_gain:
        reason = f"the validation loss cannot fall by {settings.least_gain:g} (least_gain) any more"
    else:
        reason = f"no better validation loss in the {settings.patience} evaluations after it (patience)"
    return f"stopped early at {state.update} of {settings.n_updates} updates, {best}: {reason}{_describe_choice(state)}"


def _describe_choice(state: TrainingState) -> str:
    """Return which weights were kept and why, if they may not be those of the best update; otherwise an empty text."""
    if not state.history:
        return ""
    if state.prefers_start:
        return "; kept: the network before the updates, because none was clearly better on the few validation donors"
    if "fitted" not in state.history[-1]:
        return ""
    kept = "the network before the updates" if state.kept_update == 0 else f"update {state.kept_update}"
    output = " with an output that was fitted to whole training repertoires" if state.history[-1]["fitted"] else ""
    return f"; kept: {kept}{output}, by the loss on whole validation repertoires"


def _write_results(run: Run, dataset: RepertoireDataset, output_parts: OutputParts) -> None:
    """Write predictions, composition, warnings and, as the sign that the run has ended, metrics."""
    assessment = assess_outputs(run, dataset, output_parts)
    save_predictions(run.path / "predictions.tsv", assessment.performance.predictions_with_donors)
    learned = dataset[np.flatnonzero(np.isin(assessment.performance.parts.tolist(), ("train", "validation")))]
    _write_table(run.path / "composition.tsv", make_composition_table(run.model, learned, top=_N_COMPOSITION))
    one_class = find_one_class_cautions(assessment.performance)
    write_cautions(run.path, [*one_class, *assessment.cautions])
    metrics = json.dumps(assessment.metrics, indent=1) + "\n"
    write_digests(run.path, metrics)
    write_text(run.path / "metrics.json", metrics)


def _compute_validation_auc(outputs: Tensor, labels: Tensor, tasks: Sequence[Task]) -> dict[str, float]:
    """Return the AUC of the first binary task whose known labels have both classes; empty if there is none."""
    for task, columns, label_column in zip(tasks, get_output_slices(tasks), labels.T, strict=True):
        is_known = ~torch.isnan(label_column)
        if task.kind == "binary" and len(label_column[is_known].unique()) == 2:
            score = outputs[:, columns][is_known, 0]
            return {"validation_auc": float(roc_auc_score(label_column[is_known], score))}
    return {}
