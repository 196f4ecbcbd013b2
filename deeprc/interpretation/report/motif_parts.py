"""The parts of a report about the motifs of a direction: their table, and a text about the first one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from deeprc.errors import format_count
from deeprc.evaluation.significance import format_p_in_words, format_p_value
from deeprc.interpretation.directions import Direction
from deeprc.interpretation.motifs import AttendedMotif
from deeprc.interpretation.motifs.attended_motif import Source
from deeprc.interpretation.report.direction_context import DirectionContext
from deeprc.interpretation.report.motif_genes import CommonGene, make_gene_cell, make_gene_sentence
from deeprc.interpretation.report.page import (
    Cell,
    Column,
    Table,
    make_number_cell,
    make_p_cell,
    make_swatch,
    make_text_cell,
)

__all__ = ["describe_first_motif", "make_motif_table"]

_LEVEL = 0.05


def describe_first_motif(motif: AttendedMotif, genes: Sequence[CommonGene], direction: Direction) -> str:
    """Return the test in new donors first, because the network chose the sequences in which the motif is enriched."""
    chosen = _format_percent(motif.n_attended_with, motif.n_attended)
    others = _format_percent(motif.n_background_with, motif.n_background)
    enrichment = (
        f" It is in {motif.n_attended_with:,} of the {motif.n_attended:,} different sequences that contribute most to "
        f"{direction.name} ({chosen}), and in {motif.n_background_with:,} of {motif.n_background:,} others ({others})."
    )
    tested = _describe_donor_test(motif, direction)
    return f"{motif.pattern}:{tested}{enrichment}{make_gene_sentence(genes, motif.n_attended_with)}"


def _describe_donor_test(motif: AttendedMotif, direction: Direction) -> str:
    """Return a text that says whether the motif is associated with the class, or the number, in new donors."""
    claim = f"associated with {direction.target}" if motif.has_numeric_target else "associated with the class"
    if np.isnan(motif.p_donors):
        return f" It is not known whether it is {claim}: there are no donors to compare that the network has not seen."
    rates = [row for row in motif.donors.to_dict("records") if row["n_donors"]]
    rates_text = ", ".join(
        f"{row['mean_rate']:.3%} on average"
        + ("" if motif.has_numeric_target else f" in {row['class']}")
        + f" ({format_count(row['n_donors'], 'donor')})"
        for row in rates
    )
    test = f"{format_p_in_words(motif.p_donors)}, false discovery rate {format_p_value(motif.q_donors)}"
    verdict = "It is" if motif.q_donors <= _LEVEL else "It is not shown to be"
    return (
        f" {verdict} {claim} ({test}). In repertoires that the network has not seen, this share of a donor's sequences "
        f"carries it: {rates_text}."
    )


def _format_percent(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.1%}"


def make_motif_table(
    context: DirectionContext, motifs: Sequence[AttendedMotif], genes: Sequence[Sequence[CommonGene]]
) -> Table:
    """Return the table of a direction's motifs.

    Parameters
    ----------
    context
        The direction, and the models.
    motifs, genes
        The motifs, at least one, and the most common genes of each.
    """
    first, direction, has_several = motifs[0], context.direction, len(context.members) > 1
    is_tested = any(not np.isnan(motif.p_donors) for motif in motifs)
    columns = [Column("Pattern", is_number=False)]
    if is_tested:
        columns += _make_test_columns(first, context)
    columns += _make_carrier_columns(first, context)
    if any(genes):
        note = "its share among contributing sequences with the motif; in brackets its share among all sequences"
        columns.append(Column("Most common genes", is_number=False, note=note))
    columns += _make_enrichment_columns(first, direction)
    if has_several:
        note = f"number of models (of {len(context.members)}) with a kernel that has it"
        columns.append(Column("Models", note=note))
    note = "windows: short pieces of the sequences; kernels: detectors that the network learned"
    columns.append(Column("Found in", is_number=False, note=note))
    rows = []
    for motif, motif_genes in zip(motifs, genes, strict=True):
        gene_cells = [make_gene_cell(motif_genes)] if any(genes) else []
        rows.append(_make_motif_row(motif, gene_cells, is_tested=is_tested, has_several=has_several))
    caption = f"Motifs of the sequences that contribute to {direction.name}; press a heading to sort by it"
    return Table(f"motifs-{context.index}", caption, columns, rows, sortable=True)


def _make_carrier_columns(motif: AttendedMotif, context: DirectionContext) -> list[Column]:
    """Return two columns for each class: how many repertoires, and how many sequences, carry a motif."""
    columns = []
    note = (
        "number of sequences that carry it; in brackets their mean share of a repertoire, in all columns of sequences"
    )
    for row in motif.carriers.to_dict("records"):
        heading = _make_mark(row["class"], context) + row["class"]  # if it has markup, the name is escaped
        sizes = f"number of repertoires (of {int(row['n_repertoires']):,}) that carry it, training repertoires included"
        if "n_cohort_donors" in row:
            sizes += f"; in brackets the number of their donors (of {int(row['n_cohort_donors']):,})"
        columns += [Column(heading + ": repertoires", note=sizes), Column(heading + ": sequences", note=note)]
        note = ""  # it holds for all columns of sequences, and is said once
    return columns


def _make_enrichment_columns(motif: AttendedMotif, direction: Direction) -> list[Column]:
    """Return the columns that compare the sequences that contribute to the direction with others."""
    chosen = f"number that carry it, of {motif.n_attended:,} different sequences that contribute to {direction.name}"
    others = f"number that carry it, of {motif.n_background:,} sequences of similar length from all repertoires"
    ratio = "odds ratio of “Chosen” and “Others”; high for all motifs of chosen sequences, even without a signal"
    return [Column("Chosen", note=chosen), Column("Others", note=others), Column("Enrichment", note=ratio)]


def _make_test_columns(motif: AttendedMotif, context: DirectionContext) -> list[Column]:
    """Return the columns of the test in donors that the network has not learned from."""
    columns = []
    for row in motif.donors.to_dict("records"):
        name, n = row["class"], int(row["n_donors"])
        mark = _make_mark(name, context)
        note = (
            "mean share of a donor's sequences; in brackets the number of donors with the motif, of "
            f"{format_count(n, 'donor')} not seen in training"
        )
        columns.append(Column(mark + f"{name}: rate", note=note))
    label = context.direction.label
    class_phrase = label if len(columns) > 1 else f"{label} numbers"
    return [
        *columns,
        Column("p", note=f"test whether it is more frequent in donors of {class_phrase}, by the ranks of their rates"),
        Column("q", note="false discovery rate over all motifs of this page (Benjamini and Hochberg)"),
    ]


def _make_mark(name: str, context: DirectionContext) -> str:
    """Return the colour of a class to put before its name; "" if the name is not a class."""
    return make_swatch(context.colour_of_class[name]) if name in context.colour_of_class else ""


def _make_motif_row(motif: AttendedMotif, genes: Sequence[Cell], *, is_tested: bool, has_several: bool) -> list[Cell]:
    cells = [Cell(Markup("<code>{}</code>").format(motif.pattern), motif.pattern)]
    if is_tested:
        for row in motif.donors.to_dict("records"):
            share, n_with = float(row["mean_rate"]), int(row["n_donors_with"])
            known = row["n_donors"] > 0
            cells.append(
                _make_two_part_cell(f"{share:.3%}", f"({n_with:,})", share) if known else make_number_cell(None)
            )
        cells += [make_p_cell(motif.p_donors), make_p_cell(motif.q_donors)]
    for row in motif.carriers.to_dict("records"):
        share = float(row["mean_share"])
        n_with = int(row["n_repertoires_with"])
        donors = f" ({int(row['n_cohort_donors_with']):,})" if "n_cohort_donors_with" in row else ""
        cells.append(Cell(f"{n_with:,}{donors}", n_with))
        cells.append(_make_two_part_cell(f"{int(row['n_sequences_with']):,}", f"({share:.3%})", share))
    return [
        *cells,
        *genes,
        _make_share_cell(motif.n_attended_with, motif.n_attended),
        _make_share_cell(motif.n_background_with, motif.n_background),
        _make_odds_cell(motif.enrichment),
        *([make_number_cell(motif.n_models, ",")] if has_several else []),
        make_text_cell(_format_sources(motif.sources)),
    ]


def _format_sources(sources: Sequence[Source]) -> str:
    """Return a short text that says where a motif was found: windows, kernels 3, 7."""
    parts = ["windows"] if any(source.kernel == 0 for source in sources) else []
    for member in sorted({source.member for source in sources if source.kernel}):
        kernels = [str(source.kernel) for source in sources if source.kernel and source.member == member]
        kernel_list = f"kernel{'s' if len(kernels) > 1 else ''} {', '.join(kernels)}"
        parts.append(kernel_list + (f" of model {member}" if member > 0 else ""))
    return ", ".join(parts)


def _make_share_cell(part: int, whole: int) -> Cell:
    return _make_two_part_cell(f"{part:,}", f"({_format_percent(part, whole)})", part / max(whole, 1))


def _make_two_part_cell(first: str, second: str, value: float) -> Cell:
    """Return a cell of two texts that may have a line break only between them."""
    return Cell(Markup('<span class="line">{}</span> <span class="line">{}</span>').format(first, second), value)


def _make_odds_cell(ratio: float) -> Cell:
    if not np.isfinite(ratio):
        return Cell("∞", 1e300)
    return make_number_cell(ratio, ",.0f" if ratio >= 100 else ".3g")
