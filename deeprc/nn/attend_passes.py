"""The two compiled passes of `attend_cpu`: from residues to logits, and from the gradients of logits to all others.

Letters: N sequences, K kernel width, D kernels, E numbers of a sequence's gene embeddings, S = D + E values, W values
padded to whole tiles, T tiles, H heads, C blocks, n_layers SELU layers of at most U units (padded to whole tiles).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import FAST, njit
from deeprc.nn.layers_cpu import add_outer_products, add_row, linear_layer, selu_gradient, selu_layer, selu_row
from deeprc.nn.motif_convolution.cpu import (
    AHEAD,
    BLOCKS,
    SEQUENCES,
    TILE,
    ConvolutionTables,
    add_windows,
    best_windows,
)
from deeprc.nn.sequences import BatchArrays
from deeprc.vectors import prefetch

__all__ = ["Gradients", "Kept", "KeyLayers", "backward", "forward"]

_Array = NDArray[Any]


class Kept(NamedTuple):
    """Intermediate results that a forward pass keeps; an array has size 0 if it is not kept.

    Attributes
    ----------
    values
        Representations of the sequences, (N, W) float32.
    activations
        Outputs of the layers, (n_layers, N, U) float32.
    window
        Position of each kernel's best window in each sequence, (N, T * TILE) uint8 or int32.
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
    sizes
        S, then the number of units of each layer, (n_layers + 1,) int64.
    queries
        Queries times beta, (H, n_keys) in the forward pass; by tiles, (tiles, H, TILE), in the backward pass.
    """

    weights: _Array
    biases: _Array
    sizes: _Array
    queries: _Array


class Gradients(NamedTuple):
    """Gradients that a backward pass computes. If the first dimension is C, the gradient is the sum over C blocks.

    Attributes
    ----------
    residues, positions
        Gradients of the tables of the convolution, see `allocate_gradient_buffers`.
    layers
        Gradients of the matrices of the layers by tiles, (C, n_layers, U // TILE, max(W, U), TILE).
    biases
        Gradients of the biases of the layers and, last, of the convolution, (C, n_layers + 1, max(W, U)).
    queries
        Gradients of the queries by tiles, (C, tiles, H, TILE).
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
    kept: Kept,
    logits: _Array,
) -> None:
    """Write the logits of all sequences, (N, H), and the results that are kept; `gene_embeddings` is (N, E)."""
    N = len(logits)
    for block in numba.prange((N + SEQUENCES - 1) // SEQUENCES):
        first = block * SEQUENCES
        _compute_some(first, min(first + SEQUENCES, N), sequences, tables, gene_embeddings, layers, kept, logits)


@njit(**FAST)
def _compute_some(
    first: int,
    last: int,
    sequences: BatchArrays,
    tables: ConvolutionTables,
    gene_embeddings: _Array,
    layers: KeyLayers,
    kept: Kept,
    logits: _Array,
) -> None:
    """Write the results of the sequences from `first` to `last`; see `forward`."""
    residues, starts, lengths = sequences.residues, sequences.starts, sequences.lengths
    values, activations, window = kept
    weights, biases, sizes, queries = layers
    keep, keep_all, widest = len(values) > 0, len(window) > 0, weights.shape[2]
    E, D = gene_embeddings.shape[1], sizes[0] - gene_embeddings.shape[1]
    of_block = np.empty((SEQUENCES, widest), np.float32)
    before, after = np.empty((2, widest), np.float32)
    nowhere = np.empty(TILE, window.dtype)
    for tile in range(len(tables.residues)):
        kernels = slice(tile * TILE, (tile + 1) * TILE)
        for n in range(first, last):
            prefetch(residues, starts[min(n + AHEAD, len(starts) - 1)])
            best = (values[n] if keep else of_block[n - first])[kernels]
            rows = tables.positions[tile, tables.first_row[lengths[n]] :]
            at = window[n, kernels] if keep_all else nowhere
            best_windows(sequences, n, tables.residues[tile], rows, best, at)
            selu_row(best, tables.bias[kernels])
    for n in range(first, last):
        row = values[n] if keep else of_block[n - first]
        for e in range(E):
            row[D + e] = gene_embeddings[n, e]
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


@njit(parallel=True, nogil=True)
def backward(
    sequences: BatchArrays,
    first_row: _Array,
    kept: Kept,
    grad_values: _Array,
    grad_logits: _Array,
    layers: KeyLayers,
    gradients: Gradients,
) -> None:
    """Add the gradients of all sequences from those of the representations, (N, W), and of the logits, (N, H).

    `first_row` is that of `ConvolutionTables`. Of some sequences at a time, the gradients of the sums of each layer are
    computed first, then those of its weights, so that the latter are read and written once for all of them.
    """
    N, n_layers, widest = len(grad_logits), len(layers.weights), gradients.biases.shape[2]
    for block in numba.prange(BLOCKS):
        own = Gradients(
            gradients.residues[block],
            gradients.positions[block],
            gradients.layers[block],
            gradients.biases[block],
            gradients.queries[block],
            gradients.gene_embeddings,
        )
        grad_sums = np.zeros((n_layers + 1, SEQUENCES, widest), np.float32)
        last = (block + 1) * N // BLOCKS
        for first in range(block * N // BLOCKS, last, SEQUENCES):
            stop = min(first + SEQUENCES, last)
            _propagate(first, stop, kept, grad_values, grad_logits, layers, own, grad_sums)
            _add_to_layers(first, stop, kept, grad_logits, layers, own, grad_sums)
            grad_windows = grad_sums[n_layers]
            add_windows(sequences, first, kept.window[first:stop], grad_windows, first_row, own.residues, own.positions)


@njit(**FAST)
def _propagate(
    first: int,
    last: int,
    kept: Kept,
    grad_values: _Array,
    grad_logits: _Array,
    layers: KeyLayers,
    gradients: Gradients,
    grad_sums: _Array,
) -> None:
    """Write the gradients of the sums before each SELU for some sequences, (n_layers + 1, n, max(W, U)).

    The last ones, which also have the index -1, are those of the convolution. The gradients of biases are added up,
    those of gene embeddings written.
    """
    values, activations, window = kept
    weights, _, sizes, queries = layers
    grad_biases, grad_genes = gradients.biases, gradients.gene_embeddings
    n_layers, H, E = len(weights), queries.shape[1], grad_genes.shape[1]
    for n in range(first, last):
        i = n - first
        for tile in range(len(queries)):
            units = slice(tile * TILE, (tile + 1) * TILE)
            linear_layer(grad_logits[n], H, queries[tile], grad_sums[n_layers - 1, i, units])
        for layer in range(n_layers - 1, -1, -1):
            gradient = grad_sums[layer, i]
            for tile in range((sizes[layer + 1] + TILE - 1) // TILE):
                units = slice(tile * TILE, (tile + 1) * TILE)
                selu_gradient(gradient[units], activations[layer, n, units], grad_biases[layer, units])
            for tile in range((sizes[layer] + TILE - 1) // TILE):
                units = slice(tile * TILE, (tile + 1) * TILE)
                linear_layer(gradient, sizes[layer + 1], weights[layer, tile], grad_sums[layer - 1, i, units])
        gradient = grad_sums[n_layers, i]
        for tile in range(values.shape[1] // TILE):
            units = slice(tile * TILE, (tile + 1) * TILE)
            add_row(gradient[units], grad_values[n, units])
        for e in range(E):
            grad_genes[n, e] = gradient[sizes[0] - E + e]
        for tile in range(window.shape[1] // TILE):
            units = slice(tile * TILE, (tile + 1) * TILE)
            selu_gradient(gradient[units], values[n, units], grad_biases[n_layers, units])


@njit(nogil=True)
def _add_to_layers(
    first: int, last: int, kept: Kept, grad_logits: _Array, layers: KeyLayers, gradients: Gradients, grad_sums: _Array
) -> None:
    """Add the gradients of the queries and of the layers' weights for some sequences; see `_propagate`."""
    values, activations, _ = kept
    n_layers, sizes = len(layers.weights), layers.sizes
    keys = (activations[n_layers - 1] if n_layers else values)[first:last]
    for tile in range(len(layers.queries)):
        add_outer_products(grad_logits[first:last], layers.queries.shape[1], keys, tile, gradients.queries[tile])
    for layer in range(n_layers):
        inputs, rows = (activations[layer - 1] if layer else values)[first:last], grad_sums[layer, : last - first]
        for tile in range((sizes[layer + 1] + TILE - 1) // TILE):
            add_outer_products(inputs, sizes[layer], rows, tile, gradients.layers[layer, tile])
