"""The command `deeprc join`: one container from several."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["join"]


@click.command()
@click.argument("containers", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The container to write.")
@click.option(
    "--link",
    is_flag=True,
    help="Write a small container that names CONTAINERS and reads them where they are. They must lie in its folder, or "
    "below it, and stay there unchanged.",
)
def join(containers: tuple[Path, ...], output: Path, link: bool) -> None:
    """Write one container with the repertoires of all CONTAINERS, one after the other.

    Use this if several machines have each preprocessed a part of a cohort. The containers must have the same chain,
    different repertoires, and the same options of `deeprc preprocess`.

    \b
    Examples:
      deeprc join part1.h5 part2.h5 part3.h5 -o cohort.h5
      deeprc join part1.h5 part2.h5 -o cohort.h5 --link
    """
    from deeprc.datasets.joining import join as join_containers

    click.echo(join_containers(containers, output, link=link).to_text())
