"""Messages of errors, and the lines of those that name several faults."""

import pickle

import pytest

from deeprc.errors import (
    FaultGroup,
    SeveralErrors,
    UnusableFiles,
    add_advice,
    describe_missing_column,
    format_count,
    group_errors,
    join_names,
    join_texts,
    number_faults,
)


def test_errors_are_grouped_by_what_they_say() -> None:
    errors = {"a": "a: bad", "b": "b: worse", "c": "c: bad", "d": "of another form"}
    groups = group_errors(errors)
    assert groups == [
        FaultGroup("bad", ("a", "c")),
        FaultGroup("b: worse", ("b",)),
        FaultGroup("of another form", ("d",)),
    ]
    assert [each.describe() for each in groups] == ["2 files: bad (first: a)", "b: worse", "of another form"]
    assert [each.describe("both files") for each in groups[:2]] == ["both files: bad (first: a)", "b: worse"]
    assert FaultGroup("empty", ("p", "q"), "repertoires").describe() == "2 repertoires: empty (first: p)"
    assert group_errors({}) == []


def test_a_noun_is_in_the_plural_unless_there_is_one() -> None:
    assert [format_count(n, "donor") for n in (0, 1, 2, 1200)] == ["0 donors", "1 donor", "2 donors", "1,200 donors"]


def test_faults_are_numbered_and_those_after_the_tenth_counted() -> None:
    assert number_faults("2 faults", ["a.", "b"]) == ("2 faults:", "(1) a;", "(2) b")
    assert number_faults("1 fault", ["a."]) == ("a.",)
    lines = number_faults("12 faults", [f"f{i}" for i in range(12)])
    assert lines[:2] == ("12 faults:", "(1) f0;")
    assert lines[10:] == ("(10) f9;", "and 2 more faults")


@pytest.mark.parametrize(
    ("lines", "advice", "expected"),
    [
        (("a",), "", ("a",)),
        (("a",), "do this", ("a. do this",)),
        (("is it?",), "do this", ("is it? do this",)),
        (("a:", "b"), "do this", ("a:", "b.", "do this")),
        (("a:", "b"), "", ("a:", "b")),
    ],
)
def test_an_advice_follows_one_line_or_is_the_last_of_several(
    lines: tuple[str, ...], advice: str, expected: tuple[str, ...]
) -> None:
    assert add_advice(lines, advice) == expected


def test_no_text_adds_a_line_to_several_errors() -> None:
    error = SeveralErrors(["2 faults:", "(1) a\nError: b\u2028c\x85d;", "(2)  e\tf\r\n"])
    assert error.lines == ("2 faults:", "(1) a Error: b c d;", "(2) e f")
    assert str(error) == "2 faults:\n(1) a Error: b c d;\n(2) e f"


def test_several_errors_can_be_sent_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(SeveralErrors(["a:", "b"])))
    assert (type(error), error.lines, str(error)) == (SeveralErrors, ("a:", "b"), "a:\nb")


def test_advice_about_unusable_files_is_replaced() -> None:
    error = UnusableFiles(["2 faults:", "(1) a;", "(2) b"], "`skip_bad_files` leaves them out", ["two chains."])
    assert error.lines == ("two chains.", "2 faults:", "(1) a;", "(2) b.", "`skip_bad_files` leaves them out")
    assert error.replace_advice("Repair them").lines[-2:] == ("(2) b.", "Repair them")
    assert UnusableFiles(["a"]).replace_advice("Repair them").lines == ("a",)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.lines, copy.advice) == (UnusableFiles, error.lines, error.advice)


def test_long_names_are_cut() -> None:
    names = ["a", "b" * 60, "c" * 61, "d"]
    assert join_names(names, 3) == f"a, {'b' * 60}, {'c' * 60}... and 1 more"
    assert join_names(names[:1], 3) == "a"
    assert join_texts(names, 3) == f"a, {'b' * 60}, {'c' * 61} and 1 more"  # texts that hold more than a name


def test_a_missing_column_is_told_with_the_nearest_one() -> None:
    columns = ["repertoire_id", "Subject_ID", 7]
    listed = "repertoire_id, Subject_ID, 7"
    found = describe_missing_column("subjectid", columns, "for `group_by`")
    assert found == f"no column 'subjectid' for `group_by`; did you mean 'Subject_ID'? Columns: {listed}"
    assert describe_missing_column("hla", columns) == f"no column 'hla'; columns: {listed}"
    assert describe_missing_column("hla", []) == "no column 'hla'; columns: none"
    many = describe_missing_column("h" * 100, (f"c{number}" for number in range(25)))
    assert many.startswith(f"no column {'h' * 60!r}... (100 letters); columns: c0, c1, ")
    assert many.endswith("c19 and 5 more")
