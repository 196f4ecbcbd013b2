import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from deeprc import DeepRCClassifier
from deeprc.datasets.dataset import RepertoireDataset

OVERRIDES = {"n_updates": 60, "evaluate_every": 20, "n_kernels": 8, "kernel_size": 4, "learning_rate": 0.005}


def test_it_fits_and_predicts(cohort: RepertoireDataset) -> None:
    y = cohort.metadata["status"].to_numpy()
    model = DeepRCClassifier(overrides=OVERRIDES).fit(cohort, y)
    assert model.classes_.tolist() == ["case", "healthy"]
    probability = model.predict_proba(cohort)
    assert probability.shape == (len(cohort), 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert set(model.predict(cohort)) <= {"case", "healthy"}
    np.testing.assert_allclose(model.predict_proba(cohort[[5, 2]]), probability[[5, 2]], rtol=1e-6)
    assert [w.sum() for w in model.attention(cohort[:2])] == pytest.approx([1, 1])
    assert model.predict_proba(cohort[:0]).shape == (0, 2)


def test_what_cannot_be_used_is_named(cohort: RepertoireDataset) -> None:
    y = cohort.metadata["status"]
    with pytest.raises(NotFittedError):
        DeepRCClassifier().predict(cohort)
    with pytest.raises(TypeError, match="expected a RepertoireDataset"):
        DeepRCClassifier().fit(np.zeros((30, 2)), y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="validation_fraction: expected a share between 0 and 1, found 2"):
        DeepRCClassifier(validation_fraction=2).fit(cohort, y)
    with pytest.raises(ValueError, match="did you mean 'n_updates'"):
        DeepRCClassifier(overrides={"n_update": 3}).fit(cohort, y)


def test_early_stopping_can_be_turned_off(cohort: RepertoireDataset) -> None:
    overrides = {**OVERRIDES, "n_updates": 4, "evaluate_every": 1, "patience": None}
    assert len(DeepRCClassifier(overrides=overrides).fit(cohort, cohort.metadata["status"]).history_) == 4


def test_three_classes(cohort: RepertoireDataset) -> None:
    model = DeepRCClassifier(overrides={**OVERRIDES, "n_updates": 5}).fit(cohort, cohort.metadata["grade"])
    assert model.predict_proba(cohort[:3]).shape == (3, 3)


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
