"""The command `deeprc train`: training of a run, or of several."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from deeprc.cli.options import (
    adjust_option,
    config_option,
    parse_folds,
    settings_argument,
    sketches_option,
    training_device_option,
)
from deeprc.cli.progress import make_evaluation_printer
from deeprc.cli.settings import SettingsCommand
from deeprc.cli.signals import show_how_to_continue
from deeprc.cli.tables import format_cautions, format_metrics
from deeprc.errors import InputError
from deeprc.evaluation.parse_folds import parse_left_out_column
from deeprc.torchrun import read_launch

if TYPE_CHECKING:
    from torch import Tensor

    from deeprc.config import Config
    from deeprc.training.state import TrainingState

__all__ = ["train"]

_FoldIndex = int | Literal["all"]


def _show_how_to_resume(folder: str) -> AbstractContextManager[None]:
    """Show how to continue if the training of a run ends early, and its folder has been made."""
    return show_how_to_continue(
        f"Continue with: deeprc train --resume {shlex.quote(folder)}", Path(folder) / "config.yaml"
    )


def _run_among_ranks(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command join the processes that torchrun started; only the first of them that fails shows its error."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        """Call the command, after joining the other processes if there are any."""
        if read_launch() is None:
            command(*arguments, **options)
            return

        from deeprc import ranks

        with ranks.join_ranks():
            try:
                command(*arguments, **options)
            except (InputError, OSError, MemoryError) as error:
                if not ranks.may_report():
                    raise SystemExit(2) from error
                raise

    return run


def _read_fold(_: click.Context, parameter: click.Parameter, text: str | None) -> _FoldIndex | None:
    """Return the index of a fold as an integer, or "all"."""
    if text is None or text == "all":
        return "all" if text == "all" else None
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"expected the index of a fold, or 'all', found {text!r}", param=parameter) from None


@click.command(cls=SettingsCommand)
@click.argument("container", required=False)
@settings_argument
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="What to predict, a column of the metadata: COLUMN, COLUMN=POSITIVE_CLASS, 'COLUMN=A,B vs C', 'COLUMN>50',"
    " COLUMN:multiclass or COLUMN:regression. Give the option several times to train several targets at once. With"
    " several targets, @WEIGHT at the end is the weight of this target in the loss (1 without it).",
)
@click.option("-o", "--output", metavar="FOLDER", help="The run directory to write. It must not exist yet.")
@config_option
@click.option(
    "--folds",
    metavar="NUMBER|leave-one-out:COLUMN",
    default="5",
    callback=parse_folds,
    show_default=True,
    help="Number of folds for splitting the repertoires; leave-one-out:COLUMN: train a run for each value of the"
    " column, such as a batch, and test it on this value (OUTPUT/fold-0 and so on).",
)
@click.option("--fold", default=0, show_default=True, help="Index of the fold for testing, from 0.")
@click.option(
    "--validation-fold",
    metavar="INDEX|all",
    callback=_read_fold,
    help="Index of the fold for validation (early stopping); all: an ensemble, with a run for each fold except the test"
    " fold (OUTPUT/validation-1 and so on).  [default: the fold after --fold]",
)
@click.option(
    "--test",
    metavar="COLUMN=VALUE",
    help="Test on the repertoires with this value, and make the folds of those with another value. Repertoires without"
    " a value are not used.",
)
@click.option(
    "--group-by",
    metavar="COLUMN",
    help="Keep repertoires with the same value in this column, such as one donor's, in one part of the split.",
)
@adjust_option
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of every random choice: the split, the initial weights and the sampling.",
)
@training_device_option
@click.option(
    "--logger",
    type=click.Choice(["tensorboard"]),
    help="Write losses, AUC and histograms of the attention to OUTPUT/tensorboard at each evaluation.",
)
@sketches_option
@click.option(
    "--resume",
    metavar="RUN",
    help="Continue the interrupted training in this run directory. Give CONTAINER only if it has moved.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Only with --validation-fold all or --folds leave-one-out:COLUMN: train the runs on the Dask cluster whose"
    " scheduler has this address, such as tcp://host:8786. Its workers must find all files at the same paths.",
)
@click.pass_context
@_run_among_ranks
def train(
    ctx: click.Context,
    container: str | None,
    overrides: tuple[str, ...],
    targets: tuple[str, ...],
    output: str | None,
    config: str,
    folds: int | str,
    fold: int,
    validation_fold: _FoldIndex | None,
    test: str | None,
    group_by: str | None,
    adjust_for: tuple[str, ...],
    seed: int,
    device: str,
    logger: str | None,
    no_sketches: bool,
    resume: str | None,
    scheduler: str | None,
) -> None:
    """Train a classifier on CONTAINER and write a run directory: the model, its predictions and metrics.

    One fold is for testing, one for validation (early stopping), and the others for training. `deeprc cv` tests on each
    fold once. If donors have several repertoires, give --group-by.

    KEY=VALUE changes a setting of the configuration, as in `n_updates=5000 n_kernels=64`. All settings are listed
    below.

    If the training of one run was interrupted, continue with --resume RUN.

    With --validation-fold all, OUTPUT holds several runs. Give OUTPUT to `deeprc predict`, and they predict together.
    They are trained one after the other, or at the same time on the Dask cluster of --scheduler. If the command was
    interrupted, run it again; it continues where it stopped.

    \b
    Examples:
      deeprc train cohort.h5 --target 'CMV=+' --group-by subject_id --output runs/cmv
      deeprc train cohort.h5 --target 'CMV=+' --validation-fold all --output runs/cmv
    """
    from deeprc.config import load_config

    if resume is not None:
        _check_resume_options(ctx, container)
        _resume_training(resume, container, logger)
        return
    container, output = _check_paths(container, output)
    common = {
        "targets": targets,
        "config": load_config(config, overrides),
        "device": device,
        "logger": logger,
        "keep_sketches": not no_sketches,
    }
    split = {"folds": folds, "fold": fold, "test": test, "group_by": group_by, "adjust_for": adjust_for}
    if isinstance(folds, str) and (fold != 0 or test is not None or validation_fold is not None):
        raise InputError(f"--folds {folds}: leave out --fold, --test and --validation-fold")
    if validation_fold == "all" or isinstance(folds, str):
        _train_several(container, output, split, seed, scheduler, common)
        return
    if scheduler is not None:
        raise InputError("--scheduler trains several runs at a time: it needs --validation-fold all, or leave-one-out")
    _train_one(container, output, {"validation_fold": validation_fold, **split}, seed, common)


def _check_resume_options(ctx: click.Context, container: str | None) -> None:
    """Raise InputError if options were given that --resume does not take, or a setting in the place of CONTAINER."""
    given = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if given - {"resume", "container", "logger", "debug"} or "=" in (container or ""):
        raise InputError(
            "--resume continues a run with its own settings: besides it, give only --logger, or a CONTAINER that "
            "has moved"
        )


def _check_paths(container: str | None, output: str | None) -> tuple[str, str]:
    """Return CONTAINER and --output; raise InputError if one of them is missing, before PyTorch is loaded."""
    if container is None or output is None:
        raise InputError("expected a CONTAINER and --output FOLDER (or --resume RUN)")
    if "=" in container:
        raise InputError(f"expected a CONTAINER before the KEY=VALUE settings, found {container!r}")
    if not Path(container).exists():
        raise InputError(f"{container}: no such file")
    return container, output


def _resume_training(run: str, container: str | None, logger: str | None) -> None:
    """Continue a run, and show its results."""
    from deeprc import ranks
    from deeprc.runs.experiment import resume_run
    from deeprc.runs.run_settings import read_settings

    config = ranks.compute_once(lambda: read_settings(Path(run))).config
    with _show_how_to_resume(run):
        resumed = resume_run(run, cohort=container, logger=logger, progress=_make_printer(config))
    _show_results(resumed.path)


def _train_one(container: str, output: str, split: dict[str, Any], seed: int, common: dict[str, Any]) -> None:
    """Train a run, and show its results; `split` has the fields of `SplitOptions`."""
    from deeprc.evaluation.splits import SplitOptions
    from deeprc.runs.experiment import train_run

    with _show_how_to_resume(output):
        run = train_run(
            container,
            output,
            split=SplitOptions(**split),
            seed=seed,
            progress=_make_printer(common["config"]),
            **common,
        )
    _show_results(run.path)
    if split["validation_fold"] is None:
        _advise_ensemble(run.path)


def _advise_ensemble(run: Path) -> None:
    """Show a note if a run has few validation repertoires; of several ranks only the first one shows it."""
    from deeprc import ranks
    from deeprc.runs.run import read_splits
    from deeprc.training.validation import FEW_DONORS

    if not ranks.is_main():
        return
    n_validation = len(read_splits(run)[0]["validation"])
    if n_validation < FEW_DONORS:
        click.echo(
            f"Note: the network learns no motifs from the {n_validation} validation repertoires, which decide when "
            "training stops. In small cohorts, --validation-fold all usually gives a better model: several networks, "
            "which together learn from all repertoires outside the test fold."
        )


def _train_several(
    container: str, output: str, split: dict[str, Any], seed: int, scheduler: str | None, common: dict[str, Any]
) -> None:
    """Train a run for each validation fold, or for each value of a column that is left out, and show their results."""
    from deeprc import ranks
    from deeprc.jobs import Workers
    from deeprc.runs.several_runs import RunOptions, plan_left_out, plan_validations, train_runs

    if ranks.count_ranks() > 1:
        raise InputError("--validation-fold all or leave-one-out: train one split at a time under torchrun")
    left_out = split["folds"] if isinstance(split["folds"], str) else None
    with show_how_to_continue("Run the same command again to continue."):
        if left_out is None:
            plans = plan_validations(seed=seed, **split)
        else:
            column = str(parse_left_out_column(left_out))
            plans = plan_left_out(
                container, column, seed=seed, group_by=split["group_by"], adjust_for=split["adjust_for"]
            )
        options, workers = RunOptions(**common), Workers(scheduler=scheduler)
        progress = _make_printer(options.config)
        runs = train_runs(container, output, plans, options, workers=workers, progress=progress)
    _show_several(runs, left_out=left_out)


def _make_printer(config: Config) -> Callable[[TrainingState, Tensor], None] | None:
    """Return a function that prints each evaluation; None on all ranks but the first, so that one rank prints."""
    from deeprc import ranks

    return make_evaluation_printer(config.training.n_updates) if ranks.is_main() else None


def _show_results(run: Path) -> None:
    """Show the results of a run, and its warnings; of several ranks only the first one shows them."""
    from deeprc import ranks

    if not ranks.is_main():
        return
    from deeprc.evaluation.caution import read_cautions
    from deeprc.runs.learned_tables import describe_learned
    from deeprc.runs.metrics import read_metrics

    for line in describe_learned(run):
        click.echo(line)
    click.echo(format_metrics(read_metrics(run)))
    for line in format_cautions(read_cautions(run)):
        click.echo(line)
    click.echo(f"Wrote {run}")


def _show_several(runs: Sequence[Path], *, left_out: str | None) -> None:
    """Show the metrics of each run on its test repertoires, and the warnings of all runs.

    If values of a column were left out, `left_out` is the text of `--folds`.
    """
    from deeprc.evaluation.caution import read_cautions
    from deeprc.runs.metrics import read_metrics

    click.echo(format_metrics({f"test of {run.name}": read_metrics(run).get("test", {}) for run in runs}))
    warned: dict[str, list[str]] = {}
    for run in runs:
        for line in format_cautions(read_cautions(run)):
            warned.setdefault(line, []).append(run.name)
    for line, names in warned.items():
        click.echo(line if len(names) == len(runs) else f"{', '.join(names)}: {line}")
    advice = f"give {runs[0].parent} to `deeprc evaluate` or `deeprc predict`, and they predict together"
    if left_out is not None:
        advice = f"each has different test repertoires; `deeprc cv --folds {left_out}` measures them together"
    click.echo(f"Wrote {', '.join(map(str, runs))}; {advice}")
