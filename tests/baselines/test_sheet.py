"""Controls that read the metadata sheet."""

from __future__ import annotations

import numpy as np
import pytest

from deeprc.baselines.sheet import SheetColumns
from deeprc.datasets.simulation import SimulatedDataset
from deeprc.errors import InputError
from deeprc.evaluation.sheet_control import find_categories
from deeprc.power import PlannedStudy


def test_an_infinite_cell_counts_as_missing() -> None:
    dataset = SimulatedDataset(PlannedStudy(n_repertoires=10, depth=20, witness_rate=0.5).to_cohort(0))
    dataset.container.metadata["dose"] = [1.0, 2.0, np.inf, 4.0, -np.inf, np.nan, 5.0, 3.0, 3.0, 3.0]
    model = SheetColumns(columns=["dose"])
    model._learn_columns(dataset)
    assert model.known_ == {"dose": {"mean": 3.0}}
    features = model._compute_features(dataset)
    np.testing.assert_array_equal(features[:, 0], [1, 2, 3, 4, 3, 3, 5, 3, 3, 3])
    np.testing.assert_array_equal(features[:, 1], [0, 0, 1, 0, 1, 1, 0, 0, 0, 0])


def test_batches_may_have_numbers() -> None:
    dataset = SimulatedDataset(PlannedStudy(n_repertoires=10, depth=20, witness_rate=0.5).to_cohort(0))
    dataset.container.metadata["batch"] = [1, 2, 3, 1, 2, 3, 1, 2, 3, np.nan]
    model = SheetColumns(columns=["batch"])
    model._learn_columns(dataset)
    assert model.known_ == {"batch": {"categories": [1.0, 2.0, 3.0]}}
    dataset.container.metadata["batch"] = [3, 2, 1, 4, 1.5, np.nan, 2, 2, 2, 2]
    features = model._compute_features(dataset)
    np.testing.assert_array_equal(features[:5], [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(features[5:7], [[0, 0, 0, 1], [0, 1, 0, 0]])


def test_categories_may_be_named() -> None:
    """Nine batches of four repertoires: a fold has two of each, so it does not show that they are batches."""
    dataset = SimulatedDataset(PlannedStudy(n_repertoires=36, depth=20, witness_rate=0.5).to_cohort(0))
    dataset.container.metadata["batch"] = 1 + np.arange(36) // 4
    assert find_categories(dataset.metadata, ["batch"]) == ["batch"]
    half = dataset[np.arange(0, 36, 2)]
    for categories, known in (
        (["batch"], {"categories": [float(batch) for batch in range(1, 10)]}),
        (None, {"mean": 5.0}),
    ):
        model = SheetColumns(columns=["batch"], categories=categories)
        model._learn_columns(half)
        assert model.known_ == {"batch": known}


def test_a_sheet_without_a_column_is_refused() -> None:
    dataset = SimulatedDataset(PlannedStudy(n_repertoires=10, depth=20, witness_rate=0.5).to_cohort(0))
    other = dataset.with_metadata(dataset.metadata.assign(age=np.arange(10.0)))
    model = SheetColumns(columns=["age"]).fit(other, np.arange(10) % 2)
    with pytest.raises(InputError, match="the sheet has no column 'age'; columns: repertoire_id, status"):
        model.predict_proba(dataset)
