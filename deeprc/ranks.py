"""Communication between ranks: the processes that `torchrun` starts to train one model together.

Each rank has an index. Rank 0 is the main one: only it writes files and shows messages. All ranks must call the
functions of this module in the same order, because each call waits for the other ranks. In a process that has not
joined others (`join_ranks`), there is one rank, and every function returns its own values at once.

`compute_once` is the only function in which ranks do different things. Rank 0 computes; the others wait for its
messages and take part in the calls of `deeprc.rank_calls.compute_parts`:

    rank 0                                          every other rank
    compute_once(function)                          compute_once(function)
        _compute_alone                                  _follow_main_rank
            function()
                compute_parts(g, parts)
                    _call_all_ranks                     -- "call" ->
                        _take_part: g(parts[0])             _take_part: g(parts[rank])
                                                        <- its result --
                    the results of all ranks
                ...
            the result of the function                  -- "end", the result ->
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count as count_up
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from deeprc.errors import InputError, LostRank
from deeprc.rank_calls import compute_parts_with, split_by_size
from deeprc.rank_messages import read_message, write_message
from deeprc.torchrun import Launch, read_launch

__all__ = [
    "are_joined",
    "average_rows",
    "broadcast_tensors",
    "compute_once",
    "count_local_ranks",
    "count_ranks",
    "find_local_index",
    "gather",
    "is_main",
    "join_ranks",
    "may_report",
    "sum_tensors",
    "take_share",
    "take_share_by_size",
]

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")
_MAX_WAIT = timedelta(minutes=30)  # limit of torch for messages between ranks; `_wait_for_keys` has none
_LOOK_SECONDS = 0.02  # pause between two checks of the store in `_wait_for_keys`
_CALL, _END = b"call", b"end"  # what rank 0 announces in `compute_once`: a part to compute, or the result


class _Answer(NamedTuple):
    """The result of a function, or the error that it raised."""

    result: Any
    error: Exception | None


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
    message_numbers
        Counter of the messages of rank 0 in `compute_once`, from which their keys in the store are made.
    """

    launch: Launch
    store: Any
    n_threads: int
    message_numbers: Iterator[int] = field(default_factory=count_up)

    def next_key(self) -> str:
        """Return the key in the store that announces the next message of rank 0; all ranks count alike."""
        return f"deeprc/computed/{next(self.message_numbers)}"


_group: _Group | None = None


@contextmanager
def join_ranks() -> Iterator[None]:
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
    with _translate_lost_ranks():
        store, rank, size = next(iter(rendezvous("env://")))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_MAX_WAIT)
    _group = _Group(launch, store, torch.get_num_threads())
    _use_threads(_group.n_threads)
    try:
        yield
        with _translate_lost_ranks():
            dist.barrier()  # a rank that leaves first would break the connections of the others
    finally:
        _group = None
        dist.destroy_process_group()


def _use_threads(n: int) -> None:
    torch.set_num_threads(n)
    numba.set_num_threads(min(n, numba.config.NUMBA_NUM_THREADS))


@contextmanager
def _translate_lost_ranks() -> Iterator[None]:
    """Raise `LostRank` instead of torch's error about a broken connection."""
    try:
        yield
    except RuntimeError as error:  # torch.distributed.DistError is one
        reason = str(error).splitlines()[0]
        raise LostRank(f"another process of this training has ended, or cannot be reached: {reason}") from error


def count_ranks() -> int:
    """Return the number of ranks."""
    return 1 if _group is None else _group.launch.size


def count_local_ranks() -> int:
    """Return the number of ranks on this machine."""
    return 1 if _group is None else _group.launch.local_size


def are_joined() -> bool:
    """Return whether this process has joined others."""
    return _group is not None


def find_local_index() -> int | None:
    """Return the index of this rank among those of this machine; None if it is the only one there."""
    return None if _group is None or _group.launch.local_size == 1 else _group.launch.local_rank


def is_main() -> bool:
    """Return whether this is rank 0, which writes files and shows messages."""
    return _group is None or _group.launch.rank == 0


def may_report() -> bool:
    """Return whether this rank is the first to report an error; other ranks then end without a message."""
    if _group is not None:
        with suppress(RuntimeError):  # the store may have ended with rank 0
            return bool(_group.store.add("deeprc/errors", 1) == 1)
    return True


