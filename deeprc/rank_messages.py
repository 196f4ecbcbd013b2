"""Messages between ranks: pickles in which an object that every rank has is written as its index.

An open container, for example, is not sent. Each rank reads the message with its own one.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

__all__ = ["read_message", "write_message"]


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shared: Sequence[object]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def persistent_id(self, obj: object) -> int | None:
        """Return the index that is written instead of an object; None to write the object itself."""
        return next((index for index, shared in enumerate(self._shared) if shared is obj), None)


class _Unpickler(pickle.Unpickler):
    def __init__(self, message: bytes, shared: Sequence[object]) -> None:
        super().__init__(io.BytesIO(message))
        self._shared = shared

    def persistent_load(self, index: int) -> object:
        """Return the object that was written as this index."""
        return self._shared[index]


def write_message(value: object, shared: Sequence[object]) -> bytes:
    """Return a value as a message to ranks that have the `shared` objects in the same order."""
    file = io.BytesIO()
    _Pickler(file, shared).dump(value)
    return file.getvalue()


def read_message(message: bytes, shared: Sequence[object]) -> Any:
    """Return the value of a message, with the `shared` objects of this rank."""
    return _Unpickler(message, shared).load()
