"""The command `deeprc relabel`: new metadata for a container."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["relabel"]


@click.command()
@click.argument("container", type=click.Path(path_type=Path))
@click.option(
    "--metadata",
    required=True,
    type=click.Path(path_type=Path),
    help="The new metadata sheet (TSV, CSV or XLSX) with one row per repertoire.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The container to write.  [default: CONTAINER]")
@click.option("--id-column", help="The sheet's column with the repertoire ids.  [default: found by its name]")
@click.option("--keep-columns", is_flag=True, help="Keep columns of the old sheet that the new sheet does not have.")
@click.option(
    "--drop-columns",
    is_flag=True,
    help="Drop columns of the old sheet that the new sheet does not have.  [default: this is an error if CONTAINER is"
    " replaced]",
)
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Leave out rows without a repertoire, and keep repertoires without a row, whose labels are then missing, with"
    " a warning.  [default: each is an error]",
)
def relabel(
    container: Path,
    metadata: Path,
    output: Path | None,
    id_column: str | None,
    keep_columns: bool,
    drop_columns: bool,
    allow_missing: bool,
) -> None:
    """Replace the columns of CONTAINER with those of another metadata sheet, without reading repertoire files again.

    The sequences do not change, so trained runs still recognise the repertoires that they were trained on.

    \b
    Example:
      deeprc relabel cohort.h5 --metadata new_samples.tsv --output relabelled.h5
    """
    from deeprc.datasets.relabelling import relabel as relabel_container

    done = relabel_container(
        container,
        metadata,
        output,
        id_column=id_column,
        keep_columns=keep_columns,
        drop_columns=drop_columns,
        allow_missing=allow_missing,
    )
    click.echo(done.to_text())
