"""Frequencies of k-mers and genes: of sequences and of clonal families, by hand, and where families are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.baselines.gene_usage import count_named_genes
from deeprc.branches import frequencies
from deeprc.branches.frequencies import RepertoireFrequencies, has_families
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.kmers import list_kmers
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError

AT = {name: index for index, name in enumerate(list_kmers(4))}
FAMILY = ["CARDYYGSSW", "CARDYYGSSF", "CARDYYGSKK"]


def write(
    path: Path, repertoires: list[list[tuple[str, str]]], *, j: bool = True, j_name: str = "IGHJ4"
) -> RepertoireDataset:
    """Write repertoires of pairs of a junction and a V gene."""
    with ContainerWriter(path) as writer:
        for number, rows in enumerate(repertoires):
            genes = {"v_call": Categorical.encode([v for _, v in rows])}
            if j:
                genes["j_call"] = Categorical.encode([j_name] * len(rows))
            writer.append(f"r{number}", Sequences.encode([junction for junction, _ in rows]).with_genes(genes))
        writer.finish(pd.DataFrame({"status": ["ill", "well"] * (len(repertoires) // 2)}), source="a test")
    return open_dataset(path)


@pytest.fixture
def dataset(tmp_path: Path) -> RepertoireDataset:
    """Two repertoires: one with a family of three and another sequence, one without families."""
    first = [(junction, "IGHV1-2") for junction in FAMILY] + [("CAKWWWHHHW", "IGHV3-23")]
    second = [("CARDYYGSSW", "IGHV1-2"), ("CAKWWWHHHW", "IGHV3-23")]
    return write(tmp_path / "cohort.h5", [first, second])


def test_each_family_counts_once(dataset: RepertoireDataset) -> None:
    families = RepertoireFrequencies(dataset, of_families=True)
    assert families.sizes.tolist() == [2, 2]
    chosen = np.array([AT["CARD"], AT["GSSW"], AT["CAKW"], AT["WWWW"]])
    expected = [[1 / 2, 1 / 6, 1 / 2, 0], [1 / 2, 1 / 2, 1 / 2, 0]]
    np.testing.assert_allclose(families.get_kmers(chosen), expected, atol=1e-6)
    np.testing.assert_array_equal(families.get_kmers()[:, chosen], families.get_kmers(chosen))
    names = ["IGHV3-23", "IGHV9-9", "IGHV1-2"]
    assert families.count_genes("v_call", names).tolist() == [[1, 0, 1], [1, 0, 1]]
    assert families.count_genes("j_call", ["IGHJ4"]).tolist() == [[2], [2]]


def test_each_sequence_counts(dataset: RepertoireDataset) -> None:
    of_sequences = RepertoireFrequencies(dataset, of_families=False)
    assert of_sequences.sizes.tolist() == [4, 2]
    np.testing.assert_array_equal(of_sequences.get_kmers(), compute_kmer_frequencies(dataset))
    names = ["IGHV3-23", "IGHV9-9", "IGHV1-2"]
    np.testing.assert_array_equal(
        of_sequences.count_genes("v_call", names), count_named_genes(dataset, "v_call", names)
    )


def test_rows_follow_the_chosen_repertoires(dataset: RepertoireDataset) -> None:
    all_frequencies = RepertoireFrequencies(dataset, of_families=True)
    reversed_frequencies = RepertoireFrequencies(dataset[[1, 0]], of_families=True)
    np.testing.assert_array_equal(reversed_frequencies.get_kmers(), all_frequencies.get_kmers()[::-1])
    second = RepertoireFrequencies(dataset[[1]], of_families=True)
    assert second.count_genes("v_call", ["IGHV1-2"]).tolist() == [[1]]


def test_families_are_those_of_heavy_chains(dataset: RepertoireDataset, tmp_path: Path) -> None:
    assert has_families(dataset)
    assert not has_families(dataset[[1]])  # none of its sequences are related
    as_t_cells = [(junction, "TRBV2") for junction in FAMILY]
    assert not has_families(write(tmp_path / "trb.h5", [as_t_cells, as_t_cells]))
    heavy = [(junction, "IGHV1-2") for junction in FAMILY]
    assert has_families(write(tmp_path / "igh.h5", [heavy, heavy]))
    assert not has_families(write(tmp_path / "no-j.h5", [heavy, heavy], j=False))
    assert not has_families(write(tmp_path / "unknown-j.h5", [heavy, heavy], j_name=""))
    mixed = [*heavy, *((junction, "IGKV1-5") for junction in FAMILY)]
    assert not has_families(write(tmp_path / "half.h5", [mixed, mixed]))


def test_families_are_not_tried_if_a_repertoire_of_the_container_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The families of all repertoires are found at once, also of those that are not learned from."""
    family = [(junction, "IGHV1-2") for junction in FAMILY]
    dataset = write(tmp_path / "large.h5", [family, [*family, *family]])
    monkeypatch.setattr(frequencies, "_MAX_SEQUENCES", 6)
    assert has_families(dataset[[0]])
    monkeypatch.setattr(frequencies, "_MAX_SEQUENCES", 5)
    assert not has_families(dataset[[0]])


def test_a_container_without_genes_is_refused(tmp_path: Path) -> None:
    dataset = write(tmp_path / "no-j.h5", [[("CARDYYGSSW", "IGHV1-2")]] * 2, j=False)
    with pytest.raises(InputError, match=r"no-j\.h5: has no j_call, which is needed to find clonal families$"):
        RepertoireFrequencies(dataset, of_families=True)
