"""The start of a run: what its training needs, the checks before it, and the run directory."""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from deeprc.checks.run_checks import CHECKS_FILE, RunChecks, check_for_training
from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.splits import Split
from deeprc.files import check_new_folder, name_write_errors, write_text
from deeprc.hidden_folders import temporary_folder
from deeprc.runs.run import describe_environment, write_splits
from deeprc.runs.run_settings import RunSettings
from deeprc.shift.summary import TrainingSummary, summarise_training, write_summary

__all__ = ["PreparedRun", "begin_run", "check_output", "warn_of_hidden_singletons"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedRun:
    """What a training starts from: the run directory, its settings, the cohort, its split, and the device."""

    folder: Path
    settings: RunSettings
    dataset: RepertoireDataset
    split: Split
    device: torch.device


def check_output(folder: Path) -> None:
    """Raise InputError if a folder cannot become a run directory."""
    hint = ""
    if (folder / "config.yaml").exists():
        is_finished = (folder / "metrics.json").exists()
        hint = "it is a finished run; " if is_finished else "continue it with `resume_run`, or "
    check_new_folder(folder, hint=hint)


def begin_run(prepared: PreparedRun, keep_sketches: bool) -> None:
    """Check the cohort, log the findings, summarise the training repertoires, and make the run directory."""
    group_by, split = prepared.settings.split_options.group_by, prepared.split
    checks = check_for_training(prepared.dataset, prepared.settings.tasks, group_by)
    checks.log(_logger)
    learned = prepared.dataset[np.sort(np.concatenate([split.train, split.validation]))]
    donors = DonorColumn.choose(learned.metadata, group_by).index_if_known()
    summary = summarise_training(learned, donors, keep_sketches=keep_sketches)
    _write_folder(prepared, checks, summary)


def warn_of_hidden_singletons(config: Config, dataset: RepertoireDataset) -> None:
    """Warn if the abundance scale log(count) hides the residues of most sequences."""
    if config.network.abundance == "log":
        counts = [part.store.sequences.counts for part in dataset.sequence_container.parts]
        seen_once = sum(int(np.sum(count <= 1)) for count in counts) / max(sum(map(len, counts)), 1)
        if seen_once > 0.5:
            _logger.warning(
                "abundance=log hides the residues of the %.0f%% of sequences seen once; abundance=none does not",
                100 * seen_once,
            )


def _write_folder(prepared: PreparedRun, checks: RunChecks, summary: TrainingSummary) -> None:
    """Make the run directory with all files that are known before training, under a temporary name first."""
    folder = prepared.folder
    real_folder = Path(os.path.realpath(folder))
    with name_write_errors(folder):
        real_folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(real_folder) as hidden:
            temporary_path = hidden / "run"  # a folder inside, because only the owner may read the hidden folder
            temporary_path.mkdir()
            write_splits(temporary_path, prepared.split, prepared.dataset)
            write_text(
                temporary_path / "environment.json", json.dumps(describe_environment(prepared.device), indent=1) + "\n"
            )
            write_text(temporary_path / CHECKS_FILE, checks.to_json())
            write_summary(temporary_path, summary)
            write_text(temporary_path / "config.yaml", prepared.settings.to_yaml())
            try:
                temporary_path.replace(real_folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise InputError(f"{folder}: another process has started a run; choose another `output`") from None
