"""Tables in memory become what a file with the same columns becomes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import deeprc
from deeprc.datasets.cache import digest_container
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.in_memory import MemoryDataset, _concatenate_repertoires
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.readers import FORMATS
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError
from tests.conftest import random_sequences
from tests.toys.repertoire_tables import read_repertoire


def table_of(cohort: Path) -> pd.DataFrame:
    """Return the rows of all files, as text, with the name of their repertoire."""
    tables = [
        pd.read_csv(path, sep="\t", keep_default_na=False).assign(sample_id=path.name.split(".")[0])
        for path in sorted((cohort / "files").iterdir())
    ]
    return pd.concat(tables, ignore_index=True)


def content(dataset: RepertoireDataset) -> list[dict[str, list[Any]]]:
    return [{name: list(values) for name, values in each.columns().items()} for each in dataset]


@pytest.fixture
def sheet() -> pd.DataFrame:
    return pd.DataFrame(
        {"repertoire_id": ["c", "a", "b"], "status": ["sick", "well", "sick"], "age": [41, float("nan"), 30]}
    )


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars", "mapping", "categories", "interchange"])
def test_a_table_is_read_as_files_are(cohort: Path, sheet: pd.DataFrame, kind: str) -> None:
    report = deeprc.preprocess(cohort / "files", cohort / "metadata.tsv", cohort / "cohort.h5")
    expected = deeprc.open(cohort / "cohort.h5")
    table: Any = table_of(cohort)
    if kind == "categories":
        table = table.astype({"v_call": "category", "productive": "category"})
    elif kind == "mapping":
        table = {name: table[name].tolist() for name in table}
    elif kind == "polars":
        table = pytest.importorskip("polars").DataFrame({name: table[name].tolist() for name in table})
    elif kind != "pandas":
        table = pa.Table.from_pandas(table, preserve_index=False)
    if kind == "interchange":
        table = type("Frame", (), {"__arrow_c_stream__": table.__arrow_c_stream__})()
    found = deeprc.from_frame(table, repertoire="sample_id", metadata=sheet)
    assert content(found) == content(expected)
    pd.testing.assert_frame_equal(found.metadata, expected.metadata)
    assert [each.kept for each in found.report.repertoires] == [each.kept for each in report.repertoires] == [1, 2, 1]
    assert found.report.dropped == report.dropped
    written = found.to_container(cohort / "memory.h5")
    assert digest_container(written.container) == digest_container(expected.container)
    pd.testing.assert_frame_equal(written.metadata, expected.metadata)
    assert written.container.source == "3 repertoires of a table"
    assert repr(found) == "MemoryDataset(3 repertoires, 4 sequences)"


def test_dates_without_a_time_of_day_are_those_of_a_sheet(cohort: Path, sheet: pd.DataFrame) -> None:
    table = table_of(cohort)
    for days, expected in (
        (["2020-01-05", "2021-12-31", None], ["2020-01-05", "2021-12-31", None]),
        (["2020-01-05", "2021-12-31 08:30", None], ["2020-01-05 00:00:00", "2021-12-31 08:30:00", None]),
    ):
        sampled = pd.to_datetime(pd.Series(days), format="ISO8601").astype("datetime64[s]")
        found = deeprc.from_frame(table, repertoire="sample_id", metadata=sheet.assign(sampled=sampled))
        of_id = dict(zip(found.repertoire_ids.tolist(), found.metadata["sampled"].tolist(), strict=True))
        assert [of_id[name] for name in ("c", "a", "b")] == expected


def test_metadata_is_a_sheet_or_the_columns_that_are_constant(cohort: Path, sheet: pd.DataFrame) -> None:
    table = table_of(cohort)
    by_path = deeprc.from_frame(table, metadata=cohort / "metadata.tsv")
    pd.testing.assert_frame_equal(by_path.metadata, deeprc.from_frame(table, metadata=sheet).metadata)
    by_index = deeprc.from_frame(table, metadata=sheet.set_index("repertoire_id"))
    pd.testing.assert_frame_equal(by_index.metadata, by_path.metadata)
    table["ill"] = table["sample_id"].map({"a": False, "b": True, "c": True})
    table["age"] = table["sample_id"].map({"a": 50, "b": 30, "c": 41})
    found = deeprc.from_frame(table.assign(row=range(len(table)), nothing=""))
    expected = pd.DataFrame({"sample_id": ["a", "b", "c"], "ill": ["False", "True", "True"], "age": [50, 30, 41]})
    pd.testing.assert_frame_equal(found.metadata, expected.astype({"sample_id": object, "ill": object}))


def test_rows_without_a_repertoire_do_not_hide_a_column() -> None:
    table = pd.DataFrame(
        {
            "repertoire_id": ["a", "a", "b", "", None],
            "junction_aa": ["CASSF", "CAWWF", "CASTF", "CASLF", "CASGF"],
            "sample": ["tumour", "tumour", "blood", "blood", "tumour"],  # could name the repertoires, but does not
            "status": ["sick", "sick", "well", "sick", "well"],
        }
    )
    found = deeprc.from_frame(table, options=ReadingOptions(allow_missing=True))
    expected = {"repertoire_id": ["a", "b"], "sample": ["tumour", "blood"], "status": ["sick", "well"]}
    assert found.metadata.to_dict("list") == expected


def test_categories_are_their_values(sheet: pd.DataFrame) -> None:
    table = pd.DataFrame({"repertoire_id": ["a", "b", "c"], "junction_aa": ["CASSF", "CAWWF", "CASTF"]})
    columns = {
        "ill": [True, False, None],
        "day": pd.to_datetime(["2020-01-05", "2021-12-31", None]),
        "stage": [1, 2, None],
        "dose": [0.5, 2.5, None],
    }
    metadata = sheet.assign(repertoire_id=["a", "b", "c"], **columns)
    as_categories = metadata.astype(dict.fromkeys(columns, "category"))
    expected = deeprc.from_frame(table, metadata=metadata).metadata
    assert expected["ill"].tolist() == ["True", "False", None]
    assert expected["day"].tolist() == ["2020-01-05", "2021-12-31", None]
    pd.testing.assert_frame_equal(deeprc.from_frame(table, metadata=as_categories).metadata, expected)
    pd.testing.assert_frame_equal(
        deeprc.from_frame(table.merge(as_categories)).metadata, deeprc.from_frame(table.merge(metadata)).metadata
    )


@pytest.mark.parametrize(
    "values", [pd.period_range("2020", periods=3, freq="M"), pd.interval_range(0, 3), pd.cut([1, 2, 3], 2)]
)
def test_values_that_only_pandas_knows_are_refused_in_metadata(sheet: pd.DataFrame, values: Any) -> None:
    table = pd.DataFrame({"repertoire_id": ["a", "b", "c"], "junction_aa": ["CASSF", "CAWWF", "CASTF"]})
    with pytest.raises(InputError, match=r"column 'odd': expected texts or numbers, found .*pandas"):
        deeprc.from_frame(table, metadata=sheet.assign(odd=values))


def test_counts_and_flags_may_be_numbers_and_booleans() -> None:
    table = pd.DataFrame(
        {
            "repertoire_id": [1, 1, 2],
            "junction_aa": ["CASSF", "CAWWF", "CASSF"],
            "duplicate_count": [3.0, None, 2.4],
            "productive": [True, True, True],
            "note": [1, "two", None],
        }
    )
    found = deeprc.from_frame(table)
    assert found.repertoire_ids.tolist() == ["1", "2"]
    assert [each.counts.tolist() for each in found] == [[3, 1], [2]]
    assert found.report.counts_rounded == 1
    assert found.metadata.columns.tolist() == ["repertoire_id"]
    none = deeprc.from_frame(table.assign(productive=[True, False, True]))
    assert [each.sequences.decode() for each in none] == [["CASSF"], ["CASSF"]]


@pytest.mark.parametrize(
    "values",
    [
        pd.cut(pd.Series([1, 2, 3]), 2),
        pd.Series(pd.interval_range(0, 3)),
        pd.Series(pd.period_range("2020", periods=3, freq="M")),
        [b"\xff", b"a", b"b"],
        [1 + 2j, 3j, 4j],
        [np.zeros((2, 2))] * 3,
        [np.zeros(2), 1, "x"],
        ["a\ud800", "b", "c"],
    ],
    ids=["bins", "intervals", "periods", "bytes", "complex", "matrices", "mixed", "surrogate"],
)
def test_columns_of_odd_types_are_refused_only_where_needed(values: Any) -> None:
    table = pd.DataFrame({"repertoire_id": ["x", "y", "z"], "junction_aa": ["CASSF", "CAWWF", "CASTF"]})
    odd = pd.Series(values, dtype=object) if isinstance(values, list) else values
    found = deeprc.from_frame(table.assign(odd=odd, age=[30, 40, 50]))
    assert found.metadata.columns.tolist() == ["repertoire_id", "age"]
    with pytest.raises(InputError) as error:
        deeprc.from_frame(table.assign(junction_aa=odd))
    assert "\n" not in str(error.value)


def test_an_index_that_is_a_column_too(cohort: Path) -> None:
    table = table_of(cohort)
    expected = deeprc.from_frame(table, repertoire="sample_id")
    assert content(deeprc.from_frame(table.set_index("sample_id"), repertoire="sample_id")) == content(expected)
    both = table.set_index("sample_id", drop=False)
    assert content(deeprc.from_frame(both, repertoire="sample_id")) == content(expected)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"repertoire_id": ["x", "y"], "junction_aa": ["CASSF"]}, "dict: cannot be read as a table: "),
        ({"repertoire_id": "x", "junction_aa": "CASSF"}, "dict: cannot be read as a table: "),
        (pd.Series(["CASSF"]), "expected a table of pandas, polars or pyarrow, found Series"),
        (pa.array(["CASSF"]), "Array"),
    ],
)
def test_from_frame_refuses_objects_that_are_no_tables(table: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        deeprc.from_frame(table)
    assert "\n" not in str(error.value)


def test_a_gene_that_one_repertoire_lacks_is_unknown_there(tmp_path: Path) -> None:
    table = pd.DataFrame({"repertoire_id": ["x", "y"], "junction_aa": ["CASSF", "CAWWF"], "v_call": [None, "TRBV2*01"]})
    found = deeprc.from_frame(table)
    assert [each.genes["v_call"].names().tolist() for each in found] == [[""], ["TRBV2"]]
    assert content(found.to_container(tmp_path / "c.h5")) == content(found)


def name_genes(prefix: str, n: int) -> Sequences:
    """Return n sequences of one residue, each with a V gene of its own."""
    names = Categorical.encode(f"{prefix}{number}" for number in range(n))
    return Sequences(np.zeros(n, np.uint8), np.arange(n + 1), np.ones(n, np.uint32), v_call=names)


def test_more_gene_names_than_codes_are_refused_in_memory_as_in_a_file(tmp_path: Path) -> None:
    message = r"^v_call: more than 65,535 different gene names; is it a gene column\?$"
    parts = [name_genes(prefix, 40_000) for prefix in "ab"]
    with pytest.raises(InputError, match=message):
        _concatenate_repertoires(parts)
    with ContainerWriter(tmp_path / "c.h5") as writer:
        writer.append("a", parts[0])
        with pytest.raises(InputError, match=message):
            writer.append("b", parts[1])
    joint = _concatenate_repertoires([name_genes(prefix, 32_767) for prefix in "ab"]).genes["v_call"]
    assert [joint.get_name(row) for row in (0, 32_766, 32_767, 65_533)] == ["a0", "a32766", "b0", "b32766"]


def test_numbers_in_the_place_of_genes_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    table = {
        "repertoire_id": ["a", "b"],
        "junction_aa": ["CASSF", "CAWF"],
        "v_call": [9.0, 9.0],
        "j_call": ["TRBJ1"] * 2,
    }
    dataset = deeprc.from_frame(pd.DataFrame(table))
    assert dataset[0].to_frame()["v_call"].tolist() == ["9"]
    assert caplog.messages == [
        "a table: expected names of V and J genes, such as TRBV9, found 2 numbers, such as '9'. They are stored as "
        "they are; is the column right?"
    ]


def test_views_are_written_and_sent_to_processes(cohort: Path, tmp_path: Path) -> None:
    found = deeprc.from_frame(table_of(cohort))
    part = found[[2, 0]]
    assert isinstance(part, MemoryDataset)
    assert part.to_container(tmp_path / "part.h5").repertoire_ids.tolist() == ["c", "a"]
    sent = pickle.loads(pickle.dumps(part))
    assert content(sent) == content(part)
    (tmp_path / "text.h5").write_text("mine")
    with pytest.raises(InputError, match="exists and is not a container"):
        part.to_container(tmp_path / "text.h5")


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (
            {},
            {"repertoire": "donor"},
            "the table has no column 'donor' for `repertoire`; columns: sequence_id, junction",
        ),
        ({"duplicate_count": "many"}, {}, "table: row 0, column 'duplicate_count': expected a number"),
        ({"v_call": "TRAV1", "j_call": ["TRAJ1", *["TRBJ1"] * 6]}, {}, "several chains, TRA .* and TRB"),
        ({"productive": "F"}, {}, "none of the 2 rows of repertoire 'a' is kept"),
        ({"sample_id": ["a", "a", "b", "b", "", "c", "c"]}, {}, r"for 1 repertoire: \(no name\)"),
        ({"junction_aa": [["list"]] * 7}, {}, "column 'junction_aa': expected texts or numbers, found list"),
        ({"v_call": "TRBV1\x1b[2J"}, {}, "no control characters"),
    ],
)
def test_from_frame_refuses_bad_columns_and_values(
    cohort: Path, changes: dict[str, Any], options: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        deeprc.from_frame(table_of(cohort).assign(**changes), **options)


def test_rows_without_metadata_and_metadata_without_rows(cohort: Path, sheet: pd.DataFrame) -> None:
    table = table_of(cohort)
    other = sheet.assign(repertoire_id=["c", "a", "z"])
    with pytest.raises(InputError, match=r"metadata: no sequence for 1 row: z .*; no row of metadata for 1 rep.*: b\."):
        deeprc.from_frame(table, metadata=other)
    options = deeprc.ReadingOptions(allow_missing=True)
    assert deeprc.from_frame(table, metadata=other, options=options).repertoire_ids.tolist() == ["c", "a"]
    with pytest.raises(InputError, match="Not one repertoire matches"):
        deeprc.from_frame(table, metadata=sheet.assign(repertoire_id=["x", "y", "z"]), options=options)
    with pytest.raises(InputError, match="say which one does with `repertoire`"):
        deeprc.from_frame(table.drop(columns="sample_id"))
    with pytest.raises(InputError, match="expected a table of pandas, polars or pyarrow, found int"):
        deeprc.from_frame(3)


def test_options_name_other_columns(cohort: Path) -> None:
    table = table_of(cohort)[["junction_aa", "sample_id"]].rename(columns={"junction_aa": "protein"})
    options = deeprc.ReadingOptions(sequence_column="protein")
    found = deeprc.from_frame(table, repertoire="sample_id", options=options)
    assert "auto" in FORMATS
    assert found[0].sequences.decode() == ["CAWWF", "CASSF"]
    assert len(read_repertoire(cohort / "files" / "a.tsv.gz")) == 2
    by_column = deeprc.from_frame(table, options=deeprc.ReadingOptions(sequence_column="protein", split_by="Sample_ID"))
    assert content(by_column) == content(found)
    with pytest.raises(InputError, match="the table has no column 'donor' to split by; columns: protein, sample_id"):
        deeprc.from_frame(table, options=deeprc.ReadingOptions(sequence_column="protein", split_by="donor"))


@pytest.mark.slow
def test_a_classifier_learns_the_same_from_memory_and_from_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"repertoire_id": np.repeat([f"r{i:02d}" for i in range(18)], 20), "junction_aa": random_sequences(rng, 360)}
    )
    memory = deeprc.from_frame(table)
    labels = np.arange(18) % 2
    settings = {"n_updates": 4, "n_kernels": 4, "kernel_size": 4, "n_sequences": 10}
    answers = [
        deeprc.DeepRCClassifier(overrides=settings, device="cpu").fit(dataset, labels).predict_proba(dataset)
        for dataset in (memory, memory.to_container(tmp_path / "cohort.h5"))
    ]
    np.testing.assert_array_equal(*answers)


def test_rows_without_a_repertoire_are_left_out() -> None:
    table = pd.DataFrame({"repertoire_id": ["a", "b", None], "junction_aa": ["CASSF", "CASWF", "CASSLF"]})
    found = deeprc.from_frame(table, options=ReadingOptions(allow_missing=True))
    assert found.repertoire_ids.tolist() == ["a", "b"]
    with pytest.raises(InputError, match=r"no row with a repertoire \(column 'repertoire_id'\)"):
        deeprc.from_frame(table[2:])
