"""Work that rank 0 divides among all ranks while it decides alone; without torch.

While the other ranks wait for rank 0 (`deeprc.ranks.compute_once`), rank 0 may call them: `compute_parts` gives a part
of the work to each rank. In one process, and if nobody waits, this process computes the only part. So code that uses
this module is the same for one process and for several:

    parts = divide_repertoires(dataset)          # as many as there are ranks
    counts = compute_parts(count_part, parts)    # each rank calls count_part once; rank 0 gets all results

Who computes the parts is set by `deeprc.ranks`, with `compute_parts_with`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset

__all__ = [
    "PackedFlags",
    "compute_parts",
    "compute_parts_with",
    "count_parts",
    "divide_repertoires",
    "split_by_size",
]

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")
_ComputeParts = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


class _Division(NamedTuple):
    """How work is divided: by a function that computes the parts, in this number; None: this process computes them."""

    compute_parts: _ComputeParts | None
    n_parts: int


_division = _Division(None, 1)


@dataclass(frozen=True)
class PackedFlags:
    """Truth values, (n,), of which a rank sends eight as one byte; in one process nothing is packed."""

    flags: NDArray[np.bool_]

    def __reduce__(self) -> tuple[Callable[..., PackedFlags], tuple[NDArray[np.uint8], int]]:
        return _unpack, (np.packbits(self.flags), len(self.flags))


def _unpack(packed: NDArray[np.uint8], n: int) -> PackedFlags:
    return PackedFlags(np.unpackbits(packed, count=n).view(np.bool_))


@contextmanager
def compute_parts_with(compute_on_ranks: _ComputeParts | None, n_parts: int) -> Iterator[None]:
    """Let `compute_parts` pass its arguments on to a function, which needs `n_parts` parts; None: compute here."""
    global _division  # a process is only one rank, so this is global
    before = _division
    _division = _Division(compute_on_ranks, n_parts)
    try:
        yield
    finally:
        _division = before


def count_parts() -> int:
    """Return into how many parts work is divided: the number of ranks that compute them."""
    return _division.n_parts


def compute_parts(function: Callable[[_Part], _Result], parts: Sequence[_Part]) -> list[_Result]:
    """Return the results of a function for `count_parts()` parts, in their order; each rank computes one.

    Function, parts and results are pickled. A container that all ranks have open is not sent with the datasets that
    show it.
    """
    assert len(parts) == _division.n_parts
    if _division.compute_parts is None:
        return [function(part) for part in parts]
    return _division.compute_parts(function, parts)


def split_by_size(sizes: NDArray[np.int64], n_parts: int) -> list[slice]:
    """Return slices of items, one for each part; the parts have similar sums of `sizes`, (n,), and may be empty."""
    middles = np.cumsum(sizes) - np.asarray(sizes) / 2
    bounds = np.searchsorted(middles, np.sum(sizes) * np.arange(1, n_parts) / n_parts).tolist()
    return [slice(start, stop) for start, stop in zip([0, *bounds], [*bounds, len(sizes)], strict=True)]


def divide_repertoires(dataset: RepertoireDataset) -> list[RepertoireDataset]:
    """Return `count_parts()` parts of a dataset, in its order; they have similar numbers of sequences."""
    return [dataset[rows] for rows in split_by_size(dataset.n_sequences, count_parts())]
