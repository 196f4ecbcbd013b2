"""The exact test, weight matrices, clusters and the background of motifs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.motif_clusters import cluster_motifs, compute_similarity
from deeprc.interpretation.motifs.background import draw_other_sequences, find_unique_rows, match_lengths
from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.interpretation.motifs.enrichment import compute_fisher_log_p, compute_odds_ratio
from deeprc.interpretation.motifs.matrices import (
    PositionFrequencyMatrix,
    Windows,
    align_windows,
    compute_information,
    find_windows,
)
from deeprc.interpretation.motifs.search import find_attended_residues, find_initial_patterns
from tests.conftest import random_sequences
from tests.interpretation.motifs.parsing import pattern_of


@pytest.mark.parametrize(("n", "others"), [(1, 1), (7, 13), (40, 900), (500, 20)])
def test_the_exact_test_is_that_of_scipy(n: int, others: int) -> None:
    rng = np.random.default_rng(1)
    n_with, others_with = rng.integers(0, n + 1, 60), rng.integers(0, others + 1, 60)
    n_with[:4], others_with[:4] = [0, 0, n, n], [0, others, 0, others]
    expected = [
        fisher_exact([[a, n - a], [b, others - b]], alternative="greater").pvalue
        for a, b in zip(n_with, others_with, strict=True)
    ]
    found = np.exp(compute_fisher_log_p(n_with, n, others_with, others))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-300)


def test_the_test_does_not_underflow() -> None:
    found = compute_fisher_log_p(np.array([2]), 2, np.array([0]), 10**6)[0]  # 2 / ((10^6 + 2) (10^6 + 1))
    assert found == pytest.approx(np.log(2) - np.log1p(10**6) - np.log(10**6 + 2))
    far = compute_fisher_log_p(np.array([1000, 0]), 1000, np.array([0, 50_000]), 50_000)
    assert far[0] < -4000
    assert far[1] == 0


def test_odds_ratios() -> None:
    assert compute_odds_ratio(6, 8, 10, 40) == 9.0
    assert compute_odds_ratio(8, 8, 0, 40) == 8.5 * 40.5 / (0.5 * 0.5)


def samples_of(attended: list[str], others: list[str]) -> ComparedSequences:
    return ComparedSequences.of(attended, others)


def test_the_window_with_most_attribution_is_taken_and_weighs_its_share() -> None:
    samples = samples_of(["ALDALD", "WW", "LDK"], ["CC"])
    attributions = np.array([[1, 0, 1, 2, 3, 1], [1, 1, *[np.nan] * 4], [-5, 1, 3, *[np.nan] * 3]])
    windows = find_windows(samples, pattern_of("LD"), attributions)
    assert windows.rows.tolist() == [0, 2]
    assert windows.starts.tolist() == [4, 0]
    np.testing.assert_allclose(windows.weights, [4 / 8, 1 / 4])


def test_a_matrix_by_hand() -> None:
    samples = samples_of(["ALD", "LDK"], ["CCC"] * 20)
    windows = Windows(np.array([0, 1]), np.array([1, 0]), np.array([1.0, 0.5]))
    assert samples.frequencies.overall[1] == 61 / 80
    assert samples.frequencies.overall[0] == 1 / 80
    matrix = align_windows(samples, windows, 1, 3)  # one place before, the two of LD, one behind
    letters = [{AMINO_ACIDS[r]: matrix.counts[j, r] for r in np.flatnonzero(matrix.counts[j])} for j in range(4)]
    assert letters == [{"A": 1.0}, {"L": 1.5}, {"D": 1.5}, {"K": 0.5}]
    at_a_place = (20 + 20 * 61 / 80) / 40  # 20 of C, and 20 like the whole
    np.testing.assert_allclose(matrix.expected[:, 1], at_a_place)
    np.testing.assert_allclose(matrix.frequencies.sum(axis=1), 1.0)
    np.testing.assert_allclose(matrix.frequencies[1, 9], (1.5 + matrix.expected[1, 9]) / 2.5)


def test_information_by_hand() -> None:
    expected = np.full((1, 20), 0.05)
    counts = np.zeros((1, 20))
    counts[0, :2] = 9.5
    heights = compute_information(PositionFrequencyMatrix(counts, expected))[0]
    frequencies = np.array([9.55 / 20] * 2 + [0.05 / 20] * 18)
    entropy = 2 * 9.55 / 20 * np.log2(9.55) + 18 * 0.05 / 20 * np.log2(0.05)
    np.testing.assert_allclose(heights, frequencies * entropy)
    assert not compute_information(PositionFrequencyMatrix(np.zeros((1, 20)), expected)).any()


def heights_of(pattern: str) -> np.ndarray:
    heights = np.zeros((len(pattern), 20))
    for position, letter in enumerate(pattern):
        if letter != ".":
            heights[position, AMINO_ACIDS.index(letter)] = 4.0
    return heights


def test_similarity_by_hand() -> None:
    assert compute_similarity(heights_of("LDRW"), heights_of(".LDRW")) == pytest.approx(1.0)
    assert compute_similarity(heights_of("LDRW"), heights_of("DRW")) == pytest.approx(3 / np.sqrt(12))
    assert compute_similarity(heights_of("LDRW"), heights_of("KEEP")) == 0.0


def test_shifted_and_partial_copies_are_one_cluster_and_others_are_not() -> None:
    patterns = ["LDRW", "GANVLT", "..LDRW", "DRW", "LD.W", "NVLT", "PPKP"]
    clusters = cluster_motifs([heights_of(pattern) for pattern in patterns])
    assert len({clusters[i] for i in (0, 2, 3, 4)}) == 1
    assert clusters[1] == clusters[5]
    assert len({*clusters.tolist()}) == 3
    assert cluster_motifs([]).shape == (0,)
    assert cluster_motifs([heights_of("A")]).tolist() == [1]


def test_rows_of_equal_junctions_count_once() -> None:
    table = pd.DataFrame(
        {"repertoire_id": ["b", "a", "a", "c"], "sequence_id": [1, 2, 1, 5], "junction_aa": ["CW", "CA", "CW", "CA"]},
        index=[9, 9, 9, 9],
    )
    assert find_unique_rows(table, np.array([1.0, 2.0, -1.0, -3.0])).tolist() == [3, 2]


def test_lengths_are_matched() -> None:
    rng = np.random.default_rng(0)
    available = np.repeat([10, 11, 12, 13], [100, 1000, 1000, 5])
    rows = match_lengths(np.repeat([10, 11], [10, 30]), available, max_rows=200, rng=rng)
    assert np.bincount(available[rows], minlength=14)[10:].tolist() == [50, 150, 0, 0]
    rows = match_lengths(np.repeat([10, 11], [10, 30]), available, max_rows=4000, rng=rng)  # of length 10 there are 100
    assert np.bincount(available[rows], minlength=14)[10:].tolist() == [100, 300, 0, 0]
    rows = match_lengths(
        np.repeat([10, 13], [10, 40]), available, max_rows=5000, rng=rng
    )  # 105 have these lengths, not 500
    found = np.bincount(available[rows], minlength=14)[10:]
    assert (found[0], found[1] + found[2], found[3]) == (100, 395, 5)
    assert available[match_lengths(np.array([30]), available, max_rows=3, rng=rng)].tolist() == [13, 13, 13]
    assert match_lengths(np.array([10]), np.zeros(0, np.int64), max_rows=10, rng=rng).shape == (0,)


def test_the_background_is_of_the_cohort_without_the_attended_sequences(
    cohort_factory: Callable[..., RepertoireDataset],
) -> None:
    dataset = cohort_factory(n_repertoires=6, n_sequences=200)
    attended = dataset[1].sequences.decode()[::10]
    others = draw_other_sequences(dataset, attended, max_sequences=100, seed=4)
    assert len(set(others)) == len(others) <= 100
    assert not set(others) & set(attended)
    assert set(others) <= {sequence for repertoire in dataset for sequence in repertoire.sequences.decode()}
    assert draw_other_sequences(dataset, attended[::-1], max_sequences=100, seed=4) == others
    assert draw_other_sequences(dataset, attended, max_sequences=100, seed=5) != others
    every = sorted({text for repertoire in dataset for text in repertoire.sequences.decode()})
    assert draw_other_sequences(dataset, every, max_sequences=100, seed=4) == []


def test_seeds_lie_where_the_attribution_is() -> None:
    rng = np.random.default_rng(0)
    attended = sorted({s[:3] + "KWEW" + s[3:6] + "HPH" + s[6:] for s in random_sequences(rng, 80, 10, 12)})
    samples = samples_of(attended, random_sequences(rng, 2000, 17, 19))
    attributions = np.full((len(attended), max(map(len, attended))), -0.1)
    for row, sequence in enumerate(attended):
        attributions[row, sequence.index("KWEW") : sequence.index("KWEW") + 4] = 1.0
    seeds = find_initial_patterns(samples, find_attended_residues(attributions), span=9, max_patterns=100)
    assert {tuple(seed) for seed in seeds} == {
        tuple(pattern_of(text)) for text in ("KWEW", "KWE", "WEW", "KW.W", "K.EW")
    }
    assert not find_initial_patterns(samples, find_attended_residues(-np.abs(attributions)), span=9, max_patterns=100)


def test_at_most_eight_residues_of_a_sequence_are_attended() -> None:
    values = np.array([np.arange(12.0), [np.nan] * 12, -np.ones(12), [3.0, 0.0, *[np.nan] * 10]])
    assert find_attended_residues(values).sum(axis=1).tolist() == [8, 0, 0, 1]
    assert find_attended_residues(values)[0, 4:].all()
