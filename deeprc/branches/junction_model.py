"""How probable is a junction? A Markov chain of third order, learned from the training sequences without any label.

A residue depends on its place and on the three residues before it. Places are the first six positions of a junction,
its last seven, and all others together, because the ends of a junction come from the V and the J gene. Where few
sequences have the same three residues, two of them count more, and so on.

Probabilities of this kind stand for the generation probability of a receptor (Elhanati et al. 2018, Immunological
Reviews 284:167), which also needs nucleotides, and a model of the locus and species.

Letters: E residues, n sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.compilation import open_threads
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import Sequences
from deeprc.progress import track

__all__ = ["JunctionModel", "compute_log_probabilities"]

_N_RESIDUES = len(AMINO_ACIDS)
_NONE = _N_RESIDUES  # stands for a residue before the first one
_ORDER = 3
_N_FIRST, _N_LAST = 6, 7
_SHAPE = (_N_FIRST + _N_LAST + 1, *(_N_RESIDUES + 1,) * _ORDER, _N_RESIDUES)
_PSEUDO_COUNTS = 20.0
"""Weight of a shorter context, as a number of sequences."""

_MAX_LENGTH = 63  # longer junctions have the probability of this length
_MAX_SEQUENCES = 10_000_000  # number of sequences that the chain learns from, in even distances if there are more
_BLOCK = 1 << 16  # number of sequences that are read at a time; each thread takes about a kilobyte for each


@dataclass(frozen=True)
class JunctionModel:
    """The Markov chain, as counts of the residues that follow on other residues.

    Attributes
    ----------
    counts
        Number of residues by place, the residues before, the farthest first, and the residue itself, flat; from no
        residue before to three of them.
    lengths
        Number of sequences by length, (64,).
    distance
        Number of rows from one counted sequence of a repertoire to the next; 1 if all sequences are counted.
    """

    counts: tuple[Integers, ...]
    lengths: Integers
    distance: int

    @cached_property
    def _context_counts(self) -> list[Integers]:
        """How often each context occurs, by the number of residues before."""
        return [counts.reshape(-1, _N_RESIDUES).sum(axis=1) for counts in self.counts]

    @classmethod
    def fit(cls, dataset: RepertoireDataset) -> JunctionModel:
        """Learn the chain from the sequences of all repertoires, each as often as repertoires have it."""
        distance = max(1, -(-int(dataset.n_sequences.sum()) // _MAX_SEQUENCES))
        rows = _list_rows(dataset, distance)
        residues, lengths = np.zeros(np.prod(_SHAPE), np.int64), np.zeros(_MAX_LENGTH + 1, np.int64)

        def count(start: int) -> tuple[Integers, Integers]:
            sequences = dataset.take_clones(rows[start : start + _BLOCK])
            contexts = np.bincount(_encode_contexts(sequences), minlength=len(residues))
            return contexts, np.bincount(_cap_lengths(sequences), minlength=len(lengths))

        starts = range(0, len(rows), _BLOCK)
        with open_threads() as threads:
            for of_residues, of_lengths in track(threads.map(count, starts), "reading junctions", len(starts)):
                residues += of_residues
                lengths += of_lengths
        by_order = [residues.reshape(_SHAPE)]
        for _ in range(_ORDER):
            by_order.insert(0, by_order[0].sum(axis=1))  # without the farthest residue
        return cls(tuple(counts.ravel() for counts in by_order), lengths, distance)

    def compute_log_probabilities(self, sequences: Sequences, n_copies: Integers) -> Floats:
        """Return the natural logarithm of the probability of each sequence, (n,).

        Parameters
        ----------
        sequences
            The n sequences.
        n_copies
            How often each of them is among the sequences of the dataset, (n,). These copies do not count: otherwise, a
            sequence of a small dataset would be probable because repertoires have it.
        """
        lengths, n_copies = _cap_lengths(sequences), n_copies // self.distance
        own = np.repeat(n_copies, np.diff(sequences.offsets))
        codes = _encode_contexts(sequences)
        probability = np.full(len(codes), 1 / _N_RESIDUES)
        for order, counts in enumerate(self.counts):
            of_order = codes if order == _ORDER else _shorten_contexts(codes, order)
            n_before = self._context_counts[order][of_order // _N_RESIDUES]
            weight = _PSEUDO_COUNTS if order else float(_N_RESIDUES)
            n_residues, n_before = np.maximum(counts[of_order] - own, 0), np.maximum(n_before - own, 0)
            probability = (n_residues + weight * probability) / (n_before + weight)
        n_of_length, n = np.maximum(self.lengths[lengths] - n_copies, 0), self.lengths.sum() - n_copies
        of_lengths = np.log((n_of_length + 0.5) / (n + 0.5 * len(self.lengths)))
        log_probabilities: Floats = np.add.reduceat(np.log(probability), sequences.offsets[:-1]) + of_lengths
        return log_probabilities


def compute_log_probabilities(
    model: JunctionModel, dataset: RepertoireDataset, rows: Integers, n_copies: Integers
) -> Floats:
    """Return the natural logarithm of the probability of the sequence at each row of the container, (n,).

    `n_copies` is the number of repertoires of the dataset that have each sequence, (n,).
    """

    def compute(start: int) -> Floats:
        block = slice(start, start + _BLOCK)
        return model.compute_log_probabilities(dataset.take_clones(rows[block]), n_copies[block])

    starts = range(0, len(rows), _BLOCK)
    with open_threads() as threads:
        blocks = [*track(threads.map(compute, starts), "probabilities of junctions", len(starts))]
    return np.concatenate([np.zeros(0), *blocks])


def _list_rows(dataset: RepertoireDataset, distance: int) -> Integers:
    """Return the rows of the sequences to learn from, in each repertoire in this distance."""
    offsets = np.asarray(dataset.container.repertoire_offsets)
    of_repertoires = [np.arange(offsets[i], offsets[i + 1], distance) for i in dataset.repertoire_indices]
    return np.concatenate([np.zeros(0, np.int64), *of_repertoires])


def _encode_contexts(sequences: Sequences) -> NDArray[np.int32]:
    """Return the index of each residue in a flat array of the shape `_SHAPE`, (E,)."""
    residues, offsets, lengths = np.asarray(sequences.residues), sequences.offsets, np.diff(sequences.offsets)
    index = np.arange(len(residues), dtype=np.int32)
    from_start = index - np.repeat(offsets[:-1].astype(np.int32), lengths)
    from_end = np.repeat(offsets[1:].astype(np.int32), lengths) - index  # 1 for the last residue
    middle = np.int32(_N_FIRST + _N_LAST)
    place = np.where(from_end <= _N_LAST, _N_FIRST - 1 + from_end, middle)
    code = np.where(from_start < _N_FIRST, from_start, place)
    for distance in range(_ORDER, 0, -1):
        before = np.full(len(residues), _NONE, np.int32)
        before[distance:] = residues[:-distance]
        before[from_start < distance] = _NONE
        code = code * np.int32(_N_RESIDUES + 1) + before
    return code * np.int32(_N_RESIDUES) + residues


def _cap_lengths(sequences: Sequences) -> Integers:
    return np.minimum(np.diff(sequences.offsets), _MAX_LENGTH)


def _shorten_contexts(codes: NDArray[np.int32], order: int) -> NDArray[np.int32]:
    """Return the indices that residues have if only so many residues before count, (E,), from those of all three."""
    n_near = (_N_RESIDUES + 1) ** order * _N_RESIDUES
    place = codes // np.int32((_N_RESIDUES + 1) ** _ORDER * _N_RESIDUES)
    return place * np.int32(n_near) + codes % np.int32(n_near)
