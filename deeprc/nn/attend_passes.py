"""The two compiled passes of `attend_cpu`: from residues to logits, and from the gradients of logits to all others.

Letters: N sequences, n of one chunk, K kernel width, D kernels, E numbers of a sequence's gene embeddings, S = D + E
values of a sequence, H heads, n_layers SELU layers of at most U units (padded to whole tiles). The S values, padded to
whole tiles, are `padded_S`; a kernel, unit or value belongs to one of `tiles` tiles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import FAST, njit
from deeprc.nn.layers_cpu import (
    add_outer_products,
    add_row,
    apply_selu,
    backpropagate_selu,
    write_linear_layer,
    write_selu_layer,
)
from deeprc.nn.motif_convolution.cpu import (
    N_SUM_BLOCKS,
    PREFETCH_DISTANCE,
    SEQUENCES_PER_CHUNK,
    TILE,
    ConvolutionTables,
    add_windows,
    write_best_windows,
)
from deeprc.nn.sequences import BatchArrays
from deeprc.vectors import prefetch

__all__ = ["ForwardCache", "Gradients", "KeyLayers", "backward", "forward"]

_Array = NDArray[Any]


class ForwardCache(NamedTuple):
    """Intermediate results of a forward pass that are kept; an array has size 0 if it is not kept.

    Attributes
    ----------
    values
        Sequence values, (N, padded_S) float32.
    activations
        Outputs of the layers, (n_layers, N, U) float32.
    window
        Position of each kernel's best window in each sequence, (N, tiles * TILE) uint8 or int32.
    """

    values: _Array
    activations: _Array
    window: _Array


class KeyLayers(NamedTuple):
    """The key network and the queries in the form that a compiled pass reads.

    Attributes
    ----------
    weights
        Matrices of the layers by tiles, see `attend_cpu._arrange_in_tiles`: (n_in, n_out) in the forward pass, (n_out,
        n_in) in the backward pass.
    biases
        Biases of the layers, (n_layers, U).
    widths
        S, then the number of units of each layer, (n_layers + 1,) int64.
    queries
        Queries times beta, (H, n_keys) in the forward pass; by tiles, (tiles, H, TILE), in the backward pass.
    """

    weights: _Array
    biases: _Array
    widths: _Array
    queries: _Array


class Gradients(NamedTuple):
    """Gradients that a backward pass computes. If the first dimension is `blocks`, the gradient is the sum over blocks.

    Attributes
    ----------
    residues, positions
        Gradients of the tables of the convolution, see `allocate_gradient_buffers`.
    layers
        Gradients of the matrices of the layers by tiles, (blocks, n_layers, U // TILE, max(padded_S, U), TILE).
    biases
        Gradients of the biases of the convolution and of each layer, (blocks, n_layers + 1, max(padded_S, U)).
    queries
        Gradients of the queries by tiles, (blocks, tiles, H, TILE).
    gene_embeddings
        Gradients of the gene embeddings, (N, E).
    """

    residues: _Array
    positions: _Array
    layers: _Array
    biases: _Array
    queries: _Array
    gene_embeddings: _Array


@njit(parallel=True, nogil=True)
def forward(
    sequences: BatchArrays,
    tables: ConvolutionTables,
    gene_embeddings: _Array,
    layers: KeyLayers,
    cache: ForwardCache,
    logits: _Array,
) -> None:
    """Write the logits of all sequences, (N, H), and the results that are kept; `gene_embeddings` is (N, E)."""
    N = len(logits)
    for chunk in numba.prange((N + SEQUENCES_PER_CHUNK - 1) // SEQUENCES_PER_CHUNK):
        first = chunk * SEQUENCES_PER_CHUNK
        _forward_chunk(
            first, min(first + SEQUENCES_PER_CHUNK, N), sequences, tables, gene_embeddings, layers, cache, logits
        )


@njit(**FAST)
def _forward_chunk(
    first: int,
    stop: int,
    sequences: BatchArrays,
    tables: ConvolutionTables,
    gene_embeddings: _Array,
    layers: KeyLayers,
    cache: ForwardCache,
    logits: _Array,
) -> None:
    """Write the results of the sequences from `first` to `stop`, at most SEQUENCES_PER_CHUNK; see `forward`."""
    if len(cache.values) > 0:
        values = cache.values[first:stop]
    else:
        values = np.empty((SEQUENCES_PER_CHUNK, layers.weights.shape[2]), np.float32)
    E, S = gene_embeddings.shape[1], layers.widths[0]
    _convolve_chunk(first, stop, sequences, tables, values, cache.window)
    for n in range(first, stop):
        for e in range(E):
            values[n - first, S - E + e] = gene_embeddings[n, e]
    _write_logits_of_chunk(first, stop, values, layers, cache.activations, logits)


@njit(**FAST)
def _convolve_chunk(
    first: int, stop: int, sequences: BatchArrays, tables: ConvolutionTables, values: _Array, window: _Array
) -> None:
    """Write what the convolution and SELU give the sequences from `first` to `stop`.

    It is written into the first D columns of `values`, (n, S or more). Positions of the best windows are written into
    the `window` of the cache, if they are kept.
    """
    keeps_window, unused_window = len(window) > 0, np.empty(TILE, window.dtype)
    # one tile for all sequences before the next tile, so that its table stays in the cache of the processor
    for tile in range(len(tables.residues)):
        kernels = slice(tile * TILE, (tile + 1) * TILE)
        for n in range(first, stop):
            prefetch(sequences.residues, sequences.starts[min(n + PREFETCH_DISTANCE, len(sequences.starts) - 1)])
            maximum = values[n - first, kernels]
            best_window = window[n, kernels] if keeps_window else unused_window
            position_rows = tables.positions[tile, tables.first_row_of_length[sequences.lengths[n]] :]
            write_best_windows(sequences, n, tables.residues[tile], position_rows, maximum, best_window)
            apply_selu(maximum, tables.bias[kernels])


@njit(**FAST)
def _write_logits_of_chunk(
    first: int, stop: int, values: _Array, layers: KeyLayers, activations: _Array, logits: _Array
) -> None:
    """Write the logits of the sequences from `first` to `stop`, from their values, (n, S or more).

    Outputs of the layers are written into the `activations` of the cache, if they are kept.
    """
    weights, biases, widths, queries = layers
    keeps_activations = len(activations) > 0
    # swapped after each layer; `buffers[layer % 2]` is compiled to sums in another order, with other last bits
    input_buffer, output_buffer = np.empty((2, weights.shape[2]), np.float32)
    for n in range(first, stop):
        inputs = values[n - first]
        for layer in range(len(weights)):
            output = activations[layer, n] if keeps_activations else output_buffer
            for tile in range((widths[layer + 1] + TILE - 1) // TILE):
                units = slice(tile * TILE, (tile + 1) * TILE)
                write_selu_layer(inputs, widths[layer], weights[layer, tile], biases[layer, units], output[units])
            inputs, input_buffer, output_buffer = output, output_buffer, input_buffer
        for h in range(len(queries)):
            logit = np.float32(0)
            for d in range(queries.shape[1]):
                logit += queries[h, d] * inputs[d]
            logits[n, h] = logit


@njit(parallel=True, nogil=True)
def backward(
    sequences: BatchArrays,
    first_row_of_length: _Array,
    cache: ForwardCache,
    grad_values: _Array,
    grad_logits: _Array,
    layers: KeyLayers,
    gradients: Gradients,
) -> None:
    """Add the gradients of all sequences from those of their values, (N, padded_S), and of the logits, (N, H).

    `first_row_of_length` is that of `ConvolutionTables`. Of some sequences at a time, the gradients of all
    pre-activations are computed first, then those of the weights, so that the latter are read and written once for all
    of them.
    """
    N, n_layers, widest = len(grad_logits), len(layers.weights), gradients.biases.shape[2]
    for block in numba.prange(N_SUM_BLOCKS):
        block_gradients = Gradients(
            gradients.residues[block],
            gradients.positions[block],
            gradients.layers[block],
            gradients.biases[block],
            gradients.queries[block],
            gradients.gene_embeddings,
        )
        grad_preactivations = np.zeros((n_layers + 1, SEQUENCES_PER_CHUNK, widest), np.float32)
        block_stop = (block + 1) * N // N_SUM_BLOCKS
        for first in range(block * N // N_SUM_BLOCKS, block_stop, SEQUENCES_PER_CHUNK):
            stop = min(first + SEQUENCES_PER_CHUNK, block_stop)
            _backward_chunk(first, stop, cache, grad_values, grad_logits, layers, block_gradients, grad_preactivations)
            _accumulate_weight_gradients(first, stop, cache, grad_logits, layers, block_gradients, grad_preactivations)
            window, grad_windows = cache.window[first:stop], grad_preactivations[0]
            add_windows(
                sequences,
                first,
                window,
                grad_windows,
                first_row_of_length,
                block_gradients.residues,
                block_gradients.positions,
            )


@njit(**FAST)
def _backward_chunk(
    first: int,
    stop: int,
    cache: ForwardCache,
    grad_values: _Array,
    grad_logits: _Array,
    layers: KeyLayers,
    gradients: Gradients,
    grad_preactivations: _Array,
) -> None:
    """Write the gradients of the pre-activations of some sequences, (n_layers + 1, n, max(padded_S, U)).

    Pre-activations are the arguments of SELU; index 0 has those of the convolution, index i those of layer i, counted
    from 1. The gradients of biases are added up, those of gene embeddings written. Each array first holds the gradient
    of what SELU returned, until `backpropagate_selu` replaces it.
    """
    values, activations, window = cache
    weights, _, widths, queries = layers
    grad_biases, grad_genes = gradients.biases, gradients.gene_embeddings
    n_layers, H, E = len(weights), queries.shape[1], grad_genes.shape[1]
    for n in range(first, stop):
        row = n - first
        for tile in range(len(queries)):
            units = slice(tile * TILE, (tile + 1) * TILE)
            write_linear_layer(grad_logits[n], H, queries[tile], grad_preactivations[n_layers, row, units])
        for layer in range(n_layers - 1, -1, -1):
            grad_outputs, grad_inputs = grad_preactivations[layer + 1, row], grad_preactivations[layer, row]
            for tile in range((widths[layer + 1] + TILE - 1) // TILE):
                units = slice(tile * TILE, (tile + 1) * TILE)
                backpropagate_selu(grad_outputs[units], activations[layer, n, units], grad_biases[layer + 1, units])
            for tile in range((widths[layer] + TILE - 1) // TILE):
                units = slice(tile * TILE, (tile + 1) * TILE)
                write_linear_layer(grad_outputs, widths[layer + 1], weights[layer, tile], grad_inputs[units])
        grad_convolved = grad_preactivations[0, row]
        for tile in range(values.shape[1] // TILE):
            units = slice(tile * TILE, (tile + 1) * TILE)
            add_row(grad_convolved[units], grad_values[n, units])
        for e in range(E):
            grad_genes[n, e] = grad_convolved[widths[0] - E + e]
        for tile in range(window.shape[1] // TILE):
            units = slice(tile * TILE, (tile + 1) * TILE)
            backpropagate_selu(grad_convolved[units], values[n, units], grad_biases[0, units])


@njit(nogil=True)
def _accumulate_weight_gradients(
    first: int,
    stop: int,
    cache: ForwardCache,
    grad_logits: _Array,
    layers: KeyLayers,
    gradients: Gradients,
    grad_preactivations: _Array,
) -> None:
    """Add the gradients of the queries and of the layers' weights for some sequences; see `_backward_chunk`."""
    values, activations, _ = cache
    n_layers, widths = len(layers.weights), layers.widths
    keys = (activations[n_layers - 1] if n_layers else values)[first:stop]
    for tile in range(len(layers.queries)):
        add_outer_products(grad_logits[first:stop], layers.queries.shape[1], keys, tile, gradients.queries[tile])
    for layer in range(n_layers):
        inputs = (activations[layer - 1] if layer else values)[first:stop]
        grad_rows = grad_preactivations[layer + 1, : stop - first]
        for tile in range((widths[layer + 1] + TILE - 1) // TILE):
            add_outer_products(inputs, widths[layer], grad_rows, tile, gradients.layers[layer, tile])
