"""The kernels against a loop, scipy, and each other: dense and sparse, numba and torch, cached and direct."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist

from deeprc.baselines import kernels
from deeprc.baselines.kernels import (
    KERNELS,
    compute_cross_kernel,
    compute_dataset_kernel,
    compute_gram,
    compute_torch_kernel,
)
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.kmers import count_kmers
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.errors import InputError
from tests.toys.repertoires import make_sequences, write_repertoires

Floats = NDArray[np.float32]


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the CPU's sums also where there is a CUDA device; tests of the device name it."""
    monkeypatch.setattr(kernels, "_has_cuda", lambda: False)


def by_loop(rows_a: Floats, rows_b: Floats, kind: str) -> NDArray[np.float64]:
    """The paper's formula, pair by pair."""
    if kind == "jaccard":
        rows_a, rows_b = (rows_a > 0).astype(np.float32), (rows_b > 0).astype(np.float32)
    kernel = np.ones((len(rows_a), len(rows_b)))
    for i, a in enumerate(rows_a.astype(np.float64)):
        for j, b in enumerate(rows_b.astype(np.float64)):
            smaller, larger = np.minimum(a, b).sum(), np.maximum(a, b).sum()
            if larger > 0:
                kernel[i, j] = smaller / larger
    return kernel


