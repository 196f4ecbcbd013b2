"""Places at which files can be written, and tables that are read back."""

import errno
import gzip
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from deeprc.datasets.cache import load_or_compute
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.drawing import save_figure
from deeprc.errors import InputError, WriteError
from deeprc.files import (
    check_links_stay_inside,
    check_new_folder,
    check_output_path,
    check_table_output,
    name_write_errors,
    write_atomically,
    write_text,
)
from deeprc.training.checkpoint import save_tensors


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which nothing can be made, also for those whom modes do not hinder."""
    make = tempfile.TemporaryFile
    folder = tmp_path / "shut"
    folder.mkdir()

    def refuse(*arguments: Any, **options: Any) -> Any:
        if options.get("dir") == folder:
            raise OSError(errno.EROFS, "Read-only file system")
        return make(*arguments, **options)

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    return folder


@pytest.mark.parametrize(
    "check",
    [
        check_output_path,
        lambda path: check_table_output(path, ["a"]),
        lambda path: write_text(path, "text"),
        check_new_folder,
        lambda path: check_new_folder(path.parent),
    ],
)
def test_a_folder_that_cannot_be_written_to_is_refused(read_only: Path, check: Callable[[Path], None]) -> None:
    with pytest.raises(InputError, match="shut cannot be written to: Read-only file system"):
        check(read_only / "a")
    assert list(read_only.iterdir()) == []


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_output_path(tmp_path / "a.tsv")
    check_new_folder(tmp_path / "a" / "b")
    check_new_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=r"the folder .*no does not exist"):
        check_output_path(tmp_path / "no" / "a.tsv")
    with pytest.raises(InputError, match="is a folder; expected the name of a file to write"):
        check_output_path(tmp_path)


LIMIT = 2000
"""Bytes that a file may have where the disk is full."""


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond some bytes, which meets everything that writes, h5py and safetensors as well."""
    resource = pytest.importorskip("resource")
    limits, no_bytecode = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # the limit would cut off the file of a module
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = no_bytecode


def write_container(path: Path) -> None:
    table = Sequences.counted_once(np.zeros(40, np.uint8), np.array([0, 20, 40]))
    with (
        name_write_errors(path),
        ContainerWriter(path) as writer,
    ):  # its temporary files are small, the container is not
        writer.append("a", table)
        writer.finish(pd.DataFrame({"repertoire_id": ["a"]}), source="x" * LIMIT)


def write_columns(path: Path) -> None:
    with name_write_errors(path), ContainerWriter(path) as writer:
        writer.append("a", Sequences.counted_once(np.zeros(7 * LIMIT, np.uint8), 7 * np.arange(LIMIT + 1)))


def draw(path: Path) -> None:
    figure = Figure()
    figure.subplots().plot([0, 1])
    save_figure(figure, path)


WRITERS: list[tuple[str, Callable[[Path], None]]] = [
    ("a.tsv", lambda path: write_text(path, "text" * LIMIT)),
    ("a.safetensors", lambda path: save_tensors(path, {"a": torch.zeros(LIMIT)}, {})),
    ("a.h5", write_container),
    ("a.h5", write_columns),
    ("a.png", draw),
    ("a.svg", draw),
    ("a.pdf", draw),
]


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_a_full_disk_is_one_line_and_leaves_what_was_there(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    path = tmp_path / name
    begins = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}.get(path.suffix, b"old")
    path.write_bytes(begins)
    with full_disk(), pytest.raises(WriteError) as error:
        write(path)
    assert str(error.value) == f"{path}: cannot be written: File too large"
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == begins


