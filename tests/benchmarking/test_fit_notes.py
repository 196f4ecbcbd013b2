"""Notes of fits in a benchmark: once for each method, with its name, and none that matters for one fit only."""

from __future__ import annotations

import ast
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from deeprc.benchmarking import fit_notes
from deeprc.benchmarking.execution import JobRunner
from deeprc.benchmarking.fit_notes import name_fit_notes, show_fit_notes_once
from deeprc.benchmarking.jobs import Job, run_job
from deeprc.benchmarking.store import ResultStore
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.splits import Split
from deeprc.jobs import HERE
from deeprc.tasks import Task
from deeprc.training.estimator import DeepRCClassifier

ROOT = Path(__file__).parents[2]
N = 24
SPLIT = Split(np.arange(8, N), np.arange(4, 8), np.arange(4))
LABELS = (np.arange(N) // 2 % 2).astype(np.int64)
TASK = Task("status=sick", "status", "binary", ("well", "sick"))
START, CALIBRATION = (logging.getLogger(f"deeprc.training.{name}") for name in ("network_start", "calibration"))


class Talkative(LogisticRegression):
    """A classifier that logs notes and a warning, as a network does while it is fitted."""

    n_fits = 0

    def fit(self, X: RepertoireDataset, y: NDArray[Any]) -> Talkative:
        Talkative.n_fits += 1
        START.info("target 'y' has %d donors: too few. Not used: %s", self.n_fits, "ab"[self.n_fits % 2])
        START.warning("look at this")
        START.debug("a detail")
        CALIBRATION.info("target 'y': called '1'")
        return super().fit(np.arange(len(X))[:, None], y)

    def decision_function(self, X: RepertoireDataset) -> NDArray[Any]:
        return super().decision_function(np.arange(len(X))[:, None])

    def predict_proba(self, X: RepertoireDataset) -> NDArray[Any]:
        return super().predict_proba(np.arange(len(X))[:, None])


@pytest.fixture
def make(small_cohort: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    monkeypatch.setattr(Talkative, "n_fits", 0)
    data = small_cohort(["sick" if label else "well" for label in LABELS])

    def job(method: str, fold: int, kind: Any = "search", estimator: Any = None) -> Job:
        key, path = f"{method} {fold} {kind}", str(data.container.path)
        return Job(key, method, fold, kind, path, estimator or Talkative(), ({},), SPLIT, LABELS, TASK)

    return job


def test_each_method_shows_a_note_once(make: Callable[..., Job], caplog: pytest.LogCaptureFixture) -> None:
    runner = JobRunner(ResultStore(None, {}), HERE, None)
    with caplog.at_level("INFO", "deeprc"):
        runner.run([make(method, fold) for fold in range(2) for method in "ab"])
        runner.run([make(method, 0, "final") for method in "ab"])
        START.info("target 'y' has 1 donors: too few")
    text = "target 'y' has %d donors: too few. Not used: %s"
    assert [record.message for record in caplog.records if record.levelname == "INFO"] == [
        f"In one fit of a (others may differ; the target is called 'y' there): {text % (1, 'b')}",
        f"In one fit of b (others may differ; the target is called 'y' there): {text % (2, 'a')}",
        "target 'y' has 1 donors: too few",
    ]
    assert caplog.messages.count("look at this") == Talkative.n_fits > 4


def test_debug_messages_are_shown_with_all_notes_as_they_are(
    make: Callable[..., Job], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", "deeprc"):
        assert "error" not in run_job(make("a", 0))
    shown = [record.message for record in caplog.records if record.name in (START.name, CALIBRATION.name)]
    note = "target 'y' has 1 donors: too few. Not used: b"
    assert shown == [note, "look at this", "a detail", "target 'y': called '1'"]


def test_notes_below_the_log_level_are_not_shown(make: Callable[..., Job], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("ERROR", "deeprc"):
        assert "error" not in run_job(make("a", 0))
        assert caplog.messages == []


def test_calls_in_two_threads_do_not_disturb_each_other(caplog: pytest.LogCaptureFixture) -> None:
    both_are_in, one_is_out = threading.Barrier(2, timeout=10), threading.Event()

    def call(method: str) -> None:
        with show_fit_notes_once(set()), name_fit_notes(method):
            both_are_in.wait()
            if method == "b":
                one_is_out.wait(10)
            for _ in range(2):
                START.info("a note")
        one_is_out.set()
        START.info("%s has ended", method)

    threads = [threading.Thread(target=call, args=(method,)) for method in "ab"]
    with caplog.at_level("INFO", "deeprc"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    noted = [f"In one fit of {method} (others may differ; the target is called 'y' there): a note" for method in "ab"]
    assert sorted(caplog.messages) == [*noted, "a has ended", "b has ended"]


def test_all_loggers_of_notes_are_known() -> None:
    """A note of a logger that is not known would be shown by each of dozens of fits."""
    found = set()
    for package in ("branches", "training"):
        for file in (ROOT / "deeprc" / package).rglob("*.py"):
            calls = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
            if any(ast.unparse(call.func) == "_logger.info" for call in calls):
                found.add(".".join(file.relative_to(ROOT).with_suffix("").parts))
    assert found - {"deeprc.training.trainer"} == {
        *fit_notes._HIDDEN_LOGGERS,
        *fit_notes._SHOWN_LOGGERS,
    }  # it continues a run


@pytest.mark.slow
def test_the_fit_of_a_network_shows_its_notes_about_branches(
    make: Callable[..., Job], caplog: pytest.LogCaptureFixture
) -> None:
    small = {"n_updates": 20, "evaluate_every": 10, "n_kernels": 4, "kernel_size": 4, "n_sequences": 20}
    network = DeepRCClassifier(overrides=small, device="cpu")
    with caplog.at_level("INFO", "deeprc"):
        assert "error" not in run_job(make("deeprc", 0, "final", network))
    shown = [record.message for record in caplog.records if record.name.startswith("deeprc.training")]
    assert any(
        text.startswith("In one fit of deeprc (others may differ; the target is called 'y' there): Branches used: ")
        for text in shown
    )
    assert not any("calibrated" in text for text in shown)
