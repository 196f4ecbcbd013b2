"""Containers become one: all sequences, ids and metadata, part after part, or one clear line."""

import h5py
import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_file import update_checksum
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import open_dataset
from deeprc.datasets.joining import join
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError

RECIPE = {"background": {"kind": "uniform"}, "signals": [], "seed": 1}
REPORT = {
    "min_length": 1,
    "max_length": 50,
    "locus": None,
    "merge": "genes",
    "rows_read": 5,
    "kept": 3,
    "merged": 1,
    "dropped": {"empty": 1, "stop_codon": 0},
    "counts_from": {"templates": 3},
    "counts_rounded": 0,
    "counts_capped": 0,
    "sequences_from": {"junction_aa": 3},
    "loci": {"TRB": 2, "": 1},
    "genes": {"v_call": {"TRBV01": "TRBV1"}, "j_call": {}},
    "rows_without_file": [],
    "files_without_row": ["x.tsv"],
    "repertoires_without_row": {},
    "skipped_files": {},
    "repertoires": [{"repertoire_id": "a", "file": "a.tsv"}],
}


@pytest.fixture
def write(tmp_path):
    def write(name, bags, metadata, *, genes=None, witness=None, report=None, recipe=None):
        path = tmp_path / name
        with ContainerWriter(path) as writer:
            for repertoire_id, texts in bags.items():
                sequences = Sequences.encode(texts)
                fields = {}
                if genes is not None:
                    fields = {"v_call": Categorical.encode([genes[text] for text in texts])}
                marks = None if witness is None else np.full(len(texts), witness, np.uint8)
                counts = np.arange(1, len(texts) + 1, dtype=np.uint32)
                sequences = Sequences(sequences.residues, sequences.offsets, counts, witness=marks)
                writer.append(repertoire_id, sequences.with_genes(fields))
            writer.finish(pd.DataFrame(metadata), source=f"files of {name}", preprocessing=report, simulation=recipe)
        return path

    return write


def test_all_repertoires_follow_part_after_part(write, tmp_path):
    one = write("1.h5", {"b": ["CAF", "CW"], "a": ["CSSF"]}, {"id": ["b", "a"], "y": [1, 0]})
    two = write("2.h5", {"c": [], "d": ["CYF"]}, {"id": ["c", "d"], "y": [0, 1]})
    done = join([one, two], tmp_path / "cohort.h5")
    cohort = open_dataset(tmp_path / "cohort.h5")
    assert {each.repertoire_id: each.sequences.decode() for each in cohort} == {
        "b": ["CAF", "CW"], "a": ["CSSF"], "c": [], "d": ["CYF"],
    }  # fmt: skip
    assert cohort.repertoire_ids.tolist() == ["b", "a", "c", "d"]
    assert cohort[0].counts.tolist() == [1, 2]
    assert cohort.metadata.to_dict("list") == {"id": ["b", "a", "c", "d"], "y": [1, 0, 0, 1]}
    assert cohort.metadata["y"].dtype == np.int64
    assert cohort.container.source == "2 containers: 1.h5, 2.h5"
    assert [each.digest() for each in cohort[:2]] == [each.digest() for each in open_dataset(one)]
    assert done.to_text() == f"4 repertoires of 2 containers\nWrote {tmp_path}/cohort.h5"


def test_the_same_as_one_container_of_all(write, tmp_path):
    genes = {"CAF": "TRBV2", "CW": "TRBV1", "CYF": "TRBV2", "CSF": "TRBV3"}
    bags = {"a": ["CAF", "CW"], "b": ["CYF", "CSF"]}
    one = write("1.h5", {"a": bags["a"]}, {"y": ["x"]}, genes=genes)
    two = write("2.h5", {"b": bags["b"]}, {"y": ["z"]}, genes=genes)
    whole = open_dataset(write("all.h5", bags, {"y": ["x", "z"]}, genes=genes))
    join([one, two], tmp_path / "cohort.h5")
    cohort = open_dataset(tmp_path / "cohort.h5")
    names = whole.container.sequences.v_call.names().tolist()
    assert names == ["TRBV2", "TRBV1", "TRBV2", "TRBV3"]
    assert cohort.container.sequences.v_call.names().tolist() == names
    assert cohort.container.sequences.digest() == whole.container.sequences.digest()
    pd.testing.assert_frame_equal(cohort.metadata, whole.metadata)


