"""The command line, `deeprc`: one thin command per file."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import logging
import os
import sys
from collections.abc import Sequence, Set
from typing import Any

import click

from deeprc.caches import prepare_caches
from deeprc.cli.bus_errors import end_on_bus_error
from deeprc.cli.flags import (
    COMMANDS,
    MessageFormatter,
    expand_subcommands,
    explain_unknown_option,
    load_command,
    make_printable,
    name_flags,
)
from deeprc.cli.progress import Bars, LineHandler
from deeprc.cli.signals import handle_signals
from deeprc.errors import InputError, SeveralErrors, suggest_nearest, use_parameter_renderer
from deeprc.progress import use_reporter
from deeprc.torchrun import read_launch, share_cores

__all__ = ["main", "prepare_process"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # constants in malloc.h of glibc
_INTERRUPTED = 130  # the exit code after Ctrl-C in shells: 128 + SIGINT; click's own code would be 1


class _Group(click.Group):
    """The group of all commands: it imports a command when it is called, and shows an `InputError` as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        launch = read_launch()
        if cmd_name != "train" and launch is not None and launch.size > 1:
            raise click.UsageError(f"torchrun starts `deeprc train` only; start `deeprc {cmd_name}` without it")
        command = load_command(cmd_name)
        for subcommand in expand_subcommands(command):
            if all(parameter.name != "debug" for parameter in subcommand.params):
                subcommand.params.append(_make_debug_option())
                if subcommand.callback is not None:
                    subcommand.callback = end_on_bus_error()(subcommand.callback)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"No such command {args[0]!r}{suggest_nearest(args[0], COMMANDS) or '.'}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        earlier = _list_checked()
        try:
            result = super().invoke(ctx)
            if changed := _find_changed_container(earlier):
                click.echo(f"Warning: {changed}: was changed while it was read; repeat the command", err=True)
            return result
        except click.NoSuchOption as error:
            raise click.UsageError(explain_unknown_option(error), error.ctx) from error
        except BrokenPipeError:
            sys.stderr.close()  # the reader of a pipe has ended; without this, Python shows an error at exit
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("\nAborted!", err=True)
            ctx.exit(_INTERRUPTED)
        except (InputError, OSError, MemoryError) as error:
            if ctx.obj["debug"]:
                raise
            click.echo(f"Error: {name_flags(_format_message(error))}", err=True)
            ctx.exit(2)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception:
            changed = _find_changed_container(earlier)
            if changed is None or ctx.obj["debug"]:
                raise
            click.echo(f"Error: {changed}: was changed while it was read; repeat the command", err=True)
            ctx.exit(2)


def _list_checked() -> Set[Any]:
    """Return the containers that earlier commands of this process have opened; a process has mostly one command."""
    module = sys.modules.get("deeprc.datasets.container_check")  # None: no container was opened
    return frozenset() if module is None else module.list_checked()


def _find_changed_container(earlier: Set[Any]) -> str | None:
    """Return the printable path of a container that was changed in place while the command read it, or None."""
    module = sys.modules.get("deeprc.datasets.container_check")
    changed = None if module is None else module.find_changed_container(earlier)
    return None if changed is None else make_printable(str(changed))


def _format_message(error: Exception) -> str:
    """Return a message in one line, or with a line for each of several faults.

    It has no control characters of names that may come from other people's files.
    """
    text = f"not enough memory: {error}".rstrip(": ") if isinstance(error, MemoryError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    lines = error.lines if isinstance(error, SeveralErrors) else (text,)
    return "\n".join(map(make_printable, lines))


def _make_debug_option() -> click.Option:
    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        settings = ctx.find_root().ensure_object(dict)
        settings["debug"] = settings.get("debug", False) or value

    return click.Option(["--debug"], is_flag=True, expose_value=False, callback=remember, help="Show tracebacks.")


@click.command(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="deeprc")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.pass_context
def _cli(ctx: click.Context, debug: bool) -> None:
    """Predict an immune state from a receptor repertoire, and find the receptor sequences behind the prediction.

    Start with `deeprc quickstart`.
    """
    ctx.obj = {"debug": debug}
    ctx.with_resource(use_parameter_renderer(name_flags))
    launch = read_launch()
    is_main = launch is None or launch.rank == 0  # only rank 0 shows messages
    if is_main and sys.stderr.isatty():
        ctx.with_resource(use_reporter(Bars()))
    handler = LineHandler(sys.stderr)
    handler.setFormatter(MessageFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO if is_main else logging.CRITICAL, force=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; None takes the arguments of the process."""
    prepare_process()
    with handle_signals():
        _cli(args=arguments, prog_name="deeprc")


def prepare_process() -> None:
    """Change settings of the process that make computations faster, which a library must not change.

    Call it before anything is computed.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a redirect on Windows is not UTF-8, but names may be
    prepare_caches()
    share_cores()
    # Python searches for garbage in cycles after every 700 new objects, but imports and compilation make millions of
    # objects that stay.
    gc.set_threshold(20_000, 20, 20)
    # Waiting threads sleep instead of spinning. This is as fast alone, and twice as fast beside another busy process.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # glibc keeps up to 256 MB of freed memory instead of returning it after every update. Otherwise the kernel clears
    # the same pages again, which took a third of the time of an update.
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            set_option = ctypes.CDLL(None).mallopt
            set_option(_MMAP_THRESHOLD, 32 << 20)
            set_option(_TRIM_THRESHOLD, 256 << 20)


def _open_closed_streams() -> None:
    """Open standard streams that the shell has closed (`2>&-`), as /dev/null.

    Python has None in their place. Their numbers would go to the next files that are opened, such as a container, into
    which messages of libraries would then be written.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open until the end)
