"""Weights of the residues at the gaps of motifs, and what a network makes of them at its start."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from deeprc.arrays import Floats
from deeprc.config import Config, NetworkConfig
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.batch import Collator
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training.building import build_network
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.gap_weights import (
    _count_letters,
    _fit_slopes,
    _Gap,
    _ResidueSlopes,
    _shrink_slopes,
    describe_gaps,
    weigh_gaps,
)
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.network_start import start_network
from tests.conftest import motif, random_sequences, write_cohort

TASKS = [Task("status", "status", "binary", ("healthy", "case"))]
FREQUENT, RARE = "ADEG", "MW"
"""In the background, each of the former is at 20% of the gaps, each of the latter at 0.5%; the other 14 share 19%."""


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


def make_labelled(dataset: RepertoireDataset) -> LabelledRepertoires:
    return LabelledRepertoires(dataset, (dataset.metadata["status"] == "case").to_numpy(np.float64)[:, None])


def shrink(slopes: Floats, variances: Floats, frequencies: Floats) -> Floats | None:
    """Return the weights of residues with these slopes, if they differ with a p-value of at most 0.01."""
    return _shrink_slopes(_ResidueSlopes(slopes, variances, frequencies), 0.01)


def test_counts_equal_a_plain_loop(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    repertoires = [random_sequences(rng, n) for n in (300, 0, 500)]
    repertoires[0] += ["SASSS", "SSASA"]  # overlapping occurrences
    dataset = write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"status": ["case"] * 3}))
    motifs = [motif("S..A"), motif("SA"), motif("S.S"), motif("W.Y", output=1)]
    found, n_excluded = _count_letters(dataset, motifs, [_Gap(0, 1), _Gap(0, 2), _Gap(2, 1), _Gap(3, 1)])
    expected, expected_excluded = np.zeros((3, 4, 20), int), np.zeros((3, 4), int)
    for b, sequences in enumerate(repertoires):
        for sequence in sequences:
            if earlier := re.search("S..A", sequence):
                expected_excluded[b, 1] += 1
            if earlier or "SA" in sequence:
                expected_excluded[b, 2] += 1
            for i in range(len(sequence)):
                if re.match("S..A", sequence[i:]):
                    for g in (1, 2):
                        expected[b, g - 1, AMINO_ACIDS.index(sequence[i + g])] += 1
                if re.match("S.S", sequence[i:]) and not (earlier or "SA" in sequence):
                    expected[b, 2, AMINO_ACIDS.index(sequence[i + 1])] += 1
                if re.match("W.Y", sequence[i:]):  # of another output
                    expected[b, 3, AMINO_ACIDS.index(sequence[i + 1])] += 1
    assert found.tolist() == expected.tolist()
    assert n_excluded.tolist() == expected_excluded.tolist()
    assert found.sum(axis=(0, 2)).min() > 10
    assert n_excluded[:, 1:3].sum(axis=0).min() > 10


def test_slopes_and_variances_by_hand() -> None:
    frequencies = np.array([[0.1, 0.3], [0.3, 0.3], [0.2, 0.3], [0.6, 0.3]])
    sizes = np.full(4, 10**6)  # so many that counting adds next to nothing
    values, weights = np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4)
    fitted = _fit_slopes(frequencies, sizes, values, weights, np.arange(4))
    # first column: means 0.2 and 0.4 of the classes, 0.3 of all; second column: no difference
    assert fitted.slopes.tolist() == pytest.approx([0.2 / 0.3, 0.0])
    assert fitted.frequencies.tolist() == pytest.approx([0.3, 0.3])
    # the sum has means 0.5 and 0.7, so both columns should have 5/6 and 7/6 of their mean: 0.25 and 0.35
    deviations = np.array([[-0.15, 0.05], [0.05, 0.05], [-0.15, -0.05], [0.25, -0.05]])
    assert fitted.variances.tolist() == pytest.approx(((deviations / 2 / 0.3) ** 2).sum(axis=0))
    # with a donor's two repertoires the second column has 0.1 / 2 twice
    of_two_donors = _fit_slopes(frequencies, sizes, values, weights, np.array([0, 0, 1, 1]))
    assert of_two_donors.variances[1] == pytest.approx(2 * (0.05 / 0.3) ** 2)


def test_variance_is_at_least_that_of_counting() -> None:
    """Twenty sequences of 2,000 in each repertoire: a share of 1% of 2,000 has the variance 0.01 / 2,000."""
    frequencies = np.full((4, 2), 0.01)
    values = np.array([0.0, 0.0, 1.0, 1.0])
    fitted = _fit_slopes(frequencies, np.full(4, 2000), values, np.ones(4), np.arange(4))
    assert fitted.slopes.tolist() == pytest.approx([0.0, 0.0])
    assert fitted.variances.tolist() == pytest.approx([2 * (0.01 / 2000 / 2) / 0.01**2] * 2)


def test_a_residue_that_never_occurs_has_no_slope() -> None:
    frequencies = np.array([[0.2, 0.0], [0.1, 0.0], [0.2, 0.0], [0.3, 0.0]])
    fitted = _fit_slopes(frequencies, np.full(4, 100), np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4), np.arange(4))
    assert fitted.slopes[0] == pytest.approx(0.1 / 0.2)
    assert np.isnan(fitted.slopes[1])


def test_slopes_are_drawn_towards_their_mean() -> None:
    slopes, variances = np.array([1.0, 3.0, np.nan]), np.array([0.01, 0.04, np.nan])
    equal = np.full(3, 0.1)
    # precision 100 and 25: mean 1.4; Q = 100 * 0.16 + 25 * 2.56 = 80; between = (80 - 1) / (125 - 10625 / 125) = 1.975
    between = 79 / 40
    first, second = 1 / (between + 0.01), 1 / (between + 0.04)
    mean = (first + 3 * second) / (first + second)  # 1.9925, no longer near the more certain one
    low, high = mean + (1 - mean) * between * first, mean + (3 - mean) * between * second
    found = shrink(slopes, variances, equal)
    assert found is not None
    assert found.tolist() == pytest.approx([low / high, 1.0, mean / high])
    assert shrink(slopes, np.array([1.0, 1.0, np.nan]), equal) is None  # Q = 2: they may be equal
    assert shrink(-slopes, variances, equal) is None  # in the other direction
    alone, variance_alone = np.array([1.0, np.nan]), np.array([0.1, np.nan])
    assert shrink(alone, variance_alone, equal[:2]) is None  # nothing to compare with
    opposite = shrink(np.array([-1.0, 4.0]), np.array([0.01, 0.01]), equal[:2])
    assert opposite is not None
    assert opposite.tolist() == [0.0, 1.0]


def test_slopes_on_a_line_in_the_inverse_frequency_stay_on_it() -> None:
    """Each slope is 0.5 + 0.01 / frequency, so nothing is left to draw towards the line."""
    frequencies = np.array([0.2, 0.1, 0.05, 0.01])
    slopes, variances = 0.5 + 0.01 / frequencies, np.array([0.01, 0.02, 0.03, 0.1])
    found = shrink(slopes, variances, frequencies)
    assert found is not None
    assert found.tolist() == pytest.approx([0.55 / 1.5, 0.6 / 1.5, 0.7 / 1.5, 1.0])
    absent = [np.append(values, np.nan) for values in (slopes, variances)]
    with_absent = shrink(*absent, np.append(frequencies, 0.0))
    assert with_absent is not None
    assert with_absent.tolist() == pytest.approx([*found, 1.0])


def test_an_absent_residue_has_the_slope_of_the_rarest_one() -> None:
    frequencies = np.array([0.2, 0.1, 0.05, 0.02, 0.0])
    slopes = np.append(3 - 0.05 / frequencies[:4], np.nan)
    found = shrink(slopes, np.append(np.full(4, 0.01), np.nan), frequencies)
    assert found is not None
    assert found.tolist() == pytest.approx([1.0, 2.5 / 2.75, 2 / 2.75, 0.5 / 2.75, 0.5 / 2.75])


def test_frequencies_that_are_equal_up_to_rounding_have_no_line() -> None:
    frequencies = np.full(5, 0.1)
    frequencies[1] = np.nextafter(0.1, 1)
    slopes, variances = np.array([1.0, 3.0, 1.0, 1.0, 1.0]), np.full(5, 0.01)
    found = shrink(slopes, variances, frequencies)
    assert found is not None
    assert found.tolist() == pytest.approx(shrink(slopes, variances, np.full(5, 0.1)))


@pytest.mark.slow
def test_no_weights_are_given_if_no_slope_is_positive() -> None:
    """The line is above 0 at the rarest residue, but no slope that is drawn towards it is."""
    rng = np.random.default_rng(0)
    n_weighed = 0
    for _ in range(3000):
        frequencies = rng.uniform(0.005, 0.1, 6)
        variances = rng.uniform(0.0001, 0.01, 6) / frequencies
        slopes = rng.normal(-0.5, 1) + rng.normal(0, 0.02) / frequencies + rng.normal(size=6) * 0.5
        found = shrink(slopes, variances, frequencies)
        assert found is None or (found.max() == 1.0 and found.min() >= 0)
        n_weighed += found is not None
    assert n_weighed > 300


def test_slopes_beside_a_line_are_drawn_towards_it() -> None:
    """An independent computation: DerSimonian and Laird's moments by a matrix of residuals, weighted least squares."""
    rng = np.random.default_rng(0)
    frequencies = rng.uniform(0.005, 0.1, 20)
    variances = 0.001 / frequencies
    slopes = 0.1 + 0.02 / frequencies + rng.normal(size=20) * np.sqrt(variances + 0.2)
    x, w = np.column_stack([np.ones(20), 1 / frequencies]), np.diag(1 / variances)
    residual_maker = w - w @ x @ np.linalg.inv(x.T @ w @ x) @ x.T @ w
    between = (slopes @ residual_maker @ slopes - 18) / np.trace(residual_maker)
    assert between > 0.05
    root = np.sqrt(1 / (variances + between))
    line = x @ np.linalg.lstsq(root[:, None] * x, root * slopes, rcond=None)[0]
    expected = line + (slopes - line) * between / (between + variances)
    found = shrink(slopes, variances, frequencies)
    assert found is not None
    np.testing.assert_allclose(found, np.maximum(expected, 0) / expected.max(), rtol=1e-9)


