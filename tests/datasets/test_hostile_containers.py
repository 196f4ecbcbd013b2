"""Whatever a container holds, every command gives the same result as for the whole one, or one line."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest

from deeprc.config import load_config
from deeprc.datasets.container import Container, is_container
from deeprc.datasets.container_file import update_checksum, write_metadata
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.provenance import read_preprocessing, read_simulation
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.experiment import train_run

PROGRAM = Path(__file__).with_name("hostile_containers.py")
TINY = load_config(overrides=["n_updates=2", "evaluate_every=1", "n_kernels=4", "n_sequences=40", "seeded_start=0"])
VARIABLE = h5py.string_dtype("utf-8")


@pytest.fixture(scope="module")
def victim(cohort_factory, tmp_path_factory):
    """A container and a run that was trained on it."""
    cohort = cohort_factory(12, 30)
    folder = tmp_path_factory.mktemp("victim")
    train_run(
        cohort.container.path,
        folder / "run",
        targets=["status"],
        config=TINY,
        split=SplitOptions(folds=3),
        device="cpu",
    )
    return cohort.container.path, folder / "run"


def number_of_settings():
    specification = importlib.util.spec_from_file_location("hostile_containers", PROGRAM)
    program = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(program)
    return 2 * len(list(program.hostile_changes()))


def open_cases(cohort, run, folder, **work):
    """Open hostile containers in a process of their own; return what was said, first of the whole one."""
    program = [sys.executable, PROGRAM, cohort, run, folder]
    for kind, numbers in work.items():
        program += [kind, numbers.start, numbers.stop, numbers.step]
    ended = subprocess.run([str(word) for word in program], capture_output=True, text=True, timeout=900, check=False)
    cases = [json.loads(line) for line in (folder / "results").read_text().splitlines()]
    last = cases[-1]["what"]
    assert ended.returncode == 0, (
        f"signal or error {ended.returncode} in the case after {last!r}: {ended.stderr[-3000:]}"
    )
    assert len(cases) == 1 + sum(map(len, work.values()))
    return cases


def check_cases(cases):
    """Return how many containers were refused, and how many opened."""
    expected = {name: digest for name, code, digest, _ in cases[0]["results"] if code == 0}
    assert set(expected) == {"info", "predict", "attention"}
    refused = opened = 0
    for case in cases[1:]:
        for name, code, digest, said in case["results"]:
            where = f"{name} of {case['what']}"
            if code == 0:
                # A container that was sealed again is another one, and good.
                assert digest == expected[name] or case["what"].endswith("sealed"), f"{where}: another result"
                opened += 1
            else:
                assert code == 2, f"{where}: {code}, {said}"
                assert said.startswith("Error: "), f"{where}: {said}"
                assert said.count("\n") == 1, f"{where}: {said}"
                assert "c.h5" in said, f"{where}: {said}"
                refused += 1
    return refused, opened


@pytest.fixture(scope="module")
def some_cases(victim, tmp_path_factory):
    """Ten altered containers and some fifteen hostile ones, in one process: its start takes most of the time."""
    total = number_of_settings()
    return open_cases(*victim, tmp_path_factory.mktemp("cases"), flip=range(10), set=range(3, total, total // 15 | 1))


def test_some_altered_containers(some_cases):
    refused, _ = check_cases(some_cases[:11])
    assert refused >= 7


def test_some_hostile_containers(some_cases):
    refused, _ = check_cases([some_cases[0], *some_cases[11:]])
    assert refused >= 10


@pytest.mark.long
def test_many_altered_containers(victim, tmp_path):
    refused, _ = check_cases(open_cases(*victim, tmp_path, flip=range(1_000, 1_500)))
    assert refused >= 400


@pytest.mark.long
def test_all_hostile_containers(victim, tmp_path):
    total = number_of_settings()
    assert total >= 500
    refused, opened = check_cases(open_cases(*victim, tmp_path, set=range(total)))
    assert refused >= 450
    assert opened >= 20


def as_version_1(path, target):
    """Write a container as earlier versions did: with text of variable length and without a checksum."""
    with h5py.File(path) as old, h5py.File(target, "w", libver=("v108", "v108")) as new:
        for name in ("format", "alphabet", "created_by", "source", "preprocessing"):
            new.attrs[name] = old.attrs[name].decode()
        new.attrs["version"] = 1
        new.create_dataset("repertoire_ids", data=[each.decode() for each in old["repertoire_ids"]], dtype=VARIABLE)
        for name in ("repertoire_offsets", "sequence_offsets", "residues", "counts", "v_call"):
            new.create_dataset(name, data=old[name][:])
        vocabulary = [each.decode() for each in old["v_call"].attrs["vocabulary"]]
        new["v_call"].attrs.create("vocabulary", vocabulary, dtype=VARIABLE)
        group = new.create_group("metadata")
        columns = [each.decode() for each in old["metadata"].attrs["columns"]]
        group.attrs.create("columns", columns, dtype=VARIABLE)
        for name, column in old["metadata"].items():
            text = column.dtype.kind == "S"
            values = [each.decode() for each in column] if text else column[:]
            group.create_dataset(name, data=values, dtype=VARIABLE if text else None)
            group[name].attrs["name"] = column.attrs["name"].decode()
    return target


def test_a_container_of_version_1_is_read(victim, tmp_path):
    old, new = Container(as_version_1(victim[0], tmp_path / "old.h5")), Container(victim[0])
    assert is_container(tmp_path / "old.h5")
    assert old.version == 1
    assert old.repertoire_ids.tolist() == new.repertoire_ids.tolist()
    assert old.metadata.equals(new.metadata)
    assert old.sequences.v_call.vocabulary == new.sequences.v_call.vocabulary
    assert (old.source, old.preprocessing, old.simulation) == (new.source, new.preprocessing, new.simulation)
    pairs = zip(RepertoireDataset(old.path), RepertoireDataset(new.path), strict=True)
    assert all(a.digest() == b.digest() for a, b in pairs)


def test_no_module_beside_a_container_is_imported(victim, tmp_path, monkeypatch):
    path = as_version_1(victim[0], tmp_path / "old.h5")
    for name in ("json", "h5py", "numpy", "deeprc"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    assert Container(path).version == 1
    assert not (tmp_path / "imported").exists()


def test_a_heap_that_never_ends_is_refused(victim, tmp_path, monkeypatch):
    """An object of a heap whose size is 0: the HDF5 library would look for the next one for ever."""
    monkeypatch.setattr("deeprc.datasets.legacy_texts._MAX_SECONDS", 1)
    path = as_version_1(victim[0], tmp_path / "old.h5")
    data = bytearray(path.read_bytes())
    start = data.index(b"GCOL")
    data[start + 16 + 8 : start + 16 + 16] = (2**64 - 16).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"old\.h5: reading the texts of its version 1 took more than 1 s"):
        Container(path)


def test_a_text_that_is_told_many_times_is_refused(victim, tmp_path, monkeypatch):
    """Many ids that refer to one object of a heap: a small file would become gigabytes of text."""
    monkeypatch.setattr("deeprc.datasets.legacy_texts._MAX_TEXT_BYTES", 1 << 20)
    path = as_version_1(victim[0], tmp_path / "old.h5")
    with h5py.File(path, "r+") as file:
        del file["repertoire_ids"]
        ids = file.create_dataset("repertoire_ids", data=["x" * 100_000] + ["y"] * 99, dtype=VARIABLE)
        start = ids.id.get_offset()
    data = bytearray(path.read_bytes())
    data[start : start + 1600] = data[start : start + 16] * 100
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"old\.h5: the texts of its version 1 have more than 1 MB"):
        Container(path)


def test_a_container_of_version_2_that_calls_itself_version_1(victim, tmp_path):
    path = change(victim, tmp_path / "c.h5", lambda file: file.attrs.__setitem__("version", 1))
    with pytest.raises(
        InputError, match=r"c\.h5: the container is damaged: /@format: expected one text of variable le"
    ):
        Container(path)


def test_names_of_version_1_do_not_steer_the_terminal(victim, tmp_path):
    path = as_version_1(victim[0], tmp_path / "old.h5")
    with h5py.File(path, "r+") as file:
        file["metadata/status"][0] = "x\x1b]0;t"
    with pytest.raises(InputError, match=r"damaged: /metadata/status: expected no control characters, found 'x\\x1b"):
        Container(path)


def test_a_damaged_container_of_version_1_says_why(victim, tmp_path):
    path = as_version_1(victim[0], tmp_path / "old.h5")
    data = bytearray(path.read_bytes())
    data[data.index(b"GCOL")] = 0
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"the texts of its version 1 cannot be read: OSError: .*global heap"):
        Container(path)


@pytest.mark.long
def test_altered_containers_of_version_1(victim, tmp_path):
    program = [
        sys.executable,
        PROGRAM,
        as_version_1(victim[0], tmp_path / "old.h5"),
        victim[1],
        tmp_path,
        "flip",
        0,
        60,
        1,
    ]
    subprocess.run([str(word) for word in program], capture_output=True, timeout=900, check=True)
    cases = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    assert len(cases) == 61
    for case in cases:  # without a checksum another result may come out, but no traceback
        for _, code, _, said in case["results"]:
            assert code == 0 or (code == 2 and said.startswith("Error: ") and said.count("\n") == 1), case


def test_a_note_that_was_copied_with_a_container_is_not_believed(victim, tmp_path, monkeypatch):
    """A note that a container was checked is believed only for the file for which it was written."""
    monkeypatch.setattr("deeprc.datasets.container_check._WORTH_REMEMBERING", 0)
    path = tmp_path / "c.h5"
    path.write_bytes(victim[0].read_bytes())
    Container(path)
    note = json.loads((tmp_path / "c.h5.cache" / "checked.json").read_text())
    assert note["size"] == path.stat().st_size
    other = tmp_path / "there" / "c.h5"
    other.parent.mkdir()
    data = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        data[file["residues"].id.get_offset()] = 255
    other.write_bytes(data)
    (tmp_path / "c.h5.cache").rename(other.parent / "c.h5.cache")
    with pytest.raises(InputError, match="/residues: expected values of at most 19, found 255"):
        Container(other)


def test_a_checked_container_is_not_checked_again(victim, tmp_path, monkeypatch):
    monkeypatch.setattr("deeprc.datasets.container_check._WORTH_REMEMBERING", 0)
    path = tmp_path / "c.h5"
    path.write_bytes(victim[0].read_bytes())
    Container(path)
    calls = []
    monkeypatch.setattr("deeprc.datasets.container_check._CHECKED", set())
    found = "deeprc.datasets.container.make_content_checks"
    monkeypatch.setattr(found, lambda container: calls.append(container.path) or {})
    Container(path)
    assert calls == []
    path.touch()
    Container(path)
    assert calls == [path]


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("repertoire_ids", 2**28, "S3", "/repertoire_ids: expected at most 268,435,456 bytes, found 805,306,368"),
        ("repertoire_offsets", 2**27, "i8", "/repertoire_offsets: expected 13 values, found 134,217,728"),
        ("metadata/age", 2**27, "f8", "/metadata: expected 12 rows, found 134,217,728"),
        ("residues", 2**30, "u1", "/residues: expected at most .* sequences, found 1,073,741,824"),
    ],
)
def test_a_sparse_file_is_refused_before_it_is_read(victim, tmp_path, name, shape, dtype, message):
    """It takes no room on the disk, but claims a gigabyte."""
    path = tmp_path / "c.h5"
    path.write_bytes(victim[0].read_bytes())
    with h5py.File(path, "r+") as file:
        label = file[name].attrs.get("name")
        del file[name]
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        early.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        kind = h5py.h5t.py_create(np.dtype(dtype), logical=True)
        h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((shape,)), early)
        if label is not None:
            file[name].attrs.create("name", label, dtype=label.dtype)
    assert path.stat().st_size > 1 << 29
    assert 512 * path.stat().st_blocks < 1 << 24
    with pytest.raises(InputError, match=message):
        Container(path)


def test_a_container_is_a_regular_file(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(InputError, match=f"is {kind}; expected a container made by `deeprc preprocess`"):
            Container(path)
        assert not is_container(path)


def test_values_are_bit_for_bit_what_was_written(victim):
    container = Container(victim[0])
    with h5py.File(victim[0]) as file:
        assert np.array_equal(container.repertoire_offsets, file["repertoire_offsets"][:])
        assert np.array_equal(container.sequences.offsets, file["sequence_offsets"][:])
        for name in ("residues", "counts"):
            assert np.array_equal(getattr(container.sequences, name), file[name][:])


@pytest.mark.parametrize("rate", [10**400, float("inf"), "0.1", None, True])
def test_a_recipe_with_numbers_that_are_none(tmp_path, rate):
    signal = {"name": "s", "status": "case", "motifs": [{"pattern": "WW"}], "witness_rate": rate}
    recipe = {"background": {"kind": "independent"}, "seed": 0, "signals": [signal]}
    with pytest.raises(ValueError, match=r"^simulation, signals: witness_rate: expected a finite number, found "):
        read_simulation(json.dumps(recipe))


def test_a_recipe_with_other_numbers_that_json_does_not_have():
    recipe = {"background": {"kind": "independent", "more": [float("inf")]}, "seed": 0, "signals": []}
    with pytest.raises(ValueError, match=r"^simulation: expected finite numbers, found inf$"):
        read_simulation(json.dumps(recipe))


def test_names_in_provenance_do_not_steer_the_terminal():
    report = {"rows_read": 1, "kept": 1, "dropped": {"\x1b]0;x\x07": 1}, "counts_from": {}, "counts_rounded": 0,
              "rows_without_file": [], "files_without_row": []}  # fmt: skip
    with pytest.raises(ValueError, match=r"^preprocessing: dropped: expected text without control characters"):
        read_preprocessing(json.dumps(report))


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"skipped_files": 3}, "skipped_files: expected names and values, found 3"),
        ({"repertoires_without_row": []}, r"repertoires_without_row: expected names and values, found \[\]"),
        ({"repertoires_without_row": {"a": 1}}, r"repertoires_without_row\.'a': expected a list, found 1"),
        ({"x": [{"y": 10**4299}]}, "expected whole numbers of 64 bits, found an integer of over"),
        ({"x": [{"y": float("nan")}]}, "expected finite numbers, found nan"),
    ],
)
def test_a_report_with_values_of_other_types(entry, found):
    report = {"rows_read": 1, "kept": 1, "dropped": {}, "counts_from": {}, "counts_rounded": 0,
              "rows_without_file": [], "files_without_row": []}  # fmt: skip
    assert read_preprocessing(json.dumps(report)) == report
    with pytest.raises(ValueError, match=f"^preprocessing: {found}"):
        read_preprocessing(json.dumps(report | entry))


@pytest.mark.parametrize("depth", [49, 50, 600])
def test_a_report_that_is_nested_too_deeply(depth):
    text = '{"x": ' * depth + "0" + "}" * depth
    if depth < 50:
        assert json.dumps(read_preprocessing(text)) == text
    else:
        with pytest.raises(ValueError, match=r"^preprocessing: is nested too deeply; expected at most 50 levels$"):
            read_preprocessing(text)


def change(victim, path, alter):
    """Copy a container and alter the copy, which gets a checksum of its own if it can have one."""
    path.write_bytes(victim[0].read_bytes())
    with h5py.File(path, "r+") as file:
        alter(file)
    return path


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="numbers of 8 bytes are the longest here")
def test_numbers_that_no_table_holds(victim, tmp_path):
    def alter(file):
        file.create_dataset("metadata/long", data=np.zeros(len(file["repertoire_ids"]), np.longdouble))
        file["metadata/long"].attrs["name"] = np.bytes_("long")
        columns = [*file["metadata"].attrs["columns"].tolist(), b"long"]
        file["metadata"].attrs["columns"] = np.array(columns)

    with pytest.raises(InputError, match=r"c\.h5: .*/metadata/long: expected numbers of at most 8 bytes"):
        Container(change(victim, tmp_path / "c.h5", alter))


def make_number_type(size, precision):
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_size(size)
    kind.set_precision(precision)
    return kind


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("metadata/status", ["a"] * 12, "expected texts of fixed length or numbers, found texts of variable length"),
        ("metadata/status", np.zeros(12, bool), "expected texts of fixed length or numbers, found bool"),
        ("repertoire_ids", [f"r{i}" for i in range(12)], "expected texts of fixed length, found texts of variable"),
    ],
)
def test_labels_as_h5py_writes_them(victim, tmp_path, name, values, message):
    def alter(file):
        label = file[name].attrs.get("name")
        del file[name]
        file[name] = values
        if label is not None:
            file[name].attrs["name"] = label

    with pytest.raises(InputError, match=rf"c\.h5: the container is damaged: /{name}: {message}"):
        Container(change(victim, tmp_path / "c.h5", alter))


@pytest.mark.parametrize("name", ["counts", "repertoire_ids", "metadata/status"])
def test_a_type_of_a_thousand_fields_gives_a_short_message(victim, tmp_path, name):
    def alter(file):
        n = len(file[name])
        del file[name]
        file[name] = np.zeros(n, [(f"field {index}", "u1") for index in range(1000)])
        if name == "metadata/status":
            file[name].attrs["name"] = np.bytes_("status")

    path = change(victim, tmp_path / "c.h5", alter)
    with pytest.raises(InputError, match=rf"c\.h5: the container is damaged: /{name}: .*field 0.*\.\.\.") as error:
        Container(path)
    assert len(str(error.value)) < len(str(path)) + 250


def test_columns_of_many_lengths_give_a_short_message(victim, tmp_path):
    def alter(file):
        names = [f"c{index}" for index in range(10)]
        for index, name in enumerate(names):
            file[f"metadata/{name}"] = np.arange(index)
            file[f"metadata/{name}"].attrs["name"] = np.bytes_(name)
        file["metadata"].attrs["columns"] = np.array(
            [*file["metadata"].attrs["columns"].tolist(), *map(str.encode, names)]
        )

    with pytest.raises(InputError, match=r"/metadata: expected columns of one length, found \[0, 1, 2, \.\.\.\]"):
        Container(change(victim, tmp_path / "c.h5", alter))


UNKNOWN = "expected numbers or texts of fixed length, found others: "
LAYOUT = "expected plain numbers, found another layout of "


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (make_number_type(16, 128), f"{UNKNOWN}data type '<i16' not understood"),
        (h5py.h5t.UNIX_D32LE, f"{UNKNOWN}No NumPy equivalent"),
        (make_number_type(4, 17), f"{LAYOUT}int32"),
        (h5py.h5t.STD_B64LE, f"{LAYOUT}uint64"),
    ],
)
@pytest.mark.parametrize("name", ["residues", "repertoire_ids", "metadata/status"])
def test_types_that_no_container_has(victim, tmp_path, name, kind, message):
    def alter(file):
        n = len(file[name])
        del file[name]
        h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((n,)))

    with pytest.raises(InputError, match=rf"c\.h5: the container is damaged: /{name}: {message}"):
        Container(change(victim, tmp_path / "c.h5", alter))


def test_an_attribute_of_a_number_of_128_bits(victim, tmp_path):
    def alter(file):
        del file.attrs["version"]
        h5py.h5a.create(file.id, b"version", make_number_type(16, 128), h5py.h5s.create(h5py.h5s.SCALAR))

    with pytest.raises(InputError, match="/: attribute 'version': expected a whole number of at most 64 bits"):
        Container(change(victim, tmp_path / "c.h5", alter))


def test_more_names_of_a_gene_than_codes(victim, tmp_path):
    def alter(file):
        file["v_call"].attrs["vocabulary"] = np.array([b"%d" % number for number in range(65_537)])

    with pytest.raises(InputError, match=r"c\.h5: .*/v_call: expected at most 65,536 names, found 65,537"):
        Container(change(victim, tmp_path / "c.h5", alter))


def test_a_dataset_with_many_links(victim, tmp_path):
    def alter(file):
        for number in range(20):
            file[f"x{number}"] = file["residues"]

    with pytest.raises(InputError, match=r"c\.h5: .*/residues: expected one link to it, found 21"):
        Container(change(victim, tmp_path / "c.h5", alter))


def read_ages(victim, path, dtype, divisor):
    """Return the column `age` of a container in which it holds 0, 1, 2 ..., divided, of a type."""

    def alter(file):
        name, n = file["metadata/age"].attrs["name"], len(file["repertoire_ids"])
        del file["metadata/age"]
        file.create_dataset("metadata/age", data=(np.arange(n) / divisor).astype(dtype)).attrs["name"] = name

    update_checksum(change(victim, path, alter))
    return Container(path).metadata["age"]


def test_numbers_of_32_bits_are_not_converted(victim, tmp_path):
    ages = read_ages(victim, tmp_path / "c.h5", np.float32, 10)
    assert ages.dtype == np.float32
    assert ages.astype(str).tolist()[:4] == ["0.0", "0.1", "0.2", "0.3"]  # in 64 bits 0.1 is 0.10000000149011612


def test_numbers_of_16_bits_are_groups(victim, tmp_path):
    """pandas refuses to group by them."""
    ages = read_ages(victim, tmp_path / "c.h5", np.float16, 2)
    assert ages.dtype == np.float64
    assert ages.groupby(ages).size().index.tolist() == [number / 2 for number in range(len(ages))]


@pytest.mark.parametrize("name", ["\ufffe", "a\uffff", "a\u202eb"])
def test_a_name_that_no_figure_can_show(victim, tmp_path, name):
    def alter(file):
        file["metadata/status"].attrs["name"] = np.bytes_(name.encode())

    with pytest.raises(InputError, match=r"/metadata/status: attribute 'name': expected no control characters, found "):
        Container(change(victim, tmp_path / "c.h5", alter))


def test_a_table_without_columns(victim, tmp_path):
    def alter(file):
        file["metadata"].attrs["columns"] = np.zeros(0, "S1")

    with pytest.raises(InputError, match=r"c\.h5: .*/metadata: attribute 'columns': expected text, found nothing"):
        Container(change(victim, tmp_path / "c.h5", alter))


def add_attribute_that_is_not_utf8(file):
    h5py.h5a.create(file.id, b"\xff", h5py.h5t.STD_I32LE, h5py.h5s.create(h5py.h5s.SCALAR))


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (lambda file: h5py.h5g.create(file["metadata"].id, b"\xff"), r"/metadata: expected a name in UTF-8, found b"),
        (add_attribute_that_is_not_utf8, r"/: expected the name of an attribute in UTF-8, found b"),
        (
            lambda file: file.create_dataset("x", data=["a", "b"]),
            r"/x: expected numbers or texts of fixed length, found values of variable length",
        ),
    ],
)
def test_names_and_values_that_no_container_has(victim, tmp_path, alter, message):
    """The old checksum stays, so these are found while the checksum is computed, not because it differs."""
    target = tmp_path / "c.h5"
    shutil.copyfile(victim[0], target)
    with h5py.File(target, "r+") as file:
        alter(file)
    with pytest.raises(InputError, match=r"c\.h5: the container is damaged: " + message):
        Container(target)


def test_a_group_with_too_many_members_is_refused_before_they_are_listed(victim, tmp_path, monkeypatch):
    monkeypatch.setattr("deeprc.datasets.hdf5.MAX_MEMBERS", 9)
    target = tmp_path / "c.h5"
    shutil.copyfile(victim[0], target)
    with h5py.File(target, "r+") as file:
        for number in range(9):
            file.create_group(f"metadata/x{number}")
    with pytest.raises(InputError, match=r"/metadata: expected at most 9 datasets and groups, found 1\d"):
        Container(target)


def test_more_columns_than_a_container_may_have_are_not_written(monkeypatch, tmp_path):
    monkeypatch.setattr("deeprc.datasets.container_file.MAX_MEMBERS", 2)
    table = pd.DataFrame(np.zeros((1, 3)), columns=list("abc"))
    with (
        h5py.File(tmp_path / "c.h5", "w") as file,
        pytest.raises(InputError, match=r"metadata: expected at most 2 columns, found 3"),
    ):
        write_metadata(file.create_group("metadata"), table)
