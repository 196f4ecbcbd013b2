"""`deeprc check` from the command line: exit codes, JSON, and nothing written."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deeprc.cli.check import check
from deeprc.errors import InputError

ROWS = [("CASSF", 3, "T"), ("CASWF", 1, "T"), ("CAS*F", 1, "F")]


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    """Six repertoires without anything wrong but their number."""
    (tmp_path / "files").mkdir()
    for number in range(6):
        lines = ["sequence_id\tjunction_aa\tduplicate_count\tproductive\tv_call"]
        lines += [f"s\tCAS{'ACDEFG'[number]}{junction}\t{n}\t{yes}\tTRBV2" for junction, n, yes in ROWS]
        (tmp_path / "files" / f"r{number}.tsv").write_text("\n".join(lines) + "\n")
    labels = "".join(f"r{number}\t{'case' if number % 2 else 'control'}\n" for number in range(6))
    (tmp_path / "sheet.tsv").write_text(f"repertoire_id\tstatus\n{labels}")
    return tmp_path


def run(folder: Path, *arguments: object) -> Result:
    given = [folder / "files", "--metadata", folder / "sheet.tsv", "--jobs", 1, *arguments]
    return CliRunner().invoke(check, list(map(str, given)))


def test_exit_code_0_without_errors(cohort: Path) -> None:
    before = sorted(cohort.rglob("*"))
    result = run(cohort, "--target", "status")
    assert result.exit_code == 0, result.output
    assert "total                      18    12           6" in result.output
    assert result.output.splitlines()[-1] == "0 errors, 2 warnings, 1 note"
    assert sorted(cohort.rglob("*")) == before


def test_exit_code_1_with_an_error(cohort: Path) -> None:
    (cohort / "files" / "r1.tsv").write_bytes(b"\x00\x01\x02")
    result = run(cohort)
    assert result.exit_code == 1
    assert result.output.count("error: unreadable-file: ") == 1
    assert result.output.splitlines()[-1].startswith("1 error, ")


@pytest.mark.parametrize(
    "arguments",
    [["--format", "what"], ["--jobs", "0"], ["--min-length", "9", "--max-length", "8"], ["--max-length", "999"]],
)
def test_exit_code_2_for_wrong_usage(cohort: Path, arguments: list[str]) -> None:
    assert run(cohort, *arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [["--target", "nothing"], ["--group-by", "nobody"], ["--count-column", "n"], ["--metadata", "gone"]]
)
def test_what_is_not_there_is_wrong_usage_too(cohort: Path, arguments: list[str]) -> None:
    assert isinstance(run(cohort, *arguments).exception, InputError)  # exit code 2, by the group


def test_json_is_one_document(cohort: Path) -> None:
    (cohort / "files" / "r1.tsv").write_text((cohort / "files" / "r2.tsv").read_text())
    result = run(cohort, "--target", "status", "--json")
    document = json.loads(result.output)
    assert result.exit_code == 0
    assert document["ok"] is True
    same = next(each for each in document["findings"] if each["code"] == "same-content")
    assert same["severity"] == "warning"  # so few sequences can be the same by chance
    assert same["repertoires"] == ["r1", "r2"]
    assert [Path(name).name for name in same["files"]] == ["r1.tsv", "r2.tsv"]
    assert document["preprocessing"]["rows_read"] == 18


def test_every_option_reaches_the_function(cohort: Path) -> None:
    (cohort / "all.csv").write_text("who;s;n\n" + "".join(f"r{i};CASS{'ACDEFG'[i]}F;2\n" for i in range(6)))
    options = ["--metadata", cohort / "sheet.tsv", "--split-by", "who", "--sequence-column", "s", "--count-column", "n"]
    options += ["--format", "generic", "--id-column", "repertoire_id", "--merge-by", "junction", "--locus", "TRB"]
    options += ["--allow-missing", "--group-by", "status", "--target", "status", "--min-length", "6", "--json"]
    result = CliRunner().invoke(check, list(map(str, [cohort / "all.csv", *options, "--keep-nucleotide-clonotypes"])))
    assert result.exit_code == 0, result.output
    done = json.loads(result.output)["preprocessing"]
    assert (done["kept"], done["counts_from"], done["merge"], done["locus"]) == (6, {"n": 6}, "none", "TRB")


def test_help_says_what_an_error_is() -> None:
    output = CliRunner().invoke(check, ["--help"]).output
    assert "An error is what preprocess or train would refuse" in output
    assert "Exit code: 0 without errors, 1 with errors, 2 for wrong usage." in output
    assert all(option.help for option in check.params if option.param_type_name == "option")  # type: ignore[attr-defined]
