"""The parts of a report about each direction of an output: sequences, motifs and kernels that contribute to it."""

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
from deeprc.evaluation.trust import p_in_words, p_text
from deeprc.interpretation.figures.classes import index_classes
from deeprc.interpretation.report import pictures
from deeprc.interpretation.report.findings import SharedBy
from deeprc.interpretation.report.motif_genes import CommonGene, find_common_genes, gene_cell, gene_sentence
from deeprc.interpretation.report.page import Cell, Column, Figure, Table, make_number_cell, make_swatch, make_text_cell
from deeprc.interpretation.report.sequences import SHOWN, sequence_table
from deeprc.interpretation.survey import Direction, Survey, TopSequences
from deeprc.runs.predictor import Predictor
from deeprc.tasks import Task

if TYPE_CHECKING:
    from deeprc.interpretation.attributions import Attributions
    from deeprc.interpretation.motifs import AttendedMotif
    from deeprc.interpretation.motifs.attended_motif import Source
    from deeprc.training.model import Model

__all__ = ["DirectionPage", "make_direction_pages"]

_MOTIFS = 10  # largest number in the table; the first of them also as logos
_LOGOS = 6
_LEVEL = 0.05

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DirectionPage:
    """The part of the page about a direction.

    Attributes
    ----------
    direction
        Direction of an output.
    n_sequences
        Number of kept sequences that contribute to it by their residues.
    table
        Table of the best sequences; None if there are none.
    logos
        Logos of the first motifs.
    motifs
        Table of the motifs; None if none was found.
    first
        Sentence about the first motif; "" if there is none.
    kernels
        Figures of the contributions of the kernels.
    place
        Index of the direction's class among all classes, see `index_classes`, modulo the number of colours.
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
    """The results for a direction, before they are put into tables and figures.

    Attributes
    ----------
    direction
        Direction of an output.
    index
        Index of its part of the page, from 1.
    heading
        Heading of the column with the labels of repertoires.
    top, shared
        Sequences that contribute most to it, and the carriers of each.
    residues
        Attributions of the residues of the first of these; None if there are no sequences.
    by_residues
        Sequences that contribute most to it by their residues, see `Survey`.
    attributions, motifs
        Attributions and motifs of `by_residues`; None and [] if there are none.
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


def make_direction_pages(
    predictor: Predictor,
    dataset: RepertoireDataset,
    survey: Survey,
    classes: Mapping[str, Mapping[str, str]],
    shared: Mapping[str, Sequence[SharedBy]],
    held_out: NDArray[np.bool_] | None,
) -> list[DirectionPage]:
    """Return the part of the page for each direction of a survey.

    Parameters
    ----------
    predictor, dataset, survey
        The run or ensemble, the cohort, and its survey.
    classes
        Label of each repertoire as text, by target and id; "" if not known.
    shared
        Carriers of each top sequence, by direction.
    held_out
        Whether the network has not learned from each repertoire, (B,), for the tests of motifs; None if there are no
        such repertoires.
    """
    from deeprc.interpretation.figures import compute_logo_top

    every = _explain_directions(predictor, dataset, survey, shared, held_out)
    drawn = [motif for found in every for motif in found.motifs[:_LOGOS]]
    logo_height = compute_logo_top(drawn) if drawn else 0.0
    places = index_classes(predictor.model.tasks)
    members = _list_members(predictor.model)
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


def _explain_directions(
    predictor: Predictor,
    dataset: RepertoireDataset,
    survey: Survey,
    shared: Mapping[str, Sequence[SharedBy]],
    held_out: NDArray[np.bool_] | None,
) -> list[_Found]:
    """Return the results for each direction: attributions and motifs of the sequences that contribute to it."""
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
        model,
        dataset,
        list(attributions.values()),
        max_motifs=_MOTIFS,
        group_by=predictor.group_by,
        signs=[direction.sign for direction in survey.directions if direction.name in attributions],
        held_out=held_out,
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
    genes = [find_common_genes(motif, found.by_residues.table, genes_of_all) for motif in motifs]
    residues = None if found.residues is None else direction.sign * found.residues
    logos = enumerate(motifs[:_LOGOS], start=1)
    return DirectionPage(
        direction,
        len(found.by_residues),
        sequence_table(direction, found.index, top, residues, own, found.shared, places=places, heading=found.heading),
        [pictures.make_logo_figure(motif, i, direction.name, top=logo_height) for i, motif in logos],
        _motif_table(motifs, genes, direction, found.index, places, len(members)) if motifs else None,
        _describe_first_motif(motifs[0], genes[0], direction) if motifs else "",
        pictures.kernel_pictures(found.attributions.kernels, members, direction, place) if found.attributions else [],
        place,
    )


