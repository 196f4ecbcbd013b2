"""Batches of sequences in the form that the network and its compiled kernels read.

Letters: N sequences, R residues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.compilation import njit
from deeprc.datasets.alphabet import compute_offsets

__all__ = ["BatchArrays", "SequenceBatch", "join_sequences", "move"]


class SequenceBatch(NamedTuple):
    """Sequences in one array of residues, anywhere and without padding, with the scales of their features.

    Functions that numba compiles take the same fields as numpy arrays, see `arrays`.

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
        Upper limit of the lengths, a number that the host knows without reading the lengths from the device.
    """

    residues: Tensor
    starts: Tensor
    lengths: Tensor
    residue_scale: Tensor
    position_scale: Tensor
    max_length: int

    @property
    def n_sequences(self) -> int:
        """Number of sequences, N; `len` would count the fields of the tuple."""
        return len(self.starts)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.residues.device

    def take(self, rows: Tensor | slice) -> SequenceBatch:
        """Return the sequences of these rows, (n,) int64 or a slice; the residues are not copied."""
        return SequenceBatch(
            self.residues,
            self.starts[rows],
            self.lengths[rows],
            self.residue_scale[rows],
            self.position_scale[rows],
            self.max_length,
        )

    def compact(self) -> SequenceBatch:
        """Return the sequences end to end in a new array of residues, without residues of other sequences."""
        ends = self.starts + self.lengths
        if len(ends) > 0 and torch.equal(ends[:-1], self.starts[1:]):  # they are end to end already
            first = self.starts[0]
            return self._replace(residues=self.residues[first : ends[-1]].clone(), starts=self.starts - first)
        offsets = torch.zeros(len(self.lengths) + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(self.lengths, 0, out=offsets[1:])
        shift = torch.repeat_interleave(self.starts - offsets[:-1], self.lengths)  # (R,)
        residues = self.residues[torch.arange(len(shift), device=self.device) + shift]
        return self._replace(residues=residues, starts=offsets[:-1])

    def to(self, device: torch.device) -> SequenceBatch:
        """Return the sequences on another device, with their own residues only."""
        if device == self.device:
            return self
        return self.compact().apply(lambda tensor: move(tensor, device))

    def apply(self, change: Callable[[Tensor], Tensor]) -> SequenceBatch:
        """Return the sequences with a function applied to each tensor."""
        residues, starts, lengths, residue_scale, position_scale = map(change, self.tensors())
        return SequenceBatch(residues, starts, lengths, residue_scale, position_scale, self.max_length)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return all fields but `max_length`."""
        return self[:5]

    def convert_scales(self, weight: Tensor) -> SequenceBatch:
        """Return the sequences with scales in the type of `weight`, contiguous and without gradients."""
        scales = (self.residue_scale.detach().to(weight), self.position_scale.detach().to(weight))
        scaled = SequenceBatch(self.residues, self.starts, self.lengths, *scales, self.max_length)
        return scaled.apply(Tensor.contiguous)

    def arrays(self) -> BatchArrays:
        """Return numpy arrays that share the memory of the tensors, which must be on the CPU and without gradients."""
        residues, starts, lengths, residue_scale, position_scale = (tensor.numpy() for tensor in self.tensors())
        return BatchArrays(residues, starts, lengths, residue_scale, position_scale, self.max_length)


class BatchArrays(NamedTuple):
    """The fields of a `SequenceBatch` as numpy arrays, for functions that numba compiles.

    A function that writes to an array of such a tuple in a parallel loop must get the array before the loop, as an
    attribute. If an array is unpacked from the tuple, or got within the loop, numba takes it for a local one and drops
    the writes.
    """

    residues: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    residue_scale: NDArray[Any]
    position_scale: NDArray[Any]
    max_length: int


def move(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to another device; to CUDA it goes through pinned memory, so that the host need not wait."""
    needs_pinning = device.type == "cuda" and tensor.device.type == "cpu"
    return (tensor.pin_memory() if needs_pinning else tensor).to(device, non_blocking=True)


def join_sequences(parts: Sequence[SequenceBatch]) -> SequenceBatch:
    """Return the sequences of several batches as one, whose residues are copied."""
    lengths, residue_scale, position_scale = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("lengths", "residue_scale", "position_scale")
    )
    offsets = compute_offsets(lengths.numpy())
    residues = np.empty(int(offsets[-1]), np.uint8)
    first = 0
    for part in parts:
        stop = first + part.n_sequences
        _copy_residues(part.residues.numpy(), part.starts.numpy(), offsets[first : stop + 1], residues)
        first = stop
    starts, max_length = torch.from_numpy(offsets[:-1]), max(part.max_length for part in parts)
    return SequenceBatch(torch.from_numpy(residues), starts, lengths, residue_scale, position_scale, max_length)


@njit(nogil=True)
def _copy_residues(
    residues: NDArray[np.uint8], starts: NDArray[np.int64], offsets: NDArray[np.int64], target: NDArray[np.uint8]
) -> None:
    """Copy sequences that begin at starts (N,) to offsets (N + 1,) of the target."""
    for n in range(len(starts)):
        shift = starts[n] - offsets[n]
        for position in range(offsets[n], offsets[n + 1]):
            target[position] = residues[position + shift]
