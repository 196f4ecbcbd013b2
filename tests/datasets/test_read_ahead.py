"""Reading ahead asks for the pages of the repertoires that are named, and stops where they are in memory."""

import mmap
import os
import time

import numpy as np
import pytest

from deeprc.datasets import read_ahead
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.read_ahead import ReadAhead
from deeprc.datasets.sequences import Sequences
from tests.toys.repertoires import make_sequences, write_repertoires

PAGE = mmap.PAGESIZE
N = 20_000
"""Sequences of a repertoire, of 10 residues each: more than one call may ask for."""

pytestmark = pytest.mark.skipif(read_ahead._WILL_NEED is None, reason="this system cannot be asked")


@pytest.fixture
def dataset(tmp_path):
    offsets, genes = compute_offsets(np.full(N, 10)), Categorical(np.zeros(N, np.uint16), ("TRBV1",))
    repertoires = [
        Sequences(np.full(10 * N, b, np.uint8), offsets, np.full(N, b + 1, np.uint32), genes) for b in range(4)
    ]
    return write_repertoires(tmp_path / "c.h5", repertoires, {"y": range(4)})


@pytest.fixture
def small_ones_too(monkeypatch):
    monkeypatch.setattr(read_ahead, "_MIN_BYTES", 0)


@pytest.fixture
def asked(monkeypatch, small_ones_too):
    """The bytes that are asked for, by address."""
    calls = []
    monkeypatch.setattr(read_ahead, "_madvise", lambda address, size, advice: calls.append((address, size, advice)))
    return calls


def ask(container, rows, fields=()):
    reads = ReadAhead(container, fields)
    reads(rows)
    reads.wait()


@pytest.mark.parametrize("fields", [[], ["counts"], ["counts", "v_call", "j_call"]])
def test_read_ahead_asks_for_whole_pages_of_the_named_repertoires_and_columns(dataset, asked, fields):
    ask(dataset.container, [3, 1], fields)
    sequences = dataset.container.sequences
    columns = [sequences.offsets, sequences.residues]
    columns += [sequences.counts] if "counts" in fields else []
    columns += [sequences.v_call.codes] if "v_call" in fields else []
    wanted = set()
    for b in (3, 1):
        for column in columns:
            scale = 10 if column is sequences.residues else 1
            part = column[b * N * scale : (b + 1) * N * scale + (column is sequences.offsets)]
            start = part.ctypes.data
            wanted |= set(range(start // PAGE, -(-(start + part.nbytes) // PAGE)))
    found = {page for address, size, _ in asked for page in range(address // PAGE, -(-(address + size) // PAGE))}
    assert found == wanted
    assert all(address % PAGE == 0 and size <= 1 << 17 for address, size, _ in asked)


def test_a_repertoire_without_sequences_is_no_error(tmp_path, asked):
    dataset = write_repertoires(tmp_path / "c.h5", map(make_sequences, ([], ["CAF"])), {"y": [0, 1]})
    ask(dataset.container, [0, 1])
    assert sum(size for *_, size, _ in asked) > 0


def test_a_small_container_is_left_to_the_system(dataset, monkeypatch):
    monkeypatch.setattr(read_ahead, "_madvise", lambda *arguments: pytest.fail("asked"))
    ask(dataset.container, [0, 1])


def test_pages_that_were_asked_for_are_in_memory(dataset, small_ones_too):
    path = dataset.container.path
    if not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("needs Linux")
    container = RepertoireDataset(path).container
    place = container.sequences.residues.offset + 2 * 10 * N + 5 * PAGE
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if is_in_memory(file.fileno(), place):
            pytest.skip("this file system keeps the pages")
        ask(container, [2])
        end = time.monotonic() + 60  # the disk may be busy
        while not is_in_memory(file.fileno(), place):
            assert time.monotonic() < end
            time.sleep(0.01)


def is_in_memory(file, place):
    try:
        return os.preadv(file, [bytearray(1)], place, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError:
        pytest.skip("this file system does not tell")


def test_few_calls_ask_for_pages_if_nothing_is_read_from_the_disk(dataset, asked, monkeypatch):
    n_reads = [0]
    monkeypatch.setattr(read_ahead, "_count_reads", lambda: n_reads[0])
    reads = ReadAhead(dataset.container, [])
    asking = []
    for call in range(80):
        n_reads[0] += call == 60  # then something was dropped
        asked.clear()
        reads([0])
        reads.wait()
        asking.append(bool(asked))
    assert np.flatnonzero(asking).tolist() == [0, 1, 2, 3, 4, 16, 32, 48, 60, 61, 62, 63, 64, 76]
