"""Run directories of strangers: whatever a file of theirs says, a command works or ends with one line.

Each case changes one file of a small run. Many commands run in one child process, so that a crash is seen and the case
that made it is known.
"""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from torch import Tensor

from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.experiment import train_run
from deeprc.training.state import TrainingState

DRIVER = Path(__file__).parents[1] / "toys" / "run_commands.py"
SECONDS = 540  # for all commands of one child
TARGETS = ("status", "grade:multiclass", "age:regression")
SETTINGS = ("n_updates=2", "evaluate_every=1", "n_kernels=4", "key_units=4", "n_sequences=20", "gene_units=1")

BENCHMARK = ("--target", "status=case", "--folds", "3", "--methods", "repertoire-size", "--preset", "quick")

Change = Callable[[bytes], bytes | None]


@dataclass(frozen=True)
class Case:
    """A file that is changed; `same` where a command that works must give the run's own result."""

    file: str
    what: str
    change: Change
    same: bool = False


@pytest.fixture(scope="session")
def tiny_cohort(cohort_factory: Callable[..., RepertoireDataset]) -> Path:
    return Path(cohort_factory(24, 12, seed=3).container.path)


@pytest.fixture(scope="session")
def tiny_run(tiny_cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "run"
    train_run(
        tiny_cohort,
        folder,
        targets=TARGETS,
        config=load_config("deeprc", SETTINGS),
        split=SplitOptions(folds=3),
        device="cpu",
    )
    return folder


@pytest.fixture(scope="session")
def stopped_run(tiny_cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose training was interrupted after the second of four updates."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    config = load_config("deeprc", [*SETTINGS, "n_updates=4", "evaluate_every=2"])

    def stop(state: TrainingState, loss: Tensor) -> None:
        if state.update == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(
            tiny_cohort,
            folder,
            targets=TARGETS,
            config=config,
            split=SplitOptions(folds=3),
            device="cpu",
            progress=stop,
        )
    return folder


@pytest.fixture(scope="session")
def tiny_benchmark(tiny_cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "results"
    with pytest.raises(SystemExit) as end:
        main(["benchmark", str(tiny_cohort), *BENCHMARK, "-o", str(folder)])
    assert not end.value.code
    return folder


HOSTILE: tuple[Any, ...] = (
    *(None, True, "", "x", "\0", "é\n\x1b[2J", -1, 0, 1, 1.5, -0.0, 1e308, float("nan"), float("inf")),
    *(2**31, 10**12, 2**63, -(2**63), 10**400, "9" * 5000, [], {}, [[]], [None], {"x": 1}, {1: [2]}, "1e999"),
)
DEEP = 3000
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)


def places(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value of a document; of a long list or mapping, its first three."""
    yield path
    entries = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, value in list(entries)[: 100 if len(path) < 2 and isinstance(body, dict) else 3]:
        yield from places(value, (*path, name))


def replaced(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    body = copy.deepcopy(body)
    at = body
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return body


def without(body: Any, path: tuple[Any, ...]) -> Any:
    body = copy.deepcopy(body)
    at = body
    for name in path[:-1]:
        at = at[name]
    del at[path[-1]]
    return body


Commands = Callable[[Case, Path, Path], list[list[str]]]


def document_cases(file: str, content: bytes, load: Callable[[bytes], Any], dump: Callable[[Any], str]) -> list[Case]:
    """Return cases in which each value of a document is missing, or a hostile one."""
    body = load(content)
    cases = []
    for path in places(body):
        named = ".".join(map(str, path))
        if path:
            cases.append(Case(file, f"{named} is missing", lambda _, p=path: dump(without(body, p)).encode()))
        for value in HOSTILE:
            text = f"{named} = {value!r:.30}" if not isinstance(value, int) else f"{named} = {value:g}"[:60] \
                if abs(value) < 1e300 else f"{named} = 10**400"  # fmt: skip
            cases.append(Case(file, text, lambda _, p=path, v=value: dump(replaced(body, p, v)).encode()))
    return cases


def raw_cases(file: str, content: bytes, rng: np.random.Generator, n_flips: int, *, same: bool = False) -> list[Case]:
    """Return cases in which a file is none, cut, of another kind, or has a bit flipped."""
    contents = {
        "empty": b"",
        "half": content[: len(content) // 2],
        "twice": content * 2,
        "zeros": bytes(1000),
        "noise": rng.bytes(1000),
        "deep list": b"[" * DEEP,
        "deep mapping": b'{"a":' * DEEP,
        "deep block": b"- " * DEEP,
        "billion laughs": LAUGHS.encode(),
        "itself": b"a: &a [*a]",
        "object": b"!!python/object/apply:os._exit [7]",
    }
    cases = [Case(file, what, lambda _, c=changed: c) for what, changed in contents.items()]
    for at in rng.integers(0, 8 * len(content), n_flips).tolist():
        flipped = bytearray(content)
        flipped[at // 8] ^= 1 << at % 8
        cases.append(Case(file, f"bit {at}", lambda _, c=bytes(flipped): c, same=same))
    return cases


def table_cases(file: str, content: bytes) -> list[Case]:
    """Return cases in which a table's header, its first row or its last is changed."""
    lines = content.decode().splitlines()
    cases = []

    def case(what: str, *changed: str) -> None:
        cases.append(Case(file, what, lambda _: ("\n".join(changed) + "\n").encode()))

    header = lines[0].split("\t")
    for place, name in enumerate(header):
        case(f"no column {name}", "\t".join([*header[:place], "x", *header[place + 1 :]]), *lines[1:])
        case(f"column {name} twice", "\t".join([*header[:-1], name]), *lines[1:])
        for row in (1, len(lines) - 1):
            for value in ("", "x", "-1", "0.5", "nan", "inf", "1e999", "9" * 400, "1e300", '"', "None", "[", "\ufeff"):
                cells = lines[row].split("\t")
                cells[place] = value
                case(f"{name} of row {row} = {value:.9}", *lines[:row], "\t".join(cells), *lines[row + 1 :])
    case("header only", lines[0])
    case("no header", *lines[1:])
    case("rows twice", *lines, *lines[1:])
    case("a longer row", *lines, lines[1] + "\tx\ty")
    case("a shorter row", *lines, lines[1].split("\t")[0])
    case("many columns", "\t" * 5000, *lines[1:])
    return cases


def model_cases(file: str, content: bytes) -> list[Case]:
    """Return cases in which the header of the weights, or a number of them, is changed."""
    (size,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    del header["__metadata__"]["digest"]  # by which damage is seen; who means it makes another one
    cases = []

    def case(what: str, changed: Any, *, length: int | None = None) -> None:
        text = json.dumps(changed).encode()
        start = struct.pack("<Q", len(text) if length is None else length)
        cases.append(Case(file, what, lambda _: start + text + data))

    names = [name for name in header if name != "__metadata__"]
    for name in (names[0], names[-1]):
        for key, values in {
            "shape": ([], [0], [-1], [2**62, 2**62], [1, 1, 1, 1], "x", None, [1.5]),
            "dtype": ("F64", "I64", "BF16", "U8", "X", 3, "F8_E4M3"),
            "data_offsets": ([0, 0], [0, 10**12], [4, 0], [-1, 4], "x"),
        }.items():
            for value in values:
                case(f"{name}.{key} = {value}", {**header, name: {**header[name], key: value}})
        case(f"{name} is called otherwise", {("x" if key == name else key): value for key, value in header.items()})
    genes = ('{"genes": {"v_call": [1], "j_call": []}}', '{"genes": {"v_call": ["a"], "j_call": ["a", "a"]}}')
    own = json.loads(header["__metadata__"]["state"])
    slopes = [0.0, -1.0, math.nan]
    calibrations = (3, [], [{}, {}, {"slope": 2.0}], *([{"slope": slope}, {}, {}] for slope in slopes))
    for each in calibrations:
        state = json.dumps({**own, "calibration": each})
        case(f"calibration {each}", {**header, "__metadata__": {"state": state}})
    for state in ("", "{", "[]", "[" * DEEP, '{"update": 1}', '{"genes": 3}', *genes):
        case(f"state {state[:40]}", {**header, "__metadata__": {"state": state}})
    case("no metadata", {name: header[name] for name in names})
    for length in (0, 2**63, 10**9, 3):
        case(f"header of {length}", header, length=length)
    floats = np.frombuffer(data, "<f4").copy()
    for value in (np.nan, np.inf, 3e38, -3e38, 1e30):
        for at in (slice(None), slice(0, 1), slice(-9, None)):
            changed = floats.copy()
            changed[at] = value
            text = json.dumps(header).encode()
            whole = struct.pack("<Q", len(text)) + text + changed.tobytes()
            cases.append(Case(file, f"weights {value}", lambda _, c=whole: c))
    return cases


def cases_of(run: Path, rng: np.random.Generator, n_flips: int) -> dict[str, list[Case]]:
    """Return all cases by file."""
    content = {name: (run / name).read_bytes() for name in
               ("config.yaml", "splits.json", "model.safetensors", "history.tsv", "predictions.tsv", "seeds.tsv",
                "environment.json", "shift.json", "sketches.safetensors")}  # fmt: skip
    load_yaml: Callable[[bytes], Any] = yaml.safe_load
    found = {
        "config.yaml": document_cases("config.yaml", content["config.yaml"], load_yaml, yaml.safe_dump),
        "splits.json": document_cases("splits.json", content["splits.json"], json.loads, json.dumps),
        "model.safetensors": model_cases("model.safetensors", content["model.safetensors"]),
        "history.tsv": table_cases("history.tsv", content["history.tsv"]),
        "predictions.tsv": table_cases("predictions.tsv", content["predictions.tsv"]),
        "seeds.tsv": table_cases("seeds.tsv", content["seeds.tsv"] + b"1\tA.C\tstatus\t0.5\t0.001\t2: W M\n"),
        "environment.json": document_cases("environment.json", content["environment.json"], json.loads, json.dumps),
        "shift.json": document_cases("shift.json", content["shift.json"], json.loads, json.dumps),
        "sketches.safetensors": [],
    }
    for name, cases in found.items():
        cases += raw_cases(name, content[name], rng, n_flips, same=name == "model.safetensors")
        cases.append(Case(name, "is missing", lambda _: None))
    return found


def run_commands(case: Case, run: Path, out: Path, *, cohort: Path, with_reports: bool = False) -> list[list[str]]:
    """Return the commands that read the changed file of a run."""
    names = [str(path) for path in (run, cohort)]
    device = ["--device", "cpu"]
    reports = [["report", *names, "-o", str(out / "report.html"), "--top", "5", *device]] if with_reports else []
    plot = {"history.tsv": "history", "predictions.tsv": "roc"}
    if case.file in plot:
        target = ["--target", "status"] if case.file == "predictions.tsv" else []
        single = [["plot", plot[case.file], names[0], *target, "-o", str(out / "plot.svg")]]
        return single + (reports if case.file == "history.tsv" else [])
    if case.file in ("seeds.tsv", "environment.json"):
        return reports
    return [
        ["predict", *names, "-o", str(out / "predictions.tsv"), *device],
        ["attention", *names, "-o", str(out / "attention.tsv"), "--top", "3", *device],
        ["evaluate", *names, "--json", *device],
        *reports,
    ]


def resume_commands(case: Case, run: Path, out: Path) -> list[list[str]]:
    """Return the command that continues an interrupted run."""
    return [["train", "--resume", str(run)]]


def benchmark_commands(case: Case, folder: Path, out: Path, *, cohort: Path) -> list[list[str]]:
    """Return the commands that read the changed file of a benchmark's folder."""
    report = ["report", str(folder), "-o", str(out / "report.html")]
    curves = ["plot", "curves", str(folder), "-o", str(out / "curves.svg")]
    again = ["benchmark", str(cohort), *BENCHMARK, "-o", str(folder), "--resume"]
    if case.file in ("comparison.tsv", "results.tsv", "settings.tsv", "table.md"):
        return [report]
    if case.file == "predictions.tsv":
        return [report, curves]
    return [again] if case.file.startswith("tasks") else [report, curves, again]


def run_all(commands: Sequence[list[str]], folder: Path) -> list[dict[str, Any]]:
    """Return how each command ended; one at which the process died has the code None."""
    folder.mkdir()
    endings: list[dict[str, Any]] = []
    while len(endings) < len(commands):
        todo, notes = folder / "todo", folder / f"notes{len(endings)}"
        todo.write_text("".join(json.dumps(each) + "\n" for each in commands[len(endings) :]))
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        done = subprocess.run(
            [sys.executable, str(DRIVER), str(todo), str(notes)],
            env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        said = [json.loads(line) for line in notes.read_text().splitlines()]
        endings += [each for each in said if "ended" in each]
        if len(endings) < len(commands):
            assert said, done.stderr
            endings.append({"code": None, "out": "", "err": f"died with {done.returncode}: {done.stderr[-2000:]}"})
    return endings


def problem_of(command: list[str], ending: dict[str, Any], same: str | None) -> str | None:
    """Return what is wrong with how a command ended: neither well, nor with one line."""
    lines = [line for line in ending["err"].splitlines() if not line.startswith(("Warning: ", "Note: "))]
    if ending["code"] == 2:
        return None if len(lines) == 1 and lines[0].startswith("Error: ") and lines[0].isprintable() else ending["err"]
    if ending["code"] != 0:
        return f"code {ending['code']}: {ending['err'][-1500:]}"
    if command[0] in ("predict", "attention"):
        written = Path(command[command.index("-o") + 1])
        if same is not None and written.read_text() != same:
            return "another result, and no word"
        table = pd.read_csv(written, sep="\t")
        column = "attention_weight" if command[0] == "attention" else "probability"
        known = table[column] if command[0] == "attention" else table.loc[table["prediction"].isna(), column]
        if not known.between(0, 1 + 1e-6).all():
            return f"{column} {known[~known.between(0, 1 + 1e-6)].iloc[0]}"
    return None


def check(
    cases: Sequence[Case], run: Path, folder: Path, commands_of: Commands, *, each: int | None = None
) -> list[str]:
    """Run the commands of every case, or `each` of them in turn; return what went wrong."""
    own = Case("", "as it is", lambda content: content)
    places = [folder / "own", *(folder / str(number) for number in range(len(cases)))]
    commands: list[list[str]] = []
    of_case: list[Case] = []
    n_own = 0
    for number, (case, place) in enumerate(zip([own, *cases], places, strict=True)):
        shutil.copytree(run, place / "run")
        if case is not own:
            file = place / "run" / case.file
            content = case.change(file.read_bytes())
            if content is None:
                file.unlink()
            else:
                file.write_bytes(content)
        more = commands_of(case, place / "run", place)
        n_own = len(more) if case is own else n_own
        if each is not None and case is not own:
            more = [more[(number + i) % len(more)] for i in range(min(each, len(more)))]
        commands += more
        of_case += [case] * len(more)
    endings = run_all(commands, folder / "notes")
    assert [ending["code"] for ending in endings[:n_own]] == [0] * n_own, endings[:n_own]
    tables = [command for command in commands[:n_own] if command[0] in ("predict", "attention")]
    expected = {command[0]: Path(command[command.index("-o") + 1]).read_text() for command in tables}
    problems = []
    for case, command, ending in zip(of_case, commands, endings, strict=True):
        same = expected.get(command[0]) if case.same else None
        problem = problem_of(command, ending, same)
        if problem is not None:
            problems.append(f"{case.file}: {case.what}: {command[0]}: {problem}")
    return problems


def checkpoint_cases(run: Path, rng: np.random.Generator, n_flips: int) -> list[Case]:
    """Return cases in which an interrupted run's files are changed."""
    file = "checkpoint/last.safetensors"
    content = (run / file).read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    state = json.loads(header["__metadata__"]["state"])

    def with_state(body: Any) -> bytes:
        text = json.dumps({**header, "__metadata__": {"state": json.dumps(body)}}).encode()
        return struct.pack("<Q", len(text)) + text + data

    cases = model_cases(file, content) + raw_cases(file, content, rng, n_flips)
    for path in places(state):
        for value in HOSTILE:
            what = f"state {'.'.join(map(str, path))} = {type(value).__name__}"
            cases.append(Case(file, what, lambda _, p=path, v=value: with_state(replaced(state, p, v))))
    splits = (run / "splits.json").read_bytes()
    return cases + document_cases("splits.json", splits, json.loads, json.dumps)


def benchmark_cases(folder: Path, rng: np.random.Generator, n_flips: int) -> list[Case]:
    """Return cases in which a file of a benchmark's folder is changed."""
    header, task = "benchmark.yaml", next((folder / "tasks").rglob("final-*.json")).relative_to(folder).as_posix()
    load: Callable[[bytes], Any] = yaml.safe_load
    cases = document_cases(header, (folder / header).read_bytes(), load, yaml.safe_dump)
    cases += document_cases(task, (folder / task).read_bytes(), json.loads, json.dumps)
    for name in ("comparison.tsv", "results.tsv", "settings.tsv", "predictions.tsv"):
        cases += table_cases(name, (folder / name).read_bytes())
    for name in (header, task, "comparison.tsv", "results.tsv", "predictions.tsv", "table.md"):
        cases += raw_cases(name, (folder / name).read_bytes(), rng, n_flips)
    return cases


def some(cases: Sequence[Case], rng: np.random.Generator, n: int) -> list[Case]:
    """Return n of the cases, drawn at random."""
    return [cases[i] for i in rng.permutation(len(cases))[:n]]


@pytest.mark.slow
def test_some_hostile_run_directories(tiny_run: Path, tiny_cohort: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    found = cases_of(tiny_run, rng, 20)
    shares = {"config.yaml": 3, "splits.json": 2, "model.safetensors": 3, "history.tsv": 1, "predictions.tsv": 1}
    shares |= {"shift.json": 2, "sketches.safetensors": 1}
    cases = [case for name, n in shares.items() for case in some(found[name], rng, n)]
    problems = check(cases, tiny_run, tmp_path / "cases", partial(run_commands, cohort=tiny_cohort), each=1)
    assert not problems, "\n\n".join(problems)


@pytest.mark.long
@pytest.mark.parametrize(
    "file", ["config.yaml", "splits.json", "model.safetensors", "history.tsv", "predictions.tsv", "shift.json"]
)
def test_many_hostile_run_directories(file: str, tiny_run: Path, tiny_cohort: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    cases = some(cases_of(tiny_run, rng, 60)[file], rng, 200)
    problems = check(cases, tiny_run, tmp_path / "cases", partial(run_commands, cohort=tiny_cohort), each=1)
    assert not problems, f"{len(problems)} of {len(cases)}\n" + "\n\n".join(problems[:20])


@pytest.mark.long
def test_many_hostile_checkpoints(stopped_run: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    cases = some(checkpoint_cases(stopped_run, rng, 30), rng, 120)
    problems = check(cases, stopped_run, tmp_path / "c", resume_commands)
    assert not problems, "\n\n".join(problems[:20])


@pytest.mark.long
def test_many_hostile_benchmark_folders(tiny_benchmark: Path, tiny_cohort: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    cases = some(benchmark_cases(tiny_benchmark, rng, 20), rng, 80)
    problems = check(cases, tiny_benchmark, tmp_path / "b", partial(benchmark_commands, cohort=tiny_cohort), each=1)
    assert not problems, "\n\n".join(problems[:20])


@pytest.mark.long
def test_reports_of_hostile_run_directories(tiny_run: Path, tiny_cohort: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    cases = [case for found in cases_of(tiny_run, rng, 5).values() for case in some(found, rng, 5)]
    commands = partial(run_commands, cohort=tiny_cohort, with_reports=True)
    problems = check(cases, tiny_run, tmp_path / "cases", commands)
    assert not problems, "\n\n".join(problems[:20])
