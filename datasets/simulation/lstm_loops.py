"""The LSTM's recurrence as compiled code whose results are the same bits everywhere.

A sequence depends on the weights, its key and its row alone. Three rules ensure this:

- every sum has one order, and nothing is contracted or reassociated (no fastmath);
- the exponential and the hyperbolic tangent consist of additions, multiplications and divisions in float32, which
  IEEE 754 defines to the last bit;
- no mathematical library is called.

So the result depends neither on the number of threads, nor on the other sequences of a batch, nor on the width of the
processor's vectors.

Letters: n sequences, S lanes (sequences that are written side by side), H units, T tokens, P prefixes in the tree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.random_numbers import draw_word
from deeprc.datasets.simulation.lstm_model import BOUNDARY, MAX_LENGTH
from deeprc.datasets.simulation.lstm_product import TILE_LANES, add_product

__all__ = ["CHUNK", "LOGITS", "Prefixes", "Weights", "advance", "pack", "write_sequences"]

_Array = NDArray[Any]
_EXACT: dict[str, Any] = {"nogil": True, "error_model": "numpy"}  # no test for divisors of zero
_float = np.float32

LOGITS = 32
"""Number of tokens, with padding to whole vectors."""

CHUNK = 512
"""Number of sequences that a thread should write at a time."""

_LANES = 16
_LARGEST_TANH = _float(7.90531110763549805)  # from here on, tanh is 1
# tanh(x) = x (a1 + a3 x^2 + ...) / (b0 + b2 x^2 + ...), to 3e-7; Eigen's coefficients.
_A13, _A11, _A9 = _float(-2.76076847742355e-16), _float(2.00018790482477e-13), _float(-8.60467152213735e-11)
_A7, _A5, _A3 = _float(5.12229709037114e-08), _float(1.48572235717979e-05), _float(6.37261928875436e-04)
_A1 = _float(4.89352455891786e-03)
_B6, _B4 = _float(1.19825839466702e-06), _float(1.18534705686654e-04)
_B2, _B0 = _float(2.26843463243900e-03), _float(4.89352518554385e-03)
# exp(x) = 1 + x + x^2 (e2 + e3 x + ...) for |x| <= ln(2) / 2; Cephes's coefficients.
_E7, _E6, _E5 = _float(1.9875691500e-4), _float(1.3981999507e-3), _float(8.3334519073e-3)
_E4, _E3, _E2 = _float(4.1665795894e-2), _float(1.6666665459e-1), _float(5.0000001201e-1)
_LOG2_E, _LN2_HIGH, _LN2_LOW = _float(1.44269504088896341), _float(0.693359375), _float(-2.12194440e-4)
_ROUND = _float(12582912.0)  # 1.5 * 2 ** 23: adding it leaves no bits for a fraction
_MIN_EXP = _float(-80.0)
_HALF, _ONE = _float(0.5), _float(1.0)
_ULP = _float(2.0**-24)


class Weights(NamedTuple):
    """An LSTM's weights as the recurrence reads them; those of the three sigmoid gates are halved.

    Attributes
    ----------
    inputs
        Weights from the input tokens to the gates, with the gates' biases, (T, 4 H) float32.
    recurrent
        Weights from the units to the gates, (H, 4 H) float32, in blocks of columns; see `split_into_blocks`.
    outputs, bias
        Weights from the units to the logits, (H, 32) in blocks, and the biases of the logits, (32,); float32, padded.
    """

    inputs: _Array
    recurrent: _Array
    outputs: _Array
    bias: _Array


class Prefixes(NamedTuple):
    """The states after the most probable prefixes, so that what sequences have in common is computed once.

    Attributes
    ----------
    states, cells
        States and cells after each prefix, (P, H) float32. The first prefix is the empty one: the state after the
        start.
    cumulated
        Cumulated sums of the weights of the next tokens after each prefix, (P, 32) float32.
    children
        Index of the prefix that is one residue longer, (P, 20) int32; -1 if that prefix is not in the tree.
    """

    states: _Array
    cells: _Array
    cumulated: _Array
    children: _Array


@njit(inline="always", error_model="numpy")
def _tanh(x: Any) -> Any:
    x = min(max(x, -_LARGEST_TANH), _LARGEST_TANH)
    y = x * x
    above = (((((_A13 * y + _A11) * y + _A9) * y + _A7) * y + _A5) * y + _A3) * y + _A1
    below = ((_B6 * y + _B4) * y + _B2) * y + _B0
    return x * above / below


@njit(inline="always", error_model="numpy")
def _exp(x: Any) -> Any:
    """Return the exponential of a number that is not positive; below -80, return that of -80."""
    x = max(x, _MIN_EXP)
    power = (x * _LOG2_E + _ROUND) - _ROUND
    x = x - power * _LN2_HIGH - power * _LN2_LOW
    y = ((((_E7 * x + _E6) * x + _E5) * x + _E4) * x + _E3) * x + _E2
    y = y * x * x + x + _ONE
    return y * np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(**_EXACT)
def _update_state(gates: _Array, state: _Array, cell: _Array) -> None:
    """Replace a lane's cell and state by the next ones, from its gates, (4 H,); sigmoid(2 x) is (1 + tanh(x)) / 2."""
    H = len(cell)
    of_input, of_forget, of_cell, of_output = gates[:H], gates[H : 2 * H], gates[2 * H : 3 * H], gates[3 * H :]
    for j in range(H):
        kept = (_HALF + _HALF * _tanh(of_forget[j])) * cell[j]
        cell[j] = kept + (_HALF + _HALF * _tanh(of_input[j])) * _tanh(of_cell[j])
    for j in range(H):
        state[j] = (_HALF + _HALF * _tanh(of_output[j])) * _tanh(cell[j])


