"""Read the published HDF5 containers of the original DeepRC, which hold many repertoires in one file.

Letters: B repertoires, N sequences, n sequences of one repertoire, L positions.

    /sampledata/sequences                   or `amino_acid_sequences`: int8 (N, L), the index in `aas`, -1 behind the
                                            end; or text (N,)
    /sampledata/seq_lens                    int (N,), optional
    /sampledata/sequence_counts             or `duplicates_per_sequence`, `counts_per_sequence`: (N,), optional
    /sampledata/sample_sequences_start_end  int (B, 2)
    /metadata/sample_keys                   text (B,)
    /metadata/aas                           text: the amino acids in the order of their indices

A small file may claim to hold terabytes, or name other files. So every dataset must lie in the file itself, and what is
read together has a limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.legacy_texts import read_texts_in_subprocess
from deeprc.datasets.raw_texts import RawTexts
from deeprc.datasets.readers.layout import SequenceKind, Status
from deeprc.datasets.readers.table import COUNT_ONE, RawRows
from deeprc.documents import abbreviate
from deeprc.errors import InputError, quote
from deeprc.files import FileStamp

__all__ = ["is_original_container", "read_original_container", "read_original_ids"]

_SEQUENCES = ("sampledata/sequences", "sampledata/amino_acid_sequences")
_COUNTS = (
    "sampledata/sequence_counts",
    "sampledata/duplicates_per_sequence",
    "sampledata/counts_per_sequence",
)
_BOUNDS, _LENGTHS = "sampledata/sample_sequences_start_end", "sampledata/seq_lens"
_KEYS, _AMINO_ACIDS = "metadata/sample_keys", "metadata/aas"
_MAX_COUNT = int(np.iinfo(np.uint32).max)
_MAX_REPERTOIRES = 1 << 20
_MAX_BYTES = 1 << 28  # of the values of one repertoire, or of all ids
_MIN_ROW_BYTES = 16  # number of bytes that a sequence at least takes in memory
_MAX_RATIO = 1100  # deflate packs at most 1,032 bytes into one
_DAMAGED = (OSError, RuntimeError, KeyError, TypeError, ValueError, OverflowError, MemoryError)
"""The errors that h5py raises for a file whose structure is damaged."""


def is_original_container(path: Path) -> bool:
    """Return whether a file is HDF5 with the groups of the original DeepRC.

    The result is also True for damaged HDF5, so that reading the file gives the reason why it cannot be read.
    """
    try:
        if not h5py.is_hdf5(path):
            return False
    except OSError:  # it may not be read; whoever reads it as text says so, with its name
        return False
    try:
        with h5py.File(path, "r") as file:
            return file.get("sampledata", getlink=True) is not None and file.get("metadata", getlink=True) is not None
    except _DAMAGED:
        return True


def read_original_ids(path: Path) -> tuple[str, ...]:
    """Return the ids of the repertoires in the file's order: the names of the files that they were made from.

    Raises
    ------
    InputError
        If the file is damaged or lacks the ids.
    """
    with _open_original(path) as file:
        return _read_repertoire_ids(file)


def read_original_container(path: Path, only: Collection[str] | None = None) -> Iterator[tuple[str, RawRows]]:
    """Yield the id and the sequences of each repertoire, or of those in `only`, in the file's order.

    One repertoire is in memory at a time. A count of less than 1, as in the CMV cohort, becomes 1. The file has no
    genes and no reading frames.

    Raises
    ------
    InputError
        If the file is damaged or is not laid out as expected; the message names the dataset.
    """
    with _open_original(path) as file:
        ids = _read_repertoire_ids(file)
        sequences, lengths = _get_dataset(file, *_SEQUENCES), _find_dataset(file, _LENGTHS)
        counts = _find_dataset(file, *_COUNTS)
        bounds = _read_bounds(file, len(ids), len(sequences))
        for dataset in (lengths, counts):
            if dataset is not None and dataset.shape != sequences.shape[:1]:
                raise _make_error(
                    dataset, f"expected {len(sequences)} values, one for each sequence, found {dataset.shape}"
                )
        alphabet = _read_alphabet(file) if sequences.dtype.kind in "iu" else None

        def read_rows(start: int, stop: int) -> RawRows:
            texts = _convert_to_raw_texts(sequences, _read_values(sequences, start, stop), alphabet)
            if lengths is not None and not np.array_equal(_read_values(lengths, start, stop), texts.lengths):
                raise _make_error(lengths, "does not fit the sequences")
            return _make_rows(texts, counts, start, stop)

        for name, (start, stop) in zip(ids, bounds.tolist(), strict=True):
            if only is not None and name not in only:
                continue
            try:
                rows = read_rows(start, stop)
            except InputError as error:
                raise InputError(f"{error}; repertoire {quote(name)}") from error
            yield name, rows


@contextmanager
def _open_original(path: Path) -> Generator[h5py.File, None, None]:
    """Open a container of the original DeepRC; errors of HDF5 become an InputError that names the file."""
    try:
        file = h5py.File(path, "r")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read as HDF5: {error}") from error
    try:
        with file:
            yield file
    except InputError:
        raise
    except _DAMAGED as error:
        raise InputError(f"{path}: the HDF5 file is damaged: {error}") from error


def _find_dataset(file: h5py.File, *names: str) -> Any:
    """Return the first of these datasets that lies in the file; None without any. No other file is opened."""
    for name in names:
        group = name.partition("/")[0]
        if all(type(file.get(place, getlink=True)) is h5py.HardLink for place in (group, name)):
            dataset = file[name]
            if isinstance(dataset, h5py.Dataset) and dataset.shape is not None:
                return dataset
    return None


def _get_dataset(file: h5py.File, *names: str) -> Any:
    dataset = _find_dataset(file, *names)
    if dataset is None:
        raise InputError(
            f"{file.filename}: no dataset /{' or /'.join(names)}; is this a container of the original DeepRC?"
        )
    return dataset


def _read_values(dataset: Any, start: int | None = None, stop: int | None = None) -> Any:
    """Return rows of a dataset, or all of it if there are no bounds.

    Text of variable length is read by another process, because the HDF5 library does not check it.
    """
    if _is_variable_text(dataset):
        name = dataset.name.strip("/")
        rows = None if start is None or stop is None else (start, stop)
        path = Path(dataset.file.filename)
        read = read_texts_in_subprocess(path, {name: rows}) if rows else _read_small_texts(dataset.file)
        return np.array(read[name], object)
    if dataset.dtype.hasobject:
        raise _make_error(dataset, f"expected numbers or text, found {dataset.dtype} of variable length")
    _check_size(dataset, start, stop)
    try:
        return dataset[()] if start is None else dataset[start:stop]
    except _DAMAGED as error:  # a damaged block, a filter that is missing, no UTF-8
        raise _make_error(dataset, f"cannot be read: {error}") from error


def _check_size(dataset: Any, start: int | None, stop: int | None) -> None:
    """Raise InputError if rows of a dataset do not lie in the file, or are too many or too long to be read."""
    if dataset.is_virtual or dataset.external:
        raise _make_error(dataset, "expected values in this file, found those of another one")
    stored = dataset.id.get_storage_size()
    if dataset.nbytes > _MAX_RATIO * stored:
        raise _make_error(dataset, f"expected {dataset.nbytes:,} bytes of values in the file, found {stored:,}")
    n_bytes = dataset.nbytes
    if start is not None and stop is not None:
        n_bytes = (stop - start) * max(n_bytes // max(len(dataset), 1), _MIN_ROW_BYTES)
    if dataset.chunks is not None:  # a block is read as a whole
        n_bytes = max(n_bytes, math.prod(dataset.chunks) * dataset.dtype.itemsize)
    if n_bytes > _MAX_BYTES:
        raise _make_error(dataset, f"expected at most {_MAX_BYTES:,} bytes at once, found {n_bytes:,}")


def _is_variable_text(dataset: Any) -> bool:
    kind = h5py.check_string_dtype(dataset.dtype)
    return kind is not None and kind.length is None


def _read_small_texts(file: h5py.File) -> dict[str, list[str]]:
    """Return the ids and the amino acids, as far as they are text of variable length."""
    datasets = {name: _find_dataset(file, name) for name in (_KEYS, _AMINO_ACIDS)}
    names = tuple(name for name, dataset in datasets.items() if dataset is not None and _is_variable_text(dataset))
    path = Path(file.filename)
    return _read_once(path, FileStamp.of(path), names)


@lru_cache(maxsize=4)
def _read_once(path: Path, stamp: FileStamp, names: tuple[str, ...]) -> dict[str, list[str]]:
    """Return texts by the names of their datasets.

    All repertoires of a file need them, and each start of a process takes time.
    """
    del stamp  # part of the key: a file that has changed is read again
    return read_texts_in_subprocess(path, dict.fromkeys(names))


def _read_repertoire_ids(file: h5py.File) -> tuple[str, ...]:
    dataset = _get_dataset(file, _KEYS)
    if dataset.size > _MAX_REPERTOIRES:
        raise _make_error(dataset, f"expected at most {_MAX_REPERTOIRES:,} ids, found {dataset.size:,}")
    values = np.ravel(_read_values(dataset)).tolist()
    ids = tuple(_decode_text(dataset, value) for value in values)
    if not ids:
        raise _make_error(dataset, "names no repertoire")
    if len(set(ids)) < len(ids):
        repeated = next(name for name, n in Counter(ids).items() if n > 1)
        raise _make_error(dataset, f"names {quote(repeated)} twice")
    return ids


def _read_alphabet(file: h5py.File) -> NDArray[np.uint8]:
    """Return the amino acid, as ASCII code, of each index that the file uses."""
    dataset = _get_dataset(file, _AMINO_ACIDS)
    value = _read_values(dataset)
    text = "".join(_decode_text(dataset, text) for text in np.ravel(value).tolist())
    if not text.isascii() or not text.isalpha() or len(set(text)) < len(text):
        raise _make_error(dataset, f"expected the amino acids in the order of their indices, found {quote(text)}")
    return np.frombuffer(text.encode(), np.uint8)


def _decode_text(dataset: Any, value: object) -> str:
    try:
        text = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        text = None
    if not isinstance(text, str):
        raise _make_error(dataset, f"expected text, found {abbreviate(value)}")
    return text


def _read_bounds(file: h5py.File, n_repertoires: int, n_sequences: int) -> NDArray[np.int64]:
    """Return the first sequence of each repertoire and the one after its last, (B, 2)."""
    dataset = _get_dataset(file, _BOUNDS)
    if dataset.shape != (n_repertoires, 2) or dataset.dtype.kind not in "iu":
        expected = f"expected integers of shape ({n_repertoires}, 2), first and last + 1 of each repertoire"
        raise _make_error(dataset, f"{expected}; found {dataset.dtype} of shape {dataset.shape}")
    bounds: NDArray[np.int64] = _read_values(dataset).astype(np.int64)
    wrong = (bounds[:, 0] < 0) | (bounds[:, 0] > bounds[:, 1]) | (bounds[:, 1] > n_sequences)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise _make_error(dataset, f"row {row} is {bounds[row].tolist()}, but there are {n_sequences} sequences")
    total = int((bounds[:, 1] - bounds[:, 0]).sum())
    if total > n_sequences:
        raise _make_error(dataset, f"gives {total:,} sequences to repertoires, but there are {n_sequences:,}")
    return bounds


def _convert_to_raw_texts(dataset: Any, cells: Any, alphabet: NDArray[np.uint8] | None) -> RawTexts:
    """Return sequences as ASCII texts."""
    if alphabet is None:
        return _convert_texts(dataset, cells)
    if cells.ndim != 2:
        raise _make_error(dataset, f"expected indices of shape (N, L), found shape {dataset.shape}")
    is_residue = cells != -1  # (n, L)
    lengths = is_residue.sum(axis=1)
    behind = np.arange(cells.shape[1]) >= lengths[:, None]  # (n, L)
    values = cells[is_residue]
    if (is_residue & behind).any() or (len(values) and (values.min() < 0 or values.max() >= len(alphabet))):
        raise _make_error(dataset, f"expected indices from 0 to {len(alphabet) - 1}, then -1 up to the end")
    return RawTexts(alphabet[values], compute_offsets(lengths))


def _convert_texts(dataset: Any, cells: Any) -> RawTexts:
    """Return the cells of a dataset as texts, which may be stored as bytes of fixed or variable length."""
    if cells.dtype.kind == "S" and len(cells):
        width = cells.dtype.itemsize * int(np.prod(cells.shape[1:]))
        letters = np.ascontiguousarray(cells).view(np.uint8).reshape(len(cells), width)  # (n, L), 0 behind the end
        is_letter = letters != 0
        return RawTexts(letters[is_letter], compute_offsets(is_letter.sum(axis=1)))
    if cells.dtype.kind not in "SO" or dataset.ndim != 1:
        raise _make_error(dataset, f"expected int8 or text, found {dataset.dtype} of shape {dataset.shape}")
    texts = [_decode_text(dataset, value).encode("ascii", "replace") for value in cells.tolist()]
    offsets = compute_offsets(np.array([len(text) for text in texts], np.int64))
    return RawTexts(np.frombuffer(b"".join(texts), np.uint8), offsets)


def _make_rows(sequences: RawTexts, count_dataset: Any, start: int, stop: int) -> RawRows:
    """Return the rows of one repertoire, with its counts as whole numbers; a missing count is 1."""
    n = stop - start
    sources: Sequence[str] = () if count_dataset is None else (count_dataset.name.rpartition("/")[2],)
    given = np.zeros(n) if count_dataset is None else _read_values(count_dataset, start, stop)
    if given.dtype.kind not in "iuf":
        raise _make_error(count_dataset, f"expected numbers, found {count_dataset.dtype}")
    exact = given.astype(np.float64)
    if n and np.nanmax(exact, initial=0) > _MAX_COUNT:
        raise _make_error(count_dataset, f"expected counts up to {_MAX_COUNT}, found {np.nanmax(exact):.10g}")
    missing = ~(exact >= 0) if sources else np.ones(n, bool)  # NaN is missing too
    exact[missing] = 1
    counts = np.maximum(np.rint(exact), 1)
    return RawRows(
        sequences=sequences,
        kinds=np.full(n, SequenceKind.JUNCTION_AA, np.uint8),
        counts=counts.astype(np.uint32),
        count_sources=(*sources, COUNT_ONE),
        count_source=np.where(missing, len(sources), 0).astype(np.int8),
        count_rounded=counts != exact,
        status=np.full(n, Status.UNKNOWN, np.uint8),
    )


def _make_error(dataset: Any, problem: str) -> InputError:
    return InputError(f"{dataset.file.filename}: dataset {dataset.name}: {problem}")
