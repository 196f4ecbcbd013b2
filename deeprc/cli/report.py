"""`deeprc report`."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.cli.progress import bar
from deeprc.errors import InputError

__all__ = ["report"]


@click.command()
@click.argument("folder", metavar="RUN|BENCHMARK")
@click.argument("container", required=False)
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML file to write.")
@click.option(
    "--top", type=click.IntRange(1), default=1000, show_default=True, help="Sequences to keep for each class."
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
def report(folder: str, container: str | None, output: str, top: int, device: str) -> None:
    """Write what RUN found in CONTAINER, or what a BENCHMARK found, as one HTML file.

    The file holds everything: it opens in any browser without a network, and can be sent on. A run's report shows how
    good the network is, warnings, controls, attention, the sequences and motifs that speak for each class, and how to
    make it all again; it needs deeprc[interpret]. A benchmark's shows all methods in one table, and their curves.

    \b
    Examples:
      deeprc report runs/cmv cohort.h5 -o report.html
      deeprc report results -o report.html
    """
    from deeprc.evaluation.store import holds_benchmark

    if holds_benchmark(Path(folder)):
        if container is not None:
            raise InputError(f"{folder}: holds a benchmark, whose report takes no CONTAINER; found {container!r}")
        _benchmark(folder, output)
    else:
        if (Path(folder) / "config.yaml").is_file() and container is None:
            raise InputError(f"{folder}: is a run, whose report needs a CONTAINER: deeprc report RUN CONTAINER -o FILE")
        _run(folder, container, output, top, device)
    click.echo(f"Wrote {output}")


def _benchmark(folder: str, output: str) -> None:
    from deeprc.interpretation.report import write_benchmark_report

    write_benchmark_report(folder, output)


def _run(folder: str, container: str | None, output: str, top: int, device: str) -> None:
    from deeprc.datasets.dataset import open_dataset
    from deeprc.evaluation.run import load_run
    from deeprc.interpretation.report import write_report

    if container is None:
        raise InputError(f"{folder}: is neither a run (no config.yaml) nor a benchmark (no benchmark.yaml)")
    trained = load_run(folder, device=device)
    dataset = open_dataset(container)
    write_report(trained, dataset, output, top=top, positions=bar(range(len(dataset)), "repertoire"))
