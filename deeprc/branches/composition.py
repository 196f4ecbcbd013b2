"""The branch `composition`: a linear function of the 4-mers, the genes and the counts of all sequences of a repertoire.

The features x of a repertoire are the mean number of times that each 4-mer occurs in a sequence, the centred log-ratios
of V and J gene usage (as `VGeneUsage`), how diverse the counts are (`compute_abundance_features`), which 3-mers and
genes expanded clones have (`deeprc.branches.expansion`), which residues are at each position of the junctions, compared
with sequences of the same genes (`deeprc.branches.residues`), and which V genes and J genes are used together
(`deeprc.branches.gene_pairs`). With the mean x of the training repertoires, the score is

    n / (n + m) * weights . (x - mean),

where n is the number of sequences and m is `NOISE_SEQUENCES`. The factor shrinks the scores of small repertoires, whose
features are mostly noise. For B cells, a branch may count each clonal family once instead of each sequence: in n, and
in the frequencies of k-mers, genes, pairs of genes and residues (`deeprc.branches.frequencies`).

The branch also uses k-mers of one, two and three residues that begin a 4-mer: their frequencies are sums over 4-mers,
so their weights are part of the weights of the 4-mers (see `deeprc.branches.composition_fit`).

Letters: N sequences of one repertoire, T outputs, M 4-mers, G genes of one field, Q features of counts, E 3-mers, F
residues at positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from deeprc.arrays import Floats
from deeprc.branches.abundances import name_abundance_features
from deeprc.branches.composition_description import GENE_BUFFERS, parse_composition_description
from deeprc.branches.composition_loops import (
    N_KMERS,
    K,
    add_expansion_terms,
    write_frequency_terms,
)
from deeprc.branches.composition_terms import (
    compute_expansion_terms,
    compute_frequency_terms,
    compute_residue_terms,
    score_gene_pairs,
)
from deeprc.branches.expansion import N_EXPANSION_KMERS
from deeprc.branches.linear_function import KIND_NAMES, LinearFunction, name_kind
from deeprc.branches.residues import (
    N_PLACED_RESIDUES,
    ExpectedResidues,
    add_residue_terms,
)
from deeprc.compilation import run_in_blocks
from deeprc.datasets.clones.families import compute_family_weights
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.expansion import has_known_expansion
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.errors import InputError
from deeprc.nn.branches import Branch, to_array

__all__ = ["CompositionBranch", "K"]

_BLOCK = 65_536  # number of sequences that one thread reads at a time


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
    reads_residues
        Whether the residues at positions have weights.
    reads_gene_pairs
        Whether pairs of a V gene and a J gene have weights.
    counts_families
        Whether each clonal family counts once in the frequencies of k-mers, genes and residues, instead of each
        sequence.
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
    residue_weights, v_call_residues, j_call_residues
        Weights of the residues by V gene, (T, G + 1, F) float32, and what is expected from the V gene and from the J
        gene, (G + 1, F) float64 each, see `ExpectedResidues`; absent if residues have no weights.
    residue_constants
        Sum of the mean of these features times their weights, (T,) float64.
    gene_pair_weights, gene_pair_constants
        Weights of pairs of V genes and J genes, (T, G + 1, G + 1), and the sum of the mean of these features times
        their weights, (T,), float64 each; absent if pairs have no weights.
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
        reads_residues: bool = False,
        reads_gene_pairs: bool = False,
        counts_families: bool = False,
        is_doubtful: bool = False,
    ) -> None:
        super().__init__()
        self._is_doubtful = is_doubtful
        self.counts_families = counts_families
        self.reads_abundances, self.reads_expansion = reads_abundances, reads_expansion
        self.reads_residues, self.reads_gene_pairs = reads_residues, reads_gene_pairs
        self.richness_depth = richness_depth
        self.genes = {field: tuple((genes or {}).get(field, ())) for field in GENE_FIELDS}
        self.register_buffer("kmer_weights", torch.zeros(n_outputs, N_KMERS))
        self.register_buffer("kmer_constants", torch.zeros(n_outputs, dtype=torch.float64))
        for field, names in self.genes.items():
            buffers = GENE_BUFFERS[field]
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
                self.register_buffer(GENE_BUFFERS[field].expansion_weights, weights)
        if reads_residues:
            n_rows = len(self.genes["v_call"]) + 1
            self.register_buffer("residue_weights", torch.zeros(n_outputs, n_rows, N_PLACED_RESIDUES))
            self.register_buffer("residue_constants", torch.zeros(n_outputs, dtype=torch.float64))
            for field, names in self.genes.items():
                expected = torch.zeros(len(names) + 1, N_PLACED_RESIDUES, dtype=torch.float64)
                self.register_buffer(GENE_BUFFERS[field].residues, expected)
        if reads_gene_pairs:
            n_v, n_j = (len(names) + 1 for names in self.genes.values())
            self.register_buffer("gene_pair_weights", torch.zeros(n_outputs, n_v, n_j, dtype=torch.float64))
            self.register_buffer("gene_pair_constants", torch.zeros(n_outputs, dtype=torch.float64))

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
            return np.zeros(n_features) if buffer is None else to_array(buffer[output]).astype(np.float64).ravel()

        n_v, n_j = (len(names) + 1 for names in self.genes.values())
        genes = [get_weights(GENE_BUFFERS[field].weights, len(names)) for field, names in self.genes.items()]
        gene_expansion = [
            get_weights(GENE_BUFFERS[field].expansion_weights, len(names)) for field, names in self.genes.items()
        ]
        return LinearFunction(
            kmers=get_weights("kmer_weights", N_KMERS),
            genes=np.concatenate(genes),
            abundances=get_weights("abundance_weights", len(name_abundance_features(self.richness_depth))),
            expansion=get_weights("expansion_weights", N_EXPANSION_KMERS),
            gene_expansion=np.concatenate(gene_expansion),
            residues=get_weights("residue_weights", n_v * N_PLACED_RESIDUES),
            gene_pairs=get_weights("gene_pair_weights", n_v * n_j),
        )

    @property
    def expected_residues(self) -> ExpectedResidues:
        """Which residues are expected from the genes of a sequence, if the branch reads residues."""
        return ExpectedResidues(*(to_array(self.get_buffer(buffers.residues)) for buffers in GENE_BUFFERS.values()))

    @expected_residues.setter
    def expected_residues(self, expected: ExpectedResidues) -> None:
        for buffers, of_field in zip(GENE_BUFFERS.values(), expected, strict=True):
            self.get_buffer(buffers.residues)[:] = torch.from_numpy(of_field)

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
        if self.reads_residues:
            residue_weights = self.get_buffer("residue_weights")
            residue_weights[output] = torch.from_numpy(weights.residues).float().view_as(residue_weights[output])
            self.get_buffer("residue_constants")[output] = _score_centre(residue_weights[output], centre.residues)
        if self.reads_gene_pairs:
            pair_weights = self.get_buffer("gene_pair_weights")
            pair_weights[output] = torch.from_numpy(weights.gene_pairs).view_as(pair_weights[output])
            self.get_buffer("gene_pair_constants")[output] = float(weights.gene_pairs @ centre.gene_pairs)
        first_gene = 0  # index of the first gene of the field among those of both fields
        for field, names in self.genes.items():
            buffers, of_field = GENE_BUFFERS[field], slice(first_gene, first_gene + len(names))
            self.get_buffer(buffers.weights)[output] = torch.from_numpy(weights.genes[of_field])
            self.get_buffer(buffers.centre)[:] = torch.from_numpy(centre.genes[of_field])
            if self.reads_expansion:
                gene_weights = torch.from_numpy(weights.gene_expansion[of_field])
                self.get_buffer(buffers.expansion_weights)[output] = gene_weights
            first_gene += len(names)

    def compute_contributions(self, repertoire: Repertoire) -> Floats:
        """Return the contribution of each sequence of a repertoire to the scores, (N, T); see `Branch`.

        The weight of a k-mer belongs to the sequence that has it. So do the weights of the residues at their positions,
        minus the sum expected from the genes of the sequence, and the weight of a k-mer or gene of expanded clones,
        times the expansion score of the sequence. The part of a gene's usage is shared by the sequences that have the
        gene, and by all sequences if none has it. How diverse the counts are, and the part that does not depend on the
        repertoire, are shared by all sequences. The part of unknown counts is 0. For pairs of genes see
        `share_pair_scores`.

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
            terms = compute_frequency_terms(self, repertoire)
            arrays = repertoire.sequences.arrays([field for field, names in self.genes.items() if names])
            run_in_blocks(write_frequency_terms, n, _BLOCK, arrays, terms, contributions)
            if self.reads_residues:
                residue_terms = compute_residue_terms(self, repertoire, terms.factors * terms.scale)
                run_in_blocks(add_residue_terms, n, _BLOCK, arrays, residue_terms, contributions)
            if self.reads_gene_pairs:
                contributions += terms.factors * terms.scale * score_gene_pairs(self, repertoire, terms.factors)
            if self.reads_expansion and has_known_expansion(repertoire.counts):
                scale = terms.scale * round(terms.factors.sum()) / n
                expansion_terms = compute_expansion_terms(self, repertoire, scale)
                run_in_blocks(add_expansion_terms, n, _BLOCK, arrays, expansion_terms, contributions)
        return contributions.T

    def weigh_sequences(self, repertoire: Repertoire) -> Floats:
        """Return how much each sequence of a repertoire counts in the frequencies of k-mers and genes, (N,).

        Raises
        ------
        InputError
            If each family counts once, and the repertoire's container lacks genes.
        """
        return compute_family_weights(repertoire) if self.counts_families else np.ones(len(repertoire))

    def describe(self) -> dict[str, Any]:
        """Return the names of the genes, by field, what else has weights, and doubt; see `Branch`."""
        genes = {field: list(names) for field, names in self.genes.items()}
        return {
            **genes,
            "abundances": self.reads_abundances,
            "expansion": self.reads_expansion,
            "residues": self.reads_residues,
            "gene_pairs": self.reads_gene_pairs,
            "richness_depth": self.richness_depth,
            "families": self.counts_families,
            "doubtful": self.is_doubtful,
        }

    @classmethod
    def from_description(cls, description: Any, n_outputs: int, where: str) -> CompositionBranch:
        """Return a branch whose buffers have the right shapes; see `Branch`."""
        valid = parse_composition_description(
            description, where, residue_weights_per_gene=n_outputs * N_PLACED_RESIDUES
        )
        return cls(
            n_outputs,
            {"v_call": valid.v_call, "j_call": valid.j_call},
            reads_abundances=valid.abundances,
            richness_depth=valid.richness_depth,
            reads_expansion=valid.expansion,
            reads_residues=valid.residues,
            reads_gene_pairs=valid.gene_pairs,
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
    return float(to_array(weights).astype(np.float64).ravel() @ centre)