def test_a_full_disk_does_not_stop_what_is_only_cached(
    cohort: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(cohort.container.path, tmp_path / "c.h5")
    dataset = open_dataset(tmp_path / "c.h5")
    with full_disk():
        found = load_or_compute(dataset, "a", {}, lambda _: {"a": np.zeros(LIMIT)})
    np.testing.assert_array_equal(found["a"], np.zeros(LIMIT))
    assert "they will be computed again" in caplog.text
    assert [path.name for path in (tmp_path / "c.h5.cache").iterdir()] == ["content.json"]


def test_errors_name_what_is_written_and_nothing_else(tmp_path: Path) -> None:
    def raised(path: str, error: Exception) -> BaseException:
        with pytest.raises((InputError, OSError)) as found, name_write_errors(tmp_path / path):
            raise error
        return found.value

    assert (
        str(raised("out", OSError(errno.ENOSPC, "any")))
        == f"{tmp_path}/out: cannot be written: No space left on device"
    )
    for part in (tmp_path / "out" / "config.yaml", tmp_path / ".out.abcdefgh.tmp" / "config.yaml", tmp_path):
        for error in (OSError(errno.EDQUOT, "any", str(part)), WriteError(part, "Disk quota exceeded")):
            assert str(raised("out", error)) == f"{tmp_path}/out: cannot be written: Disk quota exceeded"
    for error in (OSError(errno.ENOENT, "any", str(tmp_path / "in")), WriteError(tmp_path / "b", "why")):
        assert raised("out", error) is error
    for nameless in (OSError(errno.EIO, "any"), OSError(errno.ESTALE, "any"), OSError("damaged")):
        said = os.strerror(nameless.errno) if nameless.errno else "damaged"
        found = raised("out", nameless)  # perhaps of a file that is read
        assert (type(found), str(found)) == (InputError, f"while writing {tmp_path}/out: {said}")
    again = pickle.loads(pickle.dumps(WriteError(tmp_path, "why")))
    assert (str(again), again.path, again.reason) == (f"{tmp_path}: cannot be written: why", tmp_path, "why")


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, steps = tmp_path / "a.tsv", []

    def note(file: int) -> None:
        steps.append(("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else os.fstat(file).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", note)
    write_text(path, "text")
    assert steps == [(4, False), ("folder", True)]
    write_text(path, "more text", durable=False)
    assert (path.read_text(), len(steps)) == ("more text", 2)


def test_a_text_is_packed_if_its_name_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    write_text(path, "a\tb\n")
    assert gzip.decompress(path.read_bytes()) == b"a\tb\n"
    check_table_output(path, ["a"])  # so the same command may replace it


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.ENOSPC])
def test_a_file_system_that_does_not_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("old")

    def refuse(file: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    if code == errno.ENOSPC:  # as NFS says it
        with pytest.raises(WriteError, match="No space left on device"):
            write_text(path, "new")
    else:
        write_text(path, "new")
    assert path.read_text() == ("old" if code == errno.ENOSPC else "new")
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from pathlib import Path
from deeprc.files import write_atomically
with write_atomically(Path(sys.argv[1])) as aside:
    aside.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_leftovers_of_killed_processes_are_deleted_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 240 + ".tsv")  # whose hidden folder cannot begin with all of it
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    (left,) = tmp_path.iterdir()
    mine = tmp_path / f".{'a' * 60}.abcdefgh.tmp"
    mine.mkdir()
    (mine / "notes.txt").write_text("not deeprc's")
    with write_atomically(path) as living:
        assert not left.exists()
        write_text(path, "second")
        assert living.parent.exists()
        living.write_text("first")
    assert path.read_text() == "first"
    assert sorted(tmp_path.iterdir()) == [mine, path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "a.tsv", tmp_path / "there" / "b.tsv"
    link.symlink_to(target)
    write_text(link, "text")
    assert link.is_symlink()
    assert target.read_text() == "text"
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["b.tsv"]


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="there are no devices")
def test_links_of_a_folder_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "run" / "sub").mkdir(parents=True)
    (tmp_path / "run" / "sub" / "inside").symlink_to(Path("..", "file"))
    (tmp_path / "link").symlink_to(tmp_path / "run")
    check_links_stay_inside(tmp_path / "run")
    check_links_stay_inside(tmp_path / "link")
    (tmp_path / "run" / "sub" / "outside").symlink_to(Path("..", "..", "mine.txt"))
    for folder in ("run", "link"):
        with pytest.raises(InputError, match=rf"/{folder}/sub/outside: is a link that leads out of .*/{folder};"):
            check_links_stay_inside(tmp_path / folder)


