"""What speaks for each direction: its sequences, its motifs, and the kernels behind them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.drawing import CLASS_COLOURS
from deeprc.evaluation.comparison import p_text
from deeprc.interpretation.figures.classes import class_places
from deeprc.interpretation.report import pictures
from deeprc.interpretation.report.findings import SharedBy
from deeprc.interpretation.report.motif_genes import CommonGene, common_genes, gene_cell, gene_sentence
from deeprc.interpretation.report.page import Cell, Column, Figure, Table, number, swatch, text
from deeprc.interpretation.report.sequences import SHOWN, sequence_table
from deeprc.interpretation.survey import Direction, Survey, TopSequences
from deeprc.runs.predictor import Predictor
from deeprc.tasks import Task

if TYPE_CHECKING:
    from deeprc.interpretation.attributions import Attributions
    from deeprc.interpretation.motifs import AttendedMotif
    from deeprc.interpretation.motifs.attended_motif import Source
    from deeprc.training.model import Model

__all__ = ["DirectionPage", "direction_pages"]

_MOTIFS = 10  # in the table; the first of them as logos
_LOGOS = 6
_PEOPLE_NOTE = (
    "exact test that people of {} carry it more often than others, over all repertoires, also those the network was "
    "trained with, and not corrected for the number of motifs"
)
_MORE = 1.1  # times as frequent as in any other class is more

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DirectionPage:
    """What the page says of a direction.

    Attributes
    ----------
    direction
        The direction of an output.
    n_sequences
        How many sequences speak for it by their residues, of those that were kept.
    table
        The best of them; None where there is none.
    logos
        The logos of the first motifs.
    motifs
        All that are told of; None where none was found.
    first
        The first motif in a sentence; "" where there is none.
    kernels
        What the kernels add.
    place
        The place of the direction's class among all, see `class_places`; modulo the number of colours.
    """

    direction: Direction
    n_sequences: int
    table: Table | None
    logos: Sequence[Figure]
    motifs: Table | None
    first: str
    kernels: Sequence[Figure]
    place: int


@dataclass(frozen=True)
class _Found:
    """What was found about a direction.

    Attributes
    ----------
    direction
        The direction of an output.
    index
        The place of its page, from 1.
    heading
        What heads the labels of repertoires.
    top, shared
        The sequences that speak most for it, and who carries each.
    residues
        What the residues of the first of these add; None where there is no sequence.
    by_residues
        The sequences that speak most for it by their residues, see `Survey`.
    attributions, motifs
        Attributions and motifs of these; None and [] where there is none.
    """

    direction: Direction
    index: int
    heading: str
    top: TopSequences
    shared: Sequence[SharedBy]
    residues: NDArray[np.float64] | None
    by_residues: TopSequences
    attributions: Attributions | None
    motifs: Sequence[AttendedMotif]


def direction_pages(
    predictor: Predictor,
    dataset: RepertoireDataset,
    survey: Survey,
    classes: Mapping[str, Mapping[str, str]],
    shared: Mapping[str, Sequence[SharedBy]],
) -> list[DirectionPage]:
    """Return a page for each direction of a survey.

    Parameters
    ----------
    predictor, dataset, survey
        The survey of the dataset by the run, or by several together.
    classes
        By target, the label of each repertoire as text, by its id; "" where it is not known.
    shared
        By direction, who carries each of its top sequences.
    """
    from deeprc.interpretation.figures import logo_top

    every = _explained(predictor, dataset, survey, shared)
    drawn = [motif for found in every for motif in found.motifs[:_LOGOS]]
    logo_height = logo_top(drawn) if drawn else 0.0
    places = class_places(predictor.model.tasks)
    members = _members(predictor.model)
    return [
        _direction_page(
            found,
            survey.genes,
            classes[found.direction.target],
            places[found.direction.target],
            members,
            logo_height,
        )
        for found in every
    ]


def _explained(
    predictor: Predictor, dataset: RepertoireDataset, survey: Survey, shared: Mapping[str, Sequence[SharedBy]]
) -> list[_Found]:
    """Return attributions and motifs of the sequences that speak for each direction."""
    from deeprc.interpretation.attributions import attribute
    from deeprc.interpretation.motifs import find_all_motifs

    model, attributions, residues = predictor.model, {}, {}
    for direction in survey.directions:
        explain = partial(attribute, model, dataset, output=direction.output, background=survey.residue_frequencies)
        top, by_residues = survey.top[direction.name], survey.by_residues[direction.name]
        if len(by_residues):
            logger.info("%s: attributions and motifs of %d sequences", direction.name, len(by_residues))
            attributions[direction.name] = explain(by_residues.index)
        if top is by_residues and len(top):
            residues[direction.name] = attributions[direction.name].residues[:SHOWN]
        elif len(top):
            residues[direction.name] = explain(top.index.take(np.arange(min(SHOWN, len(top))))).residues
    found = find_all_motifs(
        model, dataset, list(attributions.values()), max_motifs=_MOTIFS, group_by=predictor.group_by
    )
    motifs = dict(zip(attributions, found, strict=True))
    return [
        _Found(
            direction,
            index,
            _heading(model.tasks, direction),
            survey.top[direction.name],
            shared[direction.name],
            residues.get(direction.name),
            survey.by_residues[direction.name],
            attributions.get(direction.name),
            motifs.get(direction.name, []),
        )
        for index, direction in enumerate(survey.directions, start=1)
    ]


def _direction_page(
    found: _Found,
    genes_of_all: pd.DataFrame,
    classes: Mapping[str, str],
    places: Mapping[str, int],
    members: Sequence[tuple[str, int]],
    logo_height: float,
) -> DirectionPage:
    direction, motifs, top = found.direction, found.motifs, found.top.table
    place = places[direction.label] % len(CLASS_COLOURS)
    if not len(top):
        return DirectionPage(direction, 0, None, [], None, "", [], place)
    own = [classes.get(str(name), "") for name in top["repertoire_id"]]
    genes = [common_genes(motif, found.by_residues.table, genes_of_all) for motif in motifs]
    residues = None if found.residues is None else direction.sign * found.residues
    logos = enumerate(motifs[:_LOGOS], start=1)
    return DirectionPage(
        direction,
        len(found.by_residues),
        sequence_table(direction, found.index, top, residues, own, found.shared, places=places, heading=found.heading),
        [pictures.logo(motif, i, direction.name, top=logo_height) for i, motif in logos],
        _motif_table(motifs, genes, direction, found.index, places) if motifs else None,
        _first(motifs[0], genes[0], direction) if motifs else "",
        pictures.kernel_pictures(found.attributions.kernels, members, direction, place) if found.attributions else [],
        place,
    )


def _members(model: Model) -> list[tuple[str, int]]:
    """Return the name of each model that predicts, "" where it is but one, and how many kernels it has."""
    sizes = [member.network.embedding.out_features for member in model.members]
    names = [member.name for member in model.members] if len(sizes) > 1 else [""]
    return list(zip(names, sizes, strict=True))


def _heading(tasks: Sequence[Task], direction: Direction) -> str:
    """Return what heads the labels of repertoires: "Class", or the name of the number that is predicted."""
    task = next(task for task in tasks if task.name == direction.target)
    return task.column if task.kind == "regression" else "Class"


def _first(motif: AttendedMotif, genes: Sequence[CommonGene], direction: Direction) -> str:
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
    if "n_people" in motif.carriers:
        rows = motif.carriers.to_dict("records")
        several = len(rows) > 1  # of a number all repertoires are one row
        each = ", ".join(
            f"{row['n_people_with']:,} of {row['n_people']:,}" + several * f" in {row['class']}" for row in rows
        )
        text += f" So many people have a repertoire with it: {each}."
    others = [share for name, share in shares.items() if name != direction.label]
    if direction.label in shares and others and shares[direction.label] < _MORE * max(others):
        text += " So it does not go with the class, though the network looks at it."
    return text


def _percent(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.1%}"


def _motif_table(
    motifs: Sequence[AttendedMotif],
    genes: Sequence[Sequence[CommonGene]],
    direction: Direction,
    index: int,
    places: Mapping[str, int],
) -> Table:
    first = motifs[0]
    columns = [
        Column("Pattern", False),
        Column(
            "Carriers", note=f"so many of the {first.n_attended:,} different sequences that speak for {direction.name}"
        ),
        Column("Others", note=f"so many of {first.n_background:,} sequences of like length from all repertoires"),
        Column("Odds ratio", note="how much more frequent it is among the former; 1 is alike"),
        Column("p, corrected", note="Fisher's exact test, corrected for all patterns that there are"),
    ]
    note = "all that carry it, and in brackets their mean share of a repertoire's sequences, as in the next columns"
    for row in first.carriers.to_dict("records"):
        name, n = row["class"], int(row["n_repertoires"])
        mark = swatch(places[name]) if name in places else ""
        sizes = f"so many of {n:,} carry it"
        if "n_people" in row:
            sizes += f", and in brackets the people they come from, of {int(row['n_people']):,}"
        columns.append(Column(mark + f"{name}: repertoires", note=sizes))
        columns.append(Column(mark + f"{name}: sequences", note=note))
        note = ""
    if _people_p(first, direction) is not None:
        columns.append(Column("p by people", note=_PEOPLE_NOTE.format(direction.label)))
    if any(genes):
        note = "so many of the sequences that speak for it and carry it have the gene, and so many of all sequences"
        columns.append(Column("Most common genes", False, note))
    columns.append(Column("Found in", False, "windows are pieces of the sequences, kernels learned detectors"))
    caption = f"Motifs of the sequences that speak for {direction.name}; press a heading to sort by it"
    rows = [
        _motif_row(motif, direction, [gene_cell(own)] if any(genes) else [])
        for motif, own in zip(motifs, genes, strict=True)
    ]
    return Table(f"motifs-{index}", caption, columns, rows, sortable=True)


def _people_p(motif: AttendedMotif, direction: Direction) -> float | None:
    """Return the p-value of the test by people for the direction's class; None without a class or repeated people."""
    if "p_people" not in motif.carriers:
        return None
    own = motif.carriers.loc[motif.carriers["class"] == direction.label, "p_people"].tolist()
    return float(own[0]) if own else None


