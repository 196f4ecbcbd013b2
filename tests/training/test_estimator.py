from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score

from deeprc import DeepRCClassifier
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import Sequences
from deeprc.training import estimator as estimator_module
from deeprc.training.estimator import DeepRCRegressor
from deeprc.training.labelled_repertoires import LabelledRepertoires
from tests.conftest import Killed
from tests.toys.repertoires import write_repertoires

OVERRIDES = {"n_updates": 60, "evaluate_every": 20, "n_kernels": 8, "kernel_size": 4, "learning_rate": 0.005,
             "composition": False, "clones": False, "seeded_start": 0.0}  # fmt: skip


def test_probabilities_predictions_and_attention_fit_together(cohort: RepertoireDataset) -> None:
    y = cohort.metadata["status"].to_numpy()
    model = DeepRCClassifier(overrides=OVERRIDES).fit(cohort, y)
    assert model.classes_.tolist() == ["case", "healthy"]
    probability = model.predict_proba(cohort)
    assert probability.shape == (len(cohort), 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    calibration = model.model_.tasks[0].calibration
    assert model.min_probability == pytest.approx(1 / (1 + np.exp(-calibration.cutoff)))
    assert calibration.cutoff != 0
    called = np.where(probability[:, 1] >= model.min_probability, "healthy", "case")
    assert model.predict(cohort).tolist() == called.tolist()
    np.testing.assert_allclose(model.predict_proba(cohort[[5, 2]]), probability[[5, 2]], rtol=1e-6)
    assert [w.sum() for w in model.attention(cohort[:2])] == pytest.approx([1, 1])
    assert model.predict_proba(cohort[:0]).shape == (0, 2)


def test_wrong_arguments_are_refused_with_their_names(cohort: RepertoireDataset) -> None:
    y = cohort.metadata["status"]
    with pytest.raises(NotFittedError):
        DeepRCClassifier().predict(cohort)
    with pytest.raises(TypeError, match="expected a RepertoireDataset"):
        DeepRCClassifier().fit(np.zeros((30, 2)), y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="validation_fraction: expected a share between 0 and 1, found 2"):
        DeepRCClassifier(validation_fraction=2).fit(cohort, y)
    with pytest.raises(ValueError, match=r"validation_fraction: expected at most 0\.5 with groups, found 0\.6"):
        DeepRCClassifier(validation_fraction=0.6).fit(cohort, y, groups=np.arange(30) // 2)
    with pytest.raises(ValueError, match="did you mean 'n_updates'"):
        DeepRCClassifier(overrides={"n_update": 3}).fit(cohort, y)


def test_without_patience_all_updates_are_made(cohort: RepertoireDataset) -> None:
    overrides = {**OVERRIDES, "n_updates": 4, "evaluate_every": 1, "patience": None}
    assert len(DeepRCClassifier(overrides=overrides).fit(cohort, cohort.metadata["status"]).history_) == 4


def test_donors_with_several_repertoires_are_warned_of(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def end(*_: object, **__: object) -> None:
        raise Killed

    def count_warnings(X: RepertoireDataset, **given: object) -> int:
        caplog.clear()
        for estimator, y in ((DeepRCClassifier(), ["a", "b"]), (DeepRCRegressor(), [1.0, 2.0])):
            with pytest.raises(Killed):
                estimator.fit(X, np.tile(y, len(X) // 2), **given)  # type: ignore[arg-type]
        return sum("groups=X.metadata['donor']" in message for message in caplog.messages)

    monkeypatch.setattr(estimator_module, "Trainer", end)

    def name_donors(column: str, repertoires_per_donor: int) -> RepertoireDataset:
        donors = np.arange(len(cohort.container.repertoire_ids)) // repertoires_per_donor
        return cohort.with_metadata(pd.DataFrame({column: donors}))[:10]

    several = name_donors("donor", 2)
    assert count_warnings(several) == 2
    assert "groups: 10 repertoires are of 5 donors (column 'donor')" in caplog.text
    assert count_warnings(several, groups=np.arange(10) // 2) == 0
    assert count_warnings(name_donors("donor", 1)) == 0
    assert count_warnings(name_donors("site", 2)) == 0


@pytest.mark.slow
def test_three_classes_have_three_probabilities(cohort: RepertoireDataset) -> None:
    model = DeepRCClassifier(overrides={**OVERRIDES, "n_updates": 5}).fit(cohort, cohort.metadata["grade"])
    assert model.predict_proba(cohort[:3]).shape == (3, 3)


@pytest.mark.slow
def test_scikit_learn_clones_and_cross_validates_it(cohort: RepertoireDataset) -> None:
    model = clone(DeepRCClassifier(overrides={**OVERRIDES, "n_updates": 10}, seed=3))
    assert model.seed == 3
    scores = cross_val_score(model, cohort, cohort.metadata["status"], cv=3, scoring="roc_auc")
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    ("y", "message"),
    [(["a"] * 30, "one class only"), (["a", "b"], "2 labels for 30"), (["a", None] * 15, "missing labels")],
)
def test_labels_that_cannot_be_used(cohort: RepertoireDataset, y: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeepRCClassifier().fit(cohort, y)


def test_log_counts_of_ones_hide_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    residues = rng.integers(0, 20, (12, 200)).astype(np.uint8)
    repertoires = [Sequences.counted_once(own, 10 * np.arange(21)) for own in residues]
    cohort = write_repertoires(tmp_path / "ones.h5", repertoires, {"y": np.arange(12) % 2})
    changes = {"n_updates": 2, "evaluate_every": 1, "n_sequences": 10, "abundance": "log"}
    model = DeepRCClassifier(overrides=changes).fit(cohort, cohort.metadata["y"])
    assert model.model_.config.network.abundance == "none"
    assert "abundance=none is used instead of abundance=log." in caplog.text


@pytest.mark.slow
def test_labels_held_as_objects_come_back_as_they_were(cohort: RepertoireDataset, tmp_path: Path) -> None:
    y = np.array([0, 1] * (len(cohort) // 2), object)
    model = DeepRCClassifier(overrides={"n_updates": 2, "evaluate_every": 1, "n_sequences": 10}).fit(cohort, y)
    model.save(tmp_path / "model.safetensors")
    loaded = DeepRCClassifier.load(tmp_path / "model.safetensors")
    assert loaded.classes_.tolist() == [0, 1]
    assert np.array_equal(loaded.predict(cohort), model.predict(cohort))


def test_the_training_knows_the_donors_of_both_sides(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[LabelledRepertoires] = []

    def refuse(
        config: object, tasks: object, train: LabelledRepertoires, validation: LabelledRepertoires, **options: object
    ) -> None:
        seen.extend([train, validation])
        raise Killed

    monkeypatch.setattr(estimator_module, "Trainer", refuse)
    y, donors = cohort.metadata["status"].to_numpy(), np.array([f"p{i // 2}" for i in range(len(cohort))])
    sides = {"X_validation": cohort[20:], "y_validation": y[20:], "groups_validation": donors[20:]}
    for more in (sides, {**sides, "groups_validation": None}, {}):
        rows = slice(None, 20) if more else slice(None)
        with pytest.raises(Killed):
            DeepRCClassifier(overrides=OVERRIDES).fit(cohort[rows], y[rows], groups=donors[rows], **more)
    numbers = [None if repertoires.groups is None else repertoires.groups.tolist() for repertoires in seen]
    assert numbers[0] == numbers[2] == [i // 2 for i in range(20)]
    assert numbers[1] == [i // 2 for i in range(len(cohort) - 20)]
    assert numbers[3] is None
    train, validation = numbers[4:]
    assert train is not None
    assert validation is not None
    assert not set(train) & set(validation)
    for name in ("y_validation", "groups_validation"):
        with pytest.raises(ValueError, match=f"{name}: expected None, because there is no X_validation"):
            DeepRCClassifier().fit(cohort, y, **{name: sides[name]})
    with pytest.raises(ValueError, match="groups: expected 10 values"):
        DeepRCClassifier().fit(cohort[:20], y[:20], groups=donors[:20], **{**sides, "groups_validation": donors})


def test_no_split_by_donor_takes_a_class_from_training(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[LabelledRepertoires] = []

    def keep(config: object, tasks: object, *parts: LabelledRepertoires, **options: object) -> None:
        seen.extend(parts)
        raise Killed

    monkeypatch.setattr(estimator_module, "Trainer", keep)

    y = [*"aaaaabbbbb"]

    def split(donors: list[int], seed: int, share: float = 0.2) -> tuple[set[float], set[float]]:
        seen.clear()
        with pytest.raises(Killed):
            DeepRCClassifier(seed=seed, validation_fraction=share).fit(cohort[:10], y, groups=donors)
        train, validation = ({*repertoires.labels[:, 0].tolist()} for repertoires in seen)
        return train, validation

    for seed in range(5):
        with pytest.raises(
            ValueError, match=r"groups: no training repertoire is of class '[ab]': its donors cannot be"
        ):
            DeepRCClassifier(seed=seed).fit(cohort[:10], y, groups=[0] * 5 + [1] * 5)
        assert not caplog.records
        assert split([0] * 5 + [1] * 2 + [2] * 3, seed) == ({0, 1}, {1})
        assert "groups: no validation repertoire is of class 'a'" in caplog.text
        caplog.clear()
        assert split([0] * 4 + [1] + [2] * 2 + [3] * 3, seed, 0.5) == ({0, 1}, {0, 1})
        assert not caplog.records


def test_attention_is_that_of_the_predictions(cohort: RepertoireDataset) -> None:
    overrides = {**OVERRIDES, "n_updates": 5, "top_fraction": 0.1, "unattended": "dropped"}
    model = DeepRCClassifier(overrides=overrides).fit(cohort, cohort.metadata["status"])
    for position, weights in enumerate(model.attention(cohort[:3])):
        logits = model.model_.make_inference(cohort).compute_logits(position).double().numpy()[:, 0]
        kept = np.argsort(logits)[-int(np.ceil(len(logits) / 10)) :]
        expected = np.zeros(len(logits))
        expected[kept] = np.exp(logits[kept]) / np.exp(logits[kept]).sum()
        np.testing.assert_allclose(weights[:, 0], expected, rtol=1e-6)


def test_searches_and_folds_of_scikit_learn_give_fit_the_donors(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/api.md says: `params` of `cross_val_score`, metadata routing for a search."""
    y, donors, seen = cohort.metadata["status"], pd.Series(np.arange(len(cohort)) // 2), []

    def record(given: LabelledRepertoires, *_: object, **__: object) -> None:
        seen.append(None if given.groups is None else len(set(given.groups.tolist())))
        raise Killed

    monkeypatch.setattr(estimator_module, "split_repertoires", record)
    parts = GroupKFold(3)
    with pytest.raises(Killed):
        cross_val_score(
            DeepRCClassifier(), cohort, y, cv=parts, groups=donors, params={"groups": donors}, error_score="raise"
        )
    with config_context(enable_metadata_routing=True):
        model = DeepRCClassifier().set_fit_request(groups=True)
        with pytest.raises(Killed):
            GridSearchCV(model, {"seed": [0]}, cv=parts, error_score="raise").fit(cohort, y, groups=donors)
    assert seen == [10, 10]
