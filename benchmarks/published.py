"""An update like that of the network that was published with the paper, in plain tensor operations.

It draws the sequences of one repertoire after the other, builds dense one-hot features by `index_put_`, convolves all
drawn sequences at once, and scores them without a gradient. The tenth of each repertoire with the highest attention is
convolved again, with a gradient (paper, "DeepRC: implementation details"). The update is only for `training_step.py`,
which times it. On a CPU it computes in float32. On CUDA it computes in mixed precision, and its batches were drawn and
copied to the device before, which is in its favour.

Letters: B repertoires, N sequences of all of them, L residues of the longest, K kernel width, D kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.features import N_AMINO_ACIDS, compute_positional_features

__all__ = ["make_published_update"]

_KERNEL_WIDTH, _ATTENTION_UNITS, _OUTPUT_UNITS = 9, 32, 32
_REPERTOIRES, _SEQUENCES, _KEPT = 4, 10_000, 0.1
_MAX_LENGTH = 30
_BATCHES_ON_CUDA = 8  # they take turns


class _Network(nn.Module):
    """A network of convolution, maximum over positions, attention layers, and an output network with a hidden layer."""

    positions: Tensor
    """Positional features by length, (lengths, _MAX_LENGTH, 3)."""

    def __init__(self, n_kernels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(N_AMINO_ACIDS + 3, n_kernels, _KERNEL_WIDTH)
        self.attention = nn.Sequential(
            nn.Linear(n_kernels, _ATTENTION_UNITS),
            nn.SELU(),
            nn.Linear(_ATTENTION_UNITS, _ATTENTION_UNITS),
            nn.SELU(),
            nn.Linear(_ATTENTION_UNITS, 1),
        )
        self.output = nn.Sequential(nn.Linear(n_kernels, _OUTPUT_UNITS), nn.SELU(), nn.Linear(_OUTPUT_UNITS, 1))
        self.register_buffer("positions", torch.from_numpy(compute_positional_features(_MAX_LENGTH)).float())

    def embed(self, residues: Tensor, lengths: Tensor) -> Tensor:
        """Return the representations, (N, D), of sequences, (N, L) with zeros after their ends, with lengths (N,)."""
        N, L = residues.shape
        device = residues.device
        features = torch.zeros(N, N_AMINO_ACIDS + 3, L + _KERNEL_WIDTH - 1, device=device)
        rows, columns = torch.nonzero(torch.arange(L, device=device) < lengths[:, None], as_tuple=True)
        features.index_put_((rows, residues[rows, columns], columns), torch.ones((), device=device))
        features[:, N_AMINO_ACIDS:, :L] = self.positions[lengths, :L].transpose(1, 2)
        return functional.selu(self.convolution(features).amax(dim=2))

    def forward(self, residues: Tensor, lengths: Tensor, sizes: list[int]) -> Tensor:
        """Return the outputs, (B,), of repertoires with these numbers of consecutive sequences."""
        with torch.no_grad():
            logits = self.attention(self.embed(residues, lengths))[:, 0]
        best = [part.topk(max(1, int(len(part) * _KEPT))).indices for part in logits.split(sizes)]
        starts = np.cumsum([0, *sizes[:-1]]).tolist()
        kept = torch.cat([rows + start for rows, start in zip(best, starts, strict=True)])
        embedded = self.embed(residues[kept], lengths[kept])
        weights = self.attention(embedded)[:, 0]
        parts = zip(
            embedded.split([len(rows) for rows in best]), weights.split([len(rows) for rows in best]), strict=True
        )
        pooled = torch.stack([functional.softmax(weight, dim=0) @ values for values, weight in parts])
        return self.output(pooled)[:, 0]


def make_published_update(
    dataset: RepertoireDataset, labels: Tensor, n_kernels: int, device: torch.device
) -> Callable[[], object]:
    """Return a function that makes an update with 4 repertoires x 10,000 sequences, or as many as all repertoires have.

    Parameters
    ----------
    dataset
        Repertoires, whose sequences have at most 30 residues.
    labels
        Labels of the repertoires, 0 or 1, (number of repertoires,) float32.
    n_kernels
        Number of kernels, D.
    device
        Device of the network.
    """
    torch.manual_seed(0)
    network = _Network(n_kernels).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, weight_decay=0)
    n_sequences = min(_SEQUENCES, int(dataset.n_sequences.min()))
    batches = _draw_batches(dataset, labels, n_sequences)
    if device.type == "cuda":
        batches = cycle([tuple(tensor.to(device) for tensor in batch) for batch in islice(batches, _BATCHES_ON_CUDA)])
    sizes = [n_sequences] * _REPERTOIRES

    def update() -> None:
        residues, lengths, answers = next(batches)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            outputs = network(residues, lengths, sizes)
        loss = functional.binary_cross_entropy_with_logits(outputs.float(), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return update


def _draw_batches(dataset: RepertoireDataset, labels: Tensor, n_sequences: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches without end: residues, (N, L), lengths, (N,), and labels, (B,)."""
    generator = np.random.default_rng(0)
    while True:
        chosen = generator.choice(len(dataset), _REPERTOIRES, replace=False)
        drawn = [_draw(dataset, at, n_sequences, generator) for at in chosen.tolist()]
        residues, lengths = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        yield residues[:, : int(lengths.max())], lengths, labels[chosen]


def _draw(
    dataset: RepertoireDataset, position: int, n_sequences: int, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return drawn sequences of a repertoire, (N, _MAX_LENGTH) with zeros after the ends, and their lengths, (N,)."""
    repertoire = dataset[position]
    rows = generator.choice(len(repertoire), n_sequences, replace=False)
    starts, ends = repertoire.offsets[rows], repertoire.offsets[rows + 1]
    lengths = np.asarray(ends - starts, np.int64)
    at = np.arange(_MAX_LENGTH)
    inside = at < lengths[:, None]
    residues = np.where(inside, np.asarray(repertoire.residues)[np.where(inside, starts[:, None] + at, 0)], 0)
    return torch.from_numpy(residues.astype(np.int64)), torch.from_numpy(lengths)
