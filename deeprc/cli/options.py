"""Options that several commands share."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path

import click

from deeprc.earlier_names import update_name
from deeprc.errors import find_nearest
from deeprc.evaluation.parse_folds import LEAVE_ONE_OUT
from deeprc.threads import count_cores

__all__ = [
    "adjust_option",
    "config_option",
    "device_option",
    "host_option",
    "jobs_option",
    "parse_folds",
    "reading_jobs_option",
    "scheduler_option",
    "seed_option",
    "settings_argument",
    "sketches_option",
    "table_output_option",
    "training_device_option",
]


def parse_folds(_: click.Context, parameter: click.Parameter, text: str) -> int | str:
    """Return the number of folds as an integer, or "leave-one-out:COLUMN" unchanged."""
    if text.startswith(LEAVE_ONE_OUT):
        return text
    try:
        return int(text)
    except ValueError:
        expected = f"expected a number or {LEAVE_ONE_OUT}COLUMN"
        raise click.BadParameter(f"{expected}, found {text!r}", param=parameter) from None


def _split_names(_: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the different names in texts, which may be lists with commas; names in double quotes may have commas.

    A text without any name is an error: if a shell variable is empty, nobody wants to go on without the option.
    """
    names = list[str]()
    for text in texts:
        try:
            listed = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
        except csv.Error:  # a line break
            listed = []
        if not any(listed):
            raise click.BadParameter(f"expected names of columns, found {text!r}", param=parameter)
        names += filter(None, listed)
    return tuple(dict.fromkeys(names))


def _check_settings(ctx: click.Context, _: click.Parameter, settings: tuple[str, ...]) -> tuple[str, ...]:
    """Return settings unchanged, after a check that each is KEY=VALUE, and none an option, such as `seed=3`."""
    from deeprc.settings import list_settings

    quotes = "; if it belongs to a name with a blank, put the whole name in quotes, as in --group-by 'Donor ID'"
    known = [setting.name for setting in list_settings()] if settings else []
    options = {name for parameter in ctx.command.params for name in parameter.opts if name.startswith("--")}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{text!r}: expected KEY=VALUE, without blanks, as in n_updates=5000{quotes}")
        option = "--" + key.replace("_", "-")
        if option in options:
            shown = f"{option} {shlex.quote(value)}"
            raise click.UsageError(f"{text}: {key} is not a setting of the configuration, but an option: {shown}")
        name = update_name(key).rpartition(".")[2]
        if not find_nearest(name, known):
            raise click.UsageError(f"{text!r}: no setting has the name {key!r}{quotes}")
    return settings


adjust_option = click.option(
    "--adjust-for",
    multiple=True,
    metavar="COLUMN,...",
    callback=_split_names,
    help="Adjust the training for columns, such as a batch: random training and validation repertoires are left out"
    " until these columns are not associated with the label. The option may be given several times. Put a name with a"
    " comma in double quotes.",
)
config_option = click.option(
    "--config",
    default="deeprc",
    show_default=True,
    help="The name of a configuration, or a YAML file; see `deeprc config`.",
)
device_option = click.option(
    "--device", default="auto", show_default=True, help="Where to compute: auto, cpu, cuda, cuda:1, ..."
)
host_option = click.option(
    "--host",
    type=click.Choice(["human", "mouse", "any"]),
    default="human",
    show_default=True,
    callback=lambda _, __, host: None if host == "any" else host,
    help="The species whose receptors in the databases are used.",
)
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    callback=lambda _, __, n: n or count_cores(),
    help="Number of processes, each of which trains one network or other method at a time; 0: one per core.",
)
reading_jobs_option = click.option(
    "--jobs",
    type=click.IntRange(0),
    callback=lambda _, __, n: count_cores() if n == 0 else n,
    help="Number of processes, each of which reads one file at a time; 0: one per core.  [default: one per core, fewer"
    " for few files]",
)
scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Run the jobs on the Dask cluster whose scheduler has this address, such as tcp://host:8786. Its workers must"
    " find all files at the same paths.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Seed of every random choice."
)
settings_argument = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", callback=_check_settings)
training_device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Where to compute: auto (CUDA if there is a GPU), cpu, cuda, cuda:1, ...",
)
table_output_option = click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The table to write (TSV; gzip if it ends in .gz).",
)
sketches_option = click.option(
    "--no-sketches",
    is_flag=True,
    help="Do not store hashes of junctions in the run. Without them, later commands recognise only exact copies of"
    " training repertoires in other cohorts. With them, anyone who has the run and a donor's repertoire can find out"
    " whether this donor took part.",
)
