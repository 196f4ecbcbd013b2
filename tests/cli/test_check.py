"""`deeprc check` from the command line: exit codes, JSON, and nothing written."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from deeprc.cli.check import check
from deeprc.datasets.preprocessing import preprocess
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
    assert result.output.splitlines()[-1] == "0 errors, 1 warning, 1 note"
    assert sorted(cohort.rglob("*")) == before


def test_exit_code_1_with_an_error(cohort: Path) -> None:
    (cohort / "files" / "r1.tsv").write_bytes(b"\x00\x01\x02")
    result = run(cohort)
    assert result.exit_code == 1
    assert result.output.count("error: unreadable-file: ") == 1
    assert result.output.splitlines()[-1].startswith("1 error, ")


@pytest.mark.parametrize(
    "arguments",
    [["--format", "what"], ["--jobs", "-1"], ["--max-length", "999"]],
)
def test_exit_code_2_for_wrong_usage(cohort: Path, arguments: list[str]) -> None:
    assert run(cohort, *arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--target", "nothing"],
        ["--group-by", "nobody"],
        ["--count-column", "n"],
        ["--metadata", "gone"],
        ["--min-length", "9", "--max-length", "8"],
    ],
)
def test_missing_columns_and_files_are_input_errors(cohort: Path, arguments: list[str]) -> None:
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
    arguments = [str(each) for each in (cohort / "all.csv", *options)]
    result = CliRunner().invoke(check, arguments)
    assert result.exit_code == 0, result.output
    done = json.loads(result.output)["preprocessing"]
    assert (done["kept"], done["counts_from"], done["merge"], done["locus"]) == (6, {"n": 6}, "junction", "TRB")
    refused = CliRunner().invoke(check, [*arguments, "--keep-nucleotide-clonotypes"])
    assert refused.exit_code == 2
    assert "--keep-nucleotide-clonotypes does not merge rows: leave out --merge-by" in refused.output
    arguments.remove("--merge-by")
    arguments.remove("junction")
    result = CliRunner().invoke(check, [*arguments, "--keep-nucleotide-clonotypes"])
    assert json.loads(result.output)["preprocessing"]["merge"] == "none"


def test_help_says_what_an_error_is() -> None:
    output = CliRunner().invoke(check, ["--help"]).output
    assert "An error is what `deeprc preprocess` or `deeprc train` would refuse" in output
    assert "Exit code: 0 without errors, 1 with errors, 2 for wrong usage." in output
    assert all(option.help for option in check.params if option.param_type_name == "option")  # type: ignore[attr-defined]


# -- containers and folders -------------------------------------------------------------------------------------------


@pytest.fixture
def container(cohort: Path) -> Path:
    preprocess([cohort / "files"], cohort / "sheet.tsv", cohort / "cohort.h5")
    return cohort / "cohort.h5"


def test_a_container_is_a_source(container: Path) -> None:
    result = CliRunner().invoke(check, [str(container), "--target", "status"])
    assert result.exit_code == 0, result.output
    assert (
        "small-class: target 'status': fewer than 15 repertoires in 2 classes: 'control' (3), 'case' (3)"
        in result.output
    )


def test_a_container_takes_no_options_of_files(container: Path) -> None:
    given = [str(container), "--metadata", str(container.parent / "sheet.tsv"), "--merge-by", "junction"]
    error = CliRunner().invoke(check, given).exception
    assert isinstance(error, InputError)
    assert str(error).endswith("is a container, which has its own metadata; leave out --merge-by, --metadata")


def test_files_need_a_sheet(cohort: Path) -> None:
    result = CliRunner().invoke(check, [str(cohort / "files")])
    assert result.exit_code == 2
    assert "need --metadata SHEET" in result.output


def test_a_folder_with_the_ending_of_a_container_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.h5").mkdir()
    result = CliRunner().invoke(check, [str(tmp_path / "x.h5")])
    assert result.exit_code == 2
    assert "need --metadata SHEET" in result.output


@pytest.mark.parametrize("ending", [".h5", ".H5", ".HDF5"])
@pytest.mark.parametrize(
    ("n_kept", "reason"),
    [(0, "cannot be read as HDF5 (damaged, cut short, or not a container): "), (-1, "truncated file")],
)
def test_a_container_that_was_cut_short(container: Path, n_kept: int, reason: str, ending: str) -> None:
    container = container.rename(container.with_suffix(ending))
    container.write_bytes(container.read_bytes()[:n_kept])
    error = CliRunner().invoke(check, [str(container)]).exception
    assert isinstance(error, InputError)
    assert str(error).startswith(f"{container}: ")
    assert reason in str(error)


def test_the_kind_of_the_source_is_said_before_its_options(cohort: Path, container: Path) -> None:
    wrong = ["--format", "generic"]  # without --sequence-column
    assert "need --metadata SHEET" in CliRunner().invoke(check, [str(cohort / "files"), *wrong]).output
    error = CliRunner().invoke(check, [str(container), *wrong]).exception
    assert str(error).endswith("is a container, which has its own metadata; leave out --format")


def test_tables_name_options_and_json_names_parameters(
    cohort: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    _, out, _ = deeprc("check", cohort / "files", "--metadata", cohort / "sheet.tsv", "--output", cohort / "found")
    assert "Name what you want to predict with --target.\n" in out
    advice = pd.read_csv(cohort / "found" / "findings.tsv", sep="\t").set_index("code")["advice"]
    assert advice["checked-targets"] == "Name what you want to predict with --target."
    stored = json.loads((cohort / "found" / "check.json").read_text())["findings"]
    assert "Name what you want to predict with `targets`." in [each["advice"] for each in stored]


def test_advice_is_for_the_command_line(cohort: Path, deeprc: Callable[..., tuple[int, str, str]]) -> None:
    """Names are quoted for the shell, options are those that a command has, and what was asked for is not advised."""
    labels = "".join(f"r{number}\tpatient {number // 2}\t{'ab'[number % 2]}\n" for number in range(6))
    (cohort / "sheet.tsv").write_text(f"repertoire_id\tDonor ID\tstatus\n{labels}gone\tnobody\ta\n")
    rows = "my sample\tjunction_aa\tduplicate_count\n1\tCASSF\t1\n2\tCASSF\t1\n"
    (cohort / "files" / "r1.tsv").write_text(rows)
    (cohort / "files" / "r2.tsv").write_text(rows.replace("my sample", "sample"))
    given = ["check", cohort / "files", "--metadata", cohort / "sheet.tsv"]
    _, out, _ = deeprc(*given)
    assert "    -> Train with --group-by 'Donor ID'.\n" in out
    assert "    -> Add the missing files or rows, or leave these out with --allow-missing.\n" in out
    assert (
        "    -> Do what the message says; if a file is damaged, export or copy it again. "
        "`deeprc preprocess` with --skip-bad-files leaves such files out.\n"
    ) in out
    assert out.count("--split-by sample separates them, --split-by none keeps them together") == 2
    assert "skipped 1 file that cannot be read:" in out
    assert "split_by" not in out
    _, out, _ = deeprc(*given, "--allow-missing")
    assert (
        "    -> These are left out, as you asked (--allow-missing). Add what is missing if they belong to the cohort.\n"
    ) in out
    assert "leave these out" not in out


def test_counts_are_said_to_be_those_before_merging(cohort: Path) -> None:
    table = cohort / "files" / "r0.tsv"
    table.write_text(table.read_text() + "s\tCASACASSF\t1\tT\tTRBV2\n")
    assert "\ncounts from (rows before merging): duplicate_count (13)\n" in run(cohort).output


def test_a_folder_holds_everything_and_is_replaced(cohort: Path) -> None:
    table = (cohort / "files" / "r2.tsv").read_text()
    rows = "".join(f"s\tCAS{a}{b}WWF\t{9 + (a == b)}\tT\tTRBV2\n" for a in "ACDEF" for b in "ACDEF")
    for number in (2, 4):
        (cohort / "files" / f"r{number}.tsv").write_text(table + rows + f"s\tCAS{'W' * number}\t1\tT\tTRBV2\n")
    folder = cohort / "found" / "here"
    for _ in range(2):
        result = run(cohort, "--target", "status", "--output", folder)
        assert result.exit_code == 0, result.output
    pairs = pd.read_csv(folder / "similar_pairs.tsv", sep="\t")
    assert pairs["repertoire_id_1"].tolist() == ["r2", "r2"]
    assert pairs["repertoire_id_2"].tolist() == ["r4", "r4"]
    assert pairs["shared"].tolist() == [27, 27]
    assert pairs["compared_1"].tolist() == [28, 28]
    assert pairs["expected_shared"].tolist() == [0.0, 0.0]
    findings = pd.read_csv(folder / "findings.tsv", sep="\t")
    groups = pd.read_csv(folder / "groups.tsv", sep="\t")
    assert groups[["code", "group", "repertoire_id"]].to_numpy().tolist() == [
        ["similar-content", 1, "r2"],
        ["similar-content", 1, "r4"],
    ]
    members = pd.read_csv(folder / "finding_repertoires.tsv", sep="\t").query("code == 'similar-content'")
    assert members["kind"].tolist() == ["repertoire", "repertoire", "file", "file"]
    assert [Path(name).name for name in members["name"]] == ["r2", "r4", "r2.tsv", "r4.tsv"]
    assert set(groups["finding"]) == set(findings.loc[findings["code"] == "similar-content", "finding"])
    document = json.loads((folder / "check.json").read_text())
    assert document["ok"] is True
    assert findings["code"].tolist() == [each["code"] for each in document["findings"]]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["here"]  # nothing hidden is left


def test_an_interruption_between_two_renames_keeps_the_old_folder(
    cohort: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cohort / "found"
    assert run(cohort, "--output", folder).exit_code == 0
    before = (folder / "check.json").read_text()
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    run(cohort, "--output", folder)
    assert (folder / "check.json").read_text() == before


@pytest.mark.parametrize("change", ["another file", "a changed table", "a folder of somebody", "a damaged list"])
def test_nothing_of_a_user_is_replaced(cohort: Path, change: str) -> None:
    folder = cohort / "found"
    if change == "a folder of somebody":
        folder.mkdir()
        (folder / "thesis.txt").write_text("years of work")
    else:
        assert run(cohort, "--output", folder).exit_code == 0
        place = {"another file": "notes.txt", "a changed table": "findings.tsv", "a damaged list": "written.json"}[
            change
        ]
        with (folder / place).open("a") as file:
            file.write("mine")
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*"))}
    result = run(cohort, "--output", folder)
    assert isinstance(result.exception, InputError)
    assert "was not written by `deeprc check`, or was changed since; choose another `output`" in str(result.exception)
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*"))} == before
