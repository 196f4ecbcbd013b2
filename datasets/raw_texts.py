"""`RawTexts`: a column of texts as a file has them, before they are cleaned.

Letters: N texts, R letters of all of them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets, take

__all__ = ["RawTexts"]


@dataclass(frozen=True, eq=False)
class RawTexts:
    """N texts that lie end to end.

    Attributes
    ----------
    letters
        The bytes of all texts, (R,) uint8; those of sequences are ASCII, of whatever letters the file has.
    offsets
        Offsets of the texts, (N + 1,) int64: text n has the letters from offsets[n] to offsets[n + 1].
    """

    letters: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of letters of each text, (N,)."""
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> RawTexts:
        """Return the texts at some rows, (n,), in this order."""
        return RawTexts(*take(self.letters, self.offsets, rows))

    def find_rows(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of the text in which each of these positions among all letters lies, (n,)."""
        return np.searchsorted(self.offsets, positions, side="right") - 1

    def get_bytes(self, row: int) -> bytes:
        """Return one text."""
        return self.letters[self.offsets[row] : self.offsets[row + 1]].tobytes()

    @staticmethod
    def concatenate(several: Sequence[RawTexts]) -> RawTexts:
        """Return the texts of all parts, one part after the other."""
        letters = np.concatenate([np.empty(0, np.uint8), *(texts.letters for texts in several)])
        return RawTexts(
            letters, compute_offsets(np.concatenate([np.empty(0, np.int64), *(texts.lengths for texts in several)]))
        )
