import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.cli import main
from deeprc.cli.tables import format_metrics
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.runs.assess import assess_predictor
from deeprc.runs.cross_plan import CrossValidationHeader, write_header
from deeprc.runs.ensemble import load_ensemble
from deeprc.training.checkpoint import load_tensors

SMALL = ["n_updates=20", "evaluate_every=10", "n_kernels=8", "kernel_size=4", "n_sequences=40"]
SMALL += ["composition=false"]  # no test here is about it


@pytest.fixture(scope="module")
def training(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The run of `deeprc train`, and what the command wrote to standard output and to standard error."""
    folder, out, err = tmp_path_factory.mktemp("cli") / "run", io.StringIO(), io.StringIO()
    words = ["train", cohort.container.path, "--target", "status", "--output", folder, "--folds", "3", *SMALL]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert not end.value.code
    return folder, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def run(training: tuple[Path, str, str]) -> Path:
    return training[0]


def test_help_lists_every_command(deeprc: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = deeprc("--help")
    assert code == 0
    for command in ("quickstart", "preprocess", "info", "train", "predict", "evaluate", "attention"):
        assert command in out
        assert deeprc(command, "--help")[0] == 0


def test_train_reports_metrics(training: tuple[Path, str, str]) -> None:
    _, out, err = training
    assert "test" in out
    assert "auc_ci" in out
    assert "\nJudge the model by the rows 'test' and 'new' only. It was fitted to the 'train' repertoires and " in out
    assert "update 20/20" in err
    assert (
        "Note: the network learns no motifs from the 10 validation repertoires, which decide when training stops" in out
    )


def test_predict(
    run: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = deeprc("predict", run, cohort.container.path, "-o", tmp_path / "p.tsv")
    assert code == 0
    assert "30 repertoires" in out
    table, of_run = (pd.read_csv(path, sep="\t", dtype=str) for path in (tmp_path / "p.tsv", run / "predictions.tsv"))
    assert table["repertoire_id"].tolist() == cohort.repertoire_ids.tolist()
    pd.testing.assert_frame_equal(table, of_run.drop(columns="donor"))
    before = (run / "predictions.tsv").read_bytes()
    code, _, err = deeprc("predict", run, cohort.container.path, "-o", run / "predictions.tsv")
    assert code == 2
    assert "holds the predictions of a run or a cross-validation, to which its metrics belong" in err
    assert (run / "predictions.tsv").read_bytes() == before


def test_evaluate(run: Path, cohort: RepertoireDataset, deeprc: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = deeprc("evaluate", run, cohort.container.path, "--json")
    assert code == 0
    found = json.loads(out)
    assert found.pop("warnings") == json.loads((run / "warnings.json").read_text())["warnings"]
    assert found == json.loads((run / "metrics.json").read_text())
    assert "balanced_accuracy" in deeprc("evaluate", run, cohort.container.path)[1]


def test_a_small_p_value_is_not_zero() -> None:
    control = {"control": "size", "auc": 0.4, "auc_ci": None, "difference": 0.5, "p_value": 1e-5}
    assert "<0.001" in format_metrics({"test": {"t": {"n": 9, "auc": 0.9, "controls": [control]}}})


def copy_runs(run: Path, folder: Path, names: str, *, n_updates: int | None = None) -> Path:
    """Copy a run several times into one folder, the last one perhaps with another `n_updates`."""
    for name in names.split():
        shutil.copytree(run, folder / name)
    if n_updates is not None:
        file = folder / name / "config.yaml"
        file.write_text(re.sub("n_updates: .*", f"n_updates: {n_updates}", file.read_text()))
    return folder


@pytest.mark.parametrize("kind", ["runs of one command", "cross-validation"])
def test_a_folder_of_runs_stands_for_its_runs(
    run: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]], kind: str
) -> None:
    folder = runs = tmp_path / "several"
    names = ["fold-0", "fold-1"]
    if kind == "cross-validation":
        runs, names = folder / "runs", ["repeat-0-fold-0-validation-1", "repeat-0-fold-1-validation-0"]
        header = CrossValidationHeader("cohort.h5", ("status",), folds=2, repeats=1, members=1, group_by=None, seed=0)
        write_header(folder, header)
    copy_runs(run, runs, " ".join(names))
    code, _, err = deeprc("predict", folder, cohort.container.path, "-o", tmp_path / "p.tsv")
    assert code == 0
    note = f"Note: {folder}: its 2 runs predict together, by the mean of their outputs: {', '.join(names)}\n"
    assert note in err
    code, _, err = deeprc("predict", *(runs / name for name in names), cohort.container.path, "-o", tmp_path / "q.tsv")
    assert code == 0
    assert "predict together" not in err
    assert (tmp_path / "p.tsv").read_bytes() == (tmp_path / "q.tsv").read_bytes()
    found, expected = (
        deeprc("evaluate", *paths, cohort.container.path)[1] for paths in ([folder], sorted(runs.iterdir()))
    )
    assert found == expected
    code, _, err = deeprc("plot", "history", folder, "-o", tmp_path / "p.png")
    assert code == 2
    assert "2 runs: each has a history of its own; give one" in err


def test_runs_in_a_folder_that_differ_must_be_named(
    run: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    folder = copy_runs(run, tmp_path / "several", "one two", n_updates=7)
    code, _, err = deeprc("predict", folder, cohort.container.path, "-o", tmp_path / "p.tsv")
    assert code == 2
    assert err.splitlines()[-1] == (
        f"Error: {folder}: holds several runs, and one and two were trained with different settings (n_updates); "
        f"give the runs that are to predict together, such as {folder}/one"
    )


@pytest.mark.slow
def test_several_runs_predict_together(
    run: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    container, second = cohort.container.path, tmp_path / "second"
    options = ["--target", "status", "--output", second, "--folds", 3, "--validation-fold", 2]
    assert deeprc("train", container, *SMALL, *options)[0] == 0
    code, out, _ = deeprc("predict", run, second, container, "-o", tmp_path / "p.tsv")
    assert code == 0
    assert "30 predictions for 30 repertoires" in out
    files = [tmp_path / "p.tsv", run / "predictions.tsv", second / "predictions.tsv"]
    table, *members = (pd.read_csv(file, sep="\t") for file in files)
    odds = sum(np.log(member["probability"] / (1 - member["probability"])) for member in members) / 2
    # near the mean of the calibrated log-odds; exactly, it is the mean calibration of the mean output
    np.testing.assert_allclose(table["probability"], 1 / (1 + np.exp(-odds)), atol=0.02)

    code, out, _ = deeprc("evaluate", run, second, container, "--json")
    assert code == 0
    told = json.loads(out)
    assert {side: told[side]["status"]["n"] for side in told if side != "warnings"} == {"train": 20, "test": 10}
    assert told == assess_predictor(load_ensemble([run, second], device="cpu"), cohort).to_dict()

    code, _, err = deeprc("predict", run, run, container, "-o", tmp_path / "q.tsv")
    assert (code, err.count("\n")) == (2, 1)
    assert "is given twice" in err
    assert not (tmp_path / "q.tsv").exists()
    code, _, err = deeprc("evaluate", container)
    assert code == 2
    assert f"expected a RUN before the CONTAINER {container}" in err


def test_attention(
    run: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = deeprc("attention", run, cohort.container.path, "-o", tmp_path / "a.tsv.gz")
    assert code == 0
    table = pd.read_csv(tmp_path / "a.tsv.gz", sep="\t")
    assert len(table) == int(cohort.n_sequences.sum())
    assert table.groupby("repertoire_id")["attention_weight"].sum().to_numpy() == pytest.approx(1, abs=1e-6)
    heads = pd.read_csv(tmp_path / "a.heads.tsv", sep="\t")
    assert heads["repertoire_id"].tolist() == list(cohort.repertoire_ids)
    for row, (_, weights) in zip(heads.itertuples(), table.groupby("repertoire_id", sort=False), strict=True):
        largest = weights["attention_weight"].sort_values(ascending=False).cumsum()
        assert row.metastable_size == (largest < 0.9).sum() + 1
        assert row.n_sequences == len(weights)
        share = row.metastable_size / row.n_sequences
        expected = "I" if share > 1 / 2 else "II" if share > 1 / 8 else "III" if share > 1 / 32 else "IV"
        assert row.operating_class == expected
    assert f"head 1: 90% of the attention is on {heads['metastable_size'].median():.0f} sequences" in out
    deeprc(
        "attention",
        run,
        cohort.container.path,
        "-o",
        tmp_path / "b.tsv",
        "--top",
        3,
        "--by",
        "attention",
        "--repertoire",
        "rep.4",
    )
    few = pd.read_csv(tmp_path / "b.tsv", sep="\t")
    assert few["repertoire_id"].tolist() == ["rep.4"] * 3
    assert few["attention_rank"].tolist() == [1, 2, 3]
    of_one = pd.read_csv(tmp_path / "b.heads.tsv", sep="\t")  # of all its sequences, not of the top
    assert of_one.equals(heads[heads["repertoire_id"] == "rep.4"].reset_index(drop=True))


def test_the_class_of_attention_orders_sequences_and_changes_no_number(
    run: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    tables, outs = {}, {}
    for name in ("healthy", "case"):
        file = tmp_path / f"{name}.tsv"
        options = ("--top-overall", 100_000, "--by", "contribution", "--class", name)
        code, outs[name], _ = deeprc("attention", run, cohort.container.path, "-o", file, *options)
        assert code == 0
        tables[name] = pd.read_csv(file, sep="\t").set_index(["repertoire_id", "sequence_id"])
    assert tables["case"]["contribution"].is_monotonic_decreasing
    assert tables["healthy"]["contribution"].is_monotonic_increasing
    assert tables["healthy"]["contribution"].sort_index().equals(tables["case"]["contribution"].sort_index())
    line = f"In {tmp_path / 'healthy.tsv'}, negative contributions and responses are evidence for 'healthy': "
    assert f"{line}--class changes the order of the rows only\n" in outs["healthy"]
    assert "count for" not in outs["case"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "{c}", "--output", "{t}/x"], "no target was given; expected --target COLUMN, one of: status"),
        (["train", "{c}", "--target", "CMV", "--output", "{t}/x"], "no metadata column 'CMV'"),
        (
            ["train", "{c}", "--target", "status=ill", "--output", "{t}/x"],
            "no class 'ill'; its classes: case (15), healthy (15)",
        ),
        (["train", "{c}", "--target", "status"], "expected a CONTAINER and --output FOLDER"),
        (["train", "n_updates=3", "--target", "status", "--output", "{t}/x"], "expected a CONTAINER before"),
        (["train", "{c}", "--target", "status", "--output", "{t}/x", "n_update=3"], "did you mean 'n_updates'?"),
        (["train", "{c}", "--target", "status", "--output", "{t}/x", "--device", "tpu"], "--device tpu: not available"),
        (["train", "{t}/no.h5", "--target", "status", "--output", "{t}/x"], "no.h5: no such file"),
        (
            ["train", "{c}", "--target", "status", "--output", "{t}/x", "--validation-fold", "0"],
            "--validation-fold 0: expected a fold from 0 to 4 other than --fold 0",
        ),
        (["check", "{t}/no.h5"], "{t}/no.h5: no such file or folder"),
        (["train", "--resume", "{t}"], "is not a run directory"),
        (["train", "--resume", "{r}"], "training has ended"),
        (["train", "--resume", "{r}", "--target", "status"], "--resume continues a run with its own settings"),
        (["train", "{c}", "--target", "status", "--output", "{c}/x"], "cannot be made, {c} is not a folder"),
        (["quickstart", "--output", "{c}"], "exists already"),
        (
            ["train", "{c}", "--target", "status", "--output", "{t}/x", "--device", "meta"],
            "--device meta: not available",
        ),
        (["predict", "{t}", "{c}", "-o", "{t}/p.tsv"], "is not a run directory"),
        (["predict", "{r}", "{t}", "-o", "{t}/p.tsv"], "{t}: is a folder; expected a container"),
        (["predict", "{r}", "{t}/cut.h5", "-o", "{t}/p.tsv"], "cut.h5: cannot be read as HDF5"),
        (["attention", "{r}", "{c}", "-o", "{t}/a.tsv", "--repertoire", "rep.99"], "no repertoire 'rep.99'"),
        (["attention", "{r}", "{c}", "-o", "{t}/no/a.tsv"], "/no does not exist"),
        (["predict", "{r}", "{c}", "-o", "{t}/no/p.tsv"], "/no does not exist"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    run: Path,
    cohort: RepertoireDataset,
    tmp_path: Path,
    deeprc: Callable[..., tuple[int, str, str]],
) -> None:
    whole = cohort.container.path.read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    places = {"c": cohort.container.path, "t": tmp_path, "r": run}
    code, out, err = deeprc(*(argument.format(**places) for argument in arguments))
    assert code == 2
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert message.format(**places) in err
    assert [path.name for path in tmp_path.iterdir()] == ["cut.h5"]


def test_nothing_of_the_users_is_overwritten(
    run: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    sheet, source = tmp_path / "sheet.tsv", tmp_path / "a.tsv"
    sheet.write_text("repertoire_id\na\n")
    source.write_text("amino_acid\ttemplates\nCASSF\t1\n")
    for output in (sheet, source):
        code, _, err = deeprc("preprocess", source, "--metadata", sheet, "--output", output)
        assert (code, "exists and is not a container" in err) == (2, True)
    for command in ("predict", "attention"):
        for output in (sheet, source, cohort.container.path):
            code, _, err = deeprc(command, run, cohort.container.path, "-o", output)
            assert (code, "exists and is not a table of this kind" in err) == (2, True)
        assert deeprc(command, run, cohort.container.path, "-o", tmp_path)[0] == 2
        assert deeprc(command, run, cohort.container.path, "-o", tmp_path / command)[0] == 0
        assert deeprc(command, run, cohort.container.path, "-o", tmp_path / command)[0] == 0
    mine = tmp_path / "b.heads.tsv"
    mine.write_text("my\tnotes\n")
    code, _, err = deeprc("attention", run, cohort.container.path, "-o", tmp_path / "b.tsv.gz")
    assert (code, "b.heads.tsv: exists and is not a table of this kind" in err) == (2, True)
    mine.unlink()
    assert sheet.read_text() == "repertoire_id\na\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.tsv",
        "attention",
        "attention.heads.tsv",
        "predict",
        "sheet.tsv",
    ]


def test_metrics_are_written_as_json(
    run: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    output = tmp_path / "metrics.json"
    code, out, _ = deeprc("evaluate", run, cohort.container.path, "-o", output, "--json")
    assert code == 0
    assert json.loads(output.read_text()) == json.loads(out)
    code, _, error = deeprc("evaluate", run, cohort.container.path, "-o", output)
    assert (code, "exists already; choose another --output" in error) == (2, True)


COMMANDS = [
    ["predict", "RUN", "COHORT", "-o", "a.tsv"],
    ["attention", "RUN", "COHORT", "-o", "a.tsv"],
    ["attention", "RUN", "COHORT", "-o", "a.tsv.gz"],
    ["plot", "roc", "RUN", "-o", "a.png"],
    ["train", "COHORT", "--target", "status", "--output", "a", "--folds", "3", *SMALL],
    ["benchmark", "COHORT", "--target", "status", "--methods", "repertoire-size", "--jobs", "1", "-o", "a"],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_said_in_one_line(
    command: list[str],
    run: Path,
    cohort: RepertoireDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deeprc: Callable[..., tuple[int, str, str]],
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the limit would cut off the file of a module
    files = {"RUN": str(run), "COHORT": str(cohort.container.path)}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        code, out, err = deeprc(*(files.get(word, word) for word in command))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, out) == (2, "")
    name = command[-1] if command[-2] in ("-o", "--output") else "a"
    (line,) = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert re.fullmatch(rf"Error: {re.escape(name)}[\w./-]*: cannot be written: File too large", line)
    assert "Traceback" not in err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("lock", "folds.tsv")]


@pytest.mark.parametrize("command", [*COMMANDS[:2], ["preprocess", "a", "--metadata", "b", "-o", "a"]])
@pytest.mark.parametrize("output", ["/dev/null", "/dev/stdout", "pipe"])
def test_a_device_or_a_pipe_is_no_output(
    command: list[str],
    output: str,
    run: Path,
    cohort: RepertoireDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deeprc: Callable[..., tuple[int, str, str]],
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    files = {"RUN": str(run), "COHORT": str(cohort.container.path)}
    found = deeprc(*(files.get(word, word) for word in command[:-1]), output)
    assert found == (2, "", f"Error: {output}: is a device or a pipe; expected the name of a file to write\n")
    assert Path("pipe").is_fifo()


@pytest.mark.parametrize("options", [["--seed", "3"], ["n_updates=9"], ["--folds", "3"], ["--device", "cpu"]])
def test_resume_takes_no_other_option(
    options: list[str], run: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, err = deeprc("train", "--resume", run, *options)
    assert code == 2
    assert "--resume continues a run with its own settings" in err


_READS_FOR_EVER = """
import pathlib, time
from deeprc.cli import main
from deeprc.datasets import appending

def read(_):
    pathlib.Path("reading").touch()
    time.sleep(600)

appending.read_file = read
main()
"""


@pytest.mark.slow
def test_a_terminated_preprocess_leaves_nothing(tmp_path: Path) -> None:
    """It is terminated while it reads the first file."""
    (tmp_path / "a.tsv").write_text("amino_acid\ttemplates\nCASSLGQGNTEAFF\t1\n")
    (tmp_path / "sheet.tsv").write_text("repertoire_id\na\n")
    before = sorted(tmp_path.iterdir())
    command = ["preprocess", str(tmp_path / "a.tsv"), "--metadata", str(tmp_path / "sheet.tsv"), "--jobs", "1"]
    command += ["-o", str(tmp_path / "o.h5")]
    process = subprocess.Popen([sys.executable, "-c", _READS_FOR_EVER, *command], cwd=tmp_path)
    while not (tmp_path / "reading").exists():
        assert process.poll() is None
        time.sleep(0.005)
    (tmp_path / "reading").unlink()
    assert sorted(tmp_path.iterdir()) != before
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert sorted(tmp_path.iterdir()) == before


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deeprc", "info", str(tmp_path / "no.h5"), "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" in done.stderr
    assert "InputError" in done.stderr


_TRAINS_FOR_EVER = """
import time
from deeprc.cli import main
from deeprc.training.trainer import Trainer

update = Trainer._make_update

def update_or_wait(trainer, batches, number):
    if number == 90:
        time.sleep(600)
    return update(trainer, batches, number)

Trainer._make_update = update_or_wait
main()
"""


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_numbers(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    path = str(cohort_factory(30, 500).container.path)
    settings = ["n_updates=160", "evaluate_every=20", "patience=null", "n_kernels=32", "top_fraction=1"]
    train = ["train", path, "--target", "status", "--device", "cpu", *settings]
    assert deeprc(*train, "--output", tmp_path / "whole")[0] == 0
    command = [sys.executable, "-c", _TRAINS_FOR_EVER, *train, "--output", str(tmp_path / "cut")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    checkpoint = tmp_path / "cut" / "checkpoint" / "last.safetensors"
    n_updates = 0
    while n_updates < 80:
        assert process.poll() is None
        time.sleep(0.005)
        with contextlib.suppress(InputError):  # there is none yet
            n_updates = load_tensors(checkpoint)[1]["update"]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "cut" / "metrics.json").exists()
    assert load_tensors(checkpoint)[1]["update"] == 80
    assert deeprc("train", "--resume", tmp_path / "cut")[0] == 0
    for name in ("metrics.json", "predictions.tsv"):
        assert (tmp_path / "cut" / name).read_text() == (tmp_path / "whole" / name).read_text()
    assert not checkpoint.parent.exists()


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr("deeprc.datasets.dataset.RepertoireDataset", fail)
    with pytest.raises(SystemExit) as end:
        main(["info", "c.h5"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "Error: not enough memory: Unable to allocate 9 TiB\n"
