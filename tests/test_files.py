"""Places at which files can be written, and tables that are read back."""

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeprc.errors import InputError
from deeprc.files import check_new_folder, check_place, check_table_output, read_table, write_text


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
        check_place,
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
    check_place(tmp_path / "a.tsv")
    check_new_folder(tmp_path / "a" / "b")
    check_new_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=r"the folder .*no does not exist"):
        check_place(tmp_path / "no" / "a.tsv")
    with pytest.raises(InputError, match="is a folder; expected the name of a file to write"):
        check_place(tmp_path)


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("repertoire_id\tx\tname\n007\t1.5\tNA\nnan\t\t\n")
    table = read_table(path, {"repertoire_id": str}, columns=["x"])
    assert table["repertoire_id"].tolist() == ["007", "nan"]
    np.testing.assert_array_equal(table["x"], [1.5, np.nan])
    assert table["name"].isna().tolist() == [False, True]
    with pytest.raises(InputError, match=r"a\.tsv: expected a column 'y', found repertoire_id, x, name"):
        read_table(path, columns=["x", "y"])


def test_a_table_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.tsv: no such file; what should make it has not ended"):
        read_table(tmp_path / "a.tsv")
    for content in (b"", b"\xff\xfe\x00", b"a\tb\n1\t2\t3\t4\n1\n1\t2\t3\t4\t5\t6\n"):
        (tmp_path / "a.tsv").write_bytes(content)
        with pytest.raises(InputError, match=r"a\.tsv: is no table: "):
            read_table(tmp_path / "a.tsv")
    with pytest.raises(InputError, match="is no table: "):
        read_table(tmp_path)
