"""Several methods that predict together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.special import expit

from deeprc.baselines.logistic import LogisticRegression
from deeprc.benchmarking.jobs import Job, run_job
from deeprc.benchmarking.methods import Method
from deeprc.benchmarking.registry import METHODS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier
from deeprc.evaluation.splits import Split
from deeprc.stacking import Stack
from deeprc.stacking.cohort import fit_stack, list_prediction_columns, predict_with_stack
from deeprc.stacking.members import TrainingFolds, fit_member, score_with
from deeprc.tasks import Task
from deeprc.training.estimator import DeepRCClassifier
from tests.toys.repertoires import make_sequences, write_repertoires
from tests.toys.saved_files import change_description

QUICK = {"n_updates": 10, "evaluate_every": 5, "n_kernels": 8, "kernel_size": 4, "n_sequences": 50}
LIGHT = {**QUICK, "composition": False, "clones": False}  # where the network need not be good
FEW = ["deeprc", "logistic", "public-clones"]


def labels(dataset: RepertoireDataset) -> NDArray[Any]:
    found: NDArray[Any] = dataset.metadata["status"].to_numpy()
    return found


@pytest.fixture(scope="module")
def stack(cohort: RepertoireDataset) -> Stack:
    model = Stack(members=FEW, n_folds=3, overrides=QUICK, device="cpu")
    return model.fit(cohort[:24], labels(cohort)[:24])


@pytest.mark.slow
def test_the_network_has_the_largest_share_of_two_perfect_members(stack: Stack, cohort: RepertoireDataset) -> None:
    table = stack.member_table()
    assert table.index.tolist() == FEW
    assert table["auc"][["deeprc", "logistic"]].tolist() == [1.0, 1.0]
    assert table["share"].idxmax() == "deeprc"  # its log-odds are expected to count as they are
    assert table["share"]["logistic"] > 0.1
    assert table["weight"]["public-clones"] == 0  # no clone is shared
    assert table["share"].sum() == pytest.approx(1)
    assert stack.auc_ == 1.0
    assert stack.predict(cohort[24:]).tolist() == labels(cohort)[24:].tolist()


def test_contributions_sum_to_the_log_odds(stack: Stack, cohort: RepertoireDataset) -> None:
    added = stack.contributions(cohort[24:])
    assert added.index.tolist() == list(cohort[24:].repertoire_ids)
    log_odds = added.sum(axis=1).to_numpy() + stack.combination_.intercept
    np.testing.assert_allclose(stack.decision_function(cohort[24:]), log_odds, atol=1e-9)
    np.testing.assert_allclose(stack.predict_proba(cohort[24:])[:, 1], expit(log_odds), atol=1e-9)


def test_members_are_fitted_to_all_repertoires(stack: Stack, cohort: RepertoireDataset) -> None:
    """The member is the method with a setting of its search space, as if it had been fitted alone."""
    (logistic,) = stack._members[1].models
    alone = LogisticRegression(C=logistic.C, penalty=logistic.penalty).fit(cohort[:24], labels(cohort)[:24] != "case")
    scores = stack.member_scores(cohort[24:])["logistic"].to_numpy()
    known, new = alone.decision_function(cohort[:24]), alone.decision_function(cohort[24:])
    np.testing.assert_allclose(scores, (new - known.mean()) / known.std(), atol=1e-4)


def test_networks_of_all_folds_predict_together(stack: Stack, cohort: RepertoireDataset) -> None:
    models = stack._members[0].models
    assert len(models) == 3
    assert all(isinstance(model, DeepRCClassifier) for model in models)
    learned = [set(np.concatenate([model.train_digests_, model.validation_digests_])) for model in models]
    digests = identify_repertoires(cohort[:24])
    assert [sum(digest not in each for each in learned) for digest in digests] == [1] * 24  # each is left out once
    expected = np.mean([score_with(model, cohort[24:]) for model in models], axis=0)
    np.testing.assert_allclose(stack.member_scores(cohort[24:])["deeprc"], expected, atol=1e-6)


def test_networks_score_the_fold_that_they_have_not_seen(cohort: RepertoireDataset) -> None:
    y = (labels(cohort) == "case").astype(np.int64)
    training = TrainingFolds(cohort, y, np.arange(len(y)) // 2 % 3, None, 0)
    member, held_out = fit_member(Method("deeprc", "DeepRC", DeepRCClassifier(overrides=LIGHT, device="cpu")), training)
    for fold, model in enumerate(member.models):
        own = training.fold_of == fold
        np.testing.assert_allclose(held_out[own], score_with(model, cohort[own]), atol=1e-6)
        known = set(np.concatenate([model.train_digests_, model.validation_digests_]))
        assert known == set(identify_repertoires(cohort[~own]))


def test_parameters_reach_the_members(stack: Stack) -> None:
    network = stack._members[0].models[0].model_.config.network
    assert (network.n_kernels, network.kernel_size) == (8, 4)
    made = {method.name: method.estimator for method in Stack(members=["boosted", "deeprc"], seed=7)._make_methods()}
    assert made["boosted"].seed == made["deeprc"].seed == 7
    assert made["deeprc"].config == "deeprc"
    (of_paper,) = Stack(members=["deeprc"], preset="paper", overrides={"n_updates": 5})._make_methods()
    assert (of_paper.estimator.config, of_paper.estimator.overrides) == ("paper", {"calibrate": True, "n_updates": 5})
    (own,) = Stack(members=["deeprc"], preset="paper", config="cmv")._make_methods()
    assert own.estimator.config == "cmv"


def test_scores_of_a_network_are_its_calibrated_log_odds(stack: Stack, cohort: RepertoireDataset) -> None:
    model = stack._members[0].models[0]
    np.testing.assert_allclose(expit(score_with(model, cohort)), model.predict_proba(cohort)[:, 1], atol=1e-6)


def test_members_are_fitted_without_calibration(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack takes their scores, so it spares the fits that only their probabilities need."""
    monkeypatch.delattr(BinaryClassifier, "_calibrate")
    model = Stack(members=["logistic", "diversity", "svm-minmax"], n_folds=2).fit(cohort, labels(cohort))
    assert model.predict_proba(cohort).shape == (30, 2)


