"""Diversity: its features by hand and by enumeration, and what it reads and does not read."""

from __future__ import annotations

import time
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import prod
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import entropy, hypergeom

from deeprc.baselines.abundance_histogram import AbundanceHistogram, compute_rarefied_richness, estimate_richness
from deeprc.baselines.diversity import (
    DIVERSITY_FEATURES,
    Diversity,
    DiversityRidge,
    compute_diversity_features,
    compute_diversity_table,
    find_common_depth,
)
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones.distinct import sum_clone_abundances
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError
from tests.conftest import random_sequences
from tests.toys.repertoires import make_sequences, write_repertoires


def histogram(counts: list[int]) -> AbundanceHistogram:
    return AbundanceHistogram.from_abundances(np.array(counts, np.int64))


def write(path: Path, counts: list[list[int]], *, seed: int = 0, genes: bool = False) -> RepertoireDataset:
    """Repertoires of different random sequences with these counts, classes 0 and 1 in turn."""
    rng = np.random.default_rng(seed)
    repertoires = []
    for each in counts:
        sequences = make_sequences(random_sequences(rng, len(each)), each)
        calls = Categorical(rng.integers(0, 2, len(each)).astype(np.uint16), ("TRBV1", "TRBV2"))
        repertoires.append(sequences.with_genes({"v_call": calls} if genes else {}))
    return write_repertoires(path, repertoires, {"status": np.arange(len(counts)) % 2})


def test_features_by_hand() -> None:
    found = dict(zip(DIVERSITY_FEATURES, compute_diversity_features(histogram([1, 4, 1, 2]), 3), strict=True))
    share = np.array([1, 4, 1, 2]) / 8
    expected = {
        "log_richness": np.log(5),
        "log_richness_at_depth": np.log1p(sum(1 - hypergeom.pmf(0, 8, c, 3) for c in (1, 4, 1, 2))),
        "shannon_entropy": entropy(share),
        "log_hill_2": np.log(1 / (share**2).sum()),
        "clonality": 1 - entropy(share) / np.log(4),
        "evenness": np.exp(entropy(share)) / 4,
        "share_of_largest": 0.5,
        "share_of_ten_largest": 1.0,
    }
    assert found == pytest.approx(expected)
    many = compute_diversity_features(histogram([1] * 20 + [5] * 3 + [2] * 4), 3)
    assert many[-1] == pytest.approx((3 * 5 + 4 * 2 + 3 * 1) / 43)


def test_diversity_features_of_no_clone_are_0_and_of_one_by_hand() -> None:
    assert compute_diversity_features(histogram([]), 3).tolist() == [0.0] * len(DIVERSITY_FEATURES)
    one = dict(zip(DIVERSITY_FEATURES, compute_diversity_features(histogram([5]), 3), strict=True))
    assert one["log_richness"] == one["log_richness_at_depth"] == pytest.approx(np.log(2))
    assert (one["shannon_entropy"], one["clonality"], one["log_hill_2"]) == pytest.approx((0, 0, 0))
    assert (one["evenness"], one["share_of_largest"], one["share_of_ten_largest"]) == pytest.approx((1, 1, 1))


def test_equal_abundances_have_no_clonality() -> None:
    features = np.array([compute_diversity_features(histogram([2] * n), 3) for n in range(2, 300)])
    assert (features[:, DIVERSITY_FEATURES.index("clonality")] == 0).all()
    np.testing.assert_array_equal(features[:, DIVERSITY_FEATURES.index("shannon_entropy")], np.log(np.arange(2, 300)))


@pytest.mark.parametrize("counts", [[1, 4, 1, 2], [3, 3, 3], [7], [1, 1, 1, 1, 5]])
def test_rarefaction_is_the_mean_over_all_draws(counts: list[int]) -> None:
    owners = np.repeat(np.arange(len(counts)), counts)
    for depth in range(1, len(owners) + 3):
        draws = list(combinations(owners.tolist(), min(depth, len(owners))))
        expected = np.mean([len(set(draw)) for draw in draws])
        assert compute_rarefied_richness(histogram(counts), depth) == pytest.approx(expected, rel=1e-12)


def test_rarefaction_of_deep_repertoires_is_exact() -> None:
    counts = [1] * 50_000 + [10] * 300 + [2_000_000, 90_000_000]
    total = sum(counts)
    missed = {c: prod(Fraction(total - 1000 - k, total - k) for k in range(c)) for c in (1, 10)}
    expected = 50_000 * float(1 - missed[1]) + 300 * float(1 - missed[10]) + 2
    assert compute_rarefied_richness(histogram(counts), 1000) == pytest.approx(expected, rel=1e-9)
    assert compute_rarefied_richness(histogram([1] * 100), 40) == pytest.approx(40)


