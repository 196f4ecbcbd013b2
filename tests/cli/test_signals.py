"""Signals end a command for certain, wherever they arrive, and what it began is cleaned up."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deeprc.cli.signals import show_how_to_continue
from deeprc.errors import InputError, LostRank, Terminated, WriteError

# A program that gets a signal where Python throws exceptions away, and would go on for ever.
PROGRAM = """
import ctypes, gc, os, signal, sys, time, weakref
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background job of a shell would ignore
from deeprc.cli.signals import handle_signals

kill = lambda: (os.kill(os.getpid(), int(sys.argv[2])), sum(range(10000)))  # the handler runs in here

class Dying:
    def __del__(self): kill()

class Asked:
    @property
    def it(self): kill()

def in_del(): Dying()

def in_weak_reference():
    class Thing: pass
    thing = Thing()
    reference = weakref.ref(thing, lambda _: kill())
    del thing

def in_garbage_collection():
    gc.callbacks.append(lambda phase, info: kill())
    gc.collect()
    gc.callbacks.clear()

def in_ctypes_callback(): ctypes.CFUNCTYPE(None)(kill)()

def where_c_clears_errors():
    ctypes.pythonapi.PyObject_HasAttrString.argtypes = [ctypes.py_object, ctypes.c_char_p]
    ctypes.pythonapi.PyObject_HasAttrString(Asked(), b"it")

def where_it_is_caught():
    try: kill()
    except BaseException: pass

def go_on_for_ever():
    globals()[sys.argv[1]]()
    print("went on", flush=True)
    while True: time.sleep(0.01)
"""

LIGHT = """
with handle_signals():
    try: go_on_for_ever()
    finally: print("cleaned up")
"""

SIMULATE = """
from deeprc.cli import main
from deeprc.datasets.simulation.cohort import Cohort

draw = Cohort.draw
def draw_and_stay(self, number, rows=None):
    return go_on_for_ever() if number == 2 else draw(self, number, rows)
Cohort.draw = draw_and_stay
main(sys.argv[3:])
"""
SIMPLE = ["simulate", "simulated-0", "-o", "c.h5", "n_repertoires=6", "sizes.mean=30", "sizes.sd=0", "sizes.minimum=1"]
SIMPLE += ["witness_rate=0.05"]

PLACES = ["in_del", "in_weak_reference", "in_garbage_collection", "in_ctypes_callback", "where_it_is_caught"]
if sys.version_info < (3, 13):  # where it tells of such errors, as of those of the others
    PLACES.append("where_c_clears_errors")


def run(folder: Path, program: str, place: str, number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM + program, place, str(int(number)), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_signal_is_not_lost(tmp_path: Path, place: str) -> None:
    done = run(tmp_path, LIGHT, place, signal.SIGTERM)
    assert done.stdout == "went on\ncleaned up\n"  # the exception was thrown away, and came again
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


def test_an_interrupt_is_not_lost(tmp_path: Path) -> None:
    done = run(tmp_path, LIGHT, "in_del", signal.SIGINT)
    assert done.stdout == "went on\ncleaned up\n"
    assert done.returncode == -signal.SIGINT  # as Python ends by default
    assert done.stderr.endswith("KeyboardInterrupt\n")


@pytest.mark.long
@pytest.mark.parametrize(("number", "code", "said"), [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "\nAborted!\n")])
def test_a_command_ends_and_leaves_nothing(tmp_path: Path, number: int, code: int, said: str) -> None:
    done = run(tmp_path, SIMULATE, "in_del", number, *SIMPLE)
    messages = re.sub("^Note: compiling .*\n", "", done.stderr)  # only if nothing is compiled yet
    assert (done.stdout, done.returncode, messages) == ("went on\n", code, said)
    assert list(tmp_path.iterdir()) == []


# A command whose clean-up takes longer than the timer waits, and is asked to end again meanwhile.
CLEAN_UP = """
import os, signal, sys, time

from deeprc.cli.signals import handle_signals

def clean_up():
    try: raise ValueError
    except ValueError: time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.3)
    print("cleaned up")

with handle_signals():
    try: os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)
    finally: clean_up()
"""


@pytest.mark.slow
def test_a_clean_up_is_not_disturbed() -> None:
    done = subprocess.run([sys.executable, "-c", CLEAN_UP], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "cleaned up\n", "")


@pytest.mark.long
def test_the_next_call_deletes_what_a_killed_one_left(tmp_path: Path) -> None:
    """But nothing of one that lives."""
    killed = run(tmp_path, SIMULATE, "in_del", signal.SIGKILL, *SIMPLE)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".c.h5.")
    command = [sys.executable, "-c", PROGRAM + SIMULATE, "in_del", "0", *SIMPLE]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as living:
        assert living.stdout is not None
        assert living.stdout.readline() == b"went on\n"
        (its,) = tmp_path.iterdir()
        assert its != left
        subprocess.run([sys.executable, "-m", "deeprc", *SIMPLE], cwd=tmp_path, check=True, capture_output=True)
        assert sorted(tmp_path.iterdir()) == [its, tmp_path / "c.h5"]
        living.terminate()
    assert living.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == [tmp_path / "c.h5"]


@pytest.mark.parametrize(
    "ending", [KeyboardInterrupt(), Terminated(143), WriteError(Path("x"), "full"), LostRank("gone")]
)
@pytest.mark.parametrize(("rank", "begun", "shown"), [("0", "c", True), ("1", "c", False), ("0", "other", False)])
def test_an_interrupted_command_says_how_to_continue(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ending: BaseException,
    rank: str,
    begun: str,
    shown: bool,
) -> None:
    (tmp_path / "c").touch()
    for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(type(ending)), show_how_to_continue("Run it again.", tmp_path / begun):
        raise ending
    assert capsys.readouterr().err == "\nInterrupted. Run it again.\n" * shown


def test_another_error_says_nothing_of_continuing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError), show_how_to_continue("Run it again."):
        raise InputError("a wrong row")
    assert capsys.readouterr().err == ""


def test_an_interrupted_training_names_its_folder(
    deeprc: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(_: object, output: str, **__: object) -> None:
        Path(output).mkdir()
        (Path(output) / "config.yaml").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("deeprc.runs.experiment.train_run", interrupt)
    output = tmp_path / "my run"
    (tmp_path / "c.h5").touch()
    code, _, err = deeprc("train", tmp_path / "c.h5", "--target", "status", "-o", output)
    assert code == 130
    assert f"Interrupted. Continue with: deeprc train --resume '{output}'" in err
