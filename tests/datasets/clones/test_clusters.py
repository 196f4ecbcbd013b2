"""Clusters of clones against a search with a dictionary, and where they are not sought."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from deeprc.datasets.clones import clusters, hashed_sequences
from deeprc.datasets.clones.clusters import CloneClusters, find_clone_clusters
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.simulation import Cohort, GermlineBackground, SimulatedDataset, Sizes, write_container
from deeprc.errors import InputError
from tests.toys.clone_cohorts import write_repertoires

Found = dict[frozenset[tuple[str, ...]], list[int]]


def find_with_dictionary(dataset: RepertoireDataset, fields: Sequence[str]) -> Found:
    """Return the carriers of each cluster, by its members, which are spread step by step from each clone."""
    carriers = defaultdict(set)
    for index, repertoire in zip(dataset.repertoire_indices.tolist(), dataset, strict=True):
        frame = repertoire.to_frame()
        for clone in zip(frame["junction_aa"], *(frame[field] for field in fields), strict=True):
            carriers[clone].add(index)
    with_gap = defaultdict(set)
    for clone in carriers:
        for key in list_keys(clone):
            with_gap[key].add(clone)
    found: Found = {}
    left = set(carriers)
    while left:
        members, new = set(), {left.pop()}
        while new:
            members |= new
            new = {other for clone in new for key in list_keys(clone) for other in with_gap[key]} - members
        left -= members
        carrying = sorted(set().union(*(carriers[clone] for clone in members)))
        if len(carrying) >= 2:
            found[frozenset(members)] = carrying
    return found


def list_keys(clone: tuple[str, ...]) -> list[tuple[str, ...]]:
    junction, *genes = clone
    return [(f"{junction[:p]}-{junction[p + 1 :]}", *genes) for p in range(len(junction))]


def to_dictionary(found: CloneClusters | None, dataset: RepertoireDataset, fields: Sequence[str]) -> Found:
    assert found is not None
    assert (np.diff(found.representative) > 0).all()
    result: Found = {}
    for m in range(len(found)):
        rows, index = found.list_members(np.array([m]))
        assert rows[0] == found.representative[m]
        assert (index == 0).all()
        sequences = dataset.take_clones(rows, fields)
        members = list(zip(sequences.decode(), *(sequences.genes[field].names() for field in fields), strict=True))
        assert len(set(members)) == len(members)
        result[frozenset(members)] = found.carriers[found.offsets[m] : found.offsets[m + 1]].tolist()
    assert len(result) == len(found)
    return result


@pytest.mark.parametrize("fields", [(), ("v_call",), ("v_call", "j_call")])
def test_clusters_equal_those_of_a_dictionary(cohort: RepertoireDataset, fields: tuple[str, ...]) -> None:
    found = to_dictionary(find_clone_clusters(cohort, fields), cohort, fields)
    assert found == find_with_dictionary(cohort, fields)
    assert len(found) > 10
    assert max(map(len, found)) > 2


def test_only_the_repertoires_of_the_dataset_are_searched_each_once(cohort: RepertoireDataset) -> None:
    some = cohort[np.array([3, 1, 3])]
    found = to_dictionary(find_clone_clusters(some), cohort, ())
    assert found == find_with_dictionary(cohort[np.array([1, 3])], ())
    assert {tuple(carriers) for carriers in found.values()} == {(1, 3)}


def test_clusters_of_three_repertoires_by_hand(tmp_path: Path) -> None:
    repertoires = [
        ["CASSLRGEQYF", "CASSLRGEQYF", "CASSF", "CDDDF"],
        ["CASSLKGEQYF", "CDDDF"],
        ["CATSLKGEQYF", "CATSLKGDQYF", "CASSFF"],
        ["CATSLKGDQYW"],
        [],
    ]
    dataset = write_repertoires(
        tmp_path / "c.h5", [[(junction, "V1", "J1") for junction in own] for own in repertoires]
    )
    found = to_dictionary(find_clone_clusters(dataset, ("v_call",)), dataset, ("v_call",))
    chain = ("CASSLRGEQYF", "CASSLKGEQYF", "CATSLKGEQYF", "CATSLKGDQYF", "CATSLKGDQYW")
    assert found == {frozenset((each, "V1") for each in chain): [0, 1, 2, 3], frozenset({("CDDDF", "V1")}): [0, 1]}
    # without the second repertoire the chain is broken, and the third and the fourth one are connected
    rest = dataset[np.array([0, 2, 3])]
    assert to_dictionary(find_clone_clusters(rest), dataset, ()) == {frozenset((each,) for each in chain[2:]): [2, 3]}
    assert to_dictionary(find_clone_clusters(dataset[4:]), dataset, ()) == {}
    assert to_dictionary(find_clone_clusters(dataset[:0]), dataset, ()) == {}


def test_members_of_several_clusters_are_listed_in_the_order_asked(cohort: RepertoireDataset) -> None:
    found = find_clone_clusters(cohort)
    assert found is not None
    rows, index = found.list_members(np.array([5, 2, 5]))
    one = [found.list_members(np.array([m]))[0].tolist() for m in (5, 2)]
    assert rows.tolist() == [*one[0], *one[1], *one[0]]
    assert index.tolist() == [0] * len(one[0]) + [1] * len(one[1]) + [2] * len(one[0])


def test_large_clusters_are_left_out(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    every = to_dictionary(find_clone_clusters(cohort), cohort, ())
    monkeypatch.setattr(clusters, "MAX_MEMBERS", 2)
    some = to_dictionary(find_clone_clusters(cohort), cohort, ())
    assert some == {members: carriers for members, carriers in every.items() if len(members) <= 2}
    assert 0 < len(some) < len(every)


def test_the_number_of_positions_at_a_time_changes_nothing(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = find_clone_clusters(cohort)
    monkeypatch.setattr(clusters, "_SEQUENCES_AT_ONCE", 1)
    found = find_clone_clusters(cohort)
    assert found is not None
    assert expected is not None
    for name, values in vars(expected).items():
        np.testing.assert_array_equal(getattr(found, name), values)


def test_a_simulated_cohort_has_the_clusters_of_its_container(tmp_path: Path) -> None:
    simulated = Cohort(4, Sizes(200, 50, 50), GermlineBackground(1, 2), seed=3)
    write_container(simulated, tmp_path / "c.h5")
    on_disk, virtual = open_dataset(tmp_path / "c.h5"), SimulatedDataset(simulated)
    fields = ("v_call", "j_call")
    expected = to_dictionary(find_clone_clusters(on_disk, fields), on_disk, fields)
    assert to_dictionary(find_clone_clusters(virtual, fields), virtual, fields) == expected


def test_large_cohorts_are_not_searched(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed_sequences, "MAX_SEQUENCES", int(cohort.container.repertoire_offsets[2]))
    assert find_clone_clusters(cohort[:2]) is not None
    assert find_clone_clusters(cohort[:3]) is None


def test_genes_that_a_container_lacks_are_refused(tmp_path: Path) -> None:
    plain = write_repertoires(tmp_path / "c.h5", [[("CASSLRGEQYF", "V1", "J1")]] * 2, fields=0)
    with pytest.raises(InputError, match="v_call"):
        find_clone_clusters(plain, ("v_call",))
