"""h1, h2 and the attention logits in one pass over the sequences, and their gradients in another, compiled for the CPU.

A few sequences at a time are computed from residues to logits, so that their numbers stay in the fastest caches. The
same operations one after another, as in `DeepRC.attend`, take twice as long, because most of the time they wait for
memory and threads. Results do not depend on the number of threads: gradients are summed over a fixed number of blocks
in a fixed order.

This module connects torch with the compiled passes of `attend_passes`, which compute a tile of TILE units at a time. So
weights are copied into tiles before a pass, where zeros fill the last one, and gradients are taken out of tiles after
it. Sequence values and logits are not copied: torch's tensors and the arrays of the passes share their memory.

Letters: N sequences, K kernel width, D kernels, E numbers of a sequence's gene embeddings, S = D + E values of a
sequence (`padded_S`: padded to whole tiles), H heads, n_layers SELU layers of at most U units (padded to whole tiles).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from deeprc.nn.attend_passes import ForwardCache, Gradients, KeyLayers, backward, forward
from deeprc.nn.motif_convolution.cpu import (
    N_SUM_BLOCKS,
    TILE,
    allocate_gradient_buffers,
    make_convolution_tables,
    round_up_to_tiles,
    sum_buffers,
)
from deeprc.nn.motif_convolution.tables import choose_window_dtype, find_rows_in_use
from deeprc.nn.sequences import SequenceBatch

__all__ = ["NetworkWeights", "attend", "compute_logits"]

_Array = NDArray[Any]


@dataclass(frozen=True)
class NetworkWeights:
    """The weights of h1, h2 and the queries, which the compiled pass needs.

    Attributes
    ----------
    kernels, bias
        Weight (D, 23, K) and bias (D,) of the motif convolution.
    queries
        Query of each head times beta, (H, n_out of the last layer); without layers, (H, S).
    layers
        Weight (n_out, n_in) and bias (n_out,) of each SELU layer of the key network.
    """

    kernels: Tensor
    bias: Tensor
    queries: Tensor
    layers: Sequence[tuple[Tensor, Tensor]]

    @classmethod
    def from_tensors(cls, kernels: Tensor, bias: Tensor, queries: Tensor, *layers: Tensor) -> NetworkWeights:
        """Return the weights from the tensors that `tensors` returned."""
        return cls(kernels, bias, queries, list(zip(layers[::2], layers[1::2], strict=True)))

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all tensors as one tuple, because torch differentiates only with respect to single arguments."""
        return (self.kernels, self.bias, self.queries, *chain.from_iterable(self.layers))

    def detach(self) -> NetworkWeights:
        """Return the same numbers without gradients."""
        return NetworkWeights.from_tensors(*(tensor.detach() for tensor in self.tensors()))

    @property
    def padded_units(self) -> int:
        """Number of units of the widest layer, padded to whole tiles: U."""
        return round_up_to_tiles(max((len(bias) for _, bias in self.layers), default=0))

    def list_widths(self, n_values: int) -> NDArray[np.int64]:
        """Return S (`n_values`) and the number of units of each layer as one array, (n_layers + 1,)."""
        return np.array([n_values, *(len(bias) for _, bias in self.layers)], np.int64)


def attend(sequences: SequenceBatch, gene_embeddings: Tensor, weights: NetworkWeights) -> tuple[Tensor, Tensor]:
    """Return the sequence values, (N, S), and the attention logits, (N, H), with gradients, in 32 bits.

    Parameters
    ----------
    sequences
        The N sequences.
    gene_embeddings
        Gene embeddings of each sequence, (N, E), which follow the D values of the convolution.
    weights
        The weights of the convolution, the key network and the queries.
    """
    if torch.is_grad_enabled():
        values, logits = _Attend.apply(sequences, gene_embeddings, *weights.tensors())  # type: ignore[no-untyped-call]  # torch types no `apply`
        return values, logits
    n_values = len(weights.kernels) + gene_embeddings.shape[1]
    cache = _allocate_cache(sequences, weights, n_values, keep="values")
    logits = _forward_pass(sequences, gene_embeddings, weights.detach(), cache)
    return torch.from_numpy(cache.values)[:, :n_values], logits


