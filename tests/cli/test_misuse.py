"""Mistakes at the command line: what may be meant instead is said."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deeprc.cli import main
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError

Call = Callable[..., tuple[int, str, str]]
needs_shell = pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
_QUOTES = "put the whole name in quotes, as in --group-by 'Donor ID'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["traim", "c.h5"], "No such command 'traim'; did you mean 'train'?"),
        (["xyzzy"], "No such command 'xyzzy'."),
        (
            ["train", "c.h5", "--jobs", "2"],
            "No such option '--jobs'. Commands with this option: check, preprocess, cv, ",
        ),
        (
            ["train", "c.h5", "--n_updates", "2"],
            "No such option '--n_updates'. n_updates is a setting: write n_updates=",
        ),
        (["train", "c.h5", "--group_by", "x"], "No such option '--group_by'; did you mean '--group-by'?"),
        (
            ["train", "c.h5", "--n-updates", "2"],
            "No such option '--n-updates'. n_updates is a setting: write n_updates=V",
        ),
        (["train", "c.h5", "--targt", "x"], "No such option '--targt'; did you mean '--target'?"),
        (
            ["stack", "fit", "c.h5", "--repeats", "2"],
            "No such option '--repeats'. Commands with this option: cv",
        ),
        (["stack", "fit", "c.h5", "--method", "svm"], "No such option '--method'; did you mean '--methods'?"),
        (["train", "c.h5", "--targets", "x"], "No such option '--targets'; did you mean '--target'?"),
        (["train", "c.h5", "--val", "1"], "No such option '--val'; did you mean '--validation-fold'?"),
        (["predict", "c.h5", "-x"], "No such option '-x'."),
        (
            ["train", "c.h5", "n_updates", "200"],
            "'n_updates': expected KEY=VALUE, without blanks, as in n_updates=5000",
        ),
        (
            ["train", "c.h5", "--target", "Cell", "type=cd4"],
            "'type=cd4': no setting has the name 'type'; if it belongs",
        ),
        (["train", "c.h5", "--group-by", "Donor", "ID"], _QUOTES),
        (
            ["cv", "c.h5", "--target", "x", "--output", "o", "seed=3"],
            "seed is not a setting of the configuration, but an ",
        ),
        (["train", "none.h5", "--target", "x", "--output", "o"], "none.h5: no such file"),
        (["predict", "run", "-o", "a.tsv"], "expected a CONTAINER after run"),
        (["predict", "-o", "a.tsv"], "expected RUN... CONTAINER: at least one run, and then a container"),
    ],
)
def test_an_unknown_option_gets_a_suggestion(deeprc: Call, arguments: list[str], message: str) -> None:
    code, _, error = deeprc(*arguments)
    assert code == 2
    assert message in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "", "c.h5", "-o", "a.tsv"],
        ["predict", "run", "", "-o", "a.tsv"],
        ["evaluate", "run", "", "c.h5"],
        ["plot", "roc", "", "-o", "a.png"],
        ["plot", "cohort", "run", "", "-o", "a.png"],
        ["report", "", "c.h5", "-o", "a.html"],
    ],
)
def test_an_empty_path_is_not_the_working_directory(deeprc: Call, arguments: list[str]) -> None:
    code, _, error = deeprc(*arguments)
    assert code == 2
    assert "expected a path, found an empty argument '', such as a shell variable without a value" in error


@pytest.mark.parametrize("arguments", [["report"], ["plot", "genes"]])
def test_a_container_comes_after_the_folder_of_a_run(
    deeprc: Call, arguments: list[str], cohort: RepertoireDataset, tmp_path: Path
) -> None:
    path, output = cohort.container.path, tmp_path / "a.png"
    code, _, error = deeprc(*arguments, path, tmp_path, "-o", output)
    assert (code, f"but {path} is a container; give it last" in error) == (2, True)
    assert not output.exists()


@pytest.mark.parametrize("command", ["predict", "attention", "evaluate"])
def test_a_container_comes_last(deeprc: Call, command: str, cohort: RepertoireDataset, tmp_path: Path) -> None:
    path, output = cohort.container.path, tmp_path / "a.tsv"
    code, _, error = deeprc(command, path, "run", "-o", output)
    assert (code, f"but {path} is a container; give it last" in error) == (2, True)
    code, _, error = deeprc(command, path, "-o", output)
    assert (code, f"expected a RUN before the CONTAINER {path}" in error) == (2, True)
    assert not output.exists()


@pytest.mark.parametrize("name", ["a.csv", "a.XLSX", "a.h5", "a.csv.gz"])
def test_a_table_is_no_file_of_another_kind(deeprc: Call, name: str, cohort: RepertoireDataset, tmp_path: Path) -> None:
    code, _, error = deeprc("predict", "run", cohort.container.path, "-o", tmp_path / name)
    ending = Path(name.removesuffix(".gz")).suffix
    message = f"{name}: --output is a tab-separated table; expected a name that ends in .tsv, not {ending}"
    assert (code, message in error) == (2, True)


def test_subcommands_show_tracebacks_too(deeprc: Call) -> None:
    """Python shows the traceback of an error that `main` lets through: `test_debug_shows_the_traceback`."""
    for arguments in (("simulate", "none", "-o", "a.h5"), ("stack", "predict", "none", "none", "-o", "a.tsv")):
        assert deeprc(*arguments)[0] == 2
        with pytest.raises(InputError):
            main([*arguments, "--debug"])


def test_letters_that_the_output_cannot_show_are_escaped() -> None:
    code = "from deeprc.cli import prepare_process\nprepare_process()\nprint('\\u03b2')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONIOENCODING": "ascii", "PATH": ""}, capture_output=True, check=False
    )
    assert done.stdout.strip() == b"\\u03b2"


@needs_shell
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_shell_has_closed(closed: str) -> None:
    code = "import os; from deeprc.cli import main; main(['config', *os.environ['MORE'].split()])"
    script = f'"{sys.executable}" -c "{code}" {closed}'
    for more, expected in (("", 0), ("nothing", 2)):
        environment = {**os.environ, "MORE": more}
        done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == expected
        assert "Traceback" not in done.stderr
        assert bool(done.stdout) == (expected == 0 and closed in ("<&-", "2>&-"))
        assert bool(done.stderr) == (expected == 2 and closed in ("<&-", ">&-"))


@needs_shell
def test_closed_streams_leave_their_numbers_to_no_other_file(tmp_path: Path) -> None:
    code = "import os; from deeprc.cli import prepare_process; prepare_process(); os._exit(os.open('a', os.O_CREAT))"
    done = subprocess.run(["sh", "-c", f'"{sys.executable}" -c "{code}" <&- >&- 2>&-'], cwd=tmp_path, check=False)
    assert done.returncode > 2


def test_faults_of_several_files_are_one_line_each(deeprc: Call, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name, count in (("a", "x"), ("b", "1"), ("c d", "y")):
        (tmp_path / "files" / f"{name}.tsv").write_text(f"junction_aa\tduplicate_count\nCASSF\t{count}\n")
    (tmp_path / "sheet.tsv").write_text("ID\na\nb\nc d\n")
    arguments = ["preprocess", tmp_path / "files", "--metadata", tmp_path / "sheet.tsv", "-o", tmp_path / "c.h5"]
    code, _, error = deeprc(*arguments)
    expected = "row 2, column 'duplicate_count': expected a number from 0 to 4294967295, or nothing; found"
    assert code == 2
    assert error.splitlines() == [
        "Error: 2 of 3 files cannot be used:",
        f"(1) {tmp_path}/files/a.tsv: {expected} 'x';",
        f"(2) {tmp_path}/files/c d.tsv: {expected} 'y'.",
        "--skip-bad-files leaves out files with faults",
    ]
    assert not (tmp_path / "c.h5").exists()


def test_the_name_of_a_file_adds_no_line(deeprc: Call, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "sheet.tsv").write_text("ID\na\nb\nc\n")
    for name, text in (("a", "abc"), ("b", "x"), ("c", "1")):
        path = tmp_path / "files" / f"{name}\nError: all files were deleted.tsv"
        path.write_text(f"repertoire_id\tjunction_aa\tduplicate_count\n{name}\tCASSF\t{text}\n")
    arguments = ["preprocess", tmp_path / "files", "--metadata", tmp_path / "sheet.tsv", "-o", tmp_path / "c.h5"]
    shown = (
        f"{tmp_path}/files/%s Error: all files were deleted.tsv: row 2, column 'duplicate_count': "
        "expected a number from 0 to 4294967295, or nothing; found"
    )
    code, _, error = deeprc(*arguments)
    assert code == 2
    assert error.splitlines() == [
        "Error: 2 of 3 files cannot be used:",
        f"(1) {shown % 'a'} 'abc';",
        f"(2) {shown % 'b'} 'x'.",
        "--skip-bad-files leaves out files with faults",
    ]
    path = tmp_path / "files" / "b\nError: all files were deleted.tsv"
    path.write_text(path.read_text().replace("\tx", "\t1"))
    code, _, error = deeprc(*arguments)
    assert (code, error) == (2, f"Error: {shown % 'a'} 'abc'. --skip-bad-files leaves out files with faults\n")


@pytest.mark.parametrize("command", ["train", "cv", "benchmark"])
@pytest.mark.parametrize("text", ["", " ", ",", '"', '""', "a\rb"])
def test_a_list_of_columns_without_a_name_is_refused(
    deeprc: Callable[..., tuple[int, str, str]], command: str, text: str
) -> None:
    code, _, errors = deeprc(command, "c.h5", "--target", "status", "--output", "o", "--adjust-for", text)
    assert code == 2
    assert errors.endswith(f"Invalid value for '--adjust-for': expected names of columns, found {text!r}\n")


@pytest.mark.parametrize(("is_used_up", "kind"), [(False, "Warning"), (True, "Error")])
def test_a_container_that_is_changed_in_place_meanwhile_is_named(
    deeprc: Call,
    cohort_factory: Callable[..., RepertoireDataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_used_up: bool,
    kind: str,
) -> None:
    """Its memory maps show the change, so results may be of both contents."""
    path = Path(shutil.copy(cohort_factory(6, 5).container.path, tmp_path / "c.h5"))

    def summarise(dataset: RepertoireDataset) -> dict[str, object]:
        os.utime(path, ns=(1, 1))
        if is_used_up:
            raise IndexError
        return {}

    monkeypatch.setattr("deeprc.datasets.summary.summarise", summarise)
    code, _, err = deeprc("info", str(path), "--json")
    assert (code, err) == (2 * is_used_up, f"{kind}: {path}: was changed while it was read; repeat the command\n")


def test_a_container_that_is_replaced_meanwhile_is_none(
    deeprc: Call, cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(cohort_factory(6, 5).container.path, tmp_path / "c.h5"))

    def summarise(dataset: RepertoireDataset) -> dict[str, object]:
        shutil.copy(path, tmp_path / "new")
        (tmp_path / "new").replace(path)
        return {}

    monkeypatch.setattr("deeprc.datasets.summary.summarise", summarise)
    code, _, err = deeprc("info", str(path), "--json")
    assert (code, err) == (0, "")
