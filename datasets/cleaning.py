"""From a file's rows to the sequences that are kept: productive, in frame, made of the 20 amino acids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import INVALID, encode_many
from deeprc.datasets.container import GeneCalls, SequenceTable
from deeprc.datasets.readers import Status

__all__ = ["DROP_REASONS", "CleanedTable", "clean"]

DROP_REASONS = (
    "out_of_frame",
    "stop_codon",
    "unproductive",
    "empty",
    "ambiguous_residue",
    "too_short",
    "too_long",
)
"""Why a row is dropped.

A row that several apply to has the first of: what the file says, empty, out of frame, stop codon, ambiguous
residue, length. A row that the file calls unproductive without a reason has the one that its residues show.
"""

_STATUS_REASONS = {
    Status.OUT_OF_FRAME: "out_of_frame",
    Status.STOP_CODON: "stop_codon",
    Status.UNPRODUCTIVE: "unproductive",
}
_STOP_CODON, _OUT_OF_FRAME = "*", "_~#"
_KEPT = len(DROP_REASONS)


@dataclass(frozen=True)
class CleanedTable:
    """The kept sequences of one file and what was done; rows read = kept + all dropped."""

    sequences: SequenceTable
    rows_read: int
    dropped: dict[str, int]
    counts_from: dict[str, int]
    counts_rounded: int

    @property
    def kept(self) -> int:
        """The number of sequences that are kept."""
        return len(self.sequences.lengths)


def clean(table: pd.DataFrame, *, min_length: int = 1, max_length: int = 50) -> CleanedTable:
    """Keep the productive, in-frame rows made of the 20 amino acids; lower-case residues become upper case.

    Rows are kept as the file has them: in its order, and rows with the same residues and genes are not
    merged.

    Parameters
    ----------
    table
        What `deeprc.datasets.readers.read_table` returns.
    min_length, max_length
        Shortest and longest sequence kept, in residues.
    """
    texts: list[str] = table["junction_aa"].tolist()
    residues, offsets = encode_many(texts)
    lengths = np.diff(offsets)
    reason = _reasons(table["status"].to_numpy(), texts, residues, offsets, (min_length, max_length))
    keep = reason == _KEPT
    kept = table[keep]
    sources = kept["count_source"].value_counts(sort=False)
    return CleanedTable(
        SequenceTable(
            residues=residues[np.repeat(keep, lengths)],
            lengths=lengths[keep],
            counts=kept["duplicate_count"].to_numpy(),
            v_call=_gene_calls(kept, "v_call"),
            j_call=_gene_calls(kept, "j_call"),
        ),
        rows_read=len(table),
        dropped={name: int(np.sum(reason == code)) for code, name in enumerate(DROP_REASONS)},
        counts_from={str(name): int(n) for name, n in sources.items() if n},
        counts_rounded=int(kept["count_rounded"].sum()),
    )


def _reasons(
    status: NDArray[np.uint8],
    texts: list[str],
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    limits: tuple[int, int],
) -> NDArray[np.uint8]:
    """Return each row's reason, (N,) uint8 index of `DROP_REASONS` or `_KEPT`; the last assignment wins."""
    lengths = np.diff(offsets)
    reason = np.full(len(lengths), _KEPT, np.uint8)
    reason[lengths > limits[1]] = DROP_REASONS.index("too_long")
    reason[lengths < limits[0]] = DROP_REASONS.index("too_short")
    invalid = np.searchsorted(offsets, np.flatnonzero(residues == INVALID), side="right") - 1
    rows = np.unique(invalid)
    reason[rows] = DROP_REASONS.index("ambiguous_residue")
    for marks, name in ((_STOP_CODON, "stop_codon"), (_OUT_OF_FRAME, "out_of_frame")):
        marked = [row for row in rows.tolist() if any(mark in texts[row] for mark in marks)]
        reason[marked] = DROP_REASONS.index(name)
    reason[lengths == 0] = DROP_REASONS.index("empty")
    of_residues = reason.copy()
    for value, name in _STATUS_REASONS.items():
        reason[status == value] = DROP_REASONS.index(name)
    explained = np.isin(of_residues, [DROP_REASONS.index("stop_codon"), DROP_REASONS.index("out_of_frame")])
    bare = (status == Status.UNPRODUCTIVE) & explained  # the file says no, the residues say why
    reason[bare] = of_residues[bare]
    return reason


def _gene_calls(table: pd.DataFrame, name: str) -> GeneCalls | None:
    """Return the gene names of the kept rows, None where none of them has one."""
    if name not in table:
        return None
    calls = table[name].cat.remove_unused_categories().cat
    vocabulary = tuple(str(gene) for gene in calls.categories)
    if not any(vocabulary):
        return None
    return GeneCalls(calls.codes.to_numpy().astype(np.uint16), vocabulary)
