import re

import numpy as np
import pytest
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import count_kmers
from deeprc.progress import Step
from deeprc.training import kmer_correlations, kmer_frequencies
from deeprc.training.kmer_correlations import correlate, standardise
from deeprc.training.kmer_frequencies import (
    BlockSequences,
    SparseFrequencies,
    _BlockCounter,
    find_longer_spacings,
    iterate_frequencies,
)
from deeprc.training.kmer_occurrences import find_occurrences, find_sequences_with_kmer
from deeprc.training.kmer_sets import KmerSet, enumerate_spacings
from tests.conftest import StepRecorder

SPACINGS = [(0, 1), (0, 2), (0, 1, 3)]
STEP = Step("counting", 1, StepRecorder())


def _dense(counted: np.ndarray | SparseFrequencies, shape: tuple[int, ...]) -> np.ndarray:
    if isinstance(counted, np.ndarray):
        return counted
    dense = np.zeros(shape)
    dense[counted.repertoire, counted.kmer] = counted.value
    return dense


@pytest.mark.parametrize("spacing", [(0, 1), (0, 2)])
def test_correlations_are_those_of_the_frequencies(cohort: RepertoireDataset, spacing: tuple[int, ...]) -> None:
    """Whole numbers as weights stand for so many repertoires each."""
    rng = np.random.default_rng(0)
    labels = rng.normal(size=(len(cohort), 2))
    frequencies = np.stack([count_kmers(r.residues, r.lengths, spacing) / len(r) for r in cohort])
    for weights in (np.ones(len(cohort)), rng.integers(1, 4, len(cohort)).astype(np.float64)):
        times = np.repeat(np.arange(len(cohort)), weights.astype(int))
        with np.errstate(invalid="ignore"):
            expected = np.corrcoef(frequencies[times].T, labels[times].T)[: 20 ** len(spacing), -2:]
        ((index, found, mean, variance),) = correlate(cohort, [spacing], labels, weights / 2)
        assert index == 0
        np.testing.assert_allclose(mean, frequencies[times].mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(variance, frequencies[times].var(axis=0), atol=1e-9)
        np.testing.assert_allclose(found.T, np.nan_to_num(expected), atol=1e-5)


def test_a_repertoire_may_have_more_occurrences_than_floats_of_32_bits_can_count() -> None:
    """The largest repertoires have more sequences than 2 ** 24, above which such floats are even."""
    n = 2**24 + 6  # AAA is there n - 2 times, AAC once
    residues = np.zeros(n + 1, np.uint8)
    residues[-1] = AMINO_ACIDS.index("C")
    sequences = BlockSequences(residues, np.array([0, n + 1]), np.array([0, 1]))
    spacings, memory = [(0, 2), (0, 1, 2)], np.empty(20**3, np.float32)
    counter = _BlockCounter(sequences, np.zeros(1, bool), spacings, find_longer_spacings(spacings), memory)
    counted = {index: (float(frequencies[0, 0]), float(frequencies[0, 1])) for index, frequencies in counter.count(1)}
    assert counted == dict.fromkeys((0, 1), (2**24 + 4, 1))


def test_standardise_by_hand() -> None:
    columns, weights = np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([3.0, 1.0])
    expected = [[-0.5 / 3**0.5, 0.0], [1.5 / 3**0.5, 0.0]]  # the mean is 1.5; 3 x 0.5^2 + 1 x 1.5^2 = 3
    np.testing.assert_allclose(standardise(columns, weights), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "sequences", "memory", "sparse"),
    [
        (128, 4_000_000, 400_000_000, 2),
        (3, 4_000_000, 1, 2),
        (128, 150, 10**6, 2),
        (3, 4_000_000, 400_000_000, 0),  # as of small repertoires: only the k-mers that occur
        (2, 4_000_000, 400_000_000, 10**9),
    ],
)
def test_passes_and_blocks_change_nothing(
    cohort: RepertoireDataset,
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    sequences: int,
    memory: int,
    sparse: int,
) -> None:
    monkeypatch.setattr(kmer_correlations, "_choose_max_bytes", lambda _: memory)
    for name, value in {"_MAX_REPERTOIRES": block, "_MAX_SEQUENCES": sequences, "_SPARSE_FACTOR": sparse}.items():
        monkeypatch.setattr(kmer_frequencies, name, value)
    expected = [np.stack([count_kmers(r.residues, r.lengths, p) / len(r) for r in cohort]) for p in SPACINGS]
    seen = [np.zeros_like(each) for each in expected]
    for rows, index, counted in iterate_frequencies(cohort, SPACINGS, STEP):
        seen[index][rows] += _dense(counted, seen[index][rows].shape)
    for one, other in zip(seen, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    labels = np.linspace(-1, 1, len(cohort))[:, None]
    found = {index: r.copy() for index, r, *_ in correlate(cohort, SPACINGS, labels, np.ones(len(cohort)))}
    assert sorted(found) == [0, 1, 2]
    for index, each in found.items():
        centred = expected[index] - expected[index].mean(axis=0)
        length = np.linalg.norm(centred, axis=0)
        r = centred.T @ labels[:, 0] / np.linalg.norm(labels) / np.where(length > 0, length, 1)
        np.testing.assert_allclose(each[0], r, atol=1e-5)


@pytest.mark.parametrize("block", [128, 3])
def test_occurrences_are_those_of_a_search_in_texts(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(kmer_frequencies, "_MAX_REPERTOIRES", block)
    texts = ["W.W", "WH", "HW"]
    code = np.array([AMINO_ACIDS.index(text[0]) * 20 + AMINO_ACIDS.index(text[-1]) for text in texts])
    kmers = KmerSet([(0, 1), (0, 2)], np.array([1, 0, 0]), code)
    found = find_occurrences(cohort, kmers)
    seen = sorted(zip(found.repertoire.tolist(), found.sequence.tolist(), found.kmer.tolist(), strict=True))
    expected, number = [], 0
    for b, repertoire in enumerate(cohort):
        for text in repertoire.sequences.decode():
            expected += [
                (b, number, k)
                for k, motif in enumerate(texts)
                for at in range(len(text) - len(motif) + 1)
                if all(m in (".", letter) for m, letter in zip(motif, text[at:], strict=False))
            ]
            number += 1
    assert seen == sorted(expected)
    room = [sum(k == which for _, _, k in expected) for which in range(3)]
    first_and_last = (room[0] + room[2], [True, False, True])  # the second alone does not fit
    assert room[1] > room[2] > 0
    for room_left, which in ((sum(room), [True] * 3), first_and_last, (0, [False] * 3)):
        some = find_occurrences(cohort, kmers, max_occurrences=room_left)
        assert some.was_searched.tolist() == which
        seen = sorted(zip(some.repertoire.tolist(), some.sequence.tolist(), some.kmer.tolist(), strict=True))
        assert seen == sorted(each for each in expected if which[each[2]])


def test_counts_of_a_k_mer_with_a_gap_follow_from_those_of_longer_ones() -> None:
    spacings = [(0, 1), (0, 3), (0, 1, 3), (0, 1, 2), (0, 1, 2, 3), (0, 2)]
    found = find_longer_spacings(spacings)
    named = [None if each is None else (spacings[each.spacing_index], each.inserted) for each in found]
    #  a gap of (0, 3) is filled at 1 or 2, that of (0, 1, 3) at 2
    assert named == [None, ((0, 1, 3), 1), ((0, 1, 2, 3), 2), None, None, ((0, 1, 2), 1)]


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [0, 2, 10**6])
@pytest.mark.parametrize("leave_out", [False, True])
def test_frequencies_do_not_depend_on_the_other_spacings(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, sparse: int, leave_out: bool
) -> None:
    monkeypatch.setattr(kmer_frequencies, "_MAX_REPERTOIRES", 3)
    monkeypatch.setattr(kmer_frequencies, "_SPARSE_FACTOR", sparse)
    some = cohort[:7]  # three blocks, the last with one repertoire
    left_out = np.random.default_rng(0).random(int(some.n_sequences.sum())) < 0.3 if leave_out else None
    spacings = [spacing for k in (2, 3, 4) for spacing in enumerate_spacings(k, 6)]
    together: dict[tuple[int, int], NDArray[np.float32]] = {}
    for rows, index, counted in iterate_frequencies(some, spacings, STEP, left_out):
        shape = (rows.stop - rows.start, 20 ** len(spacings[index]))
        together[rows.start, index] = _dense(counted, shape).copy()
    for index, spacing in enumerate(spacings):
        for rows, _, counted in iterate_frequencies(some, [spacing], STEP, left_out):
            alone = _dense(counted, (rows.stop - rows.start, 20 ** len(spacing)))
            np.testing.assert_array_equal(together.pop((rows.start, index)), alone)
    assert not together


def test_sequences_that_are_left_out_do_not_count(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmer_frequencies, "_MAX_REPERTOIRES", 3)
    rng = np.random.default_rng(0)
    left_out = rng.random(int(cohort.n_sequences.sum())) < 0.3
    left_out[: int(cohort.n_sequences[0])] = True  # all of the first repertoire's
    starts = np.concatenate([[0], np.cumsum(cohort.n_sequences)])
    for rows, index, counted in iterate_frequencies(cohort, SPACINGS, STEP, left_out):
        whole = _dense(counted, (rows.stop - rows.start, 20 ** len(SPACINGS[index])))
        for b, row in zip(range(rows.start, rows.stop), whole, strict=True):
            kept = ~left_out[starts[b] : starts[b + 1]]
            texts = [text for text, keep in zip(cohort[b].sequences.decode(), kept, strict=True) if keep]
            expected = np.zeros(20 ** len(SPACINGS[index]))
            for text in texts:
                for at in range(len(text) - SPACINGS[index][-1]):
                    letters = [AMINO_ACIDS.index(text[at + offset]) for offset in SPACINGS[index]]
                    expected[np.ravel_multi_index(letters, [20] * len(letters))] += 1 / len(texts)
            np.testing.assert_allclose(row, expected, atol=1e-6)


def test_sequences_with_a_kmer_are_those_of_a_search_in_texts(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmer_frequencies, "_MAX_REPERTOIRES", 3)
    expected = [bool(re.search("W.W", text)) for repertoire in cohort for text in repertoire.sequences.decode()]
    code = AMINO_ACIDS.index("W") * 21
    assert find_sequences_with_kmer(cohort, (0, 2), code).tolist() == expected
    assert any(expected)


def test_the_progress_of_each_step_ends_at_the_number_of_sequences(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, recorder: StepRecorder
) -> None:
    monkeypatch.setattr(kmer_frequencies, "_MAX_REPERTOIRES", 3)
    monkeypatch.setattr(kmer_correlations, "_choose_max_bytes", lambda _: 1)
    n = int(cohort.n_sequences.sum())
    for _ in correlate(cohort, SPACINGS, np.ones((len(cohort), 1)), np.ones(len(cohort))):
        pass
    find_occurrences(cohort, KmerSet(SPACINGS, np.array([1]), np.array([5])))
    find_sequences_with_kmer(cohort, (0, 2), 5)
    assert [(step.name, step.done, step.total) for step in recorder.steps] == [
        (f"search for motifs: correlations, 3 passes over {len(cohort)} repertoires", 3 * n, 3 * n),
        ("search for motifs: where candidates occur, pass 1 of 2", n, n),
        ("search for motifs: where candidates occur, pass 2 of 2", n, n),
        ("search for motifs: sequences with a motif", n, n),
    ]
    assert len(recorder.told) > 3 * 2 + 6


def test_occurrences_of_several_spacings_that_begin_alike(cohort: RepertoireDataset) -> None:
    """Two, three and four residues, some with the same first two, and up to the last residue of a sequence."""
    texts = ["WH", "WHW", "WHH", "WH.H", "WHWA", "W.W", "W.WA", "W..H", "H.H.W", "AWWF"]
    offsets = [tuple(i for i, letter in enumerate(text) if letter != ".") for text in texts]
    spacings = sorted(set(offsets))
    letters = [[AMINO_ACIDS.index(letter) for letter in text.replace(".", "")] for text in texts]
    code = np.array([sum(a * 20 ** (len(each) - 1 - i) for i, a in enumerate(each)) for each in letters])
    found = find_occurrences(cohort, KmerSet(spacings, np.array([spacings.index(each) for each in offsets]), code))
    sequences = [text for repertoire in cohort for text in repertoire.sequences.decode()]
    expected = [
        (s, k)
        for s, sequence in enumerate(sequences)
        for k, text in enumerate(texts)
        for at in range(len(sequence) - len(text) + 1)
        if all(m in (".", letter) for m, letter in zip(text, sequence[at:], strict=False))
    ]
    assert sorted(zip(found.sequence.tolist(), found.kmer.tolist(), strict=True)) == expected
    assert len({k for _, k in expected}) >= 8
    segments = np.repeat(np.arange(len(cohort)), cohort.n_sequences)
    np.testing.assert_array_equal(found.repertoire, segments[found.sequence])
