"""The command `deeprc info`: the content of a container."""

from __future__ import annotations

import json
from pathlib import Path

import click

__all__ = ["info"]


@click.command()
@click.argument("container", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def info(container: Path, as_json: bool) -> None:
    """Show what CONTAINER holds: repertoires, sequences, counts, metadata, and what was dropped.

    \b
    Example:
      deeprc info cohort.h5
    """
    from deeprc.datasets.dataset import RepertoireDataset
    from deeprc.datasets.summary import render_summary, summarise

    summary = summarise(RepertoireDataset(container))
    click.echo(json.dumps(summary, indent=2) if as_json else render_summary(summary))
