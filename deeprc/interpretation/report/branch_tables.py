"""Tables about the branches of a model in a report: shares of the variance, and stored clones."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from deeprc.branches.clones import CloneBranch
from deeprc.branches.composition import CompositionBranch
from deeprc.interpretation.directions import list_directions
from deeprc.interpretation.report.page import (
    Cell,
    Column,
    Table,
    make_number_cell,
    make_p_cell,
    make_percent_cell,
    make_sortable_table,
    make_text_cell,
)
from deeprc.nn.sequence_scores import ATTENTION
from deeprc.outputs import list_output_names
from deeprc.runs.learned_tables import CLUSTER_COLUMNS, find_cluster_members, make_clones_table
from deeprc.runs.variation import VarianceShares
from deeprc.tasks import Task
from deeprc.training.model import Model

__all__ = [
    "find_main_source",
    "is_mainly_stored_clones",
    "make_clone_tables",
    "make_gene_name_cell",
    "make_residues_cell",
    "make_variation_sentence",
    "make_variation_table",
    "name_classes",
    "name_directions",
]

_SHOWN = 20  # number of clones in a table; all are in the file that can be saved

_LEVEL = 0.05  # largest q of a clone that is called significant

_NEARLY_ALL = 0.9  # share of an output's variance

_USES = {
    ATTENTION: "some sequences: those that share a motif",
    CompositionBranch.name: "all sequences",
    CloneBranch.name: "single receptors: clones that one class carries more often than others",
}
_SHORT_USES = {
    ATTENTION: "motifs in some sequences",
    CompositionBranch.name: "all sequences",
    CloneBranch.name: "stored clones",
}
_OF_FAMILIES = " of clonal families"
_FEATURES = {
    "k-mers": "how frequent short pieces (k-mers) are",
    "genes": "how frequent genes are",
    "residues": "how frequent residues are at each IMGT position, among sequences of the same genes",
    "counts": "how diverse counts are",
    "k-mers weighted by counts": "which k-mers expanded clones have",
    "genes weighted by counts": "which genes expanded clones have",
    "k-mers of clonal families": "how frequent short pieces (k-mers) are (each clonal family counts once)",
    "genes of clonal families": "how frequent genes are (each clonal family counts once)",
    "gene pairs": "which V genes and J genes are used together",
    "gene pairs of clonal families": "which V genes and J genes are used together (each clonal family counts once)",
    "residues of clonal families": (
        "how frequent residues are at each IMGT position, among sequences of the same genes (each clonal family counts "
        "once)"
    ),
}


def make_variation_table(variation: Sequence[VarianceShares], sources: Mapping[str, Sequence[str]]) -> Table:
    """Return the table of the share of the outputs' variance that comes through the attention and each branch.

    Parameters
    ----------
    variation
        Shares from `compute_variance_shares`; empty if there are no test or new repertoires.
    sources
        Names of the attention and the branches, with the features that each reads, if they are not always the same.
    """
    several = len(variation) > 1
    share_headings = [f"Share for {of_output.output}" if several else "Share" for of_output in variation]
    columns = [
        Column("Branch", is_number=False),
        Column("Uses", is_number=False),
        *(Column(heading) for heading in share_headings),
    ]
    rows = []
    for source, features in sources.items():
        uses = _USES[source] + (": " if features else "") + _join_words([_FEATURES[name] for name in features])
        shares = [_round_percent(of_output.shares.get(source, 0.0)) for of_output in variation]
        rows.append([make_text_cell(source), make_text_cell(uses), *(make_percent_cell(share, 0) for share in shares)])
    return Table("variation", "How much each branch adds to the differences between repertoires", columns, rows)


def make_variation_sentence(variation: VarianceShares, split: str, features: Mapping[str, Sequence[str]]) -> str:
    """Return a sentence with the share of an output's variance that comes through each branch, largest first.

    Parameters
    ----------
    variation
        Shares of one output.
    split
        Part of the split to which the repertoires belong: `test` or `new`.
    features
        Features that each branch reads, see `Model.branch_features`.
    """
    parts: list[str] = []
    for source, share in sorted(variation.shares.items(), key=lambda item: -item[1]):
        verb = "" if parts else "comes "
        reading = _describe_source(source, features.get(source, ()))
        parts.append(f"{_round_percent(share):.0%} {verb}through {source} ({reading})")
    return f"The output differs between the {split} repertoires. Of its variance, {', '.join(parts)}."


def _describe_source(source: str, features: Sequence[str]) -> str:
    """Return what the attention or a branch reads, as in "k-mers and genes of all sequences"."""
    families = [name.removesuffix(_OF_FAMILIES) for name in features if name.endswith(_OF_FAMILIES)]
    others = [name for name in features if not name.endswith(_OF_FAMILIES)]
    parts = [_join_words(families) + _OF_FAMILIES] if families else []
    parts += [f"{_join_words(others)} of {_SHORT_USES[source]}"] if others else []
    return ", and ".join(parts) or _SHORT_USES[source]


def _join_words(words: Sequence[str]) -> str:
    """Return words as in "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _round_percent(share: float) -> float:
    """Return a share in whole per cent; 0 is never -0."""
    return round(share, 2) + 0.0


def is_mainly_stored_clones(variation: Sequence[VarianceShares]) -> bool:
    """Return whether nearly all variance of each output comes through stored clones."""
    return bool(variation) and all(
        output_variation.shares.get(CloneBranch.name, 0.0) > _NEARLY_ALL for output_variation in variation
    )


