"""The command `deeprc power`: the number of repertoires that a study needs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click

from deeprc.cli.options import jobs_option, scheduler_option, seed_option
from deeprc.cli.progress import show_counts
from deeprc.cli.signals import show_how_to_continue

__all__ = ["power"]

_ONLY_WITH_CONTAINER = ("target", "group_by", "n_draws", "n_permutations", "auc")
_ONLY_WITHOUT_CONTAINER = ("repertoires", "depth", "witness_rate", "motif_length", "positive_share", "cohorts")


@click.command()
@click.argument("container", required=False)
@click.option("--target", metavar="TARGET", help="What to predict, two classes, as in `deeprc train`.")
@click.option(
    "--methods",
    "--method",
    "methods",
    multiple=True,
    metavar="NAME,...",
    help="Methods of `deeprc benchmark`.  [default: gapped-logistic, which takes minutes; without CONTAINER also"
    " known-recipe, an estimate of the upper limit of all methods]",
)
@click.option("-o", "--output", metavar="FOLDER", help="The folder to write: power.tsv, power.png and the jobs.")
@click.option("--auc", type=float, help="The AUC that a study should reach.  [default: 0.9]")
@click.option(
    "--draws",
    "n_draws",
    type=click.IntRange(1),
    help="Number of random samples of donors for each point of the learning curve.  [default: 3]",
)
@click.option(
    "--permutations",
    "n_permutations",
    type=click.IntRange(0),
    help="Number of permutations of the labels between donors, each with the whole analysis.  [default: 0, no test]",
)
@click.option(
    "--group-by",
    metavar="COLUMN",
    help="Keep repertoires with the same value in this column, such as one donor's, together.",
)
@click.option("--repertoires", type=click.IntRange(1), metavar="N", help="Number of repertoires of a planned study.")
@click.option(
    "--depth", type=click.IntRange(1), metavar="N", help="Number of sequences per repertoire of the planned study."
)
@click.option(
    "--witness-rate", type=float, help="Share of the sequences of a positive repertoire that carry the signal."
)
@click.option("--motif-length", type=int, help="The number of residues of the signal's motif.  [default: 3]")
@click.option("--positive-share", type=float, help="The share of positive repertoires.  [default: 0.5]")
@click.option("--cohorts", type=click.IntRange(0), help="Number of simulated cohorts; 0: the rule only.  [default: 2]")
@click.option("--folds", type=int, default=5, show_default=True, help="The number of folds.")
@click.option(
    "--preset", help="The search spaces of the methods' settings, as in `deeprc benchmark`.  [default: quick]"
)
@seed_option
@jobs_option
@scheduler_option
@click.option("--resume", is_flag=True, help="Continue the interrupted command in --output.")
def power(
    container: str | None,
    methods: tuple[str, ...],
    output: str | None,
    resume: bool,
    folds: int,
    preset: str | None,
    seed: int,
    jobs: int,
    scheduler: str | None,
    **others: Any,
) -> None:
    """Estimate how many repertoires a study needs, from a cohort or before any data.

    With CONTAINER, a method is trained on growing shares of the donors, and a learning curve predicts the AUC with more
    repertoires. --permutations tests whether the result is better than chance.

    Without CONTAINER, --repertoires, --depth and --witness-rate describe a planned study. A rule of thumb is printed at
    once. Then simulated cohorts show which AUC to expect.

    \b
    Examples:
      deeprc power cohort.h5 --target 'CMV=+' --group-by subject_id -o power
      deeprc power cohort.h5 --target 'CMV=+' --methods deeprc --permutations 99 --jobs 8 -o power
      deeprc power --repertoires 100 --depth 50000 --witness-rate 0.001
    """
    from deeprc.benchmarking.methods import split_names
    from deeprc.benchmarking.options import BenchmarkOptions
    from deeprc.errors import InputError
    from deeprc.power.files import check_power_folder, get_jobs_folder

    given = {name: value for name, value in others.items() if value is not None}
    excluded = _ONLY_WITH_CONTAINER if container is None else _ONLY_WITHOUT_CONTAINER
    wrong = next((name for name in given if name in excluded), None)
    if wrong is not None:
        raise InputError(f"`{wrong}` {'needs' if container is None else 'cannot be combined with'} a CONTAINER")
    if resume and output is None:
        raise InputError("--resume needs --output FOLDER")
    if output is not None:
        check_power_folder(output, resume=resume)
    options = BenchmarkOptions(
        preset=preset,
        folds=folds,
        group_by=given.pop("group_by", None),
        seed=seed,
        jobs=jobs,
        scheduler=scheduler,
    )
    names = split_names(methods)
    if methods and not names:
        raise InputError(f"`methods={', '.join(methods)!r}`: expected names of methods")
    advice = "Continue with the same command and --resume."
    with nullcontext() if output is None else show_how_to_continue(advice, get_jobs_folder(output)):
        if container is None:
            _plan_study(given, names, options, output, resume)
        else:
            _measure_cohort(container, given, names, options, output, resume)


def _measure_cohort(
    container: str, given: dict[str, Any], methods: list[str], options: Any, output: str | None, resume: bool
) -> None:
    """Measure and print the learning curves of a cohort."""
    from deeprc.errors import InputError
    from deeprc.power.files import get_jobs_folder, write_curves
    from deeprc.power.learning_curve import PowerOptions, measure_learning_curve

    target = given.pop("target", None)
    if target is None:
        raise InputError("expected --target TARGET")
    chosen = PowerOptions(benchmark=options, **given)
    with show_counts("jobs of the learning curve") as progress:
        curves = measure_learning_curve(
            container,
            target=target,
            methods=methods or ["gapped-logistic"],
            output=None if output is None else get_jobs_folder(output),
            options=chosen,
            resume=resume,
            progress=progress,
        )
    for curve in curves:
        for line in curve.to_lines():
            click.echo(line)
    if output is not None:
        write_curves(output, curves)
    _print_output_folder(output)


def _plan_study(given: dict[str, Any], methods: list[str], options: Any, output: str | None, resume: bool) -> None:
    """Print the AUC that a planned study can expect."""
    from deeprc.errors import InputError
    from deeprc.power.files import get_jobs_folder, write_study
    from deeprc.power.planning import PlannedStudy, SearchRule, simulate_study

    missing = [name for name in ("repertoires", "depth", "witness_rate") if name not in given]
    if missing:
        options_needed = ", ".join(f"`{name}`" for name in missing)
        raise InputError(f"expected a CONTAINER, or {options_needed} of a planned study")
    n_cohorts = given.pop("cohorts", 2)
    study = PlannedStudy(n_repertoires=given.pop("repertoires"), n_folds=options.folds, **given)
    for line in SearchRule(study).to_lines():
        click.echo(line)
    if n_cohorts == 0:
        return
    with show_counts("jobs of the simulated cohorts") as progress:
        result = simulate_study(
            study,
            methods=methods or ["gapped-logistic", "known-recipe"],
            n_cohorts=n_cohorts,
            output=None if output is None else get_jobs_folder(output),
            options=options,
            resume=resume,
            progress=progress,
        )
    for line in result.to_lines():
        click.echo(line)
    if output is not None:
        write_study(output, result)
    _print_output_folder(output)


def _print_output_folder(output: str | None) -> None:
    """Say where the tables are, or how to keep them."""
    click.echo("Nothing was written; --output FOLDER keeps the tables." if output is None else f"Wrote {output}")
