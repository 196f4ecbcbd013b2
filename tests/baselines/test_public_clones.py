"""Emerson et al.'s classifier against plain loops; what it learns from, and what not; real counts of their cohort."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from deeprc.baselines.beta_binomial import compute_beta_binomial_log_pmf, fit_beta_binomial
from deeprc.baselines.carrier_counts import CountedUnits, find_associated_clones
from deeprc.baselines.cross_fitted_clone_counts import count_clones_out_of_fold
from deeprc.baselines.inner_folds import assign_inner_folds
from deeprc.baselines.public_clones import PublicClones
from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.distinct import count_distinct_clones
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError

N = 40
Y = np.arange(N) % 2
V, J = ("", "TRBV1", "TRBV2"), ("TRBJ1", "TRBJ2")
Clone = tuple[str, ...]


def write(path: Path, repertoires: list[list[Clone]], *, swap: bool = False, fields: int = 2) -> RepertoireDataset:
    """Write clones of sequence, V and J; `swap` turns the order of the genes' names around."""
    with ContainerWriter(path) as writer:
        for number, clones in enumerate(repertoires):
            residues, offsets = encode_many([each[0] for each in clones])
            calls = []
            for place, names in ((1, V), (2, J)):
                names = names[::-1] if swap else names
                codes = [names.index(each[place]) for each in clones]
                calls.append(Categorical(np.array(codes, np.uint16), names) if place <= fields else None)
            counts = np.ones(len(clones), np.uint32)
            writer.append(f"r{number}", Sequences(residues, offsets, counts, v_call=calls[0], j_call=calls[1]))
        writer.finish(pd.DataFrame({"status": np.arange(len(repertoires)) % 2}), source="a test")
    return open_dataset(path)


