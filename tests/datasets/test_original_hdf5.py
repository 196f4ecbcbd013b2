"""The published containers of the original DeepRC, written here in their layouts."""

import os

import h5py
import numpy as np
import pytest

from deeprc.datasets.readers import COUNT_ONE, SequenceKind, Status, original_hdf5
from deeprc.datasets.readers.original_hdf5 import (
    is_original_container,
    read_original_container,
    read_original_ids,
)
from deeprc.errors import InputError
from tests.toys.repertoire_tables import to_frame

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
REPERTOIRES = {
    "rep.1.tsv": [("CASSF", 3), ("CATTTF", 1)],
    "rep.2.tsv": [("CAF", -1)],
    "rep.3.tsv": [("CASSLGQFF", 7), ("AW", 0), ("CASSF", 12)],
}
NAMINGS = [
    ("sequences", "sequence_counts"),
    ("amino_acid_sequences", "duplicates_per_sequence"),
    ("amino_acid_sequences", "counts_per_sequence"),
]
OPTIONS = {"compression": "gzip", "compression_opts": 4, "chunks": True, "shuffle": True}


def padded(sequences, alphabet=AMINO_ACIDS):
    values = np.full((len(sequences), max(map(len, sequences))), -1, np.int8)
    for row, sequence in enumerate(sequences):
        values[row, : len(sequence)] = [alphabet.index(letter) for letter in sequence]
    return values


def write(path, sequences="sequences", counts="sequence_counts", alphabet=AMINO_ACIDS, **replaced):
    """Write a container; `replaced` holds other values by dataset, None leaves one out."""
    rows = [row for each in REPERTOIRES.values() for row in each]
    ends = np.cumsum([len(each) for each in REPERTOIRES.values()])
    data = {
        f"sampledata/{sequences}": padded([sequence for sequence, _ in rows], alphabet),
        "sampledata/seq_lens": np.array([len(sequence) for sequence, _ in rows]),
        f"sampledata/{counts}": np.array([count for _, count in rows]),
        "sampledata/sample_sequences_start_end": np.stack([ends - np.diff(ends, prepend=0), ends], axis=1),
        "metadata/sample_keys": np.array([name.encode() for name in REPERTOIRES]),
        "metadata/n_samples": len(REPERTOIRES),
        "metadata/aas": np.bytes_(alphabet),
    }
    with h5py.File(path, "w") as file:
        for name, values in (data | {name.replace("__", "/"): value for name, value in replaced.items()}).items():
            if values is not None:
                kind = h5py.string_dtype() if np.asarray(values).dtype.kind == "O" else None
                file.create_dataset(name, data=values, dtype=kind, **(OPTIONS if np.ndim(values) else {}))
    return path


def read(path):
    return {name: to_frame(rows) for name, rows in read_original_container(path)}


def sequences_of(tables):
    return {name: table["junction_aa"].tolist() for name, table in tables.items()}


EXPECTED = {name: [sequence for sequence, _ in each] for name, each in REPERTOIRES.items()}


@pytest.mark.parametrize(("sequences", "counts"), NAMINGS)
def test_all_namings(tmp_path, sequences, counts):
    path = write(tmp_path / "d.hdf5", sequences, counts)
    assert is_original_container(path)
    assert read_original_ids(path) == tuple(REPERTOIRES)
    tables = read(path)
    assert list(tables) == list(REPERTOIRES)
    assert sequences_of(tables) == EXPECTED
    assert [table["duplicate_count"].tolist() for table in tables.values()] == [[3, 1], [1], [7, 1, 12]]
    assert [table["count_source"].tolist() for table in tables.values()] == [[counts] * 2, [COUNT_ONE], [counts] * 3]
    assert [table["count_rounded"].tolist() for table in tables.values()] == [
        [False] * 2,
        [False],
        [False, True, False],
    ]


