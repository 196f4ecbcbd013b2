import numpy as np

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.training.kmer_sets import ANY, KmerSet, compute_code, enumerate_spacings, find_spacing

SPACINGS = [(0, 1), (0, 2, 3)]


def test_letters_have_a_spacing_and_a_code_and_come_back() -> None:
    letters = (AMINO_ACIDS.index("W"), ANY, AMINO_ACIDS.index("C"), AMINO_ACIDS.index("A"))
    assert find_spacing(letters) == (0, 2, 3)
    assert compute_code(letters) == AMINO_ACIDS.index("W") * 400 + AMINO_ACIDS.index("C") * 20
    kmers = KmerSet(SPACINGS, np.array([0, 1]), np.array([21, compute_code(letters)]))
    assert kmers.get_letters(0) == (1, 1)
    assert kmers.get_letters(1) == letters


def test_spacings_begin_with_0() -> None:
    assert enumerate_spacings(3, 4) == [(0, 1, 2), (0, 1, 3), (0, 2, 3)]
    assert len(enumerate_spacings(4, 6)) == 10


def test_equal_codes_of_different_spacings_are_different_kmers() -> None:
    kmers = KmerSet(SPACINGS, np.array([0, 1, 1]), np.array([7, 7, 8]))
    others = KmerSet(SPACINGS, np.array([1, 0]), np.array([7, 9]))
    assert kmers.find_missing(others).tolist() == [True, False, True]
    joined = KmerSet.concatenate([kmers.take(np.array([2, 0])), others])
    assert joined.spacing_index.tolist() == [1, 0, 1, 0]
    assert joined.code.tolist() == [8, 7, 7, 9]
