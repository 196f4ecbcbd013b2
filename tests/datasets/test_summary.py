"""`summarise`: hand-computed values."""

import json

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets import summary as module
from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.remaining import RemainingDataset
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import Cohort, Motif, MotifSignal, SimulatedDataset, Sizes, write_container
from deeprc.datasets.simulation.recipe import cohort_to_mapping
from deeprc.datasets.summary import render_summary, summarise
from tests.toys.repertoires import make_sequences, write_repertoires


@pytest.fixture
def dataset(cohort):
    preprocess([cohort / "files"], cohort / "metadata.tsv", cohort / "cohort.h5")
    return RepertoireDataset(cohort / "cohort.h5")


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_values(dataset, chunk, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    found = summarise(dataset)
    assert found["repertoires"] == 3
    assert found["sequences"] == {"total": 4, "min": 1, "median": 1.0, "max": 2}
    assert found["lengths"] == {"min": 4, "mean": 19 / 4, "max": 5}
    assert found["counts"] == {"total": 13, "singletons": 0.25, "max": 7}
    assert found["v_call"] == {"genes": 2, "known": 0.75}
    assert found["j_call"] == {"genes": 1, "known": 1.0}
    assert found["witnesses"] is None
    assert found["metadata"] == {
        "repertoire_id": {"type": "text", "missing": 0, "distinct": 3, "classes": {"a": 1, "b": 1, "c": 1}},
        "status": {"type": "text", "missing": 0, "distinct": 2, "classes": {"sick": 2, "well": 1}},
        "age": {"type": "number", "missing": 1, "distinct": 2, "classes": {"30": 1, "41": 1}},
    }
    assert found["preprocessing"]["dropped"]["stop_codon"] == 1
    assert "repertoires" not in found["preprocessing"]
    assert json.loads(json.dumps(found)) == found


def test_a_view_is_summarised_as_itself(dataset):
    found = summarise(dataset[[2]])
    assert found["sequences"]["total"] == 1
    assert found["counts"] == {"total": 3, "singletons": 0.0, "max": 3}
    assert found["metadata"]["status"]["classes"] == {"sick": 1}
    assert summarise(dataset[[]])["sequences"]["total"] == 0


def test_text(dataset):
    text = render_summary(summarise(dataset))
    for line in (
        "repertoires  3",
        "sequences    4 (per repertoire: min 1, median 1, max 2)",
        "lengths      4 to 5, mean 4.8",
        "counts       total 13, max 7, 25.0% are 1",
        "v_call       2 names, known for 75.0%",
        "  status         text    sick: 2, well: 1",
        "  age            number  30: 1, 41: 1      1 missing",
        "  rows read                   7",
        "  dropped: ambiguous_residue  1",
        "  counts from: duplicate_count (4)",
    ):
        assert line in text.splitlines()


def test_ranges_witnesses_and_no_genes(tmp_path):
    residues, offsets = encode_many(["CAF"] * 20)
    table = Sequences(
        residues,
        offsets,
        np.full(20, 2**32 - 1, np.uint32),
        witness=np.arange(20, dtype=np.uint8) % 2,
    )
    metadata = {"ID": [f"r{i}" for i in range(13)], "age": range(13), "site": ["x", None] * 6 + ["x"]}
    found = summarise(write_repertoires(tmp_path / "c.h5", [table] * 13, metadata))
    assert found["counts"] == {"total": 260 * (2**32 - 1), "singletons": 0.0, "max": 2**32 - 1}
    assert found["witnesses"] == 130
    assert found["v_call"] is None
    names = {"type": "text", "missing": 0, "distinct": 13, "examples": ["r0", "r1", "r2"]}
    assert found["metadata"]["ID"] == names
    expected = {"type": "integer", "missing": 0, "distinct": 13, "min": 0, "mean": 6.0, "max": 12}
    assert found["metadata"]["age"] == expected
    assert found["metadata"]["site"] == {"type": "text", "missing": 6, "distinct": 1, "classes": {"x": 7}}
    text = render_summary(found)
    assert "0 to 12, mean 6" in text
    assert "preprocessing: nothing recorded" in text


def test_gene_names_that_do_not_occur_in_the_view_are_not_counted(tmp_path):
    repertoires = [make_sequences(["CAF"], v_call=[name]) for name in ("V1", "V2")]
    dataset = write_repertoires(tmp_path / "c.h5", repertoires, {"ID": ["V1", "V2"]})
    assert summarise(dataset)["v_call"] == {"genes": 2, "known": 1.0}
    assert summarise(dataset[[1]])["v_call"] == {"genes": 1, "known": 1.0}


def test_long_values_are_cut_in_the_text(tmp_path):
    with ContainerWriter(tmp_path / "c.h5") as writer:
        residues, offsets = encode_many(["CASF"])
        writer.append("r", Sequences(residues, offsets, np.ones(1, np.uint32)))
        writer.finish(pd.DataFrame({"n" * 9_000: ["v" * 9_000]}), source="s" * 9_000)
    summary = summarise(RepertoireDataset(tmp_path / "c.h5"))
    assert len(render_summary(summary)) < 2_000
    assert f"{'v' * 60}...: 1" in render_summary(summary)
    assert len(summary["source"]) == 9_000


def test_texts_that_are_all_different_are_no_classes(tmp_path):
    columns = {"sample": ["s1", "s2", "s3", None, "s5"], "site": ["x", "y", "z", "w", "x"], "age": [3, 1, 4, 2, 9]}
    dataset = write_repertoires(tmp_path / "c.h5", [make_sequences(["CAF"])] * 5, columns)
    summary = summarise(dataset)
    found = summary["metadata"]
    assert found["sample"] == {"type": "text", "missing": 1, "distinct": 4, "examples": ["s1", "s2", "s3"]}
    assert found["site"]["classes"] == {"x": 2, "w": 1, "y": 1, "z": 1}
    text = render_summary(summary)
    assert "  sample  text     4 different values (s1, s2, s3 and 1 more)  1 missing" in text.splitlines()
    assert "  age     integer  1 to 9, mean 3.8" in text
    assert summarise(dataset[[0, 1]])["metadata"]["sample"]["classes"] == {"s1": 1, "s2": 1}  # few can be listed


def test_classes_that_look_alike_are_all_counted(tmp_path):
    values = [0.1, 0.1 + 2**-54, 0.1, np.nan]
    dataset = write_repertoires(tmp_path / "c.h5", [make_sequences(["CAF"])] * len(values), {"x": values})
    column = summarise(dataset)["metadata"]["x"]
    assert column["missing"] == 1
    assert column["classes"] == {"0.1": 3}


def test_few_numbers_are_classes_only_if_they_are_categories(tmp_path):
    """The rule is that of the controls and of `adjust_for`: batches repeat, ages do not."""
    columns = {"batch": [*range(13)] * 3, "age": [20, 30, 40.5] * 13, "day": [*range(2, 15)] * 2 + [1] * 13}
    dataset = write_repertoires(tmp_path / "c.h5", [make_sequences(["CAF"])] * 39, columns)
    found = summarise(dataset)["metadata"]
    assert found["batch"]["classes"] == {str(batch): 3 for batch in range(13)}
    assert "classes" not in found["day"]  # 14 numbers of 39 repertoires
    assert found["age"]["max"] == 40.5


def test_numbers_that_are_not_finite_are_counted_and_json_has_none(tmp_path):
    columns = {
        "titre": [1.0, np.inf, 4.0, -np.inf, np.nan, 2.5],
        "odd": [np.inf, np.nan] * 3,
        "huge": [1e308, 1.7e308] * 3,
    }
    columns["huge"][0] = 1.2e308
    summary = summarise(write_repertoires(tmp_path / "c.h5", [make_sequences(["CAF"])] * 6, columns))
    found = summary["metadata"]
    titre = {"type": "number", "missing": 1, "distinct": 5, "min": 1.0, "mean": 2.5, "max": 4.0, "infinite": 2}
    assert found["titre"] == titre
    assert found["odd"] == {"type": "number", "missing": 3, "distinct": 1, "classes": {"inf": 3}}
    assert found["huge"]["mean"] == pytest.approx((1.2e308 / 6 + 1e308 / 3) + 1.7e308 / 2)
    json.dumps(found, allow_nan=False)
    text = render_summary(summary)
    assert "1 to 4, mean 2.5 " in text
    assert "2 infinite, 1 missing" in text


def test_numbers_of_32_bits_have_a_mean(tmp_path):
    """Another program may have written them; their sum may exceed 32 bits."""
    columns = {"age": np.arange(3, dtype=np.float32), "big": np.array([1e38, 2.1e38, 2.9e38], "f4")}
    dataset = write_repertoires(tmp_path / "c.h5", [make_sequences(["CAF"])] * 3, columns)
    found = summarise(dataset)["metadata"]
    assert found["age"]["mean"] == 1.0
    assert found["big"]["mean"] == pytest.approx(2e38)


def test_merged_rows_are_shown(tmp_path, write_table):
    header = ("junction_aa", "duplicate_count")
    write_table(tmp_path / "files" / "a.tsv", header, [("CAF", 1), ("CAF", 2), ("CWF", 1), ("C*F", 1)])
    write_table(tmp_path / "metadata.tsv", ("repertoire_id", "y"), [("a", 1)])
    preprocess([tmp_path / "files"], tmp_path / "metadata.tsv", tmp_path / "c.h5")
    lines = render_summary(summarise(RepertoireDataset(tmp_path / "c.h5"))).splitlines()
    assert lines[lines.index("preprocessing") + 1 :][:4] == [
        "  rows read                4",
        "  kept                     2",
        "  merged with another row  1",
        "  dropped: stop_codon      1",
    ]


def test_files_and_repertoires_that_were_left_out_are_counted(tmp_path, write_table):
    header = ("repertoire_id", "junction_aa", "duplicate_count")
    write_table(tmp_path / "files" / "all.tsv", header, [("a", "CAF", 1), ("b", "CWF", 1), ("c", "CDF", 1)])
    (tmp_path / "files" / "bad.tsv.gz").write_bytes(b"\x1f\x8b\x08\x00damaged")
    write_table(tmp_path / "metadata.tsv", ("repertoire_id", "y"), [("a", 1), ("bad", 0)])
    options = ReadingOptions(allow_missing=True)
    arguments = [tmp_path / "files"], tmp_path / "metadata.tsv", tmp_path / "c.h5"
    preprocess(*arguments, options=options, skip_bad_files=True)
    text = render_summary(summarise(RepertoireDataset(tmp_path / "c.h5")))
    assert "  left out: 1 file that could not be read" in text
    assert "  left out: 2 repertoires of files without a row" in text


def test_a_simulated_cohort_is_summarised_as_the_container_that_is_written_from_it(tmp_path):
    cohort = Cohort(3, Sizes(20), signals=(MotifSignal((Motif("SFEN"),), 0.2),), name="mine")
    write_container(cohort, tmp_path / "c.h5", recipe=cohort_to_mapping(cohort))
    made, written = summarise(SimulatedDataset(cohort)), summarise(RepertoireDataset(tmp_path / "c.h5"))
    assert made.pop("path") == "mine"
    written.pop("path")
    assert made == written
    assert "SFEN in 20%" in render_summary(summarise(SimulatedDataset(cohort)))


def test_repertoires_without_some_sequences_are_summarised(dataset):
    left_out = [np.array([0]), np.array([], np.int64), np.array([], np.int64)]
    found = summarise(RemainingDataset(dataset, left_out))
    assert found["sequences"]["total"] == summarise(dataset)["sequences"]["total"] - 1
    assert found["source"] == summarise(dataset)["source"]