def random_rows(n: int, n_kmers: int, seed: int = 0) -> Floats:
    """Like 4-mer representations: few frequent k-mers, many rare ones."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(0.3, 3, n_kmers), (n, n_kmers))
    return (counts / rng.integers(50, 90, (n, 1))).astype(np.float32)


def write(path: Path, repertoires: list[list[str]], counts: list[list[int]]) -> RepertoireDataset:
    return write_repertoires(path, map(make_sequences, repertoires, counts), {"y": [0] * len(repertoires)})


VALUES = st.sampled_from([0, 0, 0, 0.125, 1, 3.7, 1e-6])
ROWS = arrays(np.float32, st.tuples(st.integers(0, 4), st.just(9)), elements=VALUES.map(np.float32))


@pytest.mark.parametrize("kind", KERNELS)
@settings(deadline=None, max_examples=60)
@given(ROWS, ROWS)
def test_the_papers_formula(kind: str, a: Floats, b: Floats) -> None:
    np.testing.assert_allclose(compute_cross_kernel(a, b, kind), by_loop(a, b, kind), rtol=1e-6)


@pytest.mark.parametrize("n_kmers", [1, 63, 64, 65, 1023, 1024, 2500])
@pytest.mark.parametrize("kind", KERNELS)
def test_kernels_equal_a_loop_for_every_number_of_kmers(kind: str, n_kmers: int) -> None:
    a, b = random_rows(3, n_kmers), random_rows(2, n_kmers, seed=1)
    expected = by_loop(a, b, kind)
    np.testing.assert_allclose(compute_cross_kernel(a, b, kind), expected, rtol=3e-7, atol=1e-15)
    np.testing.assert_allclose(compute_torch_kernel(a, b, kind, device="cpu"), expected, rtol=1e-6, atol=1e-6)


def test_jaccard_is_scipys() -> None:
    a, b = random_rows(70, 8000), random_rows(40, 8000, seed=1)
    np.testing.assert_allclose(compute_cross_kernel(a, b, "jaccard"), 1 - cdist(a > 0, b > 0, "jaccard"), rtol=1e-12)


def test_precision_over_many_kmers() -> None:
    rows = random_rows(4, 160_000)
    wide = rows.astype(np.float64)
    smaller = np.array([[np.minimum(x, y).sum() for y in wide] for x in wide])
    larger = np.array([[np.maximum(x, y).sum() for y in wide] for x in wide])
    np.testing.assert_allclose(compute_cross_kernel(rows, rows, "minmax"), smaller / larger, rtol=2e-7)
    np.testing.assert_allclose(compute_torch_kernel(rows, rows, "minmax", device="cpu"), smaller / larger, atol=1e-6)


@pytest.mark.parametrize("kind", KERNELS)
def test_a_pairs_value_depends_on_nothing_else(kind: str) -> None:
    rows = random_rows(75, 3000)
    rows[40] = rows[3]
    whole = compute_cross_kernel(rows, rows, kind)
    assert np.array_equal(whole, whole.T)
    assert np.all(whole.diagonal() == 1)
    assert whole[3, 40] == 1
    assert np.array_equal(compute_cross_kernel(rows, rows.copy(), kind), whole)
    for i, j in [(0, 74), (33, 1), (64, 65)]:
        assert compute_cross_kernel(rows[[i]], rows[[j]], kind)[0, 0] == whole[i, j]
    order = np.random.default_rng(0).permutation(75)
    assert np.array_equal(compute_cross_kernel(rows[order], rows[:9], kind), whole[order][:, :9])
    readonly = rows.copy()
    readonly.flags.writeable = False
    assert np.array_equal(compute_cross_kernel(np.asfortranarray(rows), readonly, kind), whole)


@pytest.mark.parametrize("kind", KERNELS)
def test_the_number_of_threads_changes_nothing(kind: str) -> None:
    rows = random_rows(70, 3000)
    whole, threads = compute_cross_kernel(rows, rows, kind), numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        assert np.array_equal(compute_cross_kernel(rows, rows, kind), whole)
    finally:
        numba.set_num_threads(threads)


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("piece", [1, 1 << 18])
def test_sparse_rows_give_what_dense_ones_give(kind: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_PIECE", piece)
    a, b = random_rows(9, 5000), random_rows(6, 5000, seed=1)
    a[4] = 0
    expected = compute_cross_kernel(a, b, kind)
    sparse = csr_matrix(a)
    unsorted = csr_matrix((sparse.data[::-1], sparse.indices[::-1], sparse.nnz - sparse.indptr[::-1]), sparse.shape)
    assert not unsorted.has_sorted_indices
    assert np.array_equal(compute_cross_kernel(sparse, csr_matrix(b), kind), expected)
    assert np.array_equal(compute_cross_kernel(a, csr_matrix(b), kind), expected)
    assert np.array_equal(compute_cross_kernel(unsorted, b, kind), expected[::-1])
    assert np.array_equal(compute_cross_kernel(sparse, sparse, kind), compute_cross_kernel(a, a, kind))


@pytest.mark.parametrize("kind", KERNELS)
def test_repertoires_without_kmers(kind: str) -> None:
    rows = np.array([[0, 0, 0], [0, 2, 1], [0, 0, 0]], np.float32)
    for kernel in (compute_cross_kernel(rows, rows, kind), compute_torch_kernel(rows, rows, kind, device="cpu")):
        assert kernel.tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert compute_cross_kernel(rows[:0], rows, kind).shape == (0, 3)
    assert compute_cross_kernel(rows, rows[:0], kind).shape == (3, 0)


def test_two_repertoires_by_hand(tmp_path: Path) -> None:
    dataset = write(tmp_path / "c.h5", [["CAS", "AS"], ["ASS"], []], [[3, 1], [7], []])
    # u: CA 1/2, AS 1 and AS 1, SS 1
    assert compute_gram(dataset, "minmax", (0, 1))[0].tolist() == [1, 0.4, 0]
    assert compute_gram(dataset, "jaccard", (0, 1))[0].tolist() == [1, 1 / 3, 0]
    # weighted by counts: CA 3/4, AS 1
    assert compute_gram(dataset, "minmax", (0, 1), weighted=True)[0, 1] == pytest.approx(1 / 2.75)
    assert compute_gram(dataset, "jaccard", (0, 1), weighted=True)[0, 1] == 1 / 3
    # with a gap: CS 1/2 and AS 1
    assert compute_gram(dataset, "minmax", (0, 2))[:2, 1].tolist() == [0, 1]
    assert compute_gram(dataset, "minmax")[2].tolist() == [1, 1, 1]  # no 4-mers anywhere


@pytest.mark.slow
@pytest.mark.parametrize("kmer_offsets", [(0, 1, 2), (0, 1, 3, 4), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("kind", KERNELS)
def test_gram_is_the_kernel_of_the_representations(
    cohort_factory: Callable[..., RepertoireDataset],
    kind: str,
    kmer_offsets: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "_choose_chunk_size", lambda whole, n_kmers: 4)
    cohort = cohort_factory(6, 40)
    counts = np.array([count_kmers(r.residues, r.lengths, kmer_offsets) for r in cohort])
    rows = (counts / cohort.n_sequences[:, None]).astype(np.float32)
    u = compute_kmer_frequencies(cohort, kmer_offsets)
    np.testing.assert_allclose(u if isinstance(u, np.ndarray) else u.toarray(), rows, rtol=1e-6)
    found = compute_gram(cohort, kind, kmer_offsets)
    some = rows[:, (counts > 0).any(axis=0)]
    np.testing.assert_allclose(found, by_loop(some, some, kind), rtol=1e-6)
    assert np.array_equal(found, compute_cross_kernel(u, u, kind))
    assert np.array_equal(found, found.T)
    view = cohort[[4, 2, 2, 5]]
    assert np.array_equal(
        compute_gram(view, kind, kmer_offsets), found[np.ix_(view.repertoire_indices, view.repertoire_indices)]
    )
    assert np.array_equal(compute_gram(open_dataset(cohort.container.path), kind, kmer_offsets), found)  # from the disk
    assert compute_gram(cohort[:0], kind, kmer_offsets).shape == (0, 0)


def test_weights_are_the_counts(cohort: RepertoireDataset) -> None:
    u = compute_kmer_frequencies(cohort, (0, 1), weighted=True)
    for row, repertoire in zip(u, cohort, strict=True):
        expected = count_kmers(repertoire.residues, repertoire.lengths, (0, 1), weights=repertoire.counts)
        np.testing.assert_allclose(row, expected / repertoire.counts.sum(), rtol=1e-6)


@pytest.mark.parametrize("kind", KERNELS)
def test_similarity_is_the_same_from_the_cache_and_between_containers(
    cohort_factory: Callable[..., RepertoireDataset], kind: str
) -> None:
    one, other = cohort_factory(12, 40, seed=1), cohort_factory(9, 30, seed=2)
    again = open_dataset(one.container.path)
    expected = compute_cross_kernel(compute_kmer_frequencies(one), compute_kmer_frequencies(one), kind)
    assert np.array_equal(compute_dataset_kernel(one[[3, 1]], again[5:], kind), expected[[3, 1]][:, 5:])
    between = compute_dataset_kernel(one, other[::-1], kind)
    assert np.array_equal(
        between, compute_cross_kernel(compute_kmer_frequencies(one), compute_kmer_frequencies(other), kind)[:, ::-1]
    )
    assert 0 < between.max() < 1


@pytest.mark.parametrize("kind", KERNELS)
def test_where_there_is_a_device_torch_computes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(20, 9000)
    expected = compute_cross_kernel(rows, rows, kind)
    monkeypatch.setattr(kernels, "_has_cuda", lambda: True)
    monkeypatch.setattr(kernels, "_add_minima", None)
    monkeypatch.setattr(kernels, "_add_common", None)
    found = compute_cross_kernel(rows, rows, kind)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.array_equal(found, found.T)
    assert np.all(found.diagonal() == 1)
    assert np.array_equal(compute_cross_kernel(csr_matrix(rows), rows, kind), found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", KERNELS)
def test_cuda_gives_what_the_cpu_gives(kind: str) -> None:
    rows = random_rows(40, 160_000)
    found = compute_torch_kernel(rows, rows, kind, device="cuda")
    np.testing.assert_allclose(found, compute_torch_kernel(rows, rows, kind, device="cpu"), atol=1e-6)
    assert np.array_equal(found, found.T)
    assert np.all(found.diagonal() == 1)


def test_kernel_functions_refuse_bad_arguments(cohort: RepertoireDataset) -> None:
    rows = np.ones((2, 3), np.float32)
    with pytest.raises(InputError, match="kernel: expected one of minmax, jaccard, found 'rbf'"):
        compute_cross_kernel(rows, rows, "rbf")
    with pytest.raises(InputError, match="kernel: expected one of minmax, jaccard, found 'rbf'"):
        compute_gram(cohort, "rbf")
    with pytest.raises(InputError, match="expected the same number of k-mers in both, found 3 and 2"):
        compute_cross_kernel(rows, rows[:, :2], "minmax")
    with pytest.raises(InputError, match="kmer_offsets: expected 1 to 6 whole numbers that rise from 0, found"):
        compute_gram(cohort, "minmax", (1, 2))