def draw(seed: int, n: int = N, n_associated: int = 12) -> list[list[Clone]]:
    """Return repertoires with public clones; of these the first are three times as frequent in positives, the odd."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(99)
    pool = [("".join(fixed.choice(list("ACDY"), 5)), fixed.choice(V), fixed.choice(J)) for _ in range(200)]
    pool = [tuple(map(str, each)) for each in dict.fromkeys(pool)]
    rates = np.full((2, len(pool)), 0.2)
    rates[1, :n_associated] = 0.6
    repertoires = []
    for i in range(n):
        private = [("".join(rng.choice(list("ACDY"), 9)), "TRBV1", "TRBJ1") for _ in range(rng.integers(5, 40))]
        repertoires.append(private + [pool[at] for at in np.flatnonzero(rng.random(len(pool)) < rates[i % 2])])
    return repertoires


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return write(tmp_path_factory.mktemp("public") / "c.h5", draw(0))


@cache
def fisher(positive: int, negative: int, n_positive: int, n_negative: int) -> float:
    table = [[positive, negative], [n_positive - positive, n_negative - negative]]
    return float(stats.fisher_exact(table, alternative="greater").pvalue)


def associated(repertoires: list[set[Clone]], y: np.ndarray, threshold: float) -> dict[Clone, tuple[int, int, float]]:
    """Return the clones that at least two carry and whose p-value is below a threshold, by scipy."""
    carriers: dict[Clone, list[int]] = defaultdict(lambda: [0, 0])
    for clones, label in zip(repertoires, y, strict=True):
        for each in clones:
            carriers[each][label] += 1
    found = {}
    for each, (negative, positive) in carriers.items():
        p = fisher(positive, negative, int(y.sum()), int((1 - y).sum()))
        if negative + positive > 1 and p < threshold:
            found[each] = (positive, negative, p)
    return found


def sets_of(dataset: RepertoireDataset, fields: tuple[str, ...] = ("v_call", "j_call")) -> list[set[Clone]]:
    return [set(each.to_frame()[["junction_aa", *fields]].itertuples(index=False, name=None)) for each in dataset]


def check_clones(model: PublicClones, expected: dict[Clone, tuple[int, int, float]], fields: tuple[str, ...]) -> None:
    frame = model.associated_clones()
    assert list(frame) == ["junction_aa", *fields, "carriers_positive", "carriers_negative", "p_value"]
    assert frame["p_value"].is_monotonic_increasing
    found = {row[: 1 + len(fields)]: row[1 + len(fields) :] for row in frame.itertuples(index=False, name=None)}
    assert len(found) == len(frame)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values)


@pytest.mark.slow
def test_associated_clones_are_those_of_a_loop(public: RepertoireDataset) -> None:
    for threshold in (0.1, 0.01):
        model = PublicClones(p_value=threshold).fit(public, Y)
        expected = associated(sets_of(public), Y, threshold)
        assert len(expected) > 3
        assert model.p_value_ == threshold
        check_clones(model, expected, ("v_call", "j_call"))


@pytest.mark.parametrize("fields", [(), ("v_call",)])
def test_the_genes_that_there_are(public: RepertoireDataset, tmp_path: Path, fields: tuple[str, ...]) -> None:
    dataset = write(tmp_path / "c.h5", draw(0), fields=len(fields))
    model = PublicClones(p_value=0.1).fit(dataset, Y)
    check_clones(model, associated(sets_of(public, fields), Y, 0.1), fields)
    scores = model.decision_function(dataset)
    if not fields:  # as without genes: also if a container has some
        alone = PublicClones(genes=False, p_value=0.1).fit(public, Y)
        pd.testing.assert_frame_equal(alone.associated_clones(), model.associated_clones())
        np.testing.assert_allclose(alone.decision_function(public), scores, rtol=1e-12)
        np.testing.assert_allclose(model.decision_function(public), scores, rtol=1e-12)


def test_the_published_way_by_a_loop(public: RepertoireDataset) -> None:
    """Classes fitted to the counts of all training repertoires; the score is the log posterior odds."""
    model = PublicClones(p_value=0.03, cross_fit=False).fit(public, Y)
    clones, sets = associated(sets_of(public), Y, 0.03), sets_of(public)
    k, n = np.array([len(each & clones.keys()) for each in sets]), np.array([len(each) for each in sets])
    classes = [fit_beta_binomial(k[label == Y], n[label == Y]) for label in (0, 1)]
    np.testing.assert_allclose(model.distributions_, classes, rtol=1e-6)
    expected = stats.betabinom.logpmf(k, n, *classes[1]) - stats.betabinom.logpmf(k, n, *classes[0])
    np.testing.assert_allclose(model.decision_function(public), expected, rtol=1e-4, atol=1e-5)
    assert model.prior_ == 0
    np.testing.assert_allclose(model.predict_proba(public)[:, 1], 1 / (1 + np.exp(-expected)), atol=1e-4)


@pytest.mark.parametrize("cross_fit", [True, False])
@pytest.mark.parametrize("rows", [np.arange(N), np.array([*range(5, 38), 6, 7, 7])])
def test_held_out_counts_are_those_of_a_loop(public: RepertoireDataset, cross_fit: bool, rows: np.ndarray) -> None:
    """Nested: without the fold that is held out to be tested on, and without the repertoire's own."""
    X, y = public[rows], Y[rows]
    folds = assign_inner_folds(X, y == 1, 4)
    thresholds = np.array([0.3, 0.1, 0.02])
    clones = find_shared_clones(X, ["v_call", "j_call"])
    found = count_clones_out_of_fold(clones, X, CountedUnits.of(X, y == 1), folds, thresholds, cross_fit=cross_fit)
    assert found.shape == (3, len(rows), 5)
    sets = sets_of(X)
    chosen: dict[tuple[float, frozenset[int]], set[Clone]] = {}
    for t, threshold in enumerate(thresholds):
        for i in range(len(rows)):
            for held_out in range(5):
                without = frozenset({held_out} - {4}) | ({int(folds[i])} if cross_fit else set())
                if (threshold, without) not in chosen:
                    kept = [row for row in range(len(rows)) if folds[row] not in without]
                    carriers: dict[Clone, set[int]] = defaultdict(set)
                    for row in kept:
                        for each in sets[row]:
                            carriers[each].add(int(rows[row]))
                    each = associated([sets[row] for row in kept], y[kept], threshold)
                    chosen[threshold, without] = {key for key in each if len(carriers[key]) > 1}
                assert found[t, i, held_out] == len(sets[i] & chosen[threshold, without])
    assert found.max() > 4