def _list_members(model: Model) -> list[tuple[str, int]]:
    """Return the name of each member, "" if it is the only one, and its number of kernels."""
    sizes = [member.network.embedding.out_features for member in model.members]
    names = [member.name for member in model.members] if len(sizes) > 1 else [""]
    return list(zip(names, sizes, strict=True))


def _heading(tasks: Sequence[Task], direction: Direction) -> str:
    """Return the heading of the labels of repertoires: "Class", or the name of the predicted number."""
    task = next(task for task in tasks if task.name == direction.target)
    return task.column if task.kind == "regression" else "Class"


def _describe_first_motif(motif: AttendedMotif, genes: Sequence[CommonGene], direction: Direction) -> str:
    """Return the test in new donors first, because the network chose the sequences in which the motif is enriched."""
    chosen = _format_percent(motif.n_attended_with, motif.n_attended)
    others = _format_percent(motif.n_background_with, motif.n_background)
    enrichment = (
        f" It is in {motif.n_attended_with:,} of the {motif.n_attended:,} different sequences that contribute most to "
        f"{direction.name} ({chosen}), and in {motif.n_background_with:,} of {motif.n_background:,} others ({others})."
    )
    tested = _describe_donor_test(motif, direction)
    return f"{motif.pattern}:{tested}{enrichment}{gene_sentence(genes, motif.n_attended_with)}"


def _describe_donor_test(motif: AttendedMotif, direction: Direction) -> str:
    """Return a text that says whether the motif is associated with the class, or the number, in new donors."""
    is_number = motif.carriers["class"].tolist() == ["all"]
    what = f"associated with {direction.target}" if is_number else "associated with the class"
    if np.isnan(motif.p_donors):
        return f" It is not known whether it is {what}: no donors that the network has not seen can be compared."
    rates = [row for row in motif.donors.to_dict("records") if row["n_donors"]]
    each = ", ".join(
        f"{row['mean_rate']:.3%} on average"
        + f" in {row['class']}" * (not is_number)
        + f" ({row['n_donors']:,} donors)"
        for row in rates
    )
    test = f"{p_in_words(motif.p_donors)}, false discovery rate {p_text(motif.q_donors)}"
    verdict = f"it is {what}" if motif.q_donors <= _LEVEL else f"it cannot be shown to be {what}"
    but = "" if motif.q_donors <= _LEVEL else ", although the network uses it"
    return (
        f" In repertoires that the network has not seen, so many of a donor's sequences carry it: {each} ({test}). "
        f"So {verdict}{but}."
    )


def _format_donors(n: int) -> str:
    return f"{n:,} donor{'s' * (n != 1)}"


def _format_percent(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.1%}"


def _motif_table(
    motifs: Sequence[AttendedMotif],
    genes: Sequence[Sequence[CommonGene]],
    direction: Direction,
    index: int,
    places: Mapping[str, int],
    n_models: int,
) -> Table:
    first = motifs[0]
    is_tested = any(not np.isnan(motif.p_donors) for motif in motifs)
    columns = [Column("Pattern", False), *(_test_columns(first, direction, places) if is_tested else [])]
    note = "all that carry it, and in brackets their mean share of a repertoire's sequences, as in the next columns"
    for row in first.carriers.to_dict("records"):
        name, n = row["class"], int(row["n_repertoires"])
        mark = make_swatch(places[name]) if name in places else ""
        sizes = f"so many of {n:,} carry it, also of those the network was trained with"
        if "n_people" in row:
            sizes += f", and in brackets the people they come from, of {int(row['n_people']):,}"
        columns.append(Column(mark + f"{name}: repertoires", note=sizes))
        columns.append(Column(mark + f"{name}: sequences", note=note))
        note = ""
    if any(genes):
        note = "so many of the sequences that contribute to it and carry it have the gene, and so many of all sequences"
        columns.append(Column("Most common genes", False, note))
    columns += [
        Column(
            "Chosen",
            note=f"so many of the {first.n_attended:,} different sequences that contribute to {direction.name}",
        ),
        Column("Others", note=f"so many of {first.n_background:,} sequences of like length from all repertoires"),
        Column(
            "Enrichment",
            note="odds ratio of both: what the sequences that the network chose share, with or without a signal",
        ),
        *([Column("Models", note=f"so many of {n_models} models have it in a kernel")] if n_models > 1 else []),
        Column("Found in", False, "windows are pieces of the sequences, kernels learned detectors"),
    ]
    caption = f"Motifs of the sequences that contribute to {direction.name}; press a heading to sort by it"
    rows = [
        _motif_row(motif, [gene_cell(own)] if any(genes) else [], is_tested=is_tested, has_several=n_models > 1)
        for motif, own in zip(motifs, genes, strict=True)
    ]
    return Table(f"motifs-{index}", caption, columns, rows, sortable=True)


