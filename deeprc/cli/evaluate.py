"""The command `deeprc evaluate`: metrics of runs on a cohort."""

from __future__ import annotations

import json

import click

from deeprc.cli.options import device_option
from deeprc.cli.tables import format_cautions, format_metrics

__all__ = ["evaluate"]


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.argument("container")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the metrics as JSON, as in metrics.json, with the warnings."
)
@device_option
def evaluate(runs: tuple[str, ...], container: str, as_json: bool, device: str) -> None:
    """Measure how well RUN predicts CONTAINER, and compare it with control methods that see no amino-acid sequence.

    The metrics are the AUC for classes, and r2, rank correlation and mean absolute error for a numeric target, with 95%
    intervals. They are given for each part of the split of RUN (train, validation, test), and for repertoires that RUN
    has not seen ("new"). Judge RUN by "test" and "new" only. Several runs predict together, as in `deeprc predict`.

    \b
    Examples:
      deeprc evaluate runs/cmv new_cohort.h5
      deeprc evaluate runs/cmv-1 runs/cmv-2 runs/cmv-3 cohort.h5
    """
    from deeprc.runs.ensemble import assess_runs

    found = assess_runs(runs, container, device=device)
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else format_metrics(found.metrics))
    for line in format_cautions(found.cautions):
        click.echo(line, err=as_json)
