"""The weights of the branches `composition` in the outputs of a model of one or several networks.

Letters: T outputs, F features of one kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.linear_function import Kind, LinearFunction
from deeprc.nn.branches import iterate_branches
from deeprc.training.model import Model

__all__ = ["WeightedBranch", "list_weighted_branches"]


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
