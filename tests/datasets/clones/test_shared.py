"""Which repertoires carry each clone, against dictionaries of Python."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from deeprc import ranks
from deeprc.datasets import container
from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones import distinct, shared
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.distinct import (
    count_clones_of_repertoire,
    count_distinct_clones,
    has_merged_clones,
    sum_clone_abundances,
)
from deeprc.datasets.clones.grouping import SharedClones, group_clones
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.in_memory import from_frame
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.sequence_hash import hash_rows, hash_sequences
from deeprc.datasets.sequences import SequenceArrays, Sequences
from deeprc.datasets.simulation import (
    Cohort,
    GermlineBackground,
    SimulatedDataset,
    Sizes,
    write_container,
)
from deeprc.errors import InputError
from tests.toys.crowded import make_crowded, write_repertoires


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Short sequences of few letters."""
    return make_crowded(tmp_path_factory.mktemp("crowded"))


def by_dictionary(dataset: RepertoireDataset, genes: bool) -> tuple[dict[tuple[str, ...], list[int]], list[int]]:
    """Return the carriers of each clone, and how many clones each repertoire has."""
    carriers: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for number, repertoire in enumerate(dataset):
        frame = repertoire.to_frame()
        for key in frame[["junction_aa", *(dataset.gene_fields if genes else [])]].itertuples(index=False, name=None):
            carriers[key].add(number)
    counts = [sum(number in each for each in carriers.values()) for number in range(len(dataset))]
    return {key: sorted(each) for key, each in carriers.items()}, counts


def content(dataset: RepertoireDataset, clones: SharedClones, genes: bool) -> dict[tuple[str, ...], list[int]]:
    frame = CloneSet(dataset.take_clones(clones.representative, dataset.gene_fields if genes else [])).to_frame()
    keys = list(frame.itertuples(index=False, name=None))
    assert len(set(keys)) == len(keys)
    bounds = clones.offsets.tolist()
    return {key: clones.carriers[bounds[i] : bounds[i + 1]].tolist() for i, key in enumerate(keys)}


@pytest.mark.parametrize("genes", [False, True])
def test_carriers_of_each_clone_are_those_of_a_plain_loop(crowded: RepertoireDataset, genes: bool) -> None:
    expected, counts = by_dictionary(crowded, genes)
    fields = crowded.gene_fields if genes else []
    clones = find_shared_clones(crowded[[3, 0]], fields)  # of the whole container, whichever part is shown
    assert content(crowded, clones, genes) == {key: each for key, each in expected.items() if len(each) > 1}
    alone = [sum(each == [number] for each in expected.values()) for number in range(len(crowded))]
    assert clones.n_private.tolist() == alone
    assert clones.count_by_repertoire().tolist() == counts
    assert count_distinct_clones(crowded[[3, 0]], fields).tolist() == [counts[3], counts[0]]
    no_hash = [count_clones_of_repertoire(each, fields, np.zeros(len(each), np.uint64)) for each in crowded]
    assert no_hash == counts  # the sequences themselves are compared
    assert (clones.representative.dtype, clones.offsets.dtype, clones.carriers.dtype) == ("i8", "i8", "i4")


def test_the_representative_is_the_first_sequence(tmp_path: Path) -> None:
    path = write_repertoires(
        tmp_path / "c.h5", [["CAF", "CWF", "CAF"], ["CYF", "CWF", "CCF"], [], ["CYF", "CWF"]], fields=()
    )
    clones = find_shared_clones(open_dataset(path))
    assert clones.representative.tolist() == [1, 3]
    assert clones.offsets.tolist() == [0, 3, 5]
    assert clones.carriers.tolist() == [0, 1, 3, 1, 3]
    assert clones.n_private.tolist() == [1, 1, 0, 0]
    assert len(clones) == 2


