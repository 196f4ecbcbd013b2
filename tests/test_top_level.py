"""What `import deeprc` gives: the commands as functions, and objects that say in a few lines what they are."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deeprc
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.runs.run import Run
from deeprc.training.estimator import DeepRCClassifier
from tests.conftest import random_sequences

SMALL = ["n_updates=4", "evaluate_every=2", "n_kernels=8", "kernel_size=4", "n_sequences=20"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of 18 repertoires and their sheet."""
    place = tmp_path_factory.mktemp("top")
    (place / "files").mkdir()
    rng = np.random.default_rng(0)
    for number in range(18):
        table = pd.DataFrame({"junction_aa": random_sequences(rng, 20), "duplicate_count": 1})
        table.to_csv(place / "files" / f"r{number}.tsv", sep="\t", index=False)
    labels = "".join(f"r{number}\t{'case' if number % 2 else 'control'}\n" for number in range(18))
    (place / "sheet.tsv").write_text(f"repertoire_id\tstatus\n{labels}")
    deeprc.preprocess(place / "files", metadata=place / "sheet.tsv", output=place / "cohort.h5")
    return place


@pytest.fixture(scope="module")
def run(place: Path) -> Run:
    return deeprc.train(
        place / "cohort.h5",
        place / "run",
        targets="status",
        config=deeprc.load_config("deeprc", SMALL),
        split=deeprc.SplitOptions(folds=3),
        device="cpu",
    )


def test_every_name_is_there_with_a_docstring_and_annotations() -> None:
    assert set(deeprc.__all__) <= set(dir(deeprc))
    for name in set(deeprc.__all__) - {"__version__"}:
        thing = getattr(deeprc, name)
        assert len(inspect.getdoc(thing) or "") > 40, name
        if inspect.isfunction(thing):
            parameters = inspect.signature(thing).parameters.values()
            assert all(each.annotation is not inspect.Parameter.empty for each in parameters), name
            assert sum(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters) <= 3, name


def test_the_version_is_that_of_the_package() -> None:
    assert deeprc.__version__ == version("deeprc")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        deeprc.nothing  # noqa: B018


