"""The run directory: one trained model with everything needed to use it again.

`config.yaml` (resolved), `model.safetensors` (weights, and the names of the genes where the network reads them),
`splits.json`, `shift.json`, `sketches.safetensors`, `seeds.tsv`, `clones.tsv`, `history.tsv`, `metrics.json`,
`warnings.json`, `predictions.tsv`, `environment.json`, and `checkpoint/` while training.
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
from deeprc.device import resolve_device
from deeprc.documents import abbreviate, read_json, validate
from deeprc.errors import InputError
from deeprc.evaluation.splits import NEW, SPLITS, Split
from deeprc.evaluation.stored_tables import read_clones, read_history, read_seeds
from deeprc.files import write_atomically, write_text
from deeprc.progress import track
from deeprc.runs import predictor
from deeprc.runs.bundle import UnpackedBundle, naming_bundle, unpack_bundle
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
    "environment",
    "load_run",
    "read_splits",
    "save_predictions",
    "write_splits",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Run:
    """A trained model with what is known of its training.

    Attributes
    ----------
    path
        The run directory; of a packed run, the folder into which it was unpacked.
    settings
        Its `config.yaml`.
    splits, digests
        The repertoire ids of each split, and the digest of each repertoire's content.
    model
        The trained model.
    bundle
        The packed run that it was loaded from; None for a run directory.
    """

    path: Path
    settings: RunSettings
    splits: dict[str, list[str]]
    digests: dict[str, str]
    model: TrainedModel
    bundle: UnpackedBundle | None = None

    def __repr__(self) -> str:
        return describe_run(self)

    def _repr_html_(self) -> str:
        return show_run(self)

    @property
    def source(self) -> Path:
        """The run directory, or the file of a packed run."""
        return self.path if self.bundle is None else self.bundle.source

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What the run predicts."""
        return self.model.tasks

    @property
    def runs(self) -> tuple[Run, ...]:
        """The run itself: several predict together in a `RunEnsemble`."""
        return (self,)

    @property
    def group_by(self) -> str | None:
        """The metadata column by which the split was made."""
        return self.settings.group_by

    def history(self) -> pd.DataFrame:
        """Return `history.tsv`, one row per look at the validation fold; empty where there is none."""
        file = self.path / "history.tsv"
        return read_history(file) if file.exists() else pd.DataFrame()

    def histories(self) -> dict[str, pd.DataFrame]:
        """Return `history` by the run's name."""
        return {self.model.name: self.history()}

    def seeds(self) -> pd.DataFrame:
        """Return `seeds.tsv`, the motifs that kernels started from; empty for a run of a version that lacks it."""
        file = self.path / "seeds.tsv"
        return read_seeds(file) if file.exists() else pd.DataFrame()

    def clones(self) -> pd.DataFrame:
        """Return `clones.tsv`, the clones that the model remembers; empty for a run of a version that lacks it."""
        file = self.path / "clones.tsv"
        with naming_bundle(self.bundle):
            return read_clones(file) if file.exists() else pd.DataFrame()

    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the part of the split that each repertoire was in when the run was trained, or "new", (B,).

        A repertoire is known by its id and its content: another cohort's repertoire of the same id is new.
        """
        split = {i: name for name in SPLITS for i in self.splits[name]}
        found, strangers = [], 0
        for repertoire in track(dataset, "recognising repertoires", len(dataset)):
            known = split.get(repertoire.repertoire_id, NEW)
            if known != NEW and self.digests[repertoire.repertoire_id] != repertoire.digest():
                known, strangers = NEW, strangers + 1
            found.append(known)
        if strangers:
            logger.warning(
                "%d repertoires have the id, but not the sequences, of one that %s was trained with: they are new",
                strangers,
                self.path,
            )
        return found

    def summaries(self) -> list[TrainingSummary]:
        """Return what the run keeps of its training repertoires; nothing but digests of an earlier version's run."""
        learned = {i: self.digests[i] for split in ("train", "validation") for i in self.splits[split]}
        with naming_bundle(self.bundle):
            return [replace(read_summary(self.path), digests=learned)]

    def predict(self, dataset: RepertoireDataset, *, abstain: bool = False) -> pd.DataFrame:
        """Return the predictions as a table; see `deeprc.runs.predictor.predict`."""
        return predictor.predict(self, dataset, abstain=abstain)

    def evaluate(self, dataset: RepertoireDataset) -> Metrics:
        """Return metrics by split and target; see `deeprc.runs.predictor.evaluate`."""
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
            A container, or a dataset; the one that it was trained on by default.
        output
            The file to write; it is replaced only if it is a report.
        top
            How many sequences of the cohort to keep for each class.
        """
        import deeprc  # reports are made above this package

        return deeprc.report(self, self.settings.cohort if cohort is None else cohort, output=output, top=top)


def load_run(path: str | os.PathLike[str], *, device: str = "auto") -> Run:
    """Open a run directory, or a file of `deeprc pack`; `deeprc.load` is this function.

    Raises
    ------
    InputError
        If the directory is no run, of another version, damaged, or its training has not ended.
    """
    given, where = Path(path), resolve_device(device)
    if not given.is_file():
        return _load_folder(given, str(given), where)
    bundle = unpack_bundle(given)
    try:
        with naming_bundle(bundle):
            return replace(_load_folder(bundle.folder, str(given), where), bundle=bundle)
    except BaseException:
        bundle.delete()
        raise


def _load_folder(folder: Path, name: str, device: torch.device) -> Run:
    settings = read_settings(folder)
    file = folder / "model.safetensors"
    if not file.exists():
        raise InputError(f"{folder}: training has not ended; continue it with `resume_run`")
    model = TrainedModel.load(file, settings.config, settings.tasks, device=device, name=name)
    splits, digests = read_splits(folder)
    return Run(folder, settings, splits, digests, model)


def write_splits(folder: Path, split: Split, dataset: RepertoireDataset) -> None:
    """Write `splits.json`: the repertoire ids of each split, and the digest of each repertoire's content."""
    ids = split.ids(dataset.repertoire_ids)
    digests = {repertoire.repertoire_id: repertoire.digest() for repertoire in dataset}
    write_text(folder / "splits.json", json.dumps({**ids, "digests": digests}, indent=1) + "\n")