@njit(**_EXACT)
def _cumulate_weights(cumulated: _Array) -> None:
    """Turn logits, (32,), into cumulated weights of the tokens, in their order; the most probable one has weight 1."""
    largest = cumulated[0]
    for t in range(1, BOUNDARY + 1):
        largest = max(largest, cumulated[t])
    for t in range(LOGITS):
        cumulated[t] = _exp(min(cumulated[t] - largest, _float(0.0)))
    total = _float(0.0)
    for t in range(BOUNDARY + 1):
        total += cumulated[t]
        cumulated[t] = total


@njit(**_EXACT)
def advance(weights: Weights, tokens: _Array, states: _Array, cells: _Array, cumulated: _Array) -> None:
    """Advance n sequences by one token each, in place.

    Parameters
    ----------
    weights
        The LSTM's weights.
    tokens
        Token that follows in each sequence, (n,) int64.
    states, cells
        State and cell of each sequence, (n, H) float32; replaced by those after the token.
    cumulated
        Cumulated sums of the weights of the next tokens, (n, 32) float32; they are written.
    """
    H = states.shape[1]
    gates, states_of_tile = np.zeros((TILE_LANES, 4 * H), _float), np.zeros((TILE_LANES, H), _float)
    logits = np.zeros((TILE_LANES, LOGITS), _float)
    for i in range(len(tokens)):
        gates[0], states_of_tile[0] = weights.inputs[tokens[i]], states[i]
        add_product(gates, states_of_tile, weights.recurrent, 1)
        _update_state(gates[0], states[i], cells[i])
        logits[0], states_of_tile[0] = weights.bias, states[i]
        add_product(logits, states_of_tile, weights.outputs, 1)
        _cumulate_weights(logits[0])
        cumulated[i] = logits[0]


@njit(inline="always", error_model="numpy")
def _draw_token(cumulated: Any, key: Any, position: Any) -> Any:
    """Return the token at a position of the sequence of a key; no sequence is empty, or longer than `MAX_LENGTH`."""
    if position >= MAX_LENGTH:
        return BOUNDARY
    last = BOUNDARY if position else BOUNDARY - 1
    mark = _float(draw_word(key, position) >> uint64(40)) * _ULP * cumulated[last]
    token = 0
    for t in range(last):
        token += cumulated[t] <= mark
    return token


class _Lanes(NamedTuple):
    """S sequences that are being written.

    Row (-1 after its end), position, last token and key, (S,); state and cell, (S, H).
    """

    rows: _Array
    positions: _Array
    tokens: _Array
    keys: _Array
    states: _Array
    cells: _Array


@njit(**_EXACT)
def _begin_sequence(
    sequence_key: Any, row: int, prefixes: Prefixes, lanes: _Lanes, lane: int, residues: _Array, lengths: _Array
) -> bool:
    """Write a sequence as far as the tree of prefixes reaches; return whether it continues, in this lane.

    `sequence_key` is the key of its random numbers, and `row` its row in the residues and lengths.
    """
    prefix, position = 0, 0
    token = _draw_token(prefixes.cumulated[0], sequence_key, 0)
    while token != BOUNDARY:
        residues[row, position] = token
        position += 1
        longer = prefixes.children[prefix, token]
        if longer < 0:
            lanes.rows[lane], lanes.positions[lane], lanes.tokens[lane], lanes.keys[lane] = (
                row,
                position,
                token,
                sequence_key,
            )
            lanes.states[lane], lanes.cells[lane] = prefixes.states[prefix], prefixes.cells[prefix]
            return True
        prefix = longer
        token = _draw_token(prefixes.cumulated[prefix], sequence_key, position)
    lengths[row] = position
    return False


