"""The sequences of some repertoires with a hash of each, in which searches look for clones that are nearly the same.

Letters: N sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequence_hash import hash_lengths_and_genes, hash_rows

__all__ = ["MAX_SEQUENCES", "HashedSequences", "hash_cohort"]

MAX_SEQUENCES = 1 << 23
"""Largest number of sequences of a cohort in which such searches are made: 8.4 million.

They look at each position of each sequence. In larger cohorts, donors share enough clones themselves."""


class HashedSequences(NamedTuple):
    """N sequences and their hashes.

    Attributes
    ----------
    rows
        Row of each in the container, rising, (N,).
    residues, first_residues, lengths
        Amino acids of some sequences, among them these; index of the first one, and number, (N,) each.
    hashes, length_gene_hashes
        Hash of each, with its genes, and hash of its length and its genes alone, (N,) each.
    repertoires
        Repertoire of each in the container, rising, (N,).
    """

    rows: NDArray[np.int64]
    residues: NDArray[np.uint8]
    first_residues: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    length_gene_hashes: NDArray[np.uint64]
    repertoires: NDArray[np.int32]


def hash_cohort(dataset: RepertoireDataset, gene_fields: Sequence[str] = ()) -> HashedSequences | None:
    """Return the sequences of a dataset; None if there are more than `MAX_SEQUENCES`.

    Parameters
    ----------
    dataset
        Repertoires, each of which is read once.
    gene_fields
        Genes of the clone definition; see `deeprc.datasets.clones.shared.find_shared_clones`.

    Raises
    ------
    InputError
        If the container lacks one of these genes.
    """
    checked = dataset.check_gene_fields(gene_fields)
    repertoires = np.unique(dataset.repertoire_indices)
    offsets = np.asarray(dataset.container.repertoire_offsets)
    sizes = np.diff(offsets)[repertoires]
    if sizes.sum() > MAX_SEQUENCES:
        return None
    rows = np.concatenate([np.zeros(0, np.int64), *(np.arange(*offsets[b : b + 2]) for b in repertoires)])
    arrays, indices = dataset.container.get_arrays_at(rows, checked)
    return HashedSequences(
        rows,
        arrays.residues,
        arrays.offsets[indices],
        arrays.offsets[indices + 1] - arrays.offsets[indices],
        hash_rows(arrays, indices),
        hash_lengths_and_genes(arrays, indices),
        np.repeat(repertoires, sizes).astype(np.int32),
    )
