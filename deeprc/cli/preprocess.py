"""The command `deeprc preprocess`: from repertoire files and a metadata sheet to a container."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from deeprc.cli.options import reading_jobs_option, scheduler_option
from deeprc.cli.reading import reading_options
from deeprc.datasets.options import ReadingOptions

__all__ = ["preprocess"]


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path))
@click.option(
    "--metadata",
    required=True,
    type=click.Path(path_type=Path),
    help="The metadata sheet (TSV, CSV or XLSX) with one row per repertoire.",
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The container to write.")
@reading_options
@click.option(
    "--skip-bad-files",
    is_flag=True,
    help="Leave out files that cannot be read, with a warning.  [default: they are an error]",
)
@reading_jobs_option
@scheduler_option
def preprocess(
    sources: tuple[Path, ...],
    metadata: Path,
    output: Path,
    reading: Callable[[], ReadingOptions],
    skip_bad_files: bool,
    jobs: int | None,
    scheduler: str | None,
) -> None:
    """Read repertoire files and write them, in the order of the metadata sheet, to one container.

    SOURCE is a file, or a folder that is searched with all its subfolders. Files may be compressed (gzip, bzip2, xz,
    zip). Known formats are AIRR, immunoSEQ, MiXCR, 10x, BD Rhapsody, VDJtools, immunarch, TCRex, and the tables and
    HDF5 files of the original DeepRC; --sequence-column reads any other table.

    If files cannot be used, the command reads the other files, and names the faults of all files at the end. If it was
    interrupted, or you have mended the files, run the same command again; it reads only what it has not read yet.

    \b
    Example:
      deeprc preprocess repertoires/ --metadata metadata.tsv --output cohort.h5
    """
    from deeprc.datasets.preprocessing import preprocess as preprocess_cohort

    report = preprocess_cohort(
        sources,
        metadata,
        output,
        options=reading(),
        skip_bad_files=skip_bad_files,
        jobs=jobs,
        scheduler=scheduler,
    )
    click.echo(report.to_text())
    click.echo(f"Wrote {output}: {report.describe_result()}")
