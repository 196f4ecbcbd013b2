"""A background of a V(D)J recombination model, by righor (https://github.com/Thopic/righor, MIT): extra `vdj`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.genes import normalise_genes
from deeprc.datasets.random_numbers import derive_key
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import Background
from deeprc.errors import InputError

__all__ = ["RecombinationBackground", "load_model"]

_BLOCK = 256
"""Number of sequences of one generator of righor; all sequences of a row's block are made together."""


def load_model(species: str, chain: str) -> Any:
    """Return righor's model of a chain of a species.

    Raises
    ------
    InputError
        If righor is not installed or has no such model.
    """
    try:
        import righor
    except ImportError:
        raise InputError("background: recombination needs righor: pip install 'deeprc[vdj]'") from None
    try:
        return righor.load_model(species, chain)
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"background: righor has no model of {species} {chain}: {error}") from error


@dataclass(frozen=True)
class RecombinationBackground(Background):
    """A background of productive junctions with their V and J genes.

    Attributes
    ----------
    chain, species
        Chain and species of righor's model: trb, tra or igh of humans, trb or tra of mice.
    """

    chain: str = "trb"
    species: str = "human"

    @cached_property
    def _model(self) -> Any:
        return load_model(self.species, self.chain)

    def draw(self, key: int, rows: NDArray[np.int64]) -> Sequences:
        """Return the sequences at these rows; see `Background.draw`."""
        blocks, block_of_row = np.unique(rows // _BLOCK, return_inverse=True)
        receptors_of_block = [self._generate_block(key, int(block)) for block in blocks]
        positions = zip(block_of_row.tolist(), (rows % _BLOCK).tolist(), strict=True)
        chosen = [receptors_of_block[block][position] for block, position in positions]
        genes = {
            "v_call": _normalise_calls([v for _, v, _ in chosen]),
            "j_call": _normalise_calls([j for _, _, j in chosen]),
        }
        return Sequences.encode([junction for junction, _, _ in chosen]).with_genes(genes)

    def _generate_block(self, key: int, index: int) -> list[tuple[str, str, str]]:
        generator = self._model.generator(seed=derive_key(key, index))
        made = (generator.generate_without_errors(functional=True) for _ in range(_BLOCK))
        return [(receptor.junction_aa, receptor.v_gene, receptor.j_gene) for receptor in made]


def _normalise_calls(names: list[str]) -> Categorical:
    """Return the IMGT names of genes, without alleles."""
    calls = Categorical.encode(names)
    stored = normalise_genes(calls.vocabulary).stored.take(calls.codes)
    return Categorical(stored.codes.astype(np.uint16), stored.vocabulary)
