"""The command `deeprc report`: an HTML report."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.cli.options import device_option, host_option, scheduler_option
from deeprc.cli.paths import expand_runs, split_runs_and_container

__all__ = ["report"]


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="RUN... CONTAINER | CV | BENCHMARK")
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML file to write.")
@click.option(
    "--top",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Number of sequences that are listed for each class.",
)
@click.option(
    "--database",
    "databases",
    multiple=True,
    metavar="FILE",
    help="Look for the sequences among receptors with known antigens, in a file as `deeprc annotate` takes it. The"
    " option may be given several times.",
)
@host_option
@click.option("--open", "is_opened", is_flag=True, help="Open the file in the browser when it is written.")
@scheduler_option
@device_option
def report(
    paths: tuple[str, ...],
    output: str,
    top: int,
    databases: tuple[str, ...],
    host: str | None,
    is_opened: bool,
    scheduler: str | None,
    device: str,
) -> None:
    """Write a report of RUN on CONTAINER, of the folder of `deeprc cv`, or of a BENCHMARK, as one HTML file.

    The file opens in any browser, without an internet connection. The report of a run needs deeprc[interpret]. It
    shows how good the network is, warnings, control methods, attention, the sequences and motifs that indicate each
    class, and the commands that reproduce it. The report of a cross-validation shows the AUC with its interval, all
    folds and curves. The report of a benchmark shows all methods in one table, and their curves.

    Several runs, or a folder of runs, predict together, as in `deeprc predict`, and get one report.

    With --scheduler, the workers of a Dask cluster read the repertoires of a run, some at a time. Control methods,
    motifs and checks are computed on this machine. --device is then the device of the workers.

    \b
    Examples:
      deeprc report runs/cmv cohort.h5 -o report.html
      deeprc report runs/cmv-1 runs/cmv-2 runs/cmv-3 cohort.h5 -o report.html
      deeprc report runs/cmv cohort.h5 --database vdjdb.txt -o report.html
      deeprc report runs/cmv-cv -o report.html
      deeprc report results -o report.html
    """
    from deeprc.interpretation.report import write_any_report
    from deeprc.runs.cross_plan import holds_cross_validation

    folders, container = split_runs_and_container(paths)
    if not any(holds_cross_validation(Path(folder)) for folder in folders):  # which has a report of its own
        folders = [*expand_runs(folders)]
    write_any_report(
        folders,
        container,
        output=output,
        top=top,
        databases=databases,
        host=host,
        device=device,
        scheduler=scheduler,
    )
    click.echo(f"Wrote {output}")
    if is_opened:
        click.launch(output)