def rarefy_count_by_count(counts: list[int], depth: int) -> float:
    """Multiply the probability that a clone is missed by one factor per count, as the definition says."""
    total, largest = sum(counts), max(counts)
    factors = np.maximum(total - depth - np.arange(largest), 0) / (total - np.arange(largest))
    return float(np.sum(1 - np.cumprod(factors)[np.array(counts) - 1]))


@pytest.mark.parametrize("depth", [1, 300, 1_001, 4_000, 50_000, 500_000])
def test_rarefaction_is_that_of_a_product_count_by_count(depth: int) -> None:
    ordinary = np.random.default_rng(0).zipf(1.6, 5_000).clip(max=200_000).tolist()
    for counts in (ordinary, [1, 5, 2_000, 2_010, 30_000, 700_000], [1_500] * 400, [1_000_000]):
        if depth < sum(counts):
            assert compute_rarefied_richness(histogram(counts), depth) == pytest.approx(
                rarefy_count_by_count(counts, depth), rel=1e-11
            )


@pytest.mark.parametrize(
    ("counts", "depth"),
    [
        ([1, 900, 1_001, 1_700, 2_900, 4_000], 1_300),
        ([1_001, 9_999], 1_002),
        ([1_100] * 1_500 + [2_500] * 3, 1_050),  # the factors are few, and the sums large
        ([1, 2, 1_200, 6_000_000], 1_500),
    ],
)
def test_rarefaction_is_that_of_fractions(counts: list[int], depth: int) -> None:
    total = sum(counts)
    n_draws = prod(range(total - depth + 1, total + 1))

    @cache
    def missed(c: int) -> Fraction:
        return (
            Fraction(prod(range(total - c - depth + 1, total - c + 1)), n_draws) if total - c >= depth else Fraction(0)
        )

    expected = float(sum(1 - missed(c) for c in counts))
    assert compute_rarefied_richness(histogram(counts), depth) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(
    ("counts", "depth", "expected"),
    [
        ([1, 1, 1, 2, 5], 4, None),  # fewer than there are: rarefied
        ([1, 1, 1, 2, 5], 10, 5.0),
        ([1, 1, 1, 2, 5], 11, 5 + 4.05 * (3 / (10 * 4.05 + 3))),  # f0 = 9 / 10 * 3**2 / 2
        ([1, 1, 1, 5], 9, 4 + 2.625 * (3 / (8 * 2.625 + 3))),  # f0 = 7 / 8 * 3 * 2 / 2
        ([1, 1, 1, 2, 5], 10**9, 5 + 4.05),
        ([2, 2, 7], 100, 3.0),  # no clone has a single count
        ([1, 7], 100, 2.0),
        ([], 100, 0.0),
    ],
)
def test_richness_beyond_the_counts_by_hand(counts: list[int], depth: int, expected: float | None) -> None:
    if expected is None:
        expected = compute_rarefied_richness(histogram(counts), depth)
    assert estimate_richness(histogram(counts), depth) == pytest.approx(expected, rel=1e-9)


def test_richness_beyond_the_counts_is_near_that_of_more_counts() -> None:
    """4,000 draws from 3,000 unequal clones: their number is estimated from the first 2,000."""
    rng = np.random.default_rng(0)
    shares = rng.pareto(2.0, 3000) + 0.5
    draws = rng.choice(3000, 4000, p=shares / shares.sum())
    half = histogram(np.unique(draws[:2000], return_counts=True)[1].tolist())
    n_found = len(np.unique(draws))
    assert estimate_richness(half, 4000) == pytest.approx(n_found, rel=0.03)
    assert half.richness < 0.8 * n_found


def test_the_largest_counts_take_no_time() -> None:
    largest = 2**32 - 1
    few = AbundanceHistogram(np.array([1, largest - 1, largest]), np.array([3, 5_000, 1_000_000]))
    started = time.perf_counter()
    for depth in (1, 10**6, largest, 10**15):
        share = depth / few.total
        expected = -few.n_clones @ np.expm1(few.abundances * np.log1p(-share))  # with replacement, nearly the same
        assert compute_rarefied_richness(few, depth) == pytest.approx(expected, rel=1e-6)
    assert time.perf_counter() - started < 5