def compute_logits(sequences: SequenceBatch, gene_embeddings: Tensor, weights: NetworkWeights) -> Tensor:
    """Return the attention logits alone, (N, H), without gradients; parameters as in `attend`."""
    cache = _allocate_cache(sequences, weights, n_values=0, keep="nothing")
    return _forward_pass(sequences, gene_embeddings, weights.detach(), cache)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, sequences: SequenceBatch, gene_embeddings: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = NetworkWeights.from_tensors(*parameters).detach()
        n_values = len(weights.kernels) + gene_embeddings.shape[1]
        cache = _allocate_cache(sequences, weights, n_values, keep="all")
        logits = _forward_pass(sequences, gene_embeddings, weights, cache)
        cache_tensors = [torch.from_numpy(array) for array in cache]
        ctx.save_for_backward(*sequences.tensors(), *cache_tensors, *weights.tensors())
        ctx.max_length, ctx.n_values = sequences.max_length, n_values
        values = cache_tensors[0]  # `cache.values`, (N, padded_S)
        if n_values % TILE:
            values = values[:, :n_values].clone(memory_format=torch.contiguous_format)
        return values, logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_values: Tensor, grad_logits: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        sequences = SequenceBatch._make((*islice(saved, len(SequenceBatch._fields) - 1), ctx.max_length))
        cache = ForwardCache(*(tensor.numpy() for tensor in islice(saved, len(ForwardCache._fields))))
        weights = NetworkWeights.from_tensors(*saved)
        rows, first_row_of_length = find_rows_in_use(sequences.lengths, sequences.max_length)
        layers = _make_backward_layers(weights, ctx.n_values)
        gradients = _make_zero_gradients(weights, rows, layers, sequences.n_sequences)
        if ctx.n_values % TILE:  # `pad` copies even if it adds nothing
            grad_values = functional.pad(grad_values, (0, round_up_to_tiles(ctx.n_values) - ctx.n_values))
        backward(
            sequences.convert_scales(weights.kernels).arrays(),
            first_row_of_length.numpy(),
            cache,
            grad_values.contiguous().numpy(),
            grad_logits.contiguous().numpy(),
            layers,
            gradients,
        )
        grad_residues, grad_positions = torch.from_numpy(gradients.residues), torch.from_numpy(gradients.positions)
        grad_kernels = sum_buffers(grad_residues, grad_positions, sequences.max_length, rows)
        grad_genes = torch.from_numpy(gradients.gene_embeddings)
        return None, grad_genes, grad_kernels, *_sum_other_gradients(weights, gradients, layers)


def _allocate_cache(
    sequences: SequenceBatch, weights: NetworkWeights, n_values: int, *, keep: Literal["nothing", "values", "all"]
) -> ForwardCache:
    """Return empty arrays for what a forward pass keeps: nothing but the logits, the values, or all for gradients."""
    N = sequences.n_sequences
    values = torch.empty((0, 0) if keep == "nothing" else (N, round_up_to_tiles(n_values)), dtype=torch.float32)
    activations = torch.empty((0, 0, 0), dtype=torch.float32)
    window = torch.empty((0, 0), dtype=torch.uint8)
    if keep == "all":
        activations = torch.empty((len(weights.layers), N, weights.padded_units), dtype=torch.float32)
        window = torch.empty((N, round_up_to_tiles(len(weights.kernels))), dtype=choose_window_dtype(sequences))
    return ForwardCache(values.numpy(), activations.numpy(), window.numpy())


def _forward_pass(
    sequences: SequenceBatch, gene_embeddings: Tensor, weights: NetworkWeights, cache: ForwardCache
) -> Tensor:
    """Return the logits, (N, H), and write the kept results; the weights must be without gradients."""
    logits = weights.kernels.new_empty((sequences.n_sequences, len(weights.queries)))
    forward(
        sequences.convert_scales(weights.kernels).arrays(),
        make_convolution_tables(sequences, weights.kernels, weights.bias),
        gene_embeddings.detach().contiguous().numpy(),
        _make_forward_layers(weights, len(weights.kernels) + gene_embeddings.shape[1]),
        cache,
        logits.numpy(),
    )
    return logits


