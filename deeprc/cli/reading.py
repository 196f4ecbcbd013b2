"""Options of all commands that read repertoire files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial, wraps
from typing import Any

import click

from deeprc.datasets.alphabet import MAX_LENGTH
from deeprc.datasets.genes import LOCI
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.readers import FORMATS

__all__ = ["reading_options"]

_OPTIONS: tuple[Callable[..., Any], ...] = (
    click.option(
        "--format",
        "reader_format",
        type=click.Choice(FORMATS),
        default="auto",
        show_default=True,
        help="The format of the files; auto recognises each file by its header.",
    ),
    click.option("--id-column", help="The sheet's column with the repertoire ids.  [default: found by its name]"),
    click.option("--sequence-column", help="For a table of unknown format: its column with the amino-acid sequences."),
    click.option(
        "--count-column",
        help="With --sequence-column: the column with the counts.  [default: each sequence gets the count 1]",
    ),
    click.option("--v-column", help="With --sequence-column: the column with the names of V genes.  [default: none]"),
    click.option("--j-column", help="With --sequence-column: the column with the names of J genes.  [default: none]"),
    click.option(
        "--split-by",
        metavar="COLUMN|none",
        help="The files' column that names the repertoire of each row; none: each file is one repertoire.  "
        "[default: found by its name, in files that belong to no row of the sheet]",
    ),
    click.option(
        "--locus", type=click.Choice(LOCI), help="The chain to keep.  [default: the only chain that the files hold]"
    ),
    click.option(
        "--merge-by",
        "merge",
        type=click.Choice(["genes", "junction"]),
        help="Which rows become one sequence, with the sum of their counts: rows with the same junction, V gene and J "
        "gene (genes), or rows with the same junction (junction).  [default: genes]",
    ),
    click.option(
        "--keep-nucleotide-clonotypes",
        is_flag=True,
        help="Do not merge any rows: keep each nucleotide rearrangement as its own sequence. Cannot be combined with "
        "--merge-by.",
    ),
    click.option(
        "--min-length",
        type=click.IntRange(1, MAX_LENGTH),
        default=1,
        show_default=True,
        help="Length of the shortest sequence that is kept, in residues.",
    ),
    click.option(
        "--max-length",
        type=click.IntRange(1, MAX_LENGTH),
        default=50,
        show_default=True,
        help="Length of the longest sequence that is kept, in residues.",
    ),
    click.option(
        "--allow-missing",
        is_flag=True,
        help="Leave out rows without a file, files without a row and repertoires without a kept sequence, with a "
        "warning.  [default: each is an error]",
    ),
)


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for reading files to a command.

    The command gets `reading`, a function without parameters that checks these options and returns them as one
    `ReadingOptions`. So the command can first check whether there are files to read.
    """

    @wraps(command)
    def with_reading(*, keep_nucleotide_clonotypes: bool, merge: Any, **others: Any) -> None:
        names = [field.name for field in fields(ReadingOptions) if field.name in others]
        values = {name: others.pop(name) for name in names}
        if keep_nucleotide_clonotypes and merge is not None:
            raise click.UsageError("--keep-nucleotide-clonotypes does not merge rows: leave out --merge-by")
        merge = "none" if keep_nucleotide_clonotypes else merge or "genes"
        command(reading=partial(ReadingOptions, merge=merge, **values), **others)

    for option in reversed(_OPTIONS):
        with_reading = option(with_reading)
    return with_reading
