"""Effects of the features of residues at positions, for the table of the features of the branch `composition`.

Each weight belongs to a residue at a position in one V gene. The feature `L at 108` is the sum over the V genes. Its
weight is their mean, where a gene counts as often as sequences of the cohort have it with L at 108. `junction length`
is the sum of all features. Its effect leaves out which residues these are: all residues at a position have their mean
weight, and the sum over the positions is regressed on the length.

Letters: B repertoires, T outputs, G V genes (with one more for other genes), F residues at positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.branches.frequencies import RepertoireFrequencies
from deeprc.branches.residues import (
    POSITIONS,
    PlacedResidueCounts,
    name_placed_residues,
)
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.runs.feature_effects import (
    FeatureEffects,
    WeightedBranch,
    add_members,
    average_groups,
    compute_effects,
    compute_effects_of_outputs,
)

__all__ = ["measure_residues"]

_LENGTH_NAME = "junction length"
_OTHER_GENES = "other V genes"  # those that the branch does not know, and unknown ones
_N_CONSERVED = 2  # residues of a junction that are at no position


def measure_residues(
    members: Sequence[WeightedBranch], dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of the length, of the residues at positions, and of these in each V gene.

    Branches that count each family once are the last, whose means `add_members` keeps.

    Parameters
    ----------
    members
        Branches of the members of a model.
    dataset
        The B repertoires, none of which is empty.
    groups
        The repertoires of the two groups of each output, (2, T, B).
    """
    levels: list[list[FeatureEffects]] = [[], [], []]
    for member in sorted(members, key=lambda member: member.branch.counts_families):
        if member.weigh("residues").any():
            for level, effects in zip(levels, _measure_member(member, dataset, groups), strict=False):
                level.append(effects)
    for level in levels:
        yield from add_members(level)


def _measure_member(
    member: WeightedBranch, dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects in one branch at each of the three levels; at two, if the branch knows no V gene."""
    branch = member.branch
    repertoire_frequencies = RepertoireFrequencies(dataset, of_families=branch.counts_families)
    counts = repertoire_frequencies.count_placed_residues(branch.genes)
    by_gene, placed, _ = branch.expected_residues.compute_features(counts)
    length = placed.sum(axis=1, keepdims=True)
    n_residues = counts.by_v.sum(axis=0, dtype=np.float64)  # (G, F)
    weights = member.weigh("residues").reshape(-1, *n_residues.shape)  # (T, G, F)

    of_length, of_placed = [], []
    for of_output in weights:
        placed_weights = _average(of_output, n_residues)  # (F,)
        by_position = (array.reshape(len(POSITIONS), -1).T for array in (placed_weights, n_residues.sum(axis=0)))
        of_position = np.repeat(_average(*by_position), len(AMINO_ACIDS))  # (F,)
        of_length.append(compute_effects(length, placed @ of_position[:, None]))
        of_placed.append(compute_effects(placed, placed * placed_weights))
    sizes = counts.pairs.sum(axis=(1, 2))[:, None]
    frequencies = counts.by_v.sum(axis=1, dtype=np.float64) / sizes
    lengths = frequencies.sum(axis=1, keepdims=True) + _N_CONSERVED
    residues = name_placed_residues()
    yield FeatureEffects("residues", [_LENGTH_NAME], np.stack(of_length), average_groups(lengths, groups))
    yield FeatureEffects("residues", residues, np.stack(of_placed), average_groups(frequencies, groups))
    if branch.genes["v_call"]:
        effects, means = _measure_genes(by_gene, weights, counts, groups)
        genes = [*branch.genes["v_call"], _OTHER_GENES]
        names = [f"{residue} in {gene}" for gene in genes for residue in residues]
        yield FeatureEffects("residues", names, effects, means)


def _measure_genes(
    by_gene: NDArray[np.float32], weights: Floats, counts: PlacedResidueCounts, groups: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return the effects of the residues in each V gene, (T, G * F), and their means in the groups, (2, T, G * F)."""
    effects = np.zeros(weights.shape)
    means = np.zeros((2, *weights.shape))
    sizes = counts.pairs.sum(axis=2)  # sequences, or families, of each V gene, (B, G)
    for gene in range(weights.shape[1]):  # one by one: a table of all in 64 bits would be large
        effects[:, gene] = compute_effects_of_outputs(by_gene[:, gene].astype(np.float64), weights[:, gene])
        has_gene = sizes[:, gene] > 0
        shares = counts.by_v[has_gene, gene] / sizes[has_gene, gene, None]
        means[:, :, gene] = average_groups(shares, groups[..., has_gene])
    return effects.reshape(len(weights), -1), means.reshape(2, len(weights), -1)


def _average(weights: Floats, counts: Floats) -> Floats:
    """Return the mean of the weights over the first axis, each as often as `counts` says; 0 if none counts."""
    return np.asarray((weights * counts).sum(axis=0) / np.maximum(counts.sum(axis=0), 1e-9))
