"""Count lengths, residues by position and hashes of the sequences of each repertoire, once for a container.

Letters: B repertoires, N sequences of a repertoire, P positions, H hashes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.checks.container import hash_repertoire
from deeprc.checks.profile import sample_hashes
from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.progress import track

__all__ = ["MAX_SKETCH", "POSITIONS", "Measurements", "measure_repertoires"]

MAX_SKETCH = 1024
"""The number of smallest hashes of junctions that are kept for a repertoire: a random sample of its junctions."""

_N_FIRST, _N_LAST = 6, 5

POSITIONS = (
    *(f"residue {position}" for position in range(1, _N_FIRST + 1)),
    *("last residue", *(f"residue {position} from the end" for position in range(2, _N_LAST + 1))),
    "any residue",
)
"""The names of the P positions of a junction whose residues are counted."""

_VERSION = 1  # version of the arrays in the cache beside the container
_N_LETTERS = len(AMINO_ACIDS)


@dataclass(frozen=True)
class Measurements:
    """The counts of B repertoires.

    Attributes
    ----------
    residues
        The number of each residue at each position, (B, P, 20).
    length_sums
        The number of sequences, the sum of their lengths, and that of the squared lengths, (B, 3).
    sketches
        The `MAX_SKETCH` smallest of the different hashes of each repertoire's junctions, (B) times uint64, sorted.
    is_sampled
        Whether a repertoire has more hashes than its sketch.
    """

    residues: NDArray[np.int64]
    length_sums: NDArray[np.int64]
    sketches: list[NDArray[np.uint64]]
    is_sampled: list[bool]


def measure_repertoires(dataset: RepertoireDataset) -> Measurements:
    """Return the counts of the repertoires of a dataset; the cache keeps them for the whole container."""
    arrays = load_or_compute(dataset, "shift", {"version": _VERSION}, _measure_all)
    bounds = [arrays["sketch_offsets"][row : row + 2].tolist() for row in dataset.repertoire_indices]
    return Measurements(
        np.asarray(arrays["residues"][dataset.repertoire_indices]),
        np.asarray(arrays["length_sums"][dataset.repertoire_indices]),
        [np.asarray(arrays["sketch_hashes"][start:stop]) for start, stop in bounds],
        np.asarray(arrays["is_sampled"][dataset.repertoire_indices], np.bool_).tolist(),
    )


def _measure_all(all_repertoires: RepertoireDataset) -> Arrays:
    parts = list(
        track(all_repertoires.map_repertoires(_measure_repertoire), "measuring repertoires", len(all_repertoires))
    )
    sketches = [sketch for _, _, sketch, _ in parts]
    return {
        "residues": np.array([residues for residues, _, _, _ in parts]).reshape(-1, len(POSITIONS), _N_LETTERS),
        "length_sums": np.array([sums for _, sums, _, _ in parts], np.int64).reshape(-1, 3),
        "is_sampled": np.array([is_sampled for _, _, _, is_sampled in parts], np.int64),
        "sketch_offsets": compute_offsets(np.array([len(sketch) for sketch in sketches], np.int64)),
        "sketch_hashes": np.concatenate([*sketches, np.zeros(0, np.uint64)]),
    }


def _measure_repertoire(repertoire: Repertoire) -> tuple[NDArray[np.int64], list[int], NDArray[np.uint64], bool]:
    """Return residue counts by position, moments of the lengths, a sketch, and whether the sketch is a sample."""
    lengths = np.asarray(repertoire.lengths)
    residues = np.zeros((len(POSITIONS), _N_LETTERS), np.int64)
    _count_residues(
        np.ascontiguousarray(repertoire.residues), np.ascontiguousarray(repertoire.offsets), _N_FIRST, _N_LAST, residues
    )
    sketch, is_sampled = sample_hashes(hash_repertoire(repertoire, gene_fields=()), MAX_SKETCH)
    sums = [len(lengths), int(lengths.sum()), int((lengths**2).sum())]
    return residues, sums, sketch, is_sampled


@njit(nogil=True)
def _count_residues(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    n_first: int,
    n_last: int,
    counts: NDArray[np.int64],
) -> None:
    """Add to `counts` the residues at the first and last positions, and in its last row those of whole sequences."""
    for n in range(len(offsets) - 1):
        start, stop = offsets[n], offsets[n + 1]
        for position in range(min(n_first, stop - start)):
            counts[position, residues[start + position]] += 1
        for position in range(min(n_last, stop - start)):
            counts[n_first + position, residues[stop - 1 - position]] += 1
        for at in range(start, stop):
            counts[n_first + n_last, residues[at]] += 1
