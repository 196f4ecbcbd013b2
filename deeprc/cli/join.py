"""`deeprc join`: several containers as one."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["join"]


@click.command()
@click.argument("containers", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The container to write.")
def join(containers: tuple[Path, ...], output: Path) -> None:
    """Write one container with the repertoires of all CONTAINERS, one after the other.

    So several machines can each preprocess a part of a cohort. The containers must be of the same chain, with different
    repertoires, preprocessed with the same options.

    \b
    Example:
      deeprc join part1.h5 part2.h5 part3.h5 -o cohort.h5
    """
    from deeprc.datasets.joining import join as join_containers

    click.echo(join_containers(containers, output).to_text())
