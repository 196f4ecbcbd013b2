"""The permutation test of a search for clones, against counts by another function."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from deeprc.baselines.carrier_counts import find_associated_clones
from deeprc.baselines.public_clones import THRESHOLDS
from deeprc.branches import clone_permutations
from deeprc.branches.clone_permutations import _count_associated, _permute_labels, exceeds_permutations
from deeprc.branches.clones_alternatives import LENIENT_THRESHOLDS, THRESHOLDS_BY_KIND
from deeprc.branches.clones_searches import CloneSearch, list_searches
from deeprc.branches.cohort import TrainingCohort
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset
from tests.toys.clone_cohorts import STATUS, Clone, draw_repertoires, write_repertoires

OVERSHARED_THRESHOLDS = THRESHOLDS_BY_KIND["overshared"]
B = 60
Y = np.arange(B) % 2


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return write_repertoires(tmp_path_factory.mktemp("clones") / "c.h5", draw_repertoires(0, Y))


def find_search(dataset: RepertoireDataset, labels: np.ndarray, groups: np.ndarray | None = None) -> CloneSearch:
    """Return the search for clones of positive repertoires."""
    return list_searches(TrainingCohort(dataset, labels.astype(float)[:, None], (STATUS,), groups))[0]


def exceeds(
    dataset: RepertoireDataset, search: CloneSearch, thresholds: Sequence[float] = OVERSHARED_THRESHOLDS
) -> bool:
    return exceeds_permutations(find_shared_clones(dataset, dataset.gene_fields), search, thresholds)


def test_associated_clones_are_counted_for_each_permutation(dataset: RepertoireDataset) -> None:
    clones, search = find_shared_clones(dataset, dataset.gene_fields), find_search(dataset, Y)
    labels = _permute_labels(search)
    assert labels.shape == (B, 201)
    assert labels[:, 0].tolist() == search.units.label_sum.tolist()
    assert (labels.sum(axis=0) == B // 2).all()
    assert len(np.unique(labels, axis=1).T) == 201
    needed = search.test.find_critical_sums(list(OVERSHARED_THRESHOLDS), search.units.labels())
    found = _count_associated(clones, 0, len(clones), search.units.unit_of, labels.astype(np.float32), needed)
    for column in (0, 1, 200):
        units = search.units._replace(label_sum=labels[:, column].astype(np.int32))
        expected = [
            len(find_associated_clones(clones, units, threshold).indices) for threshold in OVERSHARED_THRESHOLDS
        ]
        assert found[:, column].tolist() == expected
    parts = [(0, 7), (7, len(clones))]
    in_parts = [
        _count_associated(clones, *part, search.units.unit_of, labels.astype(np.float32), needed) for part in parts
    ]
    np.testing.assert_array_equal(in_parts[0] + in_parts[1], found)


def test_clones_of_positive_repertoires_exceed_permutations(dataset: RepertoireDataset) -> None:
    assert exceeds(dataset, find_search(dataset, Y))


def test_labels_without_meaning_do_not(dataset: RepertoireDataset) -> None:
    rng = np.random.default_rng(1)
    assert sum(exceeds(dataset, find_search(dataset, rng.permutation(Y))) for _ in range(20)) <= 1


def test_many_weak_associations_exceed_permutations(tmp_path: Path) -> None:
    """Forty clones are in two of 30 positive repertoires each (p = 0.246), ten in two of 30 negative ones (p = 1)."""
    shared = [f"CASSW{first}{second}F" for first in "ADEGHKLMNP" for second in "QRSTV"]
    own: list[list[str]] = [[] for _ in range(B)]
    for k, junction in enumerate(shared):
        for repertoire in np.flatnonzero((k < 40) == Y)[[k % 30, (7 * k + 1) % 30]]:
            own[repertoire].append(junction)
    private = iter(f"CASSP{a}{b}{c}F" for a in AMINO_ACIDS for b in AMINO_ACIDS for c in "ADEG")
    filled = [[*junctions, *(next(private) for _ in range(8 - len(junctions)))] for junctions in own]  # of equal size
    drawn: list[list[Clone]] = [[(junction, "TRBV1", "TRBJ1") for junction in junctions] for junctions in filled]
    dataset = write_repertoires(tmp_path / "c.h5", drawn)
    search = find_search(dataset, Y)
    assert exceeds(dataset, search, LENIENT_THRESHOLDS)
    assert not exceeds(dataset, search, THRESHOLDS)  # no threshold is above 0.1
    assert not exceeds(dataset, find_search(dataset, 1 - Y), LENIENT_THRESHOLDS)


@pytest.mark.parametrize(("n_as_many", "expected"), [(0, True), (1, True), (2, False), (200, False)])
def test_the_level_is_one_percent(
    dataset: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, n_as_many: int, expected: bool
) -> None:
    """If one of 200 permutations has as many associated clones as the labels, p is 2 / 201."""
    numbers = np.zeros((1, 201), np.int64)
    numbers[0, : 1 + n_as_many] = 7
    monkeypatch.setattr(clone_permutations, "_count_associated", lambda *_: numbers)
    assert exceeds(dataset, find_search(dataset, Y), [0.1]) == expected


def test_the_order_of_repertoires_is_irrelevant(dataset: RepertoireDataset) -> None:
    """Permutations are drawn for repertoires in the order of their content."""
    order = np.random.default_rng(2).permutation(B)
    labels = _permute_labels(find_search(dataset, Y))
    np.testing.assert_array_equal(_permute_labels(find_search(dataset[order], Y[order])), labels)


def test_repertoires_of_a_donor_have_one_label_in_each_permutation(dataset: RepertoireDataset) -> None:
    """Ten donors have two repertoires each, forty have one; thirty of these are positive."""
    donors = np.concatenate([np.arange(20) // 2, np.arange(10, 50)])
    search = find_search(dataset, (np.arange(B) >= B // 2).astype(int), donors)
    labels = _permute_labels(search)
    assert labels.shape == (50, 201)
    assert (labels.sum(axis=0) == 30).all()
    assert labels[:, 0].tolist() == search.units.label_sum.tolist()


def test_large_cohorts_are_not_permuted(dataset: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clone_permutations, "_MAX_UNITS", B - 1)
    assert not exceeds(dataset, find_search(dataset, Y))


def test_labels_are_exchanged_between_repertoires_of_about_the_same_size(tmp_path: Path) -> None:
    """Thirty large and thirty small repertoires: whatever the labels, each half keeps its number of positive ones."""
    clones = [(f"CASS{a}{b}F", "TRBV1", "TRBJ1") for a in "ADEGHK" for b in "ADEGHK"]
    rng = np.random.default_rng(3)
    drawn = [[clones[k] for k in rng.permutation(36)[: 30 if i < 30 else 5]] for i in range(B)]
    dataset = write_repertoires(tmp_path / "c.h5", drawn)
    search = find_search(dataset, (np.arange(B) < 24).astype(int))
    labels = _permute_labels(search)
    unit_of = search.units.unit_of[dataset.repertoire_indices]
    assert (labels[unit_of[:30]].sum(axis=0) == 24).all()
    assert (labels[unit_of[30:]] == 0).all()
