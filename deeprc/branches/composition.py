"""The branch `composition`: a linear function of the 4-mers, the genes and the counts of all sequences of a repertoire.

The features x of a repertoire are the mean number of times that each 4-mer occurs in a sequence, the centred log-ratios
of V and J gene usage (as `VGeneUsage`), how unequal the counts are (`compute_log_top_shares`), and which 3-mers
and genes expanded clones have (`deeprc.branches.expansion`). With the mean x of the training repertoires, the score is

    n / (n + m) * weights . (x - mean),

where n is the number of sequences and m is `NOISE_SEQUENCES`. The factor shrinks the scores of small repertoires, whose
features are mostly noise. The branch also uses k-mers of one, two and three residues that begin a 4-mer: their
frequencies are sums over 4-mers, so their weights are part of the weights of the 4-mers (see
`deeprc.branches.composition_fit`).

Letters: N sequences of one repertoire, T outputs, M 4-mers, G genes of one field, Q features of counts, E 3-mers,
R residues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numba import uint64
from numpy.typing import NDArray
from torch import Tensor

from deeprc.arrays import Floats
from deeprc.baselines.gene_usage import compute_centred_log_ratios
from deeprc.branches.abundances import TOP_FRACTIONS, compute_log_top_shares
from deeprc.branches.expansion import (
    EXPANSION_K,
    N_EXPANSION_KMERS,
    compute_expansion_scores,
    has_known_expansion,
)
from deeprc.branches.genes import check_some_genes_known
from deeprc.branches.linear_function import KIND_NAMES, LinearFunction
from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.sequences import GENE_FIELDS, SequenceArrays
from deeprc.documents import abbreviate, validate
from deeprc.errors import InputError
from deeprc.nn.branches import Branch, to_array

__all__ = ["NOISE_SEQUENCES", "CompositionBranch", "K"]


K = 4
"""Number of residues of a k-mer."""

NOISE_SEQUENCES = 1000
"""Number of sequences, m, at which the score of a repertoire is halved."""

_N_LETTERS = len(AMINO_ACIDS)
_N_KMERS = _N_LETTERS**K
_PLACE_VALUE = _N_LETTERS ** (K - 1)  # of the first residue in the code of a k-mer, a number with the base 20
_EXPANSION_PLACE_VALUE = _N_LETTERS ** (EXPANSION_K - 1)
_MAX_NAMES = 20_000  # largest number of genes of a field; IMGT has a few hundred names
_BLOCK = 65_536  # number of sequences that one thread reads at a time


@dataclass(frozen=True)
class _Description:
    """The description that `CompositionBranch.describe` returns: genes with weights, other features, and doubt."""

    v_call: tuple[str, ...]
    j_call: tuple[str, ...]
    abundances: bool = False  # models of earlier versions do not say it
    expansion: bool = False
    doubtful: bool = False


class _Terms(NamedTuple):
    """The amounts that the k-mers and genes of one sequence of a repertoire add to the scores.

    Attributes
    ----------
    kmer_weights, scale
        Weights of the 4-mers, (T, M), and their common factor.
    constants
        Amount that every sequence adds to each score, (T,).
    v_shares, j_shares
        Amount that a sequence adds by the code of its gene, (T, vocabulary); (T, 0) if genes have no weights.
    """

    kmer_weights: NDArray[np.float32]
    scale: float
    constants: Floats
    v_shares: Floats
    j_shares: Floats


class _ExpansionTerms(NamedTuple):
    """The amounts that the k-mers and genes of one expanded sequence add to the scores because of its expansion.

    Attributes
    ----------
    kmer_weights, factors
        Weights of the 3-mers, (T, E), and the factor of each sequence, (N,).
    constants
        Amount that every sequence adds to each score, (T,).
    v_weights, j_weights
        Weights of the genes by the code of the gene, (T, vocabulary); (T, 0) if genes have none.
    """

    kmer_weights: NDArray[np.float32]
    factors: Floats
    constants: Floats
    v_weights: Floats
    j_weights: Floats


class CompositionBranch(Branch):
    """A linear function of the k-mers, the genes and the counts of a repertoire; see the top of this module.

    Parameters
    ----------
    n_outputs
        Number of outputs, T.
    genes
        Names of the genes that have weights, by field, `v_call` and `j_call`; other genes are ignored.
    reads_abundances
        Whether the features of how unequal the counts are have weights.
    reads_expansion
        Whether the 3-mers and genes of expanded clones have weights.
    is_doubtful
        Whether the evidence for the branch is weak, see `Branch.is_doubtful`.

    Attributes
    ----------
    kmer_weights
        Weights of the 4-mers, (T, M) float32, in the order of `count_kmers`.
    kmer_constants
        Sum of the mean frequencies of the 4-mers in training repertoires times their weights, (T,) float64.
    v_call_weights, j_call_weights
        Weights of the log-ratios of the genes, (T, G) float64 each.
    v_call_centre, j_call_centre
        Mean log-ratios of the training repertoires, (G,) float64 each.
    abundance_weights, abundance_centre
        Weights of the features of the counts, (T, Q) float64, and their means, (Q,) float64; absent if they have none.
    expansion_weights, v_call_expansion_weights, j_call_expansion_weights
        Weights of the 3-mers, (T, E) float32, and genes, (T, G) float64 each, of expanded clones; absent if they have
        none.
    expansion_constants
        Sum of the mean of these features times their weights, (T,) float64.
    """

    name: ClassVar[str] = "composition"

    kmer_weights: Tensor
    kmer_constants: Tensor

    def __init__(
        self,
        n_outputs: int,
        genes: Mapping[str, Sequence[str]] | None = None,
        *,
        reads_abundances: bool = False,
        reads_expansion: bool = False,
        is_doubtful: bool = False,
    ) -> None:
        super().__init__()
        self._is_doubtful = is_doubtful
        self.reads_abundances, self.reads_expansion = reads_abundances, reads_expansion
        self.genes = {field: tuple((genes or {}).get(field, ())) for field in GENE_FIELDS}
        self.register_buffer("kmer_weights", torch.zeros(n_outputs, _N_KMERS))
        self.register_buffer("kmer_constants", torch.zeros(n_outputs, dtype=torch.float64))
        for field, names in self.genes.items():
            self.register_buffer(f"{field}_weights", torch.zeros(n_outputs, len(names), dtype=torch.float64))
            self.register_buffer(f"{field}_centre", torch.zeros(len(names), dtype=torch.float64))
        if reads_abundances:
            n_features = len(TOP_FRACTIONS)
            self.register_buffer("abundance_weights", torch.zeros(n_outputs, n_features, dtype=torch.float64))
            self.register_buffer("abundance_centre", torch.zeros(n_features, dtype=torch.float64))
        if reads_expansion:
            self.register_buffer("expansion_weights", torch.zeros(n_outputs, N_EXPANSION_KMERS))
            self.register_buffer("expansion_constants", torch.zeros(n_outputs, dtype=torch.float64))
            for field, names in self.genes.items():
                shape = (n_outputs, len(names))
                self.register_buffer(f"{field}_expansion_weights", torch.zeros(shape, dtype=torch.float64))

    @property
    def reads_counts(self) -> bool:
        """Whether the scores depend on the counts of the sequences."""
        return self.reads_abundances or self.reads_expansion

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be chance that the branch predicts left-out repertoires, see `Branch`."""
        return self._is_doubtful

    @property
    def features(self) -> list[str]:
        """Which features have weights."""
        functions = [self.get_linear_function(output) for output in range(len(self.kmer_constants))]
        return [
            name for kind, name in KIND_NAMES.items() if any(getattr(function, kind).any() for function in functions)
        ]

    def get_linear_function(self, output: int) -> LinearFunction:
        """Return the weights of all features for one output in 64 bits; features that are not read have 0.

        The genes of `v_call` and `j_call` are end to end, in the order of `genes`.
        """

        def take(name: str, n: int) -> Floats:
            """Return the weights in a buffer, (n,)."""
            buffer = getattr(self, name, None)
            return np.zeros(n) if buffer is None else to_array(buffer[output]).astype(np.float64)

        def take_genes(name: str) -> Floats:
            """Return the weights of the genes of both fields, (G,)."""
            return np.concatenate([take(f"{field}_{name}", len(names)) for field, names in self.genes.items()])

        return LinearFunction(
            kmers=take("kmer_weights", _N_KMERS),
            genes=take_genes("weights"),
            abundances=take("abundance_weights", len(TOP_FRACTIONS)),
            expansion=take("expansion_weights", N_EXPANSION_KMERS),
            gene_expansion=take_genes("expansion_weights"),
        )

    def compute_contributions(self, repertoire: Repertoire) -> Floats:
        """Return the contribution of each sequence of a repertoire to the scores, (N, T); see `Branch`.

        The weight of a k-mer belongs to the sequence that has it. So does the weight of a k-mer or gene of expanded
        clones, times the expansion score of the sequence. The part of a gene's usage is shared by the sequences that
        have the gene, and by all sequences if none has it. How unequal the counts are, and the part that does not
        depend on the repertoire, are shared by all sequences. The part of unknown counts is 0.

        Raises
        ------
        InputError
            If genes have weights and the repertoire's container lacks them.
        """
        n, n_outputs = len(repertoire), len(self.kmer_constants)
        contributions = np.zeros((n_outputs, n))
        if n > 0:
            terms = self._compute_terms(repertoire)
            arrays = repertoire.sequences.arrays([field for field, names in self.genes.items() if names])
            run_in_blocks(_add_terms, n, _BLOCK, arrays, terms, contributions)
            if self.reads_expansion and has_known_expansion(repertoire.counts):
                expansion = self._compute_expansion_terms(repertoire, terms.scale)
                run_in_blocks(_add_expansion, n, _BLOCK, arrays, expansion, contributions)
        return contributions.T

    def _compute_terms(self, repertoire: Repertoire) -> _Terms:
        """Return what the k-mers and genes of a sequence of a repertoire add to the scores."""
        genes, path = repertoire.sequences.genes, repertoire.container.path
        constants = -to_array(self.kmer_constants)
        shares = []
        for field, names in self.genes.items():
            share = np.zeros((len(constants), 0))
            if names:
                if field not in genes:
                    raise InputError(f"{path}: has no {field}, which the branch `composition` of the model needs")
                check_some_genes_known(path, field, names, genes[field].vocabulary)
                share, absent_sum = self._share_gene_scores(field, genes[field])
                constants = constants + absent_sum
            shares.append(share)
        if self.reads_abundances:
            constants = constants + self._score_abundances(repertoire.counts)
        n = len(repertoire)
        scale = 1 / (n + NOISE_SEQUENCES)  # the share of each sequence in n / (n + m)
        v_share, j_share = (share * (n * scale) for share in shares)
        return _Terms(to_array(self.kmer_weights), scale, constants * scale, v_share, j_share)

    def _compute_expansion_terms(self, repertoire: Repertoire, scale: float) -> _ExpansionTerms:
        """Return what the k-mers and genes of a sequence add to the scores because of its expansion."""
        of_genes = []
        for field, names in self.genes.items():
            weights = np.zeros((len(self.kmer_constants), 0))
            if names:
                calls = repertoire.sequences.genes[field]
                index_of = {name: index for index, name in enumerate(names)}
                columns = np.array([index_of.get(name, -1) for name in calls.vocabulary], np.int64)
                known = to_array(self.get_buffer(f"{field}_expansion_weights"))
                weights = np.where(columns >= 0, known[:, columns], 0.0)
            of_genes.append(weights)
        return _ExpansionTerms(
            to_array(self.get_buffer("expansion_weights")),
            compute_expansion_scores(repertoire.counts) * scale,
            -scale * to_array(self.get_buffer("expansion_constants")),
            *of_genes,
        )

    def _score_abundances(self, counts: NDArray[np.uint32]) -> Floats:
        """Return the part of the linear function that comes from unequal counts, (T,): 0 if no count is above 1."""
        weights, centre = (to_array(self.get_buffer(f"abundance_{part}")) for part in ("weights", "centre"))
        return np.asarray(weights @ np.nan_to_num(compute_log_top_shares(counts) - centre, nan=0.0))

    def _share_gene_scores(self, field: str, calls: Categorical) -> tuple[Floats, Floats]:
        """Return the share of a sequence in the score by the code of its gene, (T, vocabulary).

        The second result is the sum of the parts of genes that no sequence has, (T,).
        """
        names = self.genes[field]
        occurrences = calls.count_occurrences()
        code_of = {name: code for code, name in enumerate(calls.vocabulary)}
        codes = np.array([code_of.get(name, -1) for name in names], np.int64)
        counts = np.where(codes >= 0, occurrences[codes], 0)
        weights, centre = (to_array(self.get_buffer(f"{field}_{part}")) for part in ("weights", "centre"))
        gene_scores = weights * (compute_centred_log_ratios(counts[None])[0] - centre)  # (T, G)
        is_present = counts > 0
        shares = np.zeros((len(gene_scores), len(calls.vocabulary)))
        shares[:, codes[is_present]] = gene_scores[:, is_present] / counts[is_present]
        return shares, gene_scores[:, ~is_present].sum(axis=1)

    def describe(self) -> dict[str, Any]:
        """Return the names of the genes, by field, what else has weights, and doubt; see `Branch`."""
        genes = {field: list(names) for field, names in self.genes.items()}
        reads = {"abundances": self.reads_abundances, "expansion": self.reads_expansion}
        return {**genes, **reads, "doubtful": self.is_doubtful}

    @classmethod
    def from_description(cls, description: Any, n_outputs: int, where: str) -> CompositionBranch:
        """Return a branch whose buffers have the right shapes; see `Branch`."""
        valid = validate(description, _Description, where)
        genes = {"v_call": valid.v_call, "j_call": valid.j_call}
        for field, names in genes.items():
            if len(names) > _MAX_NAMES:
                raise InputError(f"{where}: {field}: expected at most {_MAX_NAMES:,} names, found {len(names):,}")
            if len(set(names)) < len(names) or "" in names:
                raise InputError(f"{where}: {field}: expected different names, found {abbreviate(list(names))}")
        reads = {"reads_abundances": valid.abundances, "reads_expansion": valid.expansion}
        return cls(n_outputs, genes, **reads, is_doubtful=valid.doubtful)

    def check(self, where: str) -> None:
        """Raise InputError if a number is not finite; see `Branch`."""
        for name, buffer in self.named_buffers():
            if not bool(torch.isfinite(buffer).all()):
                raise InputError(f"{where}: {name}: expected finite numbers")


