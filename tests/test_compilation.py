"""Compiled code has a place where neither the package's folder nor the home can be written to."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numba
import pytest

from deeprc import compilation
from deeprc.caches import make_private_folder, prepare_caches
from deeprc.compilation import njit, open_threads, run_in_blocks
from deeprc.locks import take_lock

ROOT = Path(__file__).parent.parent
NO_MODES = pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owners")

PROGRAM = """
import os
from deeprc.datasets.random_numbers import draw_word
from numba import uint64
draw_word(uint64(1), uint64(2))
print(draw_word._cache.cache_path and os.path.dirname(draw_word._cache.cache_path))
print(sum(draw_word.stats.cache_hits.values()))
"""

COMPILED_BY_TWO = """
import os, time
from deeprc.compilation import njit

@njit()
def sum_squares(n: int) -> int:
    total = 0
    for number in range(n):
        total += number * number
    return total

@njit()
def sum_all(n: int) -> int:
    total = 0
    for number in range(n):
        total += sum_squares(number)
    return total

def call_together() -> None:
    open(f"ready-{os.getpid()}", "w").close()
    while sum(name.startswith("ready-") for name in os.listdir()) < 2:
        time.sleep(0.001)
    assert sum_all(4) == 6
    print(f"{sum(sum_all.stats.cache_hits.values())} hits, {sum(sum_all.stats.cache_misses.values())} misses")
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of the package in whose folders nothing can be made, not even by those whom modes do not hinder."""
    site = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "deeprc", site / "deeprc", ignore=ignored)
    for name in ("datasets", "baselines", "configs"):
        shutil.copytree(ROOT / name, site / "deeprc" / name, ignore=ignored)
    for folder in [path for path in site.rglob("*") if path.is_dir()]:
        (folder / "__pycache__").write_text("a file where a folder should be")
    (tmp_path / "temporary").mkdir()
    (tmp_path / "home").write_text("no folder")
    return site


def call(site: Path, program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    names = ("NUMBA_CACHE_DIR", "MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    rest = {name: value for name, value in os.environ.items() if name not in names}
    own = {"HOME": str(site.parent / "home"), "TMPDIR": str(site.parent / "temporary"), "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", program, *arguments]
    environment = {**rest, **own, **variables}
    return subprocess.run(command, cwd=site.parent, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@NO_MODES
def test_compiled_code_is_kept_in_a_private_folder(installed: Path) -> None:
    private = installed.parent / "temporary" / f"deeprc-{os.getuid()}"
    for hits in (0, 1):
        done = call(installed, PROGRAM)
        assert (done.stdout, done.stderr) == (f"{private}/numba\n{hits}\n", "")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@pytest.mark.long
@NO_MODES
def test_without_any_place_everything_works_and_nothing_is_kept(installed: Path) -> None:
    private = installed.parent / "temporary" / f"deeprc-{os.getuid()}"
    private.mkdir(mode=0o755)  # others may look into it, so it is not ours
    done = call(installed, PROGRAM)
    assert (done.stdout, done.stderr) == ("None\n0\n", "")
    assert list(private.iterdir()) == []


@pytest.mark.slow
def test_compilation_is_announced_once(installed: Path) -> None:
    logging = "import logging; logging.basicConfig(level=logging.INFO, format='%(message)s')\n"
    program = (
        f"{logging}{PROGRAM}from deeprc.datasets.random_numbers import draw_uniform; draw_uniform(uint64(1), uint64(2))"
    )
    said = "compiling functions for this processor, up to a minute in total; later runs find them compiled\n"
    assert [call(installed, program, NUMBA_CACHE_DIR="cache").stderr for _ in range(2)] == [said, ""]


@pytest.mark.slow
def test_two_processes_compile_a_function_once(tmp_path: Path) -> None:
    """Both call the function at the same time; one compiles it, the other waits and takes the code."""
    (tmp_path / "own.py").write_text(COMPILED_BY_TWO)
    command = [sys.executable, "-c", "import own; own.call_together()"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    pair = [subprocess.Popen([*command], cwd=tmp_path, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    said = sorted(process.communicate()[0] for process in pair)
    assert said == [b"0 hits, 1 misses\n", b"1 hits, 0 misses\n"]  # taken, a function has the code of those it calls
    assert len(list((tmp_path / "cache").rglob("*.nbc"))) == 2
    assert not list((tmp_path / "cache").rglob("*.lock"))


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no locks")
def test_a_process_that_waits_too_long_for_a_lock_compiles_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compilation, "_MAX_WAIT", 0.0)

    @njit()
    def add_one(number: int) -> int:
        return number + 1

    path = Path(f"{add_one._cache._cache_file._index_path}.lock")
    with path.open("wb") as lock:
        assert take_lock(lock, path)
        assert add_one(1) == 2
        assert path.exists()  # who could not take the lock does not delete it
    assert sum(add_one.stats.cache_misses.values()) == 1
    assert add_one(1.0) == 2.0  # the lock of a process that has ended is taken, and deleted
    assert not path.exists()


@pytest.mark.slow
def test_a_change_of_another_compiled_file_is_noticed(installed: Path) -> None:
    """A function may call others, in other files, at which numba itself does not look."""
    hits = []
    for change in ("", "", "# a change\n"):
        with (installed / "deeprc" / "vectors.py").open("a") as file:
            file.write(change)
        hits.append(call(installed, PROGRAM, NUMBA_CACHE_DIR="cache").stdout.split()[-1])
    assert hits == ["0", "1", "0"]


@pytest.mark.long
def test_a_change_of_a_file_outside_deeprc_is_noticed(installed: Path) -> None:
    answers = []
    for number in (1, 2):
        own = f"from deeprc.compilation import njit\n@njit()\ndef answer() -> int:\n    return {number}\n"
        (installed.parent / "own.py").write_text(own)
        answers.append(call(installed, "from own import answer; print(answer())", NUMBA_CACHE_DIR="cache").stdout)
    assert answers == ["1\n", "2\n"]


@pytest.mark.long
@NO_MODES
def test_a_damaged_or_full_cache_is_none(installed: Path) -> None:
    place = installed.parent / "cache"
    call(installed, PROGRAM, NUMBA_CACHE_DIR=str(place))
    indices = list(place.rglob("*.nbi"))
    assert indices
    for index in indices:
        index.write_bytes(b"")
    done = call(installed, PROGRAM, NUMBA_CACHE_DIR=str(place))
    assert (done.stdout, done.stderr) == (f"{place}\n0\n", "")
    for path in place.rglob("*.nb?"):
        path.unlink()
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    done = call(installed, limited + PROGRAM, NUMBA_CACHE_DIR=str(place))
    assert (done.stdout, done.stderr) == (f"{place}\n0\n", "")
    assert [path for path in place.rglob("*") if path.is_file()] == []


@NO_MODES
def test_a_private_folder_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = make_private_folder()
    assert folder == tmp_path / f"deeprc-{os.getuid()}"
    assert make_private_folder() == folder
    folder.chmod(0o770)
    assert make_private_folder() is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert make_private_folder() is None
    folder.unlink()
    tmp_path.chmod(0o777)  # others could rename what is there
    assert make_private_folder() is None
    (tmp_path / f"deeprc-{os.getuid()}").rmdir()
    tmp_path.chmod(0o1777)
    assert make_private_folder() == folder
    if os.getuid() == 0:  # who alone can give a folder away
        tmp_path.chmod(0o755)
        os.chown(tmp_path, 65534, -1)
        assert make_private_folder() is None
        os.chown(tmp_path, 0, -1)
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    (tmp_path / "deeprc-4321").mkdir(mode=0o700)  # of another user than 4321
    assert make_private_folder() is None


@NO_MODES
def test_matplotlib_gets_a_place_where_the_home_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TRITON_CACHE_DIR", "TRITON_HOME"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    prepare_caches()
    assert os.environ["MPLCONFIGDIR"] == ""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    prepare_caches()
    assert os.environ["MPLCONFIGDIR"] == str(tmp_path / f"deeprc-{os.getuid()}" / "mplconfigdir")
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / f"deeprc-{os.getuid()}" / "triton_cache_dir")
    monkeypatch.setenv("MPLCONFIGDIR", "mine")
    prepare_caches()
    assert os.environ["MPLCONFIGDIR"] == "mine"


@pytest.mark.parametrize(
    ("n", "threads", "blocks"),
    [
        (0, 1, []),
        (0, 2, []),
        (3, 2, [(0, 3)]),
        (4, 2, [(0, 4)]),
        (9, 1, [(0, 3), (3, 6), (6, 9)]),
        (9, 2, [(0, 2), (2, 4), (4, 6), (6, 9)]),
        (5, 2, [(0, 2), (2, 5)]),
    ],
)
def test_work_is_shared_in_even_blocks(
    n: int, threads: int, blocks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba, "get_num_threads", lambda: threads)  # numba sets no more threads than there are cores
    found = []
    run_in_blocks(lambda start, stop, what: found.append((start, stop, what)), n, 4, "x")
    assert sorted(found) == [(start, stop, "x") for start, stop in blocks]


def test_blocks_within_threads_are_computed_one_after_the_other() -> None:
    def list_blocks(_: int) -> list[tuple[int, int, int]]:
        return run_in_blocks(lambda start, stop: (start, stop, threading.get_ident()), 10, 4)

    with open_threads() as threads:
        found = list(threads.map(list_blocks, range(3)))
    for blocks in found:
        assert [block[:2] for block in blocks] == [(0, 3), (3, 6), (6, 10)]
        assert len({thread for *_, thread in blocks}) == 1


def test_an_error_in_a_block_is_raised() -> None:
    def work(start: int, _: int) -> None:
        if start > 0:
            raise ValueError("a later block")

    with pytest.raises(ValueError, match="a later block"):
        run_in_blocks(work, 9, 4)


def test_no_block_runs_on_after_an_error() -> None:
    """The last block waits until the error of the first one has been raised, or for half a second."""
    failed, ends = threading.Event(), []

    def work(start: int, _: int) -> None:
        if start == 0:
            failed.set()
            raise ValueError("the first block")
        failed.wait(10)
        time.sleep(0.2)
        ends.append(start)

    with pytest.raises(ValueError, match="the first block"):
        run_in_blocks(work, 8, 4)
    n_ends = len(ends)
    time.sleep(0.4)
    assert len(ends) == n_ends


def test_a_function_has_a_form_for_python_and_one_for_compiled_code() -> None:
    @njit()
    def add(a: int, b: int) -> int:
        return a + b

    @njit()
    def add_three(a: int) -> int:
        return add(add(a, 1), b=2)

    assert add_three(1) == 4
    assert not add.overloads  # without the wrapper for Python, which would take as long to compile
    assert add(1, b=1) == 2
    assert add_three(1.5) == 4.5


def test_all_functions_are_compiled_in_one_way() -> None:
    sources = [path for name in ("deeprc", "datasets", "baselines") for path in (ROOT / name).rglob("*.py")]
    direct = [path.name for path in sources if "numba.njit" in path.read_text() or "numba.jit" in path.read_text()]
    assert direct == ["compilation.py"]


def test_a_function_does_not_take_the_rounding_of_its_first_caller() -> None:
    @njit(nogil=True)
    def multiply_and_add(a: float, b: float, c: float) -> float:
        return a * b + c

    @njit(nogil=True, fastmath={"contract"})
    def call_inexactly(a: float, b: float, c: float) -> float:
        return multiply_and_add(a, b, c) * 2.0

    a = 1 + 2.0**-30  # its square has a last part of 2^-60, which is lost if the product is rounded
    assert call_inexactly(a, a, -(1 + 2.0**-29)) == 0.0
    assert multiply_and_add(a, a, -(1 + 2.0**-29)) == 0.0
