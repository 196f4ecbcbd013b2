"""Tables of the sequences that contribute most to a direction, with coloured residues and a file to download."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence

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
    Table,
    make_download_link,
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
    "false discovery rate: estimated share of sequences that are there by chance, among those in repertoires of {} that"
    " contribute at least as much. It is estimated from test or new donors. It is 1 in repertoires of other classes,"
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
    genes = {name: heading for name, heading in _GENES.items() if name in top}
    has_groups = any(carrier.group is not None for carrier in carriers)
    digits = _choose_digits(top["contribution"][:shown])
    rows = []
    for row, (sequence, label) in enumerate(zip(top[:shown].to_dict("records"), labels[:shown], strict=True)):
        sequence_residues = None if residues is None else residues[row]
        label_cell = _make_label_cell(label, context.colour_of_class)
        carrier_cells = _make_carrier_cells(carriers[row], has_groups)
        rows.append(
            _make_row(sequence, direction.sign, digits, sequence_residues, label_cell, list(genes), carrier_cells)
        )
    quantity = "All" if shown == len(top) else f"The first {shown:,} of"
    return Table(
        f"sequences-{context.index}",
        f"{quantity} {len(top):,} sequences that contribute most to {direction.name}; press a heading to sort by it",
        _make_columns(context, top, list(genes.values()), has_groups),
        rows,
        sortable=True,
        searchable="Search sequences, genes, repertoires",
        sorted_by=1,
        download=_export_sequences(context, top, labels, carriers),
    )


def _make_columns(
    context: DirectionContext, top: pd.DataFrame, gene_headings: Sequence[str], has_groups: bool
) -> list[Column]:
    """Return the headings of the table of sequences; `_make_row` has the cells in the same order."""
    direction = context.direction
    response = f"the output for {direction.name} if all attention were on this sequence"
    carried = "number of repertoires of the cohort, and of donors, that have it with the same genes"
    within = "a group of repertoires that have more sequences in common than chance explains"
    return [
        Column("Sequence", False),
        Column("Contribution"),
        *([Column("Mainly through", False, _SOURCE_NOTE)] if "through_attention" in top else []),
        *([Column("q", note=_Q_NOTE.format(direction.label))] if "q_value" in top else []),
        Column("Response", note=response),
        *(Column(heading, False) for heading in gene_headings),
        *([Column("Known antigen", False, _ANTIGEN_NOTE)] if "specificity_match" in top else []),
        Column("Repertoire", False),
        Column(context.label_heading, False, "label of the repertoire in which the sequence was found"),
        Column("Split", False, "part of the split that has this repertoire: train, validation, test or new"),
        Column("Attention", note="share of the attention of its repertoire that is on this sequence"),
        Column("Count", note="how often it was read (duplicate_count)"),
        Column("Carried by", note=carried),
        *([Column("Mainly within", False, within)] if has_groups else []),
        *([Column("Implanted", False, "whether the simulation put the signal into it")] if "witness" in top else []),
    ]


def _make_label_cell(label: str, colour_of_class: Mapping[str, int]) -> Cell:
    """Return a cell of a class with its colour; a number has no colour."""
    return (
        Cell(make_swatch(colour_of_class[label]) + label, label)
        if label in colour_of_class
        else make_text_cell(label or None)
    )


def _choose_digits(contributions: pd.Series[float]) -> int:
    """Return the number of decimals that shows three digits of the lowest shown contribution."""
    lowest = float(contributions.abs().min()) if len(contributions) else 1.0
    return int(np.clip(2 - np.floor(np.log10(max(lowest, 1e-9))), 2, 6))


def _make_row(
    sequence: dict[Hashable, object],
    sign: int,
    digits: int,
    residues: NDArray[np.float64] | None,
    label: Cell,
    genes: Sequence[str],
    carrier_cells: Sequence[Cell],
) -> list[Cell]:
    """Return the cells of one sequence, in the order of `_make_columns`; residues are shaded by their attribution."""
    junction = str(sequence["junction_aa"])
    source = find_main_source(sequence, sign) if "through_attention" in sequence else None
    if source is not None and source[0] == CloneBranch.name:
        residues = None  # a stored clone counts as a whole
    cells = [
        Cell(shade_residues(junction, residues), junction),
        make_number_cell(sign * float(str(sequence["contribution"])), f",.{digits}f"),
        *([] if source is None else [make_text_cell(source[0] + f" ({source[1]:.0%})" * (source[1] < 0.995))]),
        *([_make_q_cell(float(str(sequence["q_value"])))] if "q_value" in sequence else []),
        make_number_cell(sign * float(str(sequence["response"])), ",.2f"),
        *(make_text_cell(sequence[name] or None) for name in genes),
        *([_make_antigen_cell(sequence)] if "specificity_match" in sequence else []),
        make_text_cell(sequence["repertoire_id"]),
        label,
        make_text_cell(sequence["split"]),
        make_number_cell(float(str(sequence["attention_weight"])), ".2%"),
        make_number_cell(int(str(sequence["duplicate_count"])), ",d"),
        *carrier_cells,
    ]
    if "witness" in sequence:
        cells.append(make_text_cell("yes" if sequence["witness"] else "no"))
    return cells


def _make_q_cell(q_value: float) -> Cell:
    """Return a cell of a false discovery rate; a dash if it is not known."""
    return make_text_cell(None) if np.isnan(q_value) else make_number_cell(q_value, ".2f")


def _make_antigen_cell(row: Mapping[Hashable, object]) -> Cell:
    """Return a cell of the most frequent organism and epitope, and the agreement of entries; empty without a match."""
    match = str(row["specificity_match"])
    columns = (str(row["antigen_organism"]), str(row["epitope"] or row["antigen"]))
    antigens = ", ".join(names.split("; ")[0] for names in columns if names)
    return make_text_cell(f"{antigens} ({match})" if match else None)


def _make_carrier_cells(carriers: SequenceCarriers, has_groups: bool) -> list[Cell]:
    """Return cells of the number of carriers, such as "5 (2 donors)", and of the group that has most of them."""
    donors = (
        ""
        if carriers.n_donors is None
        else f" ({carriers.n_donors:,} {'donor' if carriers.n_donors == 1 else 'donors'})"
    )
    cells = [Cell(f"{carriers.n_repertoires:,}{donors}", carriers.n_repertoires)]
    if has_groups:
        within = carriers.group and f"{carriers.group.name}: {carriers.n_in_group:,} of {carriers.n_repertoires:,}"
        cells.append(make_text_cell(within))
    return cells


def _export_sequences(
    context: DirectionContext, top: pd.DataFrame, labels: Sequence[str], carriers: Sequence[SequenceCarriers]
) -> tuple[str, str, str]:
    direction, index = context.direction, context.index
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
    return make_download_link(
        table, f"sequences-{index}{f'-{stem}' * bool(stem)}.tsv", f"Save all {len(top):,} as a table (TSV)"
    )
