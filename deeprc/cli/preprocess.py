"""`deeprc preprocess`: from repertoire files and a metadata sheet to a container."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from deeprc.datasets.cleaning import Merge
from deeprc.datasets.genes import LOCI
from deeprc.datasets.preprocessing import preprocess as preprocess_cohort
from deeprc.datasets.readers import FORMATS

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
@click.option(
    "--format",
    "reader_format",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="The format of the files; auto recognises each by its header.",
)
@click.option("--id-column", help="Column of the sheet with the repertoire ids.  [default: found by its name]")
@click.option("--sequence-column", help="Read any other table: the column of the amino-acid sequences.")
@click.option("--count-column", help="With --sequence-column: the column of the counts.  [default: each counts 1]")
@click.option("--split-by", metavar="COLUMN", help="The files' column that names the repertoire of each row.")
@click.option("--locus", type=click.Choice(LOCI), help="The chain to keep.  [default: the only one there is]")
@click.option(
    "--merge-by",
    "merge",
    type=click.Choice(["genes", "junction"]),
    default="genes",
    show_default=True,
    help="Rows with the same junction, and V and J gene (genes) or not (junction), are one sequence; counts are added.",
)
@click.option("--keep-nucleotide-clonotypes", is_flag=True, help="Keep rows apart that have the same junction.")
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Leave out rows without a file, files without a row and repertoires without a kept sequence.",
)
@click.option("--skip-bad-files", is_flag=True, help="Leave out files that cannot be read, and list them.")
@click.option("--min-length", type=int, default=1, show_default=True, help="Shortest sequence kept, in residues.")
@click.option("--max-length", type=int, default=50, show_default=True, help="Longest sequence kept, in residues.")
@click.option("--jobs", type=int, help="Worker processes.  [default: one per core]")
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
    MiXCR, 10x, VDJtools, immunarch, TCRex, the original DeepRC's tables and HDF5 files, or any table with
    --sequence-column. After an interrupt the same command goes on where it was.

    \b
    Example:
      deeprc preprocess repertoires/ --metadata metadata.tsv --output cohort.h5
    """
    from tqdm import tqdm

    with tqdm(unit="file", disable=not sys.stderr.isatty()) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        report = preprocess_cohort(
            sources,
            metadata,
            output,
            jobs=_cores() if jobs is None else jobs,
            merge="none" if keep_nucleotide_clonotypes else merge,
            progress=show,
            **options,
        )
    click.echo(report.to_text())
    click.echo(f"wrote {output}")


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
