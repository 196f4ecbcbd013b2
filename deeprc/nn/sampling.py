"""Choice of sequences of each repertoire: at random, or those that have the highest attention.

Each function has two forms that choose the same rows: one compiled for the CPU, and one with tensors for other devices.
In the second form the host never waits for the device. So shapes or `total` fix the number of rows, and rows beyond the
last offset belong to no repertoire.
Letters: N sequences of all repertoires, n chosen ones, B repertoires, H heads.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.compilation import njit
from deeprc.datasets.random_numbers import GOLDEN, MIX_1, MIX_2, draw_uniform
from deeprc.hopfield.segments import index_segments

__all__ = ["COMPILED_CODE", "ROUNDING", "RowDraw", "draw_rows", "select_top_rows"]

COMPILED_CODE = threading.Lock()
"""Lock for parallel compiled code: not every threading layer of numba allows two threads to call it at once."""

ROUNDING = 1e-6
"""Number that is added to the ends of strata, so that rounding does not cut off the last sequence."""

_FRACTION_ROUNDING = 1e-9  # 0.07 * 100 is a little more than 7 in floating point, but 7 sequences are kept


class RowDraw(NamedTuple):
    """n sequences that were drawn from B repertoires.

    Attributes
    ----------
    rows
        Row of each sequence in its repertoire, (n,) int64.
    segments
        Index of each sequence's repertoire, (n,) int64.
    offsets
        Bounds of the repertoires among the sequences, (B + 1,) int64.
    """

    rows: Tensor
    segments: Tensor
    offsets: Tensor


def draw_rows(sizes: Tensor, max_rows: int, keys: Tensor, *, total: int | None = None) -> RowDraw:
    """Draw up to `max_rows` sequences of each repertoire at random, without replacement.

    The sequences of a repertoire are treated as a ring, which is cut at a random point into `max_rows` strata of
    consecutive sequences. One sequence is drawn from each stratum. So every sequence has the same probability, and if
    the file is sorted by abundance, these samples vary less than simple random ones. For example, three of ten
    sequences are one of three, one of the next three and one of the other four. The draw depends only on the key and is
    the same on every device.

    Parameters
    ----------
    sizes
        Number of sequences of each repertoire, (B,) int64.
    max_rows
        Number of sequences to draw from each; from a smaller repertoire all are drawn.
    keys
        Random numbers, one per repertoire, (B,) int64.
    total
        Number of rows to return; None takes the number of drawn rows, and then the host waits for a CUDA device.
    """
    offsets = _make_offsets(sizes.clamp(max=max_rows))
    if sizes.device.type == "cpu":
        rows, segments = np.empty((2, int(offsets[-1])), np.int64)
        with COMPILED_CODE:
            _draw_rows(sizes.numpy(), offsets.numpy(), keys.numpy().view(np.uint64), rows, segments)
        return RowDraw(torch.from_numpy(rows), torch.from_numpy(segments), offsets)
    n_rows = int(offsets[-1]) if total is None else total
    device_rows, device_segments = _draw_rows_by_tensors(sizes, offsets, keys, n_rows)
    return RowDraw(device_rows, device_segments, offsets)


def _make_offsets(counts: Tensor) -> Tensor:
    """Return the offsets, (B + 1,), of segments with these numbers of rows, (B,)."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


@njit(parallel=True, nogil=True)
def _draw_rows(
    sizes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    keys: NDArray[np.uint64],
    rows: NDArray[np.int64],
    segments: NDArray[np.int64],
) -> None:
    """Write the drawn rows, one from each stratum of consecutive rows, and the index of the repertoire of each."""
    for b in numba.prange(len(sizes)):
        n_strata = offsets[b + 1] - offsets[b]
        if n_strata == 0:
            continue
        rotation = int(draw_uniform(keys[b], -1) * sizes[b])
        width = sizes[b] / n_strata
        high = 0
        for stratum in range(n_strata):
            low, high = high, int((stratum + 1) * width + ROUNDING)
            row = low + int(draw_uniform(keys[b], stratum) * (high - low)) + rotation
            rows[offsets[b] + stratum] = row - sizes[b] if row >= sizes[b] else row
            segments[offsets[b] + stratum] = b


