"""Clones that are expanded in several repertoires, by hand and against a search with a dictionary."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones import expanded
from deeprc.datasets.clones.expanded import find_expanded_clones
from deeprc.datasets.dataset import Repertoire, RepertoireDataset, open_dataset
from deeprc.datasets.expansion import MIN_EXPANSION_SCORE, compute_expansion_scores
from deeprc.datasets.in_memory import from_frame
from deeprc.datasets.parts import RepertoireInMemory
from deeprc.datasets.simulation import Cohort, Counts, GermlineBackground, SimulatedDataset, Sizes, write_container
from deeprc.errors import InputError
from tests.toys.clone_cohorts import write_repertoires


def make_table(seed: int = 0, n_repertoires: int = 6) -> pd.DataFrame:
    """Return repertoires of 200 sequences of few different ones, with counts of which many are equal."""
    rng = np.random.default_rng(seed)
    junctions = ["C" + "".join(letters) + "F" for letters in rng.choice(list("ADEG"), (150, 4))]
    return pd.DataFrame(
        {
            "repertoire_id": np.repeat([f"r{number}" for number in range(n_repertoires)], 200),
            "junction_aa": rng.choice(junctions, 200 * n_repertoires),
            "v_call": rng.choice(["TRBV1", "TRBV2"], 200 * n_repertoires),
            "j_call": "TRBJ1-1",
            "duplicate_count": rng.geometric(0.4, 200 * n_repertoires),
        }
    )


def find_with_dictionary(dataset: RepertoireDataset, fields: tuple[str, ...]) -> dict[tuple[str, ...], list[int]]:
    """Return the repertoires in which each clone is expanded."""
    carriers = defaultdict(set)
    for index, repertoire in zip(dataset.repertoire_indices.tolist(), dataset, strict=True):
        frame = repertoire.to_frame()[compute_expansion_scores(repertoire.counts) >= MIN_EXPANSION_SCORE]
        for clone in zip(frame["junction_aa"], *(frame[field] for field in fields), strict=True):
            carriers[clone].add(index)
    return {clone: sorted(own) for clone, own in carriers.items() if len(own) > 1}


def to_dictionary(dataset: RepertoireDataset, fields: tuple[str, ...]) -> dict[tuple[str, ...], list[int]]:
    found = find_expanded_clones(dataset, fields)
    assert (np.diff(found.representative) > 0).all()
    sequences = dataset.take_clones(found.representative, fields)
    clones = zip(sequences.decode(), *(sequences.genes[field].names() for field in fields), strict=True)
    carriers = [own.tolist() for own in np.split(found.carriers, found.offsets[1:-1])] if len(found) else []
    return dict(zip(clones, carriers, strict=True))


@pytest.mark.parametrize("fields", [(), ("v_call",), ("v_call", "j_call")])
@pytest.mark.parametrize("hashes_at_once", [1 << 23, 30])
def test_expanded_clones_equal_those_of_a_dictionary(
    fields: tuple[str, ...], hashes_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expanded, "_HASHES_AT_ONCE", hashes_at_once)
    dataset = from_frame(make_table())
    found = to_dictionary(dataset, fields)
    assert found == find_with_dictionary(dataset, fields)
    assert len(found) >= 10
    some = dataset[[4, 1, 4]]
    assert to_dictionary(some, fields) == find_with_dictionary(dataset[[1, 4]], fields)


def test_expanded_clones_by_hand() -> None:
    """Of ten sequences, the one with the highest count is expanded, or the two that share it: 1.93, and 0.93 alone.

    Clone 0 is expanded in the repertoires 0 and 2, and present in all; clone 1 in 1 and 2.
    """
    public, letters = ["CASDF", "CASEF", "CASGF"], "ACDEFGHIKL"
    counts = [[9, 1, 1], [8, 9, 1], [9, 9, 1], [1, 1, 1]]
    rows = [(f"r{r}", *pair) for r in range(4) for pair in zip(public, counts[r], strict=True)]
    rows += [(f"r{r}", f"CA{letters[c]}{letters[r]}F", 1) for r in range(4) for c in range(3, 10)]
    table = pd.DataFrame(rows, columns=["repertoire_id", "junction_aa", "duplicate_count"])
    dataset = from_frame(table)
    assert to_dictionary(dataset, ()) == {("CASDF",): [0, 2], ("CASEF",): [1, 2]}
    found = find_expanded_clones(dataset)
    assert found.n_expanded.tolist() == [1, 1, 2, 0]
    assert to_dictionary(dataset[[0, 1, 3]], ()) == {}
    assert to_dictionary(dataset[[1, 2]], ()) == {("CASEF",): [1, 2]}


def test_without_counts_nothing_is_expanded() -> None:
    dataset = from_frame(
        make_table().drop_duplicates(["repertoire_id", "junction_aa", "v_call"]).assign(duplicate_count=1)
    )
    found = find_expanded_clones(dataset)
    assert len(found) == 0
    assert found.n_expanded.tolist() == [0] * 6
    assert found.offsets.tolist() == [0]


@pytest.mark.parametrize("fields", [(), ("v_call", "j_call")])
def test_a_simulated_cohort_has_those_of_its_container(tmp_path: Path, fields: tuple[str, ...]) -> None:
    simulated = Cohort(4, Sizes(2000, 500, 500), GermlineBackground(1, 2), counts=Counts(1.5), seed=3)
    write_container(simulated, tmp_path / "c.h5")
    found = to_dictionary(SimulatedDataset(simulated), fields)
    assert found == to_dictionary(open_dataset(tmp_path / "c.h5"), fields)
    assert len(found) > 5
    without_counts = SimulatedDataset(Cohort(4, Sizes(2000, 500, 500), GermlineBackground(1, 2), seed=3))
    assert len(find_expanded_clones(without_counts, fields)) == 0


def test_genes_are_compared_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second repertoire has the genes in another order, as parts and repertoires made on demand may have them."""
    dataset = from_frame(make_table())
    expected = to_dictionary(dataset, ("v_call",))
    make_repertoire = RepertoireDataset._make_repertoire

    def make_with_other_codes(self: RepertoireDataset, index: int) -> Repertoire:
        repertoire = make_repertoire(self, index)
        if index % 2 == 0:
            return repertoire
        genes = {
            name: Categorical((len(calls.vocabulary) - 1 - calls.codes).astype(np.uint16), calls.vocabulary[::-1])
            for name, calls in repertoire.genes.items()
        }
        store = RepertoireInMemory(repertoire.container.path, repertoire.sequences.with_genes(genes), {})
        return Repertoire(repertoire.repertoire_id, 0, len(repertoire), store, repertoire.metadata)

    monkeypatch.setattr(RepertoireDataset, "_make_repertoire", make_with_other_codes)
    assert to_dictionary(dataset, ("v_call",)) == expected


def test_genes_that_a_container_lacks_are_refused(tmp_path: Path) -> None:
    plain = write_repertoires(tmp_path / "c.h5", [[("CASSLRGEQYF", "V1", "J1")]] * 2, fields=0)
    with pytest.raises(InputError, match="v_call"):
        find_expanded_clones(plain, ("v_call",))
