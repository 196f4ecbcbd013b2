"""What is usual among training repertoires, and what is said of repertoires that are not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.shift.feature_table import (
    FeatureTable,
    ShiftFeature,
    compute_features,
    convert_from_scale,
    convert_to_scale,
    learn_vocabulary,
    list_features,
)
from deeprc.shift.reasons import name_reasons
from deeprc.shift.training_reference import MIN_DONORS, Reference, compute_threshold, read_reference, write_reference
from tests.toys.shift_cohorts import Recipe, draw_cohort


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return draw_cohort(tmp_path_factory.mktemp("training") / "cohort.h5", 100, seed=1)


@pytest.fixture(scope="module")
def reference(training: RepertoireDataset) -> Reference:
    vocabulary = learn_vocabulary(training)
    found = Reference.of(compute_features(training, vocabulary), vocabulary)
    assert found is not None
    return found


@pytest.fixture
def draw(tmp_path: Path) -> Callable[..., RepertoireDataset]:
    def make(n: int, recipe: Recipe | None = None, seed: int = 2) -> RepertoireDataset:
        return draw_cohort(tmp_path / "new.h5", n, seed=seed, recipe=recipe)

    return make


def far(reference: Reference, dataset: RepertoireDataset) -> tuple[np.ndarray, list[list[tuple[str, str]]]]:
    table = compute_features(dataset, reference.vocabulary)
    deviations = reference.compute_deviations(table)
    return deviations.distance / reference.threshold, name_reasons(reference, table, deviations)


@pytest.mark.slow
def test_one_in_twenty_of_the_same_kind_is_beyond_the_level(
    reference: Reference, draw: Callable[..., RepertoireDataset]
) -> None:
    shares = [float((far(reference, draw(300, seed=seed))[0] > 1).mean()) for seed in (2, 3)]
    assert 0.02 <= np.mean(shares) <= 0.08
    assert np.mean(np.array(reference.distances) > reference.threshold) == pytest.approx(0.04, abs=0.011)


@pytest.mark.parametrize(
    ("recipe", "aspect", "reason"),
    [
        (Recipe(depth=10), "depth", r"depth 1\d times lower \(3\d sequences, trained on 2\d\d to [6-9]\d\d\)"),
        (Recipe(of_v=0.4), "V genes", r"TRBV20-1 in (3\d|4\d)%, trained on [\d.]+ to [\d.]+%"),
        (Recipe(chain="TRA"), "chain", r"TRA in 100%, trained on 0%"),
        (Recipe(trimmed=1), "junction lengths", r"mean junction length 12\.\d, trained on 14\.\d to 14\.\d"),
    ],
)
def test_other_repertoires_are_beyond_it_for_a_reason(
    reference: Reference, draw: Callable[..., RepertoireDataset], recipe: Recipe, aspect: str, reason: str
) -> None:
    distance, reasons = far(reference, draw(10, recipe))
    assert (distance > 1).all()
    for told in reasons:
        assert re.fullmatch(reason, dict(told)[aspect])


def test_the_residue_that_a_trimmed_junction_begins_with_is_a_reason(
    reference: Reference, draw: Callable[..., RepertoireDataset]
) -> None:
    _, reasons = far(reference, draw(4, Recipe(trimmed=1)))
    assert all(("residues", "residue 1 is A in 100%, trained on 0%") in told for told in reasons)


def test_a_gene_that_training_lacks_is_named(reference: Reference, draw: Callable[..., RepertoireDataset]) -> None:
    without = Reference(
        **{**vars(reference), "vocabulary": {**reference.vocabulary, "v_call": reference.vocabulary["v_call"][:-1]}}
    )
    table = compute_features(draw(2), without.vocabulary)
    assert table.examples["another V gene"] == [reference.vocabulary["v_call"][-1]] * 2


def test_a_donor_is_measured_without_their_own_repertoires() -> None:
    """Donors with 5 equal samples each: left out one by one, the other four would hide how far a donor is."""
    rng = np.random.default_rng(0)
    of_donor = np.repeat(rng.normal(size=40), 5)
    feature = (ShiftFeature("depth", "depth", "log"),)
    table = FeatureTable(feature, of_donor[:, None], np.zeros((200, 1)))
    donors = np.repeat(np.arange(40), 5)
    by_donor = Reference.of(table, {}, donors)
    assert by_donor is not None
    assert by_donor.n_donors == 40
    others = np.delete(of_donor, slice(0, 5))
    variance = others.var(ddof=1)
    z = abs(of_donor[0] - others.mean()) / np.sqrt(variance + variance / 195 + 0.05**2)
    limit = max(by_donor.limits["depth:max"], 1)
    assert np.min(np.abs(np.array(by_donor.distances) * limit - z)) < 0.02 * limit


def test_too_few_donors_do_not_say_what_is_usual() -> None:
    table = FeatureTable((ShiftFeature("depth", "depth", "log"),), np.zeros((40, 1)), np.zeros((40, 1)))
    assert Reference.of(table, {}, np.arange(40) % (MIN_DONORS - 1)) is None
    assert Reference.of(table, {}, np.arange(40) % MIN_DONORS) is not None


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 20, 39, 200])
def test_the_limit_is_exceeded_once_in_twenty_times(n: int) -> None:
    rng = np.random.default_rng(n)
    exceeded = [np.exp(rng.normal()) > compute_threshold(np.exp(rng.normal(size=n)), n) for _ in range(4000)]
    assert np.mean(exceeded) == pytest.approx(0.05 if n < 39 else np.floor(0.05 * (n + 1)) / (n + 1), abs=0.012)


@pytest.mark.parametrize(("scale", "value"), [("share", 0.31), ("log", 400.0), ("number", 14.5)])
def test_scales_lead_back(scale: str, value: float) -> None:
    assert convert_from_scale(scale, float(convert_to_scale(scale, np.array(value)))) == pytest.approx(value)  # type: ignore[arg-type]


def test_a_reference_is_read_as_it_was_written(reference: Reference, tmp_path: Path) -> None:
    assert read_reference(tmp_path) is None
    write_reference(tmp_path, reference)
    assert read_reference(tmp_path) == reference
    assert reference.features == list_features(reference.vocabulary)
    text = (tmp_path / "shift.json").read_text()
    assert len(text) < 100_000
    assert "sick" not in text
    assert "rep.1" not in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "expected format 'deeprc-shift' version 1, found 'deeprc-shift' version 2"),
        ({"centre": [0.0]}, "means, variances and limits, one for each feature"),
        ({"level": 0.0}, "level: expected"),
        ({"limits": {"depth:max": 1.0}}, "limits: expected numbers from 1 to 1e"),
        ({"vocabulary": {"v_call": ["TRBV1"]}}, "its features do not agree with its gene vocabulary"),
        ({"vocabulary": {"d_call": ["TRBD1"]}}, "its features do not agree with its gene vocabulary"),
        ({"low": ["1"]}, "expected a finite number"),
        ({"secret": 1}, "no key 'secret'"),
    ],
)
def test_a_damaged_reference_is_refused(reference: Reference, tmp_path: Path, change: dict, message: str) -> None:
    (tmp_path / "shift.json").write_text(json.dumps({**reference.to_dict(), **change}))
    with pytest.raises(InputError, match=message):
        read_reference(tmp_path)


def test_features_that_no_training_repertoire_has_do_not_count(training: RepertoireDataset) -> None:
    """Repertoires that were never read from files have no share of dropped rows; new ones may have it."""
    vocabulary = learn_vocabulary(training)
    known = compute_features(training, vocabulary)
    column = [each.aspect for each in known.features].index("dropped rows")
    values, sampling_variance = known.values.copy(), known.sampling_variance.copy()
    values[:, column] = np.nan
    reference = Reference.of(replace(known, values=values, sampling_variance=sampling_variance), vocabulary)
    assert reference is not None
    expected = reference.compute_deviations(replace(known, values=values.copy(), sampling_variance=sampling_variance))
    values[:, column] = convert_to_scale("share", np.array(0.05))
    sampling_variance[:, column] = 1 / 5000
    found = reference.compute_deviations(replace(known, values=values, sampling_variance=sampling_variance))
    np.testing.assert_allclose(found.distance, expected.distance, rtol=1e-3)
