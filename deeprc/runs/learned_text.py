"""Lines of text that say what a run has learned besides its network: start motifs, stored clones and composition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deeprc.errors import format_count
from deeprc.evaluation.stored_tables import read_clones, read_composition, read_start_motifs
from deeprc.runs.composition_table import list_distinct_features
from deeprc.runs.learned_tables import CLUSTER_COLUMNS, find_cluster_members
from deeprc.training.motif_search import MOTIF_LEVEL

__all__ = ["describe_learned"]

_N_FEATURES = 5  # number of features of the composition that are named
_CLONE_LEVEL = 0.05  # largest q-value of a stored clone that is called significant


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
