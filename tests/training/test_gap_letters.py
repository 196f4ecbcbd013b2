"""Which letters at the gaps of a motif go with the label, and what a network makes of it at its start."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from deeprc.config import Config, NetworkConfig
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.batch import Collator
from deeprc.nn.encoders import _invert_selu
from deeprc.nn.inference import Inference
from deeprc.tasks import Task
from deeprc.training.building import build_network
from deeprc.training.fold import Fold
from deeprc.training.gap_letters import _count_letters, _fit_slopes, _shrink, describe_advantages, find_advantages
from deeprc.training.motif_start import _find_shares, start_network
from tests.conftest import motif, random_sequences, write_cohort

TASKS = [Task("status", "status", "binary", ("healthy", "case"))]
FREQUENT, RARE = "ADEG", "MW"
"""Letters of which 20% each, and 0.5% each, of the residues at the gap are; the other 14 share the rest."""


def make_sequences(rng: np.random.Generator, n: int, p: NDArray[np.float64]) -> list[str]:
    """Return sequences with SF.N, whose letter at the gap has these probabilities, (20,)."""
    return [f"CA{'SF' + AMINO_ACIDS[i] + 'N'}GG" for i in rng.choice(20, n, p=p)]


def write_gapped(path: Path, n_repertoires: int, *, any_letter: bool, seed: int = 0) -> RepertoireDataset:
    """Write a cohort in which cases have twice as much SF.N.

    The background has few of some letters at the gap. Witnesses have any letter (`any_letter`), or those of the
    background.
    """
    rng = np.random.default_rng(seed)
    background = np.full(20, (1 - 0.8 - 0.01) / 14)
    background[[AMINO_ACIDS.index(letter) for letter in FREQUENT]] = 0.2
    background[[AMINO_ACIDS.index(letter) for letter in RARE]] = 0.005
    repertoires = []
    for b in range(n_repertoires):
        sequences = make_sequences(rng, 60, background) + random_sequences(rng, 140)
        extra = np.full(20, 0.05) if any_letter else background
        repertoires.append(sequences + (make_sequences(rng, 60, extra) if b % 2 else random_sequences(rng, 60)))
    status = ["case" if b % 2 else "healthy" for b in range(n_repertoires)]
    return write_cohort(path, repertoires, pd.DataFrame({"status": status}))


def make_fold(dataset: RepertoireDataset) -> Fold:
    return Fold(dataset, (dataset.metadata["status"] == "case").to_numpy(np.float64)[:, None])


def test_counts_equal_a_plain_loop(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    repertoires = [random_sequences(rng, n) for n in (300, 1, 500)]
    repertoires[0] += ["SASSS", "SSASA"]  # overlapping occurrences
    dataset = write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"status": ["case"] * 3}))
    gaps = [(0, 1), (0, 2), (2, 1)]
    found = _count_letters(dataset, [motif(text).letters for text in ("S..A", "SA", "W.Y")], gaps)
    expected = np.zeros((3, 3, 20), int)
    for b, sequences in enumerate(repertoires):
        for sequence in sequences:
            for i in range(len(sequence)):
                if re.match("S..A", sequence[i:]):
                    for g in (1, 2):
                        expected[b, g - 1, AMINO_ACIDS.index(sequence[i + g])] += 1
                if re.match("W.Y", sequence[i:]):
                    expected[b, 2, AMINO_ACIDS.index(sequence[i + 1])] += 1
    assert found.tolist() == expected.tolist()
    assert found.sum(axis=(0, 2)).min() > 10


def test_slopes_and_variances_by_hand() -> None:
    frequencies = np.array([[0.1], [0.3], [0.2], [0.6]])
    sizes = np.full(4, 10**6)  # so many that counting adds next to nothing
    values, weights = np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4)
    slopes, variances = _fit_slopes(frequencies, sizes, values, weights, np.arange(4))
    # means 0.2 and 0.4, so a difference of 0.2; the mean of all is 0.3
    assert slopes[0] == pytest.approx(0.2 / 0.3)
    # each mean has the variance sum of (x - mean)^2 / 2^2
    assert variances[0] == pytest.approx(((2 * 0.1**2) / 4 + (2 * 0.2**2) / 4) / 0.3**2)
    # the deviations of a donor's two repertoires cancel; what counting adds is left: each mean has the variance of a
    # share of 0.3 among 2 million
    together = _fit_slopes(frequencies, sizes, values, weights, np.array([0, 0, 1, 1]))[1]
    assert together[0] == pytest.approx(2 * (0.3 / 2e6) / 0.3**2)


def test_a_letter_that_hardly_occurs_is_uncertain() -> None:
    frequencies = np.array([[0.001, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    values = np.array([0.0, 0.0, 1.0, 1.0])
    slopes, variances = _fit_slopes(frequencies, np.full(4, 1000), values, np.ones(4), np.arange(4))
    assert slopes[0] == pytest.approx(-2.0)
    assert variances[0] == pytest.approx(4.0)  # of one occurrence among four thousand
    assert np.isnan(slopes[1])


def test_slopes_are_drawn_towards_their_mean() -> None:
    slopes, variances = np.array([1.0, 3.0, np.nan]), np.array([0.01, 0.01, np.nan])
    # mean 2; Q = 200; between = (200 - 1) / (200 - 20000 / 200) = 1.99; shrunk 2 -+ 1.99 / 2.00
    low, high = 2 - 1.99 / 2.0, 2 + 1.99 / 2.0
    found = _shrink(slopes, variances, 0.01)
    assert found is not None
    assert found.tolist() == pytest.approx([low / high, 1.0, 2.0 / high])
    assert _shrink(slopes, np.array([1.0, 1.0, np.nan]), 0.01) is None  # Q = 2: they may be equal
    assert _shrink(-slopes, variances, 0.01) is None  # in the other direction
    assert _shrink(np.array([1.0, np.nan]), np.array([0.1, np.nan]), 0.01) is None  # nothing to compare with
    opposite = _shrink(np.array([-1.0, 4.0]), np.array([0.01, 0.01]), 0.01)
    assert opposite is not None
    assert opposite.tolist() == [0.0, 1.0]


def test_letters_that_are_rare_elsewhere_go_most_with_the_label(tmp_path: Path) -> None:
    fold = make_fold(write_gapped(tmp_path / "c.h5", 60, any_letter=True))
    (found,) = find_advantages([motif("SF.N")], fold, TASKS)
    assert list(found) == [2]
    by_letter = dict(zip(AMINO_ACIDS, found[2], strict=True))
    assert max(found[2]) == 1.0
    frequent, rare = ([by_letter[letter] for letter in some] for some in (FREQUENT, RARE))
    others = [value for letter, value in by_letter.items() if letter not in FREQUENT + RARE]
    assert min(rare) > max(others)
    assert min(others) > max(frequent)
    # in cases 60 of 120 are extra: frequent letters 3 + 12 against 12, others 3 + 0.8 against 0.8
    assert np.mean(frequent) / np.mean(others) == pytest.approx(0.222 / 1.29, rel=0.3)


def test_letters_of_a_motif_that_is_equally_enriched_are_equal(tmp_path: Path) -> None:
    """At the level of 1%, more than one of twenty cohorts would be a chance of 1.7%."""
    found = 0
    for seed in range(20):
        fold = make_fold(write_gapped(tmp_path / f"{seed}.h5", 30, any_letter=False, seed=seed))
        found += len(find_advantages([motif("SF.N")], fold, TASKS)[0])
    assert found <= 1


def test_the_best_letters_are_named() -> None:
    values = dict.fromkeys(AMINO_ACIDS, 0.1) | {"W": 1.0, "A": 0.5, "M": 0.6}
    advantages = [{}, {2: tuple(values[letter] for letter in AMINO_ACIDS)}]
    text = describe_advantages([motif("SFEN"), motif("SF.N")], advantages)
    assert text.endswith("strongest, or half as strong: SF.N (position 3: W M A)")
    assert describe_advantages([motif("SFEN")], [{}]) == ""


def test_motifs_without_gaps_and_no_motifs(tmp_path: Path) -> None:
    fold = make_fold(write_gapped(tmp_path / "c.h5", 24, any_letter=True))
    assert find_advantages([], fold, TASKS) == []
    assert find_advantages([motif("SFEN")], fold, TASKS) == [{}]
    both = find_advantages([motif("SFEN"), motif("SF.N")], fold, TASKS)
    assert [list(each) for each in both] == [[], [2]]


@pytest.mark.parametrize("n_layers", [0, 1, 2])
def test_shares_of_a_match_rise_with_the_advantage(n_layers: int) -> None:
    shares = _find_shares([0.0, 0.05, 0.2, 0.6, 1.0], n_layers)
    assert shares[0] == 0
    assert shares[-1] == 1
    assert (np.diff(shares) > 0).all()


@pytest.mark.parametrize("n_key_layers", [1, 2])
def test_a_match_counts_in_the_average_by_its_letter(tmp_path: Path, n_key_layers: int) -> None:
    """The average of 2,000 sequences without a match is that of one witness beside them, in proportion."""
    rest = [s for s in random_sequences(np.random.default_rng(0), 2000, low=8) if "S" not in s]
    letters = "MAWC"
    repertoires = [rest, *([*rest, f"ACSF{letter}NAC"] for letter in letters)]
    cohort = write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"status": ["case"] * 5}))
    advantage = dict.fromkeys(AMINO_ACIDS, 0.5) | {"M": 1.0, "A": 0.1, "W": 0.7, "C": 0.3}
    shape = NetworkConfig(n_kernels=8, kernel_size=4, n_key_layers=n_key_layers)
    network = build_network(Config(shape), TASKS, seed=0, device=torch.device("cpu"))
    collator = Collator(cohort, "none")
    given = [{2: tuple(advantage[letter] for letter in AMINO_ACIDS)}]
    start_network(network, [motif("SF.N")], collator, np.ones((5, 1)), TASKS, advantages=given)
    none, *found = [float(mean[0, 0]) for mean, _ in Inference(network, collator).pooled()]
    effects = np.array(found) - none
    expected = [advantage[letter] for letter in letters]
    np.testing.assert_allclose(effects / effects[0], expected, rtol=0.15, atol=0.01)


def test_a_share_of_a_match_is_more_than_a_match_without_a_residue(tmp_path: Path) -> None:
    cohort = write_cohort(tmp_path / "c.h5", [["ASFMN", "ASFAN", "ASFMC", "ASFCN"]], pd.DataFrame({"status": ["case"]}))
    shape = NetworkConfig(n_kernels=8, kernel_size=4)
    network = build_network(Config(shape), TASKS, seed=0, device=torch.device("cpu"))
    shares = [1.0] * 20
    shares[AMINO_ACIDS.index("A")], shares[AMINO_ACIDS.index("C")] = 0.4, 0.0
    with torch.no_grad():
        full, none = network.embedding.start_from_motifs([motif("SF.N").letters], 1.0, [{2: shares}])
        batch = Collator(cohort, "none").take(0, slice(None))
        best = network.embedding(batch.sequences._replace(residue_scale=torch.ones(4)))[:, 0]
    lacking = float(functional.selu(torch.tensor(-3.0)))
    assert best.tolist() == pytest.approx([full, none + 0.4 * (full - none), lacking, lacking], abs=1e-5)


def test_the_inverse_of_selu() -> None:
    numbers = torch.tensor([-5.0, -1.0, -1e-3, 0.0, 0.5, 4.0], dtype=torch.float64)
    torch.testing.assert_close(_invert_selu(functional.selu(numbers)), numbers)
    assert _invert_selu(functional.selu(torch.tensor([-torch.inf], dtype=torch.float64))).item() == -torch.inf
