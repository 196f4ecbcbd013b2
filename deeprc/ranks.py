"""Communication between ranks: the processes that `torchrun` starts to train one model together.

Each rank has an index. Rank 0 is the main one: only it writes files and shows messages. All ranks must call the
functions of this module in the same order, because each call waits for the other ranks. In a process that has not
joined others (`joined`), there is one rank, and every function returns its own values at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count as count_up
from typing import Any, TypeVar

import numba
import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from deeprc.errors import InputError
from deeprc.torchrun import Launch, read_launch

__all__ = [
    "LostRank",
    "are_joined",
    "compute_once",
    "count",
    "gather",
    "is_main",
    "joined",
    "local_index",
    "may_report",
    "mean_rows",
    "share",
    "share_by_size",
    "spread_tensors",
    "sum_tensors",
]

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

_MAX_WAIT = timedelta(minutes=30)  # limit of torch for messages between ranks; `compute_once` waits without a limit
_LOOK_SECONDS = 0.02  # pause between two checks whether rank 0 has ended `compute_once`


class LostRank(InputError):
    """Raised if another rank has ended while this one waits for it."""


@dataclass(frozen=True)
class _Group:
    """The ranks that this process has joined.

    Attributes
    ----------
    launch
        Index of this rank, and number of ranks.
    store
        torch's store of keys and values that all ranks share; it also works if one of them has ended.
    n_threads
        Number of threads of this rank while all ranks compute.
    n_computed
        Counter of calls of `compute_once`, from which their keys in the store are made.
    """

    launch: Launch
    store: Any
    n_threads: int
    n_computed: Iterator[int] = field(default_factory=count_up)


_group: _Group | None = None


@contextmanager
def joined() -> Iterator[None]:
    """Join the other processes that `torchrun` started, if it started this one; leave them at the end.

    Raises
    ------
    LostRank
        If the others cannot be reached.
    """
    global _group  # a process is only one rank, so this is global
    launch = read_launch()
    if launch is None:
        yield
        return
    with _naming_lost_ranks():
        store, rank, size = next(iter(rendezvous("env://")))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_MAX_WAIT)
    _group = _Group(launch, store, torch.get_num_threads())
    _use_threads(_group.n_threads)
    try:
        yield
        with _naming_lost_ranks():
            dist.barrier()  # a rank that leaves first would break the connections of the others
    finally:
        _group = None
        dist.destroy_process_group()


def _use_threads(n: int) -> None:
    torch.set_num_threads(n)
    numba.set_num_threads(min(n, numba.config.NUMBA_NUM_THREADS))


@contextmanager
def _naming_lost_ranks() -> Iterator[None]:
    """Raise `LostRank` instead of torch's error about a broken connection."""
    try:
        yield
    except RuntimeError as error:  # torch.distributed.DistError is one
        reason = str(error).splitlines()[0]
        raise LostRank(f"another process of this training has ended, or cannot be reached: {reason}") from error


def count() -> int:
    """Return the number of ranks."""
    return 1 if _group is None else _group.launch.size


def are_joined() -> bool:
    """Return whether this process has joined others."""
    return _group is not None


def local_index() -> int | None:
    """Return the index of this rank among those of this machine; None if it is the only one there."""
    return None if _group is None or _group.launch.local_size == 1 else _group.launch.local_rank


def is_main() -> bool:
    """Return whether this is rank 0, which writes files and shows messages."""
    return _group is None or _group.launch.rank == 0


def may_report() -> bool:
    """Return whether this rank is the first to report an error; the others then end without a message."""
    if _group is not None:
        with suppress(RuntimeError):  # the store may have ended with rank 0
            return bool(_group.store.add("deeprc/errors", 1) == 1)
    return True


def share(n: int) -> slice:
    """Return the slice of n items that is this rank's share; the shares of the ranks differ by one item at most."""
    rank, size = (0, 1) if _group is None else (_group.launch.rank, _group.launch.size)
    return slice(rank * n // size, (rank + 1) * n // size)


def share_by_size(sizes: NDArray[np.int64]) -> slice:
    """Return the slice of items that is this rank's share; the shares have similar sums of `sizes`, (n,)."""
    rank, size = (0, 1) if _group is None else (_group.launch.rank, _group.launch.size)
    middles = np.cumsum(sizes) - np.asarray(sizes) / 2
    bounds = np.searchsorted(middles, np.sum(sizes) * np.arange(1, size) / size).tolist()
    bounds = [0, *bounds, len(sizes)]
    return slice(bounds[rank], bounds[rank + 1])


def compute_once(function: Callable[[], _Result]) -> _Result:
    """Call a function on rank 0, and return its result or raise its error on all ranks.

    The other ranks wait meanwhile. So within the function, rank 0 is the only rank, and it also uses the cores of the
    waiting ranks on its machine.
    """
    if _group is None:
        return function()
    found: list[Any] = [None, None]  # the result, and an error
    key = f"deeprc/computed/{next(_group.n_computed)}"
    if is_main():
        with _alone(_group):
            try:
                found[0] = function()
            except (InputError, OSError, MemoryError) as error:
                found[1] = error
    with _naming_lost_ranks():
        if is_main():
            _group.store.set(key, "")
        while not _group.store.check([key]):  # in Python, so that signals work, and without torch's time limit
            time.sleep(_LOOK_SECONDS)
        dist.broadcast_object_list(found, src=0)
    if found[1] is not None:
        raise found[1]
    result: _Result = found[0]
    return result


@contextmanager
def _alone(group: _Group) -> Iterator[None]:
    """Let this process be the only rank within this context, with the cores of all ranks on its machine."""
    global _group
    _group = None
    _use_threads(group.n_threads * group.launch.local_size)
    try:
        yield
    finally:
        _use_threads(group.n_threads)
        _group = group


def gather(items: Sequence[_Item]) -> list[_Item]:
    """Return the items of all ranks as one list, in the order of the ranks."""
    if _group is None:
        return list(items)
    found: list[Any] = [None] * count()
    with _naming_lost_ranks():
        dist.all_gather_object(found, list(items))
    return [item for of_rank in found for item in of_rank]


@torch.no_grad()
def sum_tensors(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its sum over the ranks; all tensors must have one type and device."""
    if _group is None:
        return
    together = torch.cat([tensor.flatten() for tensor in tensors])
    with _naming_lost_ranks():
        dist.all_reduce(together)
    for tensor, total in zip(tensors, together.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(total.view_as(tensor))


def mean_rows(rows: Tensor) -> Tensor:
    """Return the mean of the rows of all ranks, (columns,); this rank has `rows`, (n, columns)."""
    total, n = rows.sum(dim=0), rows.new_full((1,), len(rows))
    sum_tensors([total, n])
    return total / n


@torch.no_grad()
def spread_tensors(tensors: Sequence[Tensor]) -> None:
    """Replace tensors by the values that rank 0 has."""
    if _group is None:
        return
    with _naming_lost_ranks():
        for tensor in tensors:
            dist.broadcast(tensor, src=0)
