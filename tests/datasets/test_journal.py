"""A journal keeps what was done, whenever the process ends."""

import json
import shutil
from pathlib import Path

import pytest

from deeprc.datasets.journal import Journal
from deeprc.errors import InputError


def write_steps(folder: Path, *, n: int) -> Journal:
    folder.mkdir(exist_ok=True)
    journal = Journal(folder)
    for index in range(n):
        with (folder / "data.bin").open("ab") as file:
            file.write(b"step")
        journal.add({"note": index})
    return journal


def read_notes(folder: Path) -> list[int]:
    journal = Journal(folder)
    notes = [entry["note"] for entry in journal.entries]
    journal.close()
    return notes


@pytest.mark.parametrize("n", [0, 1, 3])
def test_rewind_keeps_the_first_entries_and_their_data(tmp_path: Path, n: int) -> None:
    write_steps(tmp_path, n=3).close()
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"note": 3, "si')
    again = Journal(tmp_path)
    again.rewind(n)
    assert (tmp_path / "data.bin").stat().st_size == 4 * n if n else not (tmp_path / "data.bin").exists()
    with (tmp_path / "data.bin").open("ab") as file:
        file.write(b"other")
    again.add({"note": 9})
    again.rewind(n + 1)
    again.close()
    assert read_notes(tmp_path) == [*range(n), 9]


def test_files_of_somebody_else_stay(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(
        InputError, match=r"has files but no journal.jsonl, such as 'thesis.txt'; move it away, or delete it"
    ):
        Journal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("line", ["[" * 100_000, "3", '{"sizes": {}}', '{"sizes": {"data.bin": 4}, "note": 0}'])
def test_entries_of_somebody_else_are_not_believed(tmp_path: Path, line: str) -> None:
    write_steps(tmp_path / "mine", n=2).close()
    shutil.copytree(tmp_path / "mine", tmp_path / "copy")
    assert read_notes(tmp_path / "mine") == [0, 1]
    assert read_notes(tmp_path / "copy") == []
    (tmp_path / "copy" / "journal.jsonl").write_text(line + "\n")
    assert read_notes(tmp_path / "copy") == []


@pytest.mark.parametrize("name", ["journal.jsonl", "residues.bin"])
def test_a_link_does_not_choose_where_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    folder = tmp_path / "partial"
    folder.mkdir()
    (folder / "journal.jsonl").write_text('{"sizes": {"residues.bin": 1}}\n')
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "mine.txt")
    with pytest.raises(InputError, match=rf"partial/{name}: is a link that leads out of "):
        Journal(folder)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(InputError, match="link: expected a folder, found a link"):
        Journal(tmp_path / "link")
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_process_that_ends_while_it_rewinds_loses_no_kept_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_steps(tmp_path, n=3).close()
    again = Journal(tmp_path)
    sizes: list[int] = []

    class File:
        """The journal's file, which notes its size after each change: the process may end there."""

        def __getattr__(self, name: str) -> object:
            if name in ("truncate", "write", "flush"):
                return lambda *args: self.change(name, *args)
            return getattr(file, name)

        def change(self, name: str, *args: object) -> None:
            getattr(file, name)(*args)
            file.flush()
            sizes.append((tmp_path / "journal.jsonl").stat().st_size)

    whole, file = (tmp_path / "journal.jsonl").stat().st_size, again._file
    monkeypatch.setattr(again, "_file", File())
    again.rewind(3)
    assert set(sizes) <= {whole}
    again.rewind(2)
    last = {"note": 2, "sizes": {"data.bin": 12}, "inode": (tmp_path / "journal.jsonl").stat().st_ino}
    assert min(sizes) == sizes[-1] == whole - len(json.dumps(last) + "\n")
    again.close()
    assert read_notes(tmp_path) == [0, 1]
