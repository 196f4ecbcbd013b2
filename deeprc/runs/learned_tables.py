"""Tables of what a run has learned besides its network, and lines of text about these tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pandas as pd

from deeprc.branches.clones import CloneBranch
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.errors import format_count
from deeprc.evaluation.stored_tables import read_clones, read_composition, read_start_motifs
from deeprc.nn.branches import iterate_branches
from deeprc.outputs import list_output_names
from deeprc.runs.composition_table import list_distinct_features
from deeprc.tasks import Task
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.gap_weights import describe_gaps
from deeprc.training.model import TrainedModel
from deeprc.training.motif_search import MOTIF_LEVEL

__all__ = [
    "CLUSTER_COLUMNS",
    "describe_learned",
    "find_cluster_members",
    "make_clones_table",
    "make_start_motifs_table",
]

CLUSTER_COLUMNS = ["output", "direction", "match"]
"""Columns in which the members of one cluster agree."""

_COLUMNS = ("junction_aa", *CLUSTER_COLUMNS, "p_value", "q_value")
_N_FEATURES = 5  # number of features of the composition that are named
_CLONE_LEVEL = 0.05  # largest q-value of a stored clone that is called significant


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


def describe_learned(run: Path) -> Iterator[str]:
    """Yield the lines about a run, from the tables in its directory; what it has not learned has no line.

    Raises
    ------
    InputError
        If a table is missing or damaged.
    """
    yield from _describe_start_motifs(run)
    yield from _describe_clones(run)
    yield from _describe_composition(run)


def _describe_start_motifs(run: Path) -> Iterator[str]:
    """Yield a line with the motifs from which the training started, if it started from any."""
    motifs = read_start_motifs(run / "seeds.tsv")
    if len(motifs):
        rows = zip(motifs["motif"], motifs["p_value"], strict=True)
        doubtful = " (doubtful, confirmed by the validation fold)"
        names = [f"{name}{doubtful}" if p > MOTIF_LEVEL else name for name, p in rows]
        yield f"start motifs: {', '.join(names)}, see {run / 'seeds.tsv'}"


def _describe_clones(run: Path) -> Iterator[str]:
    """Yield a line with the number of clones that the branch `clones` stores, if it stores any."""
    clones = read_clones(run / "clones.tsv")
    if len(clones):
        members = clones[find_cluster_members(clones)]
        n_clusters = len(members.drop_duplicates(CLUSTER_COLUMNS))
        of_clusters = f" ({len(members):,} of them in {format_count(n_clusters, 'cluster')})" if n_clusters else ""
        n_significant = int((clones["q_value"] <= _CLONE_LEVEL).sum())
        yield (
            f"public clones stored in the model: {len(clones):,}{of_clusters}, of which {n_significant:,} have a "
            f"q_value of at most {_CLONE_LEVEL:g}, see {run / 'clones.tsv'}"
        )


def _describe_composition(run: Path) -> Iterator[str]:
    """Yield a line for each output with the features of the branch `composition` that have the largest effects."""
    composition = read_composition(run / "composition.tsv")
    outputs = composition["output"].unique().tolist() if len(composition) else []
    for output in outputs:
        on = f" on {output}" if len(outputs) > 1 else ""
        names = ", ".join(list_distinct_features(composition[composition["output"] == output], _N_FEATURES))
        yield f"largest effects of the composition{on} (no overlapping k-mers): {names}, see {run / 'composition.tsv'}"
