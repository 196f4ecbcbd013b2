"""What speaks for each side: its sequences, its motifs, and the kernels behind them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.comparison import p_text
from deeprc.evaluation.run import Run
from deeprc.interpretation.report import pictures
from deeprc.interpretation.report.motif_genes import CommonGene, common_genes, gene_cell, gene_sentence
from deeprc.interpretation.report.page import Cell, Column, Figure, Table, number, text
from deeprc.interpretation.report.sequences import SHOWN, sequence_table
from deeprc.interpretation.survey import Side, Survey

if TYPE_CHECKING:
    from deeprc.interpretation.motifs import Motif

__all__ = ["SidePage", "side_pages"]

_MOTIFS = 10  # in the table; the first of them as logos
_LOGOS = 6
_MORE = 1.1  # times as frequent as in any other class is more

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SidePage:
    """What the page says of a side.

    Attributes
    ----------
    side
        The direction of an output.
    n_sequences
        How many sequences speak for it, of those that were kept.
    table
        The best of them; None where there is none.
    logos
        Of the first motifs.
    motifs
        All that are told of; None where none was found.
    first
        The first motif in a sentence; "" where there is none.
    kernels
        What the kernels add.
    """

    side: Side
    n_sequences: int
    table: Table | None
    logos: Sequence[Figure]
    motifs: Table | None
    first: str
    kernels: Sequence[Figure]


def side_pages(
    run: Run, dataset: RepertoireDataset, survey: Survey, classes: Mapping[str, Mapping[str, str]]
) -> list[SidePage]:
    """Return a page for each side of a survey.

    Parameters
    ----------
    run, dataset, survey
        The survey of the dataset by the run.
    classes
        By target, the label of each repertoire as text, by its id; "" where it is not known.
    """
    from deeprc.interpretation.attributions import residue_frequencies

    background = residue_frequencies(dataset)
    return [
        _side_page(run, dataset, survey, side, place, classes[side.target], background)
        for place, side in enumerate(survey.sides, start=1)
    ]


def _side_page(
    run: Run,
    dataset: RepertoireDataset,
    survey: Survey,
    side: Side,
    place: int,
    classes: Mapping[str, str],
    background: NDArray[np.float64],
) -> SidePage:
    from deeprc.interpretation.attributions import attribute
    from deeprc.interpretation.motifs import find_motifs

    top = survey.top[side.name]
    if top.empty:
        return SidePage(side, 0, None, [], None, "", [])
    logger.info("%s: attributions and motifs of %d sequences", side.name, len(top))
    attributions = attribute(run, dataset, top, output=side.output, background=background)
    motifs = find_motifs(run, dataset, top, attributions, output=side.output, most=_MOTIFS)
    own = [classes.get(str(name), "") for name in top["repertoire_id"]]
    genes = [common_genes(motif, top, survey.genes) for motif in motifs]
    return SidePage(
        side,
        len(top),
        sequence_table(side, place, top, side.sign * attributions.residues[:SHOWN], own),
        [pictures.logo(motif, number_, side.name) for number_, motif in enumerate(motifs[:_LOGOS], start=1)],
        _motif_table(motifs, genes, side, place) if motifs else None,
        _first(motifs[0], genes[0], side) if motifs else "",
        pictures.kernel_picture(attributions.kernels, side.sign, side.name),
    )


def _first(motif: Motif, genes: Sequence[CommonGene], side: Side) -> str:
    text = (
        f"{motif.pattern}, in {motif.n_attended_with:,} of the {motif.n_attended:,} different sequences that speak for "
        f"it ({_percent(motif.n_attended_with, motif.n_attended)}) and {motif.n_background_with:,} of "
        f"{motif.n_background:,} others ({_percent(motif.n_background_with, motif.n_background)})."
    )
    text += gene_sentence(genes, motif.n_attended_with)
    shares = {str(row["class"]): float(row["mean_share"]) for row in motif.carriers.to_dict("records")}
    if len(shares) > 1:
        each = ", ".join(f"{share:.3%} in {name}" for name, share in shares.items())
        text += f" On average, so many of a repertoire's sequences carry it: {each}."
    others = [share for name, share in shares.items() if name != side.label]
    if side.label in shares and others and shares[side.label] < _MORE * max(others):
        text += " So it does not go with the class, though the network looks at it."
    return text


def _percent(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.1%}"


def _motif_table(motifs: Sequence[Motif], genes: Sequence[Sequence[CommonGene]], side: Side, place: int) -> Table:
    first = motifs[0]
    columns = [
        Column("Pattern", False),
        Column("Carriers", note=f"so many of the {first.n_attended:,} different sequences that speak for {side.name}"),
        Column("Others", note=f"so many of {first.n_background:,} sequences of like length from all repertoires"),
        Column("Odds ratio", note="how much more frequent it is among the former; 1 is alike"),
        Column("p, corrected", note="Fisher's exact test, corrected for all patterns that there are"),
    ]
    note = "all that carry it, and in brackets their mean share of a repertoire's sequences, as in the next classes"
    for row in first.carriers.to_dict("records"):
        name, n = row["class"], int(row["n_repertoires"])
        columns += [Column(f"{name}: repertoires, of {n:,}"), Column(f"{name}: sequences", note=note)]
        note = ""
    if any(genes):
        note = "so many of the sequences that speak for it and carry it have the gene, and so many of all sequences"
        columns.append(Column("Most common genes", False, note))
    columns.append(Column("Found in", False, "windows are pieces of the sequences, kernels learned detectors"))
    caption = f"Motifs of the sequences that speak for {side.name}; press a heading to sort by it"
    rows = [_motif_row(motif, [gene_cell(own)] if any(genes) else []) for motif, own in zip(motifs, genes, strict=True)]
    return Table(f"motifs-{place}", caption, columns, rows, sortable=True)


def _motif_row(motif: Motif, genes: Sequence[Cell]) -> list[Cell]:
    cells = [
        Cell(Markup("<code>{}</code>").format(motif.pattern), motif.pattern),
        _share(motif.n_attended_with, motif.n_attended),
        _share(motif.n_background_with, motif.n_background),
        _odds(motif.odds_ratio),
        Cell(_p_text(motif.p_adjusted), motif.log10_p_adjusted),
    ]
    for row in motif.carriers.to_dict("records"):
        share = float(row["mean_share"])
        cells.append(number(int(row["n_repertoires_with"]), ",d"))
        cells.append(Cell(f"{int(row['n_sequences_with']):,} ({share:.3%})", share))
    return [*cells, *genes, text(_source(motif.source))]


def _source(source: str) -> str:
    """Return where a motif was found, in fewer words: windows, kernels 3, 7."""
    parts = source.split(", ")
    kernels = [part.removeprefix("kernel ") for part in parts if part.startswith("kernel ")]
    others = [part for part in parts if not part.startswith("kernel ")]
    named = [f"kernel{'s' * (len(kernels) > 1)} {', '.join(kernels)}"] if kernels else []
    return ", ".join([*others, *named])


def _share(part: int, whole: int) -> Cell:
    return Cell(f"{part:,} ({_percent(part, whole)})", part / max(whole, 1))


def _odds(ratio: float) -> Cell:
    if not np.isfinite(ratio):
        return Cell("∞", 1e300)
    return number(ratio, ",.0f" if ratio >= 100 else ".3g")


def _p_text(p_value: float) -> str:
    """Return a p-value; of small ones the power, as they differ by many."""
    if p_value >= 0.001 or np.isnan(p_value):
        return p_text(p_value)
    return "<1e-300" if p_value < 1e-300 else f"{p_value:.0e}"
