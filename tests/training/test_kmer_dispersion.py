"""k-mers that vary between repertoires: beyond counting, beyond their parts, and each in its own sequences."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from deeprc.branches.frequency_precision import FrequencyPrecision
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.kmer_correlations import correlate, weigh_by_size
from deeprc.training.kmer_dispersion import Dispersion, OverdispersedKmers
from deeprc.training.kmer_sets import enumerate_spacings
from tests.conftest import random_sequences, write_cohort

SPACINGS = [spacing for k in (2, 3, 4) for spacing in enumerate_spacings(k, 4)]


def find_overdispersed(cohort: RepertoireDataset, donors: NDArray[np.int64] | None = None) -> OverdispersedKmers:
    sizes = cohort.n_sequences
    donors = np.arange(len(cohort)) if donors is None else donors
    weights = weigh_by_size(sizes, sizes, donors)
    dispersion = Dispersion(SPACINGS, weights, sizes, donors)
    for statistics in correlate(cohort, SPACINGS, np.zeros((len(cohort), 1)), weights):
        dispersion.add_moments(statistics.spacing_index, statistics.mean, statistics.variance)
    return dispersion.find_overdispersed(cohort)


def names(kmers: OverdispersedKmers) -> list[str]:
    letters = [kmers.kmers.get_letters(i) for i in range(len(kmers))]
    return ["".join("." if a < 0 else "ACDEFGHIKLMNPQRSTVWY"[a] for a in each) for each in letters]


def test_precision_excess_and_z_scores_by_hand() -> None:
    precision = FrequencyPrecision.from_repertoires(np.array([1.0, 1.0, 2.0]), np.array([100, 100, 400]), np.arange(3))
    assert precision == pytest.approx((160.0, 16 / 6))  # 4 / (0.01 + 0.01 + 0.005), and 4^2 / (1 + 1 + 4)
    of_two = FrequencyPrecision.from_repertoires(
        np.array([1.0, 1.0, 2.0]), np.array([100, 100, 400]), np.array([0, 0, 1])
    )
    assert of_two == pytest.approx((160.0, 2.0))  # 4^2 / (2^2 + 2^2)
    precision = FrequencyPrecision(100.0, 50.0)
    mean, variance = np.array([0.04, 0.04, 0.0]), np.array([0.0004, 0.002, 0.0])  # counts: 4, with variances 4 and 20
    np.testing.assert_allclose(precision.compute_relative_excess(mean, variance), [0, 1, 0])  # (20 - 4) / 4^2
    np.testing.assert_allclose(precision.compute_z_scores(mean, variance, np.zeros(3)), [0, 4 / np.sqrt(2.25 / 50), 0])
    np.testing.assert_allclose(precision.compute_z_scores(mean, variance, np.ones(3))[1], 0)


def test_z_scores_of_poisson_counts_have_mean_0_and_the_expected_spread() -> None:
    rng = np.random.default_rng(0)
    sizes = np.full(200, 1000)
    for mean in (0.3, 3.0, 30.0):
        frequencies = rng.poisson(mean, (200, 2000)) / 1000
        precision = FrequencyPrecision.from_repertoires(np.ones(200), sizes, np.arange(200))
        z_scores = precision.compute_z_scores(frequencies.mean(axis=0), frequencies.var(axis=0), np.zeros(2000))
        assert z_scores.mean() == pytest.approx(0, abs=0.2)
        assert z_scores.std() == pytest.approx((1 + 1 / (2 * mean)) ** -0.5, abs=0.1)  # its mean is not known


@pytest.mark.slow
def test_a_motif_of_some_repertoires_is_found_without_its_pieces_and_variants(tmp_path: Path) -> None:
    """Every tenth repertoire has WHWM in 10 of 300 sequences, and every tenth other one C.FC; nobody has a label."""
    rng = np.random.default_rng(0)
    repertoires = [random_sequences(rng, 300) for _ in range(80)]
    for b, sequences in enumerate(repertoires):
        if b % 10 in (0, 5):
            for at in range(10):
                residue = "ACDEFGHIKL"[at]
                sequences[at] = sequences[at][:2] + ("WHWM" if b % 10 else f"C{residue}FC") + sequences[at][2:]
    kmers = find_overdispersed(write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"x": range(80)})))
    assert sorted(names(kmers)) == ["C.FC", "WHWM"]
    carriers = {name: np.flatnonzero(kmers.frequencies[:, i] > 0.02) for i, name in enumerate(names(kmers))}
    assert carriers["WHWM"].tolist() == list(range(5, 80, 10))
    assert carriers["C.FC"].tolist() == list(range(0, 80, 10))
    assert np.bincount(kmers.occurrences.kmer).min() >= 80


@pytest.mark.slow
@pytest.mark.parametrize(("n_carriers", "expected"), [(3, []), (6, ["WHWM"])])
def test_a_motif_of_six_carriers_is_overdispersed_and_one_of_three_is_not(
    tmp_path: Path, n_carriers: int, expected: list[str]
) -> None:
    rng = np.random.default_rng(3)
    repertoires = [random_sequences(rng, 300) for _ in range(80)]
    for sequences in repertoires[:n_carriers]:
        sequences[:12] = [f"{each}WHWM" for each in sequences[:12]]
    cohort = write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"x": range(80)}))
    assert names(find_overdispersed(cohort)) == expected


@pytest.mark.slow
def test_no_kmer_of_random_sequences_is_overdispersed(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    repertoires = [random_sequences(rng, 300) for _ in range(80)]
    assert len(find_overdispersed(write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"x": range(80)})))) == 0


@pytest.mark.slow
def test_kmers_that_vary_because_a_part_of_them_does_are_not_listed(tmp_path: Path) -> None:
    """The share of sequences with EAFF varies from person to person; so does that of any residue before EAF."""
    rng = np.random.default_rng(2)
    repertoires = []
    for _ in range(80):
        share = rng.uniform(0.05, 0.4)
        repertoires.append(
            [f"{each}{'EAFF' if rng.random() < share else 'TQYF'}" for each in random_sequences(rng, 300)]
        )
    found = names(find_overdispersed(write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"x": range(80)}))))
    assert found == []
