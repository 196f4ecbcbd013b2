"""Read HDF5 files that strangers may have made: nothing is read before its type, place and size are known.

The HDF5 library checks its own structures, in files of its newer layouts by checksums. The exception is text of
variable length: it lies in heaps that are not checked, and a damaged one can hang or crash the library. So such text is
never read here (`deeprc.datasets.legacy_texts` reads it for containers of version 1). Letters: n values of a dataset.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import DTypeLike, NDArray

from deeprc.documents import CONTROL_CHARACTERS
from deeprc.errors import InputError, cut_name, quote
from deeprc.files import check_regular_file

__all__ = [
    "MAX_MEMBERS",
    "BlockCheck",
    "check_texts",
    "convert_attribute_to_bytes",
    "convert_hdf5_errors",
    "describe_values",
    "encode_texts",
    "has_attribute",
    "is_fixed_text",
    "iterate_blocks",
    "list_attributes",
    "list_members",
    "map_values",
    "open_hdf5",
    "read_integer_attribute",
    "read_text_attribute",
    "read_text_dataset",
    "read_text_list_attribute",
]

BlockCheck = Callable[[NDArray[Any]], None]
"""Function that is called with each block of a dataset's values, in order, and may raise ValueError."""

_DAMAGE = (KeyError, ValueError, TypeError, AttributeError, OSError, RuntimeError, OverflowError, MemoryError)
"""The errors of h5py and numpy for parts that are missing or altered; RuntimeError includes RecursionError."""

_BLOCK = 1 << 20
"""Number of bytes that are processed together: they stay in the processor's cache."""

_MAX_TEXT_BYTES = 1 << 28
"""Largest size in bytes of a dataset of texts: a million texts of 256 letters."""

MAX_MEMBERS = 1 << 15
"""Largest number of members of a group, such as columns of the metadata: HDF5 needs some seconds to list so many."""


@contextmanager
def open_hdf5(path: Path, *, expected: str) -> Generator[h5py.File, None, None]:
    """Open an HDF5 file for reading.

    Parameters
    ----------
    path
        Path of the file.
    expected
        Kind of the file that was expected, for messages, as in "a container".

    Raises
    ------
    InputError
        If there is no such file, or it is no regular file, or cannot be read as HDF5.
    """
    check_regular_file(path, expected=expected)
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        reason = " ".join(str(error).split())
        message = f"{path}: cannot be read as HDF5 (damaged, cut short, or not a container): {reason}"
        raise InputError(message) from error
    with file:
        yield file


def list_members(group: h5py.Group) -> dict[str, h5py.Group | h5py.Dataset]:
    """Return the groups and datasets that lie in a group itself.

    Raises
    ------
    ValueError
        If there is anything else: a link to another place or another file, a stored data type, or values of a type that
        no container has; or if there are more than `MAX_MEMBERS`.
    """
    if len(group) > MAX_MEMBERS:
        raise ValueError(f"{group.name}: expected at most {MAX_MEMBERS:,} datasets and groups, found {len(group):,}")
    members: dict[str, h5py.Group | h5py.Dataset] = {}
    for name in _check_names(group, "a name", group):
        link = group.get(name, getlink=True)
        if type(link) is not h5py.HardLink:
            raise ValueError(f"{_join_path(group, name)}: expected a dataset, found a link to another place")
        members[name] = group[name]
        if (n_links := h5py.h5o.get_info(members[name].id).rc) != 1:  # each would be read as often as it has links
            raise ValueError(f"{_join_path(group, name)}: expected one link to it, found {n_links:,}")
        if not isinstance(members[name], h5py.Dataset | h5py.Group):
            raise ValueError(f"{_join_path(group, name)}: expected a dataset or a group, found a data type")
        if isinstance(members[name], h5py.Dataset):
            _check_type(members[name])
    return members