def read_splits(folder: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return what `write_splits` wrote.

    Raises
    ------
    InputError
        If the file is missing or damaged.
    """
    file = folder / "splits.json"
    if not file.exists():
        raise InputError(f"{file}: no such file; the run directory is not complete")
    found: _Splits = validate(read_json(file), _Splits, str(file))
    splits = {split: getattr(found, split) for split in SPLITS}
    seen: set[str] = set()
    for repertoire_id in (i for ids in splits.values() for i in ids):
        if repertoire_id in seen:
            raise InputError(f"{file}: the repertoire {abbreviate(repertoire_id)} is listed twice")
        if repertoire_id not in found.digests:
            raise InputError(f"{file}: digests: the repertoire {abbreviate(repertoire_id)} is missing")
        seen.add(repertoire_id)
    return splits, found.digests


@dataclass(frozen=True)
class _Splits:
    """What `splits.json` holds."""

    train: list[str]
    validation: list[str]
    test: list[str]
    digests: dict[str, str]


def save_predictions(path: Path, table: pd.DataFrame) -> None:
    """Write a table of predictions as TSV, packed if its name ends in .gz; aside first, then renamed."""
    with write_atomically(path) as aside:
        table.to_csv(aside, sep="\t", index=False, compression="gzip" if path.suffix == ".gz" else None)


def environment(device: torch.device) -> dict[str, Any]:
    """Return what a result may depend on besides its configuration: versions, machine, threads."""
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
