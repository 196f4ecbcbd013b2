"""Studies in plan: the rule by hand and by simulation, shrunk studies, and simulated cohorts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from deeprc.datasets.simulation import SimulatedDataset
from deeprc.errors import InputError
from deeprc.power.planning import PlannedStudy, SearchRule, simulate_study

STUDY = PlannedStudy(n_repertoires=100, depth=50_000, witness_rate=1e-3)


def test_the_rule_by_hand() -> None:
    """0.6 of the repertoires are for training; r by the variance between and within the classes."""
    rule = SearchRule(STUDY)
    t = 6.0429  # Student's t with 58 degrees of freedom is above it as rarely as a normal number is above 5.3
    assert stats.t.sf(t, 58) == pytest.approx(stats.norm.sf(5.3), rel=1e-3)
    assert rule.needed_correlation == pytest.approx(t / (58 + t**2) ** 0.5, abs=1e-5)
    chance = 12.5 * 2631 * 1903 * 2732 / 65536**3
    assert STUDY.background_rate == pytest.approx(chance)
    within = (chance + 0.0005) / 50_000
    assert rule.correlation == pytest.approx((0.0005**2 / (0.0005**2 + within)) ** 0.5)
    assert rule.is_clear
    assert rule.min_repertoires == 24
    weak = SearchRule(PlannedStudy(n_repertoires=100, depth=50_000, witness_rate=1e-4))
    assert not weak.is_clear
    n_training = 0.6 * weak.min_repertoires
    t = weak.correlation * np.sqrt((n_training - 2) / (1 - weak.correlation**2))
    assert stats.t.sf(t, n_training - 2) == pytest.approx(stats.norm.sf(5.3), rel=0.1)
    at_limit = SearchRule(PlannedStudy(n_repertoires=100, depth=50_000, witness_rate=rule.min_witness_rate))
    assert at_limit.correlation == pytest.approx(rule.needed_correlation, rel=1e-6)


def test_no_rate_suffices_for_few_repertoires() -> None:
    few = SearchRule(PlannedStudy(n_repertoires=15, depth=1000, witness_rate=0.01))
    assert np.isnan(few.min_witness_rate)
    assert not few.is_clear
    assert "9 training repertoires are too few" in "\n".join(few.to_lines())
    assert few.to_lines()[-1].startswith("This rule is about clear motifs, and no limit of the AUC")
    assert "no limit" not in "\n".join(SearchRule(STUDY).to_lines())
    assert "a witness rate of at least" not in "\n".join(few.to_lines())


def test_each_class_needs_six_training_repertoires() -> None:
    study = PlannedStudy(n_repertoires=60, depth=10_000, witness_rate=0.1, positive_share=0.1)
    rule = SearchRule(study)
    assert rule.correlation > rule.needed_correlation
    assert not rule.is_clear
    assert "3.6 training repertoires of the smaller class are too few: the search for motifs needs 6" in "\n".join(
        rule.to_lines()
    )
    assert rule.min_repertoires == 100
    assert SearchRule(replace(study, n_repertoires=100)).is_clear
    assert SearchRule(replace(study, n_repertoires=6, positive_share=0.5, n_folds=3)).needed_correlation == 1


def test_a_rate_of_almost_nothing_takes_any_number_of_repertoires() -> None:
    nothing = SearchRule(PlannedStudy(n_repertoires=100, depth=1000, witness_rate=1e-12))
    assert nothing.min_repertoires == pytest.approx((5.3 / nothing.correlation) ** 2 / 0.6, rel=1e-3)


def test_the_correlation_is_that_of_simulated_cohorts() -> None:
    study = PlannedStudy(n_repertoires=200, depth=2000, witness_rate=2e-3)
    dataset = SimulatedDataset(study.to_cohort(3))
    rates = np.array([np.mean([study.motif in text for text in one.sequences.decode()]) for one in dataset])
    labels = dataset.metadata["status"] == "positive"
    assert np.corrcoef(rates, labels)[0, 1] == pytest.approx(SearchRule(study).correlation, abs=0.06)
    assert rates[~labels].mean() == pytest.approx(study.background_rate, rel=0.3)


def test_a_shrunk_study_has_the_same_correlation() -> None:
    shrunk = STUDY.shrink(1_000_000)
    assert (shrunk.depth, shrunk.n_repertoires) == (10_000, 100)
    assert SearchRule(shrunk).correlation == pytest.approx(SearchRule(STUDY).correlation, rel=1e-9)
    assert STUDY.shrink(5_000_000) is STUDY


def test_the_smallest_class_may_have_just_one_repertoire_for_each_fold() -> None:
    """50 (1 - 0.9) is 4.999999999999999 in floating point."""
    study = PlannedStudy(n_repertoires=50, depth=100, witness_rate=0.1, positive_share=0.9)
    assert (SimulatedDataset(study.to_cohort(0)).metadata["status"] == "negative").sum() == 5
    with pytest.raises(InputError, match="at least 5 of each class"):
        PlannedStudy(n_repertoires=49, depth=100, witness_rate=0.1, positive_share=0.9)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_repertoires": 9}, "at least 5 of each class"),
        ({"witness_rate": 0.0}, "witness_rate=0"),
        ({"witness_rate": 1.5}, "witness_rate=1.5"),
        ({"witness_rate": 1e-320}, "witness_rate=.*expected 1e-12 to 1"),
        ({"n_repertoires": 10**400}, "expected at most 1,000,000"),
        ({"depth": 10**400}, "expected 1 to 100,000,000"),
        ({"n_folds": 10**400}, "at least 10+ of each class"),
        ({"motif_length": 1}, "motif_length=1"),
        ({"positive_share": 1.0}, "positive_share=1"),
        ({"depth": 0}, "depth=0"),
        ({"n_folds": 2}, "n_folds=2"),
    ],
)
def test_a_bad_study_is_refused(changed: dict[str, float], message: str) -> None:
    values = {"n_repertoires": 100, "depth": 1000, "witness_rate": 0.01, **changed}
    with pytest.raises(InputError, match=message):
        PlannedStudy(**values)  # type: ignore[arg-type]


@pytest.mark.slow
def test_virtual_cohorts_of_a_strong_and_of_no_signal() -> None:
    strong = PlannedStudy(n_repertoires=40, depth=1000, witness_rate=0.05)
    found = simulate_study(strong, methods=["known-recipe"], n_cohorts=2)
    assert found.simulated == strong
    assert found.table["auc"].tolist() == pytest.approx([1, 1], abs=0.01)
    weak = PlannedStudy(n_repertoires=40, depth=1000, witness_rate=1e-6)
    assert 0.3 < simulate_study(weak, methods=["known-recipe"], n_cohorts=3).table["auc"].mean() < 0.7
