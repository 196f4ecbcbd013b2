"""Help is quick: it imports no package that takes long to import."""

import json
import subprocess
import sys

from deeprc.airr_ml.predictor import METHODS
from deeprc.cli.flags import COMMANDS, load_command
from deeprc.stacking.stack import MEMBERS

SLOW = ("torch", "numba", "pandas", "sklearn", "h5py", "scipy", "matplotlib", "pyarrow")
PROGRAM = """
import contextlib, io, json, sys

from deeprc.cli import main
from deeprc.cli.flags import COMMANDS, load_command

imported = {}


def show_help(*words):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        main([*words, "--help"])
    assert "Usage: deeprc" in shown.getvalue(), words
    imported[" ".join(words)] = [name for name in sys.argv[1:] if name in sys.modules]


show_help()
for name in COMMANDS:
    show_help(name)
    for subcommand in getattr(load_command(name), "commands", ()):
        show_help(name, subcommand)
json.dump(imported, sys.stdout)
"""


def test_help_imports_no_slow_package() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *SLOW], capture_output=True, text=True, check=True)
    imported = json.loads(done.stdout)
    assert {"", "train", "plot", "simulate train-lstm", *COMMANDS} <= set(imported)
    assert [words for words, packages in imported.items() if packages] == []


def test_names_that_the_command_line_writes_again_are_those_of_the_library() -> None:
    """The command line may not import the modules that define them, because they import slow packages."""
    (method,) = [each for each in load_command("airr-ml").params if each.name == "method"]
    assert tuple(method.type.choices) == ("auto", *METHODS)  # type: ignore[attr-defined]
    fit = load_command("stack").commands["fit"]  # type: ignore[attr-defined]
    assert " ".join(fit.help.split()).count(f"members are {', '.join(MEMBERS[:-1])} and {MEMBERS[-1]}.") == 1
