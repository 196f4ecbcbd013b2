"""`deeprc evaluate`."""

from __future__ import annotations

import json

import click

from deeprc.cli.progress import bar
from deeprc.cli.tables import metrics_lines

__all__ = ["evaluate"]


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.argument("container")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in the layout of metrics.json.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
def evaluate(runs: tuple[str, ...], container: str, as_json: bool, device: str) -> None:
    """Measure RUN on CONTAINER: AUC with its 95% interval, F1, balanced accuracy, accuracy and loss.

    Repertoires are reported apart by the side they were on when RUN was trained; those it has not seen are "new".
    Several runs predict together, as in `deeprc predict`.

    \b
    Examples:
      deeprc evaluate runs/cmv new_cohort.h5
      deeprc evaluate runs/cmv-1 runs/cmv-2 runs/cmv-3 cohort.h5
    """
    from deeprc.datasets.dataset import open_dataset
    from deeprc.evaluation.ensemble import load_ensemble

    trained = load_ensemble(runs, device=device)
    dataset = open_dataset(container)
    metrics = trained.evaluate(dataset, bar(range(len(dataset)), "repertoire"))
    click.echo(json.dumps(metrics, indent=1) if as_json else metrics_lines(metrics))
