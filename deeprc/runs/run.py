"""The run directory: one trained model with everything needed to use it again.

- The model: `config.yaml` (all settings), `model.safetensors` (weights, and names of genes if the network reads them).
- Its training: `splits.json`, `history.tsv`, `checks.json`, `environment.json`, and `checkpoint/` while training.
- What it learned: `seeds.tsv` (motifs), `clones.tsv`, `composition.tsv`.
- Its results: `metrics.json`, `predictions.tsv`, `warnings.json`.
- For comparison with new repertoires: `shift.json`, `sketches.safetensors`.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import KnownRepertoires, identify_repertoire, identify_repertoires
from deeprc.device import resolve_device
from deeprc.documents import abbreviate, read_json, validate
from deeprc.errors import InputError
from deeprc.evaluation.splits import NEW, PARTS, Split
from deeprc.evaluation.stored_tables import (
    read_clones,
    read_composition,
    read_history,
    read_run_predictions,
    read_start_motifs,
)
from deeprc.files import write_atomically, write_text
from deeprc.progress import track
from deeprc.runs import predictor
from deeprc.runs.bundle import UnpackedBundle, name_bundle_in_errors, unpack_bundle
from deeprc.runs.file_digests import describe_foreign_files
from deeprc.runs.metrics import Metrics
from deeprc.runs.run_settings import RunSettings, read_settings
from deeprc.runs.run_text import describe_run, show_run
from deeprc.shift.summary import TrainingSummary, read_summary
from deeprc.tasks import Task
from deeprc.training.model import TrainedModel
from deeprc.versions import package_version

if TYPE_CHECKING:
    from deeprc import Report

__all__ = [
    "Run",
    "describe_environment",
    "load_run",
    "read_splits",
    "read_stored_predictions",
    "save_predictions",
    "write_splits",
]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Run:
    """A trained model with its settings, its split and other files of its run directory.

    Attributes
    ----------
    path
        Path of the run directory; for a packed run, the folder into which it was unpacked.
    settings
        Settings from `config.yaml`.
    splits, identities
        Ids of the repertoires of each part of the split, and identity of each repertoire by id, see
        `identify_repertoire`.
    model
        Trained model.
    bundle
        Packed run from which it was loaded; None for a run directory.
    """

    path: Path
    settings: RunSettings
    splits: dict[str, list[str]]
    identities: dict[str, str]
    model: TrainedModel
    bundle: UnpackedBundle | None = None

    def __repr__(self) -> str:
        return describe_run(self)

    def _repr_html_(self) -> str:
        return show_run(self)

    @property
    def source(self) -> Path:
        """Path of the run directory, or of the file of a packed run."""
        return self.path if self.bundle is None else self.bundle.source

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Tasks that the run predicts."""
        return self.model.tasks

    @property
    def runs(self) -> tuple[Run, ...]:
        """The run itself, as the only one; a `RunEnsemble` has several."""
        return (self,)

    @property
    def group_by(self) -> str | None:
        """Metadata column whose values the split kept together."""
        return self.settings.split_options.group_by

    def history(self) -> pd.DataFrame:
        """Return `history.tsv`, with one row per evaluation on the validation fold; empty if the file is missing."""
        file = self.path / "history.tsv"
        return read_history(file) if file.exists() else pd.DataFrame()

    def histories(self) -> dict[str, pd.DataFrame]:
        """Return the history by the name of the run."""
        return {self.model.name: self.history()}

    def start_motifs(self) -> pd.DataFrame:
        """Return `seeds.tsv`, the motifs from which kernels started; empty for a run of a version that lacks it."""
        file = self.path / "seeds.tsv"
        return read_start_motifs(file) if file.exists() else pd.DataFrame()

    def clones(self) -> pd.DataFrame:
        """Return `clones.tsv`, the clones that the model stores; empty for a run of a version that lacks it."""
        file = self.path / "clones.tsv"
        with name_bundle_in_errors(self.bundle):
            return read_clones(file) if file.exists() else pd.DataFrame()

    def composition(self) -> pd.DataFrame:
        """Return `composition.tsv`, what the branch `composition` reads; empty for a run that lacks the file."""
        file = self.path / "composition.tsv"
        return read_composition(file) if file.exists() else pd.DataFrame()

    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the part of the split in which each repertoire was when the run was trained, or "new", (B,).

        A repertoire is recognised by its id and its content: a repertoire of another cohort with the same id is new.
        With other genes it is also recognised, unless repertoires of the run differ from each other in genes alone.
        """
        part_of = {repertoire_id: part for part in PARTS for repertoire_id in self.splits[part]}
        identities = list(dict.fromkeys(self.identities.values()))
        known_repertoires = KnownRepertoires(identities)
        parts, n_changed_repertoires = [], 0
        for repertoire in track(dataset, "recognising repertoires", len(dataset)):
            part = part_of.get(repertoire.repertoire_id, NEW)
            if part != NEW:
                index = known_repertoires.find(identify_repertoire(repertoire), with_other_genes=True)
                if index is None or identities[index] != self.identities[repertoire.repertoire_id]:
                    part, n_changed_repertoires = NEW, n_changed_repertoires + 1
            parts.append(part)
        if n_changed_repertoires:
            _logger.warning(
                "%d repertoires have the id of one that %s was trained with, but other content: they count as new",
                n_changed_repertoires,
                self.path,
            )
        return parts

    def summaries(self) -> list[TrainingSummary]:
        """Return the run's summary of its training repertoires; runs of earlier versions have only identities."""
        learned = {i: self.identities[i] for part in ("train", "validation") for i in self.splits[part]}
        with name_bundle_in_errors(self.bundle):
            return [replace(read_summary(self.path), identities=learned)]

    def predict(self, dataset: RepertoireDataset | str | os.PathLike[str], *, abstain: bool = False) -> pd.DataFrame:
        """Return the predictions as a table; see `deeprc.runs.predictor.predict`."""
        return predictor.predict(self, dataset, abstain=abstain)

    def evaluate(self, dataset: RepertoireDataset | str | os.PathLike[str]) -> Metrics:
        """Return metrics by part of the split and target; see `deeprc.runs.predictor.evaluate`."""
        return predictor.evaluate(self, dataset)

    def report(
        self,
        cohort: str | os.PathLike[str] | RepertoireDataset | None = None,
        *,
        output: str | os.PathLike[str] = "report.html",
        top: int = 1000,
    ) -> Report:
        """Write the report of the run as one HTML file, which a notebook shows; see `deeprc.report`.

        Parameters
        ----------
        cohort
            Path of a container, or a dataset; None takes the container of the training.
        output
            Path of the file; an existing file is replaced only if it is a report.
        top
            Number of sequences of the cohort to keep for each class.
        """
        import deeprc  # imported here, because reports are in a package above this one

        return deeprc.report(self, self.settings.cohort if cohort is None else cohort, output=output, top=top)


