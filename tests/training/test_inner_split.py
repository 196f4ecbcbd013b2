import numpy as np
import pytest
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.estimator import DeepRCClassifier, DeepRCRegressor
from deeprc.training.inner_split import split_repertoires
from deeprc.training.labelled_repertoires import LabelledRepertoires


def make_labelled(
    dataset: RepertoireDataset, labels: list[float], groups: NDArray[np.int64] | None = None
) -> LabelledRepertoires:
    return LabelledRepertoires(dataset[: len(labels)], np.array(labels)[:, None], groups)


def test_both_parts_have_the_shares_of_the_classes(cohort: RepertoireDataset) -> None:
    repertoires = make_labelled(cohort, [0] * 20 + [1] * 10)
    for fraction, sizes in ((0.2, [4, 2]), (0.5, [10, 5]), (0.9, [18, 9]), (0.01, [1, 1])):
        train, held_out = split_repertoires(repertoires, fraction, stratify=True, seed=3)
        assert np.bincount(held_out.labels[:, 0].astype(int)).tolist() == sizes
        assert {*train.dataset.repertoire_ids}.isdisjoint(held_out.dataset.repertoire_ids)
        assert len(train.labels) + len(held_out.labels) == 30


def test_numbers_are_split_by_the_fraction(cohort: RepertoireDataset) -> None:
    repertoires = make_labelled(cohort, [float(i) for i in range(30)])
    for fraction, n in ((0.01, 1), (0.2, 6), (0.9, 27)):
        assert len(split_repertoires(repertoires, fraction, stratify=False, seed=3)[1].labels) == n


def test_donors_are_not_divided(cohort: RepertoireDataset) -> None:
    groups = np.arange(30) // 3
    for stratify, labels in ((True, [0, 1, 1] * 10), (False, [*range(30)])):
        for seed in range(3):
            train, held_out = split_repertoires(
                make_labelled(cohort, labels, groups), 0.2, stratify=stratify, seed=seed
            )
            assert train.groups is not None
            assert held_out.groups is not None
            assert {*train.groups}.isdisjoint(held_out.groups)
            assert len(held_out.groups) == 6


@pytest.mark.parametrize("stratify", [True, False])
def test_more_than_half_of_the_donors_are_not_held_out(cohort: RepertoireDataset, stratify: bool) -> None:
    repertoires = make_labelled(cohort, [0, 1] * 15, np.arange(30) // 3)
    with pytest.raises(ValueError, match=r"validation_fraction: expected at most 0\.5 with groups, found 0\.51"):
        split_repertoires(repertoires, 0.51, stratify=stratify, seed=0)
    assert len(split_repertoires(repertoires, 0.5, stratify=stratify, seed=0)[1].labels) == 15


def test_a_fraction_that_leaves_too_few_is_named(cohort: RepertoireDataset) -> None:
    few = cohort[:10]
    message = r"validation_fraction: expected a share that leaves at least 1 of 10 .* found 0\.99, which leaves 0"
    with pytest.raises(ValueError, match=message):
        DeepRCRegressor(validation_fraction=0.99).fit(few, np.arange(10.0))
    for fraction, n_left in ((0.99, 0), (0.9, 1)):
        with pytest.raises(ValueError, match=f"leaves at least 2 of 10 .* found {fraction}, which leaves {n_left}"):
            DeepRCClassifier(validation_fraction=fraction).fit(few, ["a", "b"] * 5)


def test_with_donors_one_class_may_have_one_repertoire(cohort: RepertoireDataset) -> None:
    train, held_out = split_repertoires(make_labelled(cohort, [0, 0, 0, 1], np.arange(4)), 0.25, stratify=True, seed=0)
    assert sorted(train.labels[:, 0]) == [0, 1]
    assert held_out.labels[:, 0].tolist() == [0, 0]
    with pytest.raises(ValueError, match="y: expected a class of at least two repertoires"):
        split_repertoires(make_labelled(cohort, [0, 1], np.arange(2)), 0.25, stratify=True, seed=0)


def test_a_class_of_one_repertoire_is_refused(cohort: RepertoireDataset) -> None:
    with pytest.raises(ValueError, match="y: expected at least two repertoires of each class, found one"):
        DeepRCClassifier().fit(cohort[:10], ["a"] * 9 + ["b"])


def test_a_small_class_of_donors_warns_of_nothing(cohort: RepertoireDataset) -> None:
    """Warnings are errors here; scikit-learn warns of classes that are smaller than its number of folds."""
    repertoires = make_labelled(cohort, [0.0] * 18 + [1.0] * 2, np.arange(20))
    parts = split_repertoires(repertoires, 0.2, stratify=True, seed=0)
    assert [np.bincount(part.labels[:, 0].astype(int)).tolist() for part in parts] in (
        [[14, 1], [4, 1]],
        [[15, 1], [3, 1]],
    )
