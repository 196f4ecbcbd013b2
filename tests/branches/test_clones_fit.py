"""Memories of clones against `PublicClones`, numbers computed by hand, and refits without a fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from deeprc.baselines.beta_binomial import compute_beta_binomial_log_pmf, fit_beta_binomial
from deeprc.baselines.carrier_counts import find_associated_clones
from deeprc.baselines.inner_folds import assign_inner_folds
from deeprc.baselines.public_clones import THRESHOLDS, PublicClones
from deeprc.branches import (
    clones_candidates,
    clones_fit,
    clones_matches,
    clones_results,
    clones_searches,
    special_clones,
)
from deeprc.branches.clones import CloneBranch
from deeprc.branches.clones_alternatives import ALTERNATIVES, HeldOutLosses
from deeprc.branches.clones_candidates import NO_MATCH, CandidateNeighbours
from deeprc.branches.clones_evidence import EvidenceKind, compute_evidence, fit_evidence
from deeprc.branches.clones_fit import fit_clones
from deeprc.branches.clones_memory import find_first_of_cluster
from deeprc.branches.clones_results import SearchResult
from deeprc.branches.clones_searches import CloneSearch
from deeprc.branches.cohort import FittedBranch
from deeprc.branches.overshared_clones import OversharedClones
from deeprc.datasets.clones.grouping import CloneCarriers, SharedClones
from deeprc.datasets.clones.neighbours import EXACT, ONE_SUBSTITUTION
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.in_memory import from_frame
from deeprc.datasets.simulation import CloneSignal, Cohort, GermlineBackground, SimulatedDataset, Sizes, write_container
from deeprc.errors import InputError
from deeprc.tasks import Task
from tests.toys.clone_cohorts import (
    STATUS,
    Clone,
    draw_chains,
    draw_groups,
    draw_repertoires,
    make_cohort,
    write_repertoires,
)

B = 60
Y = np.arange(B) % 2
LETTERS = list("ACDEFGHIKLMNPQRSTVWY")
POOL = ["CASS" + "".join(junction) + "EQYF" for junction in np.random.default_rng(7).choice(LETTERS, (120, 7))]


def fit(dataset: RepertoireDataset, labels: np.ndarray, *tasks: Task) -> tuple[FittedBranch, CloneBranch]:
    fitted = fit_clones(make_cohort(dataset, labels, *tasks))
    assert fitted is not None
    assert isinstance(fitted.branch, CloneBranch)
    return fitted, fitted.branch


def scores_of(branch: CloneBranch, dataset: RepertoireDataset) -> np.ndarray:
    return np.array([branch.score(repertoire) for repertoire in dataset])


def draw_rarely_shared(seed: int, labels: np.ndarray) -> list[list[Clone]]:
    """Return repertoires of 60 clones among 4,096 probable junctions, and 8 of a pool if the label is 1, else 1."""
    rng = np.random.default_rng(seed)
    repertoires = []
    for label in labels:
        probable = {"CASS" + "".join(rng.choice(list("GSTR"), 6)) + "EQYF" for _ in range(60)}
        rare = rng.choice(POOL, 8 if label else 1, replace=False).tolist()
        repertoires.append([(junction, "TRBV1", "TRBJ1") for junction in [*sorted(probable), *rare]])
    return repertoires


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return write_repertoires(tmp_path_factory.mktemp("exact") / "c.h5", draw_repertoires(0, Y))


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Every second carrier has a variant."""
    path = tmp_path_factory.mktemp("varied") / "c.h5"
    return write_repertoires(path, draw_repertoires(0, Y, rates=(0.05, 0.7), variants=0.5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [pytest.param(0, marks=pytest.mark.long), pytest.param(1, marks=pytest.mark.long), 2]
)
def test_exact_retrieval_is_that_of_public_clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: int) -> None:
    monkeypatch.setattr(clones_candidates, "_LEVELS", (1e-300,))
    dataset = write_repertoires(tmp_path / "c.h5", draw_repertoires(0, Y, rates=(0.2, 0.45)), fields)
    new = write_repertoires(tmp_path / "new.h5", draw_repertoires(1, Y, rates=(0.2, 0.45)), fields)
    public = PublicClones().fit(dataset, Y)
    choose_alternative(monkeypatch, "exact", public.p_value_)
    fitted, branch = fit(dataset, Y)
    table = branch.table(["status"])
    columns = [*public.associated_clones()]
    pd.testing.assert_frame_equal(table[columns], public.associated_clones(), check_dtype=False)
    assert set(table["match"]) == {"exact"}
    assert set(table["direction"]) == {"up"}
    for each in (dataset, new):
        expected = public.decision_function(each) - public.prior_
        np.testing.assert_allclose(scores_of(branch, each)[:, 0], expected, rtol=1e-12, atol=1e-12)
    assert len(table) > 3
    assert fitted.loss_decreases[0] > 0.1


def leave_out_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(special_clones, "find_clone_clusters", lambda *_: None)


@pytest.fixture(scope="module")
def of_varied(varied: RepertoireDataset) -> tuple[FittedBranch, CloneBranch]:
    """What is learned from `varied`."""
    return fit(varied, Y)


