"""`SimulatedDataset`: a simulated cohort whose sequences are made only when they are needed.

Letters: B repertoires, N sequences of a repertoire, n chosen ones, R residues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets, invert_order
from deeprc.datasets.container_header import get_creator
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.parts import MadeSequences
from deeprc.datasets.sequences import SequenceArrays, Sequences
from deeprc.datasets.simulation.cohort import Cohort
from deeprc.datasets.simulation.recipe import cohort_to_mapping

__all__ = ["SimulatedDataset", "VirtualContainer", "VirtualSequences"]


class SimulatedDataset(RepertoireDataset):
    """A cohort as a `RepertoireDataset` whose sequences are made again each time that they are read.

    Slices, `select`, splitters and training work as with a container, and a container written from the cohort holds the
    same sequences. A worker process that receives the dataset makes them by itself; it must be spawned, not forked.

    Parameters
    ----------
    cohort
        Cohort to simulate.
    """

    container: VirtualContainer

    def __init__(self, cohort: Cohort) -> None:
        self.container = VirtualContainer(cohort)
        self.rows = np.arange(cohort.n_repertoires)

    @property
    def cohort(self) -> Cohort:
        """The cohort that is simulated."""
        return self.container.cohort

    def __repr__(self) -> str:
        return f"SimulatedDataset({self.cohort.name!r}, {len(self)} repertoires)"

    def _make_repertoire(self, row: int) -> Repertoire:
        table, _ = self.cohort.draw(row)
        metadata = {str(name): self.container.metadata[name].iloc[row] for name in self.container.metadata}
        made = MadeSequences(self.container.path, table, self.container.digests.setdefault(row, {}))
        return Repertoire(self.cohort.repertoire_id(row), 0, len(table), made, metadata)


class VirtualContainer:
    """A `CohortContainer` without sequences, which are made when they are read."""

    has_witness = True

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self.path = Path(cohort.name)
        self.created_by, self.source = get_creator(), f"simulated: {cohort.name}"
        self.preprocessing: dict[str, Any] = {}
        self.repertoire_ids = np.array([cohort.repertoire_id(i) for i in range(cohort.n_repertoires)], object)
        self.repertoire_offsets = compute_offsets(cohort.all_sizes)
        self.metadata: pd.DataFrame = cohort.metadata()
        self.digests: dict[int, dict[tuple[int, int], str]] = {}  # by repertoire, as a container's
        self.inverse_stds: dict[tuple[int, str], float] = {}  # by repertoire and abundance

    @property
    def simulation(self) -> dict[str, Any]:
        """The recipe of the cohort."""
        return cohort_to_mapping(self.cohort)

    def take(self, at: NDArray[np.int64]) -> Sequences:
        """Make some sequences, with their genes if the background has genes.

        Parameters
        ----------
        at
            Indices of the sequences among those of all repertoires, (n,), in any order.
        """
        if len(at) and not 0 <= at.min() <= at.max() < self.repertoire_offsets[-1]:
            raise IndexError(f"expected sequences from 0 to {self.repertoire_offsets[-1] - 1}")
        repertoires = np.searchsorted(self.repertoire_offsets, at, side="right") - 1
        if (np.diff(repertoires) >= 0).all():
            return self._simulate_in_order(repertoires, at)
        order = np.argsort(repertoires, kind="stable")  # each repertoire is simulated once
        return self._simulate_in_order(repertoires[order], at[order]).take(invert_order(order))

    def _simulate_in_order(self, repertoires: NDArray[np.int64], at: NDArray[np.int64]) -> Sequences:
        return Sequences.concatenate(list(self._simulate_parts(repertoires, at)))

    def _simulate_parts(self, repertoires: NDArray[np.int64], at: NDArray[np.int64]) -> Iterator[Sequences]:
        """Make the sequences of each run of equal repertoires, (n,): indices of the sequences' repertoires."""
        bounds = np.flatnonzero(np.diff(repertoires, prepend=-1, append=-1))
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            index = int(repertoires[start])
            yield self.cohort.draw(index, at[start:stop] - self.repertoire_offsets[index])[0]


class VirtualSequences:
    """The residues of a cohort that is on no disk, for `deeprc.datasets.clone_groups.group_clones`.

    Parameters
    ----------
    container
        The container without sequences. Each of its repertoires is a part.
    """

    def __init__(self, container: VirtualContainer) -> None:
        self._container = container
        self.bounds: Sequence[int] = container.repertoire_offsets.tolist()

    def view(self, start: int, stop: int) -> SequenceArrays:
        """Make the sequences from `start` to `stop`, counted through all repertoires, which must lie in one of them."""
        return self._container.take(np.arange(start, stop)).arrays()

    def take(self, rows: NDArray[np.int64]) -> SequenceArrays:
        """Make some of the sequences, at rows (n,) counted through all repertoires."""
        return self._container.take(rows).arrays()
