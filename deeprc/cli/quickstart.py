"""The command `deeprc quickstart`: the whole workflow on a simulated cohort."""

from __future__ import annotations

import click

from deeprc.cli.progress import make_evaluation_printer

__all__ = ["quickstart"]


@click.command()
@click.option(
    "-o",
    "--output",
    default="quickstart",
    show_default=True,
    metavar="FOLDER",
    help="The folder to write, new or empty.",
)
def quickstart(output: str) -> None:
    """Run the whole workflow once: simulate a cohort with an implanted motif, preprocess, train, evaluate, report.

    The first call takes one to two minutes on two cores, because it also compiles; later calls take about 40 seconds.
    The command needs no network connection, and keeps all files in FOLDER.
    """
    from deeprc.quickstart import N_UPDATES, TOP, run_quickstart

    summary = run_quickstart(output, say=lambda line: click.echo(line), progress=make_evaluation_printer(N_UPDATES))
    click.echo(f"\nTest AUC: {summary['test_auc']:.3f}")
    click.echo(
        f"Of the {TOP} test sequences that contribute most to the positive class, "
        f"{summary['witnesses_in_top_100']} carry the motif {summary['motif']}."
    )
    click.echo(f"Took {summary['seconds']} seconds. Look at:")
    for content, path in summary["files"].items():
        click.echo(f"  {path:<36} {content}")
    click.echo(f"  {output + '/summary.json':<36} the numbers above")
