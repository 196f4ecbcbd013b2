"""The AUC within batches: that of a model that reads nothing but the batch is 0.5."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deeprc.evaluation.auc_intervals import compute_auc_interval
from deeprc.evaluation.strata import compute_stratified_auc, find_strata_columns
from deeprc.tasks import parse_tasks


def test_the_auc_within_batches_by_hand() -> None:
    """Batch a: positives 3 and 1, negatives 2 and 0 (3 of 4 pairs); batch b: 5 against 9 (0 of 1); c has one class."""
    values = ["a", "a", "a", "a", "b", "b", "c", None, "a"]
    label = np.array([1, 1, 0, 0, 1, 0, 1, 0, np.nan])
    score = np.array([3.0, 1.0, 2.0, 0.0, 5.0, 9.0, 100.0, -100.0, 50.0])
    found = compute_stratified_auc("batch", values, label, score)
    assert found is not None
    assert (found.auc, found.n, found.n_strata) == (pytest.approx(3 / 5), 6, 2)
    assert 0 < found.low < 0.6 < found.high < 1
    limits = [found.low, found.high]
    assert found.to_dict() == {"column": "batch", "auc": found.auc, "n": 6, "n_strata": 2, "auc_ci": limits}


def test_without_a_value_of_both_classes_there_is_none() -> None:
    assert compute_stratified_auc("batch", ["a", "b", None], np.array([1.0, 0.0, 1.0]), np.arange(3.0)) is None
    assert compute_stratified_auc("batch", [], np.zeros(0), np.zeros(0)) is None


def test_one_stratum_has_the_interval_of_an_auc() -> None:
    rng = np.random.default_rng(0)
    label, score = np.repeat([0.0, 1.0], 20), rng.normal(size=40) + np.repeat([0, 1], 20)
    found = compute_stratified_auc("batch", ["a"] * 40, label, score)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(compute_auc_interval(found.auc, 20, 20))


def test_a_model_of_the_batch_is_found_out_and_one_of_the_signal_is_not() -> None:
    rng = np.random.default_rng(1)
    label = np.tile([0.0, 1.0], 200)
    batch = np.where(rng.random(400) < 0.9, label, 1 - label)
    by_batch = compute_stratified_auc("batch", batch.tolist(), label, batch + 0.01 * rng.normal(size=400))
    by_signal = compute_stratified_auc("batch", batch.tolist(), label, label + rng.normal(size=400))
    assert by_batch is not None
    assert by_signal is not None
    assert by_batch.low < 0.5 < by_batch.high
    assert by_batch.explains(0.9, 0.87)
    assert by_signal.auc == pytest.approx(0.76, abs=0.07)
    assert not by_signal.explains(0.78, 0.73)


@pytest.mark.slow
def test_intervals_cover() -> None:
    """With weights by pairs, of strata of very different sizes."""
    rng = np.random.default_rng(2)
    strata = np.repeat([0, 1, 2], [60, 20, 12])
    covered = []
    for _ in range(1000):
        label = np.concatenate([np.arange(60) % 3 == 0, np.arange(20) % 2 == 0, np.arange(12) % 4 == 0]).astype(float)
        found = compute_stratified_auc(
            "batch", strata.tolist(), label, label * np.sqrt(2) * 0.5244 + rng.normal(size=92)
        )
        assert found is not None
        covered.append(found.low <= 0.7 <= found.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_small_strata_do_not_hide_that_donors_of_a_large_one_are_few() -> None:
    """A value of 40 donors with ten repertoires each has nearly all pairs; six values have one pair each."""
    rng = np.random.default_rng(0)
    donors = np.repeat(np.arange(40), 10)
    label = (donors < 20).astype(float)
    score = 0.7 * label + rng.normal(size=40)[donors] + 0.1 * rng.normal(size=400)
    alone = compute_stratified_auc("batch", ["large"] * 400, label, score, donors)
    values = ["large"] * 400 + [f"small {i // 2}" for i in range(12)]
    more = np.r_[label, [1.0, 0.0] * 6], np.r_[score, rng.normal(size=12)], np.r_[donors, 40 + np.arange(12)]
    beside = compute_stratified_auc("batch", values, *more)
    assert alone is not None
    assert beside is not None
    assert (beside.auc, beside.low, beside.high) == pytest.approx((alone.auc, alone.low, alone.high), abs=0.01)
    assert beside.low < 0.55


def test_strata_are_categories_that_are_neither_ids_nor_the_target() -> None:
    n = 40
    sheet = pd.DataFrame(
        {
            "status": ["well", "sick"] * 20,
            "said": ["healthy", "ill"] * 20,
            "batch": ["a", "a", "b", "b"] * 10,
            "plate": np.arange(n) % 5,
            "age": np.arange(n) * 1.5,
            "sample": [f"s{i}" for i in range(n)],
            "site": ["x"] * n,
        }
    )
    (task,) = parse_tasks(["status=sick"], sheet, source="a test")
    assert find_strata_columns(sheet, task) == ["batch", "plate"]


def test_only_scores_of_one_fold_are_compared() -> None:
    """Two repeats of two repertoires of each batch: `n` counts repertoires and `n_strata` batches, not folds."""
    values, label = ["a", "a", "b", "b", None] * 2, np.array([1.0, 0.0, 1.0, 0.0, 1.0] * 2)
    folds, repertoires = [0] * 5 + [1] * 5, np.array([*range(5)] * 2)
    score = np.array([2.0, 1.0, 1.0, 2.0, 9.0, 12.0, 11.0, 12.0, 11.0, 9.0])  # three of four pairs are in order
    found = compute_stratified_auc("batch", values, label, score, folds=folds, repertoires=repertoires)
    assert found is not None
    assert (found.auc, found.n, found.n_strata) == (0.75, 4, 2)
    strata = [None if value is None else f"{fold} {value}" for fold, value in zip(folds, values, strict=True)]
    same = compute_stratified_auc("batch", strata, label, score)
    assert same is not None
    assert (same.auc, same.n, same.n_strata) == (found.auc, 8, 4)


def test_the_interval_of_folds_has_the_overlap_of_training_sets() -> None:
    """As the interval over all repertoires, with which it is compared; five folds make the variance 2.25 times."""
    rng = np.random.default_rng(3)
    label, folds, batch = np.tile([0.0, 1.0], 40), np.repeat(np.arange(5), 16), ["a"] * 40 + ["a", "a", "b", "b"] * 10
    score = rng.normal(size=80) + label
    sizes = [8, 8, 6, 2, 4, 4, 4, 4]
    weights = np.square(sizes) / np.square(sizes).sum()
    found = compute_stratified_auc("batch", batch, label, score, folds=folds.tolist())
    assert found is not None
    expected = compute_auc_interval(found.auc, sizes, sizes, variance_factor=2.25, weights=weights)
    assert (found.low, found.high) == pytest.approx(expected)
    alone = compute_stratified_auc("batch", batch, label, score, np.arange(80), folds=folds.tolist())
    assert alone == found


def test_repeats_widen_the_interval_within_values_by_what_they_have_in_common() -> None:
    rng = np.random.default_rng(4)
    label, folds, donors = np.tile([0.0, 1.0], 40), np.repeat(np.arange(5), 16), np.arange(80)
    score, batch = rng.normal(size=80) + label, ["a", "a", "b", "b"] * 20
    once = compute_stratified_auc("batch", batch, label, score, donors, folds=folds.tolist())
    repeats = np.repeat([0, 1], 80).tolist()
    places = [f"{repeat} {fold}" for repeat, fold in zip(repeats, np.tile(folds, 2), strict=True)]
    twice = [np.tile(each, 2) for each in (label, score, donors)]
    found = compute_stratified_auc("batch", batch * 2, *twice, folds=places, repeats=repeats)
    assert once is not None
    assert found is not None
    assert (found.auc, found.low, found.high) == pytest.approx((once.auc, once.low, once.high), abs=0.005)
    with pytest.raises(ValueError, match=r"^expected the donors"):
        compute_stratified_auc("batch", batch * 2, *twice[:2], folds=places, repeats=repeats)
