"""How much features of the branch `composition` move the outputs over a cohort, and their means in two groups.

A model of several networks has the weights of all of them.

Letters: B repertoires, T outputs, F features of one kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.linear_function import KIND_NAMES, Kind, LinearFunction
from deeprc.nn.branches import iterate_branches
from deeprc.training.model import Model

__all__ = [
    "COLUMNS",
    "FeatureEffects",
    "WeightedBranch",
    "add_members",
    "average_groups",
    "compute_effects",
    "compute_effects_of_outputs",
    "list_weighted_branches",
    "measure_known",
]

COLUMNS = ("output", "direction", "kind", "feature", "effect", "mean_positive", "mean_negative")
"""Columns of the table of features."""

_MIN_SPREAD = 1e-12  # smallest standard deviation of a feature that is not constant but for rounding


class FeatureEffects(NamedTuple):
    """Features of one kind: their names, (F,), their effects, (T, F), and their means in two groups, (2, T, F)."""

    kind: Kind
    names: Sequence[str]
    effects: Floats
    means: Floats

    def list_top(self, output: int, output_name: str, top: int | None) -> pd.DataFrame:
        """Return the rows of the table for one output."""
        effects = self.effects[output]
        order = np.argsort(-np.abs(effects), kind="stable")
        chosen = np.concatenate([order[effects[order] > 0][:top], order[effects[order] < 0][:top]])
        columns = {
            "output": output_name,
            "direction": np.where(effects[chosen] > 0, "up", "down"),
            "kind": KIND_NAMES[self.kind],
            "feature": [self.names[index] for index in chosen.tolist()],
            "effect": effects[chosen],
            "mean_positive": self.means[0, output, chosen],
            "mean_negative": self.means[1, output, chosen],
        }
        return pd.DataFrame(columns, columns=list(COLUMNS))


def compute_effects_of_outputs(features: Floats, weights: Floats) -> Floats:
    """Return the effects, (T, F), of features, (B, F), with these weights, (T, F)."""
    return np.stack([compute_effects(features, features * factors) for factors in weights])


def compute_effects(features: Floats, parts: Floats) -> Floats:
    """Return the effects on one output, (F,), of features, (B, F), with which these amounts are added to it, (B, F)."""
    centred = features - features.mean(axis=0)
    variance, covariance = (np.einsum("bf,bf->f", centred, array) / len(features) for array in (centred, parts))
    spread = np.sqrt(variance)
    varies = spread > _MIN_SPREAD
    return np.where(varies, covariance / np.where(varies, spread, 1), 0.0)


def average_groups(features: Floats, groups: NDArray[np.bool_]) -> Floats:
    """Return the mean of each feature in the groups, (2, T, F); NaN for a group without repertoires."""
    unknown = np.full(features.shape[1], np.nan)
    return np.array([[features[rows].mean(axis=0) if rows.any() else unknown for rows in group] for group in groups])


def measure_known(
    kind: Kind, names: Sequence[str], weights: Floats, table: Floats, shown: Floats, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of the features of one branch, unless they are unknown in all repertoires.

    Parameters
    ----------
    kind, names
        Kind and names of the features.
    weights
        Their weights, (T, F).
    table, shown
        The features, and the values whose means are shown, (B, F) each; rows of NaN where they are unknown.
    groups
        The repertoires of the two groups, (2, T, B).
    """
    is_known = ~np.isnan(table).any(axis=1)
    if is_known.any():
        means = average_groups(shown[is_known], groups[..., is_known])
        yield FeatureEffects(kind, names, compute_effects_of_outputs(table[is_known], weights), means)


def add_members(member_effects: Sequence[FeatureEffects]) -> Iterator[FeatureEffects]:
    """Yield the sums of the effects of features by name, and the means of the last member that has the feature."""
    if not member_effects:
        return
    names = list(dict.fromkeys(name for part in member_effects for name in part.names))
    index_of = {name: index for index, name in enumerate(names)}
    effects = np.zeros((len(member_effects[0].effects), len(names)))
    means = np.zeros((2, *effects.shape))
    for part in member_effects:
        columns = [index_of[name] for name in part.names]
        effects[:, columns] += part.effects
        means[..., columns] = part.means
    yield FeatureEffects(member_effects[0].kind, names, effects, means)


class WeightedBranch(NamedTuple):
    """The branch of one member, and for each output its weights, times what they count for in the model."""

    branch: CompositionBranch
    factors: Sequence[float]
    functions: Sequence[LinearFunction]

    def weigh(self, kind: Kind) -> Floats:
        """Return the weights of the features of a kind, (T, F)."""
        weights = np.stack([getattr(function, kind) for function in self.functions])
        return np.asarray(np.array(self.factors)[:, None] * weights)


def list_weighted_branches(model: Model) -> list[WeightedBranch]:
    """Return the branch `composition` of each network of a model that has one.

    The weights are in the common units of the networks. Those of all networks sum to the weights of the model.
    """
    scales, _ = model.unit_conversion
    weighted_branches = []
    for member, member_scales in zip(model.members, scales.tolist(), strict=True):
        for branch, gains in iterate_branches(member.network.branches):
            if isinstance(branch, CompositionBranch):
                factors = [scale * gain / len(model.members) for scale, gain in zip(member_scales, gains, strict=True)]
                functions = [branch.get_linear_function(output) for output in range(model.n_outputs)]
                weighted_branches.append(WeightedBranch(branch, factors, functions))
    return weighted_branches