def load_run(path: str | os.PathLike[str], *, device: str = "auto") -> Run:
    """Open a run directory, or a file of `deeprc pack`; `deeprc.load` is this function.

    Raises
    ------
    InputError
        If the directory is not a run, is damaged or of another version, or if its training has not ended.
    """
    source, torch_device = Path(path), resolve_device(device)
    if not source.is_file():
        return _load_folder(source, str(source), torch_device)
    bundle = unpack_bundle(source)
    try:
        with name_bundle_in_errors(bundle):
            return replace(_load_folder(bundle.folder, str(source), torch_device), bundle=bundle)
    except BaseException:
        bundle.delete()
        raise


def _load_folder(folder: Path, name: str, device: torch.device) -> Run:
    settings = read_settings(folder)
    file = folder / "model.safetensors"
    if not file.exists():
        raise InputError(f"{folder}: training has not ended; continue it with `resume_run`")
    model = TrainedModel.load(file, settings.config, settings.tasks, device=device, name=name)
    splits, identities = read_splits(folder)
    if foreign := describe_foreign_files(folder):
        _logger.warning("%s", foreign)
    return Run(folder, settings, splits, identities, model)


def write_splits(folder: Path, split: Split, dataset: RepertoireDataset) -> None:
    """Write `splits.json`: the ids of each part of the split, and the identity of each repertoire."""
    ids = split.ids(dataset.repertoire_ids)
    identities = dict(zip(map(str, dataset.repertoire_ids), identify_repertoires(dataset), strict=True))
    write_text(folder / "splits.json", json.dumps({**ids, "digests": identities}, indent=1) + "\n")


def read_splits(folder: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the ids of each part of the split, and the identity of each repertoire, from `splits.json`.

    Raises
    ------
    InputError
        If the file is missing or damaged.
    """
    file = folder / "splits.json"
    if not file.exists():
        raise InputError(f"{file}: no such file; the run directory is not complete")
    content: _Splits = validate(read_json(file), _Splits, str(file))
    splits = {part: getattr(content, part) for part in PARTS}
    seen: set[str] = set()
    for repertoire_id in (i for ids in splits.values() for i in ids):
        if repertoire_id in seen:
            raise InputError(f"{file}: the repertoire {abbreviate(repertoire_id)} is listed twice")
        if repertoire_id not in content.digests:
            raise InputError(f"{file}: digests: the repertoire {abbreviate(repertoire_id)} is missing")
        seen.add(repertoire_id)
    return splits, content.digests


def read_stored_predictions(folder: Path) -> pd.DataFrame:
    """Read the `predictions.tsv` of a run directory.

    Raises
    ------
    InputError
        As in `read_run_predictions` and `read_splits`; or if the file was cut or is of another run, so that its
        repertoires are not those of `splits.json`.
    """
    file = folder / "predictions.tsv"
    table, splits = read_run_predictions(file), read_splits(folder)[0]
    part_of = {repertoire_id: part for part, ids in splits.items() for repertoire_id in ids}
    if dict(zip(table["repertoire_id"], table["split"], strict=True)) != part_of:
        raise InputError(f"{file}: expected the {len(part_of):,} repertoires of splits.json with their parts")
    return table


@dataclass(frozen=True)
class _Splits:
    """The content of `splits.json`."""

    train: list[str]
    validation: list[str]
    test: list[str]
    digests: dict[str, str]


def save_predictions(path: Path, table: pd.DataFrame) -> None:
    """Write a table of predictions as TSV, packed if its name ends in .gz, under a temporary name first."""
    with write_atomically(path) as temporary_path:
        table.to_csv(temporary_path, sep="\t", index=False, compression="gzip" if path.suffix == ".gz" else None)


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return the versions, machine and threads on which a result may depend."""
    packages = ("deeprc", "torch", "numpy", "numba", "h5py", "pandas", "scikit-learn")
    accelerator = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: package_version(name) for name in packages},
        "device": str(device),
        "accelerator": accelerator,
        "threads": torch.get_num_threads(),
    }
