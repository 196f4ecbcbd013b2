"""The likelihood ratio of a recipe: against a full enumeration, and against the frequencies of simulated classes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from deeprc.baselines.known_motif import KnownMotif
from deeprc.baselines.known_recipe import KnownRecipe, score_recipe
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import (
    Background,
    Batch,
    CloneSignal,
    Cohort,
    DiffuseSignal,
    GeneShift,
    GermlineBackground,
    IndependentBackground,
    Motif,
    MotifSignal,
    Signal,
    SimulatedDataset,
    Sizes,
    likelihood,
    list_imgt_positions,
    load_recipe,
    write_container,
)
from deeprc.datasets.simulation.likelihood import RecipeLikelihood, _compute_start_probabilities
from deeprc.datasets.simulation.motif import GAP, WILDCARD
from deeprc.datasets.simulation.recipe import cohort_to_mapping
from deeprc.errors import InputError

SHARES = {"A": 1 / 2, "S": 1 / 4, "N": 1 / 4}
THREE = IndependentBackground(5, 0, {letter: round(share * 65536) for letter, share in SHARES.items()})
SHORT = IndependentBackground(12, 1.5)


def probabilities_of_witnesses(motif: Motif, starts: dict[int, float], length: int) -> dict[str, float]:
    """Return how often each sequence comes out when a motif is implanted at these starts, by trying everything."""
    found: dict[str, float] = {}
    for letters in product(SHARES, repeat=length):
        of_background = float(np.prod([SHARES[letter] for letter in letters]))
        for variant in motif.variants:
            for start, share in starts.items():
                p = of_background * variant.probability * share
                for text, chance in outcomes(motif, variant.codes, variant.positions, letters[start:]):
                    whole = "".join(letters[:start]) + text
                    found[whole] = found.get(whole, 0) + p * chance
    return found


def outcomes(
    motif: Motif, codes: tuple[int, ...], positions: tuple[int, ...], letters: tuple[str, ...]
) -> list[tuple[str, float]]:
    rates = [motif.alteration_rate * each for each in motif.substitutions]
    choices = [(None, 1 - sum(rates)), *enumerate(rates)]
    found = []
    for altered, chance in choices:
        options: list[list[tuple[str, float]]] = []
        for i, letter in enumerate(letters):
            code = codes[i] if i < len(codes) else GAP
            if code == GAP:
                options.append([(letter, 1.0)])
            elif code == WILDCARD:
                options.append([(each, 1 / 20) for each in AMINO_ACIDS])
            elif positions[i] == altered:
                options.append([(each, 1 / 19) for each in AMINO_ACIDS if each != AMINO_ACIDS[code]])
            else:
                options.append([(letter, motif.noise), (AMINO_ACIDS[code], 1 - motif.noise)])
        for combination in product(*options):
            p = chance * float(np.prod([share for _, share in combination]))
            found.append(("".join(text for text, _ in combination), p))
    return found


@pytest.mark.parametrize(
    ("motif", "position"),
    [
        (Motif("SN"), "anywhere"),
        (Motif("SN(d)A", deletion_probability=0.3), "anywhere"),
        (Motif("S-N", gap_lengths=(0, 1)), "centre"),
        (Motif("SZ"), "anywhere"),
        (Motif("SNA", substitutions=(0.2, 0.0, 0.3), alteration_rate=0.5), "centre"),
        (Motif("SN", noise=0.25), "anywhere"),
        pytest.param(Motif("SNA", substitutions=(0.2, 0.1, 0.3), noise=0.1), "centre", marks=pytest.mark.long),
    ],
)
def test_a_sequence_has_the_ratio_of_a_full_enumeration(motif: Motif, position: str) -> None:
    rate, length = 0.2, 5
    signal = MotifSignal((motif,), rate, position=position)  # type: ignore[arg-type]
    likelihood = RecipeLikelihood(Cohort(2, Sizes(1), THREE, (signal,)))
    expected: dict[str, float] = {}
    for variant in motif.variants:  # each size has its own starts
        room = length - len(variant.codes) + 1
        starts = dict.fromkeys(range(room), 1 / room) if position == "anywhere" else {(room - 1) // 2: 1.0}
        only = {
            text: p * variant.probability
            for text, p in probabilities_of_witnesses(_Fixed(motif, variant), starts, length).items()  # type: ignore[arg-type]
        }
        for text, p in only.items():
            expected[text] = expected.get(text, 0) + p
    assert sum(expected.values()) == pytest.approx(1)
    possible = {text: p_witness for text, p_witness in expected.items() if p_witness > 0}
    p_background = np.array([np.prod([SHARES.get(letter, 1e-12) for letter in text]) for text in possible])
    ratios = (1 - rate) + rate * np.array([*possible.values()]) / p_background
    sequences = Sequences.encode([*possible])
    excess = likelihood._motifs.compute_excess(sequences)[:, 0]  # type: ignore[union-attr]
    np.testing.assert_allclose(np.log1p(rate * excess), np.log(ratios), rtol=1e-9, atol=1e-12)
    assert likelihood.compute_log_ratio(sequences) == pytest.approx(np.log(ratios).sum(), rel=1e-9)
    for number in (0, len(ratios) // 2, len(ratios) - 1):
        sequence = sequences.slice(number, number + 1)
        assert likelihood.compute_log_ratio(sequence) == pytest.approx(np.log(ratios[number]))


class _Fixed:
    """A motif of one variant."""

    def __init__(self, motif: Motif, variant: object) -> None:
        self.variants = (variant._replace(probability=1.0),)  # type: ignore[attr-defined]
        self.alteration_rate, self.substitutions, self.noise = motif.alteration_rate, motif.substitutions, motif.noise


def test_a_repertoire_has_the_sum_over_its_sequences() -> None:
    likelihood = RecipeLikelihood(Cohort(2, Sizes(1), THREE, (MotifSignal((Motif("SN"),), 0.2),)))
    texts = ["AASNA", "AAAAA", "SNSNS"]
    each = [likelihood.compute_log_ratio(Sequences.encode([text])) for text in texts]
    assert likelihood.compute_log_ratio(Sequences.encode(texts)) == pytest.approx(sum(each))
    assert each[1] == pytest.approx(np.log(0.8))
    assert each[0] == pytest.approx(np.log(0.8 + 0.2 / 4 / SHARES["S"] / SHARES["N"]))  # at one of four places


def test_ratios_of_rare_signals_are_means_over_the_combinations_of_carried_signals() -> None:
    some = MotifSignal((Motif("SN"),), 0.2, prevalence=0.5, name="one")
    others = MotifSignal((Motif("NN"),), 0.2, prevalence=0.25, name="two")
    text = Sequences.encode(["AASNN"])
    one, two = 0.8 + 0.2 / 4 * 16, 0.8 + 0.2 / 4 * 16
    both = 1 + 0.2 * (4 - 1) + 0.2 * (4 - 1)
    apart = RecipeLikelihood(Cohort(2, Sizes(1), THREE, (some, others)))
    expected = 0.5 * 0.75 * one + 0.5 * 0.25 * two + 0.5 * 0.25 * both + 0.5 * 0.75
    assert apart.compute_log_ratio(text) == pytest.approx(np.log(expected))
    exclusive = RecipeLikelihood(Cohort(2, Sizes(1), THREE, (some, others), exclusive=True))
    assert exclusive.compute_log_ratio(text) == pytest.approx(np.log(0.5 * one + 0.25 * two + 0.25))


_IMGT = {"107": 0.3, "109": 0.3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("background", "signals", "options"),
    [
        (SHORT, (MotifSignal((Motif("SF-EN"), Motif("LZ(d)W", weight=3.0)), 0.01),), {}),
        (SHORT, (MotifSignal((Motif("LDR"),), 0.01, position="imgt", imgt_positions=_IMGT),), {}),
        (SHORT, (MotifSignal((Motif("SFE", substitutions=(0.3, 0.3, 0.2), noise=0.1),), 0.02),), {}),
        (
            SHORT,
            (
                MotifSignal((Motif("LDR"),), 0.02, prevalence=0.5, name="some"),
                MotifSignal((Motif("WWH"),), 0.004, status="negative", name="others"),
                MotifSignal((Motif("MKM"),), 0.02, prevalence=0.4, name="third"),
            ),
            {},
        ),
        pytest.param(
            SHORT,
            (
                MotifSignal((Motif("LDR"),), 0.02, prevalence=0.5, name="motif"),
                CloneSignal(60, 4.0, 1.0, prevalence=0.4, name="clones"),
            ),
            {"exclusive": True},
            marks=pytest.mark.long,
        ),
        pytest.param(SHORT, (CloneSignal(80, 6.0, 3.0, burden_sd=0.8),), {}, marks=pytest.mark.long),
        pytest.param(SHORT, (CloneSignal(80, 6.0, 3.0, test_burden=3.0),), {"test_share": 0.5}, marks=pytest.mark.long),
        pytest.param(GermlineBackground(), (DiffuseSignal(0.2),), {}, marks=pytest.mark.long),
        (SHORT, (DiffuseSignal(0.2, k=2),), {}),
        (SHORT, (MotifSignal((Motif("LDR"),), 0.008),), {"label_noise": 0.1}),
    ],
)
@pytest.mark.parametrize("n", [900, pytest.param(1200, marks=pytest.mark.long)])
def test_ratios_are_calibrated(
    background: Background,
    signals: tuple[Signal, ...],
    options: dict[str, object],
    n: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Among repertoires with the log-ratio t, the share of positive ones is 1 / (1 + exp(-t))."""
    monkeypatch.setattr("deeprc.datasets.simulation.likelihood._N_DRAWN", 1 << 16)  # quicker
    n = 600 if n == 900 and options.get("exclusive") else n  # it takes longest
    cohort = Cohort(n, Sizes(150), background, signals, seed=3, **options)  # type: ignore[arg-type]
    likelihood = RecipeLikelihood(cohort)
    ratios = np.array(
        [
            likelihood.compute_log_ratio(cohort.draw(i)[0], is_test=cohort.is_of_test_part(i))
            for i in range(cohort.n_repertoires)
        ]
    )
    positive = np.array([cohort.is_positive(i) for i in range(cohort.n_repertoires)])
    (intercept, slope), errors = logistic_fit(ratios, positive)
    assert 0.6 < roc_auc_score(positive, ratios) < 0.99  # neither clear nor without information
    assert abs(slope - 1) < 3 * errors[1]
    assert abs(intercept) < 3 * errors[0]
    assert errors[1] < 0.15