@njit(nogil=True, inline="always")
def _sum_weights(
    residues: NDArray[np.uint8], start: int, stop: int, weights: NDArray[np.float32], k: int, place_value: int
) -> float:
    """Return the sum of the weights of a sequence's k-mers. Indices are unsigned, so negative ones need no test.

    `place_value` is that of the first residue in the code of a k-mer, 20 ** (k - 1).
    """
    begin, end = uint64(start), uint64(stop)
    letters, first_place, before = uint64(_N_LETTERS), uint64(place_value), uint64(k - 1)
    total, code = 0.0, uint64(0)
    for at in range(begin, min(begin + before, end)):
        code = code * letters + uint64(residues[at])
    for at in range(begin + before, end):
        code = code * letters + uint64(residues[at])
        total += weights[code]
        code -= first_place * uint64(residues[at - before])
    return total


@njit(nogil=True)
def _add_terms(start: int, stop: int, sequences: SequenceArrays, terms: _Terms, contributions: Floats) -> None:
    """Write the contribution of each sequence from `start` to `stop` to each score, (T, N)."""
    residues, offsets, v, j = sequences.residues, sequences.offsets, sequences.v, sequences.j
    has_v, has_j = terms.v_shares.shape[1] > 0, terms.j_shares.shape[1] > 0
    for output in range(len(contributions)):
        weights = terms.kmer_weights[output]
        for row in range(start, stop):
            weight_sum = _sum_weights(residues, offsets[row], offsets[row + 1], weights, K, _PLACE_VALUE)
            total = terms.constants[output] + terms.scale * weight_sum
            if has_v:
                total += terms.v_shares[output, v[row]]
            if has_j:
                total += terms.j_shares[output, j[row]]
            contributions[output, row] = total


@njit(nogil=True)
def _add_expansion(
    start: int, stop: int, sequences: SequenceArrays, terms: _ExpansionTerms, contributions: Floats
) -> None:
    """Add what each sequence from `start` to `stop` adds because of its expansion to its contributions, (T, N)."""
    residues, offsets, v, j = sequences.residues, sequences.offsets, sequences.v, sequences.j
    has_v, has_j = terms.v_weights.shape[1] > 0, terms.j_weights.shape[1] > 0
    for output in range(len(contributions)):
        weights = terms.kmer_weights[output]
        for row in range(start, stop):
            begin, end = offsets[row], offsets[row + 1]
            weight_sum = _sum_weights(residues, begin, end, weights, EXPANSION_K, _EXPANSION_PLACE_VALUE)
            if has_v:
                weight_sum += terms.v_weights[output, v[row]]
            if has_j:
                weight_sum += terms.j_weights[output, j[row]]
            contributions[output, row] += terms.constants[output] + terms.factors[row] * weight_sum
