"""The page of a cross-validation."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import deeprc
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.motif_stability import count_motifs
from deeprc.interpretation.plotting import FigureOptions, make_figure
from deeprc.interpretation.report.cv_curves import _pivot_classes
from tests.interpretation.test_report import Page

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

SETTINGS = ["n_updates=10", "evaluate_every=5", "n_kernels=4", "kernel_size=4", "n_sequences=20"]
SMALL = load_config("deeprc", [*SETTINGS, "composition=false", "clones=false"])  # the page says nothing of branches


@pytest.fixture(scope="module")
def folder(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("cv") / "cv"
    targets = ["status=case", "grade:multiclass", "age:regression"]
    options = {"folds": 3, "members": 1, "repeats": 2, "group_by": "patient_id"}
    deeprc.cv(cohort.container.path, output, targets=targets, config=SMALL, device="cpu", **options)
    return output


def test_the_page_says_what_the_files_say(folder: Path, tmp_path: Path) -> None:
    deeprc.report(folder, output=tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    found = json.loads((folder / "metrics.json").read_text())
    status = found["status=case"]
    low, high = status["auc_ci"]
    interval = f"{low:.3f} to {high:.3f}"
    assert f"status=case: AUC {status['auc']:.3f}, 95% interval {interval}, on 30 repertoires, 15 of them case." in (
        page.words
    )
    assert page.rows["metrics-0"][1][:3] == ["status=case", f"{status['auc']:.3f}", interval]
    assert "This was done 2 times, with other folds and seeds." in page.words
    folds = pd.read_csv(folder / "folds.tsv", sep="\t")
    for place, target in enumerate(found):
        own = folds[folds["target"] == target]
        assert len(page.rows[f"folds-{place}"]) == 1 + len(own) == 7
    first = folds[folds["target"] == "status=case"].iloc[0]
    assert page.rows["folds-0"][1][:5] == [
        "0",
        "0",
        f"{first['n']:.0f}",
        f"{first['n_positive']:.0f}",
        f"{first['auc']:.3f}",
    ]
    assert len(page.of("svg")) == 5  # two of each target with classes
    assert "--target status=case --target grade:multiclass --target age:regression --folds 3 --repeats 2" in page.words
    assert "n_updates=10" in page.words[page.words.index("deeprc cv") :]
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r'href="#([^"]*)"', source)) <= set(re.findall(r' id="([^"]*)"', source))
    assert "The AUC is the mean over all test folds" in page.words
    assert "r² says how much of the variation between repertoires is predicted" in page.words


def test_a_repertoire_without_a_label_of_a_multiclass_target_has_no_class() -> None:
    labels = {"low": [1.0, 0.0, float("nan")], "high": [0.0, 1.0, float("nan")]}
    parts = [
        pd.DataFrame({"target": f"grade={each}", "repertoire_id": ["a", "b", "c"], "label": own})
        for each, own in labels.items()
    ]
    table = pd.concat(parts, ignore_index=True).assign(repeat=0, fold=0, log_odds=0.0, probability=0.5)
    found = _pivot_classes(table, "grade", ["low", "high"])["label"]
    assert found[:2].tolist() == ["low", "high"]
    assert found.isna().tolist() == [False, False, True]


@pytest.mark.long
@pytest.mark.usefixtures("no_figures")
def test_the_page_counts_the_runs_that_found_a_motif(folder: Path, tmp_path: Path) -> None:
    copy, page = tmp_path / "copy", tmp_path / "report.html"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("runs"))
    deeprc.report(copy, output=page)
    assert "No run found a motif." in Page(page.read_text(encoding="utf-8")).words  # 30 repertoires are too few
    seeds = pd.DataFrame({"kernel": [1], "motif": ["LDR.F"], "output": ["status=case"], "correlation": [0.5]})
    seeds["p_value"] = 0.03
    places = [(repeat, fold, (fold + 1) % 3) for repeat in range(2) for fold in range(3)]
    found = count_motifs({place: seeds.assign(motif=["LDR.F", "LDR"][place[0]]).iloc[: place[1]] for place in places})
    found.to_csv(copy / "motifs.tsv", sep="\t", index=False)
    deeprc.report(copy, output=page)
    rows = Page(page.read_text(encoding="utf-8")).rows["motifs-found"]
    assert rows[1] == ["LDR.F", "status=case", "4 of 6", "4 of 6", "2 of 2", "+0.50", "0.030", "LDR"]
    (copy / "motifs.tsv").unlink()
    deeprc.report(copy, output=page)
    assert "by a version that did not count motifs" in Page(page.read_text(encoding="utf-8")).words


def test_a_folder_that_has_not_ended_or_is_damaged(folder: Path, cohort: RepertoireDataset, tmp_path: Path) -> None:
    copy, page = tmp_path / "copy", tmp_path / "report.html"
    copy.mkdir()
    for name in ("cv.yaml", "folds.tsv", "predictions.tsv", "warnings.json"):
        shutil.copy(folder / name, copy / name)
    with pytest.raises(InputError, match=r"copy: the cross-validation has not ended \(no metrics.json\)"):
        deeprc.report(copy, output=page)
    limits = r"auc_ci: expected 2 values, found \[0\.1\]"
    (copy / "metrics.json").write_text("{}")
    with pytest.raises(InputError, match=r"metrics.json: expected the metrics of at least one target, found none"):
        deeprc.report(copy, output=page)
    (copy / "metrics.json").write_text('{"status=case": {"n": 3, "n_repeats": 1, "auc": 0.5, "auc_ci": [0.1]}}')
    with pytest.raises(InputError, match=rf"metrics.json.*status=case.*: {limits}"):
        deeprc.report(copy, output=page)
    control = '{"control": "size", "relation": "better", "auc": 0.5, "auc_ci": [0.1]}'
    (copy / "metrics.json").write_text(f'{{"status=case": {{"n": 3, "n_repeats": 1, "controls": [{control}]}}}}')
    with pytest.raises(InputError, match=rf"metrics.json.*controls\[0\]: {limits}"):
        deeprc.report(copy, output=page)
    with pytest.raises(InputError, match="the report of a cross-validation takes no CONTAINER"):
        deeprc.report(folder, cohort, output=page)
    assert not page.exists()


@pytest.mark.parametrize(
    ("target", "change", "message"),
    [
        ("status=case", "rows", r"predictions.tsv: no predictions of 'status=case', which metrics.json has"),
        ("grade", "rows", r"predictions.tsv: no predictions of 'grade', which metrics.json has"),
        ("age", "rows", r"predictions.tsv: no predictions of 'age', which metrics.json has"),
        ("status=case", "label", r"predictions.tsv: status=case: expected 30 repertoires with a label .*, found 0"),
        ("grade", "label", r"predictions.tsv: grade: expected 30 repertoires with a label as in metrics.json, found 0"),
        ("status=case", "probability", r"predictions.tsv: status=case: column 'probability': a value is missing"),
        ("grade", "log_odds", r"predictions.tsv: grade: column 'log_odds': a value is missing"),
        ("age", "prediction", r"predictions.tsv: age: column 'prediction': a value is missing"),
        ("grade", "repeat", r"predictions.tsv: grade: expected 2 repeats as in metrics.json, found 1"),
    ],
)
def test_predictions_that_are_not_those_of_the_metrics(
    folder: Path, tmp_path: Path, target: str, change: str, message: str
) -> None:
    copy, page = tmp_path / "copy", tmp_path / "report.html"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("runs"))
    table = pd.read_csv(copy / "predictions.tsv", sep="\t")
    own = (table["target"] == target) | table["target"].str.startswith(f"{target}=")
    if change in ("rows", "repeat"):
        table = table[~own | (change == "repeat") & (table["repeat"] == 0)]
    else:
        table.loc[own, change] = None
    table.to_csv(copy / "predictions.tsv", sep="\t", index=False)
    with pytest.raises(InputError, match=message):
        deeprc.report(copy, output=page)
    assert not page.exists()


@pytest.mark.usefixtures("no_figures")
def test_repeats_that_have_not_ended_are_not_of_the_report(folder: Path, tmp_path: Path) -> None:
    copy, page = tmp_path / "copy", tmp_path / "report.html"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("runs"))
    header = (copy / "cv.yaml").read_text()
    (copy / "cv.yaml").write_text(header.replace("repeats: 2", "repeats: 5"))
    deeprc.report(copy, output=page)
    assert "--folds 3 --repeats 2" in Page(page.read_text(encoding="utf-8")).words


def test_curves_are_of_predictions_that_left_the_repertoire_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "status=case, grade, age"
    with pytest.raises(InputError, match=f"cv: expected one target \\(`target`\\): {names}$"):
        make_figure("curves", folder)
    with pytest.raises(InputError, match=f"cv: no target 'status'; its targets: {names}$"):
        make_figure("curves", folder, options=FigureOptions(target="status"))
    auc = json.loads((folder / "metrics.json").read_text())["status=case"]["auc"]
    legend = make_figure("curves", folder, options=FigureOptions(target="status=case")).axes[1].get_legend()
    assert legend.get_texts()[0].get_text().split()[0] == f"{auc:.3f}"
    monkeypatch.chdir(folder.parent)
    runs = sorted((folder / "runs").iterdir())
    with pytest.raises(InputError, match="`deeprc plot curves cv` draws the curves of its test folds"):
        make_figure("roc", runs, options=FigureOptions(target="status=case"))
    with pytest.raises(InputError, match="`deeprc report cv` shows the calibration in its test folds"):
        make_figure("calibration", runs, options=FigureOptions(target="status=case"))


def test_curves_of_several_classes_are_means_over_folds_repeats_and_classes(folder: Path) -> None:
    auc = json.loads((folder / "metrics.json").read_text())["grade"]["auc"]
    legend = make_figure("curves", folder, options=FigureOptions(target="grade")).axes[1].get_legend()
    assert legend.get_texts()[0].get_text().split()[0] == f"{auc:.3f}"


def test_numbers_are_drawn_as_predicted_in_the_first_repeat(folder: Path) -> None:
    (axis,) = make_figure("curves", folder, options=FigureOptions(target="age")).axes
    table = pd.read_csv(folder / "predictions.tsv", sep="\t")
    first = table[(table["target"] == "age") & (table["repeat"] == 0) & table["label"].notna()]
    (points,) = axis.collections
    x, y = np.asarray(points.get_offsets()).T
    assert sorted(x) == pytest.approx(sorted(first["label"]))
    low, high = axis.get_ylim()
    assert sorted(y) == pytest.approx(sorted(first["prediction"].clip(low, high)))
    assert len(x) == json.loads((folder / "metrics.json").read_text())["age"]["n"] > 20


@pytest.mark.parametrize("target", ["status=case", "grade", "age"])
def test_a_target_without_labels_has_no_curves(folder: Path, tmp_path: Path, target: str) -> None:
    copy = copy_with_labels(folder, tmp_path, target, None)
    metrics = json.loads((copy / "metrics.json").read_text())
    metrics[target] = {"n": 0, "n_repeats": 2}
    (copy / "metrics.json").write_text(json.dumps(metrics))
    with pytest.raises(InputError) as error:
        make_figure("curves", copy, options=FigureOptions(target=target))
    assert str(error.value) == f"{copy}: target {target!r}: no repertoire has a label, so there is nothing to draw"


def test_a_target_with_one_class_in_each_test_fold_has_no_curves(folder: Path, tmp_path: Path) -> None:
    copy = copy_with_labels(folder, tmp_path, "status=case", 1.0)
    with pytest.raises(InputError) as error:
        make_figure("curves", copy, options=FigureOptions(target="status=case"))
    reason = "no test fold has both classes, so there is no curve"
    assert str(error.value) == f"{copy}: target 'status=case': {reason}"


def copy_with_labels(folder: Path, tmp_path: Path, target: str, label: float | None) -> Path:
    """Copy a cross-validation without its runs, with the same label of a target for all repertoires."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("runs"))
    table = pd.read_csv(copy / "predictions.tsv", sep="\t")
    own = (table["target"] == target) | table["target"].str.startswith(f"{target}=")
    table.loc[own, "label"] = label
    table.to_csv(copy / "predictions.tsv", sep="\t", index=False)
    return copy
