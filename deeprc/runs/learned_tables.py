"""Tables of what a run has learned: its stored clones, and the motifs from which kernels started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pandas as pd

from deeprc.branches.clones import CloneBranch
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.nn.branches import iterate_branches
from deeprc.outputs import list_output_names
from deeprc.tasks import Task
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.gap_weights import describe_gaps
from deeprc.training.model import TrainedModel

__all__ = ["CLUSTER_COLUMNS", "find_cluster_members", "make_clones_table", "make_start_motifs_table"]

CLUSTER_COLUMNS = ["output", "direction", "match"]
"""Columns in which the members of one cluster agree."""

_COLUMNS = ("junction_aa", *CLUSTER_COLUMNS, "p_value", "q_value")


def make_clones_table(model: TrainedModel) -> pd.DataFrame:
    """Return the table of the clones that a model stores, see `CloneBranch.table`; empty if it has no such branch.

    The rows of each output and direction are ordered by p-value. If several kinds of clones have the same clone with
    the same match, it has one row, with the q-value of the kind that is stored first.
    """
    for branch, _ in iterate_branches(model.network.branches):
        if branch.name == CloneBranch.name:
            names = list_output_names(model.tasks)
            table = cast("CloneBranch", branch).table(names)
            genes = [field for field in GENE_FIELDS if field in table]
            table = table.drop_duplicates(["junction_aa", *genes, *CLUSTER_COLUMNS])
            order = {name: index for index, name in enumerate(names)}
            keys = {"output": table["output"].map(order), "down": table["direction"] == "down"}
            ordered = pd.DataFrame({**keys, "p_value": table["p_value"]}).sort_values([*keys, "p_value"], kind="stable")
            return table.loc[ordered.index].reset_index(drop=True)
    return pd.DataFrame(columns=list(_COLUMNS))


def find_cluster_members(clones: pd.DataFrame) -> pd.Series[bool]:
    """Return whether each row of the table is a member of a cluster, whose match is "cluster" and a number."""
    return clones["match"].str.startswith("cluster ")


def make_start_motifs_table(motifs: Sequence[EnrichedMotif], tasks: Sequence[Task]) -> pd.DataFrame:
    """Return the table `seeds.tsv` of a run: the motifs from which kernels started, a row each.

    The columns are:

    - `kernel`: number of the kernel, from 1;
    - `motif`: the motif, with a point for any residue;
    - `output`: name of the output;
    - `correlation`: of the motif's frequency in a training repertoire with the label;
    - `p_value`: corrected for all motifs that were tested with it, see `EnrichedMotif`;
    - `best_residues`: the residues that count most at the gaps, see `describe_gaps`.
    """
    names = list_output_names(tasks)
    rows = [
        (k, motif.pattern, names[motif.output], motif.correlation, motif.p_value, describe_gaps(motif))
        for k, motif in enumerate(motifs, 1)
    ]
    return pd.DataFrame(rows, columns=["kernel", "motif", "output", "correlation", "p_value", "best_residues"])
