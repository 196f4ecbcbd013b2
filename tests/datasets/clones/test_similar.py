"""Similar clones against a search that compares every pair, and where they are not looked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.clones import hashed_sequences, similar
from deeprc.datasets.clones.similar import SimilarClones, find_similar_clones
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequence_hash import hash_lengths_and_genes, hash_rows
from deeprc.datasets.simulation import Cohort, GermlineBackground, SimulatedDataset, Sizes, write_container
from deeprc.errors import InputError
from tests.toys.clone_cohorts import write_repertoires

Clone = tuple[str, ...]
GENES = ("v_call", "j_call")


def are_similar(clone: Clone, other: Clone, residues_per_mismatch: int) -> bool:
    if len(clone[0]) != len(other[0]) or clone[1:] != other[1:]:
        return False
    return sum(a != b for a, b in zip(clone[0], other[0], strict=True)) <= len(clone[0]) // residues_per_mismatch


def find_by_comparing(dataset: RepertoireDataset, fields: Sequence[str], number: int) -> dict[Clone, list[int]]:
    """Return the carriers of each centre: centres are chosen one after the other, the one with most carriers first."""
    carriers, tie_breaks = defaultdict(set), {}
    for index, repertoire in zip(dataset.repertoire_indices.tolist(), dataset, strict=True):
        arrays, every = repertoire.sequences.arrays(()), np.arange(len(repertoire))
        hashes = hash_rows(arrays, every) ^ hash_lengths_and_genes(arrays, every)
        frame = repertoire.to_frame()
        for *clone, residue_hash in zip(frame["junction_aa"], *(frame[field] for field in fields), hashes, strict=True):
            carriers[tuple(clone)].add(index)
            tie_breaks[tuple(clone)] = residue_hash
    groups = defaultdict(list)
    for clone in carriers:
        groups[(len(clone[0]), *clone[1:])].append(clone)
    found = {}
    for group in groups.values():
        near = {clone: [other for other in group if are_similar(clone, other, number)] for clone in group}
        carried = {clone: set().union(*(carriers[other] for other in near[clone])) for clone in group}
        left = set(group)
        for clone in sorted(group, key=lambda clone: (-len(carried[clone]), tie_breaks[clone])):
            if clone in left and len(carried[clone]) > 1:
                left -= set(near[clone])
                found[clone] = sorted(carried[clone])
    return found


def to_dictionary(found: SimilarClones, dataset: RepertoireDataset, fields: Sequence[str]) -> dict[Clone, list[int]]:
    assert (np.diff(found.representative) > 0).all()
    sequences = dataset.take_clones(found.representative, fields)
    clones = list(zip(sequences.decode(), *(sequences.genes[field].names() for field in fields), strict=True))
    carriers = [own.tolist() for own in np.split(found.carriers, found.offsets[1:-1])] if len(found) else []
    return dict(zip(clones, carriers, strict=True))


def find(dataset: RepertoireDataset, fields: Sequence[str], number: int) -> dict[Clone, list[int]]:
    found = find_similar_clones(dataset, fields, [number])
    assert found is not None
    (clones,) = found
    result = to_dictionary(clones, dataset, fields)
    np.testing.assert_array_equal(clones.max_mismatches, [len(clone[0]) // number for clone in result])
    return result


@pytest.mark.parametrize("fields", [(), GENES])
@pytest.mark.parametrize("number", [6, 4])
def test_similar_clones_equal_those_of_all_comparisons(
    cohort: RepertoireDataset, fields: tuple[str, ...], number: int
) -> None:
    dataset = cohort[np.array([3, 0, 2, 3])]
    found = find(dataset, fields, number)
    assert found == find_by_comparing(dataset[[1, 2, 0]], fields, number)
    assert len(found) > 10
    assert max(map(len, found.values())) == 3


def test_similar_clones_by_hand(tmp_path: Path) -> None:
    """Of 12 residues, 2 may differ if the number is 6.

    The second clone is similar to the first and the third, and so has three carriers. The first and the third have two
    carriers, but are similar to a centre. The fourth is similar to no other, and two repertoires have it.
    """
    repertoires = [
        [("CARWWWWWWDYW", "V1", "J1"), ("CARDDDDDDDYW", "V1", "J1")],
        [("CARYYWWWWDYW", "V1", "J1")],
        [("CARYYYYWWDYW", "V1", "J1"), ("CARDDDDDDDYW", "V2", "J1")],
        [("CARYYYYYYEEW", "V1", "J1"), ("CARDDDDDDDYWW", "V1", "J1")],
        [("CARYYYYYYEEW", "V1", "J1")],
        [],
    ]
    dataset = write_repertoires(tmp_path / "c.h5", repertoires)
    shared = {("CARYYYYYYEEW", "V1", "J1"): [3, 4]}
    assert find(dataset, GENES, 6) == {("CARYYWWWWDYW", "V1", "J1"): [0, 1, 2], **shared}
    assert find(dataset, GENES, 13) == shared
    assert find(dataset[[0, 2, 3, 4, 5]], GENES, 6) == shared
    assert find(dataset[4:], GENES, 6) == {}
    assert find(dataset[:0], GENES, 6) == {}


def test_long_junctions_are_compared_to_their_end(tmp_path: Path) -> None:
    """Junctions of 255 residues that all differ: as many differences as a byte can count."""
    repertoires = [[("W" * 255, "V1", "J1")], [("D" * 255, "V1", "J1")], [("W" * 240 + "D" * 15, "V1", "J1")]]
    dataset = write_repertoires(tmp_path / "c.h5", repertoires)
    assert find(dataset, GENES, 17) == {("W" * 255, "V1", "J1"): [0, 2]}  # 15 of 255
    assert find(dataset, GENES, 18) == {}
    assert find(dataset, GENES, 1) == {("W" * 255, "V1", "J1"): [0, 1, 2]}


def test_the_order_of_the_repertoires_does_not_matter(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    repertoires = [
        [(f"CAR{''.join(loop)}DYW", v_call, "J1") for loop, v_call in zip(loops, v_calls, strict=True)]
        for loops, v_calls in zip(rng.choice(list("DEG"), (5, 40, 5)), rng.choice(["V1", "V2"], (5, 40)), strict=True)
    ]
    dataset = write_repertoires(tmp_path / "c.h5", repertoires)
    reverse = write_repertoires(tmp_path / "r.h5", [own[::-1] for own in repertoires[::-1]])
    expected = {clone: [4 - index for index in reversed(own)] for clone, own in find(reverse, GENES, 4).items()}
    assert find(dataset, GENES, 4) == expected
    assert len(expected) > 5


def test_several_numbers_are_searched_together(cohort: RepertoireDataset) -> None:
    found = find_similar_clones(cohort, GENES, [6, 4])
    assert found is not None
    for clones, number in zip(found, [6, 4], strict=True):
        assert to_dictionary(clones, cohort, GENES) == find(cohort, GENES, number)


def test_a_simulated_cohort_has_those_of_its_container(tmp_path: Path) -> None:
    simulated = Cohort(4, Sizes(200, 50, 50), GermlineBackground(1, 2), seed=3)
    write_container(simulated, tmp_path / "c.h5")
    assert find(SimulatedDataset(simulated), GENES, 4) == find(open_dataset(tmp_path / "c.h5"), GENES, 4)


def test_large_cohorts_are_not_searched(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.concat([repertoire.to_frame() for repertoire in cohort[:2]])
    different = table.assign(length=table["junction_aa"].str.len()).drop_duplicates(["junction_aa", *GENES])
    n_comparisons = int((different.groupby(["length", *GENES]).size() ** 2).sum())
    monkeypatch.setattr(similar, "MAX_COMPARISONS", n_comparisons)
    assert find_similar_clones(cohort[:2], GENES, [6]) is not None
    monkeypatch.setattr(similar, "MAX_COMPARISONS", n_comparisons - 1)
    assert find_similar_clones(cohort[:2], GENES, [6]) is None
    monkeypatch.undo()
    monkeypatch.setattr(hashed_sequences, "MAX_SEQUENCES", int(cohort.container.repertoire_offsets[2]) - 1)
    assert find_similar_clones(cohort[:2], GENES, [6]) is None


def test_genes_that_a_container_lacks_are_refused(tmp_path: Path) -> None:
    plain = write_repertoires(tmp_path / "c.h5", [[("CASSLRGEQYF", "V1", "J1")]] * 2, fields=0)
    with pytest.raises(InputError, match="v_call"):
        find_similar_clones(plain, GENES, [6])
