"""Which file belongs to which row."""

from pathlib import Path

import pytest

from deeprc.datasets.matching import find_files, list_stems, match_files, name_files
from deeprc.errors import InputError


def match(ids, files, named=None):
    matched, left = match_files(ids, named or [""] * len(ids), [Path(file) for file in files])
    return [None if file is None else str(file) for file in matched], [str(file) for file in left]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b/HD.01.tsv.gz", ["HD.01.tsv.gz", "HD.01.tsv", "HD.01"]),
        ("C:\\data\\HD.01.TXT", ["HD.01.TXT", "HD.01"]),
        ("x.clonotypes.csv", ["x.clonotypes.csv", "x.clonotypes", "x"]),
        ("a.tsv.zip", ["a.tsv.zip", "a.tsv", "a"]),
        ("1.2.3", ["1.2.3"]),
        ("a.json", ["a.json"]),
    ],
)
def test_only_known_endings_are_cut(name, expected):
    assert list_stems(name) == expected


def test_ids_with_dots_find_their_own_file():
    ids = ["a.1", "a.2", "a", "a.10"]
    files = ["d/a.10.tsv", "d/a.2.tsv.gz", "d/a.tsv", "d/a.1.tsv"]
    assert match(ids, files) == (["d/a.1.tsv", "d/a.2.tsv.gz", "d/a.tsv", "d/a.10.tsv"], [])


def test_an_exact_match_goes_before_a_stripped_one():
    assert match(["a", "a.csv"], ["a.csv.tsv", "a.tsv"]) == (["a.tsv", "a.csv.tsv"], [])


def test_the_file_column_goes_before_the_id_and_the_id_fills_in():
    matched = match(["1", "2", "3"], ["x.tsv", "2.tsv", "y.tsv.gz"], ["./old/x.tsv", "gone.tsv", "y.tsv"])
    assert matched == (["x.tsv", "2.tsv", "y.tsv.gz"], [])


def test_the_sheets_folders_tell_files_of_one_name_apart():
    files = ["data/batch1/a.tsv", "data/batch2/a.tsv"]
    assert match(["r1", "r2"], files, ["batch2/a.tsv", "batch1/a.tsv"]) == (files[::-1], [])


def test_rows_without_a_file_and_files_without_a_row():
    assert match(["a", "b"], ["b.tsv", "ab.tsv"]) == ([None, "b.tsv"], ["ab.tsv"])


def test_two_files_for_one_row():
    with pytest.raises(InputError, match=r"two files match the repertoire 'a': x/a\.tsv and y/a\.tsv"):
        match(["a"], ["y/a.tsv", "x/a.tsv"])


def test_a_file_and_its_packed_twin():
    with pytest.raises(InputError, match=r"two files match the repertoire 'a': x/a\.tsv and x/a\.tsv\.gz"):
        match(["a"], ["x/a.tsv.gz", "x/a.tsv"])


def test_one_file_for_two_rows():
    with pytest.raises(InputError, match=r"f\.tsv: belongs to two repertoires, 'a' and 'b'"):
        match(["a", "b"], ["f.tsv"], ["f.tsv", "F/f.tsv"])


def test_folders_are_searched_with_all_folders_in_them(tmp_path):
    names = ["b.tsv", "sub/a.txt.gz", "c.CSV", ".hidden.tsv", ".git/x.tsv", "d.h5", "meta.tsv", "e.tsv.bak"]
    names += ["sub/f.tsv.BZ2", "sub/g.csv.xz", "sub/h.txt.zip", "sub/i.zip", "sub/j.h5", "sub/k.fasta.gz"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find_files([tmp_path, tmp_path / "d.h5", tmp_path / "b.tsv"], exclude=tmp_path / "meta.tsv")
    assert [str(path.relative_to(tmp_path)) for path in found.tables] == [
        *("b.tsv", "c.CSV", "sub/a.txt.gz", "sub/f.tsv.BZ2", "sub/g.csv.xz", "sub/h.txt.zip"),
        "d.h5",
    ]
    assert [str(path.relative_to(tmp_path)) for path in found.others] == [
        *("e.tsv.bak", "sub/i.zip", "sub/j.h5", "sub/k.fasta.gz"),
    ]


def test_the_sheet_may_name_files_of_any_ending(tmp_path):
    for name in ("a.tsv", "sub/ExampleDb.gz", "notes.gz", "x/ExampleDb.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find_files([tmp_path])
    files = found.select_named(["a.tsv", "old\\folder/ExampleDb.gz", ""])
    assert [str(path.relative_to(tmp_path)) for path in files] == ["a.tsv", "sub/ExampleDb.gz", "x/ExampleDb.gz"]
    assert found.select_named([]) == [tmp_path / "a.tsv"]


def test_a_folder_without_tables_of_which_the_sheet_names_no_file(tmp_path):
    (tmp_path / "ExampleDb.gz").touch()
    found = find_files([tmp_path])
    assert found.select_named(["ExampleDb.gz"]) == [tmp_path / "ExampleDb.gz"]
    with pytest.raises(InputError, match=r"no file is a \*\.tsv.*the sheet's file column names none"):
        found.select_named(["other.gz"])


def test_missing_files_are_an_error(tmp_path):
    with pytest.raises(InputError, match="no: no such file or folder"):
        find_files([tmp_path / "no"])
    with pytest.raises(InputError, match=r"no \*\.tsv, \*\.txt or \*\.csv file"):
        find_files([tmp_path])
    (tmp_path / "meta.tsv").touch()
    with pytest.raises(InputError, match="no repertoire files"):
        find_files([tmp_path], exclude=tmp_path / "meta.tsv")


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["in/x.tsv", "in/y.tsv"], ["x.tsv", "y.tsv"]),
        (["in/x.tsv"], ["x.tsv"]),
        (["in/a/x.tsv", "in/b/x.tsv"], ["a/x.tsv", "b/x.tsv"]),
        (["in/x.tsv", "in/a/b/x.tsv"], ["x.tsv", "a/b/x.tsv"]),
        (["../up/x.tsv", "/x.tsv"], None),
        ([], []),
    ],
)
def test_names_of_files_begin_below_the_folder_of_all(files: list[str], names: list[str] | None) -> None:
    found = name_files(map(Path, files))
    assert list(found) == list(map(Path, files))
    if names is None:
        names = [(Path.cwd().parent / "up" / "x.tsv").as_posix().lstrip("/"), "x.tsv"]
    assert list(found.values()) == names


def test_accents_of_macos_are_those_of_excel() -> None:
    decomposed, composed = "Mu\u0308ller", "M\u00fcller"
    assert match_files([composed], [""], [Path(f"{decomposed}.tsv")]) == ([Path(f"{decomposed}.tsv")], [])
    assert match_files([decomposed], [""], [Path(f"{composed}.tsv")]) == ([Path(f"{composed}.tsv")], [])
