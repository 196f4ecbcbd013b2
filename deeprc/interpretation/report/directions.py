"""The sections of a report about each direction of an output: sequences, motifs and kernels that contribute to it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.attributions import Attributions, attribute
from deeprc.interpretation.directions import Direction
from deeprc.interpretation.figures import compute_logo_top
from deeprc.interpretation.figures.classes import index_classes
from deeprc.interpretation.motifs import AttendedMotif, MotifOptions, find_all_motifs
from deeprc.interpretation.report import page_figures
from deeprc.interpretation.report.direction_context import DirectionContext
from deeprc.interpretation.report.findings import SequenceCarriers
from deeprc.interpretation.report.motif_genes import find_common_genes
from deeprc.interpretation.report.motif_parts import describe_first_motif, make_motif_table
from deeprc.interpretation.report.page import Figure, Table
from deeprc.interpretation.report.sequences import SHOWN, make_sequence_table
from deeprc.interpretation.survey import Survey, TopSequences
from deeprc.runs.predictor import Predictor
from deeprc.tasks import Task
from deeprc.training.model import Model

__all__ = ["DirectionSection", "make_direction_sections"]

_MOTIFS = 10  # largest number in the table; the first of them also as logos
_LOGOS = 6

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DirectionSection:
    """The section of the page about a direction.

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
    colour_index
        Index of the colour of the direction's class, see `DirectionContext`.
    """

    direction: Direction
    n_sequences: int
    table: Table | None
    logos: Sequence[Figure]
    motifs: Table | None
    first: str
    kernels: Sequence[Figure]
    colour_index: int


@dataclass(frozen=True)
class _DirectionResults:
    """The results for a direction, before they are put into tables and figures.

    Attributes
    ----------
    top, carriers
        Sequences that contribute most to it, and the carriers of each.
    residues
        Attributions of the residues of the first of these; None if there are no sequences.
    by_residues
        Sequences that contribute most to it by their residues, see `Survey`.
    attributions, motifs
        Attributions and motifs of `by_residues`; None and [] if there are none.
    """

    top: TopSequences
    carriers: Sequence[SequenceCarriers]
    residues: NDArray[np.float64] | None
    by_residues: TopSequences
    attributions: Attributions | None
    motifs: Sequence[AttendedMotif]


def make_direction_sections(
    predictor: Predictor,
    dataset: RepertoireDataset,
    survey: Survey,
    labels: Mapping[str, Mapping[str, str]],
    carriers: Mapping[str, Sequence[SequenceCarriers]],
    is_held_out: NDArray[np.bool_] | None,
) -> list[DirectionSection]:
    """Return the section of the page about each direction of a survey.

    Parameters
    ----------
    predictor, dataset, survey
        The run or ensemble, the cohort, and its survey.
    labels
        Label of each repertoire as text, by target and id; "" if not known.
    carriers
        Carriers of each top sequence, by direction.
    is_held_out
        Whether the network has not learned from each repertoire, (B,), for the tests of motifs; None if there are no
        such repertoires.
    """
    results = _explain_directions(predictor, dataset, survey, carriers, is_held_out)
    with_logo = [motif for result in results for motif in result.motifs[:_LOGOS]]
    logo_height = compute_logo_top(with_logo) if with_logo else 0.0
    tasks = predictor.model.tasks
    colours_by_target, members = index_classes(tasks), _list_members(predictor.model)
    sections = []
    for index, (direction, direction_results) in enumerate(zip(survey.directions, results, strict=True), start=1):
        context = DirectionContext(
            direction,
            index,
            _make_label_heading(tasks, direction),
            labels[direction.target],
            colours_by_target[direction.target],
            members,
            logo_height,
        )
        sections.append(_make_direction_section(context, direction_results, survey.genes))
    return sections


def _explain_directions(
    predictor: Predictor,
    dataset: RepertoireDataset,
    survey: Survey,
    carriers: Mapping[str, Sequence[SequenceCarriers]],
    is_held_out: NDArray[np.bool_] | None,
) -> list[_DirectionResults]:
    """Return the results for each direction: attributions and motifs of the sequences that contribute to it."""
    attributions: dict[str, Attributions] = {}
    residues: dict[str, NDArray[np.float64]] = {}
    for direction in survey.directions:
        attributions_of_direction, residues_of_top = _attribute_direction(predictor.model, dataset, survey, direction)
        if attributions_of_direction is not None:
            attributions[direction.name] = attributions_of_direction
        if residues_of_top is not None:
            residues[direction.name] = residues_of_top
    motifs_of_each = find_all_motifs(
        predictor.model,
        dataset,
        list(attributions.values()),
        [direction.sign for direction in survey.directions if direction.name in attributions],
        MotifOptions(max_motifs=_MOTIFS, group_by=predictor.group_by, is_held_out=is_held_out),
    )
    motifs = dict(zip(attributions, motifs_of_each, strict=True))
    return [
        _DirectionResults(
            survey.top[name],
            carriers[name],
            residues.get(name),
            survey.by_residues[name],
            attributions.get(name),
            motifs.get(name, []),
        )
        for name in (direction.name for direction in survey.directions)
    ]


def _attribute_direction(
    model: Model, dataset: RepertoireDataset, survey: Survey, direction: Direction
) -> tuple[Attributions | None, NDArray[np.float64] | None]:
    """Return the attributions of the sequences of a direction, and those of the residues of its first top sequences.

    Each is None if there are no such sequences. Mostly both are of the same sequences, and are computed once.
    """
    explain = partial(attribute, model, dataset, output=direction.output, background=survey.residue_frequencies)
    top, by_residues = survey.top[direction.name], survey.by_residues[direction.name]
    attributions, residues = None, None
    if len(by_residues):
        _logger.info("%s: attributions and motifs of %d sequences", direction.name, len(by_residues))
        attributions = explain(by_residues.index)
    if attributions is not None and top.index is by_residues.index:  # the tables may differ by columns of databases
        residues = attributions.residues[:SHOWN]
    elif len(top):
        residues = explain(top.index.take(np.arange(min(SHOWN, len(top))))).residues
    return attributions, residues


def _make_direction_section(
    context: DirectionContext, results: _DirectionResults, genes_of_all: pd.DataFrame
) -> DirectionSection:
    """Return what the section of one direction shows: its sequences, motifs, logos and kernels."""
    direction, motifs, top = context.direction, results.motifs, results.top.table
    table = None
    if len(top):
        residues = None if results.residues is None else direction.sign * results.residues
        table = make_sequence_table(context, top, residues, results.carriers)
    genes = [find_common_genes(motif, results.by_residues.table, genes_of_all) for motif in motifs]
    logos = [page_figures.make_logo_figure(motif, i, context) for i, motif in enumerate(motifs[:_LOGOS], start=1)]
    kernels = page_figures.make_kernel_figures(results.attributions.kernels, context) if results.attributions else []
    return DirectionSection(
        direction,
        len(results.by_residues),
        table,
        logos,
        make_motif_table(context, motifs, genes) if motifs else None,
        describe_first_motif(motifs[0], genes[0], direction) if motifs else "",
        kernels,
        context.colour_index,
    )


def _list_members(model: Model) -> list[tuple[str, int]]:
    """Return the name of each member, "" if it is the only one, and its number of kernels."""
    sizes = [member.network.embedding.out_features for member in model.members]
    names = [member.name for member in model.members] if len(sizes) > 1 else [""]
    return list(zip(names, sizes, strict=True))


def _make_label_heading(tasks: Sequence[Task], direction: Direction) -> str:
    """Return the heading of the labels of repertoires: "Class", or the name of the predicted number."""
    task = next(task for task in tasks if task.name == direction.target)
    return task.column if task.kind == "regression" else "Class"
