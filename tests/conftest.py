"""Small cohorts that the tests share; made here, copied from nowhere."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests' networks are too small to share out
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # the processes that share the tests must not spin
# Compiled code is kept apart from the user's. numba asks for the folder when a function is declared: the next imports.
os.environ["NUMBA_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), "deeprc-numba-tests")

import gc
import importlib
import logging
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor
from torch import Tensor

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.progress import Step, use_reporter
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.state import TrainingState
from tests.toys.repertoires import make_sequences, write_repertoires

gc.set_threshold(20_000, 20, 20)  # as `prepare_process` does: compilation takes a tenth less

LONGEST = ("test_ranks.py", "test_rank_calls.py", "test_packaging.py", "test_real_data.py")  # with few, long tests
TOYS = Path(__file__).parent / "toys"
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def pytest_configure() -> None:
    """Let no line about compiling be in the messages that tests read."""
    logging.getLogger("deeprc.compilation").setLevel(logging.WARNING)


@pytest.hookimpl(tryfirst=True, wrapper=True)  # before and after `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Make long tests slow, too; begin with the files that take longest, so that no process waits for the others."""
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker("slow")
    yield
    n_tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.name not in LONGEST, -n_tests[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, Any, Any]:
    """Undo what a command of a test set for all logging; else later tests of the process see other messages."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    result = yield
    root.setLevel(level)
    root.handlers[:] = handlers
    return result


def pytest_collection_finish() -> None:
    """Let garbage collection pass over modules and tests, which stay: it would take half a second each time."""
    gc.freeze()


class Killed(Exception):
    """What interrupts a training."""


def killing(update: int) -> Callable[[TrainingState, Tensor], None]:
    """Return a `progress` that interrupts a training after an update."""

    def kill(state: TrainingState, loss: Tensor) -> None:
        if state.update == update:
            raise Killed

    return kill


class StepRecorder:
    """A reporter that notes what it is told about steps."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, float]] = []
        self.steps: list[Step] = []

    def begin(self, step: Step) -> None:
        self.told.append(("open", step.name, step.done))
        self.steps.append(step)

    def show(self, step: Step) -> None:
        self.told.append(("show", step.name, step.done))

    def end(self, step: Step) -> None:
        self.told.append(("close", step.name, step.done))


@pytest.fixture
def recorder() -> Iterator[StepRecorder]:
    """What is told about the steps of the test."""
    recorder = StepRecorder()
    with use_reporter(recorder):
        yield recorder


def motif(pattern: str, sign: float = 1.0, output: int = 0, p_value: float = 0.01) -> EnrichedMotif:
    """Return a motif as a search finds it; a point is any residue."""
    letters = tuple(-1 if letter == "." else AMINO_ACIDS.index(letter) for letter in pattern)
    return EnrichedMotif(letters, output, 0.5 * sign, p_value)


def random_sequences(rng: np.random.Generator, n: int, low: int = 5, high: int = 20) -> list[str]:
    letters = np.frombuffer(AMINO_ACIDS.encode(), np.uint8)
    return [letters[rng.integers(0, 20, rng.integers(low, high + 1))].tobytes().decode() for _ in range(n)]


def write_cohort(path: Path, repertoires: list[list[str]], metadata: pd.DataFrame, seed: int = 0) -> RepertoireDataset:
    """Write these repertoires with random counts and genes; ids are rep.0, rep.1, ..."""
    rng = np.random.default_rng(seed)
    written = []
    for texts in repertoires:
        sequences = make_sequences(texts, rng.geometric(0.4, len(texts)))
        genes = Categorical(rng.integers(0, 3, len(texts)).astype(np.uint16), ("", "TRBV1", "TRBV2"))
        written.append(sequences.with_genes({"v_call": genes}))
    return write_repertoires(path, written, metadata, [f"rep.{number}" for number in range(len(written))])


