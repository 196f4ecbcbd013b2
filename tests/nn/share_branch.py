"""A branch whose numbers can be computed by hand: the share of sequences that hold a residue, minus a constant."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import Repertoire
from deeprc.documents import validate
from deeprc.errors import InputError
from deeprc.nn.branches import Branch


class ShareBranch(Branch):
    """The score of each output is the share of sequences with a residue, minus an offset."""

    name: ClassVar[str] = "composition"  # in the place of the real one
    offset: torch.Tensor

    def __init__(self, letter: str, offset: list[float]) -> None:
        super().__init__()
        self.letter = letter
        self.register_buffer("offset", torch.tensor(offset, dtype=torch.float64))

    def compute_contributions(self, repertoire: Repertoire) -> NDArray[np.float64]:
        """See `Branch`."""
        holds = np.array([self.letter in sequence for sequence in repertoire.sequences.decode()], float)
        return (holds[:, None] - self.offset.numpy()) / max(len(repertoire), 1)

    def describe(self) -> dict[str, Any]:
        """See `Branch`."""
        return {"letter": self.letter}

    @classmethod
    def from_description(cls, description: Any, n_outputs: int, where: str) -> ShareBranch:
        """See `Branch`."""
        letter = validate(description, dict[str, str], where).get("letter", "")
        return cls(letter, [0.0] * n_outputs)

    def check(self, where: str) -> None:
        """See `Branch`."""
        if self.letter not in AMINO_ACIDS:
            raise InputError(f"{where}: expected a residue, found {self.letter!r}")
