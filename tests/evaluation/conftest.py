"""Small cohorts and estimators for the tests of the benchmark."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor

from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import SequenceTable

TOYS = Path(__file__).parents[1] / "toys"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module `toy_methods`, as a user's own: importable here and in processes that are started from here."""
    monkeypatch.syspath_prepend(str(TOYS))
    monkeypatch.setenv("PYTHONPATH", str(TOYS))
    return importlib.import_module("toy_methods")


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the curves, which take a second to draw for each benchmark with a folder."""
    monkeypatch.setattr("deeprc.evaluation.benchmark_result.draw_curves", lambda *_: None)


@pytest.fixture(scope="session")
def workers() -> Iterator[None]:
    """Processes that no other test has used, and that end with these tests: starting them takes seconds."""
    get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)
    yield
    get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


@pytest.fixture(scope="session")
def small_cohort(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RepertoireDataset]:
    """Make a cohort of as many repertoires, rep.0 to rep.n, as there are labels; by default they alternate."""

    def make(status: list[str | None] | int = 24, path: Path | None = None, **columns: object) -> RepertoireDataset:
        labels = ["well", "sick"] * (status // 2) if isinstance(status, int) else status
        path = tmp_path_factory.mktemp("small") / "cohort.h5" if path is None else path
        with ContainerWriter(path) as writer:
            for number in range(len(labels)):
                residues, offsets = encode_many(["CASSF", "CAWW"[: 2 + number % 3]])
                counts = np.array([1 + number, 2], np.uint32)
                writer.append(f"rep.{number}", SequenceTable(residues, np.diff(offsets), counts))
            writer.finish(pd.DataFrame({"status": labels, **columns}), source="a test")
        return open_dataset(path)

    return make