def test_sequences_that_differ_have_different_hashes(crowded: RepertoireDataset) -> None:
    rows = crowded.container.sequences.arrays(["v_call", "j_call"])
    hashes = hash_rows(rows, np.arange(len(rows.offsets) - 1))
    expected, _ = by_dictionary(crowded, True)
    assert len(np.unique(hashes)) == len(expected)
    bits = (hashes[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert 0.3 < bits.mean(axis=0).min() < bits.mean(axis=0).max() < 0.7


def test_genes_that_the_container_lacks_are_not_compared(tmp_path: Path) -> None:
    sequences = [["CAF"] * 6, ["CAF"] * 6]
    assert open_dataset(write_repertoires(tmp_path / "n.h5", sequences, fields=())).gene_fields == []
    dataset = open_dataset(write_repertoires(tmp_path / "v.h5", sequences, fields=("v",)))
    expected, _ = by_dictionary(dataset, True)
    assert content(dataset, find_shared_clones(dataset, ["v_call"]), True) == {
        k: e for k, e in expected.items() if len(e) > 1
    }


def test_a_cohort_without_sequences_has_no_clones(tmp_path: Path) -> None:
    dataset = open_dataset(write_repertoires(tmp_path / "c.h5", [[], []], fields=()))
    clones = find_shared_clones(dataset)
    assert (len(clones), clones.n_private.tolist(), count_distinct_clones(dataset).tolist()) == (0, [0, 0], [0, 0])
    again = find_shared_clones(open_dataset(tmp_path / "c.h5"))  # from the cache
    assert (len(again), again.offsets.tolist()) == (0, [0])


@pytest.mark.parametrize("genes", [False, True])
def test_a_simulated_cohort_has_the_shared_clones_of_its_container(tmp_path: Path, genes: bool) -> None:
    cohort = Cohort(5, Sizes(30_000), GermlineBackground())
    write_container(cohort, tmp_path / "c.h5")
    on_disk, simulated = open_dataset(tmp_path / "c.h5"), SimulatedDataset(cohort)
    expected, found = (find_shared_clones(each, each.gene_fields if genes else []) for each in (on_disk, simulated))
    assert len(expected) > 10
    for name, values in vars(expected).items():
        np.testing.assert_array_equal(values, getattr(found, name))
    counts = count_distinct_clones(on_disk, on_disk.gene_fields if genes else [])
    np.testing.assert_array_equal(count_distinct_clones(simulated, simulated.gene_fields if genes else []), counts)
    hashes = [hash_sequences(each, expected.representative[::-2]) for each in (on_disk, simulated)]
    np.testing.assert_array_equal(*hashes)
    carried = np.bincount(expected.carriers, minlength=5)
    np.testing.assert_array_equal(expected.n_private + carried, counts)  # two ways of counting
    sets = [CloneSet(each.take_clones(expected.representative, each.gene_fields)) for each in (on_disk, simulated)]
    pd.testing.assert_frame_equal(sets[0].to_frame(), sets[1].to_frame())
    assert [len(each) for each in sets[0].find_in(simulated)] == [len(each) for each in sets[1].find_in(on_disk)]


@pytest.mark.parametrize("genes", [False, True])
@pytest.mark.parametrize("mask", [0, 5, 2**64 - 1])
def test_clones_are_recognised_in_another_container(
    crowded: RepertoireDataset, tmp_path: Path, genes: bool, mask: int
) -> None:
    fields = crowded.gene_fields if genes else []
    clones = find_shared_clones(crowded, fields)
    own = CloneSet(crowded.take_clones(clones.representative, fields))
    rng = np.random.default_rng(5)
    texts = [["".join(rng.choice(list("AY"), rng.integers(1, 5))) for _ in range(100)] for _ in range(3)]
    with ContainerWriter(tmp_path / "other.h5") as writer:
        for number, sequences in enumerate([*texts, []]):
            residues, offsets = encode_many(sequences)
            v = Categorical(rng.integers(0, 3, len(sequences)).astype(np.uint16), ("TRBV2", "TRBV9", "TRBV1"))
            j = Categorical(rng.integers(0, 2, len(sequences)).astype(np.uint16), ("TRBJ2", "TRBJ7"))
            counts = np.ones(len(sequences), np.uint32)
            writer.append(str(number), Sequences(residues, offsets, counts, v_call=v, j_call=j))
        writer.finish(pd.DataFrame({"status": range(4)}), source="a test")
    other = open_dataset(tmp_path / "other.h5")
    keys = list(own.to_frame().itertuples(index=False, name=None))
    found = [{keys[i] for i in each} for each in own.find_in(other[[2, 0, 3, 1]], mask=mask)]
    theirs = [set(each.to_frame()[["junction_aa", *fields]].itertuples(index=False, name=None)) for each in other]
    assert found == [theirs[number] & set(keys) for number in (2, 0, 3, 1)]
    assert min(map(len, (found[0], found[1], found[3]))) > 2
    every = [number.tolist() for number in own.find_in(crowded)]
    expected = content(crowded, clones, genes)
    assert every == [[i for i, key in enumerate(keys) if number in expected[key]] for number in range(len(crowded))]


def test_a_container_without_the_genes_of_the_clone_definition_is_refused(
    crowded: RepertoireDataset, tmp_path: Path
) -> None:
    own = CloneSet(crowded.take_clones(np.array([3, 1]), ["v_call", "j_call"]))
    other = open_dataset(write_repertoires(tmp_path / "v.h5", [["CAF"]], fields=("v",)))
    with pytest.raises(InputError, match=r"v\.h5: has no j_call, with which the clones were learned"):
        list(own.find_in(other))
    with pytest.raises(InputError, match=r"v\.h5: has no j_call$"):
        find_shared_clones(other, ["v_call", "j_call"])


def test_clones_are_taken_in_order_and_an_empty_set_is_found_nowhere(crowded: RepertoireDataset) -> None:
    own = CloneSet(crowded.take_clones(np.array([3, 120, 41]), ["v_call"]))
    frame = crowded[0].to_frame()
    assert own.to_frame()["junction_aa"][0] == frame["junction_aa"][3]
    assert own.to_frame()["v_call"][0] == frame["v_call"][3]
    swapped = own.take(np.array([2, 0]))
    pd.testing.assert_frame_equal(swapped.to_frame(), own.to_frame().iloc[[2, 0]].reset_index(drop=True))
    none = CloneSet(crowded.take_clones(np.zeros(0, np.int64), ["v_call"]))
    assert (len(none), list(none.to_frame())) == (0, ["junction_aa", "v_call"])
    assert [len(each) for each in none.find_in(crowded)] == [0] * len(crowded)


@pytest.mark.parametrize(
    ("merge", "merged_by"),
    [("genes", [("v_call", "j_call")]), ("junction", [("v_call", "j_call"), ("v_call",), ()]), ("none", [])],
)
def test_preprocessing_says_which_clones_it_has_merged(
    merge: str, merged_by: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """These clones are not compared to add up their abundances."""
    compared: list[bool] = []

    def hash_compared(sequences: SequenceArrays, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        compared.append(True)
        return hash_rows(sequences, rows)

    monkeypatch.setattr(distinct, "hash_rows", hash_compared)
    rows = [("CASSF", "TRBV9", "TRBJ1-1"), ("CASSF", "TRBV9", "TRBJ1-1"), ("CASSF", "TRBV9", "TRBJ1-2")]
    rows += [("CASSF", "TRBV2", "TRBJ1-1"), ("CAWWF", "TRBV9", "TRBJ1-1"), ("CASSF", "", "TRBJ1-1")]
    table = pd.DataFrame(rows, columns=["junction_aa", "v_call", "j_call"]).assign(repertoire_id="one")
    table["duplicate_count"] = [1, 2, 4, 8, 16, 32]
    (repertoire,) = from_frame(table, options=ReadingOptions(merge=merge))  # type: ignore[arg-type]
    for fields in [("v_call", "j_call"), ("v_call",), ()]:
        assert has_merged_clones(repertoire, fields) == (fields in merged_by)
        abundances = repertoire.to_frame().groupby(["junction_aa", *fields])["duplicate_count"].sum()
        assert count_clones_of_repertoire(repertoire, fields) == len(abundances)
        compared.clear()
        assert sorted(sum_clone_abundances(repertoire, fields).tolist()) == sorted(abundances)
        assert len(compared) == (fields not in merged_by)


def test_a_container_without_a_note_of_preprocessing_is_counted(crowded: RepertoireDataset) -> None:
    assert not any(has_merged_clones(each, fields) for each in crowded for fields in [("v_call", "j_call"), ()])
    simulated = SimulatedDataset(Cohort(2, Sizes(50), background=GermlineBackground(), seed=1))
    assert not has_merged_clones(simulated[0], ("v_call", "j_call"))


@pytest.mark.parametrize("genes", [False, True])
def test_a_quarter_of_the_available_memory_is_for_hashes(
    crowded: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, genes: bool
) -> None:
    """Of the available memory, a quarter holds hashes of 8 bytes, but never fewer than 7."""
    fields = crowded.gene_fields if genes else []
    sequences = crowded.container.sequences
    size = len(sequences.residues) + 8 * len(sequences) + 2 * len(sequences) * len(fields)
    asked: list[int] = []

    def group(*arguments: object, max_hashes: int) -> SharedClones:
        asked.append(max_hashes)
        return group_clones(*arguments, max_hashes=max_hashes)  # type: ignore[arg-type]

    monkeypatch.setattr(shared, "DEFAULT_MAX_HASHES", 7)
    monkeypatch.setattr(shared, "group_clones", group)
    found = []
    for available in (None, size, size - 1, 100):
        monkeypatch.setattr(container, "count_available_bytes", lambda available=available: available)
        found.append(shared._find_in_container(crowded, fields))
    assert asked == [7, 7, (size - 1) // 32, 7]
    monkeypatch.setattr(container, "count_available_bytes", lambda: size - 1)
    monkeypatch.setattr(container, "_MAX_HASHES_AT_ONCE", 9)
    found.append(shared._find_in_container(crowded, fields))
    monkeypatch.setattr(ranks, "count_ranks", lambda: 1000)
    found.append(shared._find_in_container(crowded, fields))
    assert asked[4:] == [9, 7]
    for each in found:
        for name, array in each.items():
            np.testing.assert_array_equal(array, found[0][name])