def test_letters_that_are_rare_elsewhere_go_most_with_the_label(tmp_path: Path) -> None:
    labelled = make_labelled(write_gapped(tmp_path / "c.h5", 60, any_letter=True))
    (found,) = weigh_gaps([motif("SF.N")], labelled, TASKS)
    ((weights),) = found.gap_weights
    by_letter = dict(zip(AMINO_ACIDS, weights, strict=True))
    assert max(weights) == 1.0
    frequent, rare = ([by_letter[letter] for letter in some] for some in (FREQUENT, RARE))
    others = [value for letter, value in by_letter.items() if letter not in FREQUENT + RARE]
    assert min(rare) > max(others)
    assert min(others) > max(frequent)
    # in cases 60 of 120 are extra: frequent letters 3 + 12 against 12, others 3 + 0.8 against 0.8
    assert np.mean(frequent) / np.mean(others) == pytest.approx(0.222 / 1.29, rel=0.3)


@pytest.mark.slow
def test_residues_of_a_motif_that_is_equally_enriched_are_equal(tmp_path: Path) -> None:
    """Each cohort has a false difference with a probability of 1%, so more than one of twenty with 1.7%."""
    found = 0
    for seed in range(20):
        labelled = make_labelled(write_gapped(tmp_path / f"{seed}.h5", 30, any_letter=False, seed=seed))
        found += bool(weigh_gaps([motif("SF.N")], labelled, TASKS)[0].gap_weights[0])
    assert found <= 1


