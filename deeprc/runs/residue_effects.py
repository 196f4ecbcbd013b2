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
from deeprc.branches.residues import (
    N_PLACED_RESIDUES,
    POSITIONS,
    PlacedResidueCounts,
    count_residues,
    name_placed_residues,
)
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.runs.composition_weights import WeightedBranch
from deeprc.runs.feature_effects import FeatureEffects, add_members, average_groups, compute_effects

__all__ = ["measure_residues"]

_LENGTH_NAME = "junction length"
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
            for level, effects in zip(levels, _measure_member(member, dataset, groups), strict=True):
                level.append(effects)
    for level in levels:
        yield from add_members(level)


def _measure_member(
    member: WeightedBranch, dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects in one branch at each of the three levels."""
    branch = member.branch
    counts = count_residues(dataset, branch.genes, of_families=branch.counts_families)
    by_gene = branch.expected_residues.compute_features(counts)  # (B, G * F)
    weights = member.weigh("residues")  # (T, G * F)

    placed = by_gene.reshape(len(by_gene), -1, N_PLACED_RESIDUES).sum(axis=1)
    length = placed.sum(axis=1, keepdims=True)
    n_residues = counts.by_v.sum(axis=0, dtype=np.float64)  # (G, F)
    effects: list[list[Floats]] = [[], [], []]
    for of_output in weights:
        of_placed = _average(of_output.reshape(n_residues.shape), n_residues)  # (F,)
        by_position = (array.reshape(len(POSITIONS), -1).T for array in (of_placed, n_residues.sum(axis=0)))
        of_position = np.repeat(_average(*by_position), len(AMINO_ACIDS))  # (F,)
        effects[0].append(compute_effects(length, placed @ of_position[:, None]))
        effects[1].append(compute_effects(placed, placed * of_placed))
        effects[2].append(compute_effects(by_gene, by_gene * of_output))
    residues, v_genes = name_placed_residues(), [*branch.genes["v_call"], "other V genes"]
    names = [[_LENGTH_NAME], residues, [f"{residue} in {gene}" for gene in v_genes for residue in residues]]
    for of_level, of_names, shown in zip(effects, names, _compute_shown(counts), strict=True):
        yield FeatureEffects("residues", of_names, np.stack(of_level), average_groups(shown, groups))


def _average(weights: Floats, counts: Floats) -> Floats:
    """Return the mean of the weights over the first axis, each as often as `counts` says; 0 if none counts."""
    return np.asarray((weights * counts).sum(axis=0) / np.maximum(counts.sum(axis=0), 1e-9))


def _compute_shown(counts: PlacedResidueCounts) -> Iterator[Floats]:
    """Yield the numbers whose means are shown: the length, (B, 1), and residues per sequence, (B, F), (B, G * F)."""
    sizes = counts.pairs.sum(axis=(1, 2))[:, None]
    by_position = counts.by_v.sum(axis=1, dtype=np.float64) / sizes
    yield by_position.sum(axis=1, keepdims=True) + _N_CONSERVED
    yield by_position
    of_gene = counts.pairs.sum(axis=2)[:, :, None]
    shares = np.where(of_gene > 0, counts.by_v / np.where(of_gene > 0, of_gene, 1), np.nan)
    yield shares.reshape(len(shares), -1)
