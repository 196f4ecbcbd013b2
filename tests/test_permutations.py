import numpy as np
from numpy.typing import NDArray

from deeprc.permutations import permute_labels


def permuted(
    values: NDArray[np.float64] | NDArray[np.int64], sizes: NDArray[np.int64], donors: NDArray[np.int64], n: int = 200
) -> NDArray[np.float64]:
    """Return labels, (B,), as they are and permuted n times, (1 + n, B)."""
    rng = np.random.default_rng(0)
    return permute_labels(values[:, None].astype(np.float64), sizes, donors, n, rng)[:, 0].T


def test_labels_are_permuted_among_repertoires_of_about_the_same_size() -> None:
    sizes = np.random.default_rng(0).permutation(np.arange(60))
    labels = permuted(sizes, sizes, np.arange(60), 400)
    assert labels[0].tolist() == sizes.tolist()
    assert (np.sort(labels, axis=1) == np.arange(60)).all()
    assert (labels // 10 == sizes // 10).all()  # six strata of ten
    assert len(set(labels[:, 0].tolist())) == 10  # within its stratum, each comes to each place


def test_equal_sizes_are_permuted_freely() -> None:
    labels = permuted(np.arange(60), np.full(60, 100), np.arange(60), 400)
    assert len(set(labels[:, 0].tolist())) > 55
    few = permuted(np.arange(11), np.arange(11), np.arange(11), 400)
    assert len(set(few[:, 0].tolist())) == 11  # too few for strata


def test_six_large_and_six_small_repertoires_do_not_exchange_labels() -> None:
    labels = permuted(np.arange(12), np.repeat([200, 2000], 6), np.arange(12), 400)
    assert set(labels[:, :6].ravel().tolist()) == set(range(6))
    assert len(set(labels[:, 0].tolist())) == 6


def test_several_outputs_are_permuted_together() -> None:
    values = np.stack([np.arange(30.0), -np.arange(30.0)], axis=1)
    labels = permute_labels(values, np.full(30, 9), np.arange(30) // 2, 20, np.random.default_rng(0))
    assert labels.shape == (30, 2, 21)
    np.testing.assert_array_equal(labels[:, 0], -labels[:, 1])
    assert (labels[:, 0, 0] != labels[:, 0, 1]).any()


def test_donors_with_one_label_exchange_it_whatever_their_number_of_repertoires() -> None:
    donors = np.array([0, 1, 1, 2, 2, 2, 3, 0, 3, 3, 3])
    labels = permuted(donors * 10, np.full(11, 100), donors)
    of_donor = labels[:, [0, 1, 3, 6]]
    np.testing.assert_array_equal(labels, of_donor[:, donors])  # equal within each donor
    assert (np.sort(of_donor, axis=1) == [0, 10, 20, 30]).all()
    assert len({tuple(each) for each in of_donor}) == 24


def test_the_size_of_a_donor_is_the_sum_of_its_repertoires() -> None:
    """Ten donors have one repertoire of 100 sequences, ten others ten of 20 each, which are 200 together."""
    donors = np.concatenate([np.arange(10), np.repeat(np.arange(10, 20), 10)])
    labels = permuted(donors, np.where(donors < 10, 100, 20), donors)
    assert ((labels < 10) == (donors < 10)).all()
    assert len(set(labels[:, 0].tolist())) == 10


def test_labels_that_vary_within_donors_are_permuted_within_them() -> None:
    """Pairs before and after, which leave nothing to exchange between donors; and donors with one label beside them."""
    donors = np.concatenate([np.repeat(np.arange(8), 2), np.arange(8, 14)])
    values = np.concatenate([np.tile([0, 1], 8), [0, 0, 0, 1, 1, 1]])
    labels = permuted(values, np.full(22, 100), donors, 400)
    pairs = labels[:, :16].reshape(-1, 8, 2)
    assert (pairs.sum(axis=2) == 1).all()
    assert 0.4 < pairs[1:, :, 0].mean() < 0.6
    assert (labels[:, 16:].sum(axis=1) == 3).all()
    assert len({tuple(each) for each in labels[:, 16:]}) == 20


def test_donors_of_as_many_repertoires_exchange_all_their_labels() -> None:
    donors = np.repeat(np.arange(5), [3, 3, 3, 2, 2])
    values = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 30, 31])
    labels = permuted(values, np.full(13, 100), donors, 400)
    assert {tuple(sorted(each)) for each in labels[:, :9].reshape(-1, 3)} == {(1, 2, 3), (4, 5, 6), (7, 8, 9)}
    assert {tuple(sorted(each)) for each in labels[:, 9:].reshape(-1, 2)} == {(20, 21), (30, 31)}
    assert set(labels[:, 0]) == set(range(1, 10))
    assert set(labels[:, 12]) == {20, 21, 30, 31}
