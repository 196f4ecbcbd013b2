"""`SequenceBatch`: the sequences that the network reads together, the one form in which they reach its kernels.

Letters: N sequences, R residues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["BatchArrays", "SequenceBatch", "move"]


class SequenceBatch(NamedTuple):
    """Sequences that lie anywhere in one array of residues, without padding, and the factors of their features.

    Functions that numba compiles take the same tuple of numpy arrays, see `arrays`.

    Attributes
    ----------
    residues
        Amino-acid indices, (R,) uint8.
    starts
        Position in `residues` of each sequence's first residue, (N,) int64.
    lengths
        Number of residues of each sequence, at least 1, (N,) int64.
    residue_scale
        Factor of each sequence's one-hot features, (N,) float32: its abundance scale divided by the standard deviation
        of its repertoire's features.
    position_scale
        Factor of each sequence's positional features, (N,) float32: 1 divided by that standard deviation.
    max_length
        Upper limit of the lengths, which the host knows without a look at them.
    """

    residues: Tensor
    starts: Tensor
    lengths: Tensor
    residue_scale: Tensor
    position_scale: Tensor
    max_length: int

    @property
    def n_sequences(self) -> int:
        """The number of sequences, N; `len` counts the fields, as of any tuple."""
        return len(self.starts)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.residues.device

    def take(self, rows: Tensor | slice) -> SequenceBatch:
        """Return the sequences of these rows, (n,) int64 or a slice; the residues stay where they are."""
        return SequenceBatch(
            self.residues,
            self.starts[rows],
            self.lengths[rows],
            self.residue_scale[rows],
            self.position_scale[rows],
            self.max_length,
        )

    def compact(self) -> SequenceBatch:
        """Return the sequences end to end in an array of residues that holds no others."""
        ends = self.starts + self.lengths
        if len(ends) > 0 and torch.equal(ends[:-1], self.starts[1:]):  # they lie end to end already
            first = self.starts[0]
            return self._replace(residues=self.residues[first : ends[-1]].clone(), starts=self.starts - first)
        offsets = torch.zeros(len(self.lengths) + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(self.lengths, 0, out=offsets[1:])
        shift = torch.repeat_interleave(self.starts - offsets[:-1], self.lengths)  # (R,)
        residues = self.residues[torch.arange(len(shift), device=self.device) + shift]
        return self._replace(residues=residues, starts=offsets[:-1])

    def to(self, device: torch.device) -> SequenceBatch:
        """Return the sequences on another device, where only their own residues are kept."""
        if device == self.device:
            return self
        return self.compact().apply(lambda tensor: move(tensor, device))

    def apply(self, change: Callable[[Tensor], Tensor]) -> SequenceBatch:
        """Return the sequences with each of the tensors changed by a function."""
        residues, starts, lengths, residue_scale, position_scale = map(change, self.tensors())
        return SequenceBatch(residues, starts, lengths, residue_scale, position_scale, self.max_length)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return all fields but `max_length`."""
        return self[:5]

    def with_scales_like(self, weight: Tensor) -> SequenceBatch:
        """Return the sequences with the scales in the type of `weight`, contiguous and without gradients."""
        scales = (self.residue_scale.detach().to(weight), self.position_scale.detach().to(weight))
        scaled = SequenceBatch(self.residues, self.starts, self.lengths, *scales, self.max_length)
        return scaled.apply(Tensor.contiguous)

    def arrays(self) -> BatchArrays:
        """Return the numpy arrays that share the tensors' memory; the tensors must be on the CPU, without gradients."""
        residues, starts, lengths, residue_scale, position_scale = (tensor.numpy() for tensor in self.tensors())
        return BatchArrays(residues, starts, lengths, residue_scale, position_scale, self.max_length)


class BatchArrays(NamedTuple):
    """The fields of a `SequenceBatch` as numpy arrays, for functions that numba compiles.

    A function that writes to an array of a tuple in a parallel loop must read it before the loop, and as an attribute.
    An array that is unpacked from the tuple, or read in the loop, is a local one for numba, which drops the writes.
    """

    residues: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    residue_scale: NDArray[Any]
    position_scale: NDArray[Any]
    max_length: int


def move(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on another device; it passes through pinned memory to CUDA, so that the host need not wait."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)
