"""`deeprc preprocess`: from repertoire files and a metadata sheet to a container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from deeprc.cli.reading import file_bar, reading_options
from deeprc.datasets.cleaning import Merge
from deeprc.datasets.preprocessing import preprocess as preprocess_cohort

__all__ = ["preprocess"]


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path))
@click.option(
    "--metadata",
    required=True,
    type=click.Path(path_type=Path),
    help="The metadata sheet (TSV, CSV or XLSX): one row per repertoire.",
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The container to write.")
@reading_options
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Leave out rows without a file, files without a row and repertoires without a kept sequence.",
)
@click.option("--skip-bad-files", is_flag=True, help="Leave out files that cannot be read, and list them.")
@click.option("--min-length", type=int, default=1, show_default=True, help="Shortest sequence kept, in residues.")
@click.option("--max-length", type=int, default=50, show_default=True, help="Longest sequence kept, in residues.")
@click.option("--jobs", type=int, help="Worker processes.  [default: one per core, fewer for little]")
def preprocess(
    sources: tuple[Path, ...],
    metadata: Path,
    output: Path,
    jobs: int | None,
    merge: Merge,
    keep_nucleotide_clonotypes: bool,
    **options: Any,
) -> None:
    """Read repertoire files and write them, in the order of the metadata sheet, to one container.

    SOURCE is a file or a folder (searched with all folders in it), gzip, bzip2, xz, zip or plain: AIRR, immunoSEQ,
    MiXCR, 10x, BD Rhapsody, VDJtools, immunarch, TCRex, the original DeepRC's tables and HDF5 files, or any table with
    --sequence-column. After an interrupt the same command goes on where it was.

    \b
    Example:
      deeprc preprocess repertoires/ --metadata metadata.tsv --output cohort.h5
    """
    with file_bar() as show:
        report = preprocess_cohort(
            sources,
            metadata,
            output,
            jobs=jobs,
            merge="none" if keep_nucleotide_clonotypes else merge,
            progress=show,
            **options,
        )
    click.echo(report.to_text())
    click.echo(f"wrote {output}")
