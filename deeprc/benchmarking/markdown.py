"""Rendering of the tables of a benchmark in Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deeprc.benchmarking.tables import (
    PROBABILITY_COLUMNS,
    PROBABILITY_LEGEND,
    VALIDATION_MEASURES,
    ResultCell,
    collapse_whitespace,
    describe_incomplete_methods,
    describe_members,
    format_metric,
    list_headings,
    make_probability_rows,
    make_table_legend,
    make_table_rows,
    summarise_chosen_settings,
)
from deeprc.errors import PARAMETER, show_parameters

if TYPE_CHECKING:
    from deeprc.benchmarking.result import BenchmarkResult

__all__ = ["render_markdown"]

_CHOSEN_BY = "Settings were chosen by the validation {}. So it is too high, and does not hold for new repertoires."
_HEADINGS = {"control": "*Control methods*", "truth": "*Ground truth*"}


def render_markdown(result: BenchmarkResult) -> str:
    """Return the table of all methods with explanations and warnings, in Markdown that is also readable in a terminal.

    Rows are in the order of `result.methods`: methods, then controls, then methods that know the ground truth.
    """
    columns = list_headings(result.scoring)
    rows: list[list[str]] = []
    for kind, group in make_table_rows(result).items():
        if group and kind in _HEADINGS:
            rows.append([_HEADINGS[kind], *[""] * (len(columns) - 1)])
        rows += [[_render_cell(cell) for cell in row] for row in group]
    parts = [f"# {collapse_whitespace(result.title)}"] if result.title else []
    parts.append(_align_table([columns, *rows]))
    parts.append(_format_bullets(make_table_legend(result.comparison, result.methods, result.scoring)))
    settings = summarise_chosen_settings(result.choices, result.methods, result.scoring)
    has_validation = any(setting.validation for setting in settings)
    chosen_by = _wrap_text(_CHOSEN_BY.format(VALIDATION_MEASURES[result.scoring.kind])) if has_validation else ""
    for heading, body in (
        ("Warnings", _format_bullets([caution.text for caution in result.cautions if caution.section != "controls"])),
        (
            "What the control methods say",
            _format_bullets([caution.text for caution in result.cautions if caution.section == "controls"]),
        ),
        (
            "Not complete",
            _format_bullets(describe_incomplete_methods(result.comparison, result.methods, result.failures)),
        ),
        ("Probabilities", _render_probabilities(result)),
        ("How much each member counts", _format_bullets(describe_members(result.members, result.methods))),
        (
            "Settings chosen",
            "\n\n".join(filter(None, (_format_bullets([setting.to_line() for setting in settings]), chosen_by))),
        ),
    ):
        if body:
            parts.append(f"## {heading}\n\n{body}")
    return "\n\n".join(parts) + "\n"


def _format_bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_escape_text(show_parameters(line))}" for line in lines)


def _render_probabilities(result: BenchmarkResult) -> str:
    if result.probabilities.empty:
        return ""
    rows = [[_escape_text(cell) for cell in row] for row in make_probability_rows(result)]
    return f"{_align_table([PROBABILITY_COLUMNS, *rows])}\n\n{_wrap_text(PROBABILITY_LEGEND)}"


def _wrap_text(text: str) -> str:
    return textwrap.fill(_escape_text(text), 110, break_long_words=False, break_on_hyphens=False)


def _align_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned as text; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        return f"| {' | '.join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)])} |"

    rule = f"|{'|'.join(['-' * (widths[0] + 2), *('-' * (width + 1) + ':' for width in widths[1:])])}|"
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def _render_cell(cell: ResultCell) -> str:
    if isinstance(cell, str):
        return _escape_text(cell)
    value, sd = format_metric(cell.value), format_metric(cell.sd)
    mean = f"**{value}**" if cell.is_best else value
    return mean if sd == "-" else f"{mean} ± {sd}"


def _escape_text(text: str) -> str:
    """Return text in one line, with an escape where Markdown would read more than text; `a_b` and `<0.001` need none.

    Names of parameters and of commands in backticks stay code.
    """
    marks = rf"{PARAMETER.pattern}|`deeprc [a-z]+`|[\\|*`]|<(?=[A-Za-z/!?])|(?<![^\W_])_|_(?![^\W_])"
    return re.sub(marks, lambda mark: mark[0] if len(mark[0]) > 1 else f"\\{mark[0]}", collapse_whitespace(text))
