"""Baselines whose features or folds are those of donors, if several repertoires are of one donor."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from deeprc.baselines.burden import BurdenTest
from deeprc.baselines.public_clones import PublicClones
from deeprc.benchmarking.predictions import compute_path_scores
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.tasks import Task
from tests.conftest import random_sequences, write_cohort

N_DONORS, N_SAMPLES = 20, 4
DONORS = np.repeat(np.arange(N_DONORS), N_SAMPLES)
Y = DONORS % 2
"""Labels that say nothing: each donor has sequences of its own."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Four samples of each donor, each with 30 of the 40 sequences of the donor."""
    rng = np.random.default_rng(0)
    repertoires = []
    for _ in range(N_DONORS):
        own = random_sequences(rng, 40)
        repertoires += [[own[i] for i in rng.choice(40, 30, replace=False)] for _ in range(N_SAMPLES)]
    path = tmp_path_factory.mktemp("donors") / "cohort.h5"
    return write_cohort(path, repertoires, pd.DataFrame({"x": range(len(repertoires))}))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Four samples of each donor; a donor has some of 60 public sequences, a sample two thirds of the donor's."""
    rng = np.random.default_rng(1)
    public = random_sequences(rng, 60)
    repertoires = []
    for _ in range(N_DONORS):
        own = np.flatnonzero(rng.random(60) < 0.4)
        repertoires += [[public[i] for i in own[rng.random(len(own)) < 0.66]] for _ in range(N_SAMPLES)]
    path = tmp_path_factory.mktemp("pool") / "cohort.h5"
    return write_cohort(path, repertoires, pd.DataFrame({"x": range(len(repertoires))}))


def test_the_burden_test_is_not_sure_of_what_samples_of_a_donor_share(samples: RepertoireDataset) -> None:
    """Without donors, a sample is scored by sequences that the donor's other samples selected."""
    model = BurdenTest(feature="sequence", n_features=200)
    apart, together = (clone.predict_proba(samples)[:, 1] for clone in fit_both(model, samples))
    assert apart[Y == 1].mean() - apart[Y == 0].mean() > 0.7
    assert abs(together[Y == 1].mean() - together[Y == 0].mean()) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("feature", ["4mer", "sequence"])
def test_the_burden_test_selects_features_by_donors(pool: RepertoireDataset, feature: str) -> None:
    """The phi coefficient is that of donors, who carry what any of their samples carries, and of their label."""
    carried = [set(one.sequences.decode()) for one in pool]
    if feature == "4mer":
        carried = [{text[i : i + 4] for text in texts for i in range(len(text) - 3)} for texts in carried]
    by_donor = [set().union(*(carried[row] for row in np.flatnonzero(donor == DONORS))) for donor in range(N_DONORS)]
    label_of = np.arange(N_DONORS) % 2
    n_carriers = Counter(name for own in by_donor for name in own)
    expected = {
        name: pearsonr([name in own for own in by_donor], label_of).statistic if n < N_DONORS else 0.0
        for name, n in n_carriers.items()
        if n > 1 or feature == "4mer"
    }
    model = BurdenTest(feature=feature, n_features=20)  # type: ignore[arg-type]
    apart, together = fit_both(model, pool)
    np.testing.assert_allclose(together.phi_, sorted(expected.values(), reverse=True)[:20], atol=1e-12)
    np.testing.assert_allclose([expected[name] for name in together.features()], together.phi_, atol=1e-12)
    assert apart.features() != together.features()
    assert apart.phi_[0] != pytest.approx(together.phi_[0])
    burden = [len(own & set(together.features())) for own in carried]
    np.testing.assert_array_equal(together.decision_function(pool), burden)
    np.testing.assert_array_equal(model.decision_path(pool, Y, pool, [3, 20], groups=DONORS)[1], burden)
    both = compute_path_scores(
        model, Task("y", "y", "binary", classes=("0", "1"), n_positive=1), pool, Y, pool, [20], DONORS
    )
    np.testing.assert_array_equal(both[0], burden)


@pytest.mark.slow
def test_a_donor_with_many_samples_is_one_carrier(pool: RepertoireDataset) -> None:
    """Copies of a donor's samples change which 4-mers go with the label only where donors are not known."""
    copied = np.r_[np.arange(len(Y)), np.repeat(np.flatnonzero(DONORS == 1), 5)]
    apart, together = fit_both(BurdenTest(n_features=20), pool)
    new = [BurdenTest(n_features=20).fit(pool[copied], Y[copied], groups=own) for own in (None, DONORS[copied])]
    np.testing.assert_array_equal(new[1].phi_, together.phi_)
    assert new[1].features() == together.features()
    assert new[0].features() != apart.features()


def test_public_clones_are_judged_by_other_donors(samples: RepertoireDataset) -> None:
    """Held-out repertoires have a cross-entropy far below that of guessing, ln 2, if their donor was learned from."""
    model = PublicClones(genes=False, n_inner_folds=5, thresholds=[0.2, 0.001])
    apart, together = fit_both(model, samples)
    assert apart.cross_entropy_.min() < 0.5
    assert together.cross_entropy_.min() > 0.65


def fit_both(model: BurdenTest | PublicClones, samples: RepertoireDataset):  # type: ignore[no-untyped-def]
    """Return two models: fitted without the donors, and with them."""
    return [type(model)(**model.get_params()).fit(samples, Y, groups=groups) for groups in (None, DONORS)]
