"""The branch `composition`: a linear function of the 4-mers, the genes and the counts of all sequences of a repertoire.

The features x of a repertoire are the mean number of times that each 4-mer occurs in a sequence, the centred log-ratios
of V and J gene usage (as `VGeneUsage`), how diverse the counts are (`compute_abundance_features`), and which 3-mers
and genes expanded clones have (`deeprc.branches.expansion`). With the mean x of the training repertoires, the score is

    n / (n + m) * weights . (x - mean),

where n is the number of sequences and m is `NOISE_SEQUENCES`. The factor shrinks the scores of small repertoires, whose
features are mostly noise. For B cells, a branch may count each clonal family once instead of each sequence: in n, and
in the frequencies of k-mers and genes (`deeprc.branches.frequencies`).

The branch also uses k-mers of one, two and three residues that begin a 4-mer: their frequencies are sums over 4-mers,
so their weights are part of the weights of the 4-mers (see `deeprc.branches.composition_fit`).

Letters: N sequences of one repertoire, T outputs, M 4-mers, G genes of one field, Q features of counts, E 3-mers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from deeprc.arrays import Floats
from deeprc.baselines.gene_usage import compute_centred_log_ratios
from deeprc.branches.abundances import compute_abundance_features, name_abundance_features
from deeprc.branches.composition_loops import (
    N_KMERS,
    ExpansionTerms,
    FrequencyTerms,
    K,
    add_expansion_terms,
    write_frequency_terms,
)
from deeprc.branches.expansion import N_EXPANSION_KMERS, compute_expansion_scores, has_known_expansion
from deeprc.branches.genes import check_some_genes_known
from deeprc.branches.linear_function import KIND_NAMES, LinearFunction, name_kind
from deeprc.compilation import run_in_blocks
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones.families import compute_family_weights
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.documents import abbreviate, validate
from deeprc.errors import InputError
from deeprc.nn.branches import Branch, to_array

__all__ = ["NOISE_SEQUENCES", "CompositionBranch", "K"]

NOISE_SEQUENCES = 1000
"""Number of sequences, m, at which the score of a repertoire is halved."""

_MAX_NAMES = 20_000  # largest number of genes of a field; IMGT has a few hundred names
_BLOCK = 65_536  # number of sequences that one thread reads at a time


class _GeneBuffers(NamedTuple):
    """The names of the buffers of one field of genes."""

    weights: str
    centre: str
    expansion_weights: str


_GENE_BUFFERS = {
    field: _GeneBuffers(f"{field}_weights", f"{field}_centre", f"{field}_expansion_weights") for field in GENE_FIELDS
}


@dataclass(frozen=True)
class _Description:
    """The description that `CompositionBranch.describe` returns: genes with weights, other features, and doubt."""

    v_call: tuple[str, ...]
    j_call: tuple[str, ...]
    abundances: bool = False  # models of earlier versions do not say it
    richness_depth: int = 0
    expansion: bool = False
    families: bool = False
    doubtful: bool = False


class CompositionBranch(Branch):
    """A linear function of the k-mers, the genes and the counts of a repertoire; see the top of this module.

    Parameters
    ----------
    n_outputs
        Number of outputs, T.
    genes
        Names of the genes that have weights, by field, `v_call` and `j_call`; other genes are ignored.
    reads_abundances
        Whether the features of how diverse the counts are have weights.
    richness_depth
        Number of counts at which numbers of clones are compared; if it is 0, this feature is left out.
    reads_expansion
        Whether the 3-mers and genes of expanded clones have weights.
    counts_families
        Whether each clonal family counts once in the frequencies of k-mers and genes, instead of each sequence.
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
        richness_depth: int = 0,
        reads_expansion: bool = False,
        counts_families: bool = False,
        is_doubtful: bool = False,
    ) -> None:
        super().__init__()
        self._is_doubtful = is_doubtful
        self.counts_families = counts_families
        self.reads_abundances, self.reads_expansion = reads_abundances, reads_expansion
        self.richness_depth = richness_depth
        self.genes = {field: tuple((genes or {}).get(field, ())) for field in GENE_FIELDS}
        self.register_buffer("kmer_weights", torch.zeros(n_outputs, N_KMERS))
        self.register_buffer("kmer_constants", torch.zeros(n_outputs, dtype=torch.float64))
        for field, names in self.genes.items():
            buffers = _GENE_BUFFERS[field]
            self.register_buffer(buffers.weights, torch.zeros(n_outputs, len(names), dtype=torch.float64))
            self.register_buffer(buffers.centre, torch.zeros(len(names), dtype=torch.float64))
        if reads_abundances:
            n_features = len(name_abundance_features(richness_depth))
            self.register_buffer("abundance_weights", torch.zeros(n_outputs, n_features, dtype=torch.float64))
            self.register_buffer("abundance_centre", torch.zeros(n_features, dtype=torch.float64))
        if reads_expansion:
            self.register_buffer("expansion_weights", torch.zeros(n_outputs, N_EXPANSION_KMERS))
            self.register_buffer("expansion_constants", torch.zeros(n_outputs, dtype=torch.float64))
            for field, names in self.genes.items():
                weights = torch.zeros(n_outputs, len(names), dtype=torch.float64)
                self.register_buffer(_GENE_BUFFERS[field].expansion_weights, weights)

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
        used = [kind for kind in KIND_NAMES if any(getattr(function, kind).any() for function in functions)]
        return [name_kind(kind, of_families=self.counts_families) for kind in used]

    def get_linear_function(self, output: int) -> LinearFunction:
        """Return the weights of all features for one output in 64 bits; features that are not read have 0.

        The genes of `v_call` and `j_call` are end to end, in the order of `genes`.
        """

        def get_weights(name: str, n_features: int) -> Floats:
            """Return the weights in a buffer, (n_features,)."""
            buffer = getattr(self, name, None)
            return np.zeros(n_features) if buffer is None else to_array(buffer[output]).astype(np.float64)

        genes = [get_weights(_GENE_BUFFERS[field].weights, len(names)) for field, names in self.genes.items()]
        gene_expansion = [
            get_weights(_GENE_BUFFERS[field].expansion_weights, len(names)) for field, names in self.genes.items()
        ]
        return LinearFunction(
            kmers=get_weights("kmer_weights", N_KMERS),
            genes=np.concatenate(genes),
            abundances=get_weights("abundance_weights", len(name_abundance_features(self.richness_depth))),
            expansion=get_weights("expansion_weights", N_EXPANSION_KMERS),
            gene_expansion=np.concatenate(gene_expansion),
        )

    def set_linear_function(self, output: int, weights: LinearFunction, centre: LinearFunction) -> None:
        """Set the weights of all features for one output; those of features that are not read are ignored.

        Parameters
        ----------
        output
            Index of the output.
        weights
            Weights of the features.
        centre
            Means of the features over the training repertoires, the same for all outputs.
        """
        self.kmer_weights[output] = torch.from_numpy(weights.kmers).float()
        self.kmer_constants[output] = _score_centre(self.kmer_weights[output], centre.kmers)
        if self.reads_abundances:
            self.get_buffer("abundance_weights")[output] = torch.from_numpy(weights.abundances)
            self.get_buffer("abundance_centre")[:] = torch.from_numpy(centre.abundances)
        if self.reads_expansion:
            kmer_weights = self.get_buffer("expansion_weights")
            kmer_weights[output] = torch.from_numpy(weights.expansion).float()
            of_kmers = _score_centre(kmer_weights[output], centre.expansion)
            of_genes = float(weights.gene_expansion @ centre.gene_expansion)
            self.get_buffer("expansion_constants")[output] = of_kmers + of_genes
        first_gene = 0  # index of the first gene of the field among those of both fields
        for field, names in self.genes.items():
            buffers, of_field = _GENE_BUFFERS[field], slice(first_gene, first_gene + len(names))
            self.get_buffer(buffers.weights)[output] = torch.from_numpy(weights.genes[of_field])
            self.get_buffer(buffers.centre)[:] = torch.from_numpy(centre.genes[of_field])
            if self.reads_expansion:
                gene_weights = torch.from_numpy(weights.gene_expansion[of_field])
                self.get_buffer(buffers.expansion_weights)[output] = gene_weights
            first_gene += len(names)

    def compute_contributions(self, repertoire: Repertoire) -> Floats:
        """Return the contribution of each sequence of a repertoire to the scores, (N, T); see `Branch`.

        The weight of a k-mer belongs to the sequence that has it. So does the weight of a k-mer or gene of expanded
        clones, times the expansion score of the sequence. The part of a gene's usage is shared by the sequences that
        have the gene, and by all sequences if none has it. How diverse the counts are, and the part that does not
        depend on the repertoire, are shared by all sequences. The part of unknown counts is 0.

        If each family counts once, a family takes the place of a sequence in this, except for expanded clones, and its
        sequences share its part: equally, except that each has its own k-mers.

        Raises
        ------
        InputError
            If genes have weights and the repertoire's container lacks them.
        """
        n, n_outputs = len(repertoire), len(self.kmer_constants)
        contributions = np.zeros((n_outputs, n))
        if n > 0:
            terms = self._compute_frequency_terms(repertoire)
            arrays = repertoire.sequences.arrays([field for field, names in self.genes.items() if names])
            run_in_blocks(write_frequency_terms, n, _BLOCK, arrays, terms, contributions)
            if self.reads_expansion and has_known_expansion(repertoire.counts):
                scale = terms.scale * round(terms.factors.sum()) / n
                expansion_terms = self._compute_expansion_terms(repertoire, scale)
                run_in_blocks(add_expansion_terms, n, _BLOCK, arrays, expansion_terms, contributions)
        return contributions.T

    def _compute_frequency_terms(self, repertoire: Repertoire) -> FrequencyTerms:
        """Return what the k-mers and genes of a sequence of a repertoire add to the scores by their frequencies."""
        factors = self.weigh_sequences(repertoire)
        constants = -to_array(self.kmer_constants)
        shares_by_field = []
        for field, names in self.genes.items():
            shares = np.zeros((len(constants), 0))
            if names:
                shares, absent_sum = self._share_gene_scores(field, self._get_genes(repertoire, field), factors)
                constants = constants + absent_sum
            shares_by_field.append(shares)
        if self.reads_abundances:
            constants = constants + self._score_abundances(repertoire)
        n = round(factors.sum())
        scale = 1 / (n + NOISE_SEQUENCES)  # the part of each sequence, or family, in n / (n + m)
        v_shares, j_shares = (shares * (n * scale) for shares in shares_by_field)
        return FrequencyTerms(factors, to_array(self.kmer_weights), scale, constants * scale, v_shares, j_shares)

    def weigh_sequences(self, repertoire: Repertoire) -> Floats:
        """Return how much each sequence of a repertoire counts in the frequencies of k-mers and genes, (N,).

        Raises
        ------
        InputError
            If each family counts once, and the repertoire's container lacks genes.
        """
        return compute_family_weights(repertoire) if self.counts_families else np.ones(len(repertoire))

    def _get_genes(self, repertoire: Repertoire, field: str) -> Categorical:
        """Return the genes of the sequences; raise InputError if the container has none, or none with a weight."""
        genes, path = repertoire.sequences.genes, repertoire.container.path
        if field not in genes:
            raise InputError(f"{path}: has no {field}, which the branch `composition` of the model needs")
        check_some_genes_known(path, field, self.genes[field], genes[field].vocabulary)
        return genes[field]

    def _compute_expansion_terms(self, repertoire: Repertoire, scale: float) -> ExpansionTerms:
        """Return what the k-mers and genes of a sequence add to the scores because of its expansion."""
        weights_by_field = []
        for field, names in self.genes.items():
            weights = np.zeros((len(self.kmer_constants), 0))
            if names:
                vocabulary = repertoire.sequences.genes[field].vocabulary
                index_of = {name: index for index, name in enumerate(names)}
                columns = np.array([index_of.get(name, -1) for name in vocabulary], np.int64)  # -1: has no weight
                own_weights = to_array(self.get_buffer(_GENE_BUFFERS[field].expansion_weights))
                weights = np.where(columns >= 0, own_weights[:, columns], 0.0)
            weights_by_field.append(weights)
        return ExpansionTerms(
            to_array(self.get_buffer("expansion_weights")),
            compute_expansion_scores(repertoire.counts) * scale,
            -scale * to_array(self.get_buffer("expansion_constants")),
            *weights_by_field,
        )

    def _score_abundances(self, repertoire: Repertoire) -> Floats:
        """Return the part of the linear function that comes from diversity, (T,): 0 if no count is above 1."""
        weights, centre = to_array(self.get_buffer("abundance_weights")), to_array(self.get_buffer("abundance_centre"))
        features = compute_abundance_features(repertoire, self.richness_depth)
        return np.asarray(weights @ np.nan_to_num(features - centre, nan=0.0))

    def _share_gene_scores(self, field: str, calls: Categorical, factors: Floats) -> tuple[Floats, Floats]:
        """Divide the score of each gene among the sequences that have it.

        Parameters
        ----------
        field
            Field of the genes.
        calls
            Gene of each sequence of the repertoire.
        factors
            How much each sequence counts, (N,).

        Returns
        -------
        tuple
            Share of a sequence by the code of its gene in the repertoire's vocabulary, (T, vocabulary), and the summed
            scores of the genes that no sequence has, (T,).
        """
        code_of = {name: code for code, name in enumerate(calls.vocabulary)}
        codes = np.array([code_of.get(name, -1) for name in self.genes[field]], np.int64)  # -1: not in the vocabulary
        of_vocabulary = np.rint(calls.sum_weights(factors))
        counts = np.where(codes >= 0, of_vocabulary[codes], 0)  # sequences, or families, with each gene, (G,)
        buffers = _GENE_BUFFERS[field]
        weights, centre = to_array(self.get_buffer(buffers.weights)), to_array(self.get_buffer(buffers.centre))
        gene_scores = weights * (compute_centred_log_ratios(counts[None])[0] - centre)  # (T, G)
        is_present = counts > 0
        shares = np.zeros((len(gene_scores), len(calls.vocabulary)))
        shares[:, codes[is_present]] = gene_scores[:, is_present] / counts[is_present]
        return shares, gene_scores[:, ~is_present].sum(axis=1)

    def describe(self) -> dict[str, Any]:
        """Return the names of the genes, by field, what else has weights, and doubt; see `Branch`."""
        genes = {field: list(names) for field, names in self.genes.items()}
        reads = {"abundances": self.reads_abundances, "expansion": self.reads_expansion}
        return {
            **genes,
            **reads,
            "richness_depth": self.richness_depth,
            "families": self.counts_families,
            "doubtful": self.is_doubtful,
        }

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
        if valid.richness_depth < 0:
            raise InputError(f"{where}: richness_depth: expected a number from 0, found {valid.richness_depth}")
        reads = {"reads_abundances": valid.abundances, "reads_expansion": valid.expansion}
        return cls(
            n_outputs,
            genes,
            **reads,
            richness_depth=valid.richness_depth,
            counts_families=valid.families,
            is_doubtful=valid.doubtful,
        )

    def check(self, where: str) -> None:
        """Raise InputError if a number is not finite; see `Branch`."""
        for name, buffer in self.named_buffers():
            if not bool(torch.isfinite(buffer).all()):
                raise InputError(f"{where}: {name}: expected finite numbers")


def _score_centre(weights: Tensor, centre: Floats) -> float:
    """Return the sum of weights in 32 bits times the means of their features, in 64 bits."""
    return float(to_array(weights).astype(np.float64) @ centre)
