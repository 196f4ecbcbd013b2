"""What the commands share that read repertoire files: options, and the bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from deeprc.datasets.genes import LOCI
from deeprc.datasets.readers import FORMATS

__all__ = ["file_bar", "reading_options"]


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how files are read, and which rows are one sequence."""
    options: list[Callable[..., Any]] = [
        click.option(
            "--format",
            "reader_format",
            type=click.Choice(FORMATS),
            default="auto",
            show_default=True,
            help="The format of the files; auto recognises each by its header.",
        ),
        click.option("--id-column", help="Column of the sheet with the repertoire ids.  [default: found by its name]"),
        click.option("--sequence-column", help="Read any other table: the column of the amino-acid sequences."),
        click.option(
            "--count-column", help="With --sequence-column: the column of the counts.  [default: each counts 1]"
        ),
        click.option("--v-column", help="With --sequence-column: the column of the V genes.  [default: none]"),
        click.option("--j-column", help="With --sequence-column: the column of the J genes.  [default: none]"),
        click.option(
            "--split-by",
            metavar="COLUMN|none",
            help="The files' column that names the repertoire of each row; none: each file is one repertoire.  "
            "[default: found by its name, in files that belong to no row of the sheet]",
        ),
        click.option("--locus", type=click.Choice(LOCI), help="The chain to keep.  [default: the only one there is]"),
        click.option(
            "--merge-by",
            "merge",
            type=click.Choice(["genes", "junction"]),
            default="genes",
            show_default=True,
            help="Rows with the same junction, and V and J gene (genes) or not (junction), are one sequence; counts "
            "are added.",
        ),
        click.option("--keep-nucleotide-clonotypes", is_flag=True, help="Keep rows apart that have the same junction."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def file_bar() -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows how many files of all are done, on a terminal."""
    from tqdm import tqdm

    with tqdm(unit="file", disable=not sys.stderr.isatty()) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