def test_a_rare_residue_that_a_small_class_lacks_is_no_evidence() -> None:
    """With a tenth of cases, residues that are rare are often absent from all cases by chance."""
    rng = np.random.default_rng(0)
    values = (np.arange(100) < 10).astype(np.float64)
    expected = np.geomspace(0.02, 20, 20) * (1 + 4 * values[:, None])  # occurrences, five times as many in cases
    false = 0
    for _ in range(200):
        frequencies = rng.poisson(expected) / 1000
        found = _fit_slopes(frequencies, np.full(100, 1000), values, np.ones(100), np.arange(100))
        false += _shrink_slopes(found, 0.01) is not None
    assert false <= 6  # 2 are expected; more than 6 have a probability of 0.4%


def test_sequences_of_an_earlier_motif_do_not_count_again(tmp_path: Path) -> None:
    """SFEN is a signal of its own; beside it SF.N is enriched with all residues alike."""
    rng = np.random.default_rng(5)  # with seed 4, a line in 1 / frequency has p = 0.001 by chance
    equal = np.full(20, 0.05)
    repertoires = []
    for b in range(40):
        sequences = make_sequences(rng, 40, equal) + random_sequences(rng, 100)
        repertoires.append(sequences + (make_sequences(rng, 40, equal) + ["CASFENGG"] * 30 if b % 2 else []))
    status = ["case" if b % 2 else "healthy" for b in range(40)]
    labelled = make_labelled(write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"status": status})))
    alone = weigh_gaps([motif("SF.N")], labelled, TASKS)[0].gap_weights[0]
    assert alone.index(1.0) == AMINO_ACIDS.index("E")
    assert weigh_gaps([motif("SFEN"), motif("SF.N")], labelled, TASKS)[1].gap_weights == ((),)