def _motif_row(motif: AttendedMotif, direction: Direction, genes: Sequence[Cell]) -> list[Cell]:
    cells = [
        Cell(Markup("<code>{}</code>").format(motif.pattern), motif.pattern),
        _share(motif.n_attended_with, motif.n_attended),
        _share(motif.n_background_with, motif.n_background),
        _odds(motif.odds_ratio),
        Cell(_p_text(motif.p_adjusted), motif.log10_p_adjusted),
    ]
    for row in motif.carriers.to_dict("records"):
        share = float(row["mean_share"])
        n_with = int(row["n_repertoires_with"])
        people = f" ({int(row['n_people_with']):,})" if "n_people_with" in row else ""
        cells.append(Cell(f"{n_with:,}{people}", n_with))
        cells.append(_lines(f"{int(row['n_sequences_with']):,}", f"({share:.3%})", share))
    p_people = _people_p(motif, direction)
    if p_people is not None:
        cells.append(Cell(_p_text(p_people), p_people) if np.isfinite(p_people) else number(None))
    return [*cells, *genes, text(_sources(motif.sources))]


def _sources(sources: Sequence[Source]) -> str:
    """Return where a motif was found, in few words: windows, kernels 3, 7."""
    parts = ["windows"] if any(source.kernel == 0 for source in sources) else []
    for member in sorted({source.member for source in sources if source.kernel}):
        kernels = [str(source.kernel) for source in sources if source.kernel and source.member == member]
        named = f"kernel{'s' * (len(kernels) > 1)} {', '.join(kernels)}"
        parts.append(named + f" of model {member}" * (member > 0))
    return ", ".join(parts)


def _share(part: int, whole: int) -> Cell:
    return _lines(f"{part:,}", f"({_percent(part, whole)})", part / max(whole, 1))


def _lines(first: str, second: str, value: float) -> Cell:
    """Return a cell that breaks between two texts where it is narrow, and only there."""
    return Cell(Markup('<span class="line">{}</span> <span class="line">{}</span>').format(first, second), value)


def _odds(ratio: float) -> Cell:
    if not np.isfinite(ratio):
        return Cell("∞", 1e300)
    return number(ratio, ",.0f" if ratio >= 100 else ".3g")


def _p_text(p_value: float) -> str:
    """Return a p-value; of small ones the power, as they differ by many."""
    if p_value >= 0.001 or np.isnan(p_value):
        return p_text(p_value)
    return "<1e-300" if p_value < 1e-300 else f"{p_value:.0e}"
