import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.registry import METHODS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.threads import count_cores

Deeprc = Callable[..., tuple[int, str, str]]
TOYS = Path(__file__).parents[1] / "toys"


NOISE, MOTIF, BROKEN = (f"{name}=toy_methods:{name.capitalize()}" for name in ("noise", "motif", "broken"))


@pytest.fixture
def toys(toys: ModuleType, no_pictures: None) -> ModuleType:
    """The module `toy_methods`, without curves."""
    return toys


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    """Search spaces of four methods, three of which note their fits in the file `log`."""
    log = str(tmp_path / "log")
    body = {
        "noise": {"estimator": "toy_methods:Noise", "fixed": {"log": log}, "search": {"salt": [1, 2, 3]}},
        "broken": {"estimator": "toy_methods:Broken", "fixed": {"log": log}},
        "path": {"estimator": "toy_methods:PathNoise", "fixed": {"log": log}, "search": {"salt": {"from": 1, "to": 9}}},
        "motif": {"estimator": "toy_methods:Motif", "label": "Counts WWHW"},
    }
    (tmp_path / "preset.yaml").write_text(yaml.safe_dump(body))
    return tmp_path / "preset.yaml"


@pytest.fixture
def arguments(cohort: RepertoireDataset, preset: Path) -> list[str]:
    """The start of a call that compares methods of the preset in three folds."""
    path = str(cohort.container.path)
    return ["benchmark", path, "--target", "status=case", "--folds", "3", "--preset", str(preset)]


def predictions(folder: Path) -> pd.DataFrame:
    """What the final jobs' files say, by method and repertoire."""
    rows = []
    for path in folder.rglob("final-*.json"):
        body = json.loads(path.read_text())
        test = body["outcome"]["test"]
        rows += [(body["method"], *each) for each in zip(test["repertoire_id"], test["score"], strict=True)]
    return pd.DataFrame(rows, columns=["method", "repertoire_id", "score"]).sort_values(["method", "repertoire_id"])


def test_list_shows_every_method_and_needs_nothing_else(deeprc: Deeprc) -> None:
    code, out, err = deeprc("benchmark", "--list")
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert list(lines) == list(METHODS)
    for name, method in METHODS.items():
        assert method.label in lines[name]
        assert ("control method: sees no amino-acid sequence" in lines[name]) == (method.kind == "control")
        assert ("knows what was simulated" in lines[name]) == (method.kind == "truth")


def test_a_comparison(toys: ModuleType, arguments: list[str], deeprc: Deeprc, tmp_path: Path) -> None:
    out_folder = tmp_path / "out"
    code, out, err = deeprc(*arguments, "--methods", f"{MOTIF},{NOISE}", "-o", out_folder)
    assert code == 0
    assert "Counts WWHW" in out
    assert out.endswith(f"Wrote {out_folder}\n")
    assert "Traceback" not in err
    found = predictions(out_folder)
    assert found.groupby("method").size().to_dict() == {"motif": 30, "noise": 30}
    assert deeprc(*arguments, "--method", MOTIF, "--method", NOISE, "-o", tmp_path / "other")[0] == 0
    pd.testing.assert_frame_equal(predictions(tmp_path / "other"), found)
    fits = len(toys.read_log(tmp_path / "log"))
    code, _, err = deeprc(*arguments, "--methods", MOTIF, "-o", out_folder, "--resume")
    assert (code, err.count("\n")) == (2, 1)  # the folder's file does not make it import what the command does not name
    assert f"was started with --methods {NOISE}; code is run only where the call names it: give it again" in err
    code, resumed, _ = deeprc(*arguments, "--methods", f"{MOTIF},{NOISE}", "-o", out_folder, "--resume")
    assert (code, resumed) == (0, out)
    assert len(toys.read_log(tmp_path / "log")) == fits
    assert "exists already; continue it with --resume" in deeprc(*arguments, "--methods", MOTIF, "-o", out_folder)[2]