@pytest.mark.slow
def test_neighbours_count_where_donors_carry_variants(
    varied: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_clusters(monkeypatch)
    new = write_repertoires(tmp_path / "n.h5", draw_repertoires(1, Y, rates=(0.05, 0.7), variants=0.5))
    _, branch = fit(varied, Y)
    table = branch.table(["status"])
    assert (table["match"] == "one substitution").sum() > 5
    found = roc_auc_score(Y, scores_of(branch, new)[:, 0])
    assert found > roc_auc_score(Y, PublicClones().fit(varied, Y).decision_function(new)) + 0.02


def by_hand(n_positive: int, n: int) -> float:
    table = [[n_positive, n - n_positive], [20 - n_positive, 20 - (n - n_positive)]]
    return float(stats.fisher_exact(table, alternative="greater").pvalue)


def hand_made(tmp_path: Path) -> tuple[RepertoireDataset, np.ndarray]:
    """20 positives and 20 negatives: 8 positives have the clone, 10 others a variant of it."""
    repertoires: list[list[Clone]] = []
    y = np.arange(40) % 2
    for i in range(40):
        own: list[Clone] = [
            ("AAAAAAA" + "CDEFGHIKLM"[i // 4] + "CDEFGHIKLM"[j], "V1", "J1") for j in range(i % 4 * 2, 10)
        ]
        if y[i]:
            rank = i // 2
            variants = ["CASSIRSFEQFF", "CASSIRSWEQYF", "CATSIRSFEQYF"]
            own += (
                [("CASSIRSFEQYF", "V1", "J1")] if rank < 8 else [(variants[rank % 3], "V1", "J1")] if rank < 18 else []
            )
        own += [("CASSIRSWEQYF", "V2", "J1")] if i < 16 else []  # another V gene: no neighbour
        repertoires.append(own)
    return write_repertoires(tmp_path / "c.h5", repertoires), y


def test_carriers_and_evidence_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_alternative(monkeypatch, "one substitution", 0.01)
    dataset, y = hand_made(tmp_path)
    fitted, branch = fit(dataset, y)
    table = branch.table(["status"])
    substituted = table[(table["match"] == "one substitution")]
    assert len(substituted) == 1
    row = substituted.iloc[0]
    assert (row["junction_aa"], row["v_call"]) == ("CASSIRSFEQYF", "V1")
    assert (row["carriers_positive"], row["carriers_negative"]) == (18, 0)
    assert row["p_value"] == pytest.approx(3 * by_hand(18, 18))
    # nested counts: the only clone, in every selection
    frames = [repertoire.to_frame() for repertoire in dataset]
    k = np.array([frame["junction_aa"].str.contains("SIRS").mul(frame["v_call"] == "V1").sum() for frame in frames])
    n = np.array([len(frame) for frame in frames])
    classes = [fit_beta_binomial(k[y == label], n[y == label]) for label in (0, 1)]
    odds = compute_beta_binomial_log_pmf(k, n, *classes[1]) - compute_beta_binomial_log_pmf(k, n, *classes[0])
    np.testing.assert_allclose(scores_of(branch, dataset)[:, 0], odds, rtol=1e-8)
    hits = branch.find_clones_in(dataset[1])
    none, one = (compute_evidence("odds", np.ravel(classes), [0, 1], [n[1]] * 2)).tolist()
    assert frames[1]["junction_aa"][hits.rows[0]] == "CASSIRSFEQYF"
    assert (hits.mismatches.tolist(), hits.outputs.tolist(), hits.clones.tolist()) == ([0], [0], [0])
    assert hits.evidence[0] == pytest.approx(one - none)
    expected = np.full(n[1], none / n[1])
    expected[hits.rows[0]] += one - none
    np.testing.assert_allclose(branch.compute_contributions(dataset[1])[:, 0], expected, rtol=1e-8)
    before = np.log(2)  # as many of both classes in each fold
    after = np.logaddexp(0, np.where(y == 1, -1, 1) * fitted.scores[:, 0]).mean()
    assert fitted.loss_decreases[0] == pytest.approx(before - after)


def fix_folds(monkeypatch: pytest.MonkeyPatch, fold_of: dict[str, int]) -> None:
    """Let the folds be these, without gaps where some are absent."""

    def folds(X: RepertoireDataset, *_: object) -> np.ndarray:
        return np.unique([fold_of[repertoire.digest()] for repertoire in X], return_inverse=True)[1]

    monkeypatch.setattr(clones_searches, "assign_inner_folds", folds)


def check_refits_without_a_fold(dataset: RepertoireDataset, folds: np.ndarray, fitted: FittedBranch) -> None:
    """Assert that the cross-fitted scores of each fold are those of a fit without it."""
    for fold in range(5):
        kept = folds != fold
        _, without = fit(dataset[kept], Y[kept])
        np.testing.assert_allclose(scores_of(without, dataset[~kept]), fitted.scores[~kept], rtol=1e-9, atol=1e-12)


def choose_alternative(monkeypatch: pytest.MonkeyPatch, clones: str, threshold: float) -> None:
    """Let the first search use this alternative, and keep its result alone."""
    monkeypatch.setattr(clones_fit, "select_results", lambda results: (results[:1], False))
    set_weights(monkeypatch, {(clones, threshold): 1.0})


def set_weights(monkeypatch: pytest.MonkeyPatch, weights: dict[tuple[str, float], float]) -> None:
    """Let all searches give these weights to alternatives."""
    chosen = np.array([weights.get(alternative, 0.0) for alternative in ALTERNATIVES])
    monkeypatch.setattr(clones_fit, "weigh_alternatives", lambda *_: chosen)
    monkeypatch.setattr(clones_fit, "find_best_alternative", lambda *_, **__: int(np.argmax(chosen)))


@pytest.mark.parametrize("substitution", [False, True])
def test_cross_fitted_scores_are_those_of_a_refit_without_the_fold(
    exact: RepertoireDataset, varied: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, substitution: bool
) -> None:
    dataset = varied if substitution else exact
    choose_alternative(monkeypatch, "one substitution" if substitution else "exact", 0.01)
    folds = assign_inner_folds(dataset, Y == 1, 5)
    fix_folds(monkeypatch, dict(zip((each.digest() for each in dataset), folds.tolist(), strict=True)))
    fitted, branch = fit(dataset, Y)
    assert ("one substitution" in set(branch.table(["status"])["match"])) == substitution
    check_refits_without_a_fold(dataset, folds, fitted)
    assert np.abs(scores_of(branch, dataset) - fitted.scores).max() > 0.01


def check_weighted_sum(
    monkeypatch: pytest.MonkeyPatch, dataset: RepertoireDataset, alternatives: Sequence[tuple[str, float]]
) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Assert that scores of two alternatives are their weighted sums and, out of fold, those of a refit without it.

    Return the table of the clones of both, and the tables of each.
    """
    folds = assign_inner_folds(dataset, Y == 1, 5)
    fix_folds(monkeypatch, dict(zip((each.digest() for each in dataset), folds.tolist(), strict=True)))
    alone = []
    for kind, threshold in alternatives:
        choose_alternative(monkeypatch, kind, threshold)
        alone.append(fit(dataset, Y))
    set_weights(monkeypatch, dict(zip(alternatives, (0.25, 0.75), strict=True)))
    fitted, branch = fit(dataset, Y)
    np.testing.assert_allclose(fitted.scores, 0.25 * alone[0][0].scores + 0.75 * alone[1][0].scores)
    expected = 0.25 * scores_of(alone[0][1], dataset) + 0.75 * scores_of(alone[1][1], dataset)
    np.testing.assert_allclose(scores_of(branch, dataset), expected)
    check_refits_without_a_fold(dataset, folds, fitted)
    return branch.table(["status"]), [each.table(["status"]) for _, each in alone]


def test_cross_fitted_scores_of_two_kinds_of_clones(varied: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    both, alone = check_weighted_sum(monkeypatch, varied, [("exact", 0.01), ("one substitution", 0.01)])
    assert len(both) == len(alone[0]) + len(alone[1])


def test_cross_fitted_scores_of_two_thresholds(exact: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    both, (loose, strict) = check_weighted_sum(monkeypatch, exact, [("exact", 0.1), ("exact", 0.001)])
    pd.testing.assert_frame_equal(both, loose)
    assert len(loose) > len(strict)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Positive repertoires have sequences of ten groups. Those of one group differ in the fifth residue."""
    return write_repertoires(tmp_path_factory.mktemp("grouped") / "c.h5", draw_groups(0, Y))


@pytest.mark.slow
def test_wildcard_clones_where_donors_carry_different_sequences(grouped: RepertoireDataset, tmp_path: Path) -> None:
    new = write_repertoires(tmp_path / "n.h5", draw_groups(1, Y))
    fitted, branch = fit(grouped, Y)
    table = branch.table(["status"])
    found = table[table["match"] == "any residue at position 5"]
    assert set(found["junction_aa"].str[5:]) == {f"{letter}WHEQYF" for letter in "ACDEFGHIKL"}
    first, frames = found.iloc[0], [repertoire.to_frame() for repertoire in grouped]
    carries = np.array(
        [frame["junction_aa"].str.fullmatch(f"CASS.{first['junction_aa'][5:]}").any() for frame in frames]
    )
    n_positive, n = int((carries & (Y == 1)).sum()), int(carries.sum())
    assert (first["carriers_positive"], first["carriers_negative"]) == (n_positive, n - n_positive)
    expected = stats.fisher_exact([[n_positive, n - n_positive], [30 - n_positive, 30 - n + n_positive]], "greater")
    assert first["p_value"] == pytest.approx(float(expected.pvalue))
    assert roc_auc_score(Y, scores_of(branch, new)[:, 0]) > 0.95
    assert roc_auc_score(Y, PublicClones().fit(grouped, Y).decision_function(new)) < 0.8
    assert fitted.loss_decreases[0] > 0.3


def test_cross_fitted_scores_of_wildcard_clones(grouped: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of a refit without the fold, if the other folds have two residues at each wildcard that counts."""
    choose_alternative(monkeypatch, "wildcard", 0.001)
    folds = assign_inner_folds(grouped, Y == 1, 5)
    fix_folds(monkeypatch, dict(zip((each.digest() for each in grouped), folds.tolist(), strict=True)))
    fitted, branch = fit(grouped, Y)
    assert all(match.startswith("any residue") for match in branch.table(["status"])["match"])
    check_refits_without_a_fold(grouped, folds, fitted)
    assert np.abs(scores_of(branch, grouped) - fitted.scores).max() > 0.01


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Positive repertoires have sequences of ten clusters; those of a cluster differ in one or two residues."""
    return write_repertoires(tmp_path_factory.mktemp("chained") / "c.h5", draw_chains(0, Y))


def test_similar_clones_of_heavy_chains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequences of a group have 11 of 13 residues in common; in T cells, similar clones are not looked for."""
    choose_alternative(monkeypatch, "similar", 0.01)
    as_heavy_chains = [
        [[(junction, "IGHV1-2", "IGHJ4") for junction, _, _ in own] for own in draw_chains(seed, Y)] for seed in (0, 1)
    ]
    dataset, new = (write_repertoires(tmp_path / f"{i}.h5", each) for i, each in enumerate(as_heavy_chains))
    fitted, branch = fit(dataset, Y)
    table = branch.table(["status"])
    assert set(table["match"]) <= {"up to 1 substitution", "up to 2 substitutions"}  # the public clones are shorter
    of_groups = table[table["junction_aa"].str.fullmatch(r"CASS.(.)\1.HEQYF")]
    assert set(of_groups["match"]) == {"up to 2 substitutions"}
    assert set(of_groups["junction_aa"].str[5]) == set("ACDEFGHIKL")
    for row in of_groups.itertuples():
        carries = np.array([any(are_within(each[0], row.junction_aa, 2) for each in own) for own in as_heavy_chains[0]])
        assert (row.carriers_positive, row.carriers_negative) == (carries[Y == 1].sum(), carries[Y == 0].sum())
    assert roc_auc_score(Y, scores_of(branch, new)[:, 0]) > 0.95
    assert fitted.loss_decreases[0] > 0.3
    set_weights(monkeypatch, {("similar", 0.01): 0.75, ("exact", 0.1): 0.25})
    for limit, kinds in ((len(table), {"similar", "exact"}), (len(table) - 1, {"exact"})):  # no level of them is left
        monkeypatch.setattr(clones_fit, "MAX_SIMILAR", limit)
        found = set(fit(dataset, Y)[1].table(["status"])["match"])
        assert {"exact" if match == "exact" else "similar" for match in found} == kinds
    searched: list[tuple[object, ...]] = []
    monkeypatch.undo()
    monkeypatch.setattr(special_clones, "find_similar_clones", lambda *each: searched.append(each))
    t_cells = write_repertoires(tmp_path / "t.h5", draw_chains(0, Y))
    fit_clones(make_cohort(t_cells, Y))
    assert searched == []


def are_within(junction: str, other: str, n: int) -> bool:
    return len(junction) == len(other) and sum(a != b for a, b in zip(junction, other, strict=True)) <= n


def draw_expanded(seed: int) -> pd.DataFrame:
    """Return repertoires with 30 public and 150 private clones; up to 13 clones of each have a count above 1.

    In positive repertoires each of the first ten public clones has one with a probability of 0.6, in others of 0.1.
    """
    rng, rows = np.random.default_rng(seed), []
    for number, label in enumerate(Y):
        private = ["CAST" + "".join(junction) + "EQFF" for junction in rng.choice(LETTERS, (150, 8))]
        counts = np.ones(180, np.int64)
        is_expanded = np.append(rng.random(10) < (0.6 if label else 0.1), np.zeros(170, np.bool_))
        is_expanded[rng.choice(np.arange(10, 180), 3)] = True
        counts[is_expanded] = rng.integers(5, 50, is_expanded.sum())
        rows += [(f"r{number:02}", *pair) for pair in zip([*POOL[:30], *private], counts.tolist(), strict=True)]
    return pd.DataFrame(rows, columns=["repertoire_id", "junction_aa", "duplicate_count"])


def test_clones_that_are_as_frequent_but_more_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All repertoires have the public clones, so who carries them says nothing."""
    dataset, new = (from_frame(draw_expanded(seed)) for seed in (0, 1))
    _, branch = fit(dataset, Y)
    scores = scores_of(branch, new)[:, 0]
    assert not branch.is_doubtful
    assert roc_auc_score(Y, scores) > 0.9
    table = branch.table(["status"])
    assert set(table["match"]) == {"expanded"}
    first = table.head(8)
    assert set(first["junction_aa"]) <= set(POOL[:10])
    frames = [repertoire.to_frame() for repertoire in dataset]
    for row in first.itertuples():
        counts = np.array([frame.set_index("junction_aa")["duplicate_count"][row.junction_aa] for frame in frames])
        n_positive, n_negative = ((counts[label == Y] > 1).sum() for label in (1, 0))
        assert (row.carriers_positive, row.carriers_negative) == (n_positive, n_negative)
    choose_alternative(monkeypatch, "expanded", 0.01)
    folds = assign_inner_folds(dataset, Y == 1, 5)
    fix_folds(monkeypatch, dict(zip((each.digest() for each in dataset), folds.tolist(), strict=True)))
    check_refits_without_a_fold(dataset, folds, fit(dataset, Y)[0])


@pytest.mark.slow
def test_clusters_where_sequences_of_donors_are_connected(
    chained: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_alternative(monkeypatch, "cluster", 0.01)
    new = write_repertoires(tmp_path / "n.h5", draw_chains(1, Y))
    fitted, branch = fit(chained, Y)
    table = branch.table(["status"])
    assert set(table["match"]) == {f"cluster {number}" for number in range(1, table["match"].nunique() + 1)}
    frames = [repertoire.to_frame() for repertoire in chained]
    for _, members in table.groupby("match"):
        assert len(set(members["junction_aa"].str[5:7])) == 1
        carries = np.array([frame["junction_aa"].isin(members["junction_aa"]).any() for frame in frames])
        n_positive, n = int((carries & (Y == 1)).sum()), int(carries.sum())
        assert set(members["carriers_positive"]) == {n_positive}
        assert set(members["carriers_negative"]) == {n - n_positive}
        expected = stats.fisher_exact([[n_positive, n - n_positive], [30 - n_positive, 30 - n + n_positive]], "greater")
        np.testing.assert_allclose(members["p_value"], float(expected.pvalue))
        assert len(set(members["q_value"])) == 1
    assert set(table["junction_aa"].str[5]) == set("ACDEFGHIKL")
    assert table["p_value"].is_monotonic_increasing
    assert roc_auc_score(Y, scores_of(branch, new)[:, 0]) > 0.95
    assert fitted.loss_decreases[0] > 0.3
    reverse = fit(chained[::-1], Y[::-1])[1]
    pd.testing.assert_frame_equal(reverse.table(["status"]), table)
    np.testing.assert_allclose(scores_of(reverse, new), scores_of(branch, new), rtol=1e-9)
    # q-values are those of the clusters, not of their members
    firsts = table.drop_duplicates("match")
    n_tested = firsts["q_value"].iloc[-1] / firsts["p_value"].iloc[-1] * len(firsts)
    assert n_tested == pytest.approx(round(n_tested))


def test_cross_fitted_scores_of_clusters(chained: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of a refit without the fold, if the other folds connect all members."""
    choose_alternative(monkeypatch, "cluster", 0.001)
    folds = assign_inner_folds(chained, Y == 1, 5)
    fix_folds(monkeypatch, dict(zip((each.digest() for each in chained), folds.tolist(), strict=True)))
    fitted, branch = fit(chained, Y)
    assert all(match.startswith("cluster ") for match in branch.table(["status"])["match"])
    check_refits_without_a_fold(chained, folds, fitted)


def test_clusters_need_more_than_cross_fitted_scores(
    chained: RepertoireDataset, exact: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If labels can be permuted, a permutation test decides; clones that are matched exactly do not need it."""
    alternatives = {"cluster": ("cluster", 0.001), "exact": ("exact", 0.001)}
    monkeypatch.setattr(clones_results, "exceeds_permutations", lambda *_: False)

    def is_clear(dataset: RepertoireDataset, kind: str) -> bool:
        set_weights(monkeypatch, {alternatives[kind]: 1.0})
        fitted = fit_clones(make_cohort(dataset, Y))
        return fitted is not None and not fitted.branch.is_doubtful

    assert not is_clear(chained, "cluster")
    assert is_clear(exact, "exact")
    monkeypatch.setattr(clones_results, "can_be_permuted", lambda _: False)
    assert is_clear(chained, "cluster")


def test_weak_evidence_makes_a_doubtful_branch(exact: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the z-score nor the permutation test shows that the scores are associated with the label."""
    set_weights(monkeypatch, {("exact", 0.001): 1.0})
    clear, _ = fit(exact, Y)
    assert not clear.branch.is_doubtful
    monkeypatch.setattr(clones_results, "_MIN_Z", np.inf)
    monkeypatch.setattr(clones_results, "exceeds_permutations", lambda *_: False)
    doubtful, branch = fit(exact, Y)
    assert doubtful.branch.is_doubtful
    np.testing.assert_array_equal(doubtful.scores, clear.scores)
    description = branch.describe()
    assert CloneBranch.from_description(description, 1, "model").is_doubtful
    del description["doubtful"]  # a model of an earlier version
    assert not CloneBranch.from_description(description, 1, "model").is_doubtful
    monkeypatch.setattr(clones_results, "_MIN_DOUBTFUL_Z", np.inf)
    assert fit_clones(make_cohort(exact, Y)) is None


def test_units_are_counted_among_the_repertoires_that_give_the_weights(
    exact: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Donor 0 has repertoires of both classes and counts twice, the others have two repertoires of one class."""
    told: list[tuple[int, int]] = []

    def weigh(losses: np.ndarray, n_units: int) -> np.ndarray:
        told.append((losses.shape[1], n_units))
        return np.full(len(losses), 1 / len(losses))

    monkeypatch.setattr(clones_fit, "weigh_alternatives", weigh)
    groups = np.arange(B) // 2
    labels = groups % 2
    labels[0] = 1
    for donors, numbers in ((None, labels.astype(np.float64)), (groups, labels.astype(np.float64))):
        told.clear()
        fit_clones(replace(make_cohort(exact, numbers), groups=donors))
        n_units = B if donors is None else B // 2 + 1
        assert told[-1] == (B, n_units)
        n_folds = len(told) // 2 - 1  # of two directions, with the weights of all repertoires after those of the folds
        assert sum(n_units - of_fold for _, of_fold in told[:n_folds]) == n_units
        assert n_folds >= 3


def test_overshared_clones_are_tested_with_their_own_thresholds(
    exact: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lenient ones decide how overshared clones are chosen, all of them whether they are evidence."""
    tested, overshared = [], ALTERNATIVES.index(("overshared", 0.3))

    def exceeds(clones: CloneCarriers, search: CloneSearch, thresholds: Sequence[float]) -> bool:
        tested.append((len(clones), search.direction, tuple(thresholds)))
        return search.direction == "up"

    def choose(losses: HeldOutLosses, *, overshared_are_associated: bool) -> int:
        return overshared if overshared_are_associated else 0

    def find_half(clones: SharedClones, *_: object) -> OversharedClones:
        return OversharedClones(clones.select(np.arange(30)), clones.select(np.arange(30)))

    monkeypatch.setattr(special_clones, "find_overshared_clones", find_half)
    for module in (clones_fit, clones_results):
        monkeypatch.setattr(module, "exceeds_permutations", exceeds)
    monkeypatch.setattr(clones_fit, "weigh_alternatives", lambda *_: np.eye(len(ALTERNATIVES))[overshared])
    monkeypatch.setattr(clones_fit, "find_best_alternative", choose)
    monkeypatch.setattr(clones_results, "_MIN_Z", np.inf)
    _, branch = fit(exact, Y)
    assert set(branch.table(["status"])["direction"]) == {"up"}
    lenient, every = (0.6, 0.3), (0.6, 0.3, *THRESHOLDS)
    assert tested == [(30, "up", lenient), (30, "down", lenient), (30, "up", every)]


def test_a_kind_without_clones_tests_none(exact: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(clones: SharedClones, *_: object) -> OversharedClones:
        return OversharedClones(clones.select(np.zeros(0, np.int64)), clones.select(np.zeros(0, np.int64)))

    n_tested: list[int] = []
    monkeypatch.setattr(special_clones, "find_overshared_clones", find_none)
    choose_alternative(monkeypatch, "overshared", 0.3)

    def select_none(results: Sequence[SearchResult]) -> tuple[list[SearchResult], bool]:
        n_tested.extend(len(each.tested) for each in results)
        return [], False

    monkeypatch.setattr(clones_fit, "select_results", select_none)
    assert fit_clones(make_cohort(exact, Y)) is None
    assert n_tested == [0, 0]


@pytest.mark.slow
def test_wildcard_clones_of_donors_numbers_and_the_other_class(grouped: RepertoireDataset, tmp_path: Path) -> None:
    _, branch = fit(grouped, Y)
    table, scores = branch.table(["status"]), scores_of(branch, grouped)
    _, other = fit(grouped, 1 - Y)
    down = other.table(["status"])
    assert set(down["direction"]) == {"down"}
    np.testing.assert_allclose(scores_of(other, grouped), -scores, rtol=1e-9, atol=1e-12)
    # every donor has two repertoires, with one half of the sequences each: the same carriers
    halves = [own[half::2] for own in draw_groups(0, Y) for half in range(2)]
    of_donors = write_repertoires(tmp_path / "halves.h5", halves)
    fitted = fit_clones(replace(make_cohort(of_donors, np.repeat(Y, 2)), groups=np.repeat(np.arange(B), 2)))
    assert fitted is not None
    assert isinstance(fitted.branch, CloneBranch)
    of_halves = fitted.branch.table(["status"]).set_index("junction_aa")
    of_wholes = table.set_index("junction_aa")
    common = of_wholes.index[of_wholes.index.isin(of_halves.index)]
    assert len(common) >= 10
    for column in ("match", "carriers_positive", "carriers_negative", "p_value"):
        assert of_halves.loc[common, column].tolist() == of_wholes.loc[common, column].tolist()
    # a number instead of a class
    ages = 40 + 20 * Y + np.random.default_rng(0).normal(0, 5, B)
    task = Task("age", "age", "regression", mean=float(ages.mean()), scale=float(ages.std()))
    _, of_number = fit(grouped, ages, task)
    numbers = of_number.table(["age"])
    first = numbers[(numbers["direction"] == "up") & (numbers["match"] == "any residue at position 5")].iloc[0]
    pattern = f"CASS.{first['junction_aa'][5:]}"
    carries = np.array([each.to_frame()["junction_aa"].str.fullmatch(pattern).any() for each in grouped])
    assert first["carriers"] == carries.sum()
    test = stats.mannwhitneyu(
        ages[carries], ages[~carries], alternative="greater", use_continuity=False, method="asymptotic"
    )
    assert first["p_value"] == pytest.approx(test.pvalue, rel=1e-6)


def test_evidence_of_the_wrong_direction_is_none() -> None:
    """The clones of a search for lower labels must be rarer if the number is high, more frequent in the lower class."""
    rng = np.random.default_rng(0)
    n, k = np.full(40, 100), rng.integers(2, 12, 40)
    numbers = (k - k.mean()) / k.std()
    is_expected = (k > 7) * 1.0
    assert fit_evidence("rate", "up", k, n, numbers)[0] > 0.5
    assert not fit_evidence("rate", "down", k, n, numbers).any()
    assert fit_evidence("rate", "down", k, n, -numbers)[0] < -0.5
    alpha_0, beta_0, alpha_1, beta_1 = fit_evidence("odds", "down", k, n, is_expected)
    assert alpha_1 / (alpha_1 + beta_1) > alpha_0 / (alpha_0 + beta_0)
    assert not fit_evidence("odds", "down", k, n, 1 - is_expected).any()


@pytest.mark.parametrize(("hits_expected", "hits_elsewhere", "is_evidence"), [(0, 2, False), (1, 0, True)])
def test_few_hits_in_classes_of_different_sizes(hits_expected: int, hits_elsewhere: int, is_evidence: bool) -> None:
    """The rates are pooled: maximum likelihood alone has no rate for the class without a hit."""
    n_expected, n_elsewhere = (10, 50) if not is_evidence else (50, 10)
    is_expected = np.repeat([1.0, 0.0], [n_expected, n_elsewhere])
    k = np.zeros(60, np.int64)
    k[:hits_expected] = 1
    k[n_expected : n_expected + hits_elsewhere] = 1
    assert fit_evidence("odds", "up", k, np.full(60, 100), is_expected).any() == is_evidence


def test_equal_rates_are_no_evidence() -> None:
    k, n, numbers = np.full(7, 3), np.full(7, 100), np.arange(7.0)
    for direction in ("up", "down"):
        assert not fit_evidence("rate", direction, k, n, numbers).any()


@pytest.mark.parametrize("kind", ["odds", "rate"])
def test_more_clones_than_sequences(kind: EvidenceKind) -> None:
    """A sequence may have several wildcard clones; more clones than sequences count as many."""
    rng = np.random.default_rng(0)
    n, values = rng.integers(5, 30, 40), np.arange(40) % 2 * 1.0
    k = np.where(values > 0, 2 * n, 2 * n // 5)
    found = fit_evidence(kind, "up", k, n, values)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, fit_evidence(kind, "up", np.minimum(k, n), n, values))
    evidence = compute_evidence(kind, found, k, n)
    assert evidence[values > 0].min() > evidence[values == 0].max()


def test_no_sequence_counts_twice_in_one_way(varied: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_alternative(monkeypatch, "one substitution", 0.1)
    _, branch = fit(varied, Y)
    table = branch.table(["status"])
    junctions = [tuple(row) for row in table[["junction_aa", "v_call", "j_call"]].itertuples(index=False)]
    allows_substitution = (table["match"] == "one substitution").to_numpy()
    assert allows_substitution.sum() > 5
    for i, first in enumerate(junctions):
        for k, second in enumerate(junctions):
            if i != k and first[1:] == second[1:]:
                distance = sum(a != b for a, b in zip(first[0], second[0], strict=True))
                assert distance > 1 or not (allows_substitution[i] or allows_substitution[k])


def test_neighbours_do_not_count_twice() -> None:
    """Candidate 1 is a neighbour of 0 and 2."""
    neighbours = CandidateNeighbours(np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1]))
    exact, substituted = ([(candidate, match) for candidate in range(3)] for match in (EXACT, ONE_SUBSTITUTION))
    for ranked, expected in (
        ([substituted[1]], [-1, 1, -1]),
        ([substituted[1], exact[0], exact[2], exact[1]], [-1, 1, -1]),  # both are neighbours of 1
        ([exact[0], substituted[1], exact[1], exact[2]], [0, 0, 0]),  # otherwise 1 would count the first one twice
        ([substituted[0], substituted[2], substituted[1], exact[1]], [1, -1, 1]),
        ([exact[0], substituted[0], exact[1]], [0, 0, -1]),
    ):
        matches = np.full(3, NO_MATCH)
        pairs = clones_matches._RankedMatches(*np.array(ranked).T)
        clones_matches._assign_matches(pairs, neighbours, matches)
        assert matches.tolist() == expected


def test_matches_are_ranked_by_p_values_and_those_of_1_are_left_out() -> None:
    ranked = clones_matches._rank_matches(np.array([[0.2, 0.01, 1.0], [0.2, 1.0, 0.03]]))
    assert ranked.candidates.tolist() == [1, 2, 0, 0]
    assert ranked.matches.tolist() == [EXACT, ONE_SUBSTITUTION, EXACT, ONE_SUBSTITUTION]


@pytest.mark.slow
@pytest.mark.parametrize(("n_labels", "most"), [(8, 1), pytest.param(20, 2, marks=pytest.mark.long)])
def test_labels_without_meaning(exact: RepertoireDataset, n_labels: int, most: int) -> None:
    rng = np.random.default_rng(3)
    fits = [fit_clones(make_cohort(exact, rng.permutation(Y))) for _ in range(n_labels)]
    assert sum(each is not None for each in fits) <= most


@pytest.mark.slow
def test_the_order_of_repertoires_is_irrelevant(
    varied: RepertoireDataset, of_varied: tuple[FittedBranch, CloneBranch]
) -> None:
    order = np.random.default_rng(1).permutation(B)
    first, branch = of_varied
    second, other = fit(varied[order], Y[order])
    pd.testing.assert_frame_equal(branch.table(["status"]), other.table(["status"]))
    np.testing.assert_allclose(second.scores, first.scores[order], rtol=1e-12)
    np.testing.assert_allclose(scores_of(other, varied), scores_of(branch, varied), rtol=1e-12)


@pytest.mark.slow
def test_repertoires_without_a_label(varied: RepertoireDataset) -> None:
    labels = np.where(np.arange(B) < 8, np.nan, Y)
    fitted, branch = fit(varied, labels)
    alone, _ = fit(varied[np.arange(8, B)], Y[8:])
    np.testing.assert_allclose(fitted.scores[8:], alone.scores, rtol=1e-12)
    np.testing.assert_allclose(fitted.scores[:8], scores_of(branch, varied[:8]), rtol=1e-12)


def test_repertoires_of_one_donor_are_in_one_fold(exact: RepertoireDataset) -> None:
    groups = np.arange(B) // 3
    up, _ = clones_searches.list_searches(replace(make_cohort(exact, Y), groups=groups))
    assert all(len(set(up.folds[groups == group].tolist())) == 1 for group in range(B // 3))
    assert up.n_folds == 10
    assert up.groups is not None
    np.testing.assert_array_equal(up.groups, groups)
    alone, _ = clones_searches.list_searches(make_cohort(exact, Y))
    np.testing.assert_array_equal(alone.folds, assign_inner_folds(exact, Y == 1, 10))


def test_repertoires_of_one_donor_are_one_carrier(varied: RepertoireDataset, tmp_path: Path) -> None:
    """If each repertoire is there twice, as two of one donor, clones and neighbours have the same carriers and p."""
    repertoires = draw_repertoires(0, Y, rates=(0.05, 0.7), variants=0.5)
    twice = write_repertoires(tmp_path / "c.h5", [own for own in repertoires for _ in range(2)])
    doubled = replace(make_cohort(twice, np.repeat(Y, 2)), groups=np.repeat(np.arange(B), 2))
    found = []
    for cohort in (make_cohort(varied, Y), doubled):
        searches = clones_searches.list_searches(cohort)
        fields = ["v_call", "j_call"]
        candidates = clones_candidates.find_candidates(
            cohort.dataset, find_shared_clones(cohort.dataset, fields), searches, fields
        )
        given = clones_matches.SearchCandidates.of(candidates, searches[0], candidates.levels[0])
        chosen = clones_matches.choose_final_matches(given)
        frame = candidates.clones.to_frame().assign(**chosen._asdict())
        found.append(frame[frame["matches"] != NO_MATCH].reset_index(drop=True))
    assert set(found[0]["matches"]) == {EXACT, ONE_SUBSTITUTION}
    pd.testing.assert_frame_equal(found[0], found[1])


@pytest.mark.slow
def test_clones_of_the_negative_class(varied: RepertoireDataset, of_varied: tuple[FittedBranch, CloneBranch]) -> None:
    up, _ = of_varied
    down, branch = fit(varied, 1 - Y)
    np.testing.assert_allclose(down.scores, -up.scores, rtol=1e-9, atol=1e-12)
    table = branch.table(["status"])
    assert set(table["direction"]) == {"down"}
    assert (table["carriers_negative"] > table["carriers_positive"]).all()


@pytest.mark.slow
def test_several_classes(varied: RepertoireDataset, of_varied: tuple[FittedBranch, CloneBranch]) -> None:
    """Class 2 are the repertoires with the clones; the others are of two classes that do not differ."""
    labels = np.where(Y == 1, 2, np.arange(B) // 2 % 2)
    three = Task("disease", "disease", "multiclass", ("a", "b", "c"))
    fitted, branch = fit(varied, np.stack([labels, Y], axis=1), three, STATUS)
    binary, _ = of_varied
    assert fitted.scores.shape == (B, 4)
    np.testing.assert_allclose(fitted.scores[:, [2, 3]], np.repeat(binary.scores, 2, axis=1), rtol=1e-9, atol=1e-12)
    assert fitted.loss_decreases[2] > 0.1
    names = ["disease:a", "disease:b", "disease:c", "status"]
    assert {"disease:c", "status"} <= set(branch.table(names)["output"])
    contributions = branch.compute_contributions(varied[3])
    np.testing.assert_allclose(contributions.sum(axis=0), branch.score(varied[3]), rtol=1e-9, atol=1e-12)


def test_numbers(varied: RepertoireDataset, tmp_path: Path) -> None:
    """Repertoires with the clones have higher numbers."""
    rng = np.random.default_rng(0)
    ages = 40 + 20 * Y + rng.normal(0, 5, B)
    task = Task("age", "age", "regression", mean=float(ages.mean()), scale=float(ages.std()))
    fitted, branch = fit(varied, ages, task)
    new = write_repertoires(tmp_path / "n.h5", draw_repertoires(1, Y, rates=(0.05, 0.7), variants=0.5))
    scores = scores_of(branch, new)[:, 0]
    assert np.corrcoef(scores, Y)[0, 1] > 0.7
    assert np.corrcoef(fitted.scores[:, 0], ages)[0, 1] > 0.6
    table = branch.table(["age"])
    assert "carriers_positive" not in table
    clones = table[table["direction"] == "up"]
    assert len(clones) > 5
    best = clones.iloc[0]
    carries = np.zeros(B, bool)
    spans, matches = branch._list_memory_spans(), branch.is_ball.numpy()
    first_of_cluster = np.concatenate([s.start + find_first_of_cluster(matches[s.start : s.stop]) for s in spans])
    hits = [first_of_cluster[branch.find_clones_in(repertoire).clones] for repertoire in varied]
    for i, clones_of in enumerate(hits):
        carries[i] = 0 in clones_of
    assert best["carriers"] == carries.sum()
    test = stats.mannwhitneyu(
        ages[carries], ages[~carries], alternative="greater", use_continuity=False, method="asymptotic"
    )
    factor = 3 if best["match"] == "one substitution" else 1
    assert best["p_value"] == pytest.approx(factor * test.pvalue, rel=1e-6)
    # the score is linear in the logarithms of the rates of each direction's clones
    expected, n = np.zeros(B), np.array([len(repertoire) for repertoire in varied])
    p_values = table["p_value"].to_numpy()
    for _, levels, start, stop in branch._list_memory_spans():
        for threshold, weight, (slope, mean, overall, _) in levels:
            stored = start + np.flatnonzero(p_values[start:stop] < threshold)
            k = np.array([len(np.intersect1d(clones_of, stored)) for clones_of in hits])
            expected += weight * slope * (np.log((k + 0.5) / (n + 0.5 / np.exp(overall))) - mean)
    np.testing.assert_allclose(scores_of(branch, varied)[:, 0], expected, rtol=1e-9)


@pytest.mark.slow
def test_a_simulated_cohort_and_its_container_agree(tmp_path: Path) -> None:
    signal = CloneSignal(20, 8.0, 1.0, incidence_sd=0.3)
    cohort = Cohort(40, Sizes(200), GermlineBackground(), signals=(signal,), seed=3)
    write_container(cohort, tmp_path / "c.h5")
    on_disk, virtual = open_dataset(tmp_path / "c.h5"), SimulatedDataset(cohort)
    y = (on_disk.metadata["status"] == "positive").to_numpy(np.int64)
    first, branch = fit(on_disk, y)
    second, other = fit(virtual, y)
    np.testing.assert_allclose(second.scores, first.scores, rtol=1e-12)
    pd.testing.assert_frame_equal(branch.table(["status"]), other.table(["status"]))
    assert branch.score(virtual[0]) == pytest.approx(branch.score(on_disk[0]))


@pytest.mark.parametrize("n_positive", [0, 1, 2, 3])
def test_too_few_repertoires_say_nothing(exact: RepertoireDataset, n_positive: int) -> None:
    assert fit_clones(make_cohort(exact[:9], (np.arange(9) < n_positive).astype(int))) is None
    regression = Task("age", "age", "regression")
    assert fit_clones(make_cohort(exact[:4], np.ones(4), regression)) is None


@pytest.mark.long
def test_a_memory_needs_thirty_units(tmp_path: Path) -> None:
    """A donor with repertoires of both classes counts twice; for a number, a donor is a donor."""
    labels = np.arange(80) % 2
    cohort = make_cohort(write_repertoires(tmp_path / "c.h5", draw_repertoires(0, labels, rates=(0.05, 0.7))), labels)
    assert fit_clones(cohort) is not None
    fifteen, fourteen = (np.minimum(np.arange(80) // 4, last) for last in (14, 13))  # donors with both classes
    assert fit_clones(replace(cohort, groups=fifteen)) is not None
    assert fit_clones(replace(cohort, groups=fourteen)) is None
    assert fit_clones(replace(cohort, groups=np.arange(80) // 4 * 2 + labels)) is not None
    task = Task("age", "age", "regression", mean=0.5, scale=0.5)
    ages = make_cohort(cohort.dataset, labels + 0.0, task)
    assert fit_clones(ages) is not None
    assert fit_clones(replace(ages, groups=np.arange(80) // 4)) is None


def _visits(n_donors: int, n_visits: int) -> tuple[list[list[Clone]], np.ndarray]:
    """Return repertoires of donors who have ten clones of their own in every repertoire, and whose each is."""
    rng = np.random.default_rng(1)
    letters = list("ACDEFGHIKLMNPQRSTVWY")

    def draw(n: int) -> list[Clone]:
        return [("".join(rng.choice(letters, 11)), "TRBV1", "TRBJ1") for _ in range(n)]

    repertoires = []
    for _ in range(n_donors):
        own = draw(10)
        repertoires += [own + draw(5) for _ in range(n_visits)]
    return repertoires, np.repeat(np.arange(n_donors), n_visits)


def test_a_donor_carries_a_clone_once_whatever_the_numbers_of_its_repertoires(tmp_path: Path) -> None:
    """The age at each visit differs; a clone that one donor carries at every visit has one carrier, so no test."""
    repertoires, donors = _visits(40, 4)
    ages = 30.0 + 2 * donors + np.tile([0.0, 0.5, 1.0, 1.5], 40)
    task = Task("age", "age", "regression", mean=float(ages.mean()), scale=float(ages.std()))
    cohort = make_cohort(write_repertoires(tmp_path / "c.h5", repertoires), ages, task)
    up, down = clones_searches.list_searches(replace(cohort, groups=donors))
    clones = find_shared_clones(cohort.dataset, ["v_call", "j_call"])
    for search, direction in ((up, 1), (down, -1)):
        labels = search.units.labels()
        assert len(labels) == 40
        assert (direction * np.diff(labels[search.units.unit_of[::4]]) > 0).all()  # in the order of the means
        assert find_associated_clones(clones, search.units, 0.5, search.test).n_tested == 0
    alone, _ = clones_searches.list_searches(cohort)
    assert find_associated_clones(clones, alone.units, 0.5, alone.test).n_tested == 400


def test_an_empty_repertoire_has_no_evidence_for_a_number(tmp_path: Path) -> None:
    labels = np.arange(60) % 2
    repertoires = draw_repertoires(0, labels, rates=(0.05, 0.7))
    repertoires[7] = []
    dataset = write_repertoires(tmp_path / "c.h5", repertoires)
    ages = 40 + 20 * labels + np.random.default_rng(0).normal(0, 5, 60)
    task = Task("age", "age", "regression", mean=float(ages.mean()), scale=float(ages.std()))
    fitted = fit_clones(make_cohort(dataset, ages, task))
    assert fitted is not None
    assert fitted.scores[7].tolist() == [0.0]
    assert (fitted.scores[[0, 1]] != 0).all()


def test_a_container_that_lacks_the_genes_of_the_memory_but_not_of_training_has_none_of_its_clones(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    letters = list("ACDEFGHIKLMNPQRSTVWY")
    known = ("CASSIRSSYEQYF", "TRBV19", "TRBJ2")
    repertoires = [
        [("".join(rng.choice(letters, 11)), f"TRBV{rng.integers(2, 6)}", "TRBJ1") for _ in range(30)]
        + ([known] if label else [])
        for label in Y
    ]
    fitted = fit_clones(make_cohort(write_repertoires(tmp_path / "c.h5", repertoires), Y))
    assert fitted is not None
    assert set(fitted.branch.table(["status"])["v_call"]) == {"TRBV19"}
    others = write_repertoires(tmp_path / "new.h5", [each[:30] for each in repertoires[:3]])
    assert len(fitted.branch.find_clones_in(others[0]).rows) == 0
    strange = write_repertoires(tmp_path / "strange.h5", [[("CASSIRSSYEQYF", "V19", "J2")]])
    with pytest.raises(InputError, match="expected genes named as in training"):
        fitted.branch.score(strange[0])


def test_overshared_clones_where_too_few_donors_carry_each(tmp_path: Path) -> None:
    """No clone of the pool is significant, but most junctions that are shared by chance are probable."""
    cohort, new = (write_repertoires(tmp_path / f"{seed}.h5", draw_rarely_shared(seed, Y)) for seed in (0, 1))
    fitted, branch = fit(cohort, Y)
    table = branch.table(["status"])
    (kind,) = {memory["n_clones"] for memory in branch.describe()["memories"] if memory["levels"][0]["weight"] > 0.3}
    heaviest = table[-kind:]  # overshared clones
    assert heaviest["junction_aa"].isin(POOL).mean() > 0.9
    assert heaviest["p_value"].max() > 0.2  # far above the loosest threshold for other clones
    assert roc_auc_score(Y, scores_of(branch, new)[:, 0]) > 0.9
    assert roc_auc_score(Y, fitted.scores[:, 0]) > 0.85
    assert roc_auc_score(Y, PublicClones().fit(cohort, Y).decision_function(new)) < 0.8


def test_levels_with_too_many_clones_are_left_out(exact: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    set_weights(monkeypatch, {("exact", 0.1): 0.25, ("exact", 0.001): 0.75})
    monkeypatch.setattr(clones_fit, "select_results", lambda results: (results[:1], False))
    p_values = fit(exact, Y)[1].table(["status"])["p_value"]
    n_strict = int((p_values < 0.001).sum())
    assert n_strict < len(p_values)
    for limit in (n_strict, n_strict - 1):  # the last level stays
        monkeypatch.setattr(clones_fit, "_MAX_STORED", limit)
        _, branch = fit(exact, Y)
        (memory,) = branch.describe()["memories"]
        assert [level["threshold"] for level in memory["levels"]] == [0.001]
        assert branch.table(["status"])["p_value"].tolist() == p_values[:n_strict].tolist()
