"""A cross-validation whose test folds are sites, with its controls and its AUC within sites."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import deeprc
from deeprc.baselines.controls import VGeneUsage
from deeprc.cli.cv import cv
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.auc_comparison import compute_midrank_aucs
from deeprc.evaluation.stored_tables import read_fold_metrics
from deeprc.evaluation.strata import StratifiedAuc, compute_stratified_auc
from deeprc.interpretation.report import write_any_report
from deeprc.runs.cross_cautions import find_cross_validated_chance_cautions
from deeprc.runs.cross_plan import read_header
from deeprc.runs.cross_validation import CrossValidation
from deeprc.runs.run import load_run, read_splits
from deeprc.runs.run_cautions import find_control_cautions
from deeprc.runs.strata_cautions import find_cross_validated_strata_cautions
from tests.toys.site_cohorts import draw_sites

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

SETTINGS = ["n_updates=2", "evaluate_every=2", "n_kernels=8", "n_sequences=20", "composition=false", "clones=false"]
TINY = load_config("deeprc", [*SETTINGS, "seeded_start=0"])


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return draw_sites(tmp_path_factory.mktemp("sites") / "cohort.h5", 160, signal=1.0)


@pytest.fixture(scope="module")
def at_random(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> CrossValidation:
    folder = tmp_path_factory.mktemp("cv") / "random"
    given = {"targets": "status=sick", "folds": 3, "members": 2, "config": TINY, "device": "cpu"}
    return deeprc.cv(cohort.container.path, folder, **given)


@pytest.fixture(scope="module")
def left_out(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> CrossValidation:
    return leave_out(cohort, tmp_path_factory.mktemp("cv") / "sites")


def leave_out(cohort: RepertoireDataset, folder: Path, column: str = "site", members: int = 1) -> CrossValidation:
    given = {"targets": "status=sick", "members": members, "config": TINY, "device": "cpu"}
    return deeprc.cv(cohort.container.path, folder, folds=f"leave-one-out:{column}", **given)


def test_each_site_is_a_test_fold(left_out: CrossValidation, cohort: RepertoireDataset) -> None:
    names = sorted(run.name for run in (left_out.path / "runs").iterdir())
    assert names == [f"repeat-0-fold-{fold}-validation-0" for fold in range(4)]
    site_of = dict(zip(cohort.repertoire_ids, cohort.metadata["site"], strict=True))
    table = left_out.predictions
    assert table["repertoire_id"].tolist() == cohort.repertoire_ids.tolist()
    assert [f"site {fold}" for fold in table["fold"]] == [site_of[name] for name in table["repertoire_id"]]
    for fold in range(4):
        run = load_run(left_out.path / "runs" / f"repeat-0-fold-{fold}-validation-0", device="cpu")
        assert run.settings.split_options.test == f"site=site {fold}"
        assert len(run.splits["validation"]) == pytest.approx(len(run.splits["train"]) / 4, abs=2)
    header = read_header(left_out.path)
    assert (header.folds, header.left_out, header.members) == (4, "site", 1)
    assert left_out.metrics["status=sick"]["n_folds"] == 4
    stored = read_fold_metrics(left_out.path / "folds.tsv")
    assert stored["left_out"].tolist() == left_out.folds["left_out"].tolist() == [f"site {i}" for i in range(4)]


def test_the_same_call_continues_and_another_is_refused(left_out: CrossValidation, cohort: RepertoireDataset) -> None:
    again = leave_out(cohort, left_out.path)
    assert again.metrics == left_out.metrics
    with pytest.raises(InputError, match="was started with `left_out=site`; choose another `output`"):
        deeprc.cv(cohort.container.path, left_out.path, targets="status=sick", folds=4, members=1, config=TINY)


def test_cross_validation_refuses_columns_that_cannot_be_left_out(cohort: RepertoireDataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column 'place' for `folds=leave-one-out:place`"):
        leave_out(cohort, tmp_path / "cv", "place")
    with pytest.raises(InputError, match="`members=6`: expected 1 to 5, one for each validation fold"):
        leave_out(cohort, tmp_path / "cv", members=6)
    with pytest.raises(InputError, match="`folds=many`: expected a number or leave-one-out:COLUMN"):
        deeprc.cv(cohort.container.path, tmp_path / "cv", targets="status=sick", folds="many", config=TINY)
    assert not (tmp_path / "cv").exists()
    given = [str(cohort.container.path), "--target", "status=sick", "--output", str(tmp_path / "cv"), "--folds", "x"]
    assert "expected a number or leave-one-out:COLUMN, found 'x'" in CliRunner().invoke(cv, given).output


def test_the_auc_within_sites(at_random: CrossValidation, cohort: RepertoireDataset) -> None:
    (within,) = at_random.metrics["status=sick"]["within"]
    table = at_random.predictions
    site = cohort.metadata["site"]
    label, score = table["label"].to_numpy(float), table["log_odds"].to_numpy(float)
    expected = compute_stratified_auc("site", site.tolist(), label, score, folds=table["fold"].tolist())
    assert expected is not None
    assert within == {**expected.to_dict(), "n_strata": 4, "auc_ci": pytest.approx(expected.to_dict()["auc_ci"])}
    assert json.loads((at_random.path / "metrics.json").read_text())["status=sick"]["within"] == [within]


def test_controls_are_fitted_on_the_other_folds(at_random: CrossValidation, cohort: RepertoireDataset) -> None:
    controls = {each["control"]: each for each in at_random.metrics["status=sick"]["controls"]}
    assert list(controls) == ["size", "v-genes", "sheet"]
    label = (cohort.metadata["status"] == "sick").to_numpy().astype(np.int64)
    fold = at_random.predictions["fold"].to_numpy()
    aucs = []
    for index in range(3):
        inside, outside = np.flatnonzero(fold != index), np.flatnonzero(fold == index)
        scores = VGeneUsage().fit(cohort[inside], label[inside]).decision_function(cohort[outside])
        aucs.append(compute_midrank_aucs(label[outside], scores[None])[0])
    assert controls["v-genes"]["auc"] == pytest.approx(np.mean(aucs))
    assert controls["v-genes"]["auc"] > 0.75  # the kit; the network of two updates knows nothing
    assert controls["v-genes"]["relation"] == "better"
    assert controls["sheet"]["columns"] == ["site"]
    told = [each.details.get("control") for each in at_random.cautions if each.name == "control-not-worse"]
    assert {"v-genes", "sheet"} <= set(told)


def test_a_control_by_the_sheet_is_told_with_the_auc_within_its_columns() -> None:
    """A batch may tell the classes as well as the network does, and the network may tell them within each batch."""
    found: Any = SimpleNamespace(
        quantity=SimpleNamespace(target="status"),
        columns=["batch"],
        table=pd.DataFrame({"method": ["sheet"]}),
        is_of_class=False,
        is_above_chance=lambda name: True,
        describe=lambda name: f"Sentence about {name}.",
        to_list=lambda: [{"control": name, "relation": "equal"} for name in ("size", "sheet")],
    )
    batch, sex = StratifiedAuc("batch", 0.99, 0.87, 1.0, 120, 2), StratifiedAuc("sex", 0.6, 0.45, 0.8, 120, 2)
    explained = ["Sentence about size.", "Sentence about sheet."]
    assert [each.text for each in find_control_cautions([found], {"status": [batch]})] == [
        "Sentence about size.",
        "Sentence about sheet. But the network also separates the classes among repertoires with the same value of "
        "'batch' (0.990, 0.870 to 1.000). So this column alone does not explain what the network has learned.",
    ]
    assert [each.text for each in find_control_cautions([found], {})] == explained
    found.columns = ["batch", "sex"]  # one of them may be what the network has learned
    assert [each.text for each in find_control_cautions([found], {"status": [batch]})] == explained
    assert [each.text for each in find_control_cautions([found], {"status": [batch, sex]})] == explained


@pytest.mark.long
def test_controls_of_adjusted_runs_learn_from_what_each_run_has(tmp_path: Path) -> None:
    cohort = draw_sites(tmp_path / "cohort.h5", 240, signal=1.0)
    given = {"targets": "status=sick", "folds": 3, "members": 2, "adjust_for": "site", "config": TINY, "device": "cpu"}
    found = deeprc.cv(cohort.container.path, tmp_path / "cv", **given)
    controls = {each["control"]: each for each in found.metrics["status=sick"]["controls"]}
    label = (cohort.metadata["status"] == "sick").to_numpy().astype(np.int64)
    place = {name: row for row, name in enumerate(cohort.repertoire_ids.tolist())}
    aucs = []
    for fold in range(3):
        scores, sizes = [], set()
        for run in sorted((found.path / "runs").glob(f"repeat-0-fold-{fold}-*")):
            splits, _ = read_splits(run)
            rows = np.sort([place[name] for side in ("train", "validation") for name in splits[side]])
            tested = np.sort([place[name] for name in splits["test"]])
            scores.append(VGeneUsage().fit(cohort[rows], label[rows]).decision_function(cohort[tested]))
            sizes.add(tuple(rows))
        assert len(sizes) == 2
        aucs.append(compute_midrank_aucs(label[tested], np.mean(scores, axis=0)[None])[0])
    assert controls["v-genes"]["auc"] == pytest.approx(np.mean(aucs))


def test_the_warning_within_values_knows_the_adjustment() -> None:
    within = {"sick": [StratifiedAuc("site", 0.5, 0.4, 0.6, 100, 40)]}
    metrics = {"sick": {"auc": 0.9, "auc_ci": [0.85, 0.95]}}
    (plain,), (adjusted,) = (
        find_cross_validated_strata_cautions(within, metrics, columns) for columns in ((), ("site",))
    )
    assert plain.text.endswith("learned 'site' instead of the target. Train with `adjust_for=site`.")
    assert adjusted.text.endswith("learned 'site' instead of the target, although training was adjusted for it.")


def test_the_page_shows_the_controls(at_random: CrossValidation, left_out: CrossValidation, tmp_path: Path) -> None:
    pages = []
    for found in (at_random, left_out):
        write_any_report(found.path, output=tmp_path / "page.html")
        pages.append((tmp_path / "page.html").read_text())
    assert "The AUC among repertoires with the same value of a column" in pages[0]
    assert "Control methods of status=sick, on the test folds of the first repeat" in pages[0]
    assert "V gene usage" in pages[0]
    assert "--folds leave-one-out:site" in pages[1]
    assert "Each of the 4 values of &#39;site&#39; was left out for testing once" in pages[1]
    assert [">site 2<" in page for page in pages] == [False, True]


def test_results_that_may_be_chance_are_warned_of() -> None:
    metrics = {
        "poor": {"auc": 0.68, "auc_ci": [0.417, 0.857]},
        "good": {"auc": 0.68, "auc_ci": [0.517, 0.857]},
        "one repeat": {"auc": 0.5, "auc_ci": None},
        "age": {"r2": -0.6, "r2_ci": [-1.2, -0.2]},
        "bmi": {"r2": 0.3, "r2_ci": [0.1, 0.5]},
        "none": {"auc": None, "auc_ci": None},
    }
    found = list(find_cross_validated_chance_cautions(metrics))
    assert [each.details["target"] for each in found] == ["poor", "one repeat", "age"]
    assert found[0].text.startswith(
        "poor is not predicted significantly better than by chance (0.5): the AUC is 0.680, with a 95% "
    )
    assert "the r² is -0.600" in found[2].text
