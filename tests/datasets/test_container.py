"""The container: what is written is read, and what is damaged is named."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprc.datasets import column_files, container_writer
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets, encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container import Container
from deeprc.datasets.container_file import HDF5Target, update_checksum
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError


def make_table(texts, counts=None, **optional):
    residues, offsets = encode_many(texts)
    counts = np.ones(len(texts), np.uint32) if counts is None else np.asarray(counts, np.uint32)
    return Sequences(residues, offsets, counts, **optional)


def write(path, repertoires, metadata=None):
    ids = list(repertoires)
    metadata = pd.DataFrame({"id": ids}) if metadata is None else metadata
    with ContainerWriter(path) as writer:
        for repertoire_id, table in repertoires.items():
            writer.append(repertoire_id, table)
        writer.finish(metadata, source="a test", preprocessing={"kept": 3})
    return path


@pytest.fixture
def container(tmp_path):
    return write(tmp_path / "c.h5", {"a": make_table(["CASSF", "CAF"], [2, 5]), "b": make_table(["CW"])})


def test_layout_of_the_file(container):
    with h5py.File(container) as file:
        assert file.attrs["format"] == b"deeprc-repertoires"
        assert file.attrs["version"] == 2
        assert file.attrs["alphabet"] == b"ACDEFGHIKLMNPQRSTVWY"
        assert len(file.attrs["checksum"]) == 32
        assert json.loads(file.attrs["preprocessing"]) == {"kept": 3}
        assert file["residues"][:].tolist() == [1, 0, 15, 15, 4, 1, 0, 4, 1, 18]
        assert file["sequence_offsets"][:].tolist() == [0, 5, 8, 10]
        assert file["repertoire_offsets"][:].tolist() == [0, 2, 3]
        assert file["counts"][:].tolist() == [2, 5, 1]
        assert file["repertoire_ids"].asstr()[:].tolist() == ["a", "b"]
        assert "v_call" not in file
        assert "witness" not in file
        dtypes = {name: str(file[name].dtype) for name in ("residues", "sequence_offsets", "counts")}
        assert dtypes == {"residues": "uint8", "sequence_offsets": "int64", "counts": "uint32"}
        assert file["residues"].chunks is None


repertoire_tables = st.lists(
    st.lists(
        st.tuples(
            st.text(AMINO_ACIDS, min_size=1, max_size=8),
            st.integers(1, 2**32 - 1),
            st.sampled_from(["", "TRBV1", "TRBV2-1*01,TRBV2-2*01"]),
            st.booleans(),
        ),
        max_size=6,
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=30, deadline=None)
@given(repertoire_tables)
def test_container_returns_the_repertoires_that_were_written(repertoires):
    vocabulary = ("TRBV2-1*01,TRBV2-2*01", "", "TRBV1")
    tables = {}
    for i, rows in enumerate(repertoires):
        codes = np.array([vocabulary.index(row[2]) for row in rows], np.uint16)
        witness = np.array([row[3] for row in rows], np.uint8)
        tables[f"r.{i}"] = make_table(
            [row[0] for row in rows],
            [row[1] for row in rows],
            v_call=Categorical(codes, vocabulary),
            witness=witness,
        )
    with tempfile.TemporaryDirectory() as folder:
        dataset = RepertoireDataset(write(Path(folder) / "c.h5", tables))
        assert dataset.repertoire_ids.tolist() == list(tables)
        for i, rows in enumerate(repertoires):
            frame = dataset[i].to_frame()
            found = zip(frame["junction_aa"], frame["duplicate_count"], frame["v_call"], frame["witness"], strict=True)
            assert [(a, int(b), c, bool(d)) for a, b, c, d in found] == rows


def test_metadata_keeps_types_order_and_odd_names(tmp_path):
    metadata = pd.DataFrame(
        {
            "z/1": pd.Series(["007", None], dtype=object),
            "z_1": [1, 2],
            ".": [0.5, np.nan],
            "Größe": pd.Series([1, None], dtype="Int64"),
            "flag": [True, False],
        }
    )
    path = write(tmp_path / "c.h5", {"a": make_table(["CF"]), "b": make_table(["CF"])}, metadata)
    found = Container(path).metadata
    assert list(found) == ["z/1", "z_1", ".", "Größe", "flag"]
    assert found["z/1"].tolist() == ["007", None]
    assert found["z_1"].dtype == np.int64
    assert found["."].tolist()[0] == 0.5
    assert np.isnan(found["."].tolist()[1])
    assert found["Größe"].dtype == np.float64
    assert found["flag"].tolist() == ["True", "False"]


def test_many_gene_names_and_a_long_report_fit(tmp_path):
    vocabulary = tuple(f"IGHV{i}" for i in range(20_000))
    calls = Categorical(np.array([19_999], np.uint16), vocabulary)
    with ContainerWriter(tmp_path / "c.h5") as writer:
        writer.append("a", make_table(["CF"], v_call=calls))
        writer.finish(pd.DataFrame({"id": ["a"]}), source="", preprocessing={"text": "x" * 1_000_000})
    opened = Container(tmp_path / "c.h5")
    assert opened.sequences.v_call.names().tolist() == ["IGHV19999"]
    assert len(opened.preprocessing["text"]) == 1_000_000


def test_more_gene_names_than_fit_are_refused(tmp_path):
    calls = Categorical(np.zeros(1, np.uint16), tuple(map(str, range(70_000))))
    with ContainerWriter(tmp_path / "c.h5") as writer, pytest.raises(InputError, match="is it a gene column"):
        writer.append("a", make_table(["CF"], v_call=calls))


def test_a_repertoire_id_is_taken_once(tmp_path):
    with ContainerWriter(tmp_path / "c.h5") as writer:
        writer.append("a", make_table(["CF"]))
        with pytest.raises(InputError, match="'a' appears twice"):
            writer.append("a", make_table(["CF"]))


def test_columns_of_one_table_have_one_length(tmp_path):
    with (
        ContainerWriter(tmp_path / "c.h5") as writer,
        pytest.raises(ValueError, match="do not belong together"),
    ):
        writer.append("a", make_table(["CF", "CW"], [1]))


def test_nothing_is_left_and_nothing_is_lost_without_finish(tmp_path):
    path = tmp_path / "c.h5"
    path.write_text("the old one")
    with ContainerWriter(path) as writer:
        writer.append("a", make_table(["CF"]))
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]


def test_the_folder_must_exist(tmp_path):
    with pytest.raises(InputError, match=r"no/c\.h5: the folder .*no does not exist"):
        ContainerWriter(tmp_path / "no" / "c.h5")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no\.h5: no such file; expected a container"):
        Container(tmp_path / "no.h5")


def test_a_text_file_is_no_container(tmp_path):
    path = tmp_path / "c.h5"
    path.write_text("junction_aa\n")
    with pytest.raises(InputError, match=r"c\.h5: cannot be read as HDF5"):
        Container(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_refused(container, share):
    data = container.read_bytes()
    container.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(InputError, match=r"c\.h5: cannot be read as HDF5 \(damaged, cut short"):
        Container(container)


def test_another_hdf5_file_is_no_container(tmp_path):
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["sampledata"] = [1]
    with pytest.raises(InputError, match=r"c\.h5: an HDF5 file, but not a container made by `deeprc preprocess`"):
        Container(tmp_path / "c.h5")


def test_another_version_is_refused(container):
    with h5py.File(container, "a") as file:
        file.attrs["version"] = 99
    with pytest.raises(InputError, match="expected version 2 or 3 of the container, found 99; run `deeprc preprocess`"):
        Container(container)


@pytest.mark.parametrize("name", ["residues", "sequence_offsets", "counts", "repertoire_ids", "metadata"])
def test_a_missing_dataset_is_named(container, name):
    with h5py.File(container, "a") as file:
        del file[name]
    with pytest.raises(InputError, match=rf"c\.h5: the container is damaged: .*'{name}'"):
        Container(container)


def test_a_missing_attribute_is_named(container):
    with h5py.File(container, "a") as file:
        del file.attrs["source"]
    with pytest.raises(InputError, match=r"c\.h5: the container is damaged: .*source"):
        Container(container)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("counts", np.ones(2, np.uint32), "/counts: expected 3 values, found 2"),
        ("counts", np.ones(3, np.int64), "/counts: expected one dimension of uint32, found int64"),
        ("residues", np.ones(9, np.uint8), "/sequence_offsets: expected offsets from 0 to 9, found 0 to 10"),
        ("residues", np.full(10, 20, np.uint8), "/residues: expected values of at most 19, found 20"),
        ("repertoire_ids", np.array([b"a", b"a"]), "/repertoire_ids: expected different ids, found 'a' twice"),
        ("repertoire_ids", np.array([b"a", b""]), "/repertoire_ids: expected a text, found an empty one"),
        ("repertoire_ids", np.array([b"a", b"\xff"]), "/repertoire_ids: expected UTF-8, found byte 255"),
        ("repertoire_ids", np.array([b"a", b"b", b"c"]), "/repertoire_offsets: expected 4 values, found 3"),
        ("counts", np.array([1, 0, 1], np.uint32), "/counts: expected values of at least 1, found 0"),
        ("counts", np.ones(3, ">u4"), "/counts: expected one dimension of uint32, found >u4"),
        ("repertoire_offsets", np.array([0, 4, 3]), "/repertoire_offsets: expected offsets from 0 to 3, found 0 to 4"),
        ("repertoire_offsets", np.array([0, 1, 2]), "/repertoire_offsets: expected offsets from 0 to 3, found 0 to 2"),
        ("repertoire_offsets", np.array([-1, 2, 3]), "expected offsets from 0 to 3, found -1 to 3"),
        ("repertoire_offsets", np.array([0, 3]), "/repertoire_offsets: expected 3 values, found 2"),
        ("repertoire_offsets", np.array([0.0, 2.0, 3.0]), "expected one dimension of int64, found float64"),
        ("sequence_offsets", np.array([0, 8, 5, 10]), r"steps of at least 1 and at most 255, found -3 after value 2"),
        ("sequence_offsets", np.array([0, 5, 5, 10]), r"steps of at least 1 and at most 255, found 0 after value 2"),
        ("sequence_offsets", np.array([0, 2**62, 8, 10]), "expected offsets from 0 to 10, found 0 to 4,611,"),
        ("sequence_offsets", np.array([], np.int64), "/sequence_offsets: expected at least one value, found none"),
        ("sequence_offsets", np.array([0, 5, 8, 10], np.uint64), "expected one dimension of int64, found uint64"),
    ],
)
def test_contradictions_are_named(container, name, values, message):
    with h5py.File(container, "a") as file:
        del file[name]
        file[name] = values
    update_checksum(container)
    with pytest.raises(InputError, match=message):
        Container(container)


def test_a_sequence_longer_than_any_table_is_refused(container):
    with h5py.File(container, "a") as file:
        del file["residues"]
        file["residues"] = np.zeros(260, np.uint8)
        file["sequence_offsets"][:] = [0, 256, 258, 260]
    update_checksum(container)
    with pytest.raises(InputError, match=r"/sequence_offsets: expected steps .* at most 255, found 256 after value 1"):
        Container(container)


def test_gene_codes_beyond_the_vocabulary_are_refused(tmp_path):
    calls = Categorical(np.array([0, 1, 1], np.uint16), ("TRBV1", "TRBV2"))
    path = write(tmp_path / "c.h5", {"a": make_table(["CF", "CW", "CA"], v_call=calls)})
    with h5py.File(path, "a") as file:
        n = len(file["v_call"].attrs["vocabulary"])
        file["v_call"][1] = n
    update_checksum(path)
    with pytest.raises(InputError, match=f"/v_call: expected values of at most {n - 1}, found {n}"):
        Container(path)


def test_a_checksum_is_updated_by_a_text_path_and_kept_if_this_fails(container):
    with h5py.File(container, "a") as file:
        before = file.attrs["checksum"]
        file["counts"][0] += 1
    update_checksum(str(container))
    Container(container)
    with h5py.File(container, "a") as file:
        sealed = file.attrs["checksum"]
        file["more"] = ["a", "b"]
    with pytest.raises(
        ValueError, match=r"^/more: expected numbers or texts of fixed length, found values of variable"
    ):
        update_checksum(container)
    with h5py.File(container) as file:
        assert file.attrs["checksum"] == sealed != before


def test_every_altered_bit_of_the_values_is_found(container):
    data = container.read_bytes()
    with h5py.File(container) as file:
        places = [file[name].id.get_offset() for name in ("residues", "counts", "metadata/id", "repertoire_ids")]
    for place in places:
        for bit in range(8):
            altered = bytearray(data)
            altered[place] ^= 1 << bit
            container.write_bytes(altered)
            with pytest.raises(InputError, match=r"c\.h5: the container is damaged: "):
                Container(container)


@pytest.mark.parametrize(
    ("name", "link"),
    [("counts", h5py.SoftLink("/residues")), ("metadata/id", h5py.ExternalLink("other.h5", "/id"))],
)
def test_a_link_is_refused(container, name, link):
    with h5py.File(container, "a") as file:
        del file[name]
        file[name] = link
    with pytest.raises(InputError, match=f"/{name}: expected a dataset, found a link to another place"):
        Container(container)


def test_an_altered_report_is_refused(container):
    with h5py.File(container, "a") as file:
        file.attrs["preprocessing"] = np.bytes_(b'{"kept"; 3}')
    update_checksum(container)
    with pytest.raises(InputError, match="the container is damaged: preprocessing: is not JSON: Expecting"):
        Container(container)


def test_a_compressed_dataset_is_refused(container):
    with h5py.File(container, "a") as file:
        del file["counts"]
        file.create_dataset("counts", data=np.ones(3, np.uint32), compression="gzip")
    with pytest.raises(InputError, match="/counts: expected a contiguous, uncompressed dataset"):
        Container(container)


def test_genes_that_come_late_belong_to_their_sequences(tmp_path):
    genes = Categorical(np.array([1, 0], np.uint16), ("TRBV2", "TRBV9"))
    without = Sequences.counted_once(np.array([1, 2, 3], np.uint8), np.array([0, 2, 3]))
    with ContainerWriter(tmp_path / "c.h5") as writer:
        writer.append("a", without)
        writer.append("b", replace(without, v_call=genes))
        writer.append("c", without)
        writer.finish(pd.DataFrame({"id": list("abc")}), source="test")
    container = Container(tmp_path / "c.h5")
    assert container.sequences.v_call.names().tolist() == ["", "", "TRBV9", "TRBV2", "", ""]
    assert container.sequences.j_call is None
    assert container.sequences.witness is None


@pytest.mark.skipif(not hasattr(os.stat_result, "st_blocks"), reason="the system does not say how much a file takes")
def test_the_disk_holds_little_more_than_the_container_while_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(column_files, "_BLOCK_BYTES", 1 << 16)
    used = []
    check = HDF5Target.check

    def seen(target):
        used.append(sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*")))
        check(target)

    monkeypatch.setattr(HDF5Target, "check", seen)
    lengths = np.random.default_rng(0).integers(1, 30, 100_000)
    residues = np.arange(lengths.sum(), dtype=np.uint8) % 20
    with ContainerWriter(tmp_path / "c.h5") as writer:
        writer.append("a", Sequences.counted_once(residues, compute_offsets(lengths)))
        writer.finish(pd.DataFrame({"id": ["a"]}), source="test")
    container = Container(tmp_path / "c.h5")
    np.testing.assert_array_equal(container.sequences.residues, residues)
    np.testing.assert_array_equal(container.sequences.offsets, compute_offsets(lengths))
    assert len(used) > 20
    assert max(used) < 1.1 * (tmp_path / "c.h5").stat().st_size


@pytest.mark.parametrize("kept", [False, True])
def test_an_end_before_it_has_begun_leaves_what_was_there(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ContainerWriter(tmp_path / "o.h5", resumable=True)
    if kept:
        writer.checkpoint_folder.mkdir()
        (writer.checkpoint_folder / "precious").touch()

    def end(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(container_writer, "Journal", end)
    with pytest.raises(KeyboardInterrupt), writer:
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ([".o.h5.partial", "precious"] if kept else [])


def test_texts_that_take_too_much_room_are_refused(tmp_path):
    with ContainerWriter(tmp_path / "c.h5") as writer:
        for number in range(300):
            writer.append(f"r{number}", make_table(["CF"]))
        notes = ["x" * 1_000_000, *[""] * 299]
        with pytest.raises(InputError, match=r"/metadata/note: 300 texts, of which the longest has 1,000,000"):
            writer.finish(pd.DataFrame({"note": notes}), source="")
    assert list(tmp_path.iterdir()) == []


def test_witnesses_of_signals_that_are_not_there_are_refused(tmp_path):
    recipe = {"background": {"kind": "independent"}, "seed": 0, "signals": []}
    with ContainerWriter(tmp_path / "c.h5") as writer:
        writer.append("a", replace(make_table(["CF"]), witness=np.ones(1, np.uint8)))
        writer.finish(pd.DataFrame({"id": ["a"]}), source="", simulation=recipe)
    update_checksum(tmp_path / "c.h5")
    with pytest.raises(InputError, match="/witness: expected values of at most 0, found 1"):
        Container(tmp_path / "c.h5")


@pytest.mark.parametrize(
    ("place", "name", "value", "message"),
    [
        ("/", "source", "x\x1b]0;t\x07", r"/: attribute 'source': expected no control characters, found 'x\\x1b"),
        ("metadata/id", "name", "i\nd", "/metadata/id: attribute 'name': expected no control"),
        ("metadata", "columns", ["i\td"], "/metadata: attribute 'columns': expected no control"),
        ("metadata/id", None, ["a", "\x9b1m"], "/metadata/id: expected no control"),
        ("repertoire_ids", None, ["a", "\u2028"], "/repertoire_ids: expected no control"),
        (
            "repertoire_ids",
            None,
            ["a", "b\u202ec"],
            r"/repertoire_ids: expected no control characters, found 'b\\u202ec",
        ),
    ],
)
def test_names_that_steer_a_terminal_are_refused(container, place, name, value, message):
    texts = np.array([each.encode() for each in value]) if isinstance(value, list) else np.bytes_(value.encode())
    with h5py.File(container, "a") as file:
        if name is None:
            label = file[place].attrs.get("name")
            del file[place]
            file[place] = texts
            if label is not None:
                file[place].attrs["name"] = label
        else:
            file[place].attrs[name] = texts
    update_checksum(container)
    with pytest.raises(InputError, match=message):
        Container(container)


def test_names_that_steer_a_terminal_are_not_written(tmp_path):
    with ContainerWriter(tmp_path / "c.h5") as writer:
        writer.append("a", make_table(["CF"]))
        with pytest.raises(InputError, match="/metadata/y: expected no control characters, found 'b"):
            writer.finish(pd.DataFrame({"y": ["b\x1b"]}), source="")
    with ContainerWriter(tmp_path / "c.h5") as writer:
        writer.append("a", make_table(["CF"]))
        writer.finish(pd.DataFrame({"y": ["b"]}), source="m\x1b.tsv")
    assert Container(tmp_path / "c.h5").source == "m?.tsv"


@pytest.mark.parametrize("name", ["counts.bin", "residues.bin", "lengths.bin", "journal.jsonl", "c.h5"])
@pytest.mark.parametrize("resumable", [False, True])
def test_a_container_may_have_the_name_of_a_file_that_the_writer_uses(
    name: str, resumable: bool, tmp_path: Path
) -> None:
    with ContainerWriter(tmp_path / name, resumable=resumable) as writer:
        writer.append("a", make_table(["CASSF", "CF"], [7, 3]))
        writer.finish(pd.DataFrame({"id": ["a"]}), source="test")
    read = Container(tmp_path / name)
    assert read.sequences.decode() == ["CASSF", "CF"]
    assert read.sequences.counts.tolist() == [7, 3]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "names", [["column 2", "a_b", "a/b"], ["a/b", "a_b", "column 1", "column 2"], ["", ".", "column 0", "column 1"]]
)
def test_columns_whose_names_hdf5_cannot_have_get_a_free_one(names: list[str], tmp_path: Path) -> None:
    table = pd.DataFrame([range(len(names))], columns=names)
    container = Container(write(tmp_path / "c.h5", {"a": make_table(["CF"])}, table))
    assert {name: values.tolist() for name, values in container.metadata.items()} == {
        name: [index] for index, name in enumerate(names)
    }
