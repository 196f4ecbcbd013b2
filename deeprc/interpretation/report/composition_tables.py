"""Tables of the features of the branch `composition` in a report: one for each kind of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from deeprc.branches.linear_function import FREQUENCY_KINDS, KIND_NAMES
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.report.branch_tables import (
    make_gene_name_cell,
    make_residues_cell,
    name_classes,
    name_directions,
)
from deeprc.interpretation.report.page import (
    Cell,
    Column,
    Table,
    make_number_cell,
    make_percent_cell,
    make_sortable_table,
    make_text_cell,
)
from deeprc.runs.composition_table import make_composition_table
from deeprc.runs.feature_effects import list_weighted_branches
from deeprc.tasks import Task
from deeprc.training.model import Model

__all__ = ["make_composition_tables"]

_SAVED = 200  # number of features of each output, direction, kind and length that can be saved
_SHOWN, _SHOWN_KMERS = 20, 5  # number of them that are shown; k-mers have up to four lengths
_PER = 1000  # number of sequences for which a mean is given: 4-mers are rare


@dataclass(frozen=True)
class _Kind:
    """What the table of a kind of features says: its caption, the heading of the features, and what a mean is."""

    caption: str
    feature: str
    mean: str
    is_share: bool = False
    is_kmer: bool = False
    scale: int = _PER
    format: str = ",.2f"


_KINDS: dict[str, _Kind] = {
    KIND_NAMES["genes"]: _Kind("Genes", "Gene", "mean share of the sequences with a known gene", is_share=True),
    KIND_NAMES["kmers"]: _Kind("k-mers", "k-mer", f"mean number in {_PER:,} sequences", is_kmer=True),
    KIND_NAMES["residues"]: _Kind(
        "Residues at IMGT positions",
        "Residue",
        "mean number in a sequence; for a V gene, in a sequence with this gene",
        scale=1,
        format=",.3f",
    ),
    KIND_NAMES["gene_pairs"]: _Kind("Pairs of genes", "Genes", "mean share of the sequences", is_share=True),
    KIND_NAMES["abundances"]: _Kind("Diversity of the counts", "Feature", "mean share", is_share=True),
    KIND_NAMES["gene_expansion"]: _Kind(
        "Genes of expanded clones", "Gene", f"mean sum of the expansion scores in {_PER:,} sequences"
    ),
    KIND_NAMES["expansion"]: _Kind(
        "k-mers of expanded clones",
        "k-mer",
        f"mean sum of the expansion scores in {_PER:,} sequences",
        is_kmer=True,
    ),
}


def make_composition_tables(model: Model, dataset: RepertoireDataset) -> list[Table]:
    """Return a table for each kind of features that the composition reads; empty if it reads none.

    Raises
    ------
    InputError
        As `make_composition_table`.
    """
    features = make_composition_table(model, dataset, top=_SAVED)
    of_families = [weighted for weighted in list_weighted_branches(model) if weighted.branch.counts_families]
    kinds = dict(_KINDS)
    for kind in FREQUENCY_KINDS:
        if any(weighted.weigh(kind).any() for weighted in of_families):
            plain = _KINDS[KIND_NAMES[kind]]
            kinds[KIND_NAMES[kind]] = replace(plain, mean=f"{plain.mean}; each clonal family counts once")
    rows_by_kind = [(kind, features[features["kind"] == name]) for name, kind in kinds.items()]
    return [_make_table(kind, rows, model.tasks) for kind, rows in rows_by_kind if len(rows)]


def _make_table(kind: _Kind, features: pd.DataFrame, tasks: Sequence[Task]) -> Table:
    """Return the table of the features of one kind."""
    directions = name_directions(tasks)
    first, second = _name_groups(tasks)
    shown = _choose_shown(features, kind.is_kmer)
    columns = [
        Column(kind.feature, is_number=False),
        Column("Evidence for", is_number=False),
        Column("Effect", note="what one standard deviation of the feature adds to the output"),
        Column(f"Mean: {first}", note=kind.mean),
        Column(f"Mean: {second}"),
    ]
    rows = [
        [
            _make_name_cell(row["feature"], kind),
            make_text_cell(directions[row["output"], row["direction"]]),
            make_number_cell(row["effect"], "+,.3f"),
            *(_make_mean_cell(row[name], kind) for name in ("mean_positive", "mean_negative")),
        ]
        for row in shown.to_dict("records")
    ]
    quantity = f"{len(shown):,} of {len(features):,}, " if len(shown) < len(features) else ""
    name = f"composition-{kind.caption.lower().replace(' ', '-')}"
    return make_sortable_table(name, f"{kind.caption}: {quantity}largest effect first", columns, rows, features)


def _choose_shown(features: pd.DataFrame, is_kmer: bool) -> pd.DataFrame:
    """Return the first rows of each output and direction, and, if the features are k-mers, of each length."""
    keys = [features["output"], features["direction"], features["feature"].str.len() if is_kmer else features["kind"]]
    shown = features[features.groupby(keys).cumcount() < (_SHOWN_KMERS if is_kmer else _SHOWN)]
    return shown.loc[shown["effect"].abs().sort_values(ascending=False, kind="stable").index]


def _name_groups(tasks: Sequence[Task]) -> tuple[str, str]:
    """Return the headings of the two groups of repertoires that the table compares."""
    if all(task.kind == "regression" for task in tasks):
        return "higher half", "lower half"
    if any(task.kind == "regression" for task in tasks):
        return "of the class, or higher half", "others, or lower half"
    return name_classes(tasks)


def _make_name_cell(name: str, kind: _Kind) -> Cell:
    if kind.is_kmer:
        return make_residues_cell(name)
    return make_gene_name_cell(name) if kind.feature == "Gene" else make_text_cell(name)


def _make_mean_cell(mean: float, kind: _Kind) -> Cell:
    return make_percent_cell(mean, 2) if kind.is_share else make_number_cell(mean * kind.scale, kind.format)
