"""Wildcard clones against a search with a dictionary, and where they are not sought."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones import hashed_sequences
from deeprc.datasets.clones.wildcards import WildcardClones, find_wildcard_clones
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.joining import join
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import Cohort, GermlineBackground, SimulatedDataset, Sizes, write_container
from deeprc.errors import InputError
from tests.toys.clone_cohorts import write_repertoires

Found = dict[tuple[object, ...], list[int]]


def find_with_dictionary(dataset: RepertoireDataset, fields: Sequence[str]) -> Found:
    """Return the carriers of each wildcard clone: junction with a dash, genes, and its first residue there."""
    residues, carriers = defaultdict(set), defaultdict(set)
    for index, repertoire in zip(dataset.repertoire_indices.tolist(), dataset, strict=True):
        frame = repertoire.to_frame()
        for junction, *genes in zip(frame["junction_aa"], *(frame[field] for field in fields), strict=True):
            for p in range(3, len(junction) - 3):
                key = f"{junction[:p]}-{junction[p + 1 :]}", *genes
                residues[key].add(junction[p])
                carriers[key].add(index)
    return {
        (*key, min(residues[key])): sorted(carriers[key])
        for key in carriers
        if len(carriers[key]) >= 2 and len(residues[key]) >= 2
    }


def to_dictionary(found: WildcardClones | None, dataset: RepertoireDataset, fields: Sequence[str]) -> Found:
    assert found is not None
    sequences = dataset.take_clones(found.representative, fields)
    names = [sequences.genes[field].names() for field in fields]
    result: Found = {}
    for m, (junction, *genes) in enumerate(zip(sequences.decode(), *names, strict=True)):
        p = int(found.positions[m])
        key = f"{junction[:p]}-{junction[p + 1 :]}", *genes, junction[p]
        assert key not in result
        result[key] = found.carriers[found.offsets[m] : found.offsets[m + 1]].tolist()
    return result


@pytest.mark.parametrize("fields", [(), ("v_call",), ("v_call", "j_call")])
def test_wildcard_clones_equal_those_of_a_dictionary(cohort: RepertoireDataset, fields: tuple[str, ...]) -> None:
    found = to_dictionary(find_wildcard_clones(cohort, fields), cohort, fields)
    assert found == find_with_dictionary(cohort, fields)
    assert len(found) > 10


def test_only_the_repertoires_of_the_dataset_are_searched_each_once(cohort: RepertoireDataset) -> None:
    some = cohort[np.array([3, 1, 3])]
    found = to_dictionary(find_wildcard_clones(some), cohort, ())
    assert found == find_with_dictionary(cohort[np.array([1, 3])], ())
    assert {tuple(carriers) for carriers in found.values()} == {(1, 3)}


def test_wildcard_clones_of_three_repertoires_by_hand(tmp_path: Path) -> None:
    repertoires = [
        ["CASSLRGEQYF", "CASSLRGEQYF", "CASSF"],
        ["CASSLKGEQYF", "CATSLKGEQYF"],
        ["CASSLRGEQYF", "CASTLRGEQYF"],
        ["CASS"],
        [],
    ]
    dataset = write_repertoires(
        tmp_path / "c.h5", [[(junction, "V1", "J1") for junction in own] for own in repertoires]
    )
    found = to_dictionary(find_wildcard_clones(dataset, ("v_call",)), dataset, ("v_call",))
    # CA-SLKGEQYF: the second residue from the start is never the wildcard
    assert found == {("CASSL-GEQYF", "V1", "K"): [0, 1, 2], ("CAS-LRGEQYF", "V1", "S"): [0, 2]}
    assert to_dictionary(find_wildcard_clones(dataset[3:]), dataset, ()) == {}
    assert to_dictionary(find_wildcard_clones(dataset[:0]), dataset, ()) == {}


def test_a_simulated_cohort_has_the_wildcard_clones_of_its_container(tmp_path: Path) -> None:
    simulated = Cohort(4, Sizes(200, 50, 50), GermlineBackground(1, 2), seed=3)
    write_container(simulated, tmp_path / "c.h5")
    on_disk, virtual = open_dataset(tmp_path / "c.h5"), SimulatedDataset(simulated)
    fields = ("v_call", "j_call")
    expected = to_dictionary(find_wildcard_clones(on_disk, fields), on_disk, fields)
    assert to_dictionary(find_wildcard_clones(virtual, fields), virtual, fields) == expected


def test_a_linked_container_and_its_copy_agree(tmp_path: Path) -> None:
    parts = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for part, names in zip(parts, (("TRBV1", "TRBV2"), ("TRBV2", "TRBV1")), strict=True):
        with ContainerWriter(part) as writer:
            for number, v in enumerate(names):
                sequences = Sequences.encode([f"CAS{residue}LRGEQYF" for residue in "DEF"[number:]])
                genes = {"v_call": Categorical.encode([v] * len(sequences))}
                writer.append(f"{part.stem}{number}", sequences.with_genes(genes))
            writer.finish(pd.DataFrame({"age": [1, 2]}), source="a test")
    join(parts, tmp_path / "linked.h5", link=True)
    join(parts, tmp_path / "copied.h5")
    linked, copied = open_dataset(tmp_path / "linked.h5"), open_dataset(tmp_path / "copied.h5")
    expected = {("CAS-LRGEQYF", "TRBV1", "D"): [0, 3], ("CAS-LRGEQYF", "TRBV2", "D"): [1, 2]}
    for dataset in (linked, copied):
        assert to_dictionary(find_wildcard_clones(dataset, ("v_call",)), dataset, ("v_call",)) == expected


def test_large_cohorts_are_not_searched(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    n = int(cohort.container.repertoire_offsets[2])
    monkeypatch.setattr(hashed_sequences, "MAX_SEQUENCES", n)
    assert find_wildcard_clones(cohort[:2]) is not None
    assert find_wildcard_clones(cohort[:3]) is None


def test_genes_that_a_container_lacks_are_refused(tmp_path: Path) -> None:
    plain = write_repertoires(tmp_path / "c.h5", [[("CASSLRGEQYF", "V1", "J1")]] * 2, fields=0)
    with pytest.raises(InputError, match="v_call"):
        find_wildcard_clones(plain, ("v_call",))
