"""The cohorts of `accuracy.py`: what describes them, and where they are while their jobs need them.

Letters: B repertoires.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.benchmarking.jobs import job_key
from deeprc.datasets.cache import content_digest
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.simulation import SimulatedDataset
from deeprc.datasets.simulation.cohort import Cohort
from deeprc.datasets.simulation.write import write_container
from deeprc.errors import InputError
from deeprc.evaluation.splits import Split, SplitOptions, donor_codes, make_split
from deeprc.tasks import Task, labels, parse_tasks

__all__ = ["N_FOLDS", "Cohorts", "Source", "file_name"]

N_FOLDS = 5
_COHORT = ".accuracy.h5"


@dataclass(frozen=True)
class Source:
    """A cohort: one that is simulated, with everything that describes it, or a container.

    Attributes
    ----------
    name, seed
        As tables say it; the seed is that of the folds and of training, and, in `mapping`, of the cohort.
    target, group_by, test
        See `deeprc.evaluation.splits.make_split` and `SplitOptions`.
    cohort, mapping
        Of a recipe, see `load_recipe`; None of a container.
    path
        The container; None of a recipe.
    """

    name: str
    seed: int
    target: str = "status"
    group_by: str | None = None
    test: str | None = None
    cohort: Cohort | None = None
    mapping: dict[str, Any] | None = None
    path: Path | None = None

    @cached_property
    def dataset(self) -> RepertoireDataset:
        """The repertoires, of a recipe on no disk."""
        if self.cohort is not None:
            return SimulatedDataset(self.cohort)
        assert self.path is not None
        return open_dataset(self.path)

    @cached_property
    def task(self) -> Task:
        """What is predicted; InputError if it is not binary."""
        (task,) = parse_tasks([self.target], self.dataset.metadata, source=self.name)
        if task.kind != "binary":
            raise InputError(f"--target {self.target!r}: expected two classes; say COLUMN=CLASS")
        return task

    @cached_property
    def labels(self) -> NDArray[np.float64]:
        """0, 1 or NaN, (B, 1)."""
        return labels([self.task], self.dataset.metadata)

    @cached_property
    def groups(self) -> NDArray[np.int64] | None:
        """Numbers that are equal for repertoires of one group, (B,); None without `group_by`."""
        return donor_codes(self.dataset.metadata, self.group_by, self.name)

    @cached_property
    def digest(self) -> str:
        """What tells the cohort from others."""
        if self.mapping is None:
            return job_key(content_digest(self.dataset.container), self.target, self.group_by, self.test)
        path = self.mapping["background"].get("path")
        return job_key(self.mapping, None if path is None else _file_digest(Path(path)))

    @property
    def has_counts(self) -> bool:
        """Whether any sequence was seen more than once."""
        if self.cohort is not None:
            return self.cohort.counts.exponent is not None
        return any(repertoire.counts.max(initial=1) > 1 for repertoire in self.dataset)

    def split(self, fold: int, validation_fold: int | None = None) -> Split:
        """Return the sides as `deeprc train` makes them."""
        options = SplitOptions(
            folds=N_FOLDS, fold=fold, validation_fold=validation_fold, group_by=self.group_by, test=self.test
        )
        return make_split(self.dataset.metadata, [self.task], options, seed=self.seed, source=self.name)


class Cohorts:
    """Simulated cohorts, one at a time on the disk.

    Parameters
    ----------
    folder
        Where they are written.
    virtual
        Write none: sequences are made when they are read.
    keep
        Do not remove them.
    """

    def __init__(self, folder: Path, *, virtual: bool, keep: bool) -> None:
        self.folder, self.virtual, self.keep = folder, virtual, keep

    @contextmanager
    def opened(self, source: Source) -> Iterator[RepertoireDataset]:
        """Give the cohort; what was written is removed when the block ends well, and else found by the next call."""
        if source.cohort is None or self.virtual:
            yield source.dataset
            return
        place = self.folder / f"{file_name(source.name)}-seed-{source.seed}-{source.digest}{_COHORT}"
        self._remove(besides=place)
        if not place.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_container(source.cohort, place, recipe=source.mapping)
        yield open_dataset(place)
        self._remove()

    def _remove(self, besides: Path | None = None) -> None:
        kept = {besides.name, f"{besides.name}.cache"} if besides is not None else set()
        for path in () if self.keep else list(self.folder.glob(f"*{_COHORT}*")):
            if path.name in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        if not self.keep and besides is None and self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()


def file_name(name: str) -> str:
    """Return a name without what file systems do not allow."""
    return re.sub(r"[^\w.+-]", "_", name)


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
