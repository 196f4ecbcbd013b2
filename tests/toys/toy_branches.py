"""Branches whose numbers can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeprc.datasets.dataset import Repertoire
from deeprc.nn.branches import Branch
from deeprc.training.model import TrainedModel


class _Toy(Branch):
    """Adds `weights`, (T,), for each sequence that contains a pattern."""

    def __init__(self, pattern: str, weights: Sequence[float]) -> None:
        super().__init__()
        self.pattern = pattern
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float64))

    def carries(self, repertoire: Repertoire) -> NDArray[np.float64]:
        """Return 1 for each sequence that contains the pattern, (N,), else 0."""
        return np.array([float(self.pattern in sequence) for sequence in repertoire.sequences.decode()])

    def compute_contributions(self, repertoire: Repertoire) -> NDArray[np.float64]:
        return np.outer(self.carries(repertoire), self.weights.numpy())

    def describe(self) -> dict[str, Any]:
        return {"pattern": self.pattern}

    @classmethod
    def from_description(cls, description: Any, n_outputs: int, where: str) -> Branch:
        return cls(description["pattern"], [0.0] * n_outputs)

    def check(self, where: str) -> None: ...


class Composition(_Toy):
    """Adds `weights` times the share of the sequences that contain the pattern."""

    name = "composition"

    def compute_contributions(self, repertoire: Repertoire) -> NDArray[np.float64]:
        return super().compute_contributions(repertoire) / len(repertoire)


class Hits(NamedTuple):
    """Sequences that a memory retrieves, the output for which each is evidence, and what it adds, (n,) each."""

    rows: NDArray[np.int64]
    outputs: NDArray[np.int64]
    evidence: NDArray[np.float64]


class Clones(_Toy):
    """Adds `weights` for each sequence that contains the pattern."""

    name = "clones"

    def table(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the pattern as if it were a clone."""
        rows = [
            (self.pattern, "TRBV1", "", name, "up" if weight > 0 else "down", "exact", 5, 0, 1e-4, 0.01)
            for name, weight in zip(names, self.weights.tolist(), strict=True)
        ]
        columns = ["junction_aa", "v_call", "j_call", "output", "direction", "match"]
        return pd.DataFrame(rows, columns=[*columns, "carriers_positive", "carriers_negative", "p_value", "q_value"])

    def find_clones_in(self, repertoire: Repertoire) -> Hits:
        """Return the sequences that contain the pattern, as hits of the first output."""
        rows = np.flatnonzero(self.carries(repertoire))
        return Hits(rows, np.zeros(len(rows), np.int64), np.full(len(rows), float(self.weights[0])))


def with_branches(model: TrainedModel, *branches: Branch, gain: float = 1.0) -> TrainedModel:
    """Return a copy of a model to whose outputs these branches add."""
    network = deepcopy(model.network)
    network.attach_branches(branches)
    assert network.branches is not None
    with torch.no_grad():
        network.branches.gains.fill_(gain)
    return replace(model, network=network)
