"""An update like that of the network that was published with the paper, in plain tensor operations in float32.

It draws the sequences of one repertoire after the other, builds dense one-hot features by `index_put_`, convolves all
drawn sequences at once, and scores them without a gradient. The tenth of each repertoire with the highest attention is
convolved again, with a gradient (paper, "DeepRC: implementation details"). The update is only for `training_step.py`,
which times it.

Letters: B repertoires, N sequences of all of them, L residues of the longest, K kernel width, D kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.features import N_AMINO_ACIDS, positional_features

__all__ = ["make_published_update"]

_KERNEL_WIDTH, _ATTENTION_UNITS, _OUTPUT_UNITS = 9, 32, 32
_REPERTOIRES, _SEQUENCES, _KEPT = 4, 10_000, 0.1
_MAX_LENGTH = 30


class _Network(nn.Module):
    """A network of convolution, maximum over positions, attention layers, and an output network with a hidden layer."""

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
        self.positions = torch.from_numpy(positional_features(_MAX_LENGTH)).float()  # (lengths, _MAX_LENGTH, 3)

    def embed(self, residues: Tensor, lengths: Tensor) -> Tensor:
        """Return the representations, (N, D), of sequences, (N, L) with zeros after their ends, with lengths (N,)."""
        N, L = residues.shape
        features = torch.zeros(N, N_AMINO_ACIDS + 3, L + _KERNEL_WIDTH - 1)
        rows, columns = torch.nonzero(torch.arange(L) < lengths[:, None], as_tuple=True)
        features.index_put_((rows, residues[rows, columns], columns), torch.tensor(1.0))
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
        pooled = torch.stack([functional.softmax(weight, dim=0) @ each for each, weight in parts])
        return self.output(pooled)[:, 0]


def make_published_update(dataset: RepertoireDataset, labels: Tensor, n_kernels: int) -> Callable[[], object]:
    """Return a function that makes an update with 4 repertoires x 10,000 sequences.

    Parameters
    ----------
    dataset
        Repertoires, (B,), whose sequences have at most 30 residues.
    labels
        Labels of the repertoires, 0 or 1, (B,) float32.
    n_kernels
        Number of kernels, D.
    """
    torch.manual_seed(0)
    network = _Network(n_kernels)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, weight_decay=0)
    generator = np.random.default_rng(0)

    def update() -> None:
        chosen = generator.choice(len(dataset), _REPERTOIRES, replace=False)
        drawn = [_draw(dataset, at, generator) for at in chosen.tolist()]
        residues, lengths = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        outputs = network(residues[:, : int(lengths.max())], lengths, [len(each) for _, each in drawn])
        loss = functional.binary_cross_entropy_with_logits(outputs, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return update


def _draw(dataset: RepertoireDataset, position: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return drawn sequences of a repertoire, (N, _MAX_LENGTH) with zeros after the ends, and their lengths, (N,)."""
    repertoire = dataset[position]
    rows = generator.choice(len(repertoire), min(_SEQUENCES, len(repertoire)), replace=False)
    starts, ends = repertoire.offsets[rows], repertoire.offsets[rows + 1]
    lengths = np.asarray(ends - starts, np.int64)
    at = np.arange(_MAX_LENGTH)
    inside = at < lengths[:, None]
    residues = np.where(inside, np.asarray(repertoire.residues)[np.where(inside, starts[:, None] + at, 0)], 0)
    return torch.from_numpy(residues.astype(np.int64)), torch.from_numpy(lengths)
