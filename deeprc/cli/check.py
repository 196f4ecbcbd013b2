"""The command `deeprc check`: errors and suspicious findings in a cohort, before anything is written or trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from deeprc.cli.options import reading_jobs_option
from deeprc.cli.reading import reading_options
from deeprc.datasets.options import ReadingOptions
from deeprc.errors import InputError

__all__ = ["check"]

_OF_CONTAINERS = {"sources", "targets", "group_by", "as_json", "output", "write_subjects", "debug"}
"""Parameters that are allowed if a container is checked."""


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path))
@click.option(
    "--metadata",
    type=click.Path(path_type=Path),
    help="The metadata sheet (TSV, CSV or XLSX) with one row per repertoire. A container needs none.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="What to predict, as in `deeprc train`. The option may be given several times."
    "  [default: the columns that look like labels]",
)
@click.option(
    "--group-by",
    metavar="COLUMN",
    help="The column that names the donor of each repertoire.  [default: found by its name]",
)
@reading_options
@reading_jobs_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write all findings, groups and pairs to this folder as tables and one JSON document. The folder of an earlier"
    " check is replaced.",
)
@click.option(
    "--write-subjects",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the metadata sheet with a column 'joined_subject_id': repertoires that come from one donor, or share"
    " far more sequences than expected by chance, have the same value. Use this column as --group-by.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def check(
    sources: tuple[Path, ...],
    metadata: Path | None,
    targets: tuple[str, ...],
    group_by: str | None,
    reading: Callable[[], ReadingOptions],
    jobs: int | None,
    output: Path | None,
    write_subjects: Path | None,
    as_json: bool,
) -> None:
    """List errors and suspicious findings in a cohort: repertoire files with a sheet, or a container.

    The command prints three things: what `deeprc preprocess` would do; how well the label can be predicted without any
    receptor sequence (from the size of the repertoire, gene usage, file names or other columns); and every finding with
    its code and advice.

    An error is what `deeprc preprocess` or `deeprc train` would refuse, or what makes results wrong. Examples are files
    that cannot be read, rows without files, mixed chains or species, and the same repertoire under two names. A warning
    may be a mistake, or may be intended: you must decide. A note is for information. All problems are listed, not only
    the first.

    Exit code: 0 without errors, 1 with errors, 2 for wrong usage.

    Each finding is one line with the first few names; --output FOLDER writes all of them.

    \b
    Examples:
      deeprc check exports/ --metadata samples.xlsx --target 'CMV=+'
      deeprc check cohort.h5 --target 'CMV=+' --output findings
    """
    from deeprc.checks import check_cohort, check_dataset, joined_donors
    from deeprc.checks.folder import check_folder, write_check
    from deeprc.datasets.dataset import open_dataset

    ctx = click.get_current_context()
    if output is not None:
        check_folder(output)
    if write_subjects is not None:
        joined_donors.check_joined_donors_output(write_subjects)
    if _is_one_container(sources) or (metadata is None and _looks_like_container(sources)):
        _refuse_options_of_files(ctx, sources[0])
        result = check_dataset(open_dataset(sources[0]), targets=targets, group_by=group_by)
    elif metadata is None:
        for source in sources:
            if not source.exists():
                raise InputError(f"{source}: no such file or folder")
        raise click.UsageError(
            f"{sources[0]}: repertoire files need --metadata SHEET (only a single container needs no sheet)"
        )
    else:
        result = check_cohort(sources, metadata, targets=targets, group_by=group_by, options=reading(), jobs=jobs)
    if output is not None:
        write_check(result, output)
    click.echo(json.dumps(result.to_dict(), indent=2) if as_json else result.to_text())
    if write_subjects is not None:
        n_groups = joined_donors.write_joined_donors(result, write_subjects)
        click.echo(
            f"Wrote {write_subjects}: {n_groups:,} different values of {joined_donors.JOINED_COLUMN}", err=as_json
        )
    ctx.exit(0 if result.ok else 1)


def _is_one_container(sources: Sequence[Path]) -> bool:
    from deeprc.datasets.container import is_container

    return len(sources) == 1 and sources[0].is_file() and is_container(sources[0])


def _looks_like_container(sources: Sequence[Path]) -> bool:
    """Return whether there is one source with the ending of a container: if it is damaged, opening it says why."""
    return len(sources) == 1 and sources[0].is_file() and sources[0].suffix.lower() in (".h5", ".hdf5")


def _refuse_options_of_files(ctx: click.Context, container: Path) -> None:
    """Raise an error for options about reading files, because a container can be read in only one way."""
    unused = sorted(
        option.opts[-1]
        for option in ctx.command.params
        if option.name not in _OF_CONTAINERS
        and ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    )
    if unused:
        raise InputError(f"{container}: is a container, which has its own metadata; leave out {', '.join(unused)}")
