"""A recombination model as a background: righor itself where it is installed, else a stand-in with its interface."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from deeprc.datasets.alphabet import compute_offsets, decode_many
from deeprc.datasets.simulation import RecombinationBackground
from deeprc.errors import InputError


class Generator:
    """Counts from its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def generate_without_errors(self, functional: bool) -> SimpleNamespace:
        assert functional
        middle = "".join(self.rng.choice(list("ADGNSTVYQE"), 12))
        return SimpleNamespace(junction_aa=f"CAS{middle}F", v_gene="TRBV6-2*01", j_gene="TRBJ1-1*01")


def load_model(species: str, chain: str) -> SimpleNamespace:
    if (species, chain) != ("human", "trb"):
        raise RuntimeError("no such model")
    return SimpleNamespace(generator=Generator)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module with righor's interface in its place."""
    monkeypatch.setitem(sys.modules, "righor", SimpleNamespace(load_model=load_model))


def texts(background: RecombinationBackground, key: int, rows: list[int]) -> list[str]:
    drawn = background.draw(key, np.array(rows))
    return decode_many(drawn.residues, compute_offsets(drawn.lengths))


@pytest.mark.usefixtures("stand_in")
def test_a_row_is_the_same_alone_and_among_others() -> None:
    background = RecombinationBackground()
    whole = texts(background, 5, list(range(600)))
    assert len(set(whole)) == 600
    assert texts(background, 5, [599, 3, 256, 255]) == [whole[599], whole[3], whole[256], whole[255]]
    assert not set(whole) & set(texts(background, 6, list(range(600))))


@pytest.mark.usefixtures("stand_in")
def test_genes_have_imgt_names_without_alleles() -> None:
    drawn = RecombinationBackground().draw(1, np.arange(3))
    assert drawn.v_call is not None
    assert drawn.j_call is not None
    assert drawn.v_call.names().tolist() == ["TRBV6-2"] * 3
    assert drawn.j_call.names().tolist() == ["TRBJ1-1"] * 3


def test_without_righor_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "righor", None)
    with pytest.raises(InputError, match=r"background: recombination needs righor: pip install 'deeprc\[vdj\]'"):
        RecombinationBackground().draw(1, np.arange(3))


@pytest.mark.usefixtures("stand_in")
def test_a_species_without_a_model_is_refused() -> None:
    with pytest.raises(InputError, match="righor has no model of cat trb: no such model"):
        RecombinationBackground(species="cat").draw(1, np.arange(3))


def test_righor_makes_junctions() -> None:
    pytest.importorskip("righor")
    drawn = RecombinationBackground().draw(1, np.arange(1000))
    found = decode_many(drawn.residues, compute_offsets(drawn.lengths))
    assert sum(text[0] == "C" and text[-1] in "FW" for text in found) > 950
    assert drawn.v_call is not None
    assert all(name.startswith("TRBV") for name in drawn.v_call.vocabulary)