def _draw_rows_by_tensors(sizes: Tensor, offsets: Tensor, keys: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Draw the same rows as `_draw_rows`, on any device, without copying numbers to the host."""
    n_strata = offsets.diff()  # (B,)
    segments = index_segments(offsets, total).clamp_(max=len(sizes) - 1)  # (total,), like all that follows
    stratum = torch.arange(total, device=sizes.device) - offsets.index_select(0, segments)
    stratum = torch.minimum(stratum, n_strata.index_select(0, segments) - 1).clamp_(min=0)
    size, key = sizes.index_select(0, segments), keys.index_select(0, segments)
    width = (sizes.double() / n_strata.clamp(min=1)).index_select(0, segments)
    low, high = ((end * width + ROUNDING).long() for end in (stratum, stratum + 1))
    rotation = (_draw_uniform_tensor(keys, torch.full_like(keys, -1)) * sizes).long().index_select(0, segments)
    row = low + (_draw_uniform_tensor(key, stratum) * (high - low)).long() + rotation
    return torch.where(row >= size, row - size, row), segments


def _draw_uniform_tensor(keys: Tensor, counters: Tensor) -> Tensor:
    """Return a uniform random number in float64 for each pair of key and counter, int64, as `draw_uniform` does."""
    golden, *factors = (value - 2**64 for value in (GOLDEN, MIX_1, MIX_2))  # the same bits, with a sign
    z = keys + (counters + 1) * golden
    for bits, factor in zip((30, 27), factors, strict=True):
        z = (z ^ _shift_right(z, bits)) * factor
    return _shift_right(z ^ _shift_right(z, 31), 11).double() * 2.0**-53


def _shift_right(values: Tensor, bits: int) -> Tensor:
    """Shift int64 to the right as if it were unsigned."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def select_top_rows(
    logits: Tensor, offsets: Tensor, fraction: float, max_rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """Choose the sequences with the highest attention in each repertoire.

    With several heads, the maximum of each head over the repertoire is subtracted from its logits, and a sequence is
    ranked by its highest difference. Among equal sequences the first ones are chosen.

    Parameters
    ----------
    logits
        Attention logits of all sequences, (N, H).
    offsets
        Offsets of the repertoires in the sequences, (B + 1,).
    fraction
        Fraction of each repertoire that is kept, in (0, 1]; rounded up, so that at least one sequence remains.
    max_rows
        Largest number of sequences that are kept of each repertoire; None sets no limit.

    Returns
    -------
    The chosen rows, (n,) int64, repertoire by repertoire, and the offsets of the repertoires in them, (B + 1,).
    """
    if logits.device.type == "cpu":
        kept_offsets = _make_offsets(_count_kept(offsets.diff(), fraction, max_rows))
        rows = np.empty(int(kept_offsets[-1]), np.int64)
        with COMPILED_CODE:
            _select_top_rows(logits.detach().double().numpy(), offsets.numpy(), kept_offsets.numpy(), rows)
        return torch.from_numpy(rows), kept_offsets
    return _select_top_rows_by_tensors(logits.detach(), offsets, fraction, max_rows)


def _count_kept(sizes: Tensor, fraction: float, max_rows: int | None) -> Tensor:
    """Return how many sequences of each repertoire are kept, (B,) int64, from the numbers of its sequences, (B,)."""
    fractions = sizes.double() * fraction - _FRACTION_ROUNDING
    return fractions.ceil().clamp(min=1, max=max_rows).minimum(sizes).long()


@njit(nogil=True)
def _select_kth_smallest(values: NDArray[np.float64], k: int) -> float:
    """Return the k-th smallest value, with k from 0; it changes the order of the values, and none may be NaN.

    This is Hoare's selection. numpy's partition would take ten seconds to compile.
    """
    low, high = 0, len(values) - 1
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return float(values[k])


@njit(parallel=True, nogil=True)
def _select_top_rows(
    logits: NDArray[np.float64], offsets: NDArray[np.int64], kept_offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> None:
    """Write the rows with the highest scores of each repertoire, see `select_top_rows`; of equal ones, the first.

    The score of a row is its logit minus the highest logit of the head in the repertoire, the maximum over heads. If
    one of these logits is NaN, the score is infinite.
    """
    H = logits.shape[1]
    for b in numba.prange(len(offsets) - 1):
        first, stop, n_kept = offsets[b], offsets[b + 1], kept_offsets[b + 1] - kept_offsets[b]
        if n_kept == 0:
            continue
        scores, reordered = np.empty(stop - first), np.empty(stop - first)
        for n in range(stop - first):
            scores[n] = -np.inf
        for h in range(H):
            highest = -np.inf
            for n in range(first, stop):
                if logits[n, h] > highest or np.isnan(logits[n, h]):
                    highest = logits[n, h]  # NaN stays, because no number is above it
            for n in range(stop - first):
                below_highest = logits[first + n, h] - highest
                # comparisons with NaN are false
                scores[n] = np.inf if np.isnan(below_highest) else max(scores[n], below_highest)
        for n in range(stop - first):
            reordered[n] = scores[n]
        threshold = _select_kth_smallest(reordered, len(scores) - n_kept)
        n_at_threshold = n_kept  # number of rows at the threshold that are still to be kept, the first ones
        for n in range(stop - first):
            n_at_threshold -= scores[n] > threshold
        next_row = kept_offsets[b]
        for n in range(stop - first):
            is_at_threshold = scores[n] == threshold
            if scores[n] > threshold or (is_at_threshold and n_at_threshold > 0):
                n_at_threshold -= is_at_threshold
                rows[next_row] = first + n
                next_row += 1


def _select_top_rows_by_tensors(
    logits: Tensor, offsets: Tensor, fraction: float, max_rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """Choose the top rows without copying numbers to the host; the shapes alone determine the size of the result."""
    N, B = len(logits), len(offsets) - 1
    if N == 0:
        return offsets.new_empty(0), offsets
    segments = index_segments(offsets, N)  # (N,)
    narrow = segments.to(torch.uint8 if B < 256 else torch.int32)  # the fewer bits, the fewer passes to sort by them
    scores = logits[:, 0]
    if logits.shape[1] > 1:
        first = offsets[:-1].clamp(max=N - 1)
        highest_by_head = [
            head_logits[_sort_descending(head_logits, narrow).index_select(0, first)]
            for head_logits in logits.unbind(1)
        ]
        highest = torch.stack(highest_by_head, dim=1)  # (B, H); not used for an empty repertoire
        highest = torch.cat([highest, highest.new_zeros(1, logits.shape[1])])  # for rows beyond the last offset
        scores = (logits - highest.index_select(0, segments)).amax(dim=1)
    order = _sort_descending(scores, narrow)
    kept_offsets = _make_offsets(_count_kept(offsets.diff(), fraction, max_rows))
    total = min(N, int(N * fraction) + B, N if max_rows is None else B * max_rows)
    kept_segments = index_segments(kept_offsets, total).clamp_(max=B - 1)
    rank = torch.arange(total, device=offsets.device) - kept_offsets.index_select(0, kept_segments)
    sorted_rows = offsets.index_select(0, kept_segments) + rank
    return order.index_select(0, sorted_rows.clamp_(max=N - 1)), kept_offsets


def _sort_descending(scores: Tensor, segments: Tensor) -> Tensor:
    """Return the rows (N,) sorted by repertoire and, in it, by falling scores (N,).

    This takes two stable sorts, because with atomic maxima over a few repertoires the threads of a GPU would collide.
    """
    by_score = torch.sort(scores, descending=True, stable=True).indices
    return by_score.index_select(0, torch.sort(segments.index_select(0, by_score), stable=True).indices)
