"""Clonal families: by hand, against SciPy's connected components, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones.families import compute_family_weights, find_families
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.parts import RepertoireInMemory
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError


def make_sequences(junctions: list[str], v: list[str] | None = None, j: list[str] | None = None) -> Sequences:
    genes = {
        "v_call": Categorical.encode(v or ["IGHV1-2"] * len(junctions)),
        "j_call": Categorical.encode(j or ["IGHJ4"] * len(junctions)),
    }
    return Sequences.encode(junctions).with_genes(genes)


def make_repertoire(sequences: Sequences) -> Repertoire:
    return Repertoire("r", 0, len(sequences), RepertoireInMemory(Path("cohort.h5"), sequences, {}), {})


def test_a_family_differs_in_at_most_a_fifth_of_the_residues() -> None:
    base = "CARDYYGSSW"  # 10 residues: 2 may differ
    two, three = "CARDYYGSKK", "CARDYYGKKK"
    assert find_families(make_sequences([base, two])).tolist() == [0, 0]
    assert find_families(make_sequences([base, three])).tolist() == [0, 1]
    assert find_families(make_sequences(["CARDYYGSW", "CARDYYGKK"])).tolist() == [0, 1]  # 9 residues: 1 may differ
    assert find_families(make_sequences(["CARW", "CARW", "CARF"])).tolist() == [0, 0, 2]  # 4 residues: none


def test_links_are_followed() -> None:
    """The first and last sequence differ in four of ten residues; the one between them comes last or first."""
    first, between, last = "CARDYYGSSW", "CARDYYGSKK", "CARDYYKKKK"
    assert find_families(make_sequences([first, last, between])).tolist() == [0, 0, 0]
    assert find_families(make_sequences([between, last, first])).tolist() == [0, 0, 0]
    assert find_families(make_sequences([first, last])).tolist() == [0, 1]


def test_other_genes_or_another_length_are_another_family() -> None:
    same = ["CARDYYGSSW"] * 3
    assert find_families(make_sequences(same, v=["IGHV1-2", "IGHV3-23", "IGHV1-2"])).tolist() == [0, 1, 0]
    assert find_families(make_sequences(same, j=["IGHJ4", "IGHJ4", "IGHJ6"])).tolist() == [0, 0, 2]
    assert find_families(make_sequences(["CARDYYGSSW", "CARDYYGSSWW", "CARDYYGSSW"])).tolist() == [0, 1, 0]
    assert find_families(make_sequences(same, v=["", "IGHV1-2", ""])).tolist() == [0, 1, 0]


@pytest.mark.parametrize("min_size_for_threads", [100, 1000])
def test_families_are_connected_components(min_size_for_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeprc.datasets.clones.families._MIN_SIZE_FOR_THREADS", min_size_for_threads)
    rng = np.random.default_rng(0)
    n, length = 600, 11
    ancestors = rng.integers(0, 20, (80, length))
    letters = ancestors[rng.integers(0, 80, n)]
    letters = np.where(rng.random((n, length)) < 0.12, rng.integers(0, 20, (n, length)), letters)
    v, j = rng.integers(0, 3, n), rng.integers(0, 2, n)
    alphabet = np.array([*"ACDEFGHIKLMNPQRSTVWY"])
    sequences = make_sequences(
        ["".join(row) for row in alphabet[letters]],
        [f"IGHV{number}" for number in v],
        [f"IGHJ{number}" for number in j],
    )
    differences = (letters[:, None] != letters[None]).sum(axis=2)
    is_linked = (differences <= length // 5) & (v[:, None] == v) & (j[:, None] == j)
    _, component = connected_components(is_linked)
    first_of_component = np.array([np.flatnonzero(component == own)[0] for own in component])
    families = find_families(sequences)
    np.testing.assert_array_equal(families, first_of_component)
    assert 80 < len(np.unique(families)) < n
    weights = compute_family_weights(make_repertoire(sequences))
    np.testing.assert_allclose(np.bincount(component, weights), 1)


def test_the_weights_of_a_family_are_equal() -> None:
    sequences = make_sequences(["CARDYYGSSW", "CAKWWWHHHW", "CARDYYGSSF"])
    assert compute_family_weights(make_repertoire(sequences)).tolist() == [0.5, 1, 0.5]
    assert compute_family_weights(make_repertoire(make_sequences([]))).tolist() == []


def test_a_container_without_genes_is_refused() -> None:
    with pytest.raises(InputError, match=r"^cohort\.h5: has no v_call, which is needed to find clonal families$"):
        compute_family_weights(make_repertoire(Sequences.encode(["CARDYYGSSW"])))


@pytest.mark.parametrize(("v", "j", "field"), [("", "IGHJ4", "v_call"), ("IGHV1-2", "", "j_call")])
def test_a_container_that_knows_no_gene_is_refused(v: str, j: str, field: str) -> None:
    repertoire = make_repertoire(make_sequences(["CARDYYGSSW"], [v], [j]))
    with pytest.raises(InputError, match=rf"^cohort\.h5: has no {field}, which is needed to find clonal families$"):
        compute_family_weights(repertoire)
