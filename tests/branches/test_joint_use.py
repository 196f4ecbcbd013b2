"""Whether a branch adds to another one: independent scores do, noisy copies do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from deeprc.arrays import Floats
from deeprc.branches.cohort import FittedBranch, TrainingCohort
from deeprc.branches.joint_use import adds_to
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.branches import Branch
from deeprc.tasks import Task

N = 200
STATUS = Task("status", "status", "binary", ("no", "yes"))
GRADE = Task("grade", "grade", "multiclass", ("low", "mid", "high"))
AGE = Task("age", "age", "regression", mean=50.0, scale=12.0)


def make_fit(scores: Floats) -> FittedBranch:
    branch = cast("Branch", SimpleNamespace(is_doubtful=False))
    return FittedBranch(branch, scores, np.zeros(scores.shape[1]))


def make_cohort(labels: Floats, *tasks: Task, groups: np.ndarray | None = None) -> TrainingCohort:
    return TrainingCohort(cast("RepertoireDataset", None), labels, tasks, groups)


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_another_signal_adds_and_a_noisy_copy_does_not(kind: str) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, N))
    total = 1.5 * (first + second) + rng.normal(size=N)
    labels = (total > 0).astype(np.float64) if kind == "classes" else 50 + 12 * total
    cohort = make_cohort(labels[:, None], STATUS if kind == "classes" else AGE)
    used, other = make_fit(first[:, None]), make_fit(second[:, None])
    noisy_copy = make_fit((first + 2 * rng.normal(size=N))[:, None])
    assert adds_to(used, other, cohort)
    assert not adds_to(used, noisy_copy, cohort)
    assert not adds_to(used, make_fit(-second[:, None]), cohort)  # evidence for the wrong class
    assert not adds_to(used, make_fit(np.zeros((N, 1))), cohort)


def test_one_output_is_enough_and_missing_labels_are_left_out() -> None:
    rng = np.random.default_rng(1)
    grade = rng.integers(0, 3, N).astype(np.float64)
    grade[:20] = np.nan
    known = np.nan_to_num(grade)
    used = make_fit(rng.normal(size=(N, 3)))
    of_last_class = np.stack([np.zeros(N), np.zeros(N), (known == 2) + 0.5 * rng.normal(size=N)], axis=1)
    of_last_class[:20] = 1e6
    cohort = make_cohort(grade[:, None], GRADE)
    assert adds_to(used, make_fit(of_last_class), cohort)
    assert not adds_to(used, make_fit(np.roll(of_last_class, 1, axis=1)[::-1]), cohort)


def test_a_donor_counts_once() -> None:
    """Forty copies of each of five donors: 3.6 standard errors if each counts, else 0.5."""
    labels, others = np.array([0.0, 1, 0, 1, 1]), np.array([1, -1, 0.5, -0.5, 1])
    scores = np.array([0.1, 0.4, 0.5, 0.7, 0.45])
    groups = np.repeat(np.arange(5), 40)
    used, further = make_fit(others[groups][:, None]), make_fit(scores[groups][:, None])
    alone, together = (make_cohort(labels[groups][:, None], STATUS, groups=each) for each in (None, groups))
    assert adds_to(used, further, alone)
    assert not adds_to(used, further, together)


def test_an_output_without_both_classes_is_left_out() -> None:
    scores = np.arange(4.0)[:, None]
    assert not adds_to(make_fit(scores), make_fit(scores), make_cohort(np.ones((4, 1)), STATUS))


def test_targets_of_the_outputs() -> None:
    labels = np.array([[1.0, 2.0, 62.0], [np.nan, 0.0, 50.0], [0.0, np.nan, 38.0]])
    status, low, mid, high, age = make_cohort(labels, STATUS, GRADE, AGE).list_output_targets()
    assert (status.rows.tolist(), status.values.tolist(), status.is_number) == ([0, 2], [1, 0], False)
    assert [each.rows.tolist() for each in (low, mid, high)] == [[0, 1]] * 3
    assert [each.values.tolist() for each in (low, mid, high)] == [[0, 1], [0, 0], [1, 0]]
    assert (age.rows.tolist(), age.values.tolist(), age.is_number) == ([0, 1, 2], [1, 0, -1], True)