def test_a_benchmark_computes_the_scores_of_the_members_once_per_part(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    whole = Stack.member_scores

    def member_scores(self: Stack, X: RepertoireDataset) -> pd.DataFrame:
        asked.append(X.repertoire_ids)
        return whole(self, X)

    monkeypatch.setattr(Stack, "member_scores", member_scores)
    y = (labels(cohort) == "case").astype(np.int64)
    split = Split(np.arange(10, 30), np.arange(6, 10), np.arange(6))
    task = Task("status", "status", "binary", ("healthy", "case"))
    estimator = Stack(members=["logistic", "diversity"], n_folds=2)
    outcome = run_job(Job("k", "stack", 0, "final", cohort, estimator, ({},), split, y, task))
    assert [len(ids) for ids in asked] == [6, 4, 6]  # test and validation, and test after the refit
    log_odds = (
        np.sum([each["contributions"] for each in outcome["members"]], axis=0) + outcome["members"][0]["intercept"]
    )
    np.testing.assert_allclose(outcome["test"]["score"], log_odds, atol=1e-12)


def test_donors_stay_together(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network has seen another repertoire of a donor whose score it gives."""
    donors = cohort.metadata["patient_id"].to_numpy()
    y = np.array(["case", "healthy"])[np.arange(len(cohort)) // 2 % 2]
    model = Stack(members=["deeprc"], n_folds=3, overrides=QUICK, device="cpu").fit(cohort, y, groups=donors)
    donor_of = dict(zip(identify_repertoires(cohort), donors, strict=True))
    for network in model._members[0].models:
        train, validation = (
            {donor_of[d] for d in each} for each in (network.train_digests_, network.validation_digests_)
        )
        assert not train & validation
        assert len(train | validation) == 10  # of 15 donors
    with pytest.raises(ValueError, match="groups: expected 30 values"):
        Stack(members=["logistic"]).fit(cohort, y, groups=donors[:3])


def test_a_saved_stack_predicts_the_same(stack: Stack, cohort: RepertoireDataset, tmp_path: Path) -> None:
    stack.save(tmp_path / "stack.safetensors")
    loaded = Stack.load(tmp_path / "stack.safetensors")
    np.testing.assert_array_equal(loaded.decision_function(cohort), stack.decision_function(cohort))
    assert loaded.member_table().equals(stack.member_table())
    assert loaded.auc_ == stack.auc_
    np.testing.assert_array_equal(loaded.is_known(cohort), np.arange(30) < 24)


def test_predictions_name_the_training_repertoires(
    stack: Stack, cohort: RepertoireDataset, caplog: pytest.LogCaptureFixture
) -> None:
    table = predict_with_stack(stack, cohort)
    recognised = list_prediction_columns(stack)
    assert table.columns.tolist() == [*recognised[:2], "target", "label", *recognised[2:]]
    assert table["split"].tolist() == ["train"] * 24 + ["new"] * 6
    assert caplog.messages == [
        "24 of 30 repertoires are training repertoires of the stack (split 'train'): their predictions are too good. "
        "Judge the stack by the others."
    ]
    caplog.clear()
    assert set(predict_with_stack(stack, cohort[24:])["split"]) == {"new"}
    assert caplog.messages == []


def test_a_file_of_an_earlier_version_names_no_training_repertoires(
    stack: Stack, cohort: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stack.save(tmp_path / "stack.safetensors")
    with safe_open(tmp_path / "stack.safetensors", framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        body = json.loads(file.metadata()["deeprc"])
    for name in ("training_identities_", "positive_class_"):
        del body["values"][name]
    save_file(arrays, tmp_path / "earlier.safetensors", {"deeprc": json.dumps(body)})
    table = predict_with_stack(Stack.load(tmp_path / "earlier.safetensors"), cohort)
    assert set(table["split"]) == set(table["positive_class"]) == {""}
    assert caplog.messages == [
        "This stack does not know its training repertoires (a file of an earlier version). If this is its training "
        "cohort, the predictions are too good."
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "os:system"}, "expected methods of deeprc"),
        ({"models": []}, "at least one model"),
        ({"name": "svm-minmax"}, "unexpected keyword"),
        ({"models": [{"parameters": {"C": 1.0}}]}, "values"),
        (
            {"models": [{"parameters": {}, "values": 3}]},
            "damaged: logistic: values: expected names and values, found 3",
        ),
        ({"models": [{"parameters": {}}]}, "damaged: logistic: values: expected names and values, found None"),
    ],
)
def test_a_damaged_file_is_refused(stack: Stack, tmp_path: Path, change: dict[str, object], message: str) -> None:
    stack.save(tmp_path / "stack.safetensors")
    changed = change_description(
        tmp_path / "stack.safetensors", lambda body: body["values"]["members_"]["value"][1].update(change)
    )
    with pytest.raises(InputError, match=message):
        Stack.load(changed)


@pytest.mark.parametrize("name", ["target_", "positive_class_"])
@pytest.mark.parametrize("value", [7, ["a"], {"a": 1}, None, "a\x1b[0m"])
def test_a_damaged_name_of_the_target_is_refused(stack: Stack, tmp_path: Path, name: str, value: object) -> None:
    stack.save(tmp_path / "stack.safetensors")
    changed = change_description(
        tmp_path / "stack.safetensors", lambda body: body["values"].update({name: {"value": value}})
    )
    with pytest.raises(InputError, match=f"is damaged: {name}: expected text"):
        Stack.load(changed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("combination.weights", [np.nan, 1.0, 0.0]),
        ("combination.weights", [-1.0, 1.0, 0.0]),
        ("combination.weights", [1.0, 0.0]),
        ("combination.centres", [np.inf, 0.0, 0.0]),
        ("combination.intercept", [np.nan]),
        ("units.1", [0.0, 0.0]),
        ("units.1", [np.nan, 1.0]),
        ("calibration_", [1.0]),
        ("model.1.0.coef_", [[1.0, 2.0]]),
    ],
)
def test_damaged_numbers_are_refused(stack: Stack, tmp_path: Path, name: str, value: list[float]) -> None:
    path = tmp_path / "stack.safetensors"
    stack.save(path)
    with safe_open(path, framework="np") as file:
        arrays = {each: file.get_tensor(each) for each in file.keys()}  # noqa: SIM118 (no mapping)
        header = file.metadata()
    assert name in arrays
    save_file({**arrays, name: np.array(value)}, path, header)
    with pytest.raises(InputError, match="is damaged"):
        Stack.load(path)


def test_a_constant_member_is_saved_and_loaded(cohort: RepertoireDataset, tmp_path: Path) -> None:
    """No clone is shared, so public clones give all the same score: their unit is infinite."""
    model = Stack(members=["public-clones", "logistic"], n_folds=2).fit(cohort, labels(cohort))
    assert model._members[0].scale == np.inf
    model.save(tmp_path / "stack.safetensors")
    loaded = Stack.load(tmp_path / "stack.safetensors")
    np.testing.assert_array_equal(loaded.decision_function(cohort), model.decision_function(cohort))
    assert (loaded.contributions(cohort)["public-clones"] == 0).all()
    assert not [name for name in vars(loaded) if "." in name]


def test_a_file_does_not_depend_on_the_device_or_a_configuration_file(
    cohort: RepertoireDataset, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("training: {n_updates: 5}")
    settings = {"config": str(tmp_path / "mine.yaml"), "overrides": QUICK, "device": "cpu"}
    model = Stack(members=["deeprc"], n_folds=2, **settings).fit(cohort, labels(cohort))
    model.device = model._members[0].models[0].device = "cuda:7"
    model.save(tmp_path / "stack.safetensors")
    (tmp_path / "mine.yaml").unlink()
    loaded = Stack.load(tmp_path / "stack.safetensors")
    np.testing.assert_allclose(loaded.decision_function(cohort), model.decision_function(cohort), atol=1e-5)


def test_a_member_that_the_cohort_does_not_allow_is_left_out(tmp_path: Path) -> None:
    """Without V genes there is no usage of V genes."""
    repertoires = []
    for number in range(12):
        junctions = ["CASSLGETQYF", "CASRPDRNTEAFF", "CAWSVGQETQYF" if number % 2 else "CSARDNEQFF"]
        repertoires.append(make_sequences(junctions, [1 + number] * 3))
    plain = write_repertoires(tmp_path / "plain.h5", repertoires, {"status": ["a", "b"] * 6})
    model = Stack(members=["v-gene-usage", "logistic"], n_folds=2).fit(plain, labels(plain))
    assert model.member_names_.tolist() == ["logistic"]
    with pytest.raises(InputError, match="none of the members v-gene-usage can be fitted to it"):
        Stack(members=["v-gene-usage"]).fit(plain, labels(plain))


@pytest.mark.parametrize(
    "members",
    [[], ["logistic"] * 2, ["stack"], ["known-motif-binary"], ["sheet-columns"], ["nonsense"], "logistic", None],
)
def test_wrong_members_are_refused(members: Any) -> None:
    with pytest.raises(InputError, match="members: expected"):
        Stack(members=members).check_parameters()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_folds": 1}, "n_folds: expected a whole number of at least 2"),
        ({"n_folds": 2.5}, "n_folds: expected a whole number"),
        ({"n_folds": "3"}, "n_folds: expected a whole number"),
        ({"preset": "nope"}, "nope"),
        ({"device": "nowhere"}, "not available here"),
        ({"overrides": {"n_update": 3}}, "did you mean 'n_updates'"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_fitted(
    cohort: RepertoireDataset, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Stack(members=["logistic", "deeprc"], **parameters).fit(cohort, labels(cohort))


def test_a_preset_with_a_fault_is_not_ignored(cohort: RepertoireDataset, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("logistic: {search: {C: 3}}")
    with pytest.raises(InputError, match=r"mine\.yaml: logistic\.search: C"):
        Stack(members=["logistic", "diversity"], preset=str(tmp_path / "mine.yaml")).fit(cohort, labels(cohort))


def test_donors_of_both_classes_get_fewer_folds(cohort: RepertoireDataset) -> None:
    """With three donors, one of whom has one class only, no division into three folds has both classes in each."""
    y = np.array(["b", "a"] * 15)
    y[20:] = "a"
    model = Stack(members=["diversity"], n_folds=5)
    donors = np.arange(30) // 10
    with pytest.raises(ValueError, match="at least 3 donors"):
        model.fit(cohort[:20], y[:20], groups=donors[:20])
    model.fit(cohort, y, groups=donors)
    assert np.isfinite([model.auc_, *model.member_aucs_]).all()


def test_a_failed_fit_changes_nothing(cohort: RepertoireDataset) -> None:
    model = Stack(members=["diversity"], n_folds=2).fit(cohort, labels(cohort))
    before = model.decision_function(cohort)
    with pytest.raises(ValueError, match="at least 3 different"):
        model.fit(cohort[:4], labels(cohort)[:4])
    np.testing.assert_array_equal(model.decision_function(cohort), before)


def test_too_few_repertoires_are_refused(cohort: RepertoireDataset) -> None:
    with pytest.raises(ValueError, match="at least 3 different repertoires of each class"):
        Stack(members=["logistic"]).fit(cohort[:5], labels(cohort)[:5])


def test_members_are_methods_of_the_benchmark() -> None:
    Stack().check_parameters()
    assert METHODS["stack"].estimator == "deeprc.stacking.stack:Stack"


@pytest.mark.parametrize(("group_by", "is_told"), [(None, True), ("patient_id", False)])
def test_donors_in_several_folds_are_a_warning(
    cohort: RepertoireDataset,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    group_by: str | None,
    *,
    is_told: bool,
) -> None:
    monkeypatch.setattr(Stack, "fit", lambda stack, *_, **__: stack)
    fit_stack(cohort, "grade=high", group_by=group_by, stack=Stack(members=["logistic"], n_folds=3))
    told = [each.getMessage() for each in caplog.records if "repertoires in more than one fold" in each.getMessage()]
    assert len(told) == is_told
    assert all("Use `group_by='patient_id'`" in each for each in told)
