"""Repertoires are recognised by their sequences, counts and genes."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeprc.datasets.cache import digest_with_genes
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.joining import join
from deeprc.datasets.known_repertoires import KnownRepertoires, identify_repertoires, make_content_keys
from tests.toys.gene_repertoires import write_genes
from tests.toys.repertoires import make_sequences, write_repertoires

JUNCTIONS = [["CASSW", "CASSF"]] * 2 + [["CAWF"]] * 2 + [["CASSF"]]
GENES = [["V2", "V3"], ["V2", "V5"], ["V2"], ["V2"], ["V9"]]


@pytest.fixture
def cohort(tmp_path: Path) -> RepertoireDataset:
    """The first two repertoires differ in a gene alone; the third and the fourth are the same."""
    return write_genes(tmp_path / "cohort.h5", JUNCTIONS, GENES)


def find_all(known: RepertoireDataset, asked: RepertoireDataset, *, with_other_genes: bool = False) -> list[int | None]:
    found = KnownRepertoires(list(dict.fromkeys(identify_repertoires(known))))
    return [found.find(identity, with_other_genes=with_other_genes) for identity in identify_repertoires(asked)]


def test_the_same_content_is_known(cohort: RepertoireDataset) -> None:
    for with_other_genes in (False, True):
        assert find_all(cohort, cohort, with_other_genes=with_other_genes) == [0, 1, 2, 2, 3]
        assert find_all(cohort[:1], cohort[2:], with_other_genes=with_other_genes) == [None] * 3


def test_other_genes_make_another_repertoire(cohort: RepertoireDataset) -> None:
    assert find_all(cohort[:1], cohort) == [0, None, None, None, None]
    assert find_all(cohort[:1], cohort, with_other_genes=True) == [0, 0, None, None, None]


def test_genes_count_where_known_repertoires_differ_in_nothing_else(cohort: RepertoireDataset, tmp_path: Path) -> None:
    other = write_genes(tmp_path / "other.h5", JUNCTIONS, [["V7", "V7"], ["V3", "V2"], ["V7"], ["V2"], ["V7"]])
    assert find_all(cohort, other) == [None, None, None, 2, None]
    assert find_all(cohort, other, with_other_genes=True) == [None, None, 2, 2, 3]


@pytest.mark.parametrize("missing", [None, [["", ""], ["", ""], [""], [""], [""]]])
def test_a_repertoire_is_known_without_its_genes(
    cohort: RepertoireDataset, missing: list[list[str]] | None, tmp_path: Path
) -> None:
    bare = write_genes(tmp_path / "bare.h5", JUNCTIONS, missing)
    for with_other_genes in (False, True):
        assert find_all(cohort, bare, with_other_genes=with_other_genes) == [None, None, 2, 2, 3]
        assert find_all(bare, cohort, with_other_genes=with_other_genes) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("link", [False, True])
def test_a_joined_repertoire_is_known_although_it_gets_unknown_genes(
    cohort: RepertoireDataset, tmp_path: Path, link: bool
) -> None:
    sequences = make_sequences(["CASSF"], v_call=["V2"], j_call=["J1"])
    write_repertoires(tmp_path / "both.h5", [sequences], {"id": ["with J"]}, ["with J"])
    join([cohort.container.path, tmp_path / "both.h5"], tmp_path / "joined.h5", link=link)
    joined = RepertoireDataset(tmp_path / "joined.h5")
    assert joined.gene_fields == ["v_call", "j_call"]
    assert identify_repertoires(joined)[:-1] == identify_repertoires(cohort)
    assert digest_with_genes(joined)[:-1] == digest_with_genes(cohort)
    assert find_all(cohort, joined) == [0, 1, 2, 2, 3, None]


def test_identities_of_an_older_version_have_no_genes(cohort: RepertoireDataset) -> None:
    known = KnownRepertoires([cohort[0].digest(), cohort[4].digest()])
    assert [known.find(identity) for identity in identify_repertoires(cohort)] == [0, 0, None, None, 1]


def test_genes_distinguish_only_what_is_equal_otherwise(cohort: RepertoireDataset) -> None:
    plain = [repertoire.digest() for repertoire in cohort]
    assert plain[0] == plain[1]
    assert make_content_keys(cohort) == [*identify_repertoires(cohort)[:2], *plain[2:]]
    assert make_content_keys(cohort[1:]) == plain[1:]