@pytest.mark.slow
def test_a_class_of_ones_own_from_the_working_directory(
    arguments: list[str], deeprc: Deeprc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code_of = (TOYS / "toy_methods.py").read_text()
    (tmp_path / "of_my_own.py").write_text(code_of)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    code, out, _ = deeprc(*arguments[:-2], "--method", "of_my_own:Motif", "-o", "out")
    assert code == 0
    assert "Motif" in out
    (name,) = yaml.safe_load((tmp_path / "out" / "benchmark.yaml").read_text())["methods"]
    assert name == "Motif"


@pytest.mark.slow
def test_a_failed_method_gives_exit_code_1(
    toys: ModuleType, arguments: list[str], deeprc: Deeprc, tmp_path: Path
) -> None:
    (tmp_path / "log.broken").write_text("rep.0")
    code, out, err = deeprc(*arguments, "--methods", f"{BROKEN},{MOTIF}", "-o", tmp_path / "out")
    assert code == 1
    assert err.count("broken failed: fold ") == 1
    assert "RuntimeError: it does not work" in err
    assert "Traceback" not in err
    assert f"Wrote {tmp_path / 'out'}" in out
    assert set(predictions(tmp_path / "out")["method"]) == {"broken", "motif"}  # in the other folds it did not fail
    (tmp_path / "log.broken").unlink()
    assert deeprc(*arguments, "--methods", f"{BROKEN},{MOTIF}", "-o", tmp_path / "out", "--resume")[0] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--target", "CMV"], "no metadata column 'CMV'"),
        (["--target", "grade"], "target 'grade' has 3 classes"),
        (["--target", "age:regression"], "--methods noise=toy_methods:Noise: it is not a regressor; 'age' is a number"),
        (["--methods", "nois"], "no method 'nois'; did you mean 'noise'?"),
        (["--methods", "toy_methods:Nothing"], "toy_methods:Nothing: the module toy_methods has no 'Nothing'"),
        (["--methods", "toy_methods:NeedsMore"], "--methods toy_methods:NeedsMore: needs the moon's phase"),
        (["--methods", ","], "no method was given"),
        (["--preset", "slow"], "--preset slow: neither a file nor one of paper, quick"),
        (["--folds", "1"], "--folds 1: expected at least 3"),
        (["--folds", "-3"], "--folds -3: expected at least 3"),
        (["--folds", "--3"], "--3: no such file"),
        (["--folds", "²"], "²: no such file"),
        (["--folds", "16"], "the smallest class has 15 repertoires; expected at least 16"),
        (["--group-by", "donor"], "no column 'donor' for --group-by"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler tcp://127.0.0.1:1: "),
        (["--output", "{c}/x"], "cannot be made, {c} is not a folder"),
        (["--output", "{t}"], "exists already; choose another --output"),
        (["--output", "{t}", "--resume"], "exists already; choose another --output"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    changes: list[str],
    message: str,
    toys: ModuleType,
    cohort: RepertoireDataset,
    arguments: list[str],
    deeprc: Deeprc,
    tmp_path: Path,
) -> None:
    places = {"c": cohort.container.path, "t": tmp_path}
    before = sorted(tmp_path.iterdir())
    given = [*arguments, "--methods", NOISE, "--output", str(tmp_path / "out")]
    if changes[0] == "--methods":
        given = [*arguments, "--output", str(tmp_path / "out")]
    code, out, err = deeprc(*given, *(each.format(**places) for each in changes))
    assert code == 2
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert message.format(**places) in err
    assert sorted(tmp_path.iterdir()) == before


def test_output_and_a_container_are_needed(arguments: list[str], deeprc: Deeprc, tmp_path: Path) -> None:
    code, _, err = deeprc(*arguments)
    assert (code, err) == (2, "Error: expected --output FOLDER\n")
    code, _, err = deeprc("benchmark", tmp_path / "no.h5", "--target", "x", "--methods", "deeprc", "-o", tmp_path / "o")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"Error: {tmp_path / 'no.h5'}: no such file")
    assert not (tmp_path / "o").exists()


def test_options_reach_the_harness(
    cohort: RepertoireDataset, deeprc: Deeprc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    class Result:
        table = "the table"
        failures: dict[str, str] = {}  # noqa: RUF012

    def compare(container: str, **options: Any) -> Result:
        calls.append({"container": container, **options})
        return Result()

    monkeypatch.setattr("deeprc.benchmarking.harness.benchmark", compare)
    code, out, _ = deeprc("benchmark", "c.h5", "--target", "a=b", "-o", "o")
    assert (code, out) == (0, "the table\nWrote o\n")
    default = {
        "container": "c.h5",
        "target": "a=b",
        "methods": ["all"],
        "output": "o",
        "options": BenchmarkOptions(),
        "resume": False,
    }
    options = [
        "--methods",
        "a,b",
        "--method",
        "c",
        "--preset",
        "paper",
        "--folds",
        "f.tsv",
        "--seed",
        "3",
        "--jobs",
        "0",
    ]
    deeprc(
        "benchmark", "c.h5", "--target", "a=b", "-o", "o", *options, "--group-by", "g", "--resume", "--scheduler", "s"
    )
    for call in calls:
        assert call.pop("progress") is not None
    assert calls[0] == default
    assert calls[1] == {
        **default,
        "methods": ["a", "b", "c"],
        "options": BenchmarkOptions(
            preset="paper", folds="f.tsv", seed=3, jobs=count_cores(), group_by="g", scheduler="s"
        ),
        "resume": True,
    }


@pytest.mark.slow
def test_an_interruption_says_how_to_continue(
    toys: ModuleType, arguments: list[str], deeprc: Deeprc, tmp_path: Path
) -> None:
    (tmp_path / "log.stop").write_text("4")
    code, out, err = deeprc(*arguments, "--methods", NOISE, "-o", tmp_path / "out")
    assert (code, out) == (130, "")
    assert "Interrupted. Continue with the same command and --resume." in err
    assert "Traceback" not in err
    (tmp_path / "log.stop").unlink()
    code, _, err = deeprc(*arguments, "--methods", NOISE, "-o", tmp_path / "out", "--resume")
    assert code == 0
    assert "Interrupted" not in err
    assert len(toys.read_log(tmp_path / "log")) == 3 * (3 + 2)  # three settings, the final fit and the refit
    assert len(predictions(tmp_path / "out")) == 30


@pytest.mark.slow
def test_progress_is_told_in_lines_or_in_a_bar(
    toys: ModuleType, arguments: list[str], deeprc: Deeprc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*arguments, "--methods", NOISE, "-o"]
    name = "jobs of the benchmark"
    assert name not in deeprc(*command, tmp_path / "quiet")[2]  # it takes less than half a minute
    for limit in ("delay", "interval"):
        monkeypatch.setattr(f"deeprc.progress.LogLines.{limit}", -1.0)
    lines = [line for line in deeprc(*command, tmp_path / "lines")[2].splitlines() if name in line]
    assert [line.split(",")[0] for line in lines] == [f"{name}: {n} of 12" for n in (*range(10), 9, 10, 11, 12)]
    assert lines[5].endswith(" s left")
    assert lines[-1] == f"{name}: 12 of 12, about 0 s left"

    class Terminal:
        def __getattr__(self, name: str) -> Any:
            return getattr(captured, name)

        def isatty(self) -> bool:
            return True

    captured = sys.stderr
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("deeprc.cli.progress._DELAY", 0)
    monkeypatch.setattr("deeprc.cli.progress._MIN_INTERVAL", 0)
    _, _, err = deeprc(*command, tmp_path / "bar")
    assert f"{name}: 12 of 12, 00:" in err
    assert f"{name}: 12 of 12, about" not in err


def children(pid: int) -> set[int]:
    """The processes that a process has started, and theirs."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parent = dict(np.array(line.split(), int).tolist() for line in listed.splitlines())
    found = {pid}
    while more := {each for each, its in parent.items() if its in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip() != "" and not state.startswith("Z")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_stopped_comparison_continues(
    number: signal.Signals, jobs: int, toys: ModuleType, arguments: list[str], deeprc: Deeprc, tmp_path: Path
) -> None:
    """SIGINT as Ctrl-C sends it: to all processes of the group."""
    methods = ["--methods", f"{NOISE},path=toy_methods:PathNoise", "--jobs", str(jobs)]
    assert deeprc(*arguments, *methods[:2], "-o", tmp_path / "whole")[0] == 0
    (tmp_path / "log").unlink()
    (tmp_path / "log.slow").write_text("0.5")
    command = [sys.executable, "-m", "deeprc", *arguments, *methods, "-o", str(tmp_path / "out")]
    # A shell starts its background jobs with SIGINT ignored, and a process would inherit that from the tests.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(tmp_path / "out.txt", "wb") as out, open(tmp_path / "err.txt", "wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
    signal.signal(signal.SIGINT, inherited)
    while len(list((tmp_path / "out").rglob("search-*.json"))) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    workers = children(process.pid)
    assert jobs == 1 or len(workers) >= 2
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    process.wait(timeout=60)
    ended = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
    assert process.returncode == ended[number]
    assert (tmp_path / "out.txt").read_text() == ""
    if number != signal.SIGKILL:
        text = (tmp_path / "err.txt").read_text()
        assert "Continue with the same command and --resume." in text
        assert "Traceback" not in text, text
    if number == signal.SIGKILL:  # nobody is left to tell the workers
        for pid in filter(alive, workers):
            os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    while any(map(alive, workers)):
        assert time.monotonic() - started < 30
        time.sleep(0.05)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json")}
    assert 2 <= len(before) < 18
    (tmp_path / "log.slow").unlink()
    assert deeprc(*arguments, *methods[:2], "-o", tmp_path / "out", "--resume")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    pd.testing.assert_frame_equal(predictions(tmp_path / "out"), predictions(tmp_path / "whole"), check_exact=True)
    assert len(list((tmp_path / "out" / "tasks").rglob("*.json"))) == 18
