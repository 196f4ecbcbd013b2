"""The command `deeprc cv`: cross-validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deeprc.cli.options import (
    adjust_option,
    config_option,
    jobs_option,
    parse_folds,
    scheduler_option,
    settings_argument,
    sketches_option,
    training_device_option,
)
from deeprc.cli.settings import SettingsCommand
from deeprc.cli.signals import show_how_to_continue
from deeprc.cli.tables import format_cautions, format_metrics
from deeprc.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cv"]

_MAX_MOTIFS = 10


@click.command(cls=SettingsCommand)
@click.argument("container")
@settings_argument
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    metavar="TARGET",
    help="What to predict, as in `deeprc train`. The option may be given several times.",
)
@click.option("-o", "--output", required=True, metavar="FOLDER", help="The folder to write, or the one to continue in.")
@config_option
@click.option(
    "--folds",
    metavar="NUMBER|leave-one-out:COLUMN",
    default="5",
    callback=parse_folds,
    show_default=True,
    help="Number of folds. Each is the test fold once. leave-one-out:COLUMN: test once on each value of the column,"
    " such as a batch.",
)
@click.option(
    "--repeats",
    default=1,
    show_default=True,
    help="Number of repeats of the cross-validation, each with different folds and a different seed. A later call may"
    " add repeats.",
)
@click.option(
    "--members",
    type=int,
    help="Number of runs in the ensemble for a test fold, each with a different validation fold.  [default: the"
    " number of folds minus 1; with leave-one-out 5]",
)
@click.option(
    "--group-by",
    metavar="COLUMN",
    help="Keep repertoires with the same value in this column, such as one donor's, in one fold.",
)
@adjust_option
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of the first repeat; each other repeat has the next one.",
)
@training_device_option
@sketches_option
@jobs_option
@scheduler_option
def cv(
    container: str,
    overrides: tuple[str, ...],
    output: str,
    config: str,
    targets: tuple[str, ...],
    no_sketches: bool,
    jobs: int,
    **others: Any,
) -> None:
    """Measure by cross-validation how well a target can be predicted from CONTAINER.

    The command prints the mean AUC of the test folds with its 95% interval. Each fold is the test fold once. An
    ensemble of runs that were trained on the other folds predicts it. This takes folds x members x repeats runs, 20
    with the defaults. OUTPUT has the prediction of every repertoire by the ensemble that was not trained on it
    (predictions.tsv), the metrics (metrics.json, folds.tsv), and the number of runs in which the search found each
    motif (motifs.tsv).

    KEY=VALUE changes a setting of the configuration, as in `n_updates=5000`. All settings are listed below.

    If the command was interrupted, run it again; it continues where it stopped.

    \b
    Examples:
      deeprc cv cohort.h5 --target 'CMV=+' --group-by subject_id --output runs/cmv-cv
      deeprc cv cohort.h5 --target 'CMV=+' --repeats 3 --jobs 8 --output runs/cmv-cv
    """
    from deeprc.config import load_config
    from deeprc.runs.cross_validation import cross_validate

    if "=" in container:
        raise InputError(f"expected a CONTAINER before the KEY=VALUE settings, found {container!r}")
    settings = load_config(config, overrides)
    with show_how_to_continue("Run the same command again to continue.", Path(output) / "cv.yaml"):
        result = cross_validate(
            container,
            output,
            targets=targets,
            config=settings,
            keep_sketches=not no_sketches,
            jobs=jobs,
            **others,
        )
    click.echo(format_metrics({"out-of-fold": result.metrics}))
    for target, metrics in result.metrics.items():
        for line in _describe_performance(target, metrics):
            click.echo(line)
    if len(result.motifs):
        click.echo(_describe_motifs(result.motifs))
    for line in format_cautions(result.cautions):
        click.echo(line)
    click.echo(f"Wrote {output}")


def _describe_motifs(motifs: pd.DataFrame) -> str:
    """Return the motifs that most runs found, as a sentence; it names the outputs if motifs are of several."""
    several = len(set(motifs["output"])) > 1
    shown = [
        f"{row.motif} {f'for {row.output} ' if several else ''}({row.n_runs} of {row.n_all_runs})"
        for row in motifs.head(_MAX_MOTIFS).itertuples()
    ]
    others = len(motifs) - len(shown)
    more = f", and {others:,} more in motifs.tsv" if others else ""
    return f"motifs, and how many runs found each: {', '.join(shown)}{more}"


def _describe_performance(target: str, metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences with the AUC, or r2, of a target and its interval."""
    from deeprc.runs.cross_metrics import NOT_MEASURED

    measure = "r2" if "r2" in metrics else "auc"
    value, limits = metrics.get(measure), metrics.get(f"{measure}_ci")
    if value is None:
        missing = measure if metrics["n"] else "n"
        yield f"{target}: {NOT_MEASURED[missing]}"
        return
    interval = "" if limits is None else f" (95% interval {limits[0]:.3f} to {limits[1]:.3f})"
    repeats = "" if metrics["n_repeats"] == 1 else f" in {metrics['n_repeats']} repeats"
    if measure == "r2":
        measured = f"r2 of the out-of-fold predictions of {metrics['n']:,} repertoires"
    else:
        measured = f"mean AUC of {metrics['n_folds']} test folds"
    yield f"{target}: {measured}{repeats} {value:.3f}{interval}"
