"""The memory of clones: hits, shares, and files."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.baselines.beta_binomial import compute_beta_binomial_log_odds
from deeprc.branches.clones import CloneBranch
from deeprc.branches.clones_evidence import EvidenceLevel
from deeprc.branches.clones_memory import CLUSTER, EXPANDED, Memory, find_first_of_cluster
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.distinct import has_merged_clones
from deeprc.datasets.clones.neighbours import EXACT, SUBSTITUTIONS, WILDCARD
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.in_memory import from_frame
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError
from tests.toys.clone_cohorts import Clone, write_repertoires

ODDS = np.array([[0.5, 40.0], [2.0, 30.0]])
RATE = np.array([0.7, -3.0, -2.0, 0.0])
# one level, which all clones pass
ALL, OF_NUMBERS = ([EvidenceLevel(2.0, 1.0, parameters)] for parameters in (ODDS.ravel(), RATE))


def clone_set(*clones: Clone) -> CloneSet:
    sequences, columns = (
        Sequences.encode([each[0] for each in clones]),
        zip(*(each[1:] for each in clones), strict=True),
    )
    genes = dict(zip(("v_call", "j_call"), (Categorical.encode(column) for column in columns), strict=True))
    return CloneSet(sequences.with_genes(genes))


def make_branch() -> CloneBranch:
    """Return a branch of three outputs: two clones of one direction, one with neighbours, and two of a number."""
    up = clone_set(("CASSF", "V1", "J1"), ("CAWWF", "V1", "J1"))
    number = clone_set(("CASSF", "V1", "J1"), ("CDDDF", "V2", "J2"))
    carriers, tests = np.array([[9, 1], [7, 2]]), np.array([[1e-5, 1e-3], [1e-4, 1e-2]])
    return CloneBranch.of(
        [
            Memory(0, "down", "odds", ALL, up, np.array([1, 0]), carriers, tests),
            Memory(2, "up", "rate", OF_NUMBERS, number, np.array([0, 1]), carriers * [1, 0], tests),
        ],
        3,
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Repertoire 0 has a clone twice, with different neighbours, and others that are near but do not count."""
    first: list[Clone] = [
        ("CASSF", "V1", "J1"),  # rows 0, 1: the first clone, and a neighbour
        ("CASTF", "V1", "J1"),
        ("CASTF", "V2", "J1"),  # another V gene
        ("CAWSF", "V1", "J1"),  # near both: counts for the first
        ("CAWWY", "V1", "J1"),  # near the second, which has no neighbours
        ("CDDEF", "V2", "J2"),  # near the last
        ("CASSFF", "V1", "J1"),
        ("CASSF", "V1", "J1"),  # the same once more
    ]
    path = tmp_path_factory.mktemp("clones") / "c.h5"
    return write_repertoires(path, [first, first[::-1], [("CQQQF", "V9", "J1")], []])


def odds(k: int, n: int) -> float:
    return float(compute_beta_binomial_log_odds(ODDS, [k], [n])[0])


def rate(k: int, n: int) -> float:
    return float(RATE[0] * (np.log((min(k, n) + 0.5) / (n + 0.5 * np.exp(2.0))) - RATE[1]))


def test_hits_and_shares_by_hand(dataset: RepertoireDataset) -> None:
    branch = make_branch()
    hits = branch.find_clones_in(dataset[0])
    found = list(zip(*(column.tolist() for column in hits[:4]), strict=True))
    # sequence, clone, mismatches, output; the container holds seven different sequences of eight
    assert set(found) == {
        (0, 0, 0, 0),
        (0, 2, 0, 2),
        (1, 0, 1, 0),
        (3, 0, 1, 0),
        (5, 3, 1, 2),
        (7, 0, 0, 0),
        (7, 2, 0, 2),
    }
    # one clone of the first memory, retrieved four times; two of the second, retrieved twice and once
    first, second = -(odds(1, 7) - odds(0, 7)) / 4, (rate(2, 7) - rate(0, 7)) / 2
    expected = {(0, 0): first, (1, 0): first, (3, 0): first, (7, 0): first}
    expected |= {(0, 2): second / 2, (7, 2): second / 2, (5, 3): second}
    for row, clone, evidence in zip(hits.rows.tolist(), hits.clones.tolist(), hits.evidence.tolist(), strict=True):
        assert evidence == pytest.approx(expected[row, clone])
    assert branch.score(dataset[0]) == pytest.approx([-odds(1, 7), 0, rate(2, 7)])
    assert branch.score(dataset[2]) == pytest.approx([-odds(0, 1), 0, rate(0, 1)])
    contributions = branch.compute_contributions(dataset[0])
    assert contributions[6].tolist() == pytest.approx([-odds(0, 7) / 8, 0, rate(0, 7) / 8])
    assert contributions[5].tolist() == pytest.approx([-odds(0, 7) / 8, 0, rate(0, 7) / 8 + second])


