"""Clones of cohorts in which nothing goes with the label, and of cohorts in which only a stratum does."""

from __future__ import annotations

import numpy as np
import pytest

from deeprc.associations.donors_by_class import DonorsByClass
from deeprc.associations.stratified_tests import ClassTest, compare_carriers, compute_permutation_q_values
from deeprc.baselines.association_tests import adjust_by_benjamini_hochberg
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.clones.grouping import CloneCarriers

N_CLONES, N_COHORTS = 1000, 100


def draw_cohort(
    rng: np.random.Generator, n_donors: int, trait: np.ndarray
) -> tuple[CloneCarriers, np.ndarray, np.ndarray]:
    """Return clones, the donor of each repertoire, and the donors' sizes.

    A donor has 1 to 4 repertoires, which share clones, and more clones the larger they are. Half of the clones go with
    a trait of the donors, (traits, donors).
    """
    n_of = rng.integers(1, 5, n_donors)
    donor = np.repeat(np.arange(n_donors), n_of)
    depth = np.exp(rng.normal(0, 1, n_donors))
    rate, of_trait = np.exp(rng.normal(-2, 0.8, N_CLONES)), rng.integers(0, 2 * len(trait), N_CLONES)
    linked = np.concatenate([np.where(trait, 2.2, 0.1), np.ones_like(trait, float)])[of_trait]
    has = rng.random((N_CLONES, n_donors)) < np.minimum(rate[:, None] * linked * depth, 0.95)
    in_repertoire = has[:, donor] & (rng.random((N_CLONES, len(donor))) < 0.8)
    carriers = [np.flatnonzero(own).astype(np.int32) for own in in_repertoire]
    offsets = compute_offsets(np.array([len(own) for own in carriers]))
    clones = CloneCarriers(np.arange(N_CLONES), offsets, np.concatenate(carriers))
    return clones, donor.astype(np.int32), (1000 * depth * n_of).astype(np.int64)


def count_found(clones: CloneCarriers, donors: DonorsByClass) -> tuple[int, int]:
    """Return how many clones are found at 5%: by permutations, and by Benjamini and Hochberg."""
    labels = donors.permute(60, np.random.default_rng(0))
    tests = (ClassTest.of(donors.unit_of, donors.strata, labels == code, 0.01) for code in (0, 1))
    tested = [compare_carriers(clones, test) for test in tests]
    bins, p_values = (np.concatenate([getattr(each, name) for each in tested]) for name in ("bins", "p_values"))
    by_permutations = compute_permutation_q_values(bins, tested[0].counts + tested[1].counts)
    by_p_values = adjust_by_benjamini_hochberg(p_values, sum(each.n_tested for each in tested))
    return int((by_permutations <= 0.05).sum()), int((by_p_values <= 0.05).sum())


@pytest.mark.slow
def test_labels_that_say_nothing_give_nothing_at_the_stated_rate() -> None:
    """If donors are counted. If their repertoires are, nearly every cohort has clones that seem to go with the label.

    A share of 5% is at most 12 of 100 cohorts with a probability of 99.9%.
    """
    by_donor, by_repertoire = [], []
    for seed in range(N_COHORTS):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(30, 60))
        clones, donor, sizes = draw_cohort(rng, n, rng.random((10, n)) < 0.35)
        codes = (rng.permutation(n) < n // 2).astype(np.int64)
        by_donor.append(
            count_found(
                clones, DonorsByClass(donor, ("0", "1"), codes, np.arange(len(codes)), sizes, np.zeros(n, np.int64), ())
            )
        )
        n = len(donor)
        each = DonorsByClass(
            np.arange(n, dtype=np.int32),
            ("0", "1"),
            codes[donor],
            np.arange(n),
            sizes[donor],
            np.zeros(n, np.int64),
            (),
        )
        by_repertoire.append(count_found(clones, each))
    assert ((np.array(by_donor) > 0).sum(axis=0) <= 12).all()
    assert ((np.array(by_repertoire) > 0).sum(axis=0) >= 80).all()


@pytest.mark.slow
def test_depth_that_goes_with_the_label_gives_nothing_by_permutations() -> None:
    found = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        clones, donor, sizes = draw_cohort(rng, 60, np.zeros((1, 60), bool))
        order = np.log(sizes) + rng.normal(0, 1, 60)
        codes = (order > np.median(order)).astype(np.int64)
        found.append(
            count_found(
                clones,
                DonorsByClass(donor, ("0", "1"), codes, np.arange(len(codes)), sizes, np.zeros(60, np.int64), ()),
            )
        )
    by_permutations, by_p_values = (np.array(found) > 0).sum(axis=0)
    assert by_permutations <= 8
    assert by_p_values >= 20


@pytest.mark.slow
def test_clones_of_a_stratum_do_not_go_with_the_label_within_it() -> None:
    """The trait, such as an HLA allele, is in 80% of one class and 20% of the other, and brings its clones with it."""
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        codes = np.arange(60) % 2
        trait = rng.random(60) < np.where(codes, 0.8, 0.2)
        clones, donor, sizes = draw_cohort(rng, 60, trait[None])
        strata = (np.zeros(60, np.int64), trait.astype(np.int64))
        found.append(
            [
                count_found(clones, DonorsByClass(donor, ("0", "1"), codes, np.arange(len(codes)), sizes, own, ()))
                for own in strata
            ]
        )
    together, within = np.array(found).swapaxes(0, 1)
    assert (np.median(together, axis=0) > 20).all()
    assert ((within > 0).sum(axis=0) <= 5).all()
