"""The reasons for which a row of a file is dropped, and which of them applies to each row.

Letters: N rows, R residues.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import INVALID
from deeprc.datasets.readers import RawRows, Status

__all__ = ["DROP_REASONS", "IS_DROPPED", "KEPT", "OTHER_LOCUS", "find_drop_reasons"]

DROP_REASONS = (
    "out_of_frame",
    "stop_codon",
    "unproductive",
    "low_confidence",
    "empty",
    "ambiguous_residue",
    "too_short",
    "too_long",
    "other_locus",
)
"""The reasons for which a row is dropped.

Where several reasons apply, the first of these counts: locus, what the file says, empty, out of frame, stop codon,
ambiguous residue, length. If the file calls a row unproductive and gives no reason, the reason that its residues show
counts.
"""

_STATUS_REASONS = {
    Status.OUT_OF_FRAME: "out_of_frame",
    Status.STOP_CODON: "stop_codon",
    Status.UNPRODUCTIVE: "unproductive",
    Status.LOW_CONFIDENCE: "low_confidence",
}
IS_DROPPED = np.isin(np.arange(256), [int(status) for status in _STATUS_REASONS])
"""Whether rows of a status are dropped, by `Status`, (256,) bool."""

KEPT = len(DROP_REASONS)
"""Code of a row that is kept; the code of a reason is its index in `DROP_REASONS`."""

OTHER_LOCUS = DROP_REASONS.index("other_locus")
_EXPLAINS_UNPRODUCTIVE = np.isin(np.arange(256), [DROP_REASONS.index(name) for name in ("stop_codon", "out_of_frame")])
"""Whether a reason that residues show says why a row is unproductive, by its index, (256,) bool."""

_MARKS = tuple(
    (np.isin(np.arange(256), list(marks)), DROP_REASONS.index(name))
    for marks, name in ((b"*", "stop_codon"), (b"_~#", "out_of_frame"))
)
"""Masks of the bytes that are letters with a reason, and the index of the reason; of several, the last one counts."""


def find_drop_reasons(
    rows: RawRows, residues: NDArray[np.uint8], *, min_length: int, max_length: int
) -> NDArray[np.uint8]:
    """Return the code of each row, (N,) uint8: the index of its reason in `DROP_REASONS`, or `KEPT`.

    `residues`, (R,), are the encoded letters of `rows.sequences`. The last assignment wins. The locus is not looked at.
    """
    lengths = rows.sequences.lengths
    reason = np.full(len(lengths), KEPT, np.uint8)
    reason[lengths > max_length] = DROP_REASONS.index("too_long")
    reason[lengths < min_length] = DROP_REASONS.index("too_short")
    invalid = np.flatnonzero(residues == INVALID)
    if len(invalid):
        row_of_invalid = rows.sequences.find_rows(invalid)
        reason[row_of_invalid] = DROP_REASONS.index("ambiguous_residue")
        for is_mark, code in _MARKS:
            reason[row_of_invalid[is_mark[rows.sequences.letters[invalid]]]] = code
    reason[lengths == 0] = DROP_REASONS.index("empty")
    residue_reason = reason.copy()
    for value, name in _STATUS_REASONS.items():
        reason[rows.status == value] = DROP_REASONS.index(name)
    is_explained = (rows.status == Status.UNPRODUCTIVE) & _EXPLAINS_UNPRODUCTIVE[residue_reason]
    reason[is_explained] = residue_reason[is_explained]
    return reason