def _check_type(dataset: h5py.Dataset) -> None:
    """Raise ValueError if numpy does not know a dataset's type, or would take its bytes for other numbers."""
    stored = dataset.id.get_type()
    try:
        is_plain = stored.dtype.kind not in "iuf" or stored == h5py.h5t.py_create(stored.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{dataset.name}: expected numbers or texts of fixed length, found others: {error}") from error
    if not is_plain:  # such as 17 bits of 32, or a number of 8 bytes in 16
        raise ValueError(f"{dataset.name}: expected plain numbers, found another layout of {stored.dtype}")


def _check_names(owner: h5py.Group | h5py.Dataset, what: str, names: Iterable[str | bytes]) -> Iterator[str]:
    """Yield the names of members or attributes; raise ValueError if one is not UTF-8, which h5py gives as bytes."""
    for name in names:
        if isinstance(name, bytes):
            raise ValueError(f"{owner.name}: expected {what} in UTF-8, found {name!r:.60}")
        yield name


def _find_values_offset(dataset: h5py.Dataset) -> int:
    """Return the position in the file at which the values of a dataset of one dimension begin.

    Raises
    ------
    ValueError
        If the values do not lie in one piece, uncompressed, within this file.
    """
    if dataset.ndim != 1:
        raise ValueError(f"{dataset.name}: expected one dimension, found shape {dataset.shape}")
    if dataset.is_virtual or dataset.external or dataset.chunks is not None:
        raise ValueError(f"{dataset.name}: expected a contiguous, uncompressed dataset of this file")
    if dataset.size == 0:
        return 0
    offset = dataset.id.get_offset()
    if offset is None:
        raise ValueError(f"{dataset.name}: expected a contiguous, uncompressed dataset of this file")
    if offset + dataset.nbytes > (size := _get_file_size(dataset)):
        raise ValueError(
            f"{dataset.name}: expected at most the file's {size:,} bytes, found {dataset.nbytes:,} from byte {offset:,}"
        )
    return int(offset)


def map_values(path: Path, dataset: h5py.Dataset, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Return a dataset's values as a memory map, (n,): writing to it changes nothing in the file.

    Raises
    ------
    ValueError
        If the values have another type than `dtype`, or do not lie in one piece within the file.
    """
    if dtype is not None and dataset.dtype != dtype:
        found = f"{cut_name(str(dataset.dtype))} {dataset.shape}"
        raise ValueError(f"{dataset.name}: expected one dimension of {np.dtype(dtype)}, found {found}")
    if dataset.dtype.hasobject:  # the file's bytes would be taken for addresses in memory
        raise ValueError(f"{dataset.name}: expected numbers or texts of fixed length, found values of variable length")
    offset = _find_values_offset(dataset)
    if dataset.size == 0:
        return np.zeros(dataset.shape, dataset.dtype)
    # Copy-on-write: torch takes only writable arrays without a copy, and nothing ever reaches the file.
    # numpy follows all links of a `Path`, which takes as long as opening it.
    return np.memmap(os.fspath(path), dataset.dtype, mode="c", offset=offset, shape=dataset.shape)


def list_attributes(member: h5py.Group | h5py.Dataset) -> list[str]:
    """Return the names of the attributes of a group or dataset; raise ValueError if one is not UTF-8."""
    return list(_check_names(member, "the name of an attribute", member.attrs))


def has_attribute(member: h5py.Group | h5py.Dataset, name: str) -> bool:
    """Return whether a group or dataset has an attribute, without reading it."""
    return bool(h5py.h5a.exists(member.id, name.encode()))


def read_integer_attribute(member: h5py.Group | h5py.Dataset, name: str) -> int:
    """Return an attribute of a group or dataset, a whole number.

    Raises
    ------
    ValueError
        If it is missing or anything else.
    """
    attribute = _open_attribute(member, name)
    kind = attribute.get_type()
    if kind.get_class() != h5py.h5t.INTEGER or kind.get_size() not in (1, 2, 4, 8) or attribute.shape != ():
        raise ValueError(f"{member.name}: attribute {name!r}: expected a whole number of at most 64 bits")
    return int(member.attrs[name])


def read_text_attribute(member: h5py.Group | h5py.Dataset, name: str) -> str:
    """Return an attribute of a group or dataset, a UTF-8 text of fixed length.

    Raises
    ------
    ValueError
        If it is missing or anything else.
    """
    texts = _read_attribute_bytes(member, name)
    if texts.shape != ():
        raise ValueError(f"{member.name}: attribute {name!r}: expected one text, found shape {texts.shape}")
    return _decode([texts[()]], f"{member.name}: attribute {name!r}")[0]


def read_text_list_attribute(member: h5py.Group | h5py.Dataset, name: str) -> list[str]:
    """Return an attribute of a group or dataset, a list of UTF-8 texts of fixed length.

    Raises
    ------
    ValueError
        If it is missing or anything else.
    """
    texts = _read_attribute_bytes(member, name)
    if texts.ndim != 1:
        raise ValueError(f"{member.name}: attribute {name!r}: expected a list of texts, found shape {texts.shape}")
    return _decode(texts, f"{member.name}: attribute {name!r}")


def read_text_dataset(dataset: h5py.Dataset) -> list[str]:
    """Return the values of a dataset of UTF-8 texts of fixed length.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    if not is_fixed_text(dataset):
        raise ValueError(f"{dataset.name}: expected texts of fixed length, found {describe_values(dataset)}")
    _find_values_offset(dataset)
    if dataset.nbytes > _MAX_TEXT_BYTES:  # the file may be sparse, so it need not be as large as it claims
        raise ValueError(f"{dataset.name}: expected at most {_MAX_TEXT_BYTES:,} bytes, found {dataset.nbytes:,}")
    return _decode(dataset[()], str(dataset.name))


def _decode(texts: Iterable[Any], where: str) -> list[str]:
    try:
        decoded = [bytes(text).decode() for text in texts]
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: expected UTF-8, found byte {error.object[error.start]}") from error
    check_texts(decoded, where)
    return decoded


def check_texts(texts: Iterable[str], where: str) -> None:
    """Refuse texts that would steer a terminal, or break a line of a table.

    Raises
    ------
    ValueError
        If a text has a control character; the message begins with `where`.
    """
    for text in texts:
        if CONTROL_CHARACTERS.search(text):
            raise ValueError(f"{where}: expected no control characters, found {quote(text)}")


def describe_values(member: h5py.Group | h5py.Dataset) -> str:
    """Return what a dataset holds, for messages; a group holds no values."""
    if isinstance(member, h5py.Group):
        return "a group"
    return "texts of variable length" if h5py.check_string_dtype(member.dtype) else cut_name(str(member.dtype))


def is_fixed_text(dataset: h5py.Dataset) -> bool:
    """Return whether a dataset's values are texts of a fixed length."""
    kind = dataset.id.get_type()
    return kind.get_class() == h5py.h5t.STRING and not kind.is_variable_str()


def encode_texts(texts: list[str], what: str) -> NDArray[np.bytes_]:
    """Return texts as UTF-8 of a fixed length, (n,), as HDF5 stores them; zero characters are left out.

    Raises
    ------
    InputError
        If one has a control character or is not UTF-8, or they take too much room, since each takes that of the
        longest; the message begins with `what`.
    """
    texts = [text.replace("\0", "") for text in texts]
    try:
        check_texts(texts, what)
        encoded = [text.encode() for text in texts]
    except UnicodeEncodeError as error:  # half of a character, such as a name of a file that is not UTF-8
        raise InputError(f"{what}: expected UTF-8, found {quote(error.object)}") from error
    except ValueError as error:
        raise InputError(str(error)) from error
    width = max([1, *map(len, encoded)])
    if width * len(texts) > _MAX_TEXT_BYTES:
        raise InputError(
            f"{what}: {len(texts):,} texts, of which the longest has {width:,} bytes, take {width * len(texts):,} "
            f"bytes; expected at most {_MAX_TEXT_BYTES:,}"
        )
    return np.array(encoded, h5py.string_dtype("utf-8", width))


def _get_file_size(member: h5py.Group | h5py.Dataset) -> int:
    return int(h5py.h5i.get_file_id(member.id).get_filesize())


def _open_attribute(member: h5py.Group | h5py.Dataset, name: str) -> h5py.h5a.AttrID:
    if not has_attribute(member, name):
        raise ValueError(f"{member.name}: no attribute {name!r}")
    return h5py.h5a.open(member.id, name.encode())


def _read_attribute_bytes(member: h5py.Group | h5py.Dataset, name: str) -> NDArray[Any]:
    """Return an attribute as bytes; raise ValueError unless it is text of fixed length that fits into the file."""
    attribute = _open_attribute(member, name)
    kind = attribute.get_type()
    if kind.get_class() != h5py.h5t.STRING or kind.is_variable_str():
        raise ValueError(f"{member.name}: attribute {name!r}: expected text of fixed length")
    if attribute.get_space().get_simple_extent_npoints() == 0:
        raise ValueError(f"{member.name}: attribute {name!r}: expected text, found nothing")
    if attribute.get_storage_size() > _get_file_size(member):
        raise ValueError(f"{member.name}: attribute {name!r}: is larger than the file")
    return np.asarray(member.attrs[name])


def iterate_blocks(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the values in pieces that fit into the processor's cache."""
    step = max(_BLOCK // values.dtype.itemsize, 1)
    for start in range(0, len(values), step):
        yield values[start : start + step]


def convert_attribute_to_bytes(member: h5py.Group | h5py.Dataset, name: str) -> bytes:
    """Return an attribute, a whole number or texts of fixed length, as bytes.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    attribute = _open_attribute(member, name)
    if attribute.get_type().get_class() == h5py.h5t.INTEGER and attribute.shape == ():
        return str(read_integer_attribute(member, name)).encode()
    return _read_attribute_bytes(member, name).tobytes()


def _join_path(group: h5py.Group, name: str) -> str:
    return f"{str(group.name).rstrip('/')}/{name}"


@contextmanager
def convert_hdf5_errors(path: str | os.PathLike[str]) -> Generator[None, None, None]:
    """Turn the errors of h5py and numpy for damaged parts into one line that names the file."""
    try:
        yield
    except InputError:
        raise
    except _DAMAGE as error:
        reason = error.args[0] if isinstance(error, KeyError) and error.args else error
        text = " ".join(str(reason).split()) or type(error).__name__
        raise InputError(f"{path}: the container is damaged: {text}") from error