def test_rows_are_junctions_of_which_nothing_else_is_known(tmp_path):
    _, rows = next(iter(read_original_container(write(tmp_path / "d.h5"))))
    assert rows.kinds.tolist() == [SequenceKind.JUNCTION_AA] * 2
    assert rows.status.tolist() == [Status.UNKNOWN] * 2
    assert rows.sequences.letters.tobytes() == b"CASSFCATTTF"
    assert rows.sequences.offsets.tolist() == [0, 5, 11]
    assert (rows.sequences.letters.dtype, rows.sequences.offsets.dtype, rows.counts.dtype) == (
        np.uint8,
        np.int64,
        np.uint32,
    )
    assert rows.v_call is rows.j_call is rows.repertoire is rows.locus is rows.cell is None


def test_the_file_says_which_index_is_which_amino_acid(tmp_path):
    other = AMINO_ACIDS[::-1]
    assert sequences_of(read(write(tmp_path / "d.h5", alphabet=other))) == EXPECTED
    letters = np.array([letter.encode() for letter in other], "S1")
    assert sequences_of(read(write(tmp_path / "e.h5", alphabet=other, metadata__aas=letters))) == EXPECTED


@pytest.mark.parametrize("kind", ["S", "S1"])
def test_sequences_as_text(tmp_path, kind):
    flat = [sequence for each in EXPECTED.values() for sequence in each]
    values = np.array([sequence.encode() for sequence in flat])
    if kind == "S1":
        values = values.view("S1").reshape(len(flat), -1)
    path = write(tmp_path / "d.h5", sampledata__sequences=values, metadata__aas=None)
    assert sequences_of(read(path)) == EXPECTED


def test_sequences_as_text_of_variable_length(tmp_path):
    ((name, rows),) = read_original_container(write_texts(tmp_path / "d.h5"), ["rep.3.tsv"])
    assert (name, to_frame(rows)["junction_aa"].tolist()) == ("rep.3.tsv", EXPECTED["rep.3.tsv"])


def test_without_lengths_and_counts(tmp_path):
    path = write(tmp_path / "d.h5", sampledata__seq_lens=None, sampledata__sequence_counts=None)
    tables = read(path)
    assert sequences_of(tables) == EXPECTED
    assert tables["rep.3.tsv"]["duplicate_count"].tolist() == [1, 1, 1]
    assert tables["rep.3.tsv"]["count_source"].tolist() == [COUNT_ONE] * 3


def test_counts_with_fractions(tmp_path):
    counts = np.array([2.0, 2.6, np.nan, -1.0, 0.2, 1e6])
    tables = read(write(tmp_path / "d.h5", sampledata__sequence_counts=counts))
    assert [table["duplicate_count"].tolist() for table in tables.values()] == [[2, 3], [1], [1, 1, 1_000_000]]
    assert [table["count_rounded"].tolist() for table in tables.values()] == [
        [False, True],
        [False],
        [False, True, False],
    ]


