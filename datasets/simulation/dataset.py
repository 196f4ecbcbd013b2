"""`SimulatedDataset`: a simulated cohort that is on no disk and in no memory before it is asked for.

Letters: B repertoires, N sequences of a repertoire, n chosen ones, R residues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import offsets_of
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequences import SequenceTable
from deeprc.datasets.simulation.cohort import Cohort

__all__ = ["SimulatedDataset", "VirtualContainer"]


class SimulatedDataset(RepertoireDataset):
    """A cohort as a `RepertoireDataset` whose sequences are made when they are looked at, each time anew.

    Slices, `select`, splitters and training work as with a container, and a container written from the cohort holds the
    same sequences. A worker process that receives the dataset makes them by itself; it must be spawned, not forked.

    Parameters
    ----------
    cohort
        What to simulate.
    """

    container: VirtualContainer  # type: ignore[assignment]

    def __init__(self, cohort: Cohort) -> None:
        self.container = VirtualContainer(cohort)
        self.rows = np.arange(cohort.n_repertoires)

    @property
    def cohort(self) -> Cohort:
        """What is simulated."""
        return self.container.cohort

    def __repr__(self) -> str:
        return f"SimulatedDataset({self.cohort.name!r}, {len(self)} repertoires)"

    def _repertoire(self, row: int) -> Repertoire:
        table, _ = self.cohort.draw(row)
        metadata = {str(name): self.container.metadata[name].iloc[row] for name in self.container.metadata}
        made = MadeSequences(self.container.path, table, self.container.digests.setdefault(row, {}))
        return Repertoire(self.cohort.repertoire_id(row), 0, len(table.lengths), made, metadata)


class VirtualContainer:
    """What a dataset asks of a container, without the sequences."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self.path = Path(cohort.name)
        self.repertoire_ids = np.array([cohort.repertoire_id(i) for i in range(cohort.n_repertoires)], object)
        self.repertoire_offsets = offsets_of(cohort.all_sizes)
        self.metadata: pd.DataFrame = cohort.metadata()
        self.digests: dict[int, dict[tuple[int, int], str]] = {}  # by repertoire, as a container's
        self.inverse_stds: dict[tuple[int, str], float] = {}  # by repertoire and abundance

    def look_up(self, at: NDArray[np.int64]) -> SequenceTable:
        """Make some sequences, with their genes where the background has them.

        Parameters
        ----------
        at
            The sequences, counted through all repertoires, (n,); those of one repertoire one after the other.
        """
        if len(at) and not 0 <= at.min() <= at.max() < self.repertoire_offsets[-1]:
            raise IndexError(f"expected sequences from 0 to {self.repertoire_offsets[-1] - 1}")
        parts = list(self._parts(at))
        if not parts:
            return SequenceTable(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.uint32))
        columns = ((part.residues, part.lengths, part.counts) for part in parts)
        residues, lengths, counts = (np.concatenate(column) for column in zip(*columns, strict=True))
        genes = (_joined([part.v_call for part in parts]), _joined([part.j_call for part in parts]))
        return SequenceTable(residues, lengths, counts, *genes)

    def _parts(self, at: NDArray[np.int64]) -> Iterator[SequenceTable]:
        numbers = np.searchsorted(self.repertoire_offsets, at, side="right") - 1
        bounds = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            number = int(numbers[start])
            yield self.cohort.draw(number, at[start:stop] - self.repertoire_offsets[number])[0]


def _joined(parts: Sequence[Categorical | None]) -> Categorical | None:
    """Return the genes of several repertoires' sequences end to end; each may number them in its own way."""
    known = [calls for calls in parts if calls is not None]
    if len(known) < len(parts):
        return None
    return Categorical.concatenate(known)


class MadeSequences:
    """The sequences of one repertoire, with a container's names."""

    def __init__(self, path: Path, table: SequenceTable, digests: dict[tuple[int, int], str]) -> None:
        self.path = path
        self.digests = digests
        self.residues: NDArray[np.uint8] = table.residues
        self.sequence_offsets: NDArray[np.int64] = offsets_of(table.lengths)
        self.counts: NDArray[np.uint32] = table.counts
        self.v_call: Categorical | None = table.v_call
        self.j_call: Categorical | None = table.j_call
        self.witness: NDArray[Any] | None = table.witness