def _make_forward_layers(weights: NetworkWeights, n_values: int) -> KeyLayers:
    """Return the layers in tiles of their outputs, whose values the forward pass computes together."""
    U = weights.padded_units
    biases = np.zeros((len(weights.layers), U), np.float32)
    for index, (_, bias) in enumerate(weights.layers):
        biases[index, : len(bias)] = bias.numpy()
    matrices = _arrange_in_tiles([weight.T for weight, _ in weights.layers], max(round_up_to_tiles(n_values), U), U)
    return KeyLayers(matrices, biases, weights.list_widths(n_values), weights.queries.contiguous().numpy())


def _make_backward_layers(weights: NetworkWeights, n_values: int) -> KeyLayers:
    """Return layers and queries in tiles of their inputs, whose gradients the backward pass computes together."""
    U, n_keys = weights.padded_units, weights.queries.shape[1]
    matrices = _arrange_in_tiles([weight for weight, _ in weights.layers], U, max(round_up_to_tiles(n_values), U))
    padded_queries = functional.pad(weights.queries, (0, round_up_to_tiles(n_keys) - n_keys))
    queries = padded_queries.view(len(weights.queries), -1, TILE)  # (H, tiles, TILE)
    no_biases = np.zeros((0, 0), np.float32)  # gradients do not depend on the biases
    return KeyLayers(matrices, no_biases, weights.list_widths(n_values), queries.transpose(0, 1).contiguous().numpy())


def _make_zero_gradients(weights: NetworkWeights, rows: Tensor, layers: KeyLayers, n_sequences: int) -> Gradients:
    """Return gradients of 0, to which the pass adds; only those of the gene embeddings are written, not added to."""
    n_layers, n_columns = len(weights.layers), layers.weights.shape[1] * TILE  # max(padded_S, U)
    residues, positions = allocate_gradient_buffers(weights.kernels, rows)
    return Gradients(
        residues.numpy(),
        positions.numpy(),
        np.zeros((N_SUM_BLOCKS, n_layers, weights.padded_units // TILE, n_columns, TILE), np.float32),
        np.zeros((N_SUM_BLOCKS, n_layers + 1, n_columns), np.float32),
        np.zeros((N_SUM_BLOCKS, *layers.queries.shape), np.float32),
        np.empty((n_sequences, layers.widths[0] - len(weights.kernels)), np.float32),
    )


def _sum_other_gradients(weights: NetworkWeights, gradients: Gradients, layers: KeyLayers) -> Iterator[Tensor]:
    """Yield the gradients of all weights but the kernels, in the order of `tensors`, from those by block and tile."""
    n_heads, n_keys = weights.queries.shape
    grad_layers, grad_biases, grad_queries = map(
        torch.from_numpy, (gradients.layers, gradients.biases, gradients.queries)
    )
    yield grad_biases[:, 0, : len(weights.kernels)].sum(0)
    yield grad_queries.sum(0).transpose(0, 1).reshape(n_heads, -1)[:, :n_keys]
    for index, (n_in, n_out) in enumerate(pairwise(layers.widths.tolist())):
        by_tile = grad_layers[:, index].sum(0)[:, :n_in]  # (tiles, n_in, TILE)
        yield by_tile.permute(0, 2, 1).reshape(-1, n_in)[:n_out]
        yield grad_biases[:, index + 1, :n_out].sum(0)


def _arrange_in_tiles(matrices: Sequence[Tensor], n_rows: int, n_columns: int) -> _Array:
    """Return matrices (n, m) in tiles of columns, padded with 0: (matrices, n_columns // TILE, n_rows, TILE)."""
    tiles = np.zeros((len(matrices), n_columns // TILE, n_rows, TILE), np.float32)
    for index, matrix in enumerate(matrices):
        n, m = matrix.shape
        padded = functional.pad(matrix, (0, n_columns - m))  # (n, n_columns)
        tiles[index, :, :n] = padded.reshape(n, -1, TILE).transpose(0, 1).numpy()
    return tiles
