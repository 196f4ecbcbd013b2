"""Against explicit instances: naive loops for features and scores, torch's gradients and Adam for training."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score

from deeprc.baselines.atchley import ATCHLEY_FACTORS
from deeprc.baselines.kmer_abundance import load_kmer_abundances
from deeprc.baselines.logistic_mil import LogisticMIL
from deeprc.baselines.logistic_mil_loops import _find_highest
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.kmers import list_kmers
from deeprc.errors import InputError
from deeprc.labels import find_canonical_order
from tests.toys.repertoires import make_sequences, write_repertoires

NAMES = list_kmers(4)
CODES = {name: code for code, name in enumerate(NAMES)}
Bag = list[tuple[str, int]]


def written(path: Path, bags: list[Bag]) -> RepertoireDataset:
    repertoires = [make_sequences([text for text, _ in bag], [count for _, count in bag]) for bag in bags]
    return write_repertoires(path, repertoires, {"n": np.arange(len(bags))})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Twelve repertoires of a few sequences; the last two have no 4-mer, one of them no sequence."""
    rng = np.random.default_rng(1)
    bags: list[Bag] = []
    for number in range(10):
        sequences = ["".join(rng.choice(list("ACDEF"), rng.integers(2, 9))) for _ in range(4 + number % 3)]
        bags.append([("CASS" + sequence, int(rng.geometric(0.3))) for sequence in sequences])
    return written(tmp_path_factory.mktemp("tiny") / "tiny.h5", [*bags, [("CAS", 3), ("CA", 1)], []])


def instances(repertoire: Repertoire, abundance: str, trim: int = 0) -> list[tuple[str, float]]:
    """Every instance of a repertoire: a 4-mer and the logarithm of its relative abundance."""
    rows = [
        (text[trim : len(text) - trim], int(count))
        for text, count in zip(repertoire.sequences.decode(), repertoire.counts, strict=True)
    ]
    pieces = [(text[at : at + 4], count) for text, count in rows for at in range(len(text) - 3)]
    if abundance == "tcrb":
        total = sum(count for _, count in rows)
        return [(kmer, math.log(count / total)) for kmer, count in pieces]
    sums: dict[str, int] = defaultdict(int)
    for kmer, count in pieces:
        sums[kmer] += count
    return [(kmer, math.log(count / sum(sums.values()))) for kmer, count in sums.items()]


def features(kmer: str, abundance: float) -> list[float]:
    return [*(float(value) for letter in kmer for value in ATCHLEY_FACTORS[AMINO_ACIDS.index(letter)]), abundance]


def bag_features(dataset: RepertoireDataset, abundance: str) -> list[NDArray[np.float64]]:
    """(instances, 21) of each repertoire; abundances as exact as they are stored."""
    single = [[features(kmer, float(np.float32(value))) for kmer, value in instances(r, abundance)] for r in dataset]
    return [np.array(rows).reshape(len(rows), 21) for rows in single]


@pytest.mark.parametrize("abundance", ["4mer", "tcrb"])
@pytest.mark.parametrize("trim", [0, 3])
def test_abundances_are_those_of_a_naive_count(tiny: RepertoireDataset, abundance: Any, trim: int) -> None:
    known = load_kmer_abundances(tiny[:2], abundance, trim=trim)
    assert known.highest.shape == known.lowest.shape == (12, 160_000)  # the whole container's
    for row, repertoire in enumerate(tiny):
        of: dict[str, list[float]] = defaultdict(list)
        for kmer, value in instances(repertoire, abundance, trim):
            of[kmer].append(value)
        codes = [CODES[kmer] for kmer in of]
        assert set(np.flatnonzero(known.highest[row] <= 0)) == set(np.flatnonzero(known.lowest[row] <= 0)) == set(codes)
        np.testing.assert_allclose(known.highest[row, codes], [max(values) for values in of.values()], rtol=1e-6)
        np.testing.assert_allclose(known.lowest[row, codes], [min(values) for values in of.values()], rtol=1e-6)
        highest = known.highest[row, codes].astype(np.float64)
        if codes:
            np.testing.assert_allclose(known.moments[row], [highest.mean(), (highest**2).mean()])
            shares = [[sum(k[place] == letter for k in of) / len(of) for letter in AMINO_ACIDS] for place in range(4)]
            np.testing.assert_allclose(known.letters[row], shares)
        for begins, offset in ((2, 0), (3, 400)):
            for kmer in of:
                alike = [value for other, values in of.items() if other[:begins] == kmer[:begins] for value in values]
                at = offset + CODES[kmer] // 20 ** (4 - begins)
                assert known.highest_bounds[row, at] == np.float32(max(alike))
                assert known.lowest_bounds[row, at] == np.float32(min(alike))
    assert np.all(known.highest[10:] == 1)
    assert np.all(known.highest_bounds[10:] == 1)


