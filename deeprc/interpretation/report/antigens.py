"""Known antigens of the sequences that contribute to a direction, as columns of their table, a figure and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.drawing import CLASS_COLOURS
from deeprc.evaluation.significance import format_p_value
from deeprc.interpretation.directions import Direction
from deeprc.interpretation.figures.antigens import draw_antigen_figure
from deeprc.interpretation.report.page import Cell, Column, Figure, Table, make_number_cell, make_text_cell
from deeprc.interpretation.report.page_figures import render_figure
from deeprc.interpretation.survey import Survey
from deeprc.specificity import annotate_sequences

__all__ = ["AntigenSection", "annotate_survey", "make_antigen_sections"]

_MAX_ORGANISMS = 15


@dataclass(frozen=True)
class AntigenSection:
    """The section of the page about known antigens of the sequences of a direction.

    Attributes
    ----------
    direction, colour_index
        The direction, and the index of the colour of its class, below the number of colours.
    summary
        Sentence that says how many sequences match.
    figures, table
        Figure and table of the organisms with matches; empty and None if there are no matches.
    """

    direction: Direction
    colour_index: int
    summary: str
    figures: Sequence[Figure]
    table: Table | None


def annotate_survey(
    survey: Survey, known: pd.DataFrame | None, dataset: RepertoireDataset
) -> tuple[Survey, dict[str, pd.DataFrame]]:
    """Add the columns of `annotate_sequences` to the top sequences of a survey; return it and organisms by direction.

    Parameters
    ----------
    survey
        Survey of the dataset.
    known
        Receptors of the databases; None does not change the survey.
    dataset
        The cohort, from which the number of matches by chance is estimated.
    """
    if known is None:
        return survey, {}
    top, organisms = dict(survey.top), {}
    for direction in survey.directions:
        direction_top = top[direction.name]
        if len(direction_top) == 0:  # such as for the negative class of a cohort of positive repertoires
            organisms[direction.name] = pd.DataFrame()
            continue
        annotation = annotate_sequences(direction_top.table, known, cohort=dataset)
        top[direction.name] = replace(direction_top, table=annotation.table)
        organisms[direction.name] = annotation.organisms
    return replace(survey, top=top), organisms


def make_antigen_sections(
    survey: Survey, organisms: Mapping[str, pd.DataFrame], colours_by_target: Mapping[str, Mapping[str, int]]
) -> list[AntigenSection]:
    """Return the section of the page for each direction; empty if no database was given."""
    sections = []
    for index, direction in enumerate(survey.directions, start=1):
        if direction.name in organisms:
            direction_organisms = organisms[direction.name]
            colour_index = colours_by_target[direction.target][direction.label] % len(CLASS_COLOURS)
            shown = direction_organisms.head(_MAX_ORGANISMS)
            summary = _summarise_matches(survey.top[direction.name].table)
            figures = [_make_figure(shown, direction, colour_index)] if len(shown) else []
            sections.append(
                AntigenSection(direction, colour_index, summary, figures, _make_table(shown, direction, index))
            )
    return sections


def _summarise_matches(top: pd.DataFrame) -> str:
    """Return a sentence that says how many of the sequences of a direction match an entry."""
    if top.empty:
        return "No sequence contributes to it."
    n = int((top["specificity_match"] != "").sum())
    return f"{n:,} of {len(top):,} sequences match an entry with at most one substitution."


def _make_figure(organisms: pd.DataFrame, direction: Direction, colour_index: int) -> Figure:
    """Return the figure of the organisms whose antigens the sequences for a direction match."""
    first = organisms.iloc[0]
    description = (
        f"Sequences for {direction.name} that match receptors of known antigens. {first['antigen_organism']}: "
        f"{first['n_within_one']:,}, by chance {first['expected_within_one']:.1f}."
    )
    caption = (
        "Number of different sequences that match an entry with at most one substitution, by the organism of the "
        "antigen. The line is the number by chance: that of clones of the cohort that equally many repertoires carry."
    )
    return render_figure(
        draw_antigen_figure(organisms, colour_index), f"Known antigens for {direction.name}", description, caption
    )


def _make_table(organisms: pd.DataFrame, direction: Direction, index: int) -> Table | None:
    """Return the table of these organisms; None without any."""
    if organisms.empty:
        return None
    columns = [Column("Organism", is_number=False)]
    for name in ("Exactly the same", "At most one substitution"):
        columns += [Column(name), Column("by chance"), Column("p"), Column("q")]
    rows = []
    for row in organisms.to_dict("records"):
        cells = [make_text_cell(row["antigen_organism"])]
        for level in ("exact", "within_one"):
            p_value, q_value = float(row[f"p_{level}"]), float(row[f"q_{level}"])
            cells += [make_number_cell(row[f"n_{level}"], ",d"), make_number_cell(row[f"expected_{level}"], ".1f")]
            cells += [Cell(format_p_value(p_value), p_value), Cell(format_p_value(q_value), q_value)]
        rows.append(cells)
    caption = f"Organisms of the antigens that sequences for {direction.name} match; q is over all organisms"
    return Table(f"antigens-{index}", caption, columns, rows, sortable=True)
