"""The parts of a report about each direction of an output: sequences, motifs and kernels that contribute to it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.drawing import CLASS_COLOURS
from deeprc.interpretation.directions import Direction
from deeprc.interpretation.figures.classes import index_classes
from deeprc.interpretation.report import pictures
from deeprc.interpretation.report.findings import SharedBy
from deeprc.interpretation.report.motif_genes import find_common_genes
from deeprc.interpretation.report.motif_parts import describe_first_motif, make_motif_table
from deeprc.interpretation.report.page import Figure, Table
from deeprc.interpretation.report.sequences import SHOWN, make_sequence_table
from deeprc.interpretation.survey import Survey, TopSequences
from deeprc.runs.predictor import Predictor
from deeprc.tasks import Task

if TYPE_CHECKING:
    from deeprc.interpretation.attributions import Attributions
    from deeprc.interpretation.motifs import AttendedMotif
    from deeprc.training.model import Model

__all__ = ["DirectionPage", "make_direction_pages"]

_MOTIFS = 10  # largest number in the table; the first of them also as logos
_LOGOS = 6

_logger = logging.getLogger(__name__)


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
        _make_direction_page(
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
            _logger.info("%s: attributions and motifs of %d sequences", direction.name, len(by_residues))
            attributions[direction.name] = explain(by_residues.index)
        if top.index is by_residues.index and len(top):  # columns of databases may make another table
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


def _make_direction_page(
    found: _Found,
    genes_of_all: pd.DataFrame,
    classes: Mapping[str, str],
    places: Mapping[str, int],
    members: Sequence[tuple[str, int]],
    logo_height: float,
) -> DirectionPage:
    direction, motifs, top = found.direction, found.motifs, found.top.table
    place = places[direction.label] % len(CLASS_COLOURS)
    table = None
    if len(top):
        own = [classes.get(str(name), "") for name in top["repertoire_id"]]
        residues = None if found.residues is None else direction.sign * found.residues
        table = make_sequence_table(
            direction, found.index, top, residues, own, found.shared, places=places, heading=found.heading
        )
    genes = [find_common_genes(motif, found.by_residues.table, genes_of_all) for motif in motifs]
    logos = enumerate(motifs[:_LOGOS], start=1)
    return DirectionPage(
        direction,
        len(found.by_residues),
        table,
        [pictures.make_logo_figure(motif, i, direction.name, top=logo_height) for i, motif in logos],
        make_motif_table(motifs, genes, direction, found.index, places, len(members)) if motifs else None,
        describe_first_motif(motifs[0], genes[0], direction) if motifs else "",
        pictures.draw_kernel_pictures(found.attributions.kernels, members, direction, place)
        if found.attributions
        else [],
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