def test_keys_as_bytes_and_an_empty_repertoire(tmp_path):
    bounds = np.array([[0, 2], [2, 2], [3, 6]])
    keys = np.array([b"a", b"b", b"c"])
    path = write(tmp_path / "d.h5", sampledata__sample_sequences_start_end=bounds, metadata__sample_keys=keys)
    assert sequences_of(read(path)) == {"a": ["CASSF", "CATTTF"], "b": [], "c": EXPECTED["rep.3.tsv"]}


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        (
            {"sampledata__sequences": None},
            "no dataset /sampledata/sequences or /sampledata/amino_acid_sequences; is this",
        ),
        ({"metadata__sample_keys": None}, "no dataset /metadata/sample_keys"),
        ({"metadata__aas": None}, "no dataset /metadata/aas"),
        ({"sampledata__sample_sequences_start_end": None}, "no dataset /sampledata/sample_sequences_start_end"),
        (
            {"sampledata__sample_sequences_start_end": np.zeros((2, 2), int)},
            r"dataset /sampledata/sample_sequences_start_end: expected integers of shape \(3, 2\)",
        ),
        (
            {"sampledata__sample_sequences_start_end": np.array([[0, 2], [2, 3], [3, 7]])},
            r"dataset /sampledata/sample_sequences_start_end: row 2 is \[3, 7\], but there are 6 sequences",
        ),
        (
            {"sampledata__sample_sequences_start_end": np.array([[0, 2], [3, 2], [3, 6]])},
            r"row 1 is \[3, 2\], but there are 6",
        ),
        (
            {"sampledata__seq_lens": np.array([5, 6, 3, 9, 2, 4])},
            r"/sampledata/seq_lens: does not fit .* 'rep\.3\.tsv'",
        ),
        (
            {"sampledata__sample_sequences_start_end": np.array([[0, 2], [1, 3], [3, 6]])},
            "gives 7 sequences to repertoires, but there are 6",
        ),
        (
            {"metadata__sample_keys": np.array([b"a" * 99, b"b", b"a" * 99])},
            rf"names '{'a' * 60}'\.\.\. \(99 letters\) t",
        ),
        ({"metadata__sample_keys": h5py.Empty("S3")}, "no dataset /metadata/sample_keys"),
        ({"sampledata__seq_lens": np.array([5, 6])}, r"/sampledata/seq_lens: expected 6 values, one for each sequence"),
        ({"sampledata__sequence_counts": np.zeros((6, 2))}, "/sampledata/sequence_counts: expected 6 values"),
        ({"sampledata__sequence_counts": np.full(6, 2**32)}, "expected counts up to 4294967295, found 4294967296"),
        ({"sampledata__sequence_counts": np.full(6, 1e300)}, r"expected counts up to 4294967295, found 1e\+300; rep"),
        ({"sampledata__sequence_counts": np.array([b"1"] * 6)}, "/sampledata/sequence_counts: expected numbers, found"),
        (
            {"sampledata__sequences": np.full((6, 9), 20, np.int8)},
            "/sampledata/sequences: expected indices from 0 to 19",
        ),
        (
            {"sampledata__sequences": np.full((6, 9), -2, np.int8)},
            "/sampledata/sequences: expected indices from 0 to 19",
        ),
        ({"sampledata__sequences": np.tile(np.int8([1, -1, 1]), (6, 1))}, "then -1 up to the end"),
        ({"sampledata__sequences": np.zeros(6, np.int8)}, r"expected indices of shape \(N, L\), found shape \(6,\)"),
        ({"sampledata__sequences": np.zeros((6, 3))}, r"expected int8 or text, found float64 of shape \(6, 3\)"),
        ({"metadata__sample_keys": np.array([b"a", b"b", b"a"])}, "dataset /metadata/sample_keys: names 'a' twice"),
        ({"metadata__sample_keys": np.array([b"a", b"b", b"\xff"])}, "dataset /metadata/sample_keys: expected text"),
        ({"metadata__sample_keys": np.arange(3)}, "dataset /metadata/sample_keys: expected text, found 0"),
        ({"metadata__aas": "ACDEFGHIKLMNPQRSTVWA"}, "dataset /metadata/aas: expected the amino acids in the order"),
    ],
)
def test_files_that_are_not_as_expected(tmp_path, replaced, message):
    path = write(tmp_path / "d.h5", **replaced)
    with pytest.raises(InputError, match=rf"d\.h5: .*{message}"):
        list(read_original_container(path))


def test_files_that_are_something_else(tmp_path):
    (tmp_path / "r.tsv").write_text("amino_acid\ttemplates\n")
    with h5py.File(tmp_path / "ours.h5", "w") as file:
        file["residues"] = np.zeros(3)
    assert not is_original_container(tmp_path / "r.tsv")
    assert not is_original_container(tmp_path / "ours.h5")
    assert not is_original_container(tmp_path / "no.h5")
    with pytest.raises(InputError, match=r"r\.tsv: cannot be read as HDF5"):
        list(read_original_container(tmp_path / "r.tsv"))
    with pytest.raises(InputError, match=r"no\.h5: no such file"):
        read_original_ids(tmp_path / "no.h5")
    with pytest.raises(InputError, match=r"ours\.h5: no dataset /metadata/sample_keys"):
        read_original_ids(tmp_path / "ours.h5")