def donor_tables(
    X: RepertoireDataset, y: np.ndarray, groups: np.ndarray, threshold: float
) -> dict[Clone, tuple[int, int, float]]:
    """Return the associated clones by scipy, if a donor's repertoires of one label are one, with all their clones."""
    units: dict[tuple[int, int], set[Clone]] = defaultdict(set)
    for own, label, donor in zip(sets_of(X), y, groups, strict=True):
        units[int(donor), int(label)] |= own
    return associated(list(units.values()), np.array([label for _, label in units]), threshold)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_repertoires_of_a_donor_are_one_carrier(public: RepertoireDataset, is_mixed: bool) -> None:
    """40 repertoires of 22 donors; donors have one label, or some have both."""
    groups = np.random.default_rng(0).integers(0, 22, N)
    y = Y if is_mixed else groups % 2
    clones = find_shared_clones(public, ["v_call", "j_call"])
    found = find_associated_clones(clones, CountedUnits.of(public, y, groups), 0.2)
    expected = donor_tables(public, y, groups, 0.2)
    chosen = CloneSet(public.take_clones(clones.representative[found.indices], ["v_call", "j_call"])).to_frame()
    table = {tuple(row): i for i, row in enumerate(chosen.to_numpy().tolist())}
    assert len(expected) > 2
    assert table.keys() == expected.keys()
    for key, (positive, negative, p_value) in expected.items():
        row = table[key]
        assert (found.label_sums[row], found.n_carriers[row]) == (positive, positive + negative)
        assert found.p_values[row] == pytest.approx(p_value)
    model = PublicClones(p_value=0.2).fit(public, y, groups=groups)
    assert len(model.p_values_) == len(expected)


@pytest.mark.slow
def test_held_out_counts_know_donors(public: RepertoireDataset) -> None:
    groups = np.random.default_rng(1).integers(0, 24, N)
    y, thresholds = groups % 2, np.array([0.3, 0.1])
    folds = assign_inner_folds(public, y == 1, 4, groups)
    clones = find_shared_clones(public, ["v_call", "j_call"])
    found = count_clones_out_of_fold(clones, public, CountedUnits.of(public, y, groups), folds, thresholds)
    sets = sets_of(public)
    for held_out in range(5):
        for own in range(4):
            kept = np.flatnonzero((folds != held_out) & (folds != own))
            for t, threshold in enumerate(thresholds):
                chosen = donor_tables(public[kept], y[kept], groups[kept], threshold).keys()
                for i in np.flatnonzero(folds == own):
                    assert found[t, i, held_out] == len(sets[i] & chosen)
    assert found.max() > 2


def test_in_sample_counts_are_larger_and_surer(tmp_path: Path) -> None:
    """Labels without meaning: clones tell apart the repertoires that they were chosen on, and no others."""
    dataset = write(tmp_path / "c.h5", draw(5, 60, n_associated=0))
    y = np.arange(60) % 2
    surer = PublicClones(p_value=0.2, cross_fit=False).fit(dataset, y)
    honest = PublicClones(p_value=0.2).fit(dataset, y)
    new, labels = write(tmp_path / "new.h5", draw(6, 60, n_associated=0)), np.arange(60) % 2
    losses = []
    for model in (surer, honest):
        probability = model.predict_proba(new)[np.arange(60), labels]
        losses.append(-np.log(probability).mean())
    assert roc_auc_score(y, surer.decision_function(dataset)) > 0.85
    assert losses[0] > losses[1] + 0.3
    assert losses[1] < 0.9