def test_weights_are_those_of_the_motifs_class_donors_and_direction_alone(tmp_path: Path) -> None:
    """What a motif of the second target's class gets is what a fold with that class alone gives."""
    rng = np.random.default_rng(5)
    background, equal = np.full(20, 0.02), np.full(20, 0.05)
    background[:4] = 0.17
    classes = rng.integers(0, 3, 60)
    repertoires = []
    for b in range(60):
        sequences = make_sequences(rng, 40, background) + random_sequences(rng, 60)
        repertoires.append([] if b == 7 else sequences + (make_sequences(rng, 40, equal) if classes[b] != 1 else []))
    dataset = write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"status": ["case"] * 60}))
    tasks = [TASKS[0], Task("kind", "kind", "multiclass", ("a", "b", "c"))]
    labels = np.stack([rng.integers(0, 2, 60), classes], axis=1).astype(np.float64)
    labels[[3, 8], 1] = np.nan
    donors = np.arange(60) // 2
    of_second_class = motif("SF.N", -1.0, output=2)  # outputs: status, a, b, c
    (found,) = weigh_gaps([of_second_class], LabelledRepertoires(dataset, labels, donors), tasks)
    kept = np.array([b for b in range(60) if b not in (3, 7, 8)])
    alone = LabelledRepertoires(dataset[kept], (classes[kept] != 1).astype(np.float64)[:, None], donors[kept])
    (expected,) = weigh_gaps([motif("SF.N")], alone, TASKS)
    assert found.gap_weights[0]
    np.testing.assert_allclose(found.gap_weights[0], expected.gap_weights[0])


def test_the_best_residues_are_named() -> None:
    values = dict.fromkeys(AMINO_ACIDS, 0.1) | {"W": 1.0, "A": 0.5, "M": 0.6}
    weights = tuple(values[letter] for letter in AMINO_ACIDS)
    weighed = replace(motif("S.F.N"), gap_weights=((), weights))
    assert describe_gaps(weighed) == "4: W M A"
    assert describe_gaps(motif("SF.N")) == ""


def test_motifs_without_gaps_stay_as_they_are(tmp_path: Path) -> None:
    labelled = make_labelled(write_gapped(tmp_path / "c.h5", 24, any_letter=True))
    assert weigh_gaps([], labelled, TASKS) == []
    assert weigh_gaps([motif("SFEN")], labelled, TASKS) == [motif("SFEN")]
    both = weigh_gaps([motif("SFEN"), motif("SF.N")], labelled, TASKS)
    assert both[0].gap_weights == ()
    assert len(both[1].gap_weights) == 1
    assert both[1] == EnrichedMotif.from_json(json.loads(json.dumps(asdict(both[1]))))


def start_with_weights(folder: Path, n_kernels: int, motifs: list[EnrichedMotif]) -> tuple[DeepRC, Collator]:
    """Return a started network, and 2,000 sequences without a match, alone and beside one of SFMN, SFAN, SFWN, SFCN."""
    rest = [s for s in random_sequences(np.random.default_rng(0), 2000, low=8) if "S" not in s]
    repertoires = [rest, *([*rest, f"ACSF{letter}NAC"] for letter in "MAWC")]
    cohort = write_cohort(folder / "c.h5", repertoires, pd.DataFrame({"status": ["case"] * 5}))
    shape = NetworkConfig(n_kernels=n_kernels, kernel_size=4)
    network = build_network(Config(shape), TASKS, seed=0, device=torch.device("cpu"))
    collator = Collator(cohort, "none")
    start_network(Inference(network, collator), motifs, np.array([[0.0], [1.0], [0.0], [1.0], [0.0]]), TASKS)
    return network, collator


def weigh(letters: str, weights: dict[str, float]) -> EnrichedMotif:
    """Return a motif with one gap, at which residues have these weights, and all others 0.5."""
    by_letter = dict.fromkeys(AMINO_ACIDS, 0.5) | weights
    return replace(motif(letters), gap_weights=(tuple(by_letter[letter] for letter in AMINO_ACIDS),))


