"""Baselines that divide their training repertoires into folds, if several repertoires are of one donor."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deeprc.baselines.burden import BurdenTest
from deeprc.baselines.public_clones import PublicClones
from deeprc.datasets.dataset import RepertoireDataset
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


def test_the_burden_test_is_not_sure_of_what_samples_of_a_donor_share(samples: RepertoireDataset) -> None:
    """Without donors, a sample is scored by sequences that the donor's other samples selected."""
    model = BurdenTest(feature="sequence", n_features=200)
    apart, together = (clone.predict_proba(samples)[:, 1] for clone in fit_both(model, samples))
    assert apart[Y == 1].mean() - apart[Y == 0].mean() > 0.7
    assert abs(together[Y == 1].mean() - together[Y == 0].mean()) < 0.1


def test_public_clones_are_judged_by_other_donors(samples: RepertoireDataset) -> None:
    """Held-out repertoires have a cross-entropy far below that of guessing, ln 2, if their donor was learned from."""
    model = PublicClones(genes=False, n_inner_folds=5, thresholds=[0.2, 0.001])
    apart, together = fit_both(model, samples)
    assert apart.cross_entropy_.min() < 0.5
    assert together.cross_entropy_.min() > 0.65


def fit_both(model: BurdenTest | PublicClones, samples: RepertoireDataset):  # type: ignore[no-untyped-def]
    """Return two models: fitted without the donors, and with them."""
    return [type(model)(**model.get_params()).fit(samples, Y, groups=groups) for groups in (None, DONORS)]