@njit(**_EXACT)
def _move_lane(lanes: _Lanes, source: int, to: int) -> None:
    lanes.rows[to], lanes.positions[to] = lanes.rows[source], lanes.positions[source]
    lanes.tokens[to], lanes.keys[to] = lanes.tokens[source], lanes.keys[source]
    lanes.states[to], lanes.cells[to] = lanes.states[source], lanes.cells[source]


@njit(**_EXACT)
def _fill_lanes(
    key: Any,
    rows: _Array,
    next_row: int,
    n_lanes: int,
    prefixes: Prefixes,
    lanes: _Lanes,
    residues: _Array,
    lengths: _Array,
) -> tuple[int, int]:
    """Begin the next sequences in lanes whose sequence has ended, and in lanes that are not yet used.

    The first `n_lanes` lanes are used. If no rows are left, the last lanes replace those that have ended. Return the
    row after those that were begun, and the new number of used lanes.
    """
    lane = 0
    while lane < _LANES:
        if lane < n_lanes and lanes.rows[lane] >= 0:
            lane += 1
        elif next_row < len(rows):
            if _begin_sequence(draw_word(key, rows[next_row]), next_row, prefixes, lanes, lane, residues, lengths):
                n_lanes = max(n_lanes, lane + 1)
            next_row += 1
        elif lane < n_lanes:
            n_lanes -= 1
            _move_lane(lanes, n_lanes, lane)
        else:
            break
    return next_row, n_lanes


@njit(**_EXACT)
def write_sequences(
    first: int,
    stop: int,
    key: Any,
    all_rows: _Array,
    weights: Weights,
    prefixes: Prefixes,
    all_residues: _Array,
    all_lengths: _Array,
) -> None:
    """Write the sequences of some of n rows into their rows of the residues, (n, 40) uint8, and lengths, (n,) int64.

    Sequences are written side by side in lanes; one that ends is replaced by the next.
    """
    rows, residues, lengths = all_rows[first:stop], all_residues[first:stop], all_lengths[first:stop]
    H = prefixes.states.shape[1]
    gates, cumulated = np.zeros((_LANES, 4 * H), _float), np.zeros((_LANES, LOGITS), _float)
    numbers = np.zeros((3, _LANES), np.int64)
    vectors = np.zeros((2, _LANES, H), _float)
    lanes = _Lanes(numbers[0], numbers[1], numbers[2], np.zeros(_LANES, np.uint64), vectors[0], vectors[1])
    next_row, n_lanes = _fill_lanes(key, rows, 0, 0, prefixes, lanes, residues, lengths)
    while n_lanes:
        for s in range(n_lanes):
            gates[s] = weights.inputs[lanes.tokens[s]]
        add_product(gates, lanes.states, weights.recurrent, n_lanes)
        for s in range(n_lanes):
            _update_state(gates[s], lanes.states[s], lanes.cells[s])
            cumulated[s] = weights.bias
        add_product(cumulated, lanes.states, weights.outputs, n_lanes)
        for s in range(n_lanes):
            _cumulate_weights(cumulated[s])
            token = _draw_token(cumulated[s], lanes.keys[s], lanes.positions[s])
            if token == BOUNDARY:
                lengths[lanes.rows[s]] = lanes.positions[s]
                lanes.rows[s] = -1
            else:
                residues[lanes.rows[s], lanes.positions[s]] = token
                lanes.tokens[s] = token
                lanes.positions[s] += 1
        next_row, n_lanes = _fill_lanes(key, rows, next_row, n_lanes, prefixes, lanes, residues, lengths)


@njit(**_EXACT)
def pack(first: int, stop: int, padded: _Array, offsets: _Array, residues: _Array) -> None:
    """Copy the sequences in some rows of `padded`, (n, 40), end to end into `residues`, (R,)."""
    for i in range(first, stop):
        for position in range(offsets[i + 1] - offsets[i]):
            residues[offsets[i] + position] = padded[i, position]