def test_columns_that_only_some_parts_have_are_missing_in_the_others(write, tmp_path, caplog):
    one = write("1.h5", {"a": ["CAF"]}, {"y": [1], "age": [30], "site": ["x"]}, genes={"CAF": "TRBV1"})
    two = write("2.h5", {"b": ["CW"]}, {"y": [0], "batch": ["q"], "kit": ["k"], "site": [None]})
    join([one, two], tmp_path / "cohort.h5")
    cohort = open_dataset(tmp_path / "cohort.h5")
    assert list(cohort.metadata) == ["y", "age", "site", "batch", "kit"]
    np.testing.assert_equal(cohort.metadata["age"].tolist(), [30.0, np.nan])
    assert cohort.metadata["site"].tolist() == ["x", None]
    assert cohort.metadata["batch"].tolist() == [None, "q"]
    assert cohort.container.sequences.v_call.names().tolist() == ["TRBV1", ""]
    assert [record.getMessage() for record in caplog.records] == [
        f"{one}: has no metadata columns 'batch', 'kit': the values of its repertoires are missing",
        f"{two}: has no metadata column 'age': the values of its repertoires are missing",
        f"{two}: has no v_call: its genes are unknown",
    ]


def test_a_column_without_any_value_takes_the_kind_of_the_other(write, tmp_path):
    one = write("1.h5", {"a": ["CAF"]}, {"age": [None]})
    two = write("2.h5", {"b": ["CW"]}, {"age": [31]})
    join([one, two], tmp_path / "cohort.h5")
    np.testing.assert_equal(open_dataset(tmp_path / "cohort.h5").metadata["age"].tolist(), [np.nan, 31.0])


def test_the_reports_are_added(write, tmp_path):
    one = write("1.h5", {"a": ["CAF"]}, {"y": [1]}, report=REPORT)
    entry = {"repertoire_id": "b", "file": "b.tsv"}
    other = {**REPORT, "rows_read": 7, "dropped": {"empty": 2, "stop_codon": 1}, "repertoires": [entry]}
    two = write("2.h5", {"b": ["CW"]}, {"y": [0]}, report={**other, "genes": {"v_call": {"x": "y"}, "j_call": {}}})
    join([one, two], tmp_path / "cohort.h5")
    report = open_dataset(tmp_path / "cohort.h5").container.preprocessing
    assert report["rows_read"] == 12
    assert report["dropped"] == {"empty": 3, "stop_codon": 1}
    assert report["min_length"] == 1
    assert report["locus"] is None
    assert report["genes"] == {"v_call": {"TRBV01": "TRBV1", "x": "y"}, "j_call": {}}
    assert report["files_without_row"] == ["x.tsv", "x.tsv"]
    assert report["repertoires"] == [*REPORT["repertoires"], entry]
    assert report["joined"] == [
        {"container": "1.h5", "n_repertoires": 1, "source": "files of 1.h5"},
        {"container": "2.h5", "n_repertoires": 1, "source": "files of 2.h5"},
    ]


def test_where_one_part_has_no_report_only_the_parts_are_known(write, tmp_path):
    one = write("1.h5", {"a": ["CAF"]}, {"y": [1]}, report=REPORT)
    two = write("2.h5", {"b": ["CW"]}, {"y": [0]})
    join([one, two], tmp_path / "cohort.h5")
    assert list(open_dataset(tmp_path / "cohort.h5").container.preprocessing) == ["joined"]


@pytest.mark.parametrize(("signals", "kept"), [([], True), (None, False)])
def test_witnesses_are_kept_where_all_parts_have_the_same_signals(write, tmp_path, signals, kept):
    one = write("1.h5", {"a": ["CAF"]}, {"y": [1]}, witness=0, recipe=RECIPE)
    recipe = None if signals is None else {**RECIPE, "signals": signals, "seed": 2}
    two = write("2.h5", {"b": ["CW"]}, {"y": [0]}, witness=0, recipe=recipe)
    join([one, two], tmp_path / "cohort.h5")
    container = open_dataset(tmp_path / "cohort.h5").container
    assert (container.sequences.witness is not None) is kept
    assert container.simulation == (RECIPE if kept else None)