def take_share(n: int) -> slice:
    """Return the slice of n items that is this rank's share; the shares of the ranks differ by one item at most."""
    rank, size = (0, 1) if _group is None else (_group.launch.rank, _group.launch.size)
    return slice(rank * n // size, (rank + 1) * n // size)


def take_share_by_size(sizes: NDArray[np.int64]) -> slice:
    """Return the slice of items that is this rank's share; the shares have similar sums of `sizes`, (n,)."""
    rank, size = (0, 1) if _group is None else (_group.launch.rank, _group.launch.size)
    return split_by_size(sizes, size)[rank]


def compute_once(function: Callable[[], _Result], *, shared: Sequence[object] = ()) -> _Result:
    """Call a function on rank 0, and return its result or raise its error on all ranks.

    The other ranks wait meanwhile. So within the function, rank 0 is the only rank, and it also uses the cores of the
    waiting ranks on its machine. The function may call the waiting ranks by `deeprc.rank_calls.compute_parts`.

    Parameters
    ----------
    function
        Function without arguments; the other ranks do not call it.
    shared
        Objects that every rank has, in this order, such as an open container: they are not sent with a call.
    """
    if _group is None:
        return function()
    answer = _compute_alone(_group, function, shared) if is_main() else _follow_main_rank(_group, shared)
    if answer.error is not None:
        raise answer.error
    result: _Result = answer.result
    return result


def _compute_alone(group: _Group, function: Callable[[], Any], shared: Sequence[object]) -> _Answer:
    """Call a function as the only rank, and give the other ranks its result."""
    with _act_alone(group), compute_parts_with(partial(_call_all_ranks, group, shared), group.launch.size):
        answer = _compute_answer(function)
    with _translate_lost_ranks():
        group.store.set(group.next_key(), _END)
        dist.broadcast_object_list([answer], src=0)
    return answer


def _follow_main_rank(group: _Group, shared: Sequence[object]) -> _Answer:
    """Take part in the calls of rank 0 until it has a result, and return that."""
    while True:
        key = group.next_key()
        with _translate_lost_ranks():
            _wait_for_keys(group, [key])
            if group.store.get(key) == _END:
                received: list[Any] = [None]
                dist.broadcast_object_list(received, src=0)
                answer: _Answer = received[0]
                return answer
        _take_part(group, shared, key, *_exchange_work(None, None))


def _call_all_ranks(
    group: _Group, shared: Sequence[object], function: Callable[[Any], Any], parts: Sequence[Any]
) -> list[Any]:
    """Call a function on all ranks, with a part for each; return the results, or raise the first error."""
    function_message, part_messages = write_message(function, shared), [write_message(part, shared) for part in parts]
    key = group.next_key()
    with _rejoin_ranks(group), compute_parts_with(None, 1):
        with _translate_lost_ranks():
            group.store.set(key, _CALL)
        answers = _take_part(group, shared, key, *_exchange_work(function_message, part_messages))
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    return [pickle.loads(answer.result) for answer in answers]


def _exchange_work(function: bytes | None, parts: list[bytes] | None) -> tuple[bytes, bytes]:
    """Send function and parts from rank 0, which gives their messages; return the function and this rank's part."""
    sent: list[Any] = [function]
    received: list[Any] = [None]
    with _translate_lost_ranks():
        dist.broadcast_object_list(sent, src=0)
        dist.scatter_object_list(received, parts, src=0)
    return sent[0], received[0]


def _take_part(group: _Group, shared: Sequence[object], key: str, function: bytes, part: bytes) -> list[_Answer]:
    """Compute a part of the work; return the answers of all ranks on rank 0, and an empty list on the others.

    Function and part are messages, and `key` announced the call. Results are sent as bytes, so that an error of
    pickling is an answer, too, and all ranks still send and receive the same messages.
    """
    answer = _compute_answer(lambda: pickle.dumps(read_message(function, shared)(read_message(part, shared))))
    answers: list[Any] | None = [None] * group.launch.size if is_main() else None
    with _translate_lost_ranks():
        group.store.set(f"{key}/{group.launch.rank}", b"done")
        _wait_for_keys(group, [f"{key}/{rank}" for rank in range(group.launch.size)])
        dist.gather_object(answer, answers, dst=0)
    return answers or []


def _wait_for_keys(group: _Group, keys: list[str]) -> None:
    """Wait until other ranks have set keys in the store: in Python, so that signals work, and without a time limit."""
    while not group.store.check(keys):
        time.sleep(_LOOK_SECONDS)


def _compute_answer(function: Callable[[], Any]) -> _Answer:
    """Return the result of a function and None, or None and an error that every rank reports in the same way."""
    try:
        return _Answer(function(), None)
    except LostRank:
        raise  # the others get no answer any more; they notice that this process ends
    except (InputError, OSError, MemoryError) as error:
        return _Answer(None, error)


@contextmanager
def _act_alone(group: _Group) -> Iterator[None]:
    """Let this process be the only rank within this context, with the cores of all ranks on its machine."""
    global _group
    _group = None
    _use_threads(group.n_threads * group.launch.local_size)
    try:
        yield
    finally:
        _use_threads(group.n_threads)
        _group = group


@contextmanager
def _rejoin_ranks(group: _Group) -> Iterator[None]:
    """Let this process be one of the ranks again, within a context in which it is the only one."""
    global _group
    _group = group
    _use_threads(group.n_threads)
    try:
        yield
    finally:
        _use_threads(group.n_threads * group.launch.local_size)
        _group = None


def gather(items: Sequence[_Item]) -> list[_Item]:
    """Return the items of all ranks as one list, in the order of the ranks."""
    if _group is None:
        return list(items)
    received: list[Any] = [None] * count_ranks()
    with _translate_lost_ranks():
        dist.all_gather_object(received, list(items))
    return [item for items_of_rank in received for item in items_of_rank]


@torch.no_grad()
def sum_tensors(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its sum over the ranks; all tensors must have one type and device."""
    if _group is None:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    with _translate_lost_ranks():
        dist.all_reduce(flat)
    for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(total.view_as(tensor))


def average_rows(rows: Tensor) -> Tensor:
    """Return the mean of the rows of all ranks, (columns,); this rank has `rows`, (n, columns)."""
    total, n = rows.sum(dim=0), rows.new_full((1,), len(rows))
    sum_tensors([total, n])
    return total / n


@torch.no_grad()
def broadcast_tensors(tensors: Sequence[Tensor]) -> None:
    """Replace tensors by the values that rank 0 has."""
    if _group is None:
        return
    with _translate_lost_ranks():
        for tensor in tensors:
            dist.broadcast(tensor, src=0)
