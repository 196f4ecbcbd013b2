"""`SimulatedDataset`: a simulated cohort whose sequences are made only when they are needed.

Letters: B repertoires, n chosen sequences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.container_header import get_creator
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.on_demand import OnDemandContainer
from deeprc.datasets.parts import RepertoireInMemory
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.cohort import Cohort
from deeprc.datasets.simulation.recipe import cohort_to_mapping

__all__ = ["SimulatedContainer", "SimulatedDataset"]


class SimulatedDataset(RepertoireDataset):
    """A cohort as a `RepertoireDataset` whose sequences are made again each time that they are read.

    Slices, `select`, splitters and training work as with a container, and a container written from the cohort holds the
    same sequences. A worker process that receives the dataset makes them by itself; it must be spawned, not forked.

    Parameters
    ----------
    cohort
        Cohort to simulate.
    """

    container: SimulatedContainer

    def __init__(self, cohort: Cohort) -> None:
        self.container = SimulatedContainer(cohort)
        self.repertoire_indices = np.arange(cohort.n_repertoires)

    @property
    def cohort(self) -> Cohort:
        """The cohort that is simulated."""
        return self.container.cohort

    def __repr__(self) -> str:
        return f"SimulatedDataset({self.cohort.name!r}, {len(self)} repertoires)"

    def _make_repertoire(self, index: int) -> Repertoire:
        sequences = self.container.make_sequences(index)
        metadata = {str(name): values.iloc[index] for name, values in self._whole_metadata.items()}
        store = RepertoireInMemory(self.container.path, sequences, self.container.digests.setdefault(index, {}))
        return Repertoire(self.cohort.repertoire_id(index), 0, len(sequences), store, metadata)


class SimulatedContainer(OnDemandContainer):
    """The `CohortContainer` of a simulated cohort; its sequences are made when they are read."""

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

    def make_sequences(self, repertoire: int, rows: NDArray[np.int64] | None = None) -> Sequences:
        """Make the sequences of a repertoire, with their genes if the background has genes; see `Cohort.draw`."""
        return self.cohort.draw(repertoire, rows)[0]