def _test_columns(motif: AttendedMotif, direction: Direction, places: Mapping[str, int]) -> list[Column]:
    """Return the columns of the test in donors that the network has not learned from."""
    columns = []
    for row in motif.donors.to_dict("records"):
        name, n = row["class"], int(row["n_donors"])
        mark = make_swatch(places[name]) if name in places else ""
        note = (
            f"mean share of a donor's sequences; in brackets the carriers, of {_format_donors(n)} not seen in training"
        )
        columns.append(Column(mark + f"{name}: rate", note=note))
    of_whom = direction.label if len(columns) > 1 else f"{direction.label} numbers"
    return [
        *columns,
        Column("p", note=f"that it is more frequent in donors of {of_whom}, by ranks of their rates"),
        Column("q", note="false discovery rate over all motifs of this page (Benjamini and Hochberg)"),
    ]


def _motif_row(motif: AttendedMotif, genes: Sequence[Cell], *, is_tested: bool, has_several: bool) -> list[Cell]:
    cells = [Cell(Markup("<code>{}</code>").format(motif.pattern), motif.pattern)]
    if is_tested:
        for row in motif.donors.to_dict("records"):
            share, n_with = float(row["mean_rate"]), int(row["n_donors_with"])
            known = row["n_donors"] > 0
            cells.append(
                _make_two_part_cell(f"{share:.3%}", f"({n_with:,})", share) if known else make_number_cell(None)
            )
        cells += [_p_cell(motif.p_donors), _p_cell(motif.q_donors)]
    for row in motif.carriers.to_dict("records"):
        share = float(row["mean_share"])
        n_with = int(row["n_repertoires_with"])
        people = f" ({int(row['n_people_with']):,})" if "n_people_with" in row else ""
        cells.append(Cell(f"{n_with:,}{people}", n_with))
        cells.append(_make_two_part_cell(f"{int(row['n_sequences_with']):,}", f"({share:.3%})", share))
    return [
        *cells,
        *genes,
        _make_share_cell(motif.n_attended_with, motif.n_attended),
        _make_share_cell(motif.n_background_with, motif.n_background),
        _odds(motif.enrichment),
        *([make_number_cell(motif.n_models, ",")] if has_several else []),
        make_text_cell(_format_sources(motif.sources)),
    ]


def _p_cell(p_value: float) -> Cell:
    return make_number_cell(None) if np.isnan(p_value) else Cell(_p_text(p_value), p_value)


def _format_sources(sources: Sequence[Source]) -> str:
    """Return a short text that says where a motif was found: windows, kernels 3, 7."""
    parts = ["windows"] if any(source.kernel == 0 for source in sources) else []
    for member in sorted({source.member for source in sources if source.kernel}):
        kernels = [str(source.kernel) for source in sources if source.kernel and source.member == member]
        named = f"kernel{'s' * (len(kernels) > 1)} {', '.join(kernels)}"
        parts.append(named + f" of model {member}" * (member > 0))
    return ", ".join(parts)


def _make_share_cell(part: int, whole: int) -> Cell:
    return _make_two_part_cell(f"{part:,}", f"({_format_percent(part, whole)})", part / max(whole, 1))


def _make_two_part_cell(first: str, second: str, value: float) -> Cell:
    """Return a cell of two texts that may have a line break only between them."""
    return Cell(Markup('<span class="line">{}</span> <span class="line">{}</span>').format(first, second), value)


def _odds(ratio: float) -> Cell:
    if not np.isfinite(ratio):
        return Cell("∞", 1e300)
    return make_number_cell(ratio, ",.0f" if ratio >= 100 else ".3g")


def _p_text(p_value: float) -> str:
    """Return a p-value as text; for small ones only the power of ten, because they differ by many."""
    if p_value >= 0.001:
        return p_text(p_value)
    return f"{p_value:.0e}"