def test_a_sequence_counts_as_often_as_its_abundance_says(tmp_path: Path) -> None:
    dataset = written(tmp_path / "c.h5", [[("CASSF", 3), ("CASSW", 1), ("AY", 4)]])
    by_kmer, by_sequence = load_kmer_abundances(dataset, "4mer"), load_kmer_abundances(dataset, "tcrb")
    assert np.exp(by_kmer.highest[0, CODES["CASS"]]) == pytest.approx(4 / 8)
    assert np.exp(by_kmer.highest[0, CODES["ASSF"]]) == pytest.approx(3 / 8)
    assert np.exp(by_sequence.highest[0, CODES["CASS"]]) == pytest.approx(3 / 8)  # also of those without a 4-mer
    assert np.exp(by_sequence.lowest[0, CODES["CASS"]]) == pytest.approx(1 / 8)


def fitted(weights: NDArray[np.float64], bias: float, abundance: Any) -> LogisticMIL:
    model = LogisticMIL(abundance=abundance)
    model.classes_, model.calibration_ = np.array(["a", "b"]), np.array([1.0, 0.0])
    model.weights_, model.bias_, model.prior_, model.carrier_ = weights, bias, -0.25, 1
    return model


@pytest.mark.parametrize("abundance", ["4mer", "tcrb"])
@pytest.mark.parametrize("slope", [-2.0, -0.1, 0.0, 0.3, 5.0])
def test_a_score_is_the_highest_of_all_instances(tiny: RepertoireDataset, abundance: Any, slope: float) -> None:
    rng = np.random.default_rng(7)
    for _ in range(10):
        weights, bias = np.append(rng.normal(size=20), slope), float(rng.normal())
        scores = fitted(weights, bias, abundance).decision_function(tiny)
        naive = [max(rows @ weights + bias) if len(rows) else -0.25 for rows in bag_features(tiny, abundance)]
        np.testing.assert_allclose(scores, naive, rtol=1e-12)