def logistic_fit(x: NDArray[np.float64], y: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return intercept and slope, (2,), and their standard errors, (2,)."""
    design = np.stack([np.ones_like(x), x], axis=1)
    found = minimize(lambda b: -np.sum(y * (design @ b) - np.logaddexp(0, design @ b)), [0, 1])
    p = expit(design @ found.x)
    information = design.T @ (design * (p * (1 - p))[:, None])
    return found.x, np.sqrt(np.diag(np.linalg.inv(information)))


@pytest.mark.slow
def test_the_ratio_is_better_than_the_known_motif_if_wildcards_differ_from_the_background() -> None:
    signals = (MotifSignal((Motif("SZZN"),), 0.004),)
    dataset = SimulatedDataset(Cohort(160, Sizes(3000), IndependentBackground(), signals))
    status = dataset.metadata["status"].to_numpy()
    positive = status == "positive"
    known = KnownMotif().fit(dataset, status).decision_function(dataset)
    ceiling = KnownRecipe().fit(dataset, status).decision_function(dataset)
    assert roc_auc_score(positive, ceiling) > roc_auc_score(positive, known) + 0.1


def test_a_container_gives_the_same_as_the_cohort_and_a_saved_model_too(tmp_path: Path) -> None:
    cohort = Cohort(20, Sizes(120), SHORT, (MotifSignal((Motif("SFE"),), 0.02),), seed=4)
    write_container(cohort, tmp_path / "c.h5", recipe=cohort_to_mapping(cohort))
    on_disk, virtual = open_dataset(tmp_path / "c.h5"), SimulatedDataset(cohort)
    model = KnownRecipe().fit(on_disk, on_disk.metadata["status"])
    np.testing.assert_array_equal(model.decision_function(on_disk), model.decision_function(virtual))
    model.save(tmp_path / "model.safetensors")
    loaded = KnownRecipe.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(virtual), model.predict_proba(on_disk))


@pytest.mark.slow
def test_a_dataset_with_other_parts_has_other_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repertoires of the test part have another number of clones, so their ratios are others."""
    monkeypatch.setattr(likelihood, "_N_DRAWN", 1 << 12)  # frequencies of the background need not be exact here
    cohort = load_recipe("clones-40-5", ["n_repertoires=16", "sizes.mean=60", "sizes.sd=0"])[0]
    dataset, recipe = SimulatedDataset(cohort), cohort_to_mapping(cohort)
    train, test = (
        score_recipe(dataset.with_metadata(dataset.metadata.assign(part=part)), recipe) for part in ("train", "test")
    )
    assert not np.array_equal(train, test)
    is_test = (dataset.metadata["part"] == "test").to_numpy()
    assert is_test.any()
    assert not is_test.all()
    np.testing.assert_array_equal(score_recipe(dataset, recipe), np.where(is_test, test, train))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"signals": ()}, "no signal"),
        ({"signals": (CloneSignal(9, 3.0, variant_rate=0.5),)}, "'clones': its clones have variants"),
        ({"signals": (DiffuseSignal(0.2, 0.3),)}, "'diffuse': each repertoire has preferences of its own"),
        (
            {"signals": (DiffuseSignal(0.2), MotifSignal((Motif("SFE"),), 0.1))},
            "'diffuse': motifs are implanted into sequences that were chosen by preference",
        ),
        (
            {"signals": (MotifSignal((Motif("SFE"),), 0.1),), "gene_shift": GeneShift(("TRBV19",), 0.1)},
            "more than signals: a gene shift or a batch",
        ),
        (
            {"signals": (MotifSignal((Motif("SFE"),), 0.1),), "batch": Batch(association=0.5, size_factor=2.0)},
            "more than signals: a gene shift or a batch",
        ),
    ],
)
def test_recipes_whose_ratio_cannot_be_computed_are_refused(options: dict[str, object], reason: str) -> None:
    cohort = Cohort(4, Sizes(50), GermlineBackground(), **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=reason):
        RecipeLikelihood(cohort)


