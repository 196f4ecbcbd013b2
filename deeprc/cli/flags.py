"""Replacement of parameters by options in messages of the library.

A message of the library names a parameter in backticks: `locus`, or with a value `locus=TRB`. The command line shows
the option instead: --locus, --locus TRB. So the library need not know the options, and a message needs no second text.
Some functions of the library are replaced by the command that calls them.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import re
from collections.abc import Iterator

import click

from deeprc.errors import PARAMETER, suggest_nearest

__all__ = [
    "COMMANDS",
    "MessageFormatter",
    "expand_subcommands",
    "explain_unknown_option",
    "load_command",
    "make_printable",
    "name_flags",
]

COMMANDS = {
    "quickstart": "Run the whole workflow once on a small simulated cohort.",
    "simulate": "Simulate a cohort with an implanted signal.",
    "check": "Find errors and confounders in a cohort, before training.",
    "preprocess": "Turn repertoire files and a metadata sheet into a container.",
    "join": "Combine several containers into one.",
    "relabel": "Replace the columns of a container with those of another metadata sheet.",
    "info": "Describe a container.",
    "clones": "List the clones that donors of one class carry more often than other donors.",
    "annotate": "Find the sequences whose antigen is known.",
    "cv": "Measure by cross-validation how well a target can be predicted.",
    "train": "Train a classifier.",
    "config": "List the settings of network and training.",
    "pack": "Write a trained classifier to one file, to share it.",
    "predict": "Predict with a trained classifier.",
    "evaluate": "Compute the metrics of a trained classifier.",
    "benchmark": "Compare DeepRC with other methods on the same folds.",
    "power": "Estimate how many repertoires a study needs.",
    "stack": "Combine several methods into one prediction.",
    "attention": "Write how much each sequence contributes to a prediction.",
    "airr-ml": "Train and predict with the folder layout of the AIRR-ML-25 challenge.",
    "plot": "Draw one figure.",
    "report": "Write an HTML report of a run, a cross-validation or a benchmark.",
}
"""Names of the commands, and the text for each in `deeprc --help`."""

_PROGRESS = "deeprc.progress"
"""The logger of the lines that say how far a step is."""

_FUNCTIONS = {"resume_run": "deeprc train --resume RUN"}
"""Functions that messages of the library name, and the command that replaces each."""


_LEVELS = {"INFO": "Note", "WARNING": "Warning", "ERROR": "Error", "CRITICAL": "Error"}
"""The word before the message of a log record, by its level; other messages of commands begin with the same words."""


class MessageFormatter(logging.Formatter):
    """A formatter of log records that replaces parameters by options; lines about progress have no word before them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a line of text."""
        return name_flags(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is that of `logging`
        """Return the message of a log record after a word for its level."""
        message = make_printable(record.message)
        if record.name == _PROGRESS:
            return message
        return f"{_LEVELS.get(record.levelname, record.levelname)}: {message}"


def make_printable(text: str) -> str:
    """Return a text in one line, with control characters, such as those of a file's name, as escape sequences."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split()))


def load_command(name: str) -> click.Command:
    """Import the module of a command and return the command."""
    identifier = name.replace("-", "_")
    command: click.Command = getattr(importlib.import_module(f"deeprc.cli.{identifier}"), identifier)
    return command


def name_flags(text: str) -> str:
    """Return a message of the library in which each parameter is replaced by its option."""
    if "`" not in text:
        return text

    def as_option(match: re.Match[str]) -> str:
        if match[1] in _FUNCTIONS:
            return _FUNCTIONS[match[1]]
        option = _find_option(match[1])
        if option is None:
            return match[0]
        flag = next(name for name in option.opts if name.startswith("--"))
        return flag if match[2] is None or option.is_flag else f"{flag} {match[2] or repr('')}"

    return PARAMETER.sub(as_option, text)


def _find_option(name: str) -> click.Option | None:
    """Return the option of a parameter, of the running command or else of the first other command that has it.

    A parameter such as `n_folds` may have an option called folds.
    """
    names = (name, name.removeprefix("n_"))
    tries = itertools.chain(
        ((command, possible_name) for possible_name in names for command in _iterate_running_commands()),
        ((command, possible_name) for possible_name in names for command in _iterate_commands()),
    )
    return next(
        (option for command, possible_name in tries if (option := _get_option(command, possible_name)) is not None),
        None,
    )


def _get_option(command: click.Command, name: str) -> click.Option | None:
    """Return the option of a command that sets a parameter; None if it has none."""
    options = (parameter for parameter in command.params if isinstance(parameter, click.Option))
    return next((option for option in options if option.name == name and option.expose_value), None)


def _iterate_running_commands() -> Iterator[click.Command]:
    """Yield the running command, and that of `deeprc` which was called, with its subcommands."""
    context = click.get_current_context(silent=True)
    if context is not None:
        yield context.command
        called = context.find_root().invoked_subcommand
        if called in COMMANDS:
            yield from expand_subcommands(load_command(called))


def _iterate_commands() -> Iterator[click.Command]:
    """Yield all commands with their subcommands; each is imported only when it is needed, because this is slow."""
    for name in COMMANDS:
        yield from expand_subcommands(load_command(name))


def expand_subcommands(command: click.Command) -> Iterator[click.Command]:
    """Yield a command and its subcommands."""
    yield command
    if isinstance(command, click.Group):
        yield from command.commands.values()


def explain_unknown_option(error: click.NoSuchOption) -> str:
    """Return a message for an option that a command lacks: what may be meant instead."""
    name = error.option_name.lstrip("-")
    spellings = [] if error.ctx is None else [opt for parameter in error.ctx.command.params for opt in parameter.opts]
    known = {opt.lstrip("-"): opt for opt in spellings if opt.startswith("--")}
    message = f"No such option {error.option_name!r}"
    if name.replace("_", "-") in known:
        return message + suggest_nearest(error.option_name, [known[name.replace("_", "-")]])
    begun = [option for known_name, option in known.items() if known_name.startswith(name) or name == f"{known_name}s"]
    if begun:
        return f"{message}; did you mean {' or '.join(map(repr, begun))}?"
    setting = name.rpartition(".")[2].replace("-", "_")
    takes_settings = error.ctx is not None and any(
        parameter.name == "overrides" for parameter in error.ctx.command.params
    )
    if takes_settings and setting in _list_settings():
        return f"{message}. {setting} is a setting: write {setting}=VALUE."
    others = [command for command in COMMANDS if _has_option(command, error.option_name)]
    if error.option_name.startswith("--") and others:  # a single letter means different things in other commands
        return f"{message}. Commands with this option: {', '.join(others)}."
    return message + (suggest_nearest(error.option_name, known.values()) or ".")


def _has_option(name: str, option: str) -> bool:
    """Return whether a command, or one of its subcommands, has an option with this name."""
    return any(
        option in parameter.opts
        for subcommand in expand_subcommands(load_command(name))
        for parameter in subcommand.params
    )


def _list_settings() -> set[str]:
    from deeprc.settings import list_settings

    return {setting.name for setting in list_settings()}