def test_importing_deeprc_imports_no_torch() -> None:
    code = (
        "import sys, deeprc; deeprc.__version__; print([x for x in ('torch', 'pandas', 'numpy') if x in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_check(place: Path) -> None:
    found = deeprc.check(place / "files", metadata=place / "sheet.tsv", targets="status")
    assert found.ok
    assert found.report is not None
    assert len(found.report.repertoires) == 18
    assert repr(found).startswith("CohortCheck(0 errors, ")
    assert len(repr(found)) < 200


def test_preprocess(place: Path, tmp_path: Path) -> None:
    report = deeprc.preprocess(str(place / "files"), metadata=place / "sheet.tsv", output=tmp_path / "cohort.h5")
    assert report.kept == 18 * 20
    assert repr(report) == (
        "PreprocessingReport(18 repertoires, 360 sequences kept of 360 rows; print(report.to_text()) shows more)"
    )
    cohort = deeprc.open(tmp_path / "cohort.h5")
    assert repr(cohort) == f"RepertoireDataset('{tmp_path / 'cohort.h5'}', 18 repertoires)"
    assert repr(cohort[1]) == "Repertoire('r1', 20 sequences)"


@pytest.mark.slow
def test_evaluate_is_what_the_run_says(place: Path, run: Run) -> None:
    metrics = json.loads((run.path / "metrics.json").read_text())
    found = deeprc.evaluate(run.path, place / "cohort.h5")
    warnings = json.loads((run.path / "warnings.json").read_text())["warnings"]
    assert warnings
    assert found == {**metrics, "warnings": warnings}
    assert deeprc.evaluate([run.path], deeprc.open(place / "cohort.h5")) == found
    with pytest.raises(InputError, match="is not a run directory"):
        deeprc.evaluate(place, place / "cohort.h5")


@pytest.mark.slow
def test_report_of_a_run_and_of_a_benchmark(place: Path, run: Run, tmp_path: Path) -> None:
    deeprc.report(run.path, place / "cohort.h5", output=tmp_path / "run.html", top=5, device="cpu")
    assert "<h2>How good is it?</h2>" in (tmp_path / "run.html").read_text()
    shown = run.report(output=tmp_path / "again.html", top=5)  # on the cohort that it was trained on
    assert shown == deeprc.Report(tmp_path / "again.html")
    assert "How good is it?" in shown._repr_html_()
    assert shown.path.read_text() == (tmp_path / "run.html").read_text().replace("run.html", "again.html")
    options, output = deeprc.BenchmarkOptions(folds=3), tmp_path / "results"
    result = deeprc.benchmark(
        place / "cohort.h5", target="status", methods=["repertoire-size"], output=output, options=options
    )
    assert repr(result) == (f"BenchmarkResult({result.title!r}, 1 methods; print(result.table) shows them)")
    deeprc.report(tmp_path / "results", output=tmp_path / "benchmark.html")
    assert "Repertoire size" in (tmp_path / "benchmark.html").read_text()
    for arguments, message in (
        ((run.path,), "is a run, whose report needs a CONTAINER"),
        ((tmp_path / "results", place / "cohort.h5"), "the report of a benchmark takes no CONTAINER"),
        ((tmp_path,), "is neither a run"),
    ):
        with pytest.raises(InputError, match=message):
            deeprc.report(*arguments, output=tmp_path / "other.html")


def test_a_run_in_a_few_lines(run: Run) -> None:
    auc = json.loads((run.path / "metrics.json").read_text())["test"]["status"]
    low, high = auc["auc_ci"]
    assert repr(deeprc.load(run.path)).splitlines() == [
        f"Run('{run.path}')",
        "  target    status, binary: case against control",
        "  settings  n_kernels=8 kernel_size=4 n_updates=4 n_sequences=20 evaluate_every=2",
        "  split     train 6, validation 6, test 6 repertoires",
        f"  test      status: AUC {auc['auc']:.3f} (95% interval {low:.3f} to {high:.3f}), on 6 repertoires",
    ]
    together = repr(deeprc.load_ensemble(run.path))
    assert together.splitlines()[0] == "Ensemble of 1 run"
    assert "case against control" in together


@pytest.mark.parametrize("text", [None, "", "[]", '{"test": {"status": 3}}', '{"test": {"status": {"n": "many"}}}'])
def test_a_run_without_usable_metrics_is_shown(run: Run, tmp_path: Path, text: str | None) -> None:
    from dataclasses import replace

    if text is not None:
        (tmp_path / "metrics.json").write_text(text)
    lines = repr(replace(run, path=tmp_path)).splitlines()
    assert lines[-1] == "  split     train 6, validation 6, test 6 repertoires"


@pytest.mark.slow
def test_several_targets_of_a_run(cohort: RepertoireDataset, tmp_path: Path) -> None:
    targets = ["status=case", "grade:multiclass", "age:regression"]
    config = deeprc.load_config("deeprc", SMALL)
    run = deeprc.train(
        cohort.container.path,
        tmp_path / "run",
        targets=targets,
        config=config,
        split=deeprc.SplitOptions(folds=3),
        device="cpu",
    )
    lines = repr(run).splitlines()
    assert lines[1:4] == [
        "  target    status=case, binary: case against healthy",
        "            grade, multiclass: high, low, mid",
        "            age, regression",
    ]
    assert lines[6].startswith("  test      status=case: AUC ")
    assert lines[7].startswith("            grade: AUC ")
    assert ", balanced accuracy " in lines[7]
    assert lines[-1].startswith("            age: r2 ")
    assert len(lines) <= 10


def test_estimators_are_short(cohort: RepertoireDataset) -> None:
    overrides: dict[str, Any] = {"n_updates": 2, "n_kernels": 4, "n_sequences": 20, "composition": False}
    model = DeepRCClassifier(overrides=overrides, device="cpu").fit(cohort, cohort.metadata["status"])
    assert len(repr(model)) < 250
    assert repr(model).startswith("DeepRCClassifier(")