def test_a_new_kind_of_signal_is_refused_until_its_likelihood_is_written() -> None:
    @dataclass(frozen=True)
    class NewSignal:
        status: str = "positive"
        prevalence: float = 1.0
        name: str = "new"

    cohort = Cohort(4, Sizes(50), signals=(MotifSignal((Motif("SFE"),), 0.1), NewSignal()))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="signal 'new': no likelihood is known for a NewSignal"):
        RecipeLikelihood(cohort)


def test_a_container_whose_ratio_cannot_be_computed_is_named(tmp_path: Path) -> None:
    cohort = Cohort(4, Sizes(50), SHORT)
    write_container(cohort, tmp_path / "c.h5", recipe=cohort_to_mapping(cohort))
    with pytest.raises(InputError, match=r"c\.h5: its recipe has no signal"):
        KnownRecipe.check_cohort(open_dataset(tmp_path / "c.h5"))


def test_probabilities_of_imgt_positions_are_those_of_the_simulator() -> None:
    """A motif is at its listed positions as often as the recipe says, and the rest of the time at any other."""
    signal = MotifSignal((Motif("WWW"),), 1.0, position="imgt", imgt_positions=_IMGT)
    cohort = Cohort(2, Sizes(4000), IndependentBackground(11, 0), (signal,))
    index = 0 if cohort.is_positive(0) else 1
    _, implants = cohort.draw(index)
    names = list_imgt_positions(11)
    shares = np.bincount(implants.start, minlength=11) / 4000
    expected = _compute_start_probabilities(signal, 3)[11, :11]
    assert expected[names.index("107")] == pytest.approx(0.3)
    assert expected.sum() == pytest.approx(1)
    np.testing.assert_allclose(shares, expected, atol=0.03)
