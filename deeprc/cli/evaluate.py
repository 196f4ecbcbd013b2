"""The command `deeprc evaluate`: metrics of runs on a cohort."""

from __future__ import annotations

import json
from pathlib import Path

import click

from deeprc.cli.options import device_option
from deeprc.cli.paths import runs_and_container
from deeprc.cli.tables import format_cautions, format_metrics
from deeprc.errors import InputError

__all__ = ["evaluate"]


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print the metrics as JSON, as in metrics.json, with the warnings."
)
@click.option("-o", "--output", metavar="FILE", help="Also write the metrics and the warnings to this file (JSON).")
@device_option
@runs_and_container
def evaluate(runs: tuple[str, ...], container: str, as_json: bool, output: str | None, device: str) -> None:
    """Measure how well RUN predicts CONTAINER, and compare it with control methods that see no amino-acid sequence.

    The metrics are the AUC for classes, and r2, rank correlation and mean absolute error for a numeric target, with 95%
    intervals. They are given for each part of the split of RUN (train, validation, test), and for repertoires that RUN
    has not seen ("new"). Judge RUN by "test" and "new" only. Several runs, or a folder of runs, predict
    together, as in `deeprc predict`.

    \b
    Examples:
      deeprc evaluate runs/cmv new_cohort.h5
      deeprc evaluate runs/cmv-1 runs/cmv-2 runs/cmv-3 cohort.h5
    """
    from deeprc.files import check_output_path, write_text
    from deeprc.runs.ensemble import assess_runs

    if output is not None:
        check_output_path(Path(output))
        if Path(output).exists():
            raise InputError(f"{output}: exists already; choose another --output")
    assessment = assess_runs(runs, container, device=device)
    text = json.dumps(assessment.to_dict(), indent=1)
    click.echo(text if as_json else format_metrics(assessment.metrics))
    for line in format_cautions(assessment.cautions):
        click.echo(line, err=as_json)
    if output is not None:
        write_text(Path(output), text + "\n")
        click.echo(f"Wrote {output}", err=as_json)
