"""The checksum of a container, which shows damage by a disk or a transfer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.hdf5 import (
    BlockCheck,
    convert_attribute_to_bytes,
    iterate_blocks,
    list_attributes,
    list_members,
    map_values,
)
from deeprc.progress import open_step

__all__ = ["compute_checksum"]

_WORDS = 512
"""Number of columns of 64-bit words from which a block's checksum is made."""


def compute_checksum(file: h5py.File, path: Path, checks: Mapping[str, BlockCheck] | None = None) -> str:
    """Return a checksum of all that a file holds, apart from the attribute `checksum` of its root.

    It finds changes by a disk or a transfer. It is not a signature: anybody who alters a file on purpose can compute it
    again.

    Parameters
    ----------
    file, path
        Opened file, and its path.
    checks
        Checks by the name of a dataset; each is called with the blocks of this dataset.

    Raises
    ------
    ValueError
        If the file has anything but groups, contiguous datasets, and attributes of whole numbers or texts of fixed
        length.
    """
    content = hashlib.blake2b(digest_size=16)
    with open_step("checksum of the container", path.stat().st_size) as step:
        for member_path, member in sorted(_walk_members(file)):
            content.update(f"\n{member_path}\n".encode())
            for name in sorted(list_attributes(member)):
                if (member_path, name) != ("", "checksum"):
                    value = convert_attribute_to_bytes(member, name)
                    content.update(f"\n{name} {len(value)}\n".encode() + value)
            if isinstance(member, h5py.Dataset):
                values = map_values(path, member)
                content.update(f"{values.dtype.str} {len(values)}\n".encode())
                check = (checks or {}).get(member_path.strip("/"))
                for block in iterate_blocks(values):
                    if check is not None:
                        check(block)
                    content.update(_sum_columns(block))
                    step.advance(block.nbytes)
    return content.hexdigest()


def _sum_columns(block: NDArray[Any]) -> bytes:
    """Return the sums of a block's 64-bit words by column, modulo 2**64: much faster than hashing all bytes."""
    flat = np.ascontiguousarray(block).view(np.uint8)
    n = len(flat) // (8 * _WORDS) * (8 * _WORDS)
    words = flat[:n].view(np.uint64).reshape(-1, _WORDS)  # (rows, 512)
    sums: NDArray[np.uint64] = words.sum(axis=0, dtype=np.uint64)  # (512,)
    return bytes(sums.tobytes() + flat[n:].tobytes())


def _walk_members(group: h5py.Group, path: str = "") -> Iterator[tuple[str, h5py.Group | h5py.Dataset]]:
    """Yield the path and the object of a group, its datasets and its subgroups with theirs, one level deep."""
    yield path, group
    for name, member in list_members(group).items():
        if isinstance(member, h5py.Group):
            if path:
                raise ValueError(f"{member.name}: expected no group within a group")
            yield from _walk_members(member, f"{path}/{name}")
        else:
            yield f"{path}/{name}", member
