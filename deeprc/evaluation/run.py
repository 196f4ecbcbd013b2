"""The run directory: one trained model with everything needed to use it again.

`config.yaml` (resolved), `model.safetensors` (weights, and the names of the genes where the network reads them),
`splits.json`, `seeds.tsv`, `history.tsv`, `metrics.json`, `predictions.tsv`, `environment.json`, and
`checkpoint/` while training.
Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from deeprc.config import Config, config_from_mapping
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.device import resolve_device
from deeprc.errors import InputError
from deeprc.evaluation import predictor
from deeprc.evaluation.predictor import NEW
from deeprc.evaluation.splits import SPLITS, Split
from deeprc.files import write_text
from deeprc.nn.batch import BatchMaker
from deeprc.nn.genes import GeneNames
from deeprc.nn.inference import repertoire_outputs
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training.checkpoint import load_tensors, save_tensors
from deeprc.training.trainer import build_network
from deeprc.versions import package_version

__all__ = [
    "FORMAT",
    "VERSION",
    "Run",
    "RunSettings",
    "environment",
    "load_run",
    "read_settings",
    "read_splits",
    "save_network",
    "save_predictions",
    "write_splits",
]

logger = logging.getLogger(__name__)

FORMAT = "deeprc-run"
VERSION = 2
_BEFORE = {"seeded_start": 0.0, "weight_average": 0.0, "least_gain": 0.0}  # of runs whose config.yaml lacks these keys


@dataclass(frozen=True)
class RunSettings:
    """What `config.yaml` holds: everything that decides a run's result, besides the cohort's content.

    Attributes
    ----------
    cohort, fingerprint
        The container's path, and what of its content must not change while training is interrupted.
    targets
        As the user wrote them.
    tasks
        As they were understood, with the training fold's scaling.
    folds, fold, validation_fold, group_by, seed, device
        As given to `deeprc train`; None validates on the fold after `fold`.
    config
        Network and training.
    """

    cohort: str
    fingerprint: str
    targets: tuple[str, ...]
    tasks: tuple[Task, ...]
    folds: int
    fold: int
    validation_fold: int | None
    group_by: str | None
    seed: int
    device: str
    config: Config

    def to_yaml(self) -> str:
        """Return the text of `config.yaml`."""
        flat = {
            **{k: v for k, v in vars(self).items() if k not in ("targets", "tasks", "config")},
            "targets": list(self.targets),
            "tasks": [{**asdict(task), "classes": list(task.classes)} for task in self.tasks],
        }
        origin = {"format": FORMAT, "version": VERSION, "deeprc": package_version("deeprc")}
        body = {**origin, **flat, **self.config.to_mapping()}
        return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)


def read_settings(path: Path) -> RunSettings:
    """Read a run directory's `config.yaml`.

    Raises
    ------
    InputError
        If it is missing, damaged or of another version.
    """
    file = path / "config.yaml"
    if not file.is_file():
        raise InputError(f"{path}: is not a run directory (no config.yaml); expected one made by `deeprc train`")
    try:
        body = yaml.safe_load(file.read_text(encoding="utf-8"))
        found = (body["format"], body["version"])
        if found != (FORMAT, VERSION):
            raise InputError(
                f"{file}: expected format {FORMAT!r} version {VERSION}, found {found[0]!r} version {found[1]}"
            )
        tasks = tuple(Task(**{**task, "classes": tuple(task["classes"])}) for task in body["tasks"])
        settings = {"network": body["network"], "training": {**_BEFORE, **body["training"]}}
        config = config_from_mapping(settings, source=str(file))
        rest = {k: body[k] for k in ("cohort", "fingerprint", "folds", "fold", "group_by", "seed", "device")}
        rest |= {k: int(rest[k]) for k in ("folds", "fold", "seed")}
        validation_fold = body.get("validation_fold")  # which runs of earlier versions lack
        rest["validation_fold"] = None if validation_fold is None else int(validation_fold)
        return RunSettings(targets=tuple(body["targets"]), tasks=tasks, config=config, **rest)
    except InputError:
        raise
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file}: is damaged: {type(error).__name__}: {' '.join(str(error).split())}") from error


@dataclass(frozen=True)
class Run:
    """A trained model: predicts, is evaluated, and shows its attention.

    Attributes
    ----------
    path
        The run directory.
    settings
        Its `config.yaml`.
    splits, digests
        The repertoire ids of each side, and the digest of each repertoire's content.
    network
        Ready for inference.
    """

    path: Path
    settings: RunSettings
    splits: dict[str, list[str]]
    digests: dict[str, str]
    network: DeepRC

    @property
    def tasks(self) -> list[Task]:
        """What the run predicts."""
        return list(self.settings.tasks)

    def maker(self, dataset: RepertoireDataset) -> BatchMaker:
        """Return a batch maker that presents a dataset as the network was trained to see it."""
        return BatchMaker(dataset, self.settings.config.network.abundance, genes=self.network.gene_names)

    def output_of(self, dataset: RepertoireDataset) -> Callable[[int], Tensor]:
        """Return the function of a position that gives a repertoire's outputs before their activation, (T,)."""
        fraction = self.settings.config.training.averaged_fraction
        return partial(repertoire_outputs, self.network, self.maker(dataset), top_fraction=fraction)

    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the side each repertoire was on when the run was trained, or "new", (B,).

        A repertoire is known by its id and its content: another cohort's repertoire of the same id is new.
        """
        side = {i: name for name in SPLITS for i in self.splits[name]}
        found, strangers = [], 0
        for repertoire in dataset:
            known = side.get(repertoire.repertoire_id, NEW)
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

    def outputs(self, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> Tensor:
        """Return the outputs before their activation, (B, T); see `deeprc.evaluation.predictor.outputs`."""
        return predictor.outputs(self, dataset, positions)

    def labels(self, dataset: RepertoireDataset) -> NDArray[np.float64]:
        """Return the labels, (B, number of tasks); all missing where the dataset lacks a target's column."""
        return predictor.labels_of(self.tasks, dataset)

    def predict(self, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> pd.DataFrame:
        """Return the predictions as a table; see `deeprc.evaluation.predictor.predict`."""
        return predictor.predict(self, dataset, positions)

    def evaluate(self, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> dict[str, Any]:
        """Return metrics by side and target; see `deeprc.evaluation.predictor.evaluate`."""
        return predictor.evaluate(self, dataset, positions)


def load_run(path: str | os.PathLike[str], *, device: str = "auto") -> Run:
    """Open a run directory; `deeprc.load` is this function.

    Raises
    ------
    InputError
        If the directory is no run, of another version, damaged, or its training has not ended.
    """
    folder = Path(path)
    settings = read_settings(folder)
    if not (folder / "model.safetensors").exists():
        raise InputError(f"{folder}: training has not ended; continue it with `deeprc train --resume {folder}`")
    network = _load_network(folder / "model.safetensors", settings, resolve_device(device))
    splits, digests = read_splits(folder)
    return Run(folder, settings, splits, digests, network)


def save_network(path: Path, network: DeepRC, *, update: int) -> None:
    """Write a network's weights with the names of its genes, and the update after which they were its weights."""
    genes = {} if network.gene_names is None else {"genes": network.gene_names.to_mapping()}
    save_tensors(path, network.state_dict(), {"update": update, **genes})


def _load_network(file: Path, settings: RunSettings, device: torch.device) -> DeepRC:
    tensors, saved = load_tensors(file)
    try:
        genes = GeneNames.from_mapping(saved["genes"]) if settings.config.network.gene_units else None
        network = build_network(settings.config, settings.tasks, seed=settings.seed, device=device, genes=genes)
        network.load_state_dict(tensors)
    except KeyError:
        raise InputError(f"{file}: does not fit config.yaml: has no names of genes") from None
    except RuntimeError as error:
        problem = str(error).splitlines()[-1].strip()
        raise InputError(f"{file}: does not fit config.yaml: {problem}") from error
    return network.eval()


def write_splits(folder: Path, split: Split, dataset: RepertoireDataset) -> None:
    """Write `splits.json`: the repertoire ids of each side, and the digest of each repertoire's content."""
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
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        return {side: [str(i) for i in body[side]] for side in SPLITS}, dict(body["digests"])
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; the run directory is not complete") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: is damaged: {type(error).__name__}: {error}") from error


def save_predictions(path: Path, table: pd.DataFrame) -> None:
    """Write a table of predictions as TSV, aside first, then renamed."""
    write_text(path, table.to_csv(sep="\t", index=False))


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
