"""The burden test against plain loops; what it learns from, and what not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from deeprc.baselines.burden import BurdenTest
from deeprc.baselines.carrier_counts import CountedUnits, count_clone_carriers
from deeprc.baselines.inner_folds import assign_inner_folds
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.simulation import Cohort, IndependentBackground, SimulatedDataset, Sizes, write_container
from deeprc.errors import InputError
from tests.toys.repertoires import make_sequences, write_repertoires

FEATURES = ["4mer", "sequence"]
N = 24


def write(path: Path, repertoires: list[list[str]]) -> RepertoireDataset:
    return write_repertoires(path, map(make_sequences, repertoires), {"status": np.arange(len(repertoires)) % 2})


def draw(seed: int, n: int = N) -> list[list[str]]:
    """Return repertoires from a pool of public sequences; positive ones, the odd, have some of them twice as often."""
    rng = np.random.default_rng(seed)
    pool = ["".join(np.random.default_rng([1, i]).choice(list("ACDY"), 7)) for i in range(150)]
    rates = np.full((2, len(pool)), 0.3)
    rates[1, :12] = 0.75
    private = [["".join(rng.choice(list("ACDY"), 9)) for _ in range(5)] for _ in range(n)]
    carried = [np.flatnonzero(rng.random(len(pool)) < rates[i % 2]) for i in range(n)]
    return [private[i] + [pool[at] for at in rng.permutation(carried[i])] + [pool[0]] * (i % 3) for i in range(n)]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return write(tmp_path_factory.mktemp("public") / "c.h5", draw(0))


Y = np.arange(N) % 2


def contents(dataset: RepertoireDataset, feature: str) -> list[set[str]]:
    if feature == "sequence":
        return [set(repertoire.sequences.decode()) for repertoire in dataset]
    each = [repertoire.sequences.decode() for repertoire in dataset]
    return [{text[i : i + 4] for text in texts for i in range(len(text) - 3)} for texts in each]


def phis(dataset: RepertoireDataset, y: np.ndarray, feature: str) -> dict[str, float]:
    carried = contents(dataset, feature)
    n_carriers = {key: sum(key in each for each in carried) for key in set().union(*carried)}
    return {
        key: pearsonr([key in each for each in carried], y).statistic if n < len(carried) else 0.0
        for key, n in n_carriers.items()
        if n > 1 or feature == "4mer"
    }


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_the_features_have_the_highest_phi_coefficients(public: RepertoireDataset, feature: str) -> None:
    rows = np.random.default_rng(0).permutation(N)[:18]
    expected = phis(public[rows], Y[rows], feature)
    model = BurdenTest(feature=feature, n_features=20).fit(public[rows], Y[rows])
    np.testing.assert_allclose(model.phi_, sorted(expected.values(), reverse=True)[:20], atol=1e-12)
    np.testing.assert_allclose([expected[name] for name in model.features()], model.phi_, atol=1e-12)
    assert len(set(model.features())) == 20
    carried = contents(public, feature)
    burden = [len(each & set(model.features())) for each in carried]
    np.testing.assert_array_equal(model.decision_function(public), burden)
    assert roc_auc_score(Y, burden) > 0.9


@pytest.mark.parametrize("feature", FEATURES)
def test_all_features_where_there_are_fewer(tmp_path: Path, feature: str) -> None:
    dataset = write(tmp_path / "c.h5", [["CAAF", "CWWF"], ["CYYF", "CWWF"], ["CAAF", "CYYF"], ["CYYF"], []])
    model = BurdenTest(feature=feature, n_features=50).fit(dataset, [0, 1, 0, 1, 0])
    if feature == "sequence":
        assert model.features()[0] == "CYYF"
        assert sorted(model.features()) == ["CAAF", "CWWF", "CYYF"]
        assert model.decision_function(dataset).tolist() == [2, 2, 2, 1, 0]
    assert model.features()[0] == "CYYF"
    np.testing.assert_allclose(model.phi_[0], pearsonr([0, 1, 1, 1, 0], [0, 1, 0, 1, 0]).statistic)
    assert np.isfinite(model.predict_proba(dataset)).all()


def test_a_cohort_in_which_nothing_is_shared(tmp_path: Path) -> None:
    dataset = write(tmp_path / "c.h5", [["CAAF"], ["CYYF"], ["CDDF"], []])
    model = BurdenTest(feature="sequence").fit(dataset, [0, 1, 0, 1])
    assert model.features() == []
    assert model.decision_function(dataset).tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(model.predict_proba(dataset), 0.5, atol=1e-3)
    again = BurdenTest(feature="sequence")
    model.save(tmp_path / "m.safetensors")
    assert again.load(tmp_path / "m.safetensors").decision_function(dataset).tolist() == [0, 0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_the_order_of_repertoires_is_irrelevant(public: RepertoireDataset, tmp_path: Path, feature: str) -> None:
    """Features tied at the last rank are chosen by their content."""
    order = np.random.default_rng(1).permutation(N)
    repertoires = draw(0)
    other = write(tmp_path / "c.h5", [repertoires[i] for i in order])
    ranked = np.sort([*phis(public, Y, feature).values()])[::-1]
    n_features = next(n for n in range(15, 60) if np.isclose(ranked[n - 2], ranked[n + 1]))
    models = [
        BurdenTest(feature=feature, n_features=n_features).fit(*data)
        for data in ((public, Y), (public[order], Y[order]), (other, Y[order]))
    ]
    for model in models[1:]:
        assert model.features() == models[0].features()
        np.testing.assert_array_equal(model.calibration_, models[0].calibration_)


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_repertoires_to_be_tested_make_no_difference(tmp_path: Path, feature: str) -> None:
    """Neither their labels, which `fit` does not see, nor their sequences: not even one shared with a training one."""
    train, test = draw(0), draw(1)
    test[0] += [text for texts in train for text in texts]
    models = []
    for name, others in (("a", test), ("b", draw(2)[:3]), ("none", [])):
        dataset = write(tmp_path / f"{name}.h5", train + others)
        models.append(BurdenTest(feature=feature, n_features=60).fit(dataset[:N], Y))
    for model in models[1:]:
        assert model.features() == models[0].features()
        np.testing.assert_array_equal(model.phi_, models[0].phi_)
        np.testing.assert_array_equal(model.calibration_, models[0].calibration_)


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_all_numbers_of_features_at_once(public: RepertoireDataset, feature: str) -> None:
    values = [7, 1, 60, 100_000 if feature == "4mer" else 1000]
    model = BurdenTest(feature=feature)
    train, test = np.arange(0, 16), np.arange(16, N)
    found = model.decision_path(public[train], Y[train], public[test], values)
    for row, value in zip(found, values, strict=True):
        one = clone(model).set_params(n_features=value).fit(public[train], Y[train])
        np.testing.assert_array_equal(row, one.decision_function(public[test]))
    assert not hasattr(model, "phi_")
    assert model.decision_path(public[train], Y[train], public[test], []).shape == (0, 8)
    assert model.decision_path(public[train], Y[train], public[:0], values).shape == (4, 0)


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_a_repertoire_that_is_drawn_twice_counts_twice(tmp_path: Path, feature: str) -> None:
    rows = np.random.default_rng(0).integers(0, N, 30)
    repertoires = draw(0)
    dataset, copies = write(tmp_path / "c.h5", repertoires), write(tmp_path / "d.h5", [repertoires[i] for i in rows])
    model = BurdenTest(feature=feature, n_features=1000).fit(dataset[rows], Y[rows])
    expected = BurdenTest(feature=feature, n_features=1000).fit(copies, Y[rows])
    phi = dict(zip(model.features(), model.phi_, strict=True))
    theirs = dict(zip(expected.features(), expected.phi_, strict=True))
    shared = set(phi) & set(theirs)
    assert len(shared) > 100
    np.testing.assert_allclose([phi[name] for name in shared], [theirs[name] for name in shared])


@pytest.mark.parametrize("feature", FEATURES)
def test_probabilities_are_of_features_chosen_without_the_repertoire(public: RepertoireDataset, feature: str) -> None:
    """Labels without meaning: training burdens tell the classes apart, the probabilities know that it means nothing."""
    rng = np.random.default_rng(0)
    y = rng.permutation(Y)
    model = BurdenTest(feature=feature, n_features=30).fit(public, y)
    assert roc_auc_score(y, model.decision_function(public)) > 0.95
    assert np.abs(model.predict_proba(public) - 0.5).max() < 0.4
    meaningful = BurdenTest(feature="sequence", n_features=12).fit(public, Y)
    assert ((meaningful.predict_proba(public)[:, 1] > 0.5) == Y).mean() > 0.85


@pytest.mark.parametrize("feature", FEATURES)
def test_a_saved_model_scores_another_container(public: RepertoireDataset, tmp_path: Path, feature: str) -> None:
    model = BurdenTest(feature=feature, n_features=40).fit(public, Y)
    model.save(tmp_path / "m.safetensors")
    again = BurdenTest.load(tmp_path / "m.safetensors")
    other = write(tmp_path / "other.h5", [*draw(7, 6), [], ["C"]])
    carried = contents(other, feature)
    burden = [len(each & set(model.features())) for each in carried]
    assert again.features() == model.features()
    np.testing.assert_array_equal(again.decision_function(other), burden)
    np.testing.assert_array_equal(again.decision_function(other[[6, 2]]), [burden[6], burden[2]])
    assert burden[-2:] == [0, 0]


def test_a_simulated_cohort_on_no_disk(tmp_path: Path) -> None:
    cohort = Cohort(12, Sizes(300), IndependentBackground(4.0, 1.0))
    write_container(cohort, tmp_path / "c.h5")
    y = np.arange(12) % 2
    models = [
        BurdenTest(feature="sequence", n_features=30).fit(dataset, y)
        for dataset in (SimulatedDataset(cohort), open_dataset(tmp_path / "c.h5"))
    ]
    assert models[0].features() == models[1].features()
    assert len(models[0].features()) == 30


def test_settings_that_cannot_be(public: RepertoireDataset) -> None:
    for settings, message in (
        ({"feature": "3mer"}, "feature: expected one of 4mer, sequence, found '3mer'"),
        ({"n_features": 0}, "n_features: expected a whole number of at least 1, found 0"),
    ):
        with pytest.raises(InputError, match=message):
            BurdenTest(**settings).fit(public, Y)
    with pytest.raises(ValueError, match="expected two classes, found 3"):
        BurdenTest().decision_path(public, np.arange(N) % 3, public, [1])


# --- folds and carriers ---


def test_folds_are_stratified_and_their_content_decides(
    public: RepertoireDataset, cohort_factory: Callable[..., RepertoireDataset]
) -> None:
    positive = np.arange(N) < 7
    folds = assign_inner_folds(public, positive, 5)
    assert sorted(np.bincount(folds)) == [4, 5, 5, 5, 5]
    assert sorted(np.bincount(folds[positive])) == [1, 1, 1, 2, 2]
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_array_equal(assign_inner_folds(public[order], positive[order], 5), folds[order])
    assert assign_inner_folds(public, positive, 10).max() == 6
    assert assign_inner_folds(public, np.arange(N) < 1, 5).max() == 0
    twice = np.repeat(np.arange(N), 2)
    same = assign_inner_folds(public[twice], positive[twice], 5)
    np.testing.assert_array_equal(same[::2], same[1::2])


def test_carriers_among_the_training_repertoires(public: RepertoireDataset) -> None:
    clones = find_shared_clones(public)
    rows = np.array([3, 4, 4, 9, 12, 1])
    weights = CountedUnits.of(public[rows], np.array([True, False, False, True, False, True]))
    numbers, a, n = count_clone_carriers(clones, 5, len(clones), weights)
    expected = []
    for clone_number in range(5, len(clones)):
        carriers = clones.carriers[clones.offsets[clone_number] : clones.offsets[clone_number + 1]].tolist()
        if len(set(carriers) & set(rows.tolist())) > 1:
            counts = [sum(row in carriers for row in each) for each in ((3, 9, 1), rows.tolist())]
            expected.append((clone_number, *counts))
    assert list(zip(numbers.tolist(), a.tolist(), n.tolist(), strict=True)) == expected
    assert len(expected) > 20
