"""A pattern cache computes each sequence once, and returns the same whatever it holds."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from deeprc.errors import WriteError
from deeprc.nn.pattern_cache import PatternCache, get_shared_cache
from deeprc.nn.sequences import SequenceBatch

WIDTH = 3


def make_batch(*texts: list[int]) -> SequenceBatch:
    lengths = torch.tensor([len(text) for text in texts])
    residues = torch.tensor([letter for text in texts for letter in text], dtype=torch.uint8)
    ones = torch.ones(len(texts))
    return SequenceBatch(residues, lengths.cumsum(0) - lengths, lengths, ones, ones, int(lengths.max()))


class Computed:
    """A pattern is its residue, divided by 3, times 0, 1, 2; counts what was computed."""

    def __init__(self) -> None:
        self.sequences = 0

    def __call__(self, sequences: SequenceBatch) -> Tensor:
        self.sequences += sequences.n_sequences
        return sequences.residues[:, None] / 3 * torch.arange(WIDTH)


def expected(*residues: int) -> Tensor:
    return (torch.tensor(residues)[:, None] / 3 * torch.arange(WIDTH)).half().float()


def test_each_sequence_is_computed_once() -> None:
    cache, computed = PatternCache(WIDTH), Computed()
    batch = make_batch([1, 2], [4], [1, 2], [7, 8, 9])
    torch.testing.assert_close(cache.find(batch, computed), expected(1, 2, 4, 1, 2, 7, 8, 9), rtol=0, atol=0)
    assert computed.sequences == len(cache) == 3
    batch = batch.take(torch.tensor([3, 0]))  # in another order, and with residues between them
    torch.testing.assert_close(cache.find(batch, computed), expected(7, 8, 9, 1, 2), rtol=0, atol=0)
    assert computed.sequences == 3
    batch = make_batch([4], [5, 5], [1, 2])  # known, new, known
    torch.testing.assert_close(cache.find(batch, computed), expected(4, 5, 5, 1, 2), rtol=0, atol=0)
    assert computed.sequences == len(cache) == 4


def test_a_full_cache_begins_anew() -> None:
    cache, computed = PatternCache(WIDTH, max_bytes=2 * WIDTH * 4), Computed()
    for _ in range(2):
        torch.testing.assert_close(cache.find(make_batch([1, 2, 3], [4, 5]), computed), expected(1, 2, 3, 4, 5))
        torch.testing.assert_close(cache.find(make_batch([9]), computed), expected(9))
        assert len(cache) == 1
    assert computed.sequences == 6


def test_a_failed_write_leaves_the_cache_as_it_was() -> None:
    cache, computed = PatternCache(WIDTH), Computed()
    cache.find(make_batch([1, 2]), computed)
    cache._file.write(b"rest of a write that has failed")

    def fail(_: SequenceBatch) -> Tensor:
        raise MemoryError

    with pytest.raises(MemoryError):
        cache.find(make_batch([3, 4]), fail)
    torch.testing.assert_close(cache.find(make_batch([3, 4], [1, 2]), computed), expected(3, 4, 1, 2), rtol=0, atol=0)


def test_threads_find_one_after_the_other() -> None:
    """While one thread computes new patterns, no other may choose the same place in the file."""
    cache, begun, inside = PatternCache(WIDTH), threading.Event(), []

    def compute(sequences: SequenceBatch) -> Tensor:
        inside.append(1)
        begun.set()
        threading.Event().wait(0.05)  # the other thread would begin now
        assert len(inside) == 1
        inside.pop()
        return Computed()(sequences)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(cache.find, make_batch([1, 2], [3]), compute)
        begun.wait()
        second = threads.submit(cache.find, make_batch([3], [7, 8]), compute)
    torch.testing.assert_close(first.result(), expected(1, 2, 3), rtol=0, atol=0)
    torch.testing.assert_close(second.result(), expected(3, 7, 8), rtol=0, atol=0)
    assert len(cache) == 3


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PatternCache(WIDTH)
    monkeypatch.setattr("tempfile.tempdir", "/full")

    class Full:
        def seek(self, _: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache, "_file", Full())
    with pytest.raises(WriteError, match="/full"):
        cache.find(make_batch([1]), Computed())
    assert len(cache) == 0


def test_a_forked_process_has_its_own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    own = get_shared_cache("one", WIDTH)
    assert get_shared_cache("one", WIDTH) is own
    monkeypatch.setattr("os.getpid", lambda: -1)  # as in a child, which has a copy of this memory
    assert get_shared_cache("one", WIDTH) is not own
