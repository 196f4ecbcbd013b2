"""Probabilities of junctions against a dictionary of counts, and overshared clones against Poisson's distribution."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from deeprc.branches import junction_model, overshared_clones
from deeprc.branches.junction_model import JunctionModel, compute_log_probabilities
from deeprc.branches.overshared_clones import compute_clone_probabilities, find_frequent_clones, find_overshared_clones
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import Sequences
from tests.toys.clone_cohorts import write_repertoires

LETTERS = list(AMINO_ACIDS)


def write(path: Path, repertoires: list[list[str]]) -> RepertoireDataset:
    return write_repertoires(path, [[(junction, "TRBV1", "TRBJ1") for junction in own] for own in repertoires])


def draw_junctions(seed: int, n: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(LETTERS[:5], rng.integers(1, 22))) for _ in range(n)]


class NaiveChain:
    """The same chain, from counts of texts."""

    def __init__(self, junctions: list[str]) -> None:
        self.lengths = Counter(map(len, junctions))
        self.counts = Counter(
            (self.place(i, junction), before[3 - order :], letter)
            for junction in junctions
            for i, letter in enumerate(junction)
            for before in [("   " + junction)[i : i + 3]]
            for order in range(4)
        )

    def place(self, i: int, junction: str) -> str:
        if i < 6:
            return f"start {i}"
        return f"end {len(junction) - i}" if len(junction) - i <= 7 else "middle"

    def residue(self, place: str, before: str, letter: str) -> float:
        of_context = {each: self.counts[place, before, each] for each in LETTERS}
        if before == "":
            return (of_context[letter] + 1) / (sum(of_context.values()) + 20)
        shorter = self.residue(place, before[1:], letter)
        return (of_context[letter] + 20 * shorter) / (sum(of_context.values()) + 20)

    def log_probability(self, junction: str) -> float:
        n = sum(self.lengths.values()) + 0.5 * 64
        of_residues = [
            self.residue(self.place(i, junction), ("   " + junction)[i : i + 3], letter)
            for i, letter in enumerate(junction)
        ]
        return float(np.log(of_residues).sum() + np.log((self.lengths[len(junction)] + 0.5) / n))


def test_probabilities_are_those_of_a_chain_of_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junction_model, "_BLOCK", 37)
    junctions = draw_junctions(0, 150)
    dataset = write(tmp_path / "c.h5", [junctions[:50], junctions[50:60], junctions[60:]])
    model, naive = JunctionModel.fit(dataset), NaiveChain(junctions)
    tested = [*junctions[:20], "A", "WWWWWWWWWWWWWWWWWW", "CAC"]
    expected = [naive.log_probability(junction) for junction in tested]
    none = np.zeros(len(tested), np.int64)
    np.testing.assert_allclose(model.compute_log_probabilities(Sequences.encode(tested), none), expected, rtol=1e-9)
    # its own copies do not count; "CEDACDE" has no context twice
    without, copies = NaiveChain([*junctions, *3 * ["CEDACDE"]]), np.array([3, 0])
    with_copies = JunctionModel.fit(write(tmp_path / "with.h5", [[*junctions, *3 * ["CEDACDE"]]]))
    computed = with_copies.compute_log_probabilities(Sequences.encode(["CEDACDE", "CEDACDE"]), copies)
    np.testing.assert_allclose(computed, [each.log_probability("CEDACDE") for each in (naive, without)], rtol=1e-9)
    rows = np.array([3, 140, 0, 77])
    stored = compute_log_probabilities(model, dataset, rows, np.zeros(4, np.int64))
    np.testing.assert_allclose(stored, [naive.log_probability(junctions[row]) for row in rows], rtol=1e-9)
    reordered = JunctionModel.fit(dataset[[2, 0, 1]])
    assert all((a == b).all() for a, b in zip(reordered.counts, model.counts, strict=True))


def test_the_probabilities_of_all_junctions_of_a_length_sum_to_that_of_the_length(tmp_path: Path) -> None:
    dataset = write(tmp_path / "c.h5", [["CAS", "CAF", "CA", "S"]])
    everything = Sequences.encode(["".join(pair) for pair in product(LETTERS, repeat=2)])
    total = np.exp(JunctionModel.fit(dataset).compute_log_probabilities(everything, np.zeros(400, np.int64))).sum()
    assert total == pytest.approx((1 + 0.5) / (4 + 0.5 * 64))


def test_of_many_sequences_those_in_even_distances_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    junctions = draw_junctions(1, 21)
    dataset = write(tmp_path / "c.h5", [junctions[:10], junctions[10:]])
    monkeypatch.setattr(junction_model, "_MAX_SEQUENCES", 10)  # every third one
    few = write(tmp_path / "few.h5", [junctions[:10:3], junctions[10::3]])
    assert (JunctionModel.fit(dataset).counts[-1] == JunctionModel.fit(few).counts[-1]).all()


@pytest.mark.parametrize("donors", [None, np.arange(30) // 2], ids=["no donors", "donors"])
def test_overshared_clones_have_more_carriers_than_poisson_explains(tmp_path: Path, donors: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    rare = ["CASSWYWHMEQYF", "CASRPKDNQMCIF", "CATTVVHHPQYFF"]
    n_of_rare = [3, 3, 2]
    repertoires = [["CASS" + "".join(rng.choice(list("GS"), 5)) + "EQYF" for _ in range(20)] for _ in range(30)]
    for junction, n in zip(rare, n_of_rare, strict=True):
        for index in range(n):
            repertoires[3 * index].append(junction)  # different donors: 0, 3, 6 and 9 are not neighbours
    dataset = write(tmp_path / "c.h5", [sorted(set(own)) for own in repertoires])
    clones = find_shared_clones(dataset, ("v_call",))
    probabilities = compute_clone_probabilities(clones, dataset)
    found = find_overshared_clones(clones, probabilities, dataset, donors)
    donor_of = np.arange(30) if donors is None else donors
    n_carriers = np.array(
        [len(set(donor_of[clones.carriers[a:b]])) for a, b in zip(clones.offsets[:-1], clones.offsets[1:], strict=True)]
    )
    expected = probabilities * dataset.n_sequences.sum()
    for chosen, fewer in ((found.all, 0), (found.without_any_carrier, 1)):
        p_values = stats.poisson.sf(n_carriers - fewer - 1, expected)
        is_chosen = (p_values < 1e-8) & (n_carriers - fewer >= 2)
        np.testing.assert_array_equal(chosen.representative, clones.representative[is_chosen])
    names = [dataset.take_clones(each.representative).decode() for each in found]
    assert set(names[0]) == set(rare)
    assert set(names[1]) == set(rare[:2])


def test_two_samples_of_one_donor_are_not_two_donors(tmp_path: Path) -> None:
    """Whatever their labels: the repertoires before and after a treatment share clones that nobody else has."""
    rng = np.random.default_rng(0)
    own = [["CASS" + "".join(rng.choice(LETTERS, 8)) + "EQYF" for _ in range(3)] for _ in range(10)]
    probable = [["CASS" + "".join(rng.choice(list("GS"), 5)) + "EQYF" for _ in range(20)] for _ in range(20)]
    rare = ["CASSWYWHMEQYF"]  # in one sample of each of two donors
    repertoires = [sorted({*probable[i], *own[i // 2], *(rare if i in (0, 3) else [])}) for i in range(20)]
    dataset = write(tmp_path / "c.h5", repertoires)
    clones = find_shared_clones(dataset)
    probabilities = compute_clone_probabilities(clones, dataset)

    def find(rows: list[int], donors: list[int] | None) -> set[str]:
        groups = None if donors is None else np.array(donors)
        found = find_overshared_clones(clones, probabilities, dataset[rows], groups)
        return set(dataset.take_clones(found.all.representative).decode())

    everything, pairs = list(range(20)), [i // 2 for i in range(20)]
    assert find(everything, pairs) == set(rare)
    assert find(everything, None) == {*rare, *(junction for of_donor in own for junction in of_donor)}
    assert find([0, 0, 5, 7], None) == set()  # a repertoire that is given twice is one
    twice = dataset[[*everything, *everything]]  # all four copies of a sequence are its own
    expected = JunctionModel.fit(twice).compute_log_probabilities(Sequences.encode(rare), np.array([4]))
    index = dataset.take_clones(clones.representative).decode().index(rare[0])
    assert np.log(compute_clone_probabilities(clones, twice)[index]) == pytest.approx(expected[0])


def test_a_selection_of_clones_has_their_carriers(tmp_path: Path) -> None:
    dataset = write(tmp_path / "c.h5", [["CAA", "CAC"], ["CAA", "CAD", "CAC"], ["CAD", "CAA"]])
    clones = find_shared_clones(dataset)
    assert dataset.take_clones(clones.representative).decode() == ["CAA", "CAC", "CAD"]
    selected = clones.select(np.array([2, 0]))
    assert dataset.take_clones(selected.representative).decode() == ["CAD", "CAA"]
    assert (selected.offsets.tolist(), selected.carriers.tolist()) == ([0, 2, 5], [1, 2, 0, 1, 2])
    assert len(clones.select(np.zeros(0, np.int64))) == 0


def test_frequent_clones_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six clones of two to five repertoires, of which donors 0 and 1 have two each."""
    carriers = {
        "CAAF": [0, 1],
        "CACF": [0, 1, 2],
        "CADF": [2, 4, 5],
        "CAEF": [0, 2, 4, 5],
        "CAGF": [1, 3, 4],
        "CAHF": [0, 2, 3, 4, 5],
    }
    dataset = write(tmp_path / "c.h5", [[name for name in carriers if i in carriers[name]] for i in range(6)])
    shared = find_shared_clones(dataset, ())

    def find(groups: np.ndarray | None = None) -> list[tuple[set[str], set[str]]]:
        found = find_frequent_clones(shared, dataset, groups)
        return [
            (
                set(dataset.take_clones(clones.all.representative).decode()),
                set(dataset.take_clones(clones.without_any_carrier.representative).decode()),
            )
            for clones in found
        ]

    at_least_three = {"CACF", "CADF", "CAEF", "CAGF", "CAHF"}
    assert find() == [(at_least_three, {"CAEF", "CAHF"})] * 2
    monkeypatch.setattr(overshared_clones, "_MAX_FREQUENT", (4, 1))
    assert find() == [({"CAEF", "CAHF"}, {"CAHF"}), ({"CAHF"}, set())]
    # repertoires 0 and 1 are of one donor, and 2 and 3 of another one: of CAGF there are three donors, of CACF two
    donors = np.array([0, 0, 1, 1, 2, 3])
    assert find(donors) == [({"CADF", "CAEF", "CAGF", "CAHF"}, {"CAEF", "CAHF"}), (set(), set())]
    monkeypatch.setattr(overshared_clones, "_MAX_FREQUENT", (0, 10))
    assert find()[0] == (set(), set())
