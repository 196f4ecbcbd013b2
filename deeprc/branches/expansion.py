"""Which k-mers and genes expanded clones have: features of the branch `composition`.

After an infection, some clones expand. A class may then differ in which receptors are abundant, although all receptors
are as frequent among the different sequences as in the other class. So each sequence has an expansion score, see
`deeprc.datasets.expansion`, which says how high its count ranks in its repertoire. A feature is the mean, over
the sequences, of the score times the number of occurrences of a k-mer or of a gene (0 or 1). It is above 0 if expanded
clones have it more often than others. If repertoires have few reads, most counts are 1, and the features are nearer
to 0.

Letters: N sequences of one repertoire, B repertoires, E k-mers, G genes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.gene_usage import list_genes, take_named_columns
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.expansion import compute_expansion_scores, has_known_expansion
from deeprc.datasets.kmers import count_kmers
from deeprc.errors import InputError
from deeprc.progress import track

__all__ = [
    "EXPANSION_K",
    "N_EXPANSION_KMERS",
    "compute_expansion_table",
    "compute_gene_expansion_table",
]

EXPANSION_K = 3
"""Number of residues of a k-mer: few sequences have expanded, so longer k-mers are too rare among them."""

N_EXPANSION_KMERS = len(AMINO_ACIDS) ** EXPANSION_K
"""Number of k-mers, E."""

_DECIMALS = 12  # if all sequences have one gene, its feature is exactly 0, and not a varying rounding error
_UNIT = 1 << 20  # scores are rounded to 1 / _UNIT, so that k-mers are counted in whole numbers


def compute_expansion_table(dataset: RepertoireDataset) -> NDArray[np.float32]:
    """Return the features of the k-mers, (B, E); they are cached. NaN if all counts of a repertoire are equal."""
    return np.asarray(_load_tables(dataset)["kmers"][dataset.repertoire_indices])


def compute_gene_expansion_table(dataset: RepertoireDataset, genes: Mapping[str, Sequence[str]]) -> Floats:
    """Return the features of the named genes, (B, G); NaN if all counts of a repertoire are equal. They are cached.

    Parameters
    ----------
    dataset
        The repertoires.
    genes
        Names of the genes by field, `v_call` or `j_call`. The features of the fields are end to end.

    Raises
    ------
    InputError
        If the container has no calls of a field with names.
    """
    tables, columns = _load_tables(dataset), [np.zeros((len(dataset), 0))]
    for field, names in genes.items():
        if names and field not in dataset.gene_fields:
            raise InputError(f"{dataset.container.path}: has no {field}")
        if names:
            rows = tables[field][dataset.repertoire_indices]
            absent = np.where(np.isnan(rows).any(axis=1), np.nan, 0.0)
            columns.append(take_named_columns(rows, tables[f"{field}_names"].tolist(), names, absent=absent))
    return np.hstack(columns)


def _load_tables(dataset: RepertoireDataset) -> Arrays:
    """Return the features of all repertoires of a container: `kmers`, (B, E), and those of the genes by field."""

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        genes = {field: list_genes(all_repertoires, field) for field in all_repertoires.gene_fields}
        computed = all_repertoires.map_repertoires(partial(_compute_rows, genes=genes))
        rows = list(track(computed, "reading expanded clones", len(all_repertoires)))
        n, kmers = len(all_repertoires), [clone for clone, _ in rows]
        arrays: Arrays = {"kmers": np.array(kmers, np.float32).reshape(n, N_EXPANSION_KMERS)}
        for field, names in genes.items():
            arrays[field] = np.array([by_field[field] for _, by_field in rows]).reshape(n, len(names))
            arrays[f"{field}_names"] = np.array(names, np.str_)
        return arrays

    return load_or_compute(dataset, "expanded-clones", {"k": EXPANSION_K}, compute)


def _compute_rows(
    repertoire: Repertoire, genes: Mapping[str, Sequence[str]]
) -> tuple[NDArray[np.float32], dict[str, Floats]]:
    """Return the features of the k-mers, (E,), and of the genes by field, (G,) each."""
    if not has_known_expansion(repertoire.counts):
        unknown = {field: np.full(len(names), np.nan) for field, names in genes.items()}
        return np.full(N_EXPANSION_KMERS, np.nan, np.float32), unknown
    scores = compute_expansion_scores(repertoire.counts)
    by_field = {field: _sum_by_gene(repertoire.genes[field], scores, names) for field, names in genes.items()}
    return _count_weighted_kmers(repertoire, scores), by_field


def _sum_by_gene(calls: Categorical, scores: Floats, names: Sequence[str]) -> Floats:
    sums = calls.sum_weights(scores) / len(scores)
    return np.asarray(np.round(take_named_columns(sums[None], calls.vocabulary, names)[0], _DECIMALS))


def _count_weighted_kmers(repertoire: Repertoire, scores: Floats) -> NDArray[np.float32]:
    """Return the sum of the expansion scores over the occurrences of each 3-mer, per sequence, (8000,)."""
    weights = np.rint((scores + 1) * _UNIT).astype(np.uint32)
    spacing = tuple(range(EXPANSION_K))
    weighted, plain = (
        count_kmers(repertoire.residues, repertoire.lengths, spacing, weights=kmer_weights)
        for kmer_weights in (weights, None)
    )
    return ((weighted / _UNIT - plain) / len(repertoire)).astype(np.float32)
