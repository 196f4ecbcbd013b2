"""`Categorical`: names that repeat, such as the V genes of sequences, as codes in a vocabulary.

Letters: N names, M different names of a vocabulary.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Categorical", "extend_vocabulary"]

_T = TypeVar("_T", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Categorical:
    """N names; each different name is stored once.

    Attributes
    ----------
    codes
        Index of each name in `vocabulary`, (N,) integers; unsigned, of 16 bits, for genes in a container.
    vocabulary
        M different names; "" is an unknown name.
    """

    codes: NDArray[np.integer[Any]]
    vocabulary: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def encode(cls, names: Iterable[str]) -> Categorical:
        """Return names as codes; the vocabulary has the order in which they first occur."""
        code_of: dict[str, int] = {}
        return cls(extend_vocabulary(code_of, names).astype(np.uint16), tuple(code_of))

    @classmethod
    def unknown(cls, n: int) -> Categorical:
        """Return n unknown names."""
        return cls(np.zeros(n, np.uint16), ("",))

    def names(self) -> NDArray[np.object_]:
        """Return the N names as text, (N,) object."""
        names: NDArray[np.object_] = np.asarray(self.vocabulary, dtype=object)[self.codes]
        return names

    def get_name(self, row: int) -> str:
        """Return the name at a row."""
        return self.vocabulary[int(self.codes[row])]

    def count_occurrences(self) -> NDArray[np.int64]:
        """Return the number of occurrences of each name of the vocabulary, (M,)."""
        return np.bincount(self.codes, minlength=len(self.vocabulary))

    def sum_weights(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the weights, (N,), over the occurrences of each name of the vocabulary, (M,)."""
        return np.asarray(np.bincount(self.codes, weights, minlength=len(self.vocabulary)), np.float64)

    def take(self, rows: NDArray[Any] | slice) -> Categorical:
        """Return some of the names with the same vocabulary; a slice gives a view."""
        return Categorical(self.codes[rows], self.vocabulary)

    def drop_unused(self) -> Categorical:
        """Return the same names with a vocabulary without unused names, in the same order."""
        used = np.flatnonzero(self.count_occurrences())
        new_code = np.zeros(max(len(self.vocabulary), 1), self.codes.dtype)
        new_code[used] = np.arange(len(used))
        return Categorical(new_code[self.codes], tuple(self.vocabulary[code] for code in used.tolist()))

    def encode_with(self, vocabulary: Sequence[str]) -> NDArray[np.int64]:
        """Return the codes of the names in another vocabulary, (N,); -1 if it lacks the name."""
        code_of = {name: code for code, name in enumerate(vocabulary)}
        new_codes = np.array([code_of.get(name, -1) for name in self.vocabulary], np.int64)
        return np.asarray(new_codes[self.codes])

    @staticmethod
    def concatenate(several: Sequence[Categorical]) -> Categorical:
        """Return the names of all parts, one part after the other, with one vocabulary.

        The vocabulary has the order in which names first occur in the vocabularies of the parts.
        """
        code_of: dict[str, int] = {}
        tables = [extend_vocabulary(code_of, calls.vocabulary) for calls in several]
        smallest = np.min_scalar_type(max(len(code_of) - 1, 0))
        dtype = np.result_type(smallest, *(calls.codes.dtype for calls in several)) if several else np.dtype(np.uint16)
        codes = [table.astype(dtype)[calls.codes] for table, calls in zip(tables, several, strict=True)]
        return Categorical(np.concatenate([np.zeros(0, dtype), *codes]), tuple(code_of))


def extend_vocabulary(code_of: dict[_T, int], names: Iterable[_T]) -> NDArray[np.int64]:
    """Return the code of each name in a vocabulary; names that it lacks are added at its end.

    Parameters
    ----------
    code_of
        The code of each name of the vocabulary; it grows.
    names
        Any number of names, n; they may repeat.

    Returns
    -------
    The codes, (n,) int64.
    """
    return np.array([code_of.setdefault(name, len(code_of)) for name in names], np.int64)
