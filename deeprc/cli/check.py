"""`deeprc check`: what is wrong or suspicious about a cohort, before anything is written or trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from deeprc.cli.reading import file_bar, reading_options
from deeprc.datasets.cleaning import Merge

__all__ = ["check"]


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path))
@click.option(
    "--metadata",
    required=True,
    type=click.Path(path_type=Path),
    help="The metadata sheet (TSV, CSV or XLSX): one row per repertoire.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="What is to be predicted, as in `deeprc train`; may be given several times."
    "  [default: the columns that look like labels]",
)
@click.option("--group-by", metavar="COLUMN", help="Whose a repertoire is.  [default: found by its name]")
@reading_options
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Rows without a file, files without a row and repertoires without a kept sequence are warnings, not errors.",
)
@click.option(
    "--min-length",
    type=click.IntRange(1, 255),
    default=1,
    show_default=True,
    help="Shortest sequence kept, in residues.",
)
@click.option(
    "--max-length",
    type=click.IntRange(1, 255),
    default=50,
    show_default=True,
    help="Longest sequence kept, in residues.",
)
@click.option("--jobs", type=click.IntRange(1), help="Worker processes.  [default: one per core, fewer for little]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def check(
    sources: tuple[Path, ...],
    metadata: Path,
    jobs: int | None,
    merge: Merge,
    keep_nucleotide_clonotypes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Read a cohort as preprocess does, write nothing, and list everything that is wrong or suspicious.

    Prints what preprocess would do, how well the label can be told without reading a receptor (from the size of the
    repertoire, gene usage, file names, other columns), and every finding with its code and what to do.

    An error is what preprocess or train would refuse, or what makes results wrong: files that cannot be read, rows
    without files, mixed chains or species, the same repertoire under two names. A warning may be a trap or may be
    meant; a note is good to know. All problems are listed, not only the first.

    Exit code: 0 without errors, 1 with errors, 2 for wrong usage.

    \b
    Example:
      deeprc check exports/ --metadata samples.xlsx --target 'CMV=+'
    """
    from deeprc.evaluation.checks import check_cohort

    if options["min_length"] > options["max_length"]:
        raise click.UsageError("--min-length is larger than --max-length")
    with file_bar() as show:
        found = check_cohort(
            sources,
            metadata,
            jobs=jobs,
            merge="none" if keep_nucleotide_clonotypes else merge,
            progress=show,
            **options,
        )
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else found.to_text())
    click.get_current_context().exit(0 if found.ok else 1)
