"""k-mer and gene counts of a cohort against loops over texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from deeprc.datasets import representations
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.kmers import list_kmers
from deeprc.datasets.representations import compute_kmer_frequencies, compute_kmer_matrix, count_genes
from deeprc.datasets.simulation import Cohort, GermlineBackground, IndependentBackground, SimulatedDataset, Sizes
from deeprc.errors import InputError
from tests.toys.repertoires import make_sequences, write_repertoires

TEXTS = [["CASSF", "CASSASS"], [], ["CAW", "C", "CAW"], ["CASSASSF"]]
COUNTS = [[2, 1], [], [5, 7, 1], [3]]
V_CALLS = [["TRBV2", "TRBV10"], [], ["", "TRBV2", "TRBV2"], ["TRBV10"]]


@pytest.fixture(scope="module")
def random_cohort(cohort_factory: Callable[..., RepertoireDataset]) -> RepertoireDataset:
    return cohort_factory(6, 30)


@pytest.fixture
def small(tmp_path: Path) -> RepertoireDataset:
    vocabulary = ("", "TRBV10", "TRBV9", "TRBV2")  # in no order, and one that no sequence has
    repertoires = []
    for texts, counts, calls in zip(TEXTS, COUNTS, V_CALLS, strict=True):
        genes = Categorical(np.array([vocabulary.index(call) for call in calls], np.uint16), vocabulary)
        repertoires.append(make_sequences(texts, counts).with_genes({"v_call": genes}))
    return write_repertoires(tmp_path / "c.h5", repertoires, {"y": range(4)})


def by_loop(dataset: RepertoireDataset, places: Sequence[int], *, weighted: bool) -> NDArray[np.float32]:
    column = {name: at for at, name in enumerate(list_kmers(len(places)))}
    counts = np.zeros((len(dataset), len(column)), np.float32)
    for row, repertoire in enumerate(dataset):
        for text, weight in zip(repertoire.sequences.decode(), repertoire.counts.tolist(), strict=True):
            for start in range(len(text) - places[-1]):
                counts[row, column["".join(text[start + place] for place in places)]] += weight if weighted else 1
    return counts


@pytest.mark.parametrize("places", [(0,), (0, 1), (0, 2), (0, 1, 2), (0, 1, 4), (0, 1, 2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_counts_are_those_of_a_loop(random_cohort: RepertoireDataset, places: tuple[int, ...], weighted: bool) -> None:
    found = compute_kmer_matrix(random_cohort, places, weighted=weighted)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    assert np.array_equal(found, by_loop(random_cohort, places, weighted=weighted))


def test_a_hand_counted_example(small: RepertoireDataset) -> None:
    column = {name: at for at, name in enumerate(list_kmers(2))}
    counts = compute_kmer_matrix(small, (0, 1))
    expected = {"CA": [2, 0, 2, 1], "AS": [3, 0, 0, 2], "SS": [3, 0, 0, 2], "AW": [0, 0, 2, 0], "SF": [1, 0, 0, 1]}
    for name, of_each in expected.items():
        assert counts[:, column[name]].tolist() == of_each
    weighted = compute_kmer_matrix(small, (0, 1), weighted=True)
    assert weighted[:, column["CA"]].tolist() == [3, 0, 6, 3]
    assert weighted[:, column["SS"]].tolist() == [4, 0, 0, 6]
    assert counts.sum(axis=1).tolist() == [10, 0, 4, 7]


@pytest.mark.parametrize("places", [(0, 1), (0, 1, 2, 3, 4)])
def test_slices_are_rows_of_the_whole(small: RepertoireDataset, places: tuple[int, ...]) -> None:
    whole = compute_kmer_matrix(small, places)
    for key in ([2, 0, 0], slice(None, None, -1), np.array([True, False, False, True]), slice(0, 0)):
        found, expected = compute_kmer_matrix(small[key], places), whole[small[key].repertoire_indices]
        assert found.shape == (len(small[key]), 20 ** len(places))
        assert np.array_equal(*(each if len(places) < 5 else each.toarray() for each in (found, expected)))
    assert np.array_equal(compute_kmer_matrix(small[1:][[1]], (0, 1)), compute_kmer_matrix(small, (0, 1))[[2]])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offsets", [(0, 1), (0, 1, 2, 3, 4)])
def test_chosen_kmers_are_columns_of_all(small: RepertoireDataset, offsets: tuple[int, ...], weighted: bool) -> None:
    view = small[[3, 0, 0]]
    for measure in (compute_kmer_matrix, compute_kmer_frequencies):
        whole = csr_matrix(measure(view, offsets, weighted=weighted)).toarray()
        kmers = np.append(np.flatnonzero(whole.any(axis=0))[::-1], 0)
        found = csr_matrix(measure(view, offsets, weighted=weighted, kmers=kmers)).toarray()
        assert found.any()
        np.testing.assert_array_equal(found, whole[:, kmers])


def test_a_change_of_a_returned_matrix_does_not_change_the_next_one(small: RepertoireDataset) -> None:
    for places in ((0, 1), (0, 1, 2, 3, 4)):
        found = compute_kmer_matrix(small, places)
        before = found.copy()
        if isinstance(found, csr_matrix):
            found.data[:] = 7
            assert (compute_kmer_matrix(small, places) != before).nnz == 0
        else:
            found[:] = 7
            assert np.array_equal(compute_kmer_matrix(small, places), before)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_sparse_form_holds_the_same(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    dataset = cohort_factory(9, 0, seed=1)
    dense = compute_kmer_matrix(dataset, (0, 2, 3), weighted=weighted)
    monkeypatch.setattr(representations, "_MAX_DENSE", 400)
    again = cohort_factory(9, 0, seed=1)  # written anew: nothing of the dense form is known
    sparse = compute_kmer_matrix(again, (0, 2, 3), weighted=weighted)
    assert isinstance(sparse, csr_matrix)
    assert sparse.dtype == np.float32
    assert sparse.has_canonical_format
    assert np.array_equal(sparse.toarray(), dense)
    assert sparse.nnz == (dense > 0).sum()
    reopened = compute_kmer_matrix(open_dataset(again.container.path), (0, 2, 3), weighted=weighted)
    assert np.array_equal(reopened.toarray(), dense)


def test_5_mers_are_sparse(small: RepertoireDataset) -> None:
    found = compute_kmer_matrix(small, (0, 1, 2, 3, 4))
    assert isinstance(found, csr_matrix)
    names = ["CASSF", "CASSA", "ASSAS", "SSASS", "SASSF"]
    at = {name: sum(20**p * "ACDEFGHIKLMNPQRSTVWY".index(x) for p, x in enumerate(name[::-1])) for name in names}
    rows = found.toarray()
    assert [[int(row[at[name]]) for name in names] for row in rows] == [
        [1, 1, 1, 1, 0],
        [0] * 5,
        [0] * 5,
        [0, 1, 1, 1, 1],
    ]
    assert rows.sum() == 8


def test_a_cohort_on_no_disk() -> None:
    dataset = SimulatedDataset(Cohort(4, Sizes(50), IndependentBackground()))
    assert np.array_equal(
        compute_kmer_matrix(dataset[[3, 1]], (0, 1)), by_loop(dataset[[3, 1]], (0, 1), weighted=False)
    )
    assert np.array_equal(compute_kmer_matrix(dataset, (0,), weighted=True), by_loop(dataset, (0,), weighted=True))


def test_genes_are_counted(small: RepertoireDataset) -> None:
    counts, names = count_genes(small)
    assert names == ("TRBV10", "TRBV2")
    assert counts.tolist() == [[1, 1], [0, 0], [0, 2], [1, 0]]
    counts, names = count_genes(small[[2, 1]])  # names are those of these repertoires
    assert (counts.tolist(), names) == ([[2], [0]], ("TRBV2",))
    counts, names = count_genes(small[:0])
    assert (counts.shape, names) == ((0, 0), ())
    with pytest.raises(InputError, match=r"c\.h5: has no j_call"):
        count_genes(small, "j_call")


def test_genes_are_those_of_a_loop() -> None:
    dataset = SimulatedDataset(Cohort(5, Sizes(200), GermlineBackground()))
    for field in ("v_call", "j_call"):
        counts, names = count_genes(dataset, field)
        assert list(names) == sorted(names)
        for row, repertoire in zip(counts, dataset, strict=True):
            expected = Counter(repertoire.genes[field].names().tolist())
            expected.pop("", None)
            assert {name: int(n) for name, n in zip(names, row, strict=True) if n} == expected