def test_devices_and_pipes_are_no_output(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    standard = [Path("/dev/stdout"), Path("/dev/fd/1")] if Path("/proc/self/fd").exists() else []
    for path in [Path("/dev/null"), tmp_path / "pipe", tmp_path / "link", tmp_path / "loop", *standard]:
        with pytest.raises(InputError, match=f"^{path}: is a device or a pipe; expected the name of a file to write$"):
            check_output_path(path)


READERS = re.compile(
    r"\.read_text\(|\.read_bytes\(|\bopen\(|\bsafe_open\(|\bnp\.load\(|h5py\.File\(|read_csv\(path|ZipFile\("
)
DOORS = {
    "deeprc/available_memory.py": "Linux's own /proc and /sys",
    "deeprc/cli/__init__.py": "/dev/null, if the shell closed a standard stream",
    "deeprc/cli/paths.py": "looks at the first bytes of a regular file",
    "deeprc/compilation.py": "the package's own sources",
    "deeprc/config.py": "the package's own presets",
    "deeprc/documents.py": "after `check_regular_file`",
    "deeprc/drawing.py": "looks at the first bytes of what it would replace, after `check_output_path`",
    "deeprc/checks/folder.py": "files that its own list names",
    "deeprc/runs/bundle.py": "after `check_regular_file`, and writes",
    "deeprc/runs/experiment.py": "a lock",
    "deeprc/benchmarking/jobs.py": "Linux's own /proc",
    "deeprc/benchmarking/methods.py": "the package's own presets",
    "deeprc/files.py": "the doors",
    "deeprc/hidden_folders.py": "a lock",
    "deeprc/interpretation/attention_files.py": "writes",
    "deeprc/nn/transformer.py": "after `check_regular_file`",
    "deeprc/interpretation/report/page.py": "as drawing.py, and the package's own templates",
    "deeprc/training/checkpoint.py": "after `check_regular_file`",
    "datasets/cache.py": "after `check_regular_file`",
    "datasets/column_files.py": "temporary files of a writer",
    "datasets/container_file.py": "writes",
    "datasets/container_writer.py": "writes",
    "datasets/hdf5.py": "the door of containers",
    "datasets/journal.py": "after it is locked",
    "datasets/linked_writer.py": "writes",
    "datasets/legacy_texts.py": "in a process of its own",
    "datasets/readers/original_hdf5.py": "files found by `find_files`, which are regular",
    "datasets/readers/text.py": "the door of tables",
    "datasets/simulation/recipe.py": "the package's own recipes",
    "datasets/workbook.py": "the door of workbooks",
}


def test_files_of_users_are_opened_at_few_doors() -> None:
    """What is read elsewhere goes through `read_limited`, `read_json` and the like, which wait for no pipe."""
    root = Path(__file__).parents[1]
    sources = [path for name in ("deeprc", "datasets", "baselines") for path in (root / name).rglob("*.py")]
    found = {path.relative_to(root).as_posix() for path in sources if READERS.search(path.read_text())}
    assert found == set(DOORS), f"not through a door, or no door any more: {sorted(found ^ set(DOORS))}"


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_a_header_is_read_to_a_limit(tmp_path: Path, name: str) -> None:
    line = b"a" * (1 << 20) + b"\tb\n"
    (tmp_path / name).write_bytes(gzip.compress(line) if name.endswith(".gz") else line)
    with pytest.raises(InputError, match="exists and is not a table of this kind"):
        check_table_output(tmp_path / name, ["b"])
