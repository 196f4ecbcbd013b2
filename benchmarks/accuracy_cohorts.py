"""The cohorts of `accuracy.py`: their descriptions, and their containers while jobs need them.

Letters: B repertoires.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.benchmarking.cohort_digest import digest_values
from deeprc.datasets.cache import digest_container
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.simulation import SimulatedDataset
from deeprc.datasets.simulation.cohort import Cohort
from deeprc.datasets.simulation.write import write_container
from deeprc.errors import InputError
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.splits import Split, SplitOptions, make_split
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task, parse_tasks

__all__ = ["N_FOLDS", "Cohorts", "Source", "make_file_name"]

N_FOLDS = 5
_COHORT = ".accuracy.h5"


@dataclass(frozen=True)
class Source:
    """A cohort: a container, or a simulated cohort with its recipe.

    Attributes
    ----------
    name, seed
        Name of the cohort in tables, and seed of the folds and of training; the seed of the simulation is in `mapping`.
    target, group_by, test
        Target and options of the split, see `deeprc.evaluation.splits.make_split` and `SplitOptions`.
    cohort, mapping
        Cohort and values of a recipe, see `load_recipe`; None for a container.
    path
        Path of the container; None for a recipe.
    """

    name: str
    seed: int
    target: str = "status"
    group_by: str | None = None
    test: str | None = None
    cohort: Cohort | None = None
    mapping: dict[str, Any] | None = None
    path: Path | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without what was computed from them, which a worker computes again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def dataset(self) -> RepertoireDataset:
        """Repertoires of the cohort; those of a recipe are simulated when they are read, without a file."""
        if self.cohort is not None:
            return SimulatedDataset(self.cohort)
        assert self.path is not None
        return open_dataset(self.path)

    @cached_property
    def task(self) -> Task:
        """Task that is predicted; it raises InputError if it is not binary."""
        (task,) = parse_tasks([self.target], self.dataset.metadata, source=self.name)
        if task.kind != "binary":
            raise InputError(f"--target {self.target!r}: expected two classes; say COLUMN=CLASS")
        return task

    @cached_property
    def labels(self) -> NDArray[np.float64]:
        """Labels of the repertoires, (B, 1): 0, 1 or NaN."""
        return encode_labels([self.task], self.dataset.metadata)

    @cached_property
    def groups(self) -> NDArray[np.int64] | None:
        """Donor of each repertoire as an index, (B,); None without `group_by`."""
        return DonorColumn.require(self.dataset.metadata, self.group_by, self.name).index_if_known()

    @cached_property
    def digest(self) -> str:
        """Digest of everything that distinguishes the cohort from others."""
        if self.mapping is None:
            return digest_values(digest_container(self.dataset.container), self.target, self.group_by, self.test)
        path = self.mapping["background"].get("path")
        return digest_values(self.mapping, None if path is None else _digest_file(Path(path)))

    @property
    def has_counts(self) -> bool:
        """Whether any sequence has a count above 1."""
        if self.cohort is not None:
            return self.cohort.counts.exponent is not None
        return any(repertoire.counts.max(initial=1) > 1 for repertoire in self.dataset)

    def split(self, fold: int, validation_fold: int | None = None) -> Split:
        """Return the split that `deeprc train` makes."""
        options = SplitOptions(
            folds=N_FOLDS, fold=fold, validation_fold=validation_fold, group_by=self.group_by, test=self.test
        )
        return make_split(self.dataset.metadata, [self.task], options, seed=self.seed, source=self.name)


class Cohorts:
    """The containers of simulated cohorts, of which only those that are needed at a time are on the disk.

    Parameters
    ----------
    folder
        Folder of the containers.
    virtual
        Whether no container is written: sequences are then simulated when they are read.
    keep
        Whether containers are kept.
    """

    def __init__(self, folder: Path, *, virtual: bool, keep: bool) -> None:
        self.folder, self.virtual, self.keep = folder, virtual, keep

    def place(self, source: Source) -> Path | None:
        """Return the path of the container of a cohort; None if it has none."""
        if source.cohort is None:
            return source.path
        name = f"{make_file_name(source.name)}-seed-{source.seed}-{source.digest}{_COHORT}"
        return None if self.virtual else self.folder / name

    @contextmanager
    def open_cohort(self, sources: Sequence[Source]) -> Iterator[list[RepertoireDataset]]:
        """Yield the cohorts; their containers are deleted if the block ends without an error, else they are kept."""
        written = [place for source in sources if source.cohort is not None and (place := self.place(source))]
        if written:
            self._remove_containers(besides=written)
        yield [self._open_dataset(source) for source in sources]
        if written:
            self._remove_containers()

    def _open_dataset(self, source: Source) -> RepertoireDataset:
        """Return a cohort, after writing its container if it has one and it is not there."""
        place = self.place(source)
        if source.cohort is None or place is None:
            return source.dataset
        if not place.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_container(source.cohort, place, recipe=source.mapping)
        return open_dataset(place)

    def _remove_containers(self, besides: Sequence[Path] = ()) -> None:
        """Delete the containers of simulated cohorts, and their caches, except those at `besides`."""
        kept = {name for place in besides for name in (place.name, f"{place.name}.cache")}
        for path in () if self.keep else list(self.folder.glob(f"*{_COHORT}*")):
            if path.name in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        if not self.keep and not besides and self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()


def make_file_name(name: str) -> str:
    """Return a name without characters that file systems do not allow."""
    return re.sub(r"[^\w.+-]", "_", name)


def _digest_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