def test_a_match_counts_in_a_second_feature_by_its_residue(tmp_path: Path) -> None:
    weighed = weigh("SF.N", {"M": 1.0, "A": 0.1, "W": 0.7, "C": 0.3})
    network, collator = start_with_weights(tmp_path, 8, [motif("CYCY"), weighed])
    none, *found = [mean[0] for mean, _ in Inference(network, collator).iterate_pooled_with_logits()]
    by_motif, by_residue = (np.array([float(mean[k] - none[k]) for mean in found]) for k in (1, 2))
    np.testing.assert_allclose(by_motif / by_motif[0], 1.0, rtol=1e-3)
    np.testing.assert_allclose(by_residue / by_residue[0], [1.0, 0.1, 0.7, 0.3], rtol=0.02)
    weights = network.output_network[-1].weight[0]
    assert bool((weights[1:3] != 0).all())
    assert bool((weights[3:] == 0).all())


def test_attention_is_that_of_the_motif_alone(tmp_path: Path) -> None:
    equal, weighed = weigh("SF.N", {}), weigh("SF.N", {"M": 1.0, "A": 0.1})
    plain, others = (tmp_path / name for name in ("plain", "weighed"))
    for folder in (plain, others):
        folder.mkdir()
    logits = [
        network.attend(collator.take(1, slice(None)))[1]
        for network, collator in (
            start_with_weights(plain, 8, [equal]),
            start_with_weights(others, 8, [weighed]),
        )
    ]
    torch.testing.assert_close(logits[1], logits[0])


def test_second_features_take_no_more_kernels_than_there_are(tmp_path: Path) -> None:
    weighed = [weigh(letters, {"M": 1.0}) for letters in ("SF.N", "SF.C", "SF.D")]
    network, _ = start_with_weights(tmp_path, 4, weighed)
    kernels = network.embedding.weight.detach()
    ends = kernels[:, :20, 3].argmax(dim=1)
    assert [AMINO_ACIDS[i] for i in ends.tolist()] == ["N", "C", "D", "N"]
    assert (kernels[:, :20, 2].abs().sum(dim=1) > 0).tolist() == [False, False, False, True]


def test_a_share_of_a_match_is_never_less_than_a_match_without_a_residue(tmp_path: Path) -> None:
    cohort = write_cohort(tmp_path / "c.h5", [["ASFMN", "ASFAN", "ASFMC", "ASFCN"]], pd.DataFrame({"status": ["case"]}))
    shape = NetworkConfig(n_kernels=8, kernel_size=4)
    network = build_network(Config(shape), TASKS, seed=0, device=torch.device("cpu"))
    shares = [1.0] * 20
    shares[AMINO_ACIDS.index("A")], shares[AMINO_ACIDS.index("C")] = 0.4, 0.0
    with torch.no_grad():
        network.embedding.start_from_motifs([motif("SF.N").letters], 1.0, shares=[{2: shares}])
        batch = Collator(cohort, "none").take(0, slice(None))
        best = network.embedding(batch.sequences._replace(residue_scale=torch.ones(4)))[:, 0]
    lacking = float(functional.selu(torch.tensor(-6.0)))
    none = float(functional.selu(torch.tensor(-torch.inf)))
    assert best.tolist() == pytest.approx([0.0, (1 - 0.4) * none, lacking, lacking], abs=1e-5)


def test_shares_at_two_gaps_are_multiplied(tmp_path: Path) -> None:
    cohort = write_cohort(tmp_path / "c.h5", [["SMMN", "SAMN", "SMAN", "SAAN"]], pd.DataFrame({"status": ["case"]}))
    network = build_network(
        Config(NetworkConfig(n_kernels=8, kernel_size=4)), TASKS, seed=0, device=torch.device("cpu")
    )
    first, second = [1.0] * 20, [1.0] * 20
    first[AMINO_ACIDS.index("A")], second[AMINO_ACIDS.index("A")] = 0.5, 0.3
    with torch.no_grad():
        network.embedding.start_from_motifs([motif("S..N").letters], 1.0, shares=[{1: first, 2: second}])
        batch = Collator(cohort, "none").take(0, slice(None))
        found = network.embedding(batch.sequences._replace(residue_scale=torch.ones(4)))[:, 0]
    none = float(functional.selu(torch.tensor(-torch.inf)))
    by_text = dict(zip(cohort[0].sequences.decode(), (1 - found / none).tolist(), strict=True))
    assert by_text == pytest.approx({"SMMN": 1.0, "SAMN": 0.5, "SMAN": 0.3, "SAAN": 0.15}, abs=1e-5)
