"""`deeprc train`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from click.core import ParameterSource

from deeprc.cli.progress import evaluation_lines
from deeprc.cli.settings import help_sections
from deeprc.cli.tables import caution_lines, metrics_lines
from deeprc.errors import InputError, WriteError

__all__ = ["train"]


@contextmanager
def _say_how_to_resume(folder: str) -> Iterator[None]:
    """Say how to continue if the user, the system or a full disk ends the training early."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, WriteError):
        if (Path(folder) / "config.yaml").exists():
            click.echo(f"\nInterrupted. Continue with: deeprc train --resume {folder}", err=True)
        raise


class _Command(click.Command):
    """A command whose help also lists the settings of network and training."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in help_sections():
            with formatter.section(title):
                formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write_text("`deeprc config` says which values they take, and shows the other configurations.")


@click.command(cls=_Command)
@click.argument("container", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="What to predict, by a column of the metadata: COLUMN, COLUMN=POSITIVE_CLASS, 'COLUMN=A,B vs C', 'COLUMN>50',"
    " COLUMN:multiclass or COLUMN:regression. @WEIGHT at the end weights its loss. Give the option several times to"
    " train several targets at once.",
)
@click.option("--output", metavar="FOLDER", help="The run directory to write. It must not exist yet.")
@click.option(
    "--config",
    default="deeprc",
    show_default=True,
    help="The name of a configuration, or a YAML file; see `deeprc config`.",
)
@click.option("--folds", default=5, show_default=True, help="Number of folds for splitting the repertoires.")
@click.option("--fold", default=0, show_default=True, help="Index of the fold for testing, from 0.")
@click.option("--validation-fold", type=int, help="Index of the fold for validation.  [default: the fold after --fold]")
@click.option(
    "--test",
    metavar="COLUMN=VALUE",
    help="Test on the repertoires with this value. The folds are then made of the others.",
)
@click.option(
    "--group-by",
    metavar="COLUMN",
    help="Keep repertoires with the same value in this column, such as one subject's, on one side of the split.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of every random choice: the split, the initial weights and the sampling.",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Where to compute: auto (CUDA if there is a GPU), cpu, cuda, cuda:1, ...",
)
@click.option(
    "--logger",
    type=click.Choice(["tensorboard"]),
    help="Write losses, AUC and histograms of the attention to OUTPUT/tensorboard at each evaluation.",
)
@click.option(
    "--resume",
    metavar="RUN",
    help="Continue the interrupted training in this run directory. Give CONTAINER only if it has moved.",
)
@click.pass_context
def train(
    ctx: click.Context,
    container: str | None,
    overrides: tuple[str, ...],
    targets: tuple[str, ...],
    output: str | None,
    config: str,
    folds: int,
    fold: int,
    validation_fold: int | None,
    test: str | None,
    group_by: str | None,
    seed: int,
    device: str,
    logger: str | None,
    resume: str | None,
) -> None:
    """Train a classifier on CONTAINER and write a run directory.

    KEY=VALUE changes a setting of the configuration, as in `n_updates=5000 n_kernels=64`. All settings are listed
    below.

    \b
    Example:
      deeprc train cohort.h5 --target 'CMV=+' --group-by subject_id --output runs/cmv
    """
    from deeprc.config import load_config
    from deeprc.documents import read_json
    from deeprc.evaluation.caution import read_cautions
    from deeprc.evaluation.splits import SplitOptions
    from deeprc.evaluation.stored_tables import read_clones, read_seeds
    from deeprc.runs.experiment import resume_run, train_run
    from deeprc.runs.run import read_settings
    from deeprc.training.enrichment import LEVEL

    if resume is not None:
        given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if set(given) - {"resume", "container", "logger", "debug"} or "=" in (container or ""):
            raise InputError(
                "--resume continues a run as it was started; it takes a CONTAINER that has moved and --logger, no more"
            )
        n_updates = read_settings(Path(resume)).config.training.n_updates
        with _say_how_to_resume(resume):
            run = resume_run(resume, cohort=container, logger=logger, progress=evaluation_lines(n_updates))
    else:
        if container is None or output is None:
            raise InputError("expected a CONTAINER and --output FOLDER (or --resume RUN)")
        if "=" in container:
            raise InputError(f"expected a CONTAINER before the KEY=VALUE settings, found {container!r}")
        settings = load_config(config, overrides)
        split = SplitOptions(folds=folds, fold=fold, validation_fold=validation_fold, group_by=group_by, test=test)
        with _say_how_to_resume(output):
            run = train_run(
                container,
                output,
                targets=targets,
                config=settings,
                split=split,
                seed=seed,
                device=device,
                logger=logger,
                progress=evaluation_lines(settings.training.n_updates),
            )
    seeds = read_seeds(run.path / "seeds.tsv")
    if len(seeds):
        doubtful = " (doubtful, confirmed by the validation fold)"
        names = [name + doubtful * (p > LEVEL) for name, p in zip(seeds["motif"], seeds["p_value"], strict=True)]
        click.echo(f"kernels that started from motifs of the training fold: {', '.join(names)}")
    n_clones = len(read_clones(run.path / "clones.tsv"))
    if n_clones:
        click.echo(f"clones that the network remembers: {n_clones:,}, see {run.path / 'clones.tsv'}")
    click.echo(metrics_lines(read_json(run.path / "metrics.json")))
    for line in caution_lines(read_cautions(run.path)):
        click.echo(line)
    click.echo(f"Wrote {run.path}")