def test_a_repertoire_without_a_4mer_scores_as_the_training_classes(tiny: RepertoireDataset) -> None:
    model = LogisticMIL(n_epochs=2, n_restarts=2).fit(tiny, [0, 0, 0, 1] * 3)
    np.testing.assert_allclose(model.decision_function(tiny[[10, 11]]), math.log(3 / 9))
    nothing = LogisticMIL(n_epochs=2, n_restarts=2).fit(tiny[[10, 11]], [0, 1])
    np.testing.assert_array_equal(nothing.decision_function(tiny), 0)


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, -0.75, 0.75])
def test_the_search_is_exact_whatever_it_begins_with(slope: float) -> None:
    """Few distinct values, exact ones, so that there are ties: the first 4-mer wins, and the guess changes nothing."""
    rng = np.random.default_rng(3)
    for share in (0.0005, 0.02, 0.9):
        values = np.where(rng.random(160_000) < share, -rng.integers(1, 4, 160_000), 1).astype(np.float32)
        extreme, neutral = (np.maximum, -np.inf) if slope >= 0 else (np.minimum, np.inf)
        there = np.where(values <= 0, values, neutral)
        parts = np.concatenate([extreme.reduce(there.reshape(n, -1), axis=1) for n in (400, 8000)])
        bounds = np.where(np.isfinite(parts), parts, 1).astype(np.float32)
        tables = rng.integers(-2, 3, (4, 20)) / 2.0
        digits = np.stack([np.arange(160_000) // 20 ** (3 - place) % 20 for place in range(4)])
        scores = tables[np.arange(4)[:, None], digits].sum(axis=0) + slope * values.astype(np.float64)
        scores[values > 0] = -np.inf
        expected = scores.max(), int(np.flatnonzero(scores == scores.max())[0])
        for guess in (-1, int(np.flatnonzero(values <= 0)[-1]), expected[1]):
            score, code = _find_highest(values, bounds, tables, slope, guess)
            assert (score, code) == expected


@pytest.mark.parametrize("abundance", ["4mer", "tcrb"])
def test_training_is_that_of_torch(tiny: RepertoireDataset, abundance: Any) -> None:
    """Autograd through the maximum over explicit instances, torch's Adam; the same starts and order."""
    labels = np.array([0, 1] * 6)
    model = LogisticMIL(abundance=abundance, learning_rate=0.03, batch_size=4, n_epochs=7, n_restarts=3, seed=5)
    model.set_params(carrier="second")
    model.fit(tiny, labels)
    order = [row for row in find_canonical_order(tiny, labels).tolist() if row < 10]  # the others have no 4-mer
    bags = [bag_features(tiny, abundance)[row] for row in order]
    known = load_kmer_abundances(tiny, abundance)
    distinct = [
        np.array([features(NAMES[c], float(r[c])) for c in np.flatnonzero(r <= 0)]) for r in known.highest[order]
    ]
    mean = np.mean([rows.mean(axis=0) for rows in distinct], axis=0)
    deviation = np.sqrt(np.mean([(rows**2).mean(axis=0) for rows in distinct], axis=0) - mean**2)
    standard = [torch.tensor((rows - mean) / deviation) for rows in bags]
    target = torch.tensor(labels[order], dtype=torch.float64)
    rng = np.random.default_rng(5)
    starts = rng.uniform(-math.sqrt(3 / 21), math.sqrt(3 / 21), (3, 21))
    epochs = [rng.permutation(10) for _ in range(7)]
    found = []
    for start in starts:
        weights = torch.tensor(start, requires_grad=True)
        bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
        adam = torch.optim.Adam([weights, bias], lr=0.03, betas=(0.9, 0.999), eps=1e-8)
        cross_entropy = torch.nn.BCEWithLogitsLoss()
        for epoch in epochs:
            for batch in (epoch[:4], epoch[4:8], epoch[8:]):
                adam.zero_grad()
                odds = torch.stack([(standard[row] @ weights + bias).max() for row in batch])
                cross_entropy(odds, target[batch]).backward()
                adam.step()
        odds = torch.stack([(rows @ weights + bias).max() for rows in standard])
        raw = weights.detach().numpy() / deviation
        found.append((float(cross_entropy(odds, target).detach()), raw, float(bias.detach()) - float(raw @ mean)))
    np.testing.assert_allclose(model.training_loss_, [loss for loss, *_ in found], rtol=1e-7)
    loss, raw, intercept = min(found, key=lambda each: each[0])
    np.testing.assert_allclose(model.weights_, raw, rtol=1e-6)
    assert model.bias_ == pytest.approx(intercept, rel=1e-6)
    assert log_loss(labels[:10], expit(model.decision_function(tiny[:10]))) == pytest.approx(loss, rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [("case", "healthy"), ("1", "0")])
def test_a_planted_4mer_is_found(cohort_factory: Callable[..., RepertoireDataset], labels: tuple[str, str]) -> None:
    """Whichever class, in sorted order, carries it."""
    dataset = cohort_factory(60, 100, seed=3)
    carries = (dataset.metadata["status"] == "case").to_numpy()
    y = np.where(carries, *labels)
    model = LogisticMIL(learning_rate=0.03, batch_size=4, n_epochs=60, n_restarts=24).fit(dataset[:40], y[:40])
    assert model.classes_[model.carrier_] == labels[0]
    assert model.training_loss_.shape == (48,)
    probability = model.predict_proba(dataset[40:])[:, model.carrier_]
    assert roc_auc_score(carries[40:], probability) > 0.95
    factors = ATCHLEY_FACTORS[np.indices([20] * 4).reshape(4, -1).T].reshape(-1, 20)  # of every 4-mer
    best = {NAMES[code] for code in np.argsort(factors @ model.weights_[:20])[-800:]}
    assert "WWHW" in best


def test_either_carrier_is_the_better_of_first_and_second(cohort: RepertoireDataset) -> None:
    labels = (cohort.metadata["status"] == "case").to_numpy()
    of = {name: LogisticMIL(n_epochs=3, n_restarts=4, carrier=name) for name in ("first", "second", "either")}
    losses = {name: model.fit(cohort, labels).training_loss_ for name, model in of.items()}
    np.testing.assert_array_equal(losses["either"], np.concatenate([losses["first"], losses["second"]]))
    assert (of["first"].carrier_, of["second"].carrier_) == (0, 1)
    best = min(("first", "second"), key=lambda name: losses[name].min())
    np.testing.assert_array_equal(of["either"].decision_function(cohort), of[best].decision_function(cohort))
    swapped = LogisticMIL(n_epochs=3, n_restarts=4, carrier="first").fit(cohort, ~labels)
    np.testing.assert_array_equal(swapped.decision_function(cohort), -of["second"].decision_function(cohort))


@pytest.mark.slow
def test_scores_after_each_number_of_epochs_are_those_of_a_fit(cohort: RepertoireDataset) -> None:
    labels = cohort.metadata["status"].to_numpy()
    model = LogisticMIL(abundance="tcrb", learning_rate=0.02, batch_size=8, n_restarts=6, seed=2)
    values = [9, 1, 30, 9]
    path = model.decision_path(cohort[:20], labels[:20], cohort[20:], values)
    assert path.shape == (4, 10)
    assert not hasattr(model, "weights_")
    for scores, value in zip(path, values, strict=True):
        one = LogisticMIL(**{**model.get_params(), "n_epochs": value}).fit(cohort[:20], labels[:20])
        np.testing.assert_array_equal(scores, one.decision_function(cohort[20:]))
    assert model.decision_path(cohort[:20], labels[:20], cohort[20:], []).shape == (0, 10)


def test_neither_the_number_of_threads_nor_the_order_matters(cohort: RepertoireDataset) -> None:
    labels = cohort.metadata["status"].to_numpy()
    model = LogisticMIL(n_epochs=5, n_restarts=5)
    first = model.fit(cohort, labels).decision_function(cohort)
    losses = model.training_loss_
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        shuffled = np.random.default_rng(0).permutation(len(cohort))
        model.fit(cohort[shuffled], labels[shuffled])
    finally:
        numba.set_num_threads(threads)
    np.testing.assert_array_equal(model.training_loss_, losses)
    np.testing.assert_array_equal(model.decision_function(cohort), first)


def test_a_feature_that_does_not_vary_does_no_harm(tmp_path: Path) -> None:
    dataset = written(tmp_path / "c.h5", [[("AAAA", 1)], [("AAAA", 2)], [("AAAA", 3)]])
    model = LogisticMIL(n_epochs=300, n_restarts=2, learning_rate=0.03).fit(dataset, [0, 0, 1])
    np.testing.assert_allclose(expit(model.decision_function(dataset)), 1 / 3, atol=1e-3)


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("abundance", "8mer", "abundance: expected one of 4mer, tcrb, found '8mer'"),
        ("carrier", "third", "carrier: expected one of either, first, second, found 'third'"),
        ("learning_rate", 0.0, "learning_rate: expected a number above 0, found 0.0"),
        ("batch_size", 0, "batch_size: expected a whole number of at least 1, found 0"),
        ("n_epochs", 1.5, "n_epochs: expected a whole number of at least 1, found 1.5"),
        ("n_restarts", 0, "n_restarts: expected a whole number of at least 1, found 0"),
        ("seed", -1, "seed: expected a whole number of at least 0, found -1"),
        ("trim", -1, "trim: expected a whole number of at least 0, found -1"),
    ],
)
def test_parameters_out_of_range_are_refused(tiny: RepertoireDataset, parameter: str, value: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        LogisticMIL(**{parameter: value}).fit(tiny, [0, 1] * 6)
    assert str(raised.value) == message


def test_no_number_of_epochs_may_be_0(tiny: RepertoireDataset) -> None:
    with pytest.raises(InputError, match="n_epochs: expected a whole number of at least 1, found 0"):
        LogisticMIL().decision_path(tiny, [0, 1] * 6, tiny, [0, 3])
