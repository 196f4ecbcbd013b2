"""Which residues are at each IMGT position of the junctions: features of the branch `composition`.

A V gene encodes the first residues of a junction, and a J gene the last ones. So the plain frequencies of residues
mostly repeat which genes a repertoire uses. These features leave gene usage out, because they compare sequences with
others of the same genes. The feature of a V gene, a position and a residue is

    (number of sequences with the V gene and the residue at the position - expected number) / number of all sequences.

Each sequence with the V gene v and the J gene j adds f(v) + f(j) - f to the expected number. Here f is the share of the
training repertoires' sequences that have the residue at the position, and f(v) and f(j) are the shares among those
with the gene.

Positions are those of the CDR3 by IMGT, 105 to 117 (`deeprc.datasets.simulation.imgt`). All residues between 111 and
112 count as one position, `insertion`. The conserved residues at both ends do not count, but every other residue counts
at one position. So the sum over positions and residues is the number of residues, also relative to what is expected
from the genes.

Letters: N sequences of one repertoire, B repertoires, G V genes and H J genes, each with one more for all sequences
whose gene is another one or unknown; F = 280 pairs of a position and a residue; T outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.branches.genes import list_frequent_genes
from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequences import GENE_FIELDS, SequenceArrays
from deeprc.progress import track

__all__ = [
    "N_PLACED_RESIDUES",
    "POSITIONS",
    "ExpectedResidues",
    "PlacedResidueCounts",
    "ResidueTerms",
    "add_residue_terms",
    "count_in_repertoire",
    "count_placed_residues",
    "find_placed_residues",
    "find_position",
    "index_genes",
    "index_sequences",
    "make_empty_tables",
    "name_placed_residues",
    "select_counts",
    "write_counts",
]

POSITIONS: Sequence[str] = (*(str(position) for position in range(105, 118)), "insertion")
"""Names of the positions; the last one is for all residues between 111 and 112."""

N_PLACED_RESIDUES = len(POSITIONS) * len(AMINO_ACIDS)
"""Number of pairs of a position and a residue, F. Those of one position follow each other."""

_N_LETTERS = len(AMINO_ACIDS)
_N_FRONT, _N_BACK = 7, 6  # number of positions up to 111, and from 112
_NAMES_KEY = "residue_{field}"  # of the names of the genes in tables
_DECIMALS = 10  # a feature that is 0 but for rounding is exactly 0


class PlacedResidueCounts(NamedTuple):
    """How many sequences of B repertoires have which residues; clonal families may count once each.

    Attributes
    ----------
    by_v, by_j
        Number of sequences with each gene that have each residue at each position, (B, G, F) and (B, H, F).
    pairs
        Number of sequences with each pair of genes, (B, G, H).
    """

    by_v: NDArray[np.float32]
    by_j: NDArray[np.float32]
    pairs: Floats


class ExpectedResidues(NamedTuple):
    """How many of the residues at each position are expected from the genes of a sequence.

    Attributes
    ----------
    by_v, by_j
        Share of the sequences with a gene that have each residue at each position, (G, F) and (H, F). From those by V
        gene, the share among all sequences is subtracted. So the expected number is the sum of both.
    """

    by_v: Floats
    by_j: Floats

    @classmethod
    def learn(cls, counts: PlacedResidueCounts) -> ExpectedResidues:
        """Return the shares among all sequences of B repertoires; a gene that none has gets those of all sequences."""
        pairs = counts.pairs.sum(axis=0)
        residues_by_gene = [np.asarray(part.sum(axis=0, dtype=np.float64)) for part in (counts.by_v, counts.by_j)]
        of_all = residues_by_gene[0].sum(axis=0) / max(pairs.sum(), 1)
        shares = [
            np.where(sizes[:, None] > 0, residues / np.maximum(sizes, 1e-9)[:, None], of_all)
            for residues, sizes in zip(residues_by_gene, (pairs.sum(axis=1), pairs.sum(axis=0)), strict=True)
        ]
        return cls(shares[0] - of_all, shares[1])

    def compute_features(self, counts: PlacedResidueCounts) -> tuple[NDArray[np.float32], Floats, Floats]:
        """Return the features of B repertoires, (B, G, F), and their sums over the V genes, (B, F), and over F, (B, G).

        Those of a repertoire without sequences are 0. The sums are exact, although the features have 32 bits.
        """
        sizes = np.maximum(counts.pairs.sum(axis=(1, 2)), 1e-9)
        features, sums = np.zeros(counts.by_v.shape, np.float32), np.zeros((len(sizes), N_PLACED_RESIDUES))
        lengths = np.zeros(features.shape[:2])
        for row, (by_v, pairs, size) in enumerate(zip(counts.by_v, counts.pairs, sizes, strict=True)):
            has_gene = pairs.any(axis=1)  # the features of other genes are 0; a repertoire lacks most of a long list
            expected = pairs[has_gene].sum(axis=1)[:, None] * self.by_v[has_gene] + pairs[has_gene] @ self.by_j
            of_repertoire = (by_v[has_gene] - expected) / size
            features[row, has_gene] = np.round(of_repertoire, _DECIMALS)
            sums[row] = np.round(of_repertoire.sum(axis=0), _DECIMALS)
            lengths[row, has_gene] = np.round(of_repertoire.sum(axis=1), _DECIMALS)
        return features, sums, lengths

    def sum_weights(self, weights: Floats) -> Floats:
        """Return the sum of the weights, (T, G, F), over the residues expected of each pair of genes, (T, G, H)."""
        of_v = np.einsum("tgf,gf->tg", weights, self.by_v)
        return np.asarray(of_v[:, :, None] + weights @ self.by_j.T)


class ResidueTerms(NamedTuple):
    """The amounts that the residues of a sequence add to the scores.

    A sequence adds factor * (sum of the weights of its residues - expected sum of its genes).

    Attributes
    ----------
    factors
        Factor of each sequence, (N,).
    weights, expected
        Weights of the residues, (T, G, F), and the expected sum for each pair of genes, (T, G, H).
    v_indices, j_indices
        Index of each gene of the repertoire's vocabulary among the G and the H genes, (vocabulary,); (0,) if G, or H,
        is 1.
    """

    factors: Floats
    weights: NDArray[np.float32]
    expected: Floats
    v_indices: NDArray[np.int64]
    j_indices: NDArray[np.int64]


def count_placed_residues(dataset: RepertoireDataset, genes: Mapping[str, Sequence[str]]) -> PlacedResidueCounts:
    """Return how many sequences have which residues. The counts are cached beside the container.

    Parameters
    ----------
    dataset
        The B repertoires.
    genes
        Names of the genes by field. Sequences with other genes, with unknown ones, or with genes that are not among the
        most frequent of the container (`list_frequent_genes`) are counted together.
    """

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        names = {field: list_frequent_genes(all_repertoires, field) for field in all_repertoires.gene_fields}
        tables = make_empty_tables(len(all_repertoires), names)
        counted = all_repertoires.map_repertoires(partial(count_in_repertoire, genes=names))
        for row, counts in enumerate(track(counted, "counting residues at positions", len(all_repertoires))):
            write_counts(tables, row, counts)
        return tables

    return select_counts(load_or_compute(dataset, "residues", {}, compute), dataset, genes)


def make_empty_tables(n: int, genes: Mapping[str, Sequence[str]]) -> Arrays:
    """Return tables for the counts of n repertoires, by genes with these names; `write_counts` fills them."""
    n_v, n_j = (1 + len(genes.get(field, ())) for field in GENE_FIELDS)
    by_v, by_j = (np.zeros((n, n_genes, N_PLACED_RESIDUES), np.float32) for n_genes in (n_v, n_j))
    names = {_NAMES_KEY.format(field=field): np.array(genes.get(field, ()), np.str_) for field in GENE_FIELDS}
    return {"by_v": by_v, "by_j": by_j, "pairs": np.zeros((n, n_v, n_j)), **names}


def write_counts(tables: Arrays, row: int, counts: Sequence[Floats]) -> None:
    """Write the counts of one repertoire, a result of `count_in_repertoire`, into a row of the tables."""
    for name, of_repertoire in zip(PlacedResidueCounts._fields, counts, strict=True):
        tables[name][row] = of_repertoire


def select_counts(
    tables: Arrays, dataset: RepertoireDataset, genes: Mapping[str, Sequence[str]]
) -> PlacedResidueCounts:
    """Return the counts of the repertoires of a dataset, by these genes, from tables of all of its container."""
    rows = dataset.repertoire_indices
    v_indices, j_indices = (
        _index_names([*tables[_NAMES_KEY.format(field=field)].tolist(), ""], genes.get(field, ()))
        for field in GENE_FIELDS
    )
    pairs = _sum_rows(_sum_rows(tables["pairs"][rows], v_indices, axis=1), j_indices, axis=2)
    return PlacedResidueCounts(
        _take_genes(tables["by_v"], rows, v_indices), _take_genes(tables["by_j"], rows, j_indices), pairs
    )


def name_placed_residues() -> list[str]:
    """Return the name of each residue at a position, such as `L at 108`, F texts."""
    places = [*(f"at {position}" for position in POSITIONS[:-1]), "between 111 and 112"]
    return [f"{residue} {place}" for place in places for residue in AMINO_ACIDS]


def index_genes(calls: Categorical | None, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the index of each gene of a vocabulary among some names, (vocabulary,); their number for another gene.

    If there are no calls or no names, the result is empty: the compiled loops then read no genes.
    """
    return _index_names(calls.vocabulary, names) if calls is not None and names else np.zeros(0, np.int64)