def test_parts_that_do_not_belong_together(write, tmp_path):
    output = tmp_path / "cohort.h5"
    one = write("1.h5", {"a": ["CAF"]}, {"y": [1]}, report=REPORT)
    same = write("2.h5", {"a": ["CW"]}, {"y": [0]})
    chain = write("3.h5", {"b": ["CW"]}, {"y": [0]}, report={**REPORT, "loci": {"TRA": 3}})
    asked = write("4.h5", {"b": ["CW"]}, {"y": [0]}, report={**REPORT, "locus": "IGH", "loci": {"IGH": 3, "TRB": 9}})
    words = write("5.h5", {"b": ["CW"]}, {"y": ["case"]})
    length = write("6.h5", {"b": ["CW"]}, {"y": [0]}, report={**REPORT, "max_length": 30})
    other = write("7.h5", {"b": ["CW"]}, {"y": [0]})
    with h5py.File(other, "r+") as file:
        file.attrs["alphabet"] = np.bytes_(b"ACGT")
    update_checksum(other)
    for part, line in (
        (same, f"{same}: repertoire 'a' is also in {one}"),
        (chain, f"{chain}: expected sequences of TRB, as in {one}, found TRA"),
        (asked, f"{asked}: expected sequences of TRB, as in {one}, found IGH"),
        (words, f"{words}: metadata column 'y': expected numbers, as in {one}, found text"),
        (length, f"{length}: was preprocessed with max_length=30, {one} with 50; run `deeprc preprocess` again"),
        (other, f"{other}: expected the alphabet ACDEFGHIKLMNPQRSTVWY, found 'ACGT'"),
        (tmp_path / "none.h5", f"{tmp_path}/none.h5: no such file; expected a container made by `deeprc preprocess`"),
        (one, f"{one}: is given twice"),
    ):
        with pytest.raises(InputError) as caught:
            join([one, part], output)
        assert str(caught.value) == line
    assert not output.exists()


def test_no_part_is_overwritten_and_no_other_file(write, tmp_path):
    one = write("1.h5", {"a": ["CAF"]}, {"y": [1]})
    two = write("2.h5", {"b": ["CW"]}, {"y": [0]})
    before = two.read_bytes()
    with pytest.raises(InputError, match="is one of the containers to join; choose another `output`"):
        join([one, two], two)
    assert two.read_bytes() == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="exists and is not a container; choose another `output`"):
        join([one, two], tmp_path / "notes.txt")
    with pytest.raises(InputError, match="expected at least two containers, found 1"):
        join([one], tmp_path / "cohort.h5")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_hostile_record_is_refused(write, tmp_path):
    report = {"joined": [{"container": 5}]}
    with pytest.raises(InputError, match="joined"):
        open_dataset(write("1.h5", {"a": ["CAF"]}, {"y": [1]}, report=report))


def test_large_integers_stay_exact_where_a_part_has_no_values(write, tmp_path):
    large = 2**60
    one = write("1.h5", {"a": ["CAF"], "b": ["CW"]}, {"donor": [large, large + 1], "n": [1, 2]})
    two = write("2.h5", {"c": ["CYF"]}, {"y": [0]})
    join([one, two], tmp_path / "cohort.h5")
    metadata = open_dataset(tmp_path / "cohort.h5").metadata
    assert metadata["donor"].tolist() == ["1152921504606846976", "1152921504606846977", None]
    np.testing.assert_array_equal(metadata["n"], [1, 2, np.nan])


@pytest.mark.parametrize("values", [[-(2**63)], [2**53 + 1], [2**62]])
def test_large_integers_beside_numbers_that_are_not_whole(write, tmp_path, values):
    one = write("1.h5", {"a": ["CAF"]}, {"n": values})
    two = write("2.h5", {"c": ["CYF"]}, {"n": [0.5]})
    join([one, two], tmp_path / "cohort.h5")
    assert open_dataset(tmp_path / "cohort.h5").metadata["n"].tolist() == [str(values[0]), "0.5"]


def test_sums_that_no_container_may_hold(write, tmp_path):
    """Reading refuses integers of more than 64 bits, so joining does not write them."""
    parts = [
        write(f"{name}.h5", {name: ["CAF"]}, {"y": [1]}, report=REPORT | {"kept": 2**62, "repertoires": []})
        for name in "ab"
    ]
    with pytest.raises(InputError, match=r"^the sums of the containers' numbers are too large: preprocessing: "):
        join(parts, tmp_path / "c.h5")
    assert not (tmp_path / "c.h5").exists()


@pytest.mark.parametrize("value", ["x" * 5_000, [1] * 5_000, {"a": {"b": ["c"] * 5_000}}, "a\x1b[2J"])
def test_long_options_are_cut_in_messages(write, tmp_path, value):
    one = write("1.h5", {"a": ["CAF"]}, {"y": [1]}, report=REPORT)
    two = write("2.h5", {"b": ["CAF"]}, {"y": [1]}, report=REPORT | {"min_length": value})
    with pytest.raises(InputError, match=r"2\.h5: was preprocessed with min_length=.*1\.h5 with 1; run") as error:
        join([one, two], tmp_path / "c.h5")
    assert len(str(error.value)) < 600
    assert str(error.value).isprintable()