def find_main_source(row: Mapping[Hashable, Any], sign: int) -> tuple[str, float]:
    """Return the name of the largest part of a contribution, and its share among parts of the same direction.

    Parameters
    ----------
    row
        Row of `attention_table` of a model with one output.
    sign
        Sign of the direction to which the sequence contributes.
    """
    parts = {source: sign * row[f"through_{source}"] for source in _USES if f"through_{source}" in row}
    source = max(parts, key=lambda name: parts[name])
    return source, parts[source] / sum(part for part in parts.values() if part > 0)


def make_clone_tables(model: Model) -> list[Table]:
    """Return a table of the clones that each model stores; a model without stored clones has no table."""
    several = len(model.members) > 1
    tables = []
    for table_index, member in enumerate(model.members, start=1):
        stored = make_clones_table(member)
        if len(stored):
            ordered = stored.sort_values("p_value", kind="stable")
            carriers_of = f" of {member.name}" if several else ""
            tables.append(_make_clone_table(ordered, member.tasks, table_index, carriers_of))
    return tables


def _make_clone_table(stored: pd.DataFrame, tasks: Sequence[Task], table_index: int, carriers_of: str) -> Table:
    """Return the table of the first stored clones; `carriers_of` names the model, if there are several."""
    positive, negative = name_classes(tasks)
    gene_headings = {"v_call": "V gene", "j_call": "J gene"}
    carrier_headings = {
        "carriers_positive": f"Carriers: {positive}",
        "carriers_negative": f"Carriers: {negative}",
        "carriers": "Carriers",
    }
    genes = [name for name in gene_headings if name in stored]
    carriers = [name for name in carrier_headings if name in stored]
    columns = [
        Column("Clone", is_number=False),
        *(Column(gene_headings[name], is_number=False) for name in genes),
        Column("Evidence for", is_number=False),
        Column(
            "Match",
            is_number=False,
            note="which sequences count: the same, also with substitutions, with any residue at one position, the same"
            " with a count among the highest of its repertoire (expanded), or members of a cluster, which are connected"
            " by substitutions and have their carriers and p in common",
        ),
        *(Column(carrier_headings[name]) for name in carriers),
        Column("p", note="probability that chance alone relates the carriers so strongly to the label"),
        Column("q", note="expected share of false clones among all clones with this p or a smaller one"),
    ]
    one_of_each_cluster = _keep_first_of_clusters(stored)
    shown = one_of_each_cluster[:_SHOWN]
    directions = name_directions(tasks)
    rows = [_make_clone_row(row, directions, genes, carriers) for row in shown.to_dict("records")]
    one_each = ", one of each cluster" if len(one_of_each_cluster) < len(stored) else ""
    quantity = "All" if len(shown) == len(stored) else f"The first {len(shown):,} of"
    n_significant = int((stored["q_value"] <= _LEVEL).sum())
    significant = f"; {n_significant:,} of all have a q of at most {_LEVEL:g}"
    caption = f"{quantity} {len(stored):,} stored clones{carriers_of}{one_each}{significant}"
    return make_sortable_table(f"clones-{table_index}", caption, columns, rows, stored)


def _keep_first_of_clusters(stored: pd.DataFrame) -> pd.DataFrame:
    """Return stored clones without all members of a cluster but the first, whose match says how many there are."""
    is_member = find_cluster_members(stored)
    sizes = stored.groupby(CLUSTER_COLUMNS)["match"].transform("size")
    match = stored["match"].where(~is_member, stored["match"] + " (clones: " + sizes.astype(str) + ")")
    is_other = is_member & stored.duplicated(CLUSTER_COLUMNS)
    return stored.assign(match=match)[~is_other]


def _make_clone_row(
    row: Mapping[Hashable, Any],
    directions: Mapping[tuple[str, str], str],
    genes: Sequence[str],
    carriers: Sequence[str],
) -> list[Cell]:
    junction = str(row["junction_aa"])
    return [
        make_residues_cell(junction),
        *(make_gene_name_cell(row[name]) for name in genes),
        make_text_cell(directions[row["output"], row["direction"]]),
        make_text_cell(row["match"]),
        *(make_number_cell(None if pd.isna(row[name]) else int(row[name]), ",d") for name in carriers),
        make_p_cell(row["p_value"]),
        make_p_cell(row["q_value"]),
    ]


def make_residues_cell(residues: str) -> Cell:
    """Return a cell with residues, as in "CASSLGQYF"."""
    return Cell(Markup('<span class="residues">{}</span>').format(residues), residues)


def make_gene_name_cell(name: str) -> Cell:
    """Return a cell of a gene whose name is never divided between two lines."""
    return Cell(Markup('<span class="line">{}</span>').format(name), name) if name else make_text_cell(None)


def name_directions(tasks: Sequence[Task]) -> dict[tuple[str, str], str]:
    """Return the name of each output's direction, up or down; down is "not" the class for one of several classes."""
    outputs, directions = list_output_names(tasks), list_directions(tasks)
    names = {
        (outputs[direction.output], "up" if direction.sign > 0 else "down"): direction.name for direction in directions
    }
    for direction in directions:
        names.setdefault((outputs[direction.output], "down"), f"{direction.prefix}not {direction.label}")
    return names


def name_classes(tasks: Sequence[Task]) -> tuple[str, str]:
    """Return two headings: for the repertoires that have the class of an output, and for all others."""
    if len(tasks) == 1 and tasks[0].kind == "binary":
        return tasks[0].positive, tasks[0].negative
    return "of the class", "others"
