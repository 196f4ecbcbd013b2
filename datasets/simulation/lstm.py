"""A background of sequences that an LSTM writes residue by residue (paper lines 8784-8803).

Letters: n sequences, R residues, H units, T tokens, P prefixes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import run_in_blocks
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import Background
from deeprc.datasets.simulation.lstm_loops import CHUNK, LOGITS, Prefixes, Weights, advance, pack, write_sequences
from deeprc.datasets.simulation.lstm_model import BOUNDARY, MAX_LENGTH, SHIPPED, LstmModel, load_model
from deeprc.datasets.simulation.lstm_product import split_into_blocks
from deeprc.errors import InputError

__all__ = ["LstmBackground"]

_DEEPEST = MAX_LENGTH - 1  # after this, only the end may follow
_PACKED = 1 << 13  # number of sequences that a thread copies at a time


@dataclass(frozen=True)
class LstmBackground(Background):
    """A background of sequences from an LSTM that predicts the next residue: start token, residues, end token.

    Sequence i of a draw is a function of the model, the key and `rows[i]`: the same bits on every machine, in any order
    and on any number of threads. A sequence has at least one residue (the end is not drawn first) and at most
    `MAX_LENGTH`, 40, where the end is forced.

    Attributes
    ----------
    path
        Path of a model made by `deeprc simulate train-lstm`; None: the model of the package, of human TRB junctions.
    shared
        Smallest probability of prefixes after which states are computed once; 1 turns that off. The sequences do not
        depend on it.

    Raises
    ------
    InputError
        If the file is no such model.
    """

    path: Path | None = None
    shared: float = field(default=1e-4, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.shared > 0:
            raise InputError(f"background: expected a `shared` above 0, found {self.shared}")
        _ = self.model  # errors of the file are raised now

    def __reduce__(self) -> tuple[partial[LstmBackground], tuple[Path | None]]:
        """Pickle the model as its path: each worker process reads the file itself."""
        return partial(LstmBackground, shared=self.shared), (self.path,)

    @cached_property
    def model(self) -> LstmModel:
        """The weights of the LSTM."""
        return load_model(SHIPPED if self.path is None else self.path)

    @cached_property
    def _weights(self) -> Weights:
        return _arrange_weights(self.model)

    @cached_property
    def _prefixes(self) -> Prefixes:
        return _find_likely_prefixes(self._weights, self.model.hidden, self.shared)

    def draw(self, key: int, rows: NDArray[np.int64]) -> Sequences:
        """Return the sequences at these rows, (n,), of the endless repertoire of a key of 64 bits."""
        padded = np.empty((len(rows), MAX_LENGTH), np.uint8)
        lengths = np.zeros(len(rows), np.int64)
        rows = np.ascontiguousarray(rows, np.int64)
        given = np.uint64(key), rows, self._weights, self._prefixes, padded, lengths
        run_in_blocks(write_sequences, len(rows), CHUNK, *given)
        offsets = compute_offsets(lengths)
        residues = np.empty(offsets[-1], np.uint8)
        run_in_blocks(pack, len(rows), _PACKED, padded, offsets, residues)
        return Sequences.counted_once(residues, offsets)


def _arrange_weights(model: LstmModel) -> Weights:
    """Return the weights as the recurrence reads them: halved for sigmoids, in blocks of gates, tokens padded."""
    H = model.hidden
    halved = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], np.float32), H)  # exact: input, forget, cell, output
    padding = LOGITS - len(model.bias)
    return Weights(
        np.ascontiguousarray(model.inputs * halved),
        split_into_blocks(model.recurrent * halved),
        split_into_blocks(np.pad(model.outputs, ((0, 0), (0, padding)))),
        np.pad(model.bias, (0, padding)),
    )


def _find_likely_prefixes(weights: Weights, hidden: int, shared: float) -> Prefixes:
    """Return the states after all prefixes with at least this probability, level by level; always the empty one."""
    states, cells = np.zeros((1, hidden), np.float32), np.zeros((1, hidden), np.float32)
    tokens, probabilities = np.array([BOUNDARY]), np.ones(1)
    levels, n = [], 0
    for depth in range(_DEEPEST + 1):
        cumulated = np.zeros((len(tokens), LOGITS), np.float32)
        advance(weights, tokens, states, cells, cumulated)
        n += len(tokens)
        next_ones = np.diff(cumulated[:, : BOUNDARY + 1].astype(np.float64), prepend=0.0)
        total = next_ones.sum(1, keepdims=True) - (next_ones[:, BOUNDARY:] if depth == 0 else 0.0)
        likely = probabilities[:, None] * next_ones[:, :BOUNDARY] / total  # (P, 20)
        parents, tokens = np.nonzero(likely >= shared) if depth < _DEEPEST else np.nonzero(likely > np.inf)
        children = np.full((len(likely), BOUNDARY), -1, np.int32)
        children[parents, tokens] = n + np.arange(len(parents))
        levels.append(Prefixes(states, cells, cumulated, children))
        states, cells, probabilities = states[parents], cells[parents], likely[parents, tokens]
        if not len(parents):
            break
    return Prefixes(*(np.concatenate(arrays) for arrays in zip(*levels, strict=True)))