def test_the_threshold_has_the_least_cross_entropy(public: RepertoireDataset) -> None:
    thresholds = [0.01, 0.3, 0.1, 1e-9]
    model = PublicClones(thresholds=thresholds, n_inner_folds=5).fit(public, Y)
    np.testing.assert_array_equal(model.thresholds_, sorted(thresholds, reverse=True))
    assert model.p_value_ == model.thresholds_[np.argmin(model.cross_entropy_)]
    np.testing.assert_allclose(model.cross_entropy_[-1], np.log(2))  # nothing passes: the prior
    folds = assign_inner_folds(public, Y == 1, 5)
    clones = find_shared_clones(public, ["v_call", "j_call"])
    n = count_distinct_clones(public, ["v_call", "j_call"])
    k = count_clones_out_of_fold(
        clones, public, CountedUnits.of(public, Y == 1), folds, np.array([0.1]), cross_fit=True
    )[0]
    losses = np.zeros(N)
    for fold in range(5):
        out = folds == fold
        classes = [fit_beta_binomial(k[~out & (label == Y), fold], n[~out & (label == Y)]) for label in (0, 1)]
        odds = [compute_beta_binomial_log_pmf(k[out, fold], n[out], *each) for each in classes]
        losses[out] = np.logaddexp(0, (1 - 2 * Y[out]) * (odds[1] - odds[0]))
    assert model.cross_entropy_[1] == pytest.approx(losses.mean(), rel=1e-4)
    assert PublicClones(n_inner_folds=5).fit(public, Y).thresholds_[[0, -1]].tolist() == [0.1, 1e-7]


def test_implanted_clones_separate_new_repertoires_with_other_gene_codes(
    public: RepertoireDataset, tmp_path: Path
) -> None:
    new = write(tmp_path / "new.h5", draw(1), swap=True)  # the genes have other numbers there
    model = PublicClones(n_inner_folds=5).fit(public, Y)
    assert roc_auc_score(Y, model.decision_function(new)) > 0.9
    assert (model.predict(new) == Y).mean() >= 0.8
    same = write(tmp_path / "same.h5", draw(0), swap=True)
    np.testing.assert_array_equal(model.decision_function(same), model.decision_function(public))
    model.save(tmp_path / "m.safetensors")
    again = PublicClones.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.decision_function(new), model.decision_function(new))
    pd.testing.assert_frame_equal(again.associated_clones(), model.associated_clones())
    one_by_one = [again.decision_function(new[[i]])[0] for i in range(6)]
    np.testing.assert_allclose(model.decision_function(new)[:6], one_by_one, rtol=1e-12)


def test_the_order_of_repertoires_is_irrelevant(public: RepertoireDataset, tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(N)
    repertoires = draw(0)
    other = write(tmp_path / "c.h5", [repertoires[i] for i in order])
    first = PublicClones(n_inner_folds=5).fit(public, Y)
    for data in ((public[order], Y[order]), (other, Y[order])):
        model = clone(first).fit(*data)
        pd.testing.assert_frame_equal(model.associated_clones(), first.associated_clones())
        np.testing.assert_array_equal(model.cross_entropy_, first.cross_entropy_)
        np.testing.assert_array_equal(model.distributions_, first.distributions_)


@pytest.mark.parametrize("skewed", [False, True])
def test_repertoires_to_be_tested_make_no_difference(tmp_path: Path, skewed: bool) -> None:
    """Neither their labels, which `fit` does not see, nor their clones: not even one shared with a training one.

    Of a skewed cohort, a clone of a single positive repertoire would have a small p-value.
    """
    train, test = draw(0), draw(1)
    test[0] += [each for clones in train for each in clones]
    y = (np.arange(N) < 2).astype(int) if skewed else Y
    models = []
    for name, others in (("a", test), ("b", draw(2)[:3]), ("none", [])):
        dataset = write(tmp_path / f"{name}.h5", train + others)
        models.append(PublicClones(thresholds=[0.1, 0.01], n_inner_folds=5).fit(dataset[:N], y))
    for model in models[1:]:
        pd.testing.assert_frame_equal(model.associated_clones(), models[0].associated_clones())
        np.testing.assert_array_equal(model.cross_entropy_, models[0].cross_entropy_)
        np.testing.assert_array_equal(model.distributions_, models[0].distributions_)


def test_without_associated_clones_all_scores_are_the_priors(public: RepertoireDataset, tmp_path: Path) -> None:
    rows = np.arange(N - 9)
    model = PublicClones(thresholds=[1e-12, 1e-11]).fit(public[rows], Y[rows] & (rows > 4))
    n_positive = int((Y[rows] & (rows > 4)).sum())
    expected = np.log((n_positive + 1) / (len(rows) - n_positive + 1))
    np.testing.assert_array_equal(model.decision_function(public), expected)
    assert len(model.associated_clones()) == 0
    assert model.p_value_ == 1e-12  # the strictest of equals
    model.save(tmp_path / "m.safetensors")
    again = PublicClones.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.decision_function(public), expected)
    assert list(again.associated_clones()) == list(model.associated_clones())
    apart = write(tmp_path / "apart.h5", [[("A" * i, "TRBV1", "TRBJ1")] for i in range(1, 9)])
    np.testing.assert_array_equal(PublicClones().fit(apart, Y[:8]).decision_function(apart), 0)


