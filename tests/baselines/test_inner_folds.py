"""Folds that separate neither groups nor equal repertoires."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deeprc.baselines.inner_folds import assign_grouped_folds, assign_inner_folds
from deeprc.datasets.dataset import RepertoireDataset
from tests.toys.gene_repertoires import write_genes

DIGESTS = [f"{number:04x}" for number in np.random.default_rng(0).permutation(65536)[:60]]
STRATA = np.arange(60) % 3 // 2  # 40 and 20


def test_single_repertoires_are_stratified_to_the_last() -> None:
    folds = assign_grouped_folds(DIGESTS, STRATA, 10)
    assert np.bincount(folds[STRATA == 0]).tolist() == [4] * 10
    assert np.bincount(folds[STRATA == 1]).tolist() == [2] * 10


def test_groups_stay_together_and_folds_are_even() -> None:
    groups = np.random.default_rng(1).integers(0, 25, 60)
    folds = assign_grouped_folds(DIGESTS, STRATA, 5, groups=groups)
    assert all(len(set(folds[groups == group])) == 1 for group in set(groups.tolist()))
    assert np.bincount(folds).min() >= 9


def test_equal_repertoires_join_groups() -> None:
    digests, groups = list(DIGESTS), np.arange(60)
    digests[7] = digests[40] = "same"
    groups[40] = 41  # 7 is equal to 40, which is of one donor with 41
    for repeat in range(5):
        folds = assign_grouped_folds(digests, STRATA, 10, groups=groups, repeat=repeat)
        assert folds[7] == folds[40] == folds[41]
        alone = assign_grouped_folds(digests, STRATA, 10, repeat=repeat)
        assert alone[7] == alone[40]


def test_the_order_does_not_matter_and_repeats_differ() -> None:
    order, groups = np.random.default_rng(2).permutation(60), np.arange(60) // 2
    shuffled = assign_grouped_folds([DIGESTS[i] for i in order], STRATA[order], 10, groups=groups[order])
    first, second = (assign_grouped_folds(DIGESTS, STRATA, 10, groups=groups, repeat=repeat) for repeat in range(2))
    np.testing.assert_array_equal(shuffled, first[order])
    assert (first != second).mean() > 0.5


def test_there_are_as_many_folds_as_units_of_the_rarest_stratum() -> None:
    assert assign_grouped_folds(DIGESTS, (np.arange(60) < 4).astype(np.int64), 10).max() == 3
    assert assign_grouped_folds(DIGESTS, (np.arange(60) < 4).astype(np.int64), 10, groups=np.arange(60) // 2).max() == 1
    assert assign_grouped_folds(DIGESTS, (np.arange(60) < 2).astype(np.int64), 10, groups=np.arange(60) // 2).max() == 0


def test_inner_folds_separate_no_donor(cohort: RepertoireDataset) -> None:
    positive, groups = np.arange(len(cohort)) % 3 == 0, np.arange(len(cohort)) // 2
    folds = assign_inner_folds(cohort, positive, 5, groups)
    digests = [repertoire.digest() for repertoire in cohort]
    np.testing.assert_array_equal(folds, assign_grouped_folds(digests, positive.astype(np.int64), 5, groups=groups))
    assert (folds[::2] == folds[1::2]).all()
    assert (assign_inner_folds(cohort, positive, 5)[::2] != assign_inner_folds(cohort, positive, 5)[1::2]).any()


def test_inner_folds_tell_repertoires_apart_that_differ_in_genes_alone(tmp_path: Path) -> None:
    """Each of the 20 repertoires with other genes occurs twice; with equal genes, all would be in one fold."""
    genes = [[f"V{number // 2}"] for number in range(40)]
    dataset = write_genes(tmp_path / "genes.h5", [["CASSF"]] * 40, genes)
    positive = np.arange(40) % 4 < 2
    for groups in (None, np.arange(40)):
        folds = assign_inner_folds(dataset, positive, 5, groups)
        assert np.bincount(folds).tolist() == [8] * 5
        assert (folds[::2] == folds[1::2]).all()
        assert np.bincount(folds, positive).tolist() == [4] * 5
