"""The command `deeprc benchmark`: comparison of methods."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from deeprc.cli.options import adjust_option, jobs_option, scheduler_option, seed_option
from deeprc.cli.progress import show_counts
from deeprc.cli.signals import show_how_to_continue

__all__ = ["benchmark"]

_KINDS = {"control": " (control method: sees no amino-acid sequence)", "truth": " (knows what was simulated)"}


def _list_methods(context: click.Context, _: click.Parameter, value: bool) -> None:
    if not value:
        return
    from deeprc.benchmarking.registry import METHODS

    width = max(map(len, METHODS))
    for name, method in METHODS.items():
        kind = _KINDS.get(method.kind, "")
        click.echo(f"{name:{width}}  {method.label}{kind}")
    context.exit()


@click.command()
@click.argument("container")
@click.option("--target", required=True, metavar="TARGET", help="What to predict, as in `deeprc train`.")
@click.option(
    "--methods",
    "--method",
    "methods",
    multiple=True,
    metavar="NAME,...",
    help="The methods to compare: names from --list, `module:Class` for a class of your own, or all. The option may be"
    " given several times.  [default: all]",
)
@click.option(
    "-o", "--output", metavar="FOLDER", help="The folder to write. It must not exist yet, except with --resume."
)
@click.option(
    "--preset",
    help="The search spaces of the methods' settings: paper, quick, or a YAML file of the same form.  [default: quick;"
    " with --resume that of the folder]",
)
@click.option(
    "--folds",
    default="5",
    show_default=True,
    help="The number of folds; leave-one-out:COLUMN, which tests on each value of a column, such as a batch, and trains"
    " on the others; or a TSV file with the columns 'repertoire_id' and 'fold'.",
)
@click.option(
    "--group-by",
    metavar="COLUMN",
    help="Keep repertoires with the same value in this column, such as one donor's, in one fold.",
)
@adjust_option
@seed_option
@jobs_option
@scheduler_option
@click.option("--resume", is_flag=True, help="Continue the benchmark in --output; methods may be added.")
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_methods, help="List the methods."
)
def benchmark(
    container: str,
    target: str,
    methods: tuple[str, ...],
    output: str | None,
    resume: bool,
    folds: str,
    jobs: int,
    **others: Any,
) -> None:
    """Compare DeepRC with other methods on CONTAINER, with the same folds, search for settings, and metrics.

    Each fold is the test fold once. The settings of a method are chosen by their AUC on the next fold, and the method
    is trained on the other folds. FOLDER/table.md has the AUC of each method with its interval and a paired test.

    If the command was interrupted, run it again with --resume; it continues where it stopped.

    \b
    Examples:
      deeprc benchmark cohort.h5 --target 'CMV=+' --output results
      deeprc benchmark cohort.h5 --target 'CMV=+' --methods deeprc,svm-minmax --preset paper --jobs 8 --output results
      deeprc benchmark cohort.h5 --target 'CMV=+' --method mymodule:MyClassifier --output results --resume
    """
    from deeprc.benchmarking.harness import benchmark as compare
    from deeprc.benchmarking.methods import split_names
    from deeprc.benchmarking.options import BenchmarkOptions
    from deeprc.errors import InputError

    if output is None:
        raise InputError("expected --output FOLDER")
    names = split_names(methods or ("all",))
    n_folds = int(folds) if re.fullmatch("[+-]?[0-9]+", folds) else folds
    options = BenchmarkOptions(folds=n_folds, jobs=jobs, **others)
    advice = "Continue with the same command and --resume."
    with (
        show_how_to_continue(advice, Path(output) / "benchmark.yaml"),
        show_counts("jobs of the benchmark") as progress,
    ):
        result = compare(
            container,
            target=target,
            methods=names,
            output=output,
            options=options,
            resume=resume,
            progress=progress,
        )
    click.echo(result.table)
    click.echo(f"Wrote {output}")
    if result.failures:
        sys.exit(1)
