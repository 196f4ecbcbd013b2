"""How frequent k-mers, genes and residues are in repertoires, among all sequences or with each family counted once.

A large family of B cells has many sequences with the same genes and nearly the same k-mers. If all of them count, a few
families decide how frequent k-mers and genes are. So the branch `composition` may count each family once.

Letters: B repertoires, M 4-mers, G genes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.baselines.gene_usage import count_named_genes, list_genes, take_named_columns
from deeprc.branches.composition_loops import N_KMERS, K
from deeprc.branches.genes import has_heavy_chains, list_frequent_genes
from deeprc.branches.residues import (
    N_PLACED_RESIDUES,
    PlacedResidueCounts,
    count_in_repertoire,
    count_placed_residues,
    make_empty_tables,
    select_counts,
    write_counts,
)
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.clones.families import compute_family_weights
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.kmers import count_kmers
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.progress import track

__all__ = ["RepertoireFrequencies", "has_families"]

_UNIT = 1 << 20  # weights are rounded to 1 / _UNIT, so that k-mers are counted in whole numbers
_MAX_SEQUENCES = 500_000  # of a repertoire of the container; to find the families of more takes too long
_MAX_SHARE = 0.95  # number of families, relative to the sequences, above which it hardly matters what is counted


def has_families(dataset: RepertoireDataset) -> bool:
    """Return whether most sequences of a dataset are heavy chains of B cells, and many of them belong to one family."""
    if dataset.whole().n_sequences.max(initial=0) > _MAX_SEQUENCES:  # families of all repertoires are found at once
        return False
    if not has_heavy_chains(dataset):
        return False
    return bool(RepertoireFrequencies(dataset, of_families=True).sizes.sum() <= _MAX_SHARE * dataset.n_sequences.sum())


class RepertoireFrequencies:
    """The frequencies of k-mers, genes and residues in repertoires. They are cached beside the container.

    Parameters
    ----------
    dataset
        The B repertoires.
    of_families
        Whether each clonal family counts once, instead of each sequence.

    Attributes
    ----------
    sizes
        Number of sequences, or of families, of each repertoire, (B,).
    """

    def __init__(self, dataset: RepertoireDataset, *, of_families: bool) -> None:
        self._dataset = dataset
        self._families = _load_families(dataset) if of_families else None
        self.sizes: Integers = dataset.n_sequences
        if self._families is not None:
            self.sizes = np.asarray(self._families["sizes"][dataset.repertoire_indices])

    def get_kmers(self, kmers: Integers | None = None) -> NDArray[np.float32]:
        """Return how often each 4-mer, or only some of them, occurs in a sequence on average, (B, M).

        The mean over families is a mean of the means within each family.
        """
        if self._families is None:
            return np.asarray(compute_kmer_frequencies(self._dataset, range(K), kmers=kmers))
        rows = self._dataset.repertoire_indices
        return np.asarray(self._families["kmers"][rows if kmers is None else np.ix_(rows, kmers)])

    def count_genes(self, field: str, names: Sequence[str]) -> Integers:
        """Return the number of sequences, or of families, that have each of the named genes, (B, G).

        Raises
        ------
        InputError
            If the container has no calls of this field.
        """
        if self._families is None:
            return count_named_genes(self._dataset, field, names)
        rows = self._families[field][self._dataset.repertoire_indices]
        return take_named_columns(rows, self._families[f"{field}_names"].tolist(), names)

    def count_placed_residues(self, genes: Mapping[str, Sequence[str]]) -> PlacedResidueCounts:
        """Return how many sequences, or families, have which residues, by these genes; see `PlacedResidueCounts`."""
        if self._families is None:
            return count_placed_residues(self._dataset, genes)
        return select_counts(self._families, self._dataset, genes)


def _load_families(dataset: RepertoireDataset) -> Arrays:
    """Return, for all repertoires of a container, `sizes`, (B,), `kmers`, (B, M), and by field the genes, (B, G).

    The tables of `select_counts` are among them, so that the families of a repertoire are found once.
    """

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        n = len(all_repertoires)
        genes = {field: list_genes(all_repertoires, field) for field in all_repertoires.gene_fields}
        arrays: Arrays = {"sizes": np.zeros(n, np.int64), "kmers": np.zeros((n, N_KMERS), np.float32)}
        for field, names in genes.items():
            arrays[f"{field}_names"] = np.array(names, np.str_)
            arrays[field] = np.zeros((n, len(names)), np.int64)
        frequent = {field: list_frequent_genes(all_repertoires, field) for field in genes}
        arrays |= make_empty_tables(n, frequent)
        counted = all_repertoires.map_repertoires(partial(_count_in_families, genes=genes, frequent=frequent))
        for row, counts in enumerate(track(counted, "counting clonal families", n)):
            arrays["sizes"][row], arrays["kmers"][row] = counts.size, counts.kmers
            for field, n_families in counts.genes.items():
                arrays[field][row] = n_families
            write_counts(arrays, row, counts.residues)
        return arrays

    return load_or_compute(dataset, "clonal-families", {"k": K, "residues": N_PLACED_RESIDUES}, compute)


class _FamilyCounts(NamedTuple):
    """Counts in the families of one repertoire: their number, 4-mers, (M,), the families of each gene, and residues."""

    size: int
    kmers: NDArray[np.float32]
    genes: dict[str, Floats]
    residues: Sequence[Floats]


def _count_in_families(
    repertoire: Repertoire, genes: Mapping[str, Sequence[str]], frequent: Mapping[str, Sequence[str]]
) -> _FamilyCounts:
    """Return the counts in one repertoire; those of residues know the `frequent` genes only."""
    weights = compute_family_weights(repertoire)
    size = round(weights.sum())
    kmers = count_kmers(
        repertoire.residues, repertoire.lengths, range(K), weights=np.rint(weights * _UNIT).astype(np.uint32)
    )
    by_field = {}
    for field, names in genes.items():
        calls = repertoire.genes[field]
        n_families = np.rint(calls.sum_weights(weights))  # those of the vocabulary of this repertoire
        by_field[field] = take_named_columns(n_families[None], calls.vocabulary, names)[0]
    residues = count_in_repertoire(repertoire, frequent, weights)
    return _FamilyCounts(size, (kmers / (max(size, 1) * _UNIT)).astype(np.float32), by_field, residues)
