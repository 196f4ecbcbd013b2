"""Simulate cohorts with implanted signals: exact, seeded, and of any size.

    from deeprc.datasets.simulation import Cohort, Motif, MotifSignal, Sizes, SimulatedDataset

    cohort = Cohort(100, Sizes(10_000), signals=(MotifSignal((Motif("SF(d)EN"),), witness_rate=0.01),))
    dataset = SimulatedDataset(cohort)  # nothing is made yet
    dataset[3].sequences.decode(), dataset[3].witness

A `Cohort` has a `Background`, which makes its sequences, and signals, which the repertoires of one class carry:

- `MotifSignal`: motifs that are implanted into a share of the sequences;
- `CloneSignal`, `CarrierTable`: public clones;
- `DiffuseSignal`: a preference for many k-mers and genes.

`load_recipe` reads the recipes that come with deeprc. `write_container` and `write_airr` write cohorts.
"""

from __future__ import annotations

from deeprc.datasets.simulation.background import Background, IndependentBackground
from deeprc.datasets.simulation.carrier_table import CarrierTable
from deeprc.datasets.simulation.clone_signal import CloneSignal
from deeprc.datasets.simulation.cohort import Cohort, Signal
from deeprc.datasets.simulation.cohort_settings import Batch, Counts, GeneShift, Sizes
from deeprc.datasets.simulation.diffuse_signal import DiffuseSignal
from deeprc.datasets.simulation.germline import GermlineBackground
from deeprc.datasets.simulation.imgt import find_imgt_index, list_imgt_positions
from deeprc.datasets.simulation.implanter import Implants
from deeprc.datasets.simulation.lstm import LstmBackground
from deeprc.datasets.simulation.motif import Motif
from deeprc.datasets.simulation.motif_matching import match_motifs
from deeprc.datasets.simulation.motif_signal import MotifSignal
from deeprc.datasets.simulation.pool import SequencePool
from deeprc.datasets.simulation.recipe import list_recipes, load_recipe
from deeprc.datasets.simulation.recombination import RecombinationBackground
from deeprc.datasets.simulation.simulated_dataset import SimulatedDataset
from deeprc.datasets.simulation.write import write_airr, write_container

__all__ = [
    "Background",
    "Batch",
    "CarrierTable",
    "CloneSignal",
    "Cohort",
    "Counts",
    "DiffuseSignal",
    "GeneShift",
    "GermlineBackground",
    "Implants",
    "IndependentBackground",
    "LstmBackground",
    "Motif",
    "MotifSignal",
    "RecombinationBackground",
    "SequencePool",
    "Signal",
    "SimulatedDataset",
    "Sizes",
    "find_imgt_index",
    "list_imgt_positions",
    "list_recipes",
    "load_recipe",
    "match_motifs",
    "write_airr",
    "write_container",
]
