"""`deeprc.cv`: ensembles for every test fold, their out-of-fold predictions, and one answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import Tensor

import deeprc
from deeprc.config import load_config
from deeprc.datasets.alphabet import decode_many
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.caution import read_cautions
from deeprc.runs.cross_plan import CrossValidationFolds
from deeprc.runs.cross_validation import CrossValidation
from deeprc.runs.ensemble import load_ensemble
from deeprc.runs.out_of_fold import FoldRuns, predict_fold
from deeprc.runs.run import load_run
from deeprc.runs.run_folders import expand_run_folders
from deeprc.training.state import TrainingState
from tests.conftest import Killed, write_cohort

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

SETTINGS = ["n_updates=20", "evaluate_every=10", "n_kernels=6", "kernel_size=4", "n_sequences=40"]
SMALL = load_config("deeprc", [*SETTINGS, "composition=false", "clones=false"])  # no test here is about branches
PLAIN: dict[str, Any] = {"members": 1, "targets": "status=case"}
TARGETS = ("status=case", "grade:multiclass", "age:regression")
RESULTS = ("predictions.tsv", "folds.tsv", "motifs.tsv", "metrics.json", "warnings.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cv") / "cv"


@pytest.fixture(scope="module")
def once(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> CrossValidation:
    return validate(cohort, tmp_path_factory.mktemp("once") / "cv")


@pytest.fixture(scope="module")
def twice(cohort: RepertoireDataset, folder: Path, plain: CrossValidation) -> CrossValidation:
    """The runs of `plain` in another folder, with one repeat more."""
    shutil.copytree(plain.path, folder)
    return validate(cohort, folder, repeats=2, **PLAIN)


@pytest.fixture(scope="module")
def plain(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> CrossValidation:
    """One run for each fold, of one target."""
    return validate(cohort, tmp_path_factory.mktemp("plain") / "cv", **PLAIN)


def validate(cohort: RepertoireDataset, folder: Path, **options: Any) -> CrossValidation:
    given = {"targets": TARGETS, "config": SMALL, "folds": 3, "group_by": "patient_id", "device": "cpu", **options}
    return deeprc.cv(cohort.container.path, folder, **given)


def test_every_repertoire_is_predicted_once_by_runs_that_have_not_seen_it(
    once: CrossValidation, cohort: RepertoireDataset
) -> None:
    table = once.predictions[once.predictions["target"] == "status=case"]
    assert table["repertoire_id"].tolist() == cohort.repertoire_ids.tolist()
    assert list(once.predictions.columns) == [
        "repertoire_id", "repeat", "fold", "target", "label", "log_odds", "probability", "positive_class",
        "called_class", "prediction",
    ]  # fmt: skip
    runs = sorted((once.path / "runs").iterdir())
    assert [run.name for run in runs] == [
        f"repeat-0-fold-{fold}-validation-{v}" for fold in range(3) for v in range(3) if v != fold
    ]
    for run in map(load_run, runs):
        tested = set(table.loc[table["fold"] == run.settings.split_options.fold, "repertoire_id"])
        assert set(run.splits["test"]) == tested
    donors = cohort.metadata["patient_id"].to_numpy()
    assert table.groupby(donors)["fold"].nunique().max() == 1


def test_predictions_are_those_of_the_ensembles(once: CrossValidation, cohort: RepertoireDataset) -> None:
    ensemble = load_ensemble([once.path / "runs" / f"repeat-0-fold-1-validation-{v}" for v in (0, 2)], device="cpu")
    together, table = ensemble.predict(cohort), once.predictions[once.predictions["fold"] == 1]
    merged = table.merge(together, on=["repertoire_id", "target"])
    assert len(merged) == len(table)
    assert set(merged["split"]) == {"test"}
    for target, rows in merged.groupby("target"):
        if target == "age":
            np.testing.assert_allclose(rows["prediction_x"].astype(float), rows["prediction_y"].astype(float))
        else:  # another slope and intercept: the order of the repertoires stays
            order = np.argsort(rows["probability_y"].to_numpy(np.float64), kind="stable")
            if target == "status=case":
                assert (np.diff(rows["probability_x"].to_numpy(np.float64)[order]) >= 0).all()
    odds = table["log_odds"].to_numpy(np.float64)
    known = table["probability"].notna().to_numpy()
    np.testing.assert_allclose(1 / (1 + np.exp(-odds[known])), table["probability"].to_numpy(np.float64)[known])


@pytest.mark.parametrize(
    ("name", "n_folds", "targets"),
    [("once", 3, TARGETS), pytest.param("twice", 6, ("status=case",), marks=pytest.mark.long)],
)
def test_the_files_are_what_is_returned(
    name: str, n_folds: int, targets: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    found: CrossValidation = request.getfixturevalue(name)
    assert json.loads((found.path / "metrics.json").read_text()) == found.metrics
    stored = pd.read_csv(found.path / "predictions.tsv", sep="\t")
    assert stored["repertoire_id"].tolist() == found.predictions["repertoire_id"].tolist()
    np.testing.assert_allclose(stored["log_odds"], found.predictions["log_odds"].astype(float))
    folds = pd.read_csv(found.path / "folds.tsv", sep="\t")
    assert len(folds) == n_folds * len(targets)
    assert pd.read_csv(found.path / "motifs.tsv", sep="\t").columns.tolist() == found.motifs.columns.tolist()
    assert read_cautions(found.path) == found.cautions
    status = found.metrics["status=case"]
    of_folds = folds.loc[folds["target"] == "status=case", "auc"]
    assert status["auc"] == pytest.approx(of_folds.mean())
    assert status["auc_ci"][0] <= status["auc"] <= status["auc_ci"][1]
    assert {"loss", "loss_base_rate", "brier", "brier_base_rate", "f1", "balanced_accuracy"} <= set(status)
    names = ", ".join(target.partition(":")[0] for target in targets)
    assert repr(found).startswith(f"CrossValidation('{found.path}', {names}")


def test_another_repeat_is_added_with_other_folds(
    plain: CrossValidation, twice: CrossValidation, cohort: RepertoireDataset
) -> None:
    first = twice.predictions[twice.predictions["repeat"] == 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(first, plain.predictions)
    second = twice.predictions[twice.predictions["repeat"] == 1]
    assert second["repertoire_id"].tolist() == first["repertoire_id"].tolist()
    assert second["fold"].tolist() != first["fold"].tolist()
    assert {load_run(run).settings.seed for run in (twice.path / "runs").glob("repeat-1-*")} == {1}
    assert len(twice.metrics["status=case"]["auc_by_repeat"]) == 2
    assert "one-repeat" in {each.name for each in plain.cautions}
    assert "one-repeat" not in {each.name for each in twice.cautions}
    with pytest.raises(InputError, match=r"cv: was started with `repeats=2`; choose another `output`$"):
        validate(cohort, twice.path, **PLAIN)


def test_the_same_call_continues(plain: CrossValidation, cohort: RepertoireDataset, tmp_path: Path) -> None:
    updates: list[int] = []

    def kill_in_the_second(state: TrainingState, loss: Tensor) -> None:
        updates.append(state.update)
        if updates.count(15) == 2:
            raise Killed

    options = PLAIN
    with pytest.raises(Killed):
        validate(cohort, tmp_path / "cv", progress=kill_in_the_second, **options)
    assert sorted(path.name for path in (tmp_path / "cv").iterdir()) == ["cv.yaml", "runs"]
    (tmp_path / "cv" / "folds.tsv").symlink_to(tmp_path / "mine.tsv")
    with pytest.raises(InputError, match=r"cv/folds\.tsv: is a link that leads out of "):
        validate(cohort, tmp_path / "cv", **options)
    (tmp_path / "cv" / "folds.tsv").unlink()
    for changed, name in (
        ({"seed": 3}, "seed"),
        ({"members": 2}, "members"),
        ({"targets": "grade:multiclass"}, "targets"),
    ):
        with pytest.raises(InputError, match=rf"cv: was started with `{name}=.*`; choose another `output`$"):
            validate(cohort, tmp_path / "cv", **{**options, **changed})
    with pytest.raises(
        InputError,
        match=r"was started with other settings \(.*n_updates.*\); give the same, or choose another `output`$",
    ):
        validate(cohort, tmp_path / "cv", config=load_config("deeprc", ["n_updates=30"]), **options)
    before = (tmp_path / "cv" / "cv.yaml").read_bytes()
    for refused in ({"config": load_config("deeprc", ["n_updates=30"])}, {"device": "abacus"}):
        with pytest.raises(InputError):
            validate(cohort, tmp_path / "cv", **{**options, "repeats": 2, **refused})
    assert (tmp_path / "cv" / "cv.yaml").read_bytes() == before
    moved = shutil.copy(cohort.container.path, tmp_path / "moved.h5")  # as on another machine
    validate(open_dataset(moved), tmp_path / "cv", **options)
    assert len(expand_run_folders([tmp_path / "cv"])) == 3
    for name in RESULTS:
        assert (tmp_path / "cv" / name).read_bytes() == (plain.path / name).read_bytes()
    assert len(list((tmp_path / "cv" / "runs").iterdir())) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 2}, "^`folds=2`: expected at least 3$"),
        ({"repeats": 0}, "^`repeats=0`: expected at least 1$"),
        ({"repeats": 50_000}, "^folds x repeats x members: expected at most 100,000 runs, found 300,000$"),
        ({"members": 3}, "^`members=3`: expected 1 to 2, one for each validation fold$"),
        ({"members": 0}, "^`members=0`: expected 1 to 2"),
        ({"seed": 2**32 - 1, "repeats": 2}, "^`seed=4294967295`: expected 0 to 4294967294$"),
        ({"device": "abacus"}, "^`device=abacus`: not available here"),
        ({"jobs": 0}, "^`jobs=0`: expected at least 1$"),
        ({"targets": "height"}, "no metadata column 'height'"),
        ({"group_by": "site"}, "no column 'site' for `group_by`"),
        ({"folds": 9}, "the smallest class has 7 repertoires; expected at least 9"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(
    cohort: RepertoireDataset, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    given = {"targets": "grade:multiclass", **options}
    with pytest.raises(InputError, match=message):
        validate(cohort, tmp_path / "cv", **given)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(cohort: RepertoireDataset, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"exists already; choose another `output`$"):
        validate(cohort, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "cv.yaml").write_text("format: deeprc-cv\nversion: 1\nfolds: many\n")
    with pytest.raises(InputError, match=r"cv.yaml"):
        validate(cohort, tmp_path / "damaged")


@pytest.mark.parametrize("name", ["predictions.tsv", "folds.tsv", "motifs.tsv", "warnings.json"])
def test_metrics_stay_if_another_result_cannot_be_written(
    plain: CrossValidation, cohort: RepertoireDataset, tmp_path: Path, name: str
) -> None:
    shutil.copytree(plain.path, tmp_path / "cv")
    (tmp_path / "cv" / name).unlink()
    (tmp_path / "cv" / name).mkdir()
    with pytest.raises(InputError, match=f"cv/{name}: is a folder; expected the name of a file to write"):
        validate(cohort, tmp_path / "cv", **PLAIN)
    assert (tmp_path / "cv" / "metrics.json").read_bytes() == (plain.path / "metrics.json").read_bytes()


def test_no_metrics_stand_beside_predictions_of_another_call(
    plain: CrossValidation, cohort: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise Killed

    shutil.copytree(plain.path, tmp_path / "cv")
    monkeypatch.setattr("deeprc.runs.cross_validation.write_cautions", kill)
    with pytest.raises(Killed):
        validate(cohort, tmp_path / "cv", repeats=2, **PLAIN)
    assert set(pd.read_csv(tmp_path / "cv" / "predictions.tsv", sep="\t")["repeat"]) == {0, 1}
    with pytest.raises(InputError, match=r"the cross-validation has not ended \(no metrics.json\)"):
        deeprc.report(tmp_path / "cv", output=tmp_path / "report.html")


def test_members_that_test_on_other_repertoires_are_refused(once: CrossValidation, cohort: RepertoireDataset) -> None:
    runs = tuple(once.path / "runs" / f"repeat-0-fold-{fold}-validation-2" for fold in (0, 1))
    with pytest.raises(InputError, match=r"fold-1-validation-2: expected the test repertoires of .*, found others$"):
        predict_fold(FoldRuns(0, 0, runs, Path(cohort.container.path), "cpu"))


def test_a_fold_of_a_cohort_that_was_replaced_after_the_training_is_refused(
    plain: CrossValidation, cohort_factory: Callable[..., RepertoireDataset]
) -> None:
    """Its ids are the same, but its sequences are not."""
    runs = (plain.path / "runs" / "repeat-0-fold-0-validation-1",)
    other = cohort_factory(seed=5).container.path
    with pytest.raises(InputError, match=r"cohort.h5: its repertoires or labels have changed since .* was started"):
        predict_fold(FoldRuns(0, 0, runs, Path(other), "cpu"))


def test_the_number_of_folds_may_be_one_of_numpy(cohort: RepertoireDataset) -> None:
    for folds in (4, np.int64(4)):
        found = CrossValidationFolds.parse(folds, cohort.metadata, "cohort.h5")  # type: ignore[arg-type]
        assert found == (4, None)
        assert type(found.n) is int
    with pytest.raises(InputError, match=r"^`folds=4.0`: expected a number or leave-one-out:COLUMN$"):
        CrossValidationFolds.parse(4.0, cohort.metadata, "cohort.h5")  # type: ignore[arg-type]


def test_donors_in_several_folds_are_told(cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path) -> None:
    small = cohort_factory(12, 20)
    found = validate(small, tmp_path / "cv", targets="status=case", group_by=None, members=1)
    assert {"subjects-apart", "few", "one-repeat"} <= {each.name for each in found.cautions}


def test_shortcuts_and_copies_are_told(cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path) -> None:
    some = cohort_factory(30, 200)
    repertoires = [decode_many(each.residues, each.offsets) for each in some]
    repertoires[3], repertoires[4] = repertoires[0], repertoires[1]
    metadata = pd.DataFrame({"status": some.metadata["status"], "kit": some.metadata["status"].replace("case", "new")})
    made = write_cohort(tmp_path / "cohort.h5", repertoires, metadata)
    found = validate(made, tmp_path / "cv", targets="status=case", group_by=None, members=1)
    named = {each.name: each for each in found.cautions}
    assert named["label-from-column"].details["column"] == "kit"
    apart = named["duplicates-apart"].details
    assert apart["apart"] == "folds"
    fold_of = found.predictions.set_index("repertoire_id")["fold"]
    pairs = [["rep.0", "rep.3"], ["rep.1", "rep.4"]]
    assert apart["groups"] == [pair for pair in pairs if fold_of[pair].nunique() == 2]
    assert read_cautions(found.path) == found.cautions
