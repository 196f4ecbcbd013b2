"""The draw of a training batch on CUDA, compiled with Triton: which sequences are drawn, where they are, their scales.

One launch does what `draw_rows` and `Collator` do with about fifty tensor operations, and draws the same sequences. It
saves time because a GPU starts each of these operations more slowly than it computes them. Nothing waits for the
device, and the launch depends on shapes only. So calls can be captured in a CUDA graph, after one call with the same
shapes.
Letters: N sequences of the batch, B repertoires of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from deeprc.datasets.random_numbers import GOLDEN, MIX_1, MIX_2
from deeprc.nn.features import ABUNDANCE_MODES, AbundanceMode
from deeprc.nn.sampling import ROUNDING
from deeprc.nn.sequence_tensors import RepertoireTable, SequenceTensors
from deeprc.nn.sequences import SequenceBatch

__all__ = ["SequenceDraw", "draw_sequences"]

_ROWS = 128  # number of sequences that a program draws
# Without fusion, products are rounded before they are added. The CPU rounds in this way, too, so the same sequences
# are drawn.
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}

_GOLDEN, _MIX_1, _MIX_2 = tl.constexpr(GOLDEN), tl.constexpr(MIX_1), tl.constexpr(MIX_2)
_ROUNDING = tl.constexpr(ROUNDING)
_NONE, _LOG = tl.constexpr(ABUNDANCE_MODES.index("none")), tl.constexpr(ABUNDANCE_MODES.index("log"))
# These arrays are slices of two allocations, so their alignment depends on `total`.
_OUTPUTS = ["column_rows", "starts", "lengths", "residue_scale", "position_scale"]
_PER_BATCH = ["positions", "keys", *_OUTPUTS, "B", "N", "n_stored", "max_rows"]
"""Parameters that differ between batches; their alignment or divisibility must not cause another compilation."""


class SequenceDraw(NamedTuple):
    """A batch of N sequences of B repertoires, as `draw_sequences` draws it.

    Attributes
    ----------
    sequences
        The sequences.
    offsets
        Bounds of the repertoires among the sequences, (B + 1,) int64.
    column_rows
        Row of each sequence in the columns, (N,) int64.
    """

    sequences: SequenceBatch
    offsets: Tensor
    column_rows: Tensor


def draw_sequences(
    columns: SequenceTensors,
    repertoires: RepertoireTable,
    positions: Tensor,
    keys: Tensor,
    *,
    max_rows: int,
    total: int,
    abundance: AbundanceMode,
    max_length: int,
) -> SequenceDraw:
    """Draw sequences of repertoires as `draw_rows` does, and look them up.

    Parameters
    ----------
    columns
        The sequences of the container, on the device.
    repertoires
        Sizes, first rows and inverse standard deviations of all repertoires of the dataset, on the device.
    positions
        Positions of the batch's repertoires in the dataset, (B,) int64.
    keys
        Keys of their draws, (B,) int64.
    max_rows
        Number of sequences to draw of each repertoire; of a smaller one, all are drawn.
    total
        Number of sequences of the batch, N: those beyond the last offset belong to no repertoire.
    abundance
        Abundance scale of the one-hot features, see `compute_abundance_scale`.
    max_length
        Upper limit of the lengths, for the batch.
    """
    B, device = len(positions), positions.device
    column_rows, starts, lengths = torch.empty((3, total), dtype=torch.int64, device=device)
    residue_scale, position_scale = torch.empty((2, total), dtype=torch.float32, device=device)
    offsets = torch.empty(B + 1, dtype=torch.int64, device=device)
    outputs = (column_rows, starts, lengths, residue_scale, position_scale, offsets)
    stored = (columns.offsets, columns.counts)
    with torch.cuda.device_of(positions):
        _draw_sequences[max(1, triton.cdiv(total, _ROWS)),](
            *repertoires,
            positions,
            keys,
            *stored,
            *outputs,
            B,
            total,
            len(columns.counts),
            max_rows,
            ABUNDANCE_MODES.index(abundance),
            _ROWS,
            **_OPTIONS,
        )
    sequences = SequenceBatch(columns.residues, starts, lengths, residue_scale, position_scale, max_length)
    return SequenceDraw(sequences, offsets, column_rows)


@triton.jit
def _draw_uniform(key: tl.tensor, counter: tl.tensor) -> tl.tensor:
    """Return random numbers in [0, 1), float64, as `deeprc.datasets.random_numbers.draw_uniform`; both are uint64."""
    z = key + (counter + 1) * _GOLDEN
    z = (z ^ (z >> 30)) * _MIX_1
    z = (z ^ (z >> 27)) * _MIX_2
    return ((z ^ (z >> 31)) >> 11).to(tl.float64) * (2.0**-53)


@triton.jit
def _draw_row(stratum: tl.tensor, size: tl.tensor, n_drawn: tl.tensor, key: tl.tensor) -> tl.tensor:
    """Return the row that is drawn from a stratum of a repertoire with this size and key, int64, as `draw_rows` does.

    A repertoire has `n_drawn` strata.
    """
    width = size.to(tl.float64) / tl.maximum(n_drawn, 1).to(tl.float64)
    rounding = tl.full((), _ROUNDING, tl.float64)
    low = (stratum.to(tl.float64) * width + rounding).to(tl.int64)
    high = ((stratum + 1).to(tl.float64) * width + rounding).to(tl.int64)
    bits = key.to(tl.uint64, bitcast=True)
    counter_of_rotation = tl.full(stratum.shape, -1, tl.int64).to(tl.uint64, bitcast=True)
    rotation = (_draw_uniform(bits, counter_of_rotation) * size.to(tl.float64)).to(tl.int64)
    uniform = _draw_uniform(bits, stratum.to(tl.uint64, bitcast=True))
    row = low + (uniform * (high - low).to(tl.float64)).to(tl.int64) + rotation
    return tl.where(row >= size, row - size, row)


@triton.jit
def _compute_abundance_scale(count: tl.tensor, ABUNDANCE: tl.constexpr) -> tl.tensor:
    """Return the scale of sequences with these counts, whose bits are those of int32; see `compute_abundance_scale`."""
    count = tl.maximum(count.to(tl.uint32, bitcast=True).to(tl.float64), 1.0)
    return tl.log(count if ABUNDANCE == _LOG else count + 1).to(tl.float32)


@triton.jit(do_not_specialize=_PER_BATCH)
def _draw_sequences(
    sizes: tl.tensor,
    first_rows: tl.tensor,
    inverse_stds: tl.tensor,
    positions: tl.tensor,
    keys: tl.tensor,
    stored_offsets: tl.tensor,
    counts: tl.tensor,
    column_rows: tl.tensor,
    starts: tl.tensor,
    lengths: tl.tensor,
    residue_scale: tl.tensor,
    position_scale: tl.tensor,
    offsets: tl.tensor,
    B: tl.tensor,
    N: tl.tensor,
    n_stored: tl.tensor,
    max_rows: tl.tensor,
    ABUNDANCE: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Draw `ROWS` sequences of the batch, look them up, and write them; the first program also writes the offsets.

    Every program reads the sizes of all B repertoires of the batch, which are few.
    """
    program = tl.program_id(0)
    n = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    # Of the repertoire of each of these sequences: size, first row, first sequence in the batch, number drawn, key.
    size = tl.full((ROWS,), 0, tl.int64)
    first_row, offset, n_drawn, key = size, size, size, size
    inverse_std = tl.full((ROWS,), 0, tl.float32)
    begin = tl.full((), 0, tl.int64)
    for b in range(B):  # a sequence is of the last repertoire that begins at it or before
        position = tl.load(positions + b)
        size_of_b = tl.load(sizes + position)
        n_drawn_of_b = tl.minimum(size_of_b, max_rows)
        reached = n >= begin
        size = tl.where(reached, size_of_b, size)
        n_drawn = tl.where(reached, n_drawn_of_b, n_drawn)
        offset = tl.where(reached, begin, offset)
        first_row = tl.where(reached, tl.load(first_rows + position), first_row)
        key = tl.where(reached, tl.load(keys + b), key)
        inverse_std = tl.where(reached, tl.load(inverse_stds + position), inverse_std)
        tl.store(offsets + b, begin, mask=program == 0)
        begin += n_drawn_of_b
    tl.store(offsets + B, begin, mask=program == 0)
    stratum = tl.maximum(tl.minimum(n - offset, n_drawn - 1), 0)
    row = _draw_row(stratum, size, n_drawn, key)
    # Rows that only fill the batch may be out of range.
    column_row = tl.maximum(tl.minimum(first_row + row, n_stored - 1), 0)
    written = n < N
    readable = written & (n_stored > 0)
    start = tl.load(stored_offsets + column_row, mask=readable, other=0)
    tl.store(column_rows + n, column_row, mask=written)
    tl.store(starts + n, start, mask=written)
    tl.store(lengths + n, tl.load(stored_offsets + column_row + 1, mask=readable, other=0) - start, mask=written)
    scale = inverse_std
    if ABUNDANCE != _NONE:
        count = tl.load(counts + column_row, mask=readable, other=1)
        scale *= _compute_abundance_scale(count, ABUNDANCE)
    tl.store(residue_scale + n, scale, mask=written)
    tl.store(position_scale + n, inverse_std, mask=written)
