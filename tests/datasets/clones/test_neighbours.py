"""Sequences within one substitution of a clone, against a comparison of every pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.neighbours import (
    ONE_SUBSTITUTION,
    SUBSTITUTIONS,
    WILDCARD,
    NeighbourSearch,
    find_neighbours,
)
from deeprc.datasets.dataset import Repertoire, RepertoireDataset, open_dataset
from deeprc.datasets.sequence_hash import hash_rows
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import (
    Cohort,
    GermlineBackground,
    SequencePool,
    SimulatedDataset,
    Sizes,
    write_container,
)
from deeprc.errors import InputError

Receptor = tuple[str, ...]


def receptors(sequences: Sequences, fields: tuple[str, ...]) -> list[Receptor]:
    return list(zip(sequences.decode(), *(sequences.genes[field].names() for field in fields), strict=True))


def receptors_of(repertoire: Repertoire, fields: tuple[str, ...]) -> list[Receptor]:
    frame = repertoire.to_frame()
    return list(zip(frame["junction_aa"], *(frame[field] for field in fields), strict=True))


def expected(repertoire: Repertoire, clones: CloneSet, max_mismatches: int = 1) -> set[tuple[int, int, int]]:
    fields = tuple(clones.sequences.genes)
    found = set()
    for row, (junction, *genes) in enumerate(receptors_of(repertoire, fields)):
        for clone, (other, *others) in enumerate(receptors(clones.sequences, fields)):
            if genes == others and len(junction) == len(other):
                mismatches = sum(a != b for a, b in zip(junction, other, strict=True))
                if mismatches <= max_mismatches:
                    found.add((row, clone, mismatches))
    return found


def clones_of(repertoire: Repertoire, n: int, fields: tuple[str, ...]) -> CloneSet:
    store = repertoire.container.sequences
    some = store.slice(repertoire.start, repertoire.start + n)
    some = some.with_genes({field: some.genes[field] for field in fields})
    first = {receptor: row for row, receptor in reversed(list(enumerate(receptors(some, fields))))}
    return CloneSet(some.take(np.array(sorted(first.values()))))


@pytest.mark.parametrize("mask", [2**64 - 1, 0b111, 0])
@pytest.mark.parametrize("fields", [(), ("v_call",), ("v_call", "j_call")])
def test_all_neighbours_are_found_once(cohort: RepertoireDataset, fields: tuple[str, ...], mask: int) -> None:
    clones = clones_of(cohort[0], 40, fields)
    kinds = set()
    for repertoire, found in zip(cohort, find_neighbours(clones, cohort, mask=mask), strict=True):
        pairs = list(zip(*(column.tolist() for column in found), strict=True))
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) == expected(repertoire, clones)
        assert (np.diff(found.rows) >= 0).all()
        kinds |= set(found.mismatches.tolist())
    assert kinds == {0, 1}


@pytest.mark.parametrize("mask", [2**64 - 1, 0b111])
def test_clones_whose_neighbours_do_not_count(cohort: RepertoireDataset, mask: int) -> None:
    clones = clones_of(cohort[0], 40, ("v_call",))
    near = (np.arange(len(clones)) % 3 == 0).astype(np.int64)  # ONE_SUBSTITUTION or EXACT
    n_left_out = 0
    for repertoire, found in zip(cohort, find_neighbours(clones, cohort, near, mask=mask), strict=True):
        pairs = set(zip(*(column.tolist() for column in found), strict=True))
        every = expected(repertoire, clones)
        assert pairs == {pair for pair in every if pair[2] == 0 or near[pair[1]]}
        n_left_out += len(every) - len(pairs)
    assert n_left_out > 10


@pytest.mark.parametrize("mask", [2**64 - 1, 0b111])
@pytest.mark.parametrize("fields", [(), ("v_call", "j_call")])
def test_a_clone_with_a_wildcard_matches_any_residue_there(
    cohort: RepertoireDataset, fields: tuple[str, ...], mask: int
) -> None:
    clones = clones_of(cohort[0], 40, fields)
    junctions = clones.sequences.decode()
    wildcards = np.array([3 + at % (len(junction) - 3) for at, junction in enumerate(junctions)])
    n_left_out, n_found = 0, 0
    for repertoire, found in zip(cohort, find_neighbours(clones, cohort, WILDCARD + wildcards, mask=mask), strict=True):
        own, every = repertoire.to_frame()["junction_aa"], expected(repertoire, clones)
        wanted = {
            (row, clone, mismatches)
            for row, clone, mismatches in every
            if mismatches == 0 or own[row][wildcards[clone]] != junctions[clone][wildcards[clone]]
        }
        assert set(zip(*(column.tolist() for column in found), strict=True)) == wanted
        n_left_out, n_found = n_left_out + len(every) - len(wanted), n_found + int(found.mismatches.sum())
    assert min(n_left_out, n_found) > 10


@pytest.mark.parametrize("mask", [2**64 - 1, 0b111])
@pytest.mark.parametrize("fields", [(), ("v_call", "j_call")])
def test_clones_that_are_matched_with_several_substitutions(
    cohort: RepertoireDataset, fields: tuple[str, ...], mask: int
) -> None:
    """Up to 0, 1, 2 or 3 substitutions, and every fifth clone by another search, with one."""
    clones = clones_of(cohort[0], 40, fields)
    limits = np.arange(len(clones)) % 4
    is_other = np.arange(len(clones)) % 5 == 0
    matches = np.where(is_other, ONE_SUBSTITUTION, SUBSTITUTIONS + limits)
    limits[is_other] = 1
    kinds: set[int] = set()
    for repertoire, found in zip(cohort, find_neighbours(clones, cohort, matches, mask=mask), strict=True):
        pairs = list(zip(*(column.tolist() for column in found), strict=True))
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) == {pair for pair in expected(repertoire, clones, 3) if pair[2] <= limits[pair[1]]}
        assert (np.diff(found.rows) >= 0).all()
        kinds |= set(found.mismatches.tolist())
    assert kinds >= {0, 1, 2}


def test_one_repertoire_is_searched_in_chunks(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    clones = clones_of(cohort[0], 40, ("v_call", "j_call"))
    hashes, same_hashes = np.empty((2, len(cohort[1])), np.uint64)
    whole = NeighbourSearch(clones).find_in(cohort[1], hashes)
    expected_hashes = hash_rows(cohort[1].sequences.arrays(("v_call", "j_call")), np.arange(len(cohort[1])))
    np.testing.assert_array_equal(hashes, expected_hashes)
    monkeypatch.setattr("deeprc.datasets.clones.neighbours._BLOCK", 7)
    again = NeighbourSearch(clones).find_in(cohort[1], same_hashes)
    without_hashes = NeighbourSearch(clones).find_in(cohort[1])
    for some, column in zip((*again, same_hashes, *without_hashes), (*whole, hashes, *whole), strict=True):
        np.testing.assert_array_equal(some, column)
    assert len(whole.rows) > 10


def test_pairs_beyond_the_first_capacity_are_found(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    clones = clones_of(cohort[0], 300, ())
    first = next(iter(find_neighbours(clones, cohort)))
    assert len(first.rows) > 1024  # the room grows several times
    monkeypatch.setattr("deeprc.datasets.clones.neighbours._FIRST_CAPACITY", 2)
    again = next(iter(find_neighbours(clones, cohort)))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert len(first.rows) == len(expected(cohort[0], clones))


def test_a_simulated_cohort_and_its_container_agree(tmp_path: Path) -> None:
    simulated = Cohort(3, Sizes(200), GermlineBackground(1, 2), seed=3)
    write_container(simulated, tmp_path / "c.h5")
    on_disk, virtual = open_dataset(tmp_path / "c.h5"), SimulatedDataset(simulated)
    clones = clones_of(on_disk[1], 30, ("v_call", "j_call"))
    pairs = zip(find_neighbours(clones, on_disk), find_neighbours(clones, virtual), strict=True)
    for first, second in pairs:
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_genes_that_a_container_does_not_know(cohort: RepertoireDataset) -> None:
    clones = clones_of(cohort[0], 5, ("v_call",))
    assert clones.sequences.v_call is not None
    names = tuple(f"{name}-unknown" for name in clones.sequences.v_call.vocabulary)
    renamed = type(clones.sequences.v_call)(clones.sequences.v_call.codes, names)
    strangers = CloneSet(clones.sequences.with_genes({"v_call": renamed}))
    assert [len(found.rows) for found in find_neighbours(strangers, cohort)] == [0] * 5


def test_clones_of_one_residue_are_found_and_no_clones_match_nothing(tmp_path: Path) -> None:
    none = CloneSet(Sequences.encode([]))
    assert [len(found.rows) for found in find_neighbours(none, SimulatedDataset(Cohort(2)))] == [0, 0]
    clones = CloneSet(Sequences.encode(["A", "CC"]))
    (tmp_path / "list.txt").write_text("A\nC\nCC\nCD\nDC\nDD\n")
    one = SimulatedDataset(Cohort(1, Sizes(6), SequencePool(tmp_path / "list.txt")))
    (found,) = find_neighbours(clones, one)
    assert set(zip(*(column.tolist() for column in found), strict=True)) == expected(one[0], clones)
    assert len(found.rows) == 5


def test_a_container_without_the_genes_is_refused(tmp_path: Path, cohort: RepertoireDataset) -> None:
    write_container(Cohort(2, Sizes(20)), tmp_path / "plain.h5")
    plain = open_dataset(tmp_path / "plain.h5")
    with pytest.raises(InputError, match="has no v_call, with which the clones were learned"):
        list(find_neighbours(clones_of(cohort[0], 5, ("v_call",)), plain))
