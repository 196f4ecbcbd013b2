"""False discovery rates of top sequences: numbers by hand, cohorts of simulated scores, and networks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from deeprc.cli import main
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.donors import DonorColumn
from deeprc.interpretation.attention import iterate_attention
from deeprc.interpretation.cohort_ranking import best_sequences
from deeprc.interpretation.directions import find_direction
from deeprc.interpretation.false_sequences import FalseDiscoveryReference, HighestScores
from deeprc.interpretation.ranking import Ranking
from deeprc.interpretation.survey import add_q_values, make_false_discovery_reference, survey_cohort
from deeprc.runs.run import Run

B, N = 60, 1000


class Scored(NamedTuple):
    """The top sequences of a cohort of random scores: q-values, which are true, and which are held out."""

    q: NDArray[np.float64]
    is_true: NDArray[np.bool_]
    is_new: NDArray[np.bool_]
    is_own: NDArray[np.bool_]


def scored(
    seed: int, *, n: int = 500, n_true: int = 0, own_scores: float = 0.0, per_donor: int = 1, known: float = 0.0
) -> Scored:
    """Return the top n; scores of donors differ, and those of the class in training are known by heart, if asked."""
    rng = np.random.default_rng(seed)
    donors = np.arange(B) // per_donor
    own, new = donors % 2 == 0, np.arange(B) >= B // 2
    scores = rng.normal(size=(B, N))
    scores[:, :100] += own_scores * rng.normal(size=B)[donors][:, None]
    is_true = np.zeros((B, N), bool)
    is_true[own, :n_true] = True
    scores[is_true] += 4
    scores[(own & ~new)[:, None] & (np.arange(N) < 20)] += known
    highest = HighestScores(5000)
    for position in range(B):
        highest.add_candidates(position, scores[position])
    best = np.argsort(-scores.ravel(), kind="stable")[:n]
    reference = FalseDiscoveryReference(own, np.ones(B, bool), new, np.full(B, N), donors)
    q = reference.compute_q_values(highest, scores.ravel()[best], best // N)
    return Scored(q, is_true.ravel()[best], new[best // N], own[best // N])


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        pytest.param({}, marks=pytest.mark.long),
        pytest.param({"own_scores": 1.0}, marks=pytest.mark.long),
        {"own_scores": 1.0, "per_donor": 3},
        {"known": 2.0},
    ],
    ids=str,
)
def test_without_a_signal_hardly_any_cohort_has_a_true_sequence(what: dict[str, float]) -> None:
    found = [(scored(seed, **what).q < 1).any() for seed in range(40)]  # type: ignore[arg-type]
    assert np.mean(found) <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("known", [0.0, 2.0])
def test_with_a_signal_a_tenth_at_most_is_false(known: float) -> None:
    shares, n_found, n_true = [], 0, 0
    for seed in range(20):
        found = scored(seed, n_true=4, known=known)
        good = found.q <= 0.1
        shares.append((~found.is_true[good]).mean() if good.any() else 0.0)
        n_found += int((good & found.is_true & found.is_new).sum())
        n_true += int((found.is_true & found.is_new).sum())
        assert (found.q[~found.is_own] == 1).all()
    assert np.mean(shares) <= 0.1
    assert n_found >= 0.3 * n_true


def test_rates_by_hand() -> None:
    """In held-out repertoires 20 of the class score 2 and 5 of others: (20 - 5 - 1) / 20 in bins of 10 and 10.

    Training repertoires of the class have as many sequences, and 40 with this score: 14 of them are true.
    """
    scores = {0: 20, 1: 5, 2: 40, 3: 5}
    highest = HighestScores()
    for position, n in scores.items():
        highest.add_candidates(position, np.r_[np.full(n, 2.0), np.full(100 - n, -np.inf)])
    own, new = np.array([True, False] * 2), np.array([True, True, False, False])
    reference = FalseDiscoveryReference(own, np.ones(4, bool), new, np.full(4, 100), np.arange(4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FalseDiscoveryReference, "compute_p_value", lambda *_, **__: 0.01)
        q = reference.compute_q_values(highest, np.full(4, 2.0), np.arange(4))
    true = 20 - 5 - 2  # the 1 that keeps a bin from being certain, in both bins
    np.testing.assert_allclose(q, [1 - true / 20, 1, 1 - true / 40, 1])


@pytest.mark.parametrize("known", [0.0, 2.0])
def test_the_length_of_the_list_is_irrelevant(known: float) -> None:
    longest = scored(3, n=500, n_true=4, known=known).q
    assert longest[:30].max() < 1
    for n in (1, 12, 100):
        np.testing.assert_array_equal(scored(3, n=n, n_true=4, known=known).q, longest[:n])


@pytest.mark.parametrize(("n_others", "expected"), [(0, 1.0), (10, 1 / 11)])
def test_the_rate_of_a_single_highest_sequence_by_hand(n_others: int, expected: float) -> None:
    """Held-out repertoires promise 4 times 40 true sequences in training, but one of those that are there is false.

    The highest score has the rate of all that score at least 2, also if the list ends with it.
    """
    highest = HighestScores()
    for position, (n, size) in enumerate([(40, 100), (0, 100), (1, 400), (0, 400), (n_others, 400), (0, 400)]):
        highest.add_candidates(position, np.r_[np.full(n, 2.0 + (position == 2)), np.full(size - n, -np.inf)])
    own, new = np.array([True, False] * 3), np.arange(6) < 2
    reference = FalseDiscoveryReference(
        own, np.ones(6, bool), new, np.array([100, 100, 400, 400, 400, 400]), np.arange(6)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FalseDiscoveryReference, "compute_p_value", lambda *_, **__: 0.01)
        (alone,) = reference.compute_q_values(highest, np.array([3.0]), np.array([2]))
        both = reference.compute_q_values(highest, np.array([3.0, 2.0]), np.array([2, 4]))
    assert alone == pytest.approx(expected)
    assert both[0] == alone
    assert n_others == 0 or both[1] == alone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_levels", "is_sorted"),
    [
        (3, True),
        (10, False),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((1, False), (1, True), (3, False), (10, True))),
    ],
)
def test_equal_scores_do_not_favour_the_first_class(n_levels: int, is_sorted: bool) -> None:
    """Equal scores lie in the order of the cohort, which may be sorted by class."""
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        own = np.arange(40) < 20 if is_sorted else rng.permutation(40) < 20
        highest = HighestScores()
        for position in range(40):
            highest.add_candidates(position, np.round(rng.normal(size=500) * n_levels) / n_levels)
        everyone = np.ones(40, bool)
        found.append(
            FalseDiscoveryReference(own, everyone, everyone, np.full(40, 500), np.arange(40)).compute_p_value(highest)
        )
    assert np.mean(np.array(found) <= 0.05) <= 0.2
    assert np.median(found) > 0.2


def test_contributions_of_zero_speak_for_no_class() -> None:
    contribution, other = Ranking("contribution"), Ranking("attention")
    keys = np.array([2.0, 0.0, -1.0])
    assert contribution.drop_noncontributing(keys).tolist() == [2, -np.inf, -np.inf]
    assert other.drop_noncontributing(keys).tolist() == [2, 0, -1]


def test_one_class_alone_is_no_evidence() -> None:
    highest = HighestScores()
    highest.add_candidates(0, np.arange(50.0))
    only = FalseDiscoveryReference(np.ones(2, bool), np.ones(2, bool), np.ones(2, bool), np.full(2, 50), np.arange(2))
    assert only.compute_p_value(highest) == 1
    assert only.compute_q_values(highest, np.array([49.0]), np.array([0])).tolist() == [1.0]


def test_the_highest_scores_are_kept() -> None:
    rng = np.random.default_rng(0)
    scores, highest = rng.normal(size=(30, 50)), HighestScores(100)
    for position, own in enumerate(scores):
        highest.add_candidates(position, own)
    kept, positions = highest.sort_scores()
    best = np.argsort(-scores.ravel())[:100]
    np.testing.assert_array_equal(kept, scores.ravel()[best])
    np.testing.assert_array_equal(positions, best // 50)
    assert highest.limit == kept[-1]


def test_the_carriers_of_a_motif_have_low_rates(
    trained: Run, motif_cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the patients count, all q-values are 1: nearly all patients have repertoires in training."""
    splits = trained.split_of(motif_cohort)
    found = survey_cohort(trained.model, motif_cohort, top=100, parts=splits)
    assert "q_value" not in found.top["case"].table
    add_q_values(found, trained, motif_cohort, splits)
    assert (found.top["case"].table["q_value"] == 1).all()
    monkeypatch.setattr(DonorColumn, "choose", lambda metadata, _: DonorColumn(metadata, None))
    add_q_values(found, trained, motif_cohort, splits)
    table = found.top["case"].table
    good = table["q_value"] <= 0.3
    assert good.sum() >= 5
    assert table["junction_aa"][good].str.contains("WWHW").mean() >= 0.7
    labels = dict(zip(motif_cohort.repertoire_ids, motif_cohort.metadata["status"], strict=True))
    assert (table["q_value"][table["repertoire_id"].map(labels) != "case"] == 1).all()

    ranking = Ranking("contribution")
    reference = make_false_discovery_reference(
        trained, motif_cohort, find_direction(trained.model.tasks, "case"), splits
    )
    best = best_sequences(iterate_attention(trained.model, motif_cohort), 100, ranking, reference=reference)
    np.testing.assert_allclose(best["q_value"].head(len(table)), table["q_value"], rtol=1e-9)
    assert best.columns[-1] == "q_value"
    everything = best_sequences(iterate_attention(trained.model, motif_cohort), 10**6, ranking, reference=reference)
    speaks = everything["contribution"] > 0
    assert not speaks.all()
    assert (everything["q_value"][~speaks] == 1).all()


def test_chosen_repertoires_get_no_rates(trained: Run, motif_cohort: RepertoireDataset, tmp_path: Path) -> None:
    """Other repertoires of their donors, which the network may know, are not looked at."""
    call = ["attention", str(trained.path), str(motif_cohort.container.path), "--top-overall", "5", "--device", "cpu"]
    names = list(motif_cohort.repertoire_ids[:3])
    for name, chosen in {"all": [], "some": [word for each in names for word in ("--repertoire", each)]}.items():
        with pytest.raises(SystemExit, match="0"):
            main([*call, *chosen, "-o", str(tmp_path / f"{name}.tsv")])
        header = (tmp_path / f"{name}.tsv").read_text().splitlines()[0].split("\t")
        assert ("q_value" in header) == (name == "all")


def test_without_held_out_repertoires_there_is_no_column(trained: Run, motif_cohort: RepertoireDataset) -> None:
    direction = find_direction(trained.model.tasks, "case")
    assert make_false_discovery_reference(trained, motif_cohort, direction, ["train"] * len(motif_cohort)) is None
