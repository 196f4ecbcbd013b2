from collections.abc import Mapping

import numpy as np
import pytest
from scipy import stats

from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets, decode_many
from deeprc.datasets.random_numbers import derive_key
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.germline import GermlineBackground
from deeprc.errors import InputError

V = {"TRBV5-1": "CASSL", "TRBV7-9": "CASSL", "TRBV19": "CASSI", "TRBV20-1": "CSAR", "TRBV28": "CASS"}
J = {"TRBJ1-1": "NTEAFF", "TRBJ1-2": "YGYTF", "TRBJ2-1": "NEQFF", "TRBJ2-3": "DTQYF", "TRBJ2-7": "YEQYF"}


def texts(drawn: Sequences) -> list[str]:
    return decode_many(drawn.residues, compute_offsets(drawn.lengths))


def genes(drawn: Sequences) -> tuple[list[str], list[str]]:
    assert drawn.v_call is not None
    assert drawn.j_call is not None
    return drawn.v_call.names().tolist(), drawn.j_call.names().tolist()


@pytest.fixture(scope="module")
def drawn() -> Sequences:
    return GermlineBackground().draw(derive_key(5), np.arange(20_000))


def loops(drawn: Sequences) -> list[str]:
    """Return what is between the ends that the genes give, after having looked at these."""
    found = []
    for text, v, j in zip(texts(drawn), *genes(drawn), strict=True):
        assert text.startswith(V[v])
        assert text.endswith(J[j])
        found.append(text[len(V[v]) : len(text) - len(J[j])])
    return found


def test_loops_between_the_genes_have_all_lengths_equally_often(drawn: Sequences) -> None:
    counts = np.bincount([len(loop) for loop in loops(drawn)])
    assert not counts[:4].any()
    assert len(counts) == 10
    assert stats.chisquare(counts[4:]).pvalue > 1e-6


def test_the_loops_residues_are_uniform_at_each_place(drawn: Sequences) -> None:
    found = loops(drawn)
    for place in range(9):
        letters = [loop[place] for loop in found if len(loop) > place]
        assert stats.chisquare([letters.count(letter) for letter in AMINO_ACIDS]).pvalue > 1e-6


def test_a_loop_is_independent_of_its_length_and_of_the_genes(drawn: Sequences) -> None:
    found = loops(drawn)
    for others in ([len(loop) for loop in found], *genes(drawn)):
        for place in (0, 1, 2, 3):
            letters = [loop[place] for loop in found]
            assert stats.chi2_contingency(stats.contingency.crosstab(others, letters).count).pvalue > 1e-6


def test_genes_are_used_equally_and_independently(drawn: Sequences) -> None:
    pairs = list(zip(*genes(drawn), strict=True))
    counts = np.array([[pairs.count((v, j)) for j in J] for v in V])
    assert counts.sum() == 20_000
    assert stats.chisquare(counts.ravel()).pvalue > 1e-6


def test_genes_are_used_as_often_as_asked_for() -> None:
    background = GermlineBackground(v_genes={"TRBV28": 3, "TRBV19": 0, "TRBV5-1": 1}, j_genes={"TRBJ2-7": 0.5})
    v, j = genes(background.draw(derive_key(1), np.arange(20_000)))
    assert set(j) == {"TRBJ2-7"}
    assert v.count("TRBV19") == 0
    assert stats.binomtest(v.count("TRBV28"), 20_000, 0.75).pvalue > 1e-6


def test_rows_drawn_alone_are_those_drawn_together(drawn: Sequences) -> None:
    rows = np.array([17, 3, 19_999, 3, 0])
    some = GermlineBackground().draw(derive_key(5), rows)
    everything = texts(drawn)
    assert texts(some) == [everything[row] for row in rows]
    for each, of_all in zip(genes(some), genes(drawn), strict=True):
        assert each == [of_all[row] for row in rows]


def test_loops_of_one_length_and_of_length_0() -> None:
    assert {len(loop) for loop in loops(GermlineBackground(7, 7).draw(derive_key(1), np.arange(500)))} == {7}
    assert set(loops(GermlineBackground(0, 0).draw(derive_key(1), np.arange(500)))) == {""}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shortest_loop": 5, "longest_loop": 4}, "expected 0 <= shortest_loop <= longest_loop <= 40"),
        ({"shortest_loop": -1}, "expected 0 <= shortest_loop"),
        ({"longest_loop": 41}, "longest_loop <= 40"),
        ({"v_genes": {}}, "expected the usage of some of TRBV5-1, TRBV7-9, TRBV19, TRBV20-1, TRBV28, found {}"),
        ({"v_genes": {"TRBV1": 1}}, "expected the usage of some of TRBV5-1.*found {'TRBV1': 1}"),
        ({"v_genes": {"TRBV28": 0}}, "expected the usage of some of TRBV5-1"),
        ({"j_genes": {"TRBJ2-7": -1, "TRBJ2-1": 2}}, "expected the usage of some of TRBJ1-1"),
        ({"j_genes": {"TRBJ2-7": float("nan")}}, "expected the usage of some of TRBJ1-1"),
    ],
)
def test_an_invalid_background_is_refused(options: Mapping[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GermlineBackground(**options)  # type: ignore[arg-type]