def test_a_file_cut_short(tmp_path):
    path = write(tmp_path / "d.h5")
    path.write_bytes(path.read_bytes()[:-500])
    assert is_original_container(path)
    with pytest.raises(InputError, match=r"d\.h5: cannot be read as HDF5"):
        list(read_original_container(path))


def test_one_repertoire_after_the_other_is_read(tmp_path):
    """What is damaged in the last repertoire does not keep the first from being read: no more than one is in memory."""
    path = write(tmp_path / "d.h5")
    with h5py.File(path, "r+") as file:
        values = file["sampledata/sequences"][()]
        del file["sampledata/sequences"]
        data = file.create_dataset("sampledata/sequences", data=values, chunks=(1, values.shape[1]), fletcher32=True)
        place = data.id.get_chunk_info(5).byte_offset
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 0xFF
    path.write_bytes(bytes(damaged))
    repertoires = read_original_container(path)
    assert [next(repertoires)[0], next(repertoires)[0]] == ["rep.1.tsv", "rep.2.tsv"]
    with pytest.raises(InputError, match=r"d\.h5: dataset /sampledata/sequences: cannot be read: "):
        next(repertoires)


def make_hostile(path, name, **options):
    """Put another dataset, or a link, in the place of one."""
    write(path)
    with h5py.File(path, "r+") as file:
        del file[name]
        if "link" in options:
            file[name] = options["link"]
        else:
            file.create_dataset(name, **options)
    return path


SEQUENCES = "sampledata/sequences"
TERABYTES = {"shape": (6, 2**40), "dtype": "i1", "chunks": (1, 2**20), "fillvalue": -1}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (SEQUENCES, TERABYTES, "sequences: expected 6,597,069,766,656 bytes of values in the file, found 0"),
        (
            "metadata/sample_keys",
            {"shape": (2**33,), "dtype": "S9", "chunks": (99,)},
            "at most 1,048,576 ids, found 8,5",
        ),
        ("metadata/aas", {"shape": (2**33,), "dtype": "S1"}, "aas: expected 8,589,934,592 bytes of values in the file"),
        (
            SEQUENCES,
            {"data": np.zeros((6, 999), np.int8), "compression": "gzip", "chunks": (1, 99)},
            "at most 900 bytes at once, found 1,998",
        ),
        (
            SEQUENCES,
            {"data": np.zeros((6, 9), np.int8), "compression": "gzip", "maxshape": (None, None), "chunks": (101, 9)},
            "at most 900 bytes at once, found 909",
        ),
        (SEQUENCES, {"shape": (6, 9), "dtype": "i1", "external": [("/etc/passwd", 0, 54)]}, "found those of another"),
        (SEQUENCES, {"link": h5py.ExternalLink("pipe", "/x")}, "no dataset /sampledata/sequences"),
        ("metadata", {"link": h5py.ExternalLink("pipe", "/x")}, "no dataset /metadata/sample_keys"),
        (SEQUENCES, {"link": h5py.SoftLink("/sampledata/sequences")}, "no dataset /sampledata/sequences"),
    ],
    ids=["terabytes", "ids", "amino acids", "packed", "packed block", "elsewhere", "pipe", "pipe of a group", "loop"],
)
def test_small_files_do_not_fill_the_memory_or_open_others(tmp_path, monkeypatch, name, options, message):
    os.mkfifo(tmp_path / "pipe")  # whoever opens it waits for ever
    monkeypatch.setattr(original_hdf5, "_MAX_BYTES", 900)
    path = make_hostile(tmp_path / "d.h5", name, **options)
    assert is_original_container(path)
    with pytest.raises(InputError, match=rf"d\.h5: .*{message}"):
        list(read_original_container(path))


