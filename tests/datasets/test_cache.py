"""What is cached is what was computed, of this content and these settings; and no accident on the disk changes that."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets import cache
from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.cache import Arrays, digest_container, load_or_compute
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container import Container
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import Cohort, IndependentBackground, SimulatedDataset, Sizes

TEXTS = [["CASSF", "CAW"], ["CAF"], []]


def write(
    path: Path,
    texts: list[list[str]] = TEXTS,
    *,
    count: int = 1,
    gene: str = "TRBV1",
    prefix: str = "r",
    y: int = 0,
) -> RepertoireDataset:
    with ContainerWriter(path) as writer:
        for number, of_one in enumerate(texts):
            residues, offsets = encode_many(of_one)
            n = len(of_one)
            genes = Categorical(np.ones(n, np.uint16), ("", gene))
            counts = np.full(n, count, np.uint32)
            writer.append(f"{prefix}{number}", Sequences(residues, offsets, counts, v_call=genes))
        writer.finish(pd.DataFrame({"y": [y] * len(texts)}), source="a test")
    return open_dataset(path)


class Residues:
    """Computes the number of residues of each repertoire and remembers how often it was asked."""

    calls = 0

    def __call__(self, whole: RepertoireDataset) -> Arrays:
        self.calls += 1
        return {"number": np.array([len(r.residues) for r in whole]), "ids": whole.repertoire_ids.astype("S")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "c.h5")
    return tmp_path / "c.h5"


def numbers(path: Path, compute: Callable[[RepertoireDataset], Arrays], **settings: Any) -> list[int]:
    number: list[int] = load_or_compute(open_dataset(path), "residues", settings, compute)["number"].tolist()
    return number


def entry(path: Path) -> Path:
    (place,) = path.with_name("c.h5.cache").glob("residues-*")
    return place


def test_a_cached_result_is_computed_once(path: Path) -> None:
    compute = Residues()
    dataset = open_dataset(path)
    for view in (dataset[[1]], dataset, dataset[:0]):  # of all repertoires, whichever the view shows
        assert load_or_compute(view, "residues", {"a": 1, "b": [2]}, compute)["number"].tolist() == [8, 3, 0]
    again = load_or_compute(open_dataset(path), "residues", {"b": [2], "a": 1}, compute)
    assert compute.calls == 1
    assert again["number"].tolist() == [8, 3, 0]
    assert again["ids"].tolist() == [b"r0", b"r1", b"r2"]
    assert isinstance(again["number"], np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        again["number"][0] = 1


def test_other_settings_and_names_are_others(path: Path) -> None:
    compute = Residues()
    for settings in ({}, {"a": 1}, {"a": 2}, {"a": "1"}):
        numbers(path, compute, **settings)
    load_or_compute(open_dataset(path), "other", {}, compute)
    assert compute.calls == 5
    contents = [json.loads(file.read_text()) for file in path.with_name("c.h5.cache").glob("*/settings.json")]
    assert sorted(each["what"] for each in contents if each["what"][0] == "other") == [["other", {}]]


def test_a_container_made_anew_is_not_taken_for_the_old_one(path: Path) -> None:
    compute = Residues()
    assert numbers(path, compute) == [8, 3, 0]
    write(path, [["CAS"], ["SFCAW"], ["CAF"]])  # of as many bytes
    assert numbers(path, compute) == [3, 5, 3]
    write(path)
    assert numbers(path, compute) == [8, 3, 0]
    assert compute.calls == 2  # the old content's is still there


@pytest.mark.parametrize(
    "changed",
    [
        {"texts": [["CASSF", "CAY"], ["CAF"], []]},
        {"texts": [["CASSFCAW"], ["CAF"], []]},
        {"count": 2},
        {"gene": "TRBV2"},
    ],
)
def test_the_digest_is_of_the_content(tmp_path: Path, changed: dict[str, Any]) -> None:
    digests = [
        digest_container(write(tmp_path / f"{i}.h5", **c).container) for i, c in enumerate([{}, changed, {"y": 1}])
    ]
    assert digests[0] == digests[2] != digests[1]  # the metadata may change, and the file's name
    assert digest_container(write(tmp_path / "ids.h5", prefix="s").container) != digests[0]


def test_the_digest_is_remembered_while_the_file_is_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = digest_container(Container(path))
    remembered = path.with_name("c.h5.cache") / "content.json"
    assert json.loads(remembered.read_text())["digest"] == digest
    monkeypatch.setattr(cache, "_hash_container", lambda container: "computed")
    assert digest_container(Container(path)) == digest
    for damaged in ("", "[1]", '{"size": 1}', remembered.read_text().replace('"deeprc": "', '"deeprc": "0.0.')):
        remembered.write_text(damaged)
        assert digest_container(Container(path)) == "computed"
    write(path, [["CAW"]])
    assert digest_container(Container(path)) == "computed"


def test_a_folder_that_cannot_be_written_to(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    compute = Residues()
    dataset = open_dataset(path)
    monkeypatch.setattr(Path, "mkdir", refuse)
    for _ in range(2):
        assert load_or_compute(dataset, "residues", {}, compute)["number"].tolist() == [8, 3, 0]
    assert compute.calls == 1  # kept in memory
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "results cannot be cached there" in caplog.text
    assert numbers(path, compute) == [8, 3, 0]
    assert compute.calls == 2
    assert not path.with_name("c.h5.cache").exists()


def test_a_full_disk_leaves_nothing_half_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, compute = np.save, Residues()

    def fail(file: Path, array: np.ndarray, **options: Any) -> None:
        if file.stem == "number":
            save(file, array, **options)
        else:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(np, "save", fail)
        assert numbers(path, compute) == [8, 3, 0]
    assert [file.name for file in path.with_name("c.h5.cache").iterdir()] == ["content.json"]
    assert numbers(path, compute) == numbers(path, compute) == [8, 3, 0]
    assert compute.calls == 2


def _shorten(place: Path) -> None:
    (place / "number.npy").write_bytes((place / "number.npy").read_bytes()[:-1])


DAMAGES = {
    "cut short": _shorten,
    "empty": lambda place: (place / "ids.npy").write_bytes(b""),
    "no array": lambda place: (place / "ids.npy").write_bytes(b"no array at all"),
    "missing": lambda place: (place / "number.npy").unlink(),
    "nothing": lambda place: [file.unlink() for file in place.iterdir()],
    "no settings": lambda place: (place / "settings.json").write_text("{"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_entry_is_computed_anew_and_mended(path: Path, damage: Callable[[Path], object]) -> None:
    compute = Residues()
    numbers(path, compute)
    damage(entry(path))
    assert numbers(path, compute) == [8, 3, 0]
    assert compute.calls == 2
    assert numbers(path, compute) == [8, 3, 0]
    assert compute.calls == 2


def test_many_writers_at_once(path: Path) -> None:
    n = 8
    together = threading.Barrier(n)

    def compute(whole: RepertoireDataset) -> Arrays:
        together.wait(60)  # all have found nothing, and now all write
        return Residues()(whole)

    with ThreadPoolExecutor(n) as pool:
        found = list(pool.map(lambda _: numbers(path, compute), range(n)))
    assert found == [[8, 3, 0]] * n
    assert sorted(file.name for file in path.with_name("c.h5.cache").iterdir()) == ["content.json", entry(path).name]
    late = Residues()
    assert numbers(path, late) == [8, 3, 0]
    assert late.calls == 0


def test_the_folder_may_be_deleted(path: Path) -> None:
    compute = Residues()
    dataset = open_dataset(path)
    first = load_or_compute(dataset, "residues", {}, compute)
    shutil.rmtree(path.with_name("c.h5.cache"))
    assert load_or_compute(dataset, "residues", {}, compute)["number"].tolist() == first["number"].tolist() == [8, 3, 0]
    assert numbers(path, compute) == [8, 3, 0]
    assert compute.calls == 2


def test_arrays_without_numbers(path: Path) -> None:
    def compute(whole: RepertoireDataset) -> Arrays:
        return {"none": np.zeros(0), "rows": np.zeros((0, 3), np.int32)}

    assert load_or_compute(open_dataset(path), "nothing", {}, compute)["none"].shape == (0,)
    again = load_or_compute(open_dataset(path), "nothing", {}, lambda whole: pytest.fail("it is in the cache"))
    assert (again["none"].shape, again["rows"].shape, again["rows"].dtype) == ((0,), (0, 3), np.int32)


def test_a_cohort_on_no_disk_is_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset, compute = SimulatedDataset(Cohort(4, Sizes(50), IndependentBackground())), Residues()
    for view in (dataset[2:], dataset):
        found = load_or_compute(view, "residues", {}, compute)["number"]
        assert found.tolist() == [len(repertoire.residues) for repertoire in dataset]
    assert compute.calls == 1
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_was_copied_is_not_read(path: Path, tmp_path: Path) -> None:
    """Whoever sends a container may send a cache along, with arrays that lead compiled code astray."""
    compute = Residues()
    numbers(path, compute)
    there = tmp_path / "there"
    there.mkdir()
    shutil.copy2(path, there / path.name)
    shutil.copytree(entry(path).parent, there / entry(path).parent.name)
    numbers(there / path.name, compute)
    assert compute.calls == 2
    moved, folder = tmp_path / "moved", entry(path).parent
    moved.mkdir()  # what is moved on one file system is still what was written there
    for each in (path, folder):
        each.rename(moved / each.name)
    numbers(moved / path.name, compute)
    assert compute.calls == 2


def _pipe(place: Path) -> None:
    os.mkfifo(place)


def _device(place: Path) -> None:
    place.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [_pipe, _device])
@pytest.mark.parametrize("name", ["checked.json", "content.json", "settings.json"])
def test_pipes_and_devices_beside_a_container_are_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, hangs: None, make: Callable[[Path], None], name: str
) -> None:
    compute = Residues()
    numbers(path, compute)
    place = (entry(path) if name == "settings.json" else entry(path).parent) / name
    place.unlink(missing_ok=True)
    make(place)
    monkeypatch.setattr("deeprc.datasets.container_check._CHECKED", set())
    assert numbers(path, compute) == [8, 3, 0]
    assert compute.calls == 1 + (name == "settings.json")


def test_a_link_in_the_place_of_the_folder_is_not_used(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    path.with_name("c.h5.cache").symlink_to(tmp_path / "elsewhere")
    assert numbers(path, Residues()) == [8, 3, 0]
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert "c.h5.cache: results cannot be cached there" in caplog.text


@pytest.mark.parametrize("name", ["checked.json", "content.json"])
def test_a_link_in_the_place_of_a_note_is_replaced_and_not_the_file_behind_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    note = path.with_name("c.h5.cache") / name
    note.parent.mkdir(exist_ok=True)
    note.unlink(missing_ok=True)
    note.symlink_to(tmp_path / "mine.txt")
    monkeypatch.setattr("deeprc.datasets.container_check._CHECKED", set())
    monkeypatch.setattr("deeprc.datasets.container_check._WORTH_REMEMBERING", 0)
    digest_container(Container(path))
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not note.is_symlink()
    assert json.loads(note.read_text())["size"] == path.stat().st_size