def test_cohorts_with_few_or_empty_repertoires(public: RepertoireDataset, tmp_path: Path) -> None:
    repertoires = draw(0, 8)
    dataset = write(tmp_path / "c.h5", [*repertoires, [], []])
    for y in ([0, 1] * 5, [1] + [0] * 9, [1, 1] + [0] * 8, [1, 1, 1] + [0] * 7):
        for cross_fit in (True, False):
            model = PublicClones(cross_fit=cross_fit).fit(dataset, y)
            assert np.isfinite(model.decision_function(dataset)).all()
            loose = PublicClones(cross_fit=cross_fit, p_value=0.5).fit(dataset, y)
            assert np.isfinite(loose.decision_function(public)).all()
            np.testing.assert_allclose(loose.decision_function(dataset)[8:], loose.prior_, atol=1e-12)
    alone = PublicClones().fit(dataset, [1] + [0] * 9)
    assert alone.p_value_ == 1e-4
    assert len(alone.cross_entropy_) == 0


def test_settings_and_containers_that_cannot_be(public: RepertoireDataset, tmp_path: Path) -> None:
    for settings, message in (
        ({"p_value": 0}, "p_value, thresholds: expected numbers above 0, up to 1, found 0"),
        ({"thresholds": [0.1, "x"]}, "expected numbers above 0, up to 1, found 'x'"),
        ({"thresholds": []}, "thresholds: expected at least one, found none"),
        ({"n_inner_folds": 1}, "folds: expected a whole number of at least 2, found 1"),
    ):
        with pytest.raises(InputError, match=message):
            PublicClones(**settings).fit(public, Y)
    other = write(tmp_path / "v.h5", draw(0, 4), fields=1)
    with pytest.raises(InputError, match=r"v\.h5: has no j_call, with which the clones were learned"):
        PublicClones(p_value=0.1).fit(public, Y).decision_function(other)


def test_the_published_counts_of_the_cmv_cohort(real_data: Path) -> None:
    """Emerson et al.'s 164 sequences in 641 subjects: selected on these subjects, so the AUC is in-sample."""
    table = pd.read_csv(real_data / "emerson2017/featureDetect.1e-4.CMV.sampleFeatures.tsv", sep="\t")
    y, n, k = table["status"].to_numpy(), table["uniques"].to_numpy(), table.iloc[:, 3:].to_numpy().sum(axis=1)
    assert (len(y), y.sum(), table.shape[1]) == (641, 289, 167)
    classes = [fit_beta_binomial(k[label == y], n[label == y]) for label in (0, 1)]
    odds = compute_beta_binomial_log_pmf(k, n, *classes[1]) - compute_beta_binomial_log_pmf(k, n, *classes[0])
    assert roc_auc_score(y, odds) == pytest.approx(0.987, abs=0.003)
    assert classes[1][0] / sum(classes[1]) > 2 * classes[0][0] / sum(classes[0])
