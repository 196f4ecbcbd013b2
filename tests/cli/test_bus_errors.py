"""A file that is cut while a command reads it ends the command with one line, not with a signal."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deeprc.cli.bus_errors import end_on_bus_error
from deeprc.datasets.dataset import RepertoireDataset

LINE = "Error: a file was cut, or could not be read, while the command read it; repeat the command\n"

CUT = """
import mmap, sys
from deeprc.cli.bus_errors import end_on_bus_error
with open(sys.argv[1], "r+b") as file, end_on_bus_error():
    content = mmap.mmap(file.fileno(), 0)
    file.truncate(0)
    content[0]
"""

# The container is cut when its first dataset has just been mapped.
COMMAND = """
import os, sys
import numpy as np
from deeprc.cli import main
memmap = np.memmap
def cut(path, *arguments, **keywords):
    mapped = memmap(path, *arguments, **keywords)
    os.truncate(path, 0)
    mapped.sum()
np.memmap = cut
main(["info", sys.argv[1]])
"""

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="Windows has no SIGBUS")


def run(program: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)


def test_a_map_of_a_cut_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(100_000))
    ended = run(CUT, path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", LINE)


def test_a_command(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    ended = run(COMMAND, Path(cohort_factory(4, 5, seed=0).container.path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", LINE)


def test_a_program_that_uses_deeprc_keeps_its_own_handler() -> None:
    program = """
import signal
import deeprc.cli
from deeprc.cli.bus_errors import end_on_bus_error
own = lambda number, frame: None
signal.signal(signal.SIGBUS, own)
with end_on_bus_error():
    print(signal.getsignal(signal.SIGBUS) is own)
print(signal.getsignal(signal.SIGBUS) is own)
"""
    assert run(program, Path()).stdout == "True\nTrue\n"


def test_the_former_handling_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faulthandler.is_enabled", lambda: True)  # as in these tests
    with end_on_bus_error():
        assert signal.getsignal(signal.SIGBUS) is signal.SIG_DFL
