"""What the sequences of a repertoire add to the scores of the branch `composition`, for its compiled loops.

Letters: N sequences of one repertoire, T outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deeprc.arrays import Floats
from deeprc.branches.abundances import compute_abundance_features
from deeprc.branches.composition_description import GENE_BUFFERS, NOISE_SEQUENCES
from deeprc.branches.composition_loops import ExpansionTerms, FrequencyTerms
from deeprc.branches.gene_pairs import share_pair_scores
from deeprc.branches.gene_shares import share_gene_scores
from deeprc.branches.genes import get_known_genes
from deeprc.branches.residues import ResidueTerms, index_genes, index_sequences
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.expansion import compute_expansion_scores
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.nn.branches import to_array

if TYPE_CHECKING:
    from deeprc.branches.composition import CompositionBranch

__all__ = ["compute_expansion_terms", "compute_frequency_terms", "compute_residue_terms", "score_gene_pairs"]


def compute_frequency_terms(branch: CompositionBranch, repertoire: Repertoire) -> FrequencyTerms:
    """Return what the k-mers and genes of a sequence of a repertoire add to the scores by their frequencies."""
    factors = branch.weigh_sequences(repertoire)
    constants = -to_array(branch.kmer_constants)
    if branch.reads_residues:
        constants = constants - to_array(branch.get_buffer("residue_constants"))
    shares_by_field = []
    for field, names in branch.genes.items():
        shares = np.zeros((len(constants), 0))
        if names:
            buffers = GENE_BUFFERS[field]
            weights, centre = (to_array(branch.get_buffer(name)) for name in (buffers.weights, buffers.centre))
            calls = get_known_genes(repertoire, field, names)
            shares, absent_sum = share_gene_scores(names, weights, centre, calls, factors)
            constants = constants + absent_sum
        shares_by_field.append(shares)
    if branch.reads_abundances:
        constants = constants + _score_abundances(branch, repertoire)
    n = round(factors.sum())
    scale = 1 / (n + NOISE_SEQUENCES)  # the part of each sequence, or family, in n / (n + m)
    v_shares, j_shares = (shares * (n * scale) for shares in shares_by_field)
    return FrequencyTerms(factors, to_array(branch.kmer_weights), scale, constants * scale, v_shares, j_shares)


def compute_residue_terms(branch: CompositionBranch, repertoire: Repertoire, factors: Floats) -> ResidueTerms:
    """Return what the residues of a sequence add to the scores, times the factor of each sequence, (N,)."""
    weights, calls = to_array(branch.get_buffer("residue_weights")), repertoire.sequences.genes
    v_indices, j_indices = (index_genes(calls.get(field), names) for field, names in branch.genes.items())
    expected = branch.expected_residues.sum_weights(weights.astype(np.float64))
    return ResidueTerms(factors, weights, expected, v_indices, j_indices)


def compute_expansion_terms(branch: CompositionBranch, repertoire: Repertoire, scale: float) -> ExpansionTerms:
    """Return what the k-mers and genes of a sequence add to the scores because of its expansion."""
    weights_by_field = []
    for field, names in branch.genes.items():
        weights = np.zeros((len(branch.kmer_constants), 0))
        if names:
            own_weights = to_array(branch.get_buffer(GENE_BUFFERS[field].expansion_weights))
            padded = np.hstack([own_weights, np.zeros((len(own_weights), 1))])  # other genes have no weight
            weights = padded[:, index_genes(repertoire.sequences.genes[field], names)]
        weights_by_field.append(weights)
    return ExpansionTerms(
        to_array(branch.get_buffer("expansion_weights")),
        compute_expansion_scores(repertoire.counts) * scale,
        -scale * to_array(branch.get_buffer("expansion_constants")),
        *weights_by_field,
    )


def _score_abundances(branch: CompositionBranch, repertoire: Repertoire) -> Floats:
    """Return the part of the linear function that comes from diversity, (T,): 0 if no count is above 1."""
    weights, centre = to_array(branch.get_buffer("abundance_weights")), to_array(branch.get_buffer("abundance_centre"))
    features = compute_abundance_features(repertoire, branch.richness_depth)
    return np.asarray(weights @ np.nan_to_num(features - centre, nan=0.0))


def score_gene_pairs(branch: CompositionBranch, repertoire: Repertoire, factors: Floats) -> Floats:
    """Return what the pairs of genes of a sequence add to the scores, (T, N), before the factor of the sequence."""
    v_indices, j_indices = (index_sequences(repertoire, field, branch.genes[field]) for field in GENE_FIELDS)
    shares = share_pair_scores(to_array(branch.get_buffer("gene_pair_weights")), v_indices, j_indices, factors)
    return np.asarray(shares - to_array(branch.get_buffer("gene_pair_constants"))[:, None])
