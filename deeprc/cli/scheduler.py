"""The option `--scheduler` of commands whose jobs can run on a Dask cluster."""

from __future__ import annotations

import click

__all__ = ["scheduler_option"]

scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Run the jobs on the Dask cluster whose scheduler has this address, such as tcp://host:8786. Its workers must"
    " find all files at the same paths.",
)
