"""h1, h2 and the attention logits in one pass over the sequences, and their gradients in another, compiled for the CPU.

A few sequences at a time go from residues to logits without leaving the fastest caches. Written as one operation after
another, as `DeepRC.attend` states it, the same takes twice as long, most of it in waiting for memory and threads.
Results do not depend on the number of threads: gradients are summed over a fixed number of blocks in a fixed order.
Letters: N sequences, K kernel width, D kernels, E further numbers of a sequence, S = D + E values, W values padded to
whole tiles, T tiles, H heads, C blocks, n_layers SELU layers of at most U units (padded to whole tiles).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from deeprc.compilation import njit
from deeprc.nn.motif_convolution.cpu import (
    AHEAD,
    BLOCKS,
    TILE,
    add_windows,
    best_windows,
    convolution_arrays,
    fetch_ahead,
    gradient_buffers,
    sum_of_buffers,
)
from deeprc.nn.motif_convolution.tables import rows_in_use
from deeprc.nn.vectors import add_outer_product, add_row, linear_layer, selu_gradient, selu_layer, selu_row

__all__ = ["attend", "score"]

_SEQUENCES = 64  # in work at a time: their values lie in the fastest cache beside a tile's table
_Array = NDArray[Any]
_Layers = Sequence[tuple[Tensor, Tensor]]
_Sequences = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def attend(
    sequences: _Sequences,
    weight: Tensor,
    bias: Tensor,
    further: Tensor,
    layers: _Layers,
    queries: Tensor,
    max_length: int,
) -> tuple[Tensor, Tensor]:
    """Return the sequence representations, (N, S), and the attention logits, (N, H), with gradients, in 32 bits.

    Parameters
    ----------
    sequences
        Residues, starts, lengths, residue and position scales, as in `motif_convolution`.
    weight, bias
        Of the motif convolution.
    further
        What the representations hold after the convolution's part, (N, E).
    layers
        Weight (n_out, n_in) and bias (n_out,) of each SELU layer of the key network.
    queries
        β ξ of each head, (H, n_out of the last layer, or S).
    max_length
        No sequence is longer.
    """
    parameters = (weight, bias, further, queries, *(tensor for layer in layers for tensor in layer))
    if torch.is_grad_enabled():
        values, logits = _Attend.apply(sequences, max_length, *parameters)  # type: ignore[no-untyped-call]  # torch types no `apply`
        return values, logits
    N, S = len(sequences[1]), len(weight) + further.shape[1]
    kept = _Kept(torch.empty(N, S + -S % TILE, dtype=torch.float32), *_nothing())
    logits = _forward_pass(sequences, weight, bias, further, layers, queries, max_length, kept)
    return kept.values[:, :S], logits


def score(
    sequences: _Sequences,
    weight: Tensor,
    bias: Tensor,
    further: Tensor,
    layers: _Layers,
    queries: Tensor,
    max_length: int,
) -> Tensor:
    """Return the attention logits alone, (N, H), without gradients; parameters as in `attend`."""
    kept = _Kept(weight.new_empty(0, 0), *_nothing())
    return _forward_pass(sequences, weight, bias, further, layers, queries, max_length, kept)


@dataclass(frozen=True)
class _Kept:
    """What is kept of the forward pass: values (N, W), activations (n_layers, N, U), windows (N, W); or empty."""

    values: Tensor
    activations: Tensor
    window: Tensor


def _nothing() -> tuple[Tensor, Tensor]:
    """Return activations and windows that are not kept."""
    return torch.empty((0, 0, 0), dtype=torch.float32), torch.empty((0, 0), dtype=torch.uint8)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sequences: _Sequences, max_length: int, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias, further, queries, *rest = (parameter.detach() for parameter in parameters)
        layers = list(zip(rest[::2], rest[1::2], strict=True))
        N, D, S = len(sequences[1]), len(weight), len(weight) + further.shape[1]
        kept = _Kept(
            torch.empty(N, S + -S % TILE, dtype=torch.float32),
            torch.empty(len(layers), N, _padded_units(layers), dtype=torch.float32),
            torch.empty((N, D + -D % TILE), dtype=torch.uint8 if max_length <= 256 else torch.int32),
        )
        logits = _forward_pass(sequences, weight, bias, further, layers, queries, max_length, kept)
        values = kept.values if S % TILE == 0 else kept.values[:, :S].clone(memory_format=torch.contiguous_format)
        ctx.save_for_backward(*sequences, weight, queries, kept.values, kept.activations, kept.window, *rest)
        ctx.max_length, ctx.n_values = max_length, S
        return values, logits

    @staticmethod
    def backward(ctx: Any, of_values: Tensor, of_logits: Tensor) -> tuple[Tensor | None, ...]:
        *sequences, weight, queries, values, activations, window = ctx.saved_tensors[:10]
        rest = ctx.saved_tensors[10:]
        layers = list(zip(rest[::2], rest[1::2], strict=True))
        D, S, sizes = len(weight), ctx.n_values, _sizes(ctx.n_values, layers)
        widest, W = _padded_units(layers), values.shape[1]
        rows, first_row = rows_in_use(sequences[2], ctx.max_length)
        buffers = gradient_buffers(weight, rows)
        layer_gradient = weight.new_zeros(BLOCKS, len(layers), widest // TILE, max(W, widest), TILE)
        bias_gradient = weight.new_zeros(BLOCKS, len(layers) + 1, max(W, widest))
        n_keys = queries.shape[1]
        heads = (
            functional.pad(queries, (0, -n_keys % TILE)).view(len(queries), -1, TILE).transpose(0, 1)
        )  # (T, H, TILE)
        query_gradient = weight.new_zeros(BLOCKS, *heads.shape)
        of_values = (
            functional.pad(of_values, (0, W - S)) if W > S else of_values
        )  # pad copies even when it adds nothing
        of_further = weight.new_empty(len(values), S - D)
        kept = (of_values, of_logits, values, activations, window)
        arrays = (t.contiguous().numpy() for t in (*sequences, *kept, first_row, heads))
        sums = (t.numpy() for t in (*buffers, layer_gradient, bias_gradient, query_gradient, of_further))
        weights = _by_tiles([layer_weight for layer_weight, _ in layers], widest, max(W, widest))
        _backward(*arrays, weights, sizes, ctx.max_length, *sums)
        of_layers: list[Tensor] = []
        for number, (n_in, n_out) in enumerate(pairwise(sizes.tolist())):
            by_tile = layer_gradient[:, number].sum(0)[:, :n_in]  # (T, n_in, TILE)
            of_layers += [by_tile.permute(0, 2, 1).reshape(-1, n_in)[:n_out], bias_gradient[:, number, :n_out].sum(0)]
        of_weight = sum_of_buffers(*buffers, ctx.max_length, rows)
        of_bias = bias_gradient[:, -1, :D].sum(0)
        of_queries = query_gradient.sum(0).transpose(0, 1).reshape(len(queries), -1)[:, :n_keys]
        return None, None, of_weight, of_bias, of_further, of_queries, *of_layers


def _sizes(n_values: int, layers: _Layers) -> NDArray[np.int64]:
    """Return S and the units of each layer, (n_layers + 1,)."""
    return np.array([n_values, *(len(bias) for _, bias in layers)], np.int64)


def _padded_units(layers: _Layers) -> int:
    most = max((len(bias) for _, bias in layers), default=0)
    return most + -most % TILE


def _forward_pass(
    sequences: _Sequences,
    weight: Tensor,
    bias: Tensor,
    further: Tensor,
    layers: _Layers,
    queries: Tensor,
    max_length: int,
    kept: _Kept,
) -> Tensor:
    """Return the logits, (N, H), and fill in what is to be kept."""
    arrays = convolution_arrays(*sequences, weight, bias, max_length)
    S, U = len(weight) + further.shape[1], _padded_units(layers)
    sizes, widest = _sizes(S, layers), max(S + -S % TILE, U)
    weights = _by_tiles([layer_weight.detach().T for layer_weight, _ in layers], widest, U)
    biases = np.zeros((len(layers), U), np.float32)
    for number, (_, layer_bias) in enumerate(layers):
        biases[number, : len(layer_bias)] = layer_bias.detach().numpy()
    logits = weight.new_empty((len(sequences[1]), len(queries)))
    heads, extra = (tensor.detach().contiguous().numpy() for tensor in (queries, further))
    outputs = (t.numpy() for t in (kept.values, kept.activations, kept.window, logits))
    _forward(*arrays, extra, weights, biases, sizes, heads, widest, *outputs)
    return logits


def _by_tiles(matrices: Sequence[Tensor], n_rows: int, n_columns: int) -> _Array:
    """Return matrices (n, m) by tiles of their columns, (matrices, n_columns // TILE, n_rows, TILE), padded with 0."""
    tiles = np.zeros((len(matrices), n_columns // TILE, n_rows, TILE), np.float32)
    for number, matrix in enumerate(matrices):
        n, m = matrix.shape
        padded = functional.pad(matrix, (0, n_columns - m))  # (n, n_columns)
        tiles[number, :, :n] = padded.reshape(n, -1, TILE).transpose(0, 1).numpy()
    return tiles


@njit(parallel=True, nogil=True, fastmath={"contract", "reassoc"})
def _forward(
    residues: _Array,
    starts: _Array,
    lengths: _Array,
    residue_scale: _Array,
    position_scale: _Array,
    table: _Array,
    position_table: _Array,
    first_row: _Array,
    bias: _Array,
    further: _Array,
    weights: _Array,
    biases: _Array,
    sizes: _Array,
    queries: _Array,
    widest: int,
    values: _Array,
    activations: _Array,
    window: _Array,
    logits: _Array,
) -> None:
    N, keep, keep_all = len(starts), len(values) > 0, len(window) > 0
    E, D = further.shape[1], sizes[0] - further.shape[1]
    for block in numba.prange((N + _SEQUENCES - 1) // _SEQUENCES):
        first, last = block * _SEQUENCES, min((block + 1) * _SEQUENCES, N)
        of_block = np.empty((_SEQUENCES, widest), np.float32)
        before, after = np.empty((2, widest), np.float32)
        nowhere = np.empty(TILE, window.dtype)
        for tile in range(len(table)):
            kernels = slice(tile * TILE, (tile + 1) * TILE)
            for n in range(first, last):
                fetch_ahead(residues, starts[min(n + AHEAD, N - 1)])
                L, best = lengths[n], (values[n] if keep else of_block[n - first])[kernels]
                rows, at = position_table[tile, first_row[L] :], window[n, kernels] if keep_all else nowhere
                best_windows(residues, starts[n], L, residue_scale[n], position_scale[n], table[tile], rows, best, at)
                selu_row(best, bias[kernels])
        for n in range(first, last):
            row = values[n] if keep else of_block[n - first]
            for e in range(E):
                row[D + e] = further[n, e]
            for layer in range(len(weights)):
                output = activations[layer, n] if keep_all else after
                for tile in range((sizes[layer + 1] + TILE - 1) // TILE):
                    units = slice(tile * TILE, (tile + 1) * TILE)
                    selu_layer(row, sizes[layer], weights[layer, tile], biases[layer, units], output[units])
                row, before, after = output, after, before
            for h in range(len(queries)):
                total = np.float32(0)
                for d in range(queries.shape[1]):
                    total += queries[h, d] * row[d]
                logits[n, h] = total


@njit(parallel=True, nogil=True, fastmath={"contract", "reassoc"})
def _backward(
    residues: _Array,
    starts: _Array,
    lengths: _Array,
    residue_scale: _Array,
    position_scale: _Array,
    of_values: _Array,
    of_logits: _Array,
    values: _Array,
    activations: _Array,
    window: _Array,
    first_row: _Array,
    queries: _Array,
    weights: _Array,
    sizes: _Array,
    max_length: int,
    residue_gradient: _Array,
    position_gradient: _Array,
    layer_gradient: _Array,
    bias_gradient: _Array,
    query_gradient: _Array,
    of_further: _Array,
) -> None:
    N, n_layers, widest = len(starts), len(weights), bias_gradient.shape[2]
    H, E, D = queries.shape[1], of_further.shape[1], sizes[0] - of_further.shape[1]
    for block in numba.prange(BLOCKS):
        sequence = np.empty(max_length + residue_gradient.shape[2], np.uint64)
        gradient, below = np.zeros((2, widest), np.float32)
        of_biases, of_queries = bias_gradient[block], query_gradient[block]
        for n in range(block * N // BLOCKS, (block + 1) * N // BLOCKS):
            fetch_ahead(residues, starts[min(n + AHEAD, N - 1)])
            keys = activations[n_layers - 1, n] if n_layers else values[n]
            for tile in range(len(queries)):
                units = slice(tile * TILE, (tile + 1) * TILE)
                linear_layer(of_logits[n], H, queries[tile], gradient[units])
                add_outer_product(of_logits[n], H, keys[units], of_queries[tile])
            for layer in range(n_layers - 1, -1, -1):
                inputs = activations[layer - 1, n] if layer else values[n]
                for tile in range((sizes[layer + 1] + TILE - 1) // TILE):
                    units = slice(tile * TILE, (tile + 1) * TILE)
                    selu_gradient(gradient[units], activations[layer, n, units], of_biases[layer, units])
                    add_outer_product(inputs, sizes[layer], gradient[units], layer_gradient[block, layer, tile])
                for tile in range((sizes[layer] + TILE - 1) // TILE):
                    linear_layer(
                        gradient, sizes[layer + 1], weights[layer, tile], below[tile * TILE : (tile + 1) * TILE]
                    )
                gradient, below = below, gradient
            for tile in range(values.shape[1] // TILE):
                units = slice(tile * TILE, (tile + 1) * TILE)
                add_row(gradient[units], of_values[n, units])
            for e in range(E):
                of_further[n, e] = gradient[D + e]
            for tile in range(window.shape[1] // TILE):
                units = slice(tile * TILE, (tile + 1) * TILE)
                selu_gradient(gradient[units], values[n, units], of_biases[n_layers, units])
            add_windows(
                residues,
                starts[n],
                lengths[n],
                residue_scale[n],
                position_scale[n],
                window[n],
                gradient,
                first_row[lengths[n]],
                sequence,
                residue_gradient[block],
                position_gradient[block],
            )
