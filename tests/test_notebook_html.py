"""What notebooks show: HTML that is well formed, and in which nobody's names are markup."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

import deeprc
from deeprc.benchmarking.result import BenchmarkResult
from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.scoring import MulticlassScoring, RegressionScoring
from deeprc.evaluation.scoring_base import Scoring
from deeprc.notebook_html import render_details, render_histogram, render_interval, render_table
from deeprc.runs import run_text
from deeprc.runs.cross_validation import CrossValidation
from deeprc.runs.metrics import Metrics


def text_of(html: str) -> str:
    return " ".join("".join(ElementTree.fromstring(html).itertext()).split())


def test_texts_are_escaped() -> None:
    html = render_details("<b>", [("a&b", "<script>")], render_table(["<i>"], [["<u>"]], ["<em>picture</em>"]))
    assert text_of(html) == "<b>a&b<script><i><u>picture"
    assert {each.tag for each in ElementTree.fromstring(html).iter()}.isdisjoint({"b", "i", "u", "script"})


def test_an_interval_is_drawn_from_its_limits() -> None:
    drawn = ElementTree.fromstring(render_interval(0.25, 0.5, 1.0, chance=0.5))
    chance, line = drawn.findall("line")
    assert (line.get("x1"), line.get("x2"), chance.get("x1")) == ("42.0", "156.0", "80.0")
    assert drawn.find("circle").get("cx") == "80.0"  # type: ignore[union-attr]
    assert render_interval(float("nan"), 0.5, 1.0) == ""


def test_a_histogram_counts() -> None:
    bars = ElementTree.fromstring(render_histogram([1, 1, 1, 3], "size", n_bars=2)).findall(".//rect")
    assert [bar.get("height") for bar in bars] == ["34.0", "11.3"]
    assert render_histogram([], "size") == ""
    assert len(ElementTree.fromstring(render_histogram([7, 7], "size")).findall(".//rect")) == 1


def test_a_dataset() -> None:
    columns: dict[str, Any] = {"repertoire_id": list("abcdefg"), "junction_aa": ["CASSF"] * 7, "status": ["<ill>"] * 7}
    found = deeprc.from_frame(columns)
    shown = text_of(found._repr_html_())
    assert shown.startswith("MemoryDataset of a tablerepertoires7 with 7 sequences")
    assert shown.count("<ill>") == 5
    assert shown.endswith("and 2 more")
    assert text_of(found.report._repr_html_()).startswith("repertoire format rows read kept a airr 1 1")


def test_the_example_run() -> None:
    example = Path(__file__).parents[1] / "examples" / "quickstart.deeprc"
    run = deeprc.load(example, device="cpu")
    assert "test status: AUC 1.000" in text_of(run._repr_html_()).replace("teststatus", "test status")
    assert "<svg" in run._repr_html_()
    assert text_of(deeprc.load_ensemble(example)._repr_html_()).startswith("Ensemble of 1 run")


def test_a_run_has_a_picture_of_each_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {
        "status": {"auc": 0.75, "auc_ci": [0.5, 1.0]},
        "age": {"r2": 0.25, "r2_ci": [0.1, 0.5]},
        "none": {"n": 0},
    }
    (tmp_path / "metrics.json").write_text(json.dumps({"test": metrics}))
    monkeypatch.setattr(run_text, "_list_lines", lambda run: [])
    tasks = [SimpleNamespace(name=name, kind="regression" if name == "age" else "binary") for name in metrics]
    run = SimpleNamespace(path=tmp_path, tasks=tasks, model=SimpleNamespace(name="runs/all"))
    shown = ElementTree.fromstring(run_text.show_run(run))  # type: ignore[arg-type]
    assert [each.get("aria-label") for each in shown.iter("svg")] == ["0.750, 0.500 to 1.000", "0.250, 0.100 to 0.500"]
    assert "".join(shown.itertext()).split() == ["Run", "runs/allstatus", "age"]


def test_a_cross_validation(tmp_path: Path) -> None:
    empty = pd.DataFrame()
    found = CrossValidation(
        tmp_path,
        {
            "status": {"auc": 0.75, "auc_ci": [0.5, 0.9]},
            "age": {"r2": 0.1, "r2_ci": [0.0, 0.3]},
            "rare": {"auc": None, "auc_ci": None},
        },
        empty,
        empty,
        empty,
        [],
    )
    shown = text_of(found._repr_html_())
    assert shown.endswith("statusAUC0.7500.500 to 0.900ager²0.1000.000 to 0.300rareAUCnot defined")
    assert found._repr_html_().count("<svg") == 2


@pytest.mark.filterwarnings("ignore")
def test_a_benchmark() -> None:
    rows = [
        (name, fold, f"{fold}{i}", i % 2, (i % 2 if name == "good" else 0.5) + 0.01 * i)
        for name in ("good", "poor")
        for fold in range(3)
        for i in range(8)
    ]
    predictions = pd.DataFrame(rows, columns=["method", "fold", "repertoire_id", "label", "score"])
    predictions["probability"] = predictions["score"].clip(0, 1)
    methods = [MethodInfo("good", "Good <one>"), MethodInfo("poor", "Poor")]
    result = BenchmarkResult(methods, predictions, pd.DataFrame(), pd.DataFrame(), n_folds=3, title="A comparison")
    shown = text_of(result._repr_html_())
    assert shown.startswith("A comparisonmethodAUC95% intervalGood <one>1.000")
    assert result._repr_html_().count("<svg") == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("scoring", "x"), [(MulticlassScoring("abc"), "80.0"), (RegressionScoring(), "4.0")])
def test_a_benchmark_shows_the_level_of_chance(scoring: Scoring, x: str) -> None:
    rows = [("good", fold, f"{fold}{i}", i) for fold in range(3) for i in range(9)]
    predictions = pd.DataFrame(rows, columns=["method", "fold", "repertoire_id", "label"])
    if isinstance(scoring, MulticlassScoring):
        predictions["label"] = ["abc"[i % 3] for i in predictions["label"]]
        for name in "abc":
            known = predictions["label"] == name
            predictions[f"score={name}"] = predictions[f"probability={name}"] = 0.3 + 0.4 * known
    else:
        predictions["prediction"] = predictions["label"] + 0.1 * (predictions["label"] % 3)
    methods = [MethodInfo("good", "Good")]
    result = BenchmarkResult(methods, predictions, pd.DataFrame(), pd.DataFrame(), n_folds=3, scoring=scoring)
    assert f'<line x1="{x}" x2="{x}" y1="1" y2="13"' in result._repr_html_()


def test_metrics() -> None:
    control = {"control": "Size", "auc": 0.6, "auc_ci": [0.4, 0.8]}
    found = Metrics(
        test={"CMV=+": {"n": 60, "auc": 0.75, "auc_ci": [0.5, 0.9], "brier": None, "controls": [control]}},
        warnings=[{"level": "warning", "text": "<few> repertoires"}],
    )
    shown = text_of(found._repr_html_())
    assert shown.startswith("MetricsWarning<few> repertoires")
    assert "testCMV=+600.7500.500 to 0.900" in shown.replace(" ", "").replace("to", " to ")
    assert "Sizetest0.6000.400 to 0.800" in shown.replace(" ", "").replace("to", " to ")
    assert found._repr_html_().count("<svg") == 2
    assert text_of(Metrics(train={"age": {"n": 9, "r2": 0.25}})._repr_html_()).endswith("trainage90.250")


def test_a_report_is_shown_in_a_frame_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p title="b">&amp;</p>', encoding="utf-8")
    frame = ElementTree.fromstring(f"<div>{deeprc.Report(tmp_path / 'a.html')._repr_html_()}</div>").find("iframe")
    assert frame is not None
    assert frame.get("srcdoc") == '<p title="b">&amp;</p>'
    assert "allow-same-origin" not in str(frame.get("sandbox"))