@pytest.fixture(scope="session")
def cohort_factory(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RepertoireDataset]:
    """Make a cohort of which every other repertoire is positive: a tenth of its sequences carry the motif WWHW."""

    def make(n_repertoires: int = 30, n_sequences: int = 60, seed: int = 0) -> RepertoireDataset:
        rng = np.random.default_rng(seed)
        repertoires = []
        for number in range(n_repertoires):
            sequences = random_sequences(rng, n_sequences + int(rng.integers(0, 5)))
            if number % 2:
                for at in range(0, len(sequences), 10):
                    sequences[at] = sequences[at][:2] + "WWHW" + sequences[at][2:]
            repertoires.append(sequences)
        positive = np.arange(n_repertoires) % 2 == 1
        metadata = pd.DataFrame(
            {
                "status": np.where(positive, "case", "healthy"),
                "grade": np.array(["low", "high", "mid", "high"])[np.arange(n_repertoires) % 4],
                "age": np.where(np.arange(n_repertoires) % 7 == 3, np.nan, 40.0 + 10 * positive),
                "patient_id": [f"p{i // 2}" for i in range(n_repertoires)],
            }
        )
        return write_cohort(tmp_path_factory.mktemp("cohort") / "cohort.h5", repertoires, metadata, seed)

    return make


@pytest.fixture(scope="session")
def cohort(cohort_factory: Callable[..., RepertoireDataset]) -> RepertoireDataset:
    return cohort_factory()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; tests that need it are skipped without it."""
    if "DEEPRC_REAL_DATA" not in os.environ:
        pytest.skip("DEEPRC_REAL_DATA is not set")
    return Path(os.environ["DEEPRC_REAL_DATA"])


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module `toy_methods`, as a user's own: importable here and in processes that are started from here."""
    monkeypatch.syspath_prepend(str(TOYS))
    monkeypatch.setenv("PYTHONPATH", str(TOYS))
    return importlib.import_module("toy_methods")


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script `benchmarks/accuracy.py` as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    import accuracy

    yield accuracy
    for name in set(sys.modules) - before:
        if name == "common" or name.startswith("accuracy"):
            del sys.modules[name]


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the curves, which take a second to draw for each benchmark with a folder."""
    monkeypatch.setattr("deeprc.benchmarking.result.draw_curves", lambda *_: None)
    monkeypatch.setattr("deeprc.benchmarking.result.BenchmarkResult._draw_reliability", lambda *_: None)


@pytest.fixture(scope="session")
def workers() -> Iterator[None]:
    """Processes that no other test has used, and that end with these tests: starting them takes seconds."""
    get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)
    yield
    get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the scheduler of a Dask cluster with two workers, each a process that is renewed when it dies."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    options = {"threads_per_worker": 1, "processes": True, "memory_limit": 0, "dashboard_address": ":0"}
    with pytest.MonkeyPatch.context() as patch, dask.config.set({"distributed.comm.timeouts.connect": "120s"}):
        patch.syspath_prepend(str(TOYS))
        with distributed.LocalCluster(2, local_directory=tmp_path_factory.mktemp("dask"), **options) as started:
            yield started.scheduler_address


@pytest.fixture(scope="session")
def small_cohort(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RepertoireDataset]:
    """Make a cohort of as many repertoires, rep.0 to rep.n, as there are labels; by default they alternate."""

    def make(status: list[str | None] | int = 24, path: Path | None = None, **columns: object) -> RepertoireDataset:
        labels = ["well", "sick"] * (status // 2) if isinstance(status, int) else status
        path = tmp_path_factory.mktemp("small") / "cohort.h5" if path is None else path
        numbers = range(len(labels))
        repertoires = [make_sequences(["CASSF", "CAWW"[: 2 + number % 3]], [1 + number, 2]) for number in numbers]
        ids = [f"rep.{number}" for number in numbers]
        return write_repertoires(path, repertoires, {"status": labels, **columns}, ids)

    return make
