"""Simulated cohorts with implanted signals: exact, seeded, as large as one likes.

    from deeprc.datasets.simulation import Cohort, Motif, Signal, Sizes, SimulatedDataset

    cohort = Cohort(100, Sizes(10_000), signals=(Signal((Motif("SF(d)EN"),), witness_rate=0.01),))
    dataset = SimulatedDataset(cohort)  # nothing is made yet
    dataset[3].sequences.decode(), dataset[3].witness

A `Cohort` has a `Background`, where its sequences come from, and `Signal`s, which are made of `Motif`s and implanted
into the repertoires of one class at a witness rate. `load_recipe` reads the paper's cohorts, `write_container` and
`write_airr` write them.
"""

from __future__ import annotations

from deeprc.datasets.simulation.background import Background, DrawnSequences, IndependentBackground
from deeprc.datasets.simulation.cohort import Batch, Cohort, Counts, GeneShift, Sizes
from deeprc.datasets.simulation.dataset import SimulatedDataset
from deeprc.datasets.simulation.germline import GermlineBackground
from deeprc.datasets.simulation.imgt import imgt_index, imgt_positions
from deeprc.datasets.simulation.lstm import LstmBackground
from deeprc.datasets.simulation.motif import Motif
from deeprc.datasets.simulation.pool import SequencePool
from deeprc.datasets.simulation.recipe import load_recipe, recipes
from deeprc.datasets.simulation.recombination import RecombinationBackground
from deeprc.datasets.simulation.search import find_motifs
from deeprc.datasets.simulation.signal import Implants, Signal
from deeprc.datasets.simulation.write import write_airr, write_container

__all__ = [
    "Background",
    "Batch",
    "Cohort",
    "Counts",
    "DrawnSequences",
    "GeneShift",
    "GermlineBackground",
    "Implants",
    "IndependentBackground",
    "LstmBackground",
    "Motif",
    "RecombinationBackground",
    "SequencePool",
    "Signal",
    "SimulatedDataset",
    "Sizes",
    "find_motifs",
    "imgt_index",
    "imgt_positions",
    "load_recipe",
    "recipes",
    "write_airr",
    "write_container",
]
