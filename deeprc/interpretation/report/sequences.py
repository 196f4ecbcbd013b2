"""Tables of the sequences that contribute most to a direction, with coloured residues and a file to download."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from numpy.typing import NDArray

from deeprc.branches.clones import CloneBranch
from deeprc.interpretation.report.branch_tables import find_main_source
from deeprc.interpretation.report.direction_context import DirectionContext
from deeprc.interpretation.report.findings import SequenceCarriers
from deeprc.interpretation.report.page import (
    Cell,
    Column,
    Download,
    Table,
    make_download,
    make_number_cell,
    make_swatch,
    make_text_cell,
)

__all__ = ["SHOWN", "make_legend", "make_sequence_table", "shade_residues"]

SHOWN = 200
"""Number of sequences of a direction in the table; all are in the file that can be saved."""

_GENES = {"v_call": "V gene", "j_call": "J gene"}

_STEPS = (0.15, 0.4, 0.7)  # limits of the three shades, as shares of the strongest residue of the sequence

_SOURCE_NOTE = "the branch through which most of its contribution comes, and its share if this is not all"

_ANTIGEN_NOTE = (
    "most frequent organism and epitope of matching receptors in the databases, with the same residues or all but"
    " one; the saved table has the others. A match is not a proof: see “Known antigens?”"
)

_Q_NOTE = (
    "false discovery rate: of the sequences in repertoires of {} that contribute at least as much, the share that is"
    " expected to be there by chance. It is estimated from test or new donors. It is 1 in repertoires of other classes,"
    " and if these donors show no signal"
)

_LEGEND = (
    ("f3", "increases the contribution most"),
    ("f2", "increases it"),
    ("f1", "increases it a little"),
    ("a1", "decreases it a little"),
    ("a2", "decreases it"),
    ("a3", "decreases it most"),
)


class _Row(NamedTuple):
    """A row of the table of sequences.

    Attributes
    ----------
    sequence
        Values of the sequence by column, see `deeprc.interpretation.survey.TopSequences`.
    label
        Label of its repertoire as text, "" if missing.
    residues
        Amounts that its residues add to the contribution, (L,); None if not known.
    carriers
        Carriers of the sequence.
    """

    sequence: dict[Hashable, Any]
    label: str
    residues: NDArray[np.float64] | None
    carriers: SequenceCarriers


_TableColumn = tuple[Column, Callable[[_Row], Cell]]
"""A column of the table, and the function that makes its cells."""


def make_legend() -> list[tuple[Markup, str]]:
    """Return a letter in each style of `shade_residues`, and its meaning."""
    letter = Markup('<span class="residues"><span class="{}">A</span></span>')
    return [(letter.format(name), meaning) for name, meaning in _LEGEND]


def shade_residues(junction_aa: str, residues: NDArray[np.float64] | None) -> Markup:
    """Return a sequence with its residues shaded by their contributions, relative to the strongest of them.

    Parameters
    ----------
    junction_aa
        Sequence of L letters.
    residues
        Amount that each residue adds to the contribution, (L,) or longer; None if not known.
    """
    if residues is None:
        return Markup('<span class="residues">{}</span>').format(junction_aa)
    values = np.nan_to_num(residues[: len(junction_aa)])
    strongest = float(np.abs(values).max(initial=0.0))
    letters = []
    for letter, value in zip(junction_aa, values.tolist(), strict=True):
        step = sum(abs(value) > limit * strongest for limit in _STEPS) if strongest > 0 else 0
        shade = f' class="{"f" if value > 0 else "a"}{step}"' if step else ""
        letters.append(f'<span{shade} title="{value:+.2g}">{escape(letter)}</span>')
    return Markup('<span class="residues">{}</span>').format(Markup("".join(letters)))


def make_sequence_table(
    context: DirectionContext,
    top: pd.DataFrame,
    residues: NDArray[np.float64] | None,
    carriers: Sequence[SequenceCarriers],
) -> Table:
    """Return the table of the best sequences of a direction.

    Parameters
    ----------
    context
        Direction to which they contribute.
    top
        Table of the sequences, best first, see `deeprc.interpretation.survey.Survey`.
    residues
        Amounts that the residues of the first `SHOWN` add to the contribution to the direction, (n, L); see
        `attribute`.
    carriers
        Carriers of each sequence.
    """
    direction = context.direction
    labels = [context.label_of.get(str(name), "") for name in top["repertoire_id"]]
    shown = min(len(top), SHOWN)
    rows = [
        _Row(sequence, labels[row], None if residues is None else residues[row], carriers[row])
        for row, sequence in enumerate(top[:shown].to_dict("records"))
    ]
    columns = _list_columns(context, top, has_groups=any(carrier.group is not None for carrier in carriers))
    quantity = "All" if shown == len(top) else f"The first {shown:,} of"
    return Table(
        f"sequences-{context.index}",
        f"{quantity} {len(top):,} sequences that contribute most to {direction.name}; press a heading to sort by it",
        [column for column, _ in columns],
        [[make_cell(row) for _, make_cell in columns] for row in rows],
        sortable=True,
        searchable="Search sequences, genes, repertoires",
        sorted_by=1,
        download=_export_sequences(context, top, labels, carriers),
    )


def _list_columns(context: DirectionContext, top: pd.DataFrame, *, has_groups: bool) -> list[_TableColumn]:
    """Return the columns of the table of sequences, each with the function that makes its cells."""
    return [
        *_list_contribution_columns(context, top),
        *_list_gene_and_antigen_columns(top),
        *_list_repertoire_columns(context),
        *_list_carrier_columns(top, has_groups=has_groups),
    ]


def _list_contribution_columns(context: DirectionContext, top: pd.DataFrame) -> list[_TableColumn]:
    """Return the columns of the sequence and of how much it contributes to the direction."""
    direction, sign = context.direction, context.direction.sign
    contribution_format = f",.{_choose_digits(top['contribution'][:SHOWN])}f"
    response_note = f"the output for {direction.name} if all attention were on this sequence"
    columns: list[_TableColumn] = [
        (Column("Sequence", is_number=False), partial(_make_junction_cell, sign)),
        (Column("Contribution"), partial(_make_value_cell, "contribution", contribution_format, sign)),
    ]
    if "through_attention" in top:
        columns.append((Column("Mainly through", is_number=False, note=_SOURCE_NOTE), partial(_make_source_cell, sign)))
    if "q_value" in top:
        columns.append((Column("q", note=_Q_NOTE.format(direction.label)), _make_q_cell))
    columns.append((Column("Response", note=response_note), partial(_make_value_cell, "response", ",.2f", sign)))
    return columns


def _list_gene_and_antigen_columns(top: pd.DataFrame) -> list[_TableColumn]:
    columns: list[_TableColumn] = [
        (Column(heading, is_number=False), partial(_make_name_cell, name))
        for name, heading in _GENES.items()
        if name in top
    ]
    if "specificity_match" in top:
        columns.append((Column("Known antigen", is_number=False, note=_ANTIGEN_NOTE), _make_antigen_cell))
    return columns


def _list_repertoire_columns(context: DirectionContext) -> list[_TableColumn]:
    """Return the columns of the repertoire in which the sequence was found, and of the sequence in it."""
    label_note = "label of the repertoire in which the sequence was found"
    split_note = "part of the split that has this repertoire: train, validation, test or new"
    attention_note = "share of the attention of its repertoire that is on this sequence"
    count_note = "how often it was read (duplicate_count)"
    return [
        (Column("Repertoire", is_number=False), partial(_make_name_cell, "repertoire_id")),
        (
            Column(context.label_heading, is_number=False, note=label_note),
            partial(_make_label_cell, context.colour_of_class),
        ),
        (Column("Split", is_number=False, note=split_note), partial(_make_name_cell, "split")),
        (Column("Attention", note=attention_note), partial(_make_value_cell, "attention_weight", ".2%", 1)),
        (Column("Count", note=count_note), partial(_make_value_cell, "duplicate_count", ",d", 1)),
    ]


def _list_carrier_columns(top: pd.DataFrame, *, has_groups: bool) -> list[_TableColumn]:
    """Return the columns of the repertoires that share the sequence, and whether it was simulated."""
    carriers_note = "number of repertoires of the cohort, and of donors, that have it with the same genes"
    group_note = "a group of repertoires that have more sequences in common than chance explains"
    witness_note = "whether the simulation put the signal into it"
    columns: list[_TableColumn] = [(Column("Carried by", note=carriers_note), _make_carriers_cell)]
    if has_groups:
        columns.append((Column("Mainly within", is_number=False, note=group_note), _make_group_cell))
    if "witness" in top:
        columns.append((Column("Implanted", is_number=False, note=witness_note), _make_witness_cell))
    return columns


def _make_value_cell(name: str, text_format: str, sign: int, row: _Row) -> Cell:
    """Return a cell of a number of the sequence, times the sign."""
    return make_number_cell(sign * row.sequence[name], text_format)


def _make_name_cell(name: str, row: _Row) -> Cell:
    """Return a cell of a text of the sequence."""
    return make_text_cell(row.sequence[name] or None)


def _make_junction_cell(sign: int, row: _Row) -> Cell:
    """Return a cell of the junction with shaded residues; a stored clone, which counts as a whole, has no shades."""
    junction = str(row.sequence["junction_aa"])
    is_stored_clone = (
        "through_attention" in row.sequence and find_main_source(row.sequence, sign)[0] == CloneBranch.name
    )
    return Cell(shade_residues(junction, None if is_stored_clone else row.residues), junction)


def _make_source_cell(sign: int, row: _Row) -> Cell:
    """Return a cell of the branch through which most of the contribution comes, with its share if this is not all."""
    branch, share = find_main_source(row.sequence, sign)
    return make_text_cell(branch + (f" ({share:.0%})" if share < 0.995 else ""))


def _make_witness_cell(row: _Row) -> Cell:
    """Return a cell that says whether the sequence carries an implanted signal."""
    return make_text_cell("yes" if row.sequence["witness"] else "no")


def _make_label_cell(colour_of_class: Mapping[str, int], row: _Row) -> Cell:
    """Return a cell of the label of the repertoire: a class with its colour; a number has no colour."""
    label = row.label
    if label in colour_of_class:
        return Cell(make_swatch(colour_of_class[label]) + label, label)
    return make_text_cell(label or None)


def _choose_digits(contributions: pd.Series[float]) -> int:
    """Return the number of decimals that shows three digits of the lowest shown contribution."""
    lowest = float(contributions.abs().min()) if len(contributions) else 1.0
    return int(np.clip(2 - np.floor(np.log10(max(lowest, 1e-9))), 2, 6))


def _make_q_cell(row: _Row) -> Cell:
    """Return a cell of a false discovery rate; a dash if it is not known."""
    q_value = row.sequence["q_value"]
    return make_text_cell(None) if np.isnan(q_value) else make_number_cell(q_value, ".2f")


def _make_antigen_cell(row: _Row) -> Cell:
    """Return a cell of the most frequent organism and epitope, and the agreement of entries; empty without a match."""
    sequence, match = row.sequence, str(row.sequence["specificity_match"])
    columns = (str(sequence["antigen_organism"]), str(sequence["epitope"] or sequence["antigen"]))
    antigens = ", ".join(names.split("; ")[0] for names in columns if names)
    return make_text_cell(f"{antigens} ({match})" if match else None)


def _make_carriers_cell(row: _Row) -> Cell:
    """Return a cell of the number of carriers, such as "5 (2 donors)"."""
    carriers, donors = row.carriers, ""
    if carriers.n_donors is not None:
        donors = f" ({carriers.n_donors:,} {'donor' if carriers.n_donors == 1 else 'donors'})"
    return Cell(f"{carriers.n_repertoires:,}{donors}", carriers.n_repertoires)


def _make_group_cell(row: _Row) -> Cell:
    """Return a cell of the group that has most of the carriers; empty if there is none."""
    carriers = row.carriers
    within = carriers.group and f"{carriers.group.name}: {carriers.n_in_group:,} of {carriers.n_repertoires:,}"
    return make_text_cell(within)


def _export_sequences(
    context: DirectionContext, top: pd.DataFrame, labels: Sequence[str], carriers: Sequence[SequenceCarriers]
) -> Download:
    """Return the link to the table of all sequences of a direction, with their carriers."""
    direction = context.direction
    described = top.assign(
        direction=direction.name,
        contribution_to_direction=direction.sign * top["contribution"],
        repertoire_class=list(labels),
        n_repertoires=[carrier.n_repertoires for carrier in carriers],
        n_donors=["" if carrier.n_donors is None else str(carrier.n_donors) for carrier in carriers],
        group=[carrier.group.name if carrier.group else "" for carrier in carriers],
    )
    table = described.to_csv(sep="\t", index=False, float_format="%.9g")
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", direction.name).strip("-.")
    file_name = "-".join(filter(None, ["sequences", str(context.index), stem])) + ".tsv"
    return make_download(table, file_name, f"Save all {len(top):,} as a table (TSV)")