def write_published(path):
    """Write the ids and the amino acids as the published files have them: as text of variable length."""
    return write(path, metadata__sample_keys=np.array(list(REPERTOIRES), object), metadata__aas=AMINO_ACIDS)


def write_texts(path):
    flat = [sequence for each in EXPECTED.values() for sequence in each]
    return write(path, sampledata__sequences=np.array(flat, object), metadata__aas=None)


def break_heap(path, start=0):
    """Set the size of a heap's first object to 0: the HDF5 library would look for the next one for ever."""
    data = bytearray(path.read_bytes())
    start = data.index(b"GCOL", start)
    data[start + 24 : start + 32] = (2**64 - 16).to_bytes(8, "little")
    path.write_bytes(data)


def test_a_heap_that_never_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("deeprc.datasets.legacy_texts._MAX_SECONDS", 0.5)
    path = write_published(tmp_path / "d.h5")
    break_heap(path)
    assert is_original_container(path)
    with pytest.raises(InputError, match=r"d\.h5: reading its texts took more than 0\.5 s"):
        read_original_ids(path)


def test_a_heap_of_sequences_that_never_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("deeprc.datasets.legacy_texts._MAX_SECONDS", 0.5)
    path = write_texts(tmp_path / "d.h5")
    break_heap(path)
    assert read_original_ids(path) == tuple(REPERTOIRES)
    with pytest.raises(InputError, match=r"d\.h5: reading its texts took more than 0\.5 s; repertoire 'rep\.1\.tsv'"):
        next(read_original_container(path))


def test_a_damaged_heap_says_why(tmp_path):
    path = write_published(tmp_path / "d.h5")
    data = bytearray(path.read_bytes())
    data[data.index(b"GCOL")] = 0
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"d\.h5: the file is damaged: its texts cannot be read: .*global heap"):
        read_original_ids(path)


@pytest.mark.parametrize("name", ["sampledata__seq_lens", "sampledata__sequence_counts", "sampledata__sequences"])
def test_lists_of_variable_length_are_not_read(tmp_path, name):
    path = write(tmp_path / "d.h5", **{name: None})
    with h5py.File(path, "r+") as file:
        lists = file.create_dataset(name.replace("__", "/"), 6, h5py.vlen_dtype(np.int8))
        lists[0] = [1, 2, 3]
    break_heap(path, path.read_bytes().rindex(b"GCOL"))
    with pytest.raises(InputError, match=r"expected numbers or text, found object"):
        next(read_original_container(path))


def test_texts_are_read_by_one_process_for_all_repertoires(tmp_path, monkeypatch):
    read_apart, calls = original_hdf5.read_texts_in_subprocess, []

    def count(path, places):
        calls.append(places)
        return read_apart(path, places)

    monkeypatch.setattr(original_hdf5, "read_texts_in_subprocess", count)
    path = write_published(tmp_path / "d.h5")
    found = {}
    for name in read_original_ids(path):
        found |= {name: to_frame(rows) for name, rows in read_original_container(path, [name])}
    assert sequences_of(found) == EXPECTED
    assert calls == [{"metadata/sample_keys": None, "metadata/aas": None}]
    write(path, metadata__sample_keys=np.array(["x", "y", "\xe9"], object))
    assert read_original_ids(path) == ("x", "y", "\xe9")


def test_a_file_that_may_not_be_read_is_none(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Unable to determine if file is accessible as hdf5")

    (tmp_path / "r.tsv").write_text("junction_aa\nCASSF\n")
    monkeypatch.setattr("deeprc.datasets.readers.original_hdf5.h5py.is_hdf5", refuse)
    assert not is_original_container(tmp_path / "r.tsv")