def index_sequences(repertoire: Repertoire, field: str, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the index of the gene of each sequence among some names, (N,); their number for another gene."""
    calls = repertoire.sequences.genes.get(field)
    if calls is None or not names:
        return np.zeros(len(repertoire), np.int64)
    return np.asarray(index_genes(calls, names)[calls.codes])


def _index_names(vocabulary: Sequence[str], names: Sequence[str]) -> NDArray[np.int64]:
    index_of = {name: index for index, name in enumerate(names)}
    return np.array([index_of.get(name, len(names)) for name in vocabulary], np.int64)


def _take_genes(
    table: NDArray[np.float32], repertoires: NDArray[np.int64], indices: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the counts of some repertoires, (B, G, F), where rows of the same gene, by its index, are summed.

    The last index is that of all other genes. Repertoires are read one by one: a second copy of all would be large.
    """
    n_named = int(indices[-1])
    is_named = indices < n_named
    taken = np.zeros((len(repertoires), n_named + 1, N_PLACED_RESIDUES), np.float32)
    for row, repertoire in enumerate(repertoires.tolist()):
        taken[row, indices[is_named]] = table[repertoire, is_named]
        taken[row, n_named] = table[repertoire, ~is_named].sum(axis=0)
    return taken


def _sum_rows(table: Floats, indices: NDArray[np.int64], *, axis: int) -> Floats:
    """Return the sums of the rows of an axis that have the same index; the highest index is that of the last row."""
    rows = np.moveaxis(table, axis, 0)
    sums = np.zeros((int(indices[-1]) + 1, *rows.shape[1:]))
    for row, index in zip(rows, indices.tolist(), strict=True):
        sums[index] += row
    return np.moveaxis(sums, 0, axis)


def count_in_repertoire(
    repertoire: Repertoire, genes: Mapping[str, Sequence[str]], factors: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Return the three counts of one repertoire, (G, F), (H, F) and (G, H), see `PlacedResidueCounts`.

    Each sequence counts as much as its factor, (N,), says; once without factors.
    """
    names = [genes.get(field, ()) for field in GENE_FIELDS]
    n_v, n_j = (1 + len(of_field) for of_field in names)
    by_v, by_j, pairs = np.zeros((n_v, N_PLACED_RESIDUES)), np.zeros((n_j, N_PLACED_RESIDUES)), np.zeros((n_v, n_j))
    factors = np.ones(len(repertoire)) if factors is None else factors
    fields = [field for field, of_field in zip(GENE_FIELDS, names, strict=True) if of_field]
    calls = repertoire.sequences.genes
    v_indices, j_indices = (index_genes(calls.get(field), genes.get(field, ())) for field in GENE_FIELDS)
    _add_counts(repertoire.sequences.arrays(fields), factors, v_indices, j_indices, by_v, by_j, pairs)
    return by_v, by_j, pairs


@njit(nogil=True)
def find_position(index: int, length: int) -> int:
    """Return which of `POSITIONS` a residue is at, by its index in a junction of this length; not for its two ends."""
    if index <= (length - 1) // 2:
        return index - 1 if index <= _N_FRONT else _N_FRONT + _N_BACK
    from_back = length - 1 - index
    return _N_FRONT + _N_BACK - from_back if from_back <= _N_BACK else _N_FRONT + _N_BACK


@njit(nogil=True)
def _add_counts(
    sequences: SequenceArrays,
    factors: Floats,
    v_indices: NDArray[np.int64],
    j_indices: NDArray[np.int64],
    by_v: Floats,
    by_j: Floats,
    pairs: Floats,
) -> None:
    """Add the residues of N sequences, times their factors, to the counts of `count_in_repertoire`."""
    for row in range(len(sequences.offsets) - 1):
        v = v_indices[sequences.v[row]] if len(v_indices) > 0 else 0
        j = j_indices[sequences.j[row]] if len(j_indices) > 0 else 0
        start, length = sequences.offsets[row], sequences.offsets[row + 1] - sequences.offsets[row]
        pairs[v, j] += factors[row]
        for index in range(1, length - 1):
            placed = find_position(index, length) * _N_LETTERS + sequences.residues[start + index]
            by_v[v, placed] += factors[row]
            by_j[j, placed] += factors[row]


@njit(nogil=True)
def add_residue_terms(
    start: int, stop: int, sequences: SequenceArrays, terms: ResidueTerms, contributions: Floats
) -> None:
    """Add to the contributions, (T, N), what each sequence from `start` to `stop` adds because of its residues."""
    for output in range(len(contributions)):
        weights, expected = terms.weights[output], terms.expected[output]
        for row in range(start, stop):
            v = terms.v_indices[sequences.v[row]] if len(terms.v_indices) > 0 else 0
            j = terms.j_indices[sequences.j[row]] if len(terms.j_indices) > 0 else 0
            first, length = sequences.offsets[row], sequences.offsets[row + 1] - sequences.offsets[row]
            total = -expected[v, j]
            for index in range(1, length - 1):
                placed = find_position(index, length) * _N_LETTERS + sequences.residues[first + index]
                total += weights[v, placed]
            contributions[output, row] += terms.factors[row] * total


def find_placed_residues(residues: Integers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the residues of a junction, (L,), that are at a position, and their index among F pairs."""
    indices = np.arange(1, len(residues) - 1)
    positions = np.array([find_position(index, len(residues)) for index in indices.tolist()], np.int64)
    return indices, positions * _N_LETTERS + residues[indices]