def test_rows_of_one_clone_are_one_clone(tmp_path: Path) -> None:
    """Rows with one junction are merged if their V genes are the same; their order does not matter."""
    texts, calls = ["CAAAF", "CDDDF", "CAAAF", "CAAAF", "CAAAF", "CDDDF"], [0, 0, 1, 0, 0, 0]
    for number, order in enumerate((np.arange(6), np.array([5, 2, 0, 4, 1, 3]))):
        path = tmp_path / f"{number}.h5"
        sequences = Sequences.encode(texts)
        sequences = Sequences(sequences.residues, sequences.offsets, np.array([1, 2, 4, 8, 16, 32], np.uint32))
        genes = {"v_call": Categorical(np.array(calls, np.uint16), ("TRBV1", "TRBV2"))}
        with ContainerWriter(path) as writer:
            writer.append(
                "first", Sequences.encode(["CWWWF"]).with_genes(genes | {"v_call": genes["v_call"].take(slice(0, 1))})
            )
            writer.append("second", sequences.with_genes(genes).take(order))
            writer.finish(pd.DataFrame({"status": [0, 1]}), source="a test")
        cohort = open_dataset(path)
        assert sorted(sum_clone_abundances(cohort[1], ["v_call"]).tolist()) == [4, 25, 34]
        assert sorted(sum_clone_abundances(cohort[1], []).tolist()) == [29, 34]
        np.testing.assert_allclose(
            compute_diversity_table(cohort[1:], 5)[0], compute_diversity_features(histogram([4, 25, 34]), 5)
        )


def test_the_order_of_sequences_does_not_matter(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = [rng.geometric(0.3, 40 + 3 * number).tolist() for number in range(12)]
    one = write(tmp_path / "one.h5", counts)
    other = write(tmp_path / "other.h5", [sorted(each) for each in counts], seed=1)  # other sequences, too
    model = Diversity().fit(one[:8], one.metadata["status"][:8])
    np.testing.assert_array_equal(model.decision_function(one), model.decision_function(other))


def test_clonal_repertoires_are_told_apart(tmp_path: Path) -> None:
    """One clone in a positive repertoire has a tenth of the counts; sizes and sums of counts are as the others'."""
    rng = np.random.default_rng(0)
    counts = []
    for number in range(40):
        n = int(rng.integers(80, 120))
        each = np.ones(n, np.int64)
        spread = rng.integers(0, n, 100) if number % 2 == 0 else np.repeat(0, 100)
        np.add.at(each, spread, 1)
        counts.append(each.tolist())
    cohort = write(tmp_path / "cohort.h5", counts, genes=True)
    y = cohort.metadata["status"].to_numpy()
    model = Diversity().fit(cohort[:20], y[:20])
    assert model.depth_ == find_common_depth(cohort[:20]) == min(sum(each) for each in counts[:20])
    assert np.array_equal(model.predict(cohort[20:]), y[20:])
    numbers = DiversityRidge(C=10).fit(cohort[:20], y[:20]).predict(cohort[20:])
    assert np.array_equal(numbers > 0.5, y[20:] == 1)
    model.depth_ = 0
    model.save(tmp_path / "damaged.safetensors")
    with pytest.raises(InputError, match=r"damaged.*depth: expected a whole number of at least 1, found 0"):
        Diversity.load(tmp_path / "damaged.safetensors")


def test_a_cohort_without_abundances_is_refused(tmp_path: Path) -> None:
    cohort = write(tmp_path / "cohort.h5", [[1] * n for n in (10, 12, 14, 16)])
    with pytest.raises(InputError, match=r"cohort\.h5: no clone has a count above 1, so diversity is"):
        Diversity().fit(cohort, cohort.metadata["status"])
    with pytest.raises(InputError, match="no clone has a count above 1"):
        Diversity.check_cohort(cohort[:1])


def test_the_depth_ignores_empty_repertoires(tmp_path: Path) -> None:
    cohort = write(tmp_path / "cohort.h5", [[], [1, 5], [2, 2, 9], [1]])
    assert [find_common_depth(cohort), find_common_depth(cohort[:3]), find_common_depth(cohort[:1])] == [1, 6, 1]
    assert compute_diversity_table(cohort, 6)[1:3, 1] == pytest.approx(
        np.log1p([2, sum(1 - hypergeom.pmf(0, 13, c, 6) for c in (2, 2, 9))])
    )
