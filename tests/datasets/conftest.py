"""Small tables in the layouts of the real exports, written by the tests themselves."""

from __future__ import annotations

import gzip
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

Row = Sequence[object]
WriteTable = Callable[..., Path]


def _write_table(path: Path, header: Row, rows: Sequence[Row], delimiter: str = "\t") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(delimiter.join(map(str, row)) + "\n" for row in (header, *rows))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def write_table() -> WriteTable:
    """A function that writes a header and rows, gzip if the name says so."""
    return _write_table


@pytest.fixture
def hangs() -> Iterator[None]:
    """End a test that waits for a pipe or reads a device, instead of waiting with it."""

    def end(*_: object) -> None:
        raise AssertionError("waits for a pipe or a device")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    """Three AIRR files under `files/` and their sheet `metadata.tsv`, in another order than the files."""
    header = ("sequence_id", "junction_aa", "productive", "duplicate_count", "v_call", "j_call")
    tables = {
        "b": [("s1", "CASSF", "T", 3, "TRBV1", "TRBJ1"), ("s2", "CAS*F", "F", 1, "TRBV1", "TRBJ2")],
        "a": [("s1", "CAWWF", "T", 1, "TRBV2", "TRBJ1"), ("s2", "CASSF", "T", 7, "", "TRBJ1")],
        "c": [
            ("s1", "cask", "T", 2, "TRBV1", "TRBJ1"),
            ("s2", "", "T", 2, "", ""),
            ("s3", "CXF", "T", 2, "", ""),
        ],
    }
    for name, rows in tables.items():
        _write_table(tmp_path / "files" / f"{name}.tsv.gz", header, rows)
    _write_table(
        tmp_path / "metadata.tsv",
        ("repertoire_id", "status", "age"),
        [("c", "sick", 41), ("a", "well", "na"), ("b", "sick", 30)],
    )
    return tmp_path
