"""Tables that a command wrote are read back as they were written; what does not fit is said with its place."""

from pathlib import Path

import numpy as np
import pytest

from deeprc.errors import InputError
from deeprc.tables import ColumnSchema, read_table

COLUMNS = {
    "repertoire_id": ColumnSchema(),
    "x": ColumnSchema("number", low=0, may_be_empty=True),
    "n": ColumnSchema("integer", low=1, high=9),
    "side": ColumnSchema(choices=("train", "test")),
    "good": ColumnSchema("boolean"),
    "name": ColumnSchema(optional=True, may_be_empty=True),
}
HEADER = "repertoire_id\tx\tn\tside\tgood\tname\tmore\n"
ROW = "007\t1.5\t3\ttrain\tTrue\tNA\tz\n"


def written(folder: Path, text: str) -> Path:
    (folder / "a.tsv").write_text(text)
    return folder / "a.tsv"


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, f"{HEADER}{ROW}nan\t\t1\ttest\tFalse\t\t\n"), COLUMNS)
    assert list(table) == list(COLUMNS)
    assert table["repertoire_id"].tolist() == ["007", "nan"]
    np.testing.assert_array_equal(table["x"], [1.5, np.nan])
    assert table["n"].tolist() == [3, 1]
    assert table["n"].dtype == np.int64
    assert table["good"].tolist() == [True, False]
    assert table["good"].dtype == bool
    assert table["name"].isna().tolist() == [False, True]


def test_a_table_without_rows(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, HEADER), COLUMNS)
    assert (len(table), list(table)) == (0, list(COLUMNS))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x\tn", "y\tn", "expected a column 'x', found 'repertoire_id', 'y', 'n', 'side', 'good', 'name', 'more'"),
        ("more", "x", "expected one column 'x', found 2"),
        ("007", "", "column 'repertoire_id', row 2: expected text without control characters, found nothing"),
        ("007", "\0", "column 'repertoire_id', row 2: expected text without control characters, found '\\x00'"),
        ("NA", "\x1b[2J", "column 'name', row 2: expected text without control characters, found '\\x1b[2J'"),
        ("1.5", "-1", "column 'x', row 2: expected a number from 0 to 1e+30, found '-1'"),
        ("1.5", "nan", "column 'x', row 2: expected a number from 0 to 1e+30, found 'nan'"),
        ("1.5", "inf", "column 'x', row 2: expected a number from 0 to 1e+30, found 'inf'"),
        ("1.5", "1e999", "column 'x', row 2: expected a number from 0 to 1e+30, found '1e999'"),
        ("\t3", "\t3.5", "column 'n', row 2: expected a whole number from 1 to 9, found '3.5'"),
        ("\t3", "\t", "column 'n', row 2: expected a whole number from 1 to 9, found nothing"),
        ("\t3", "\t" + "9" * 5000, "column 'n', row 2: expected a whole number from 1 to 9, found '9999"),
        ("train", "Train", "column 'side', row 2: expected one of train, test, found 'Train'"),
        ("True", "1", "column 'good', row 2: expected True or False, found '1'"),
        ("z\n", "z\tzz\n", "is not a table: "),
        ("x\t", "x" + "\t" * 2000, "has too many columns; expected at most 1000"),
        ("rep", "\n" + "\t" * 2000 + "rep", "has too many columns; expected at most 1000"),
        ("x\t", '"\n"\t' * 2000, "has too many columns; expected at most 1000"),
        ("x\t", "x" * (5 << 20) + "\t", "is not a table: "),
        ("x\t", ("x" * 100_000 + "\t") * 50, "is not a table: its first row has over 4 MiB"),
    ],
)
def test_bad_values_are_refused_with_their_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, (HEADER + ROW).replace(old, new, 1))
    with pytest.raises(InputError) as error:
        read_table(path, COLUMNS)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_read_table_refuses_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.tsv: no such file; expected a table"):
        read_table(tmp_path / "a.tsv", COLUMNS)
    for content in (b"", b"\xff\xfe\x00", b"a\tb\n1\t2\t3\t4\n1\n1\t2\t3\t4\t5\t6\n"):
        (tmp_path / "a.tsv").write_bytes(content)
        with pytest.raises(InputError, match=r"a\.tsv: is not a table: "):
            read_table(tmp_path / "a.tsv", COLUMNS)
    with pytest.raises(InputError, match=r"is a folder; expected a table"):
        read_table(tmp_path, COLUMNS)
    with pytest.raises(InputError, match=r"is a device; expected a table"):
        read_table(Path("/dev/zero"), COLUMNS)
