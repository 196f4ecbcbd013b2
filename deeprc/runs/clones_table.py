"""The table of the clones that a model stores: `clones.tsv` of a run."""

from __future__ import annotations

from typing import cast

import pandas as pd

from deeprc.branches.clones import CloneBranch
from deeprc.nn.branches import iterate_branches
from deeprc.outputs import list_output_names
from deeprc.training.model import TrainedModel

__all__ = ["CLUSTER_COLUMNS", "find_cluster_members", "make_clones_table"]

CLUSTER_COLUMNS = ["output", "direction", "match"]
"""Columns in which the members of one cluster agree."""

_COLUMNS = ("junction_aa", "output", "direction", "match", "p_value", "q_value")


def make_clones_table(model: TrainedModel) -> pd.DataFrame:
    """Return the table of the clones that a model stores, see `CloneBranch.table`; empty if it has no such branch."""
    for branch, _ in iterate_branches(model.network.branches):
        if branch.name == CloneBranch.name:
            return cast("CloneBranch", branch).table(list_output_names(model.tasks))
    return pd.DataFrame(columns=list(_COLUMNS))


def find_cluster_members(clones: pd.DataFrame) -> pd.Series[bool]:
    """Return whether each row of the table is a member of a cluster, whose match is "cluster" and a number."""
    return clones["match"].str.startswith("cluster ")