def test_merged_clones_need_no_count(dataset: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    table = dataset[0].to_frame().drop_duplicates().assign(repertoire_id="one", duplicate_count=1)
    (merged,) = from_frame(table[["repertoire_id", "junction_aa", "v_call", "j_call", "duplicate_count"]])
    assert (len(merged), has_merged_clones(merged, ("v_call", "j_call"))) == (7, True)
    branch = make_branch()
    scores, contributions = branch.score(merged), branch.compute_contributions(merged)
    assert scores == pytest.approx([-odds(1, 7), 0, rate(2, 7)])
    for module in ("deeprc.branches.clones", "deeprc.datasets.clones.distinct"):
        monkeypatch.setattr(f"{module}.has_merged_clones", lambda repertoire, fields: False)
    np.testing.assert_array_equal(branch.score(merged), scores)
    np.testing.assert_array_equal(branch.compute_contributions(merged), contributions)


def test_contributions_sum_to_the_score_in_any_order(dataset: RepertoireDataset) -> None:
    branch = make_branch()
    for repertoire in dataset:
        contributions = branch.compute_contributions(repertoire)
        assert contributions.shape == (len(repertoire), 3)
        np.testing.assert_allclose(contributions.sum(axis=0), branch.score(repertoire), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        branch.compute_contributions(dataset[1])[::-1], branch.compute_contributions(dataset[0]), rtol=1e-12
    )
    assert branch.score(dataset[3]).tolist() == [0, 0, 0]


def test_the_table() -> None:
    table = make_branch().table(["a", "b", "c"])
    expected = {
        "junction_aa": ["CASSF", "CAWWF", "CASSF", "CDDDF"],
        "v_call": ["V1", "V1", "V1", "V2"],
        "j_call": ["J1", "J1", "J1", "J2"],
        "output": ["a", "a", "c", "c"],
        "direction": ["down", "down", "up", "up"],
        "match": ["one substitution", "exact", "exact", "one substitution"],
        "carriers_positive": [9, 7, pd.NA, pd.NA],
        "carriers_negative": [1, 2, pd.NA, pd.NA],
        "carriers": [pd.NA, pd.NA, 9, 7],
        "p_value": [1e-5, 1e-4] * 2,
        "q_value": [1e-3, 1e-2] * 2,
    }
    assert list(table) == list(expected)
    pd.testing.assert_frame_equal(table.astype(object), pd.DataFrame(expected).astype(object), check_dtype=False)


def test_clones_with_a_wildcard_by_hand(dataset: RepertoireDataset) -> None:
    """CAS-F is retrieved by CASSF (rows 0, 7) and CASTF (1), not by CAWSF (3) or with another V gene (2)."""
    clones = clone_set(("CASSF", "V1", "J1"), ("CDDDF", "V2", "J2"))
    matches, numbers = np.array([WILDCARD + 3, EXACT]), np.ones((2, 2), np.int64)
    branch = CloneBranch.of([Memory(0, "up", "odds", ALL, clones, matches, numbers, numbers * 0.01)], 1)
    branch = rebuilt(branch, 1)
    hits = branch.find_clones_in(dataset[0])
    assert (hits.rows.tolist(), hits.clones.tolist(), hits.mismatches.tolist()) == ([0, 1, 7], [0, 0, 0], [0, 1, 0])
    np.testing.assert_allclose(hits.evidence, (odds(1, 7) - odds(0, 7)) / 3)
    assert branch.score(dataset[0])[0] == pytest.approx(odds(1, 7))
    assert branch.table(["a"])["match"].tolist() == ["any residue at position 4", "exact"]


def test_similar_clones_by_hand(dataset: RepertoireDataset) -> None:
    """CAWTF differs in two residues from CASSF (rows 0, 7) and CAWWY (4), in one from CASTF (1) and CAWSF (3)."""
    clones = clone_set(("CAWTF", "V1", "J1"), ("CDDDF", "V2", "J2"), ("CAWTF", "V1", "J1"))
    matches, numbers = SUBSTITUTIONS + np.array([2, 0, 1]), np.ones((3, 2), np.int64)
    branch = CloneBranch.of([Memory(0, "up", "odds", ALL, clones, matches, numbers, numbers * 0.01)], 1)
    hits = branch.find_clones_in(dataset[0])
    found = set(zip(hits.rows.tolist(), hits.clones.tolist(), hits.mismatches.tolist(), strict=True))
    assert found == {(0, 0, 2), (7, 0, 2), (4, 0, 2), (1, 0, 1), (3, 0, 1), (1, 2, 1), (3, 2, 1)}
    assert branch.score(dataset[0])[0] == pytest.approx(odds(2, 7))
    shares = {0: (odds(2, 7) - odds(0, 7)) / 2 / 5, 2: (odds(2, 7) - odds(0, 7)) / 2 / 2}
    np.testing.assert_allclose(hits.evidence, [shares[clone] for clone in hits.clones.tolist()])
    words = ["up to 2 substitutions", "up to 0 substitutions", "up to 1 substitution"]
    assert branch.table(["a"])["match"].tolist() == words


def test_expanded_clones_by_hand() -> None:
    """Ten sequences, of which those with the count 9 are expanded; CASSF is there twice, once expanded."""
    rows = [("CASSF", 9), ("CASSF", 1), ("CAWWF", 9), *((f"CDD{letter}F", 1) for letter in "ACDEFGH")]
    table = pd.DataFrame(rows, columns=["junction_aa", "duplicate_count"])
    table = table.assign(repertoire_id="one", v_call=["V1", "V2", *["V1"] * 8], j_call="J1")
    low = table.assign(repertoire_id="two", duplicate_count=[1, 9, *[1] * 8])
    one, two = from_frame(pd.concat([table, low]))
    clones = clone_set(("CASSF", "V1", "J1"), ("CDDAF", "V1", "J1"))
    matches, numbers = np.array([EXPANDED, EXPANDED]), np.ones((2, 2), np.int64)
    up = Memory(0, "up", "odds", ALL, clones, matches, numbers, numbers * 0.01)
    exact = Memory(0, "down", "odds", ALL, clones, matches - EXPANDED, numbers, numbers * 0.01)
    branch = rebuilt(CloneBranch.of([up, exact], 1), 1)
    hits = branch.find_clones_in(one)
    assert set(zip(hits.rows.tolist(), hits.clones.tolist(), strict=True)) == {(0, 0), (0, 2), (3, 3)}
    # one of two expanded sequences, and two of ten different clones
    assert branch.score(one)[0] == pytest.approx(odds(1, 2) - odds(2, 10))
    assert branch.score(two)[0] == pytest.approx(odds(0, 1) - odds(2, 10))
    np.testing.assert_allclose(branch.compute_contributions(one).sum(), branch.score(one)[0])
    assert branch.table(["a"])["match"].tolist() == ["expanded", "expanded", "exact", "exact"]


def test_the_first_of_a_cluster() -> None:
    matches = np.array([EXACT, CLUSTER + 1, EXACT, CLUSTER, CLUSTER + 1])
    assert find_first_of_cluster(matches).tolist() == [0, 1, 2, 3, 1]


def test_members_of_a_cluster_count_together(dataset: RepertoireDataset) -> None:
    """CASSF and CAWSF are one cluster of two memories, CDDDF is another one; the counts of both memories are their own.

    CASSF is retrieved by the rows 0, 1, 3 and 7, CAWSF by 0, 3 and 7, and CDDDF by row 5.
    """
    clones = clone_set(("CASSF", "V1", "J1"), ("CDDDF", "V2", "J2"), ("CAWSF", "V1", "J1"))
    matches, numbers = np.array([CLUSTER, CLUSTER + 1, CLUSTER]), np.ones((3, 2), np.int64)
    up = Memory(0, "up", "odds", ALL, clones, matches, numbers, numbers * 0.01)
    down = Memory(0, "down", "odds", ALL, clones.take(np.array([2, 0])), matches[::2], numbers[1:], numbers[1:] * 0.01)
    branch = rebuilt(CloneBranch.of([up, down], 1), 1)
    hits = branch.find_clones_in(dataset[0])
    found = set(zip(hits.rows.tolist(), hits.clones.tolist(), hits.mismatches.tolist(), strict=True))
    of_clusters = {(0, 0, 0), (1, 0, 1), (3, 0, 1), (7, 0, 0), (0, 2, 1), (3, 2, 0), (7, 2, 1), (5, 1, 1)}
    assert found == of_clusters | {(row, {0: 4, 2: 3}[clone], n) for row, clone, n in of_clusters if clone != 1}
    two, one, none = odds(2, 7), odds(1, 7), odds(0, 7)
    # seven pairs with the first cluster, in each of the memories
    expected = np.array([(two - none) / 14, (two - none) / 2, (two - none) / 14, (none - one) / 7, (none - one) / 7])
    np.testing.assert_allclose(hits.evidence, expected[hits.clones])
    assert branch.score(dataset[0])[0] == pytest.approx(two - one)
    assert branch.table(["a"])["match"].tolist() == ["cluster 1", "cluster 2", "cluster 1", "cluster 1", "cluster 1"]


def test_clusters_that_a_sequence_connects_are_one(dataset: RepertoireDataset) -> None:
    """CASSF and CAWSF are two clusters, which the rows 0, 3 and 7 connect: together they are one of seven pairs."""
    clones = clone_set(("CASSF", "V1", "J1"), ("CDDDF", "V2", "J2"), ("CAWSF", "V1", "J1"))
    matches, numbers = CLUSTER + np.arange(3), np.ones((3, 2), np.int64)
    up = Memory(0, "up", "odds", ALL, clones, matches, numbers, numbers * 0.01)
    one = Memory(0, "down", "odds", ALL, clones.take(np.array([2])), matches[:1], numbers[:1], numbers[:1])
    branch = CloneBranch.of([up, one], 1)
    hits = branch.find_clones_in(dataset[0])
    two, single, none = odds(2, 7), odds(1, 7), odds(0, 7)
    expected = np.array([(two - none) / 14, (two - none) / 2, (two - none) / 14, (none - single) / 3])
    np.testing.assert_allclose(hits.evidence, expected[hits.clones])
    assert branch.score(dataset[0])[0] == pytest.approx(two - single)


def test_clones_count_on_the_levels_that_they_pass(dataset: RepertoireDataset) -> None:
    """CASSF (rows 0 and 7) passes both levels, CDDEF (row 5) only the looser one, and no sequence is CAWWF."""
    clones = clone_set(("CASSF", "V1", "J1"), ("CDDEF", "V2", "J2"), ("CAWWF", "V1", "J1"))
    numbers, p_values = np.ones((3, 2), np.int64), np.array([0.001, 0.02, 0.03])
    levels = [EvidenceLevel(0.1, 0.75, ODDS.ravel()), EvidenceLevel(0.01, 0.25, ODDS.ravel()[[0, 1, 2, 1]])]
    memory = Memory(0, "down", "odds", levels, clones, np.zeros(3, np.int64), numbers, np.stack([p_values] * 2, axis=1))
    branch = rebuilt(CloneBranch.of([memory], 1), 1)
    hits = branch.find_clones_in(dataset[0])
    loose = [0.75 * odds(k, 7) for k in range(3)]
    strict = (0.25 * compute_beta_binomial_log_odds(ODDS.ravel()[[0, 1, 2, 1]].reshape(2, 2), [0, 1], [7, 7])).tolist()
    both, loose_only = (loose[2] - loose[0]) / 2 + strict[1] - strict[0], (loose[2] - loose[0]) / 2
    assert (hits.rows.tolist(), hits.clones.tolist()) == ([0, 5, 7], [0, 1, 0])
    np.testing.assert_allclose(hits.evidence, [-both / 2, -loose_only, -both / 2])
    assert branch.score(dataset[0])[0] == pytest.approx(-(loose[2] + strict[1]))


def test_a_model_of_an_earlier_version_has_one_level(dataset: RepertoireDataset) -> None:
    branch = make_branch()
    described = json.loads(json.dumps(branch.describe()))
    for memory in described["memories"]:
        del memory["levels"]
    again = CloneBranch.from_description(described, 3, "m")
    again.load_state_dict(branch.state_dict())
    np.testing.assert_array_equal(again.compute_contributions(dataset[0]), branch.compute_contributions(dataset[0]))


def rebuilt(branch: CloneBranch, n_outputs: int = 3) -> CloneBranch:
    described = json.loads(json.dumps(branch.describe()))
    again = CloneBranch.from_description(described, n_outputs, "m.safetensors: branches: clones")
    again.load_state_dict(branch.state_dict())
    again.check("m.safetensors: clones")
    return again


def test_saved_and_copied_branches_are_the_same(dataset: RepertoireDataset) -> None:
    branch = make_branch()
    expected = branch.compute_contributions(dataset[0])
    assert {tensor.dtype for tensor in branch.state_dict().values()} == {torch.int64, torch.float64}
    for again in (rebuilt(branch), copy.deepcopy(branch)):
        np.testing.assert_array_equal(again.compute_contributions(dataset[0]), expected)
        pd.testing.assert_frame_equal(again.table(["a", "b", "c"]), branch.table(["a", "b", "c"]))
    changed = {**branch.state_dict(), "is_ball": torch.zeros(4, dtype=torch.int64)}
    branch.load_state_dict(changed)  # after it was used
    assert branch.find_clones_in(dataset[0]).mismatches.max() == 0


def test_a_container_without_the_genes(tmp_path: Path) -> None:
    without = write_repertoires(tmp_path / "v.h5", [[("CASSF", "V1", "J1")]], fields=1)
    with pytest.raises(InputError, match=r"v\.h5: has no j_call, with which the clones were learned"):
        make_branch().score(without[0])


def test_the_strongest_clones_count_on_levels_with_at_least_half_of_the_largest_weight(
    dataset: RepertoireDataset,
) -> None:
    """Weights of 1.0 for CASSF (rows 0, 7) and 0.5 for CDDEF (row 5), which is half of it; 0.4 for CAWSF (row 3)."""
    clones = clone_set(("CASSF", "V1", "J1"), ("CDDEF", "V2", "J2"), ("CAWSF", "V1", "J1"))
    numbers, parameters = np.ones((3, 2), np.int64), ODDS.ravel()
    first = [EvidenceLevel(0.1, 0.5, parameters), EvidenceLevel(0.01, 0.5, parameters)]
    other = [EvidenceLevel(0.6, 0.4, parameters)]
    tests = np.array([[0.001, 0.1], [0.05, 0.5], [0.5, 0.9]])
    memories = [
        Memory(0, "up", "odds", first, clones.take(np.array([0, 1])), np.zeros(2, np.int64), numbers[:2], tests[:2]),
        Memory(0, "up", "odds", other, clones.take(np.array([2])), np.zeros(1, np.int64), numbers[2:], tests[2:]),
    ]
    (found,) = CloneBranch.of(memories, 1).find_sequences_of_strongest(dataset[:1])
    assert found.tolist() == [0, 5, 7]
    down = memories[1]._replace(direction="down")
    (found,) = CloneBranch.of([memories[0], down], 1).find_sequences_of_strongest(dataset[:1])
    assert found.tolist() == [0, 3, 5, 7]
