"""What preprocessing did, per repertoire and in total: JSON for the container, a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deeprc.datasets.cleaning import DROP_REASONS, CleanedTable
from deeprc.datasets.readers import COUNT_ONE

__all__ = ["PreprocessingReport", "RepertoireReport", "format_table"]

_SHOWN = 20


@dataclass(frozen=True)
class RepertoireReport:
    """One file: its rows, how many are kept, and why the others are not.

    `dropped` has every reason, also with 0; `counts_from` says how many of the kept rows took their count
    from which column ("one": no column had it, so it is 1); `counts_rounded` how many counts were no whole
    number of at least 1.
    """

    repertoire_id: str
    file: str
    format: str
    rows_read: int
    kept: int
    dropped: Mapping[str, int]
    counts_from: Mapping[str, int]
    counts_rounded: int

    @classmethod
    def of(cls, repertoire_id: str, file: str, reader_format: str, cleaned: CleanedTable) -> RepertoireReport:
        """Return the report of one cleaned file."""
        return cls(
            repertoire_id,
            file,
            reader_format,
            cleaned.rows_read,
            cleaned.kept,
            cleaned.dropped,
            cleaned.counts_from,
            cleaned.counts_rounded,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what the container stores of this repertoire; reasons that never applied are left out."""
        return {
            "repertoire_id": self.repertoire_id,
            "file": self.file,
            "format": self.format,
            "rows_read": self.rows_read,
            "kept": self.kept,
            "dropped": {reason: n for reason, n in self.dropped.items() if n},
            "counts_from": dict(self.counts_from),
            "counts_rounded": self.counts_rounded,
        }


@dataclass(frozen=True)
class PreprocessingReport:
    """A cohort: one report per repertoire that has a file, in the order of the metadata sheet.

    Attributes
    ----------
    repertoires
        One report per file; those with nothing kept are not in the container.
    rows_without_file
        Ids of the sheet that were left out for want of a file.
    files_without_row
        Names of files that belong to no row of the sheet.
    min_length, max_length
        Limits of the sequences kept, in residues.
    """

    repertoires: tuple[RepertoireReport, ...]
    rows_without_file: tuple[str, ...]
    files_without_row: tuple[str, ...]
    min_length: int
    max_length: int

    @property
    def rows_read(self) -> int:
        """All rows of all files."""
        return sum(each.rows_read for each in self.repertoires)

    @property
    def kept(self) -> int:
        """All sequences in the container."""
        return sum(each.kept for each in self.repertoires)

    @property
    def dropped(self) -> dict[str, int]:
        """Rows dropped, by reason."""
        total = _sum(each.dropped for each in self.repertoires)
        return {reason: total.get(reason, 0) for reason in DROP_REASONS}

    @property
    def counts_from(self) -> dict[str, int]:
        """Kept rows by the column that their count is from."""
        return _sum(each.counts_from for each in self.repertoires)

    @property
    def counts_rounded(self) -> int:
        """Kept rows whose count was no whole number of at least 1."""
        return sum(each.counts_rounded for each in self.repertoires)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as the container's attribute `preprocessing` stores it."""
        return {
            "min_length": self.min_length,
            "max_length": self.max_length,
            "rows_read": self.rows_read,
            "kept": self.kept,
            "dropped": self.dropped,
            "counts_from": self.counts_from,
            "counts_rounded": self.counts_rounded,
            "rows_without_file": list(self.rows_without_file),
            "files_without_row": list(self.files_without_row),
            "repertoires": [each.to_dict() for each in self.repertoires],
        }

    def to_text(self) -> str:
        """Return a table of the repertoires (the first few of a large cohort) and the total."""
        reasons = [reason for reason, n in self.dropped.items() if n]
        rows: list[list[str | int]] = [["repertoire", "format", "rows read", "kept", *reasons]]
        rows += [
            [
                each.repertoire_id,
                each.format,
                each.rows_read,
                each.kept,
                *map(each.dropped.__getitem__, reasons),
            ]
            for each in self.repertoires[:_SHOWN]
        ]
        if len(self.repertoires) > _SHOWN:
            rows.append([f"... {len(self.repertoires) - _SHOWN} more"])
        rows.append(["total", "", self.rows_read, self.kept, *map(self.dropped.__getitem__, reasons)])
        return "\n".join([format_table(rows), *describe_counts(self.counts_from, self.counts_rounded)])


def describe_counts(counts_from: Mapping[str, int], counts_rounded: int) -> list[str]:
    """Return lines that say where the counts are from."""
    names = {COUNT_ONE: "1, none given"}
    origins = (f"{names.get(name, name)} ({n:,})" for name, n in counts_from.items())
    lines = ["counts from: " + ", ".join(origins)]
    if counts_rounded:
        lines.append(f"counts rounded to a whole number of at least 1: {counts_rounded:,}")
    return lines


def format_table(rows: Sequence[Sequence[str | int]]) -> str:
    """Return rows as aligned text: numbers with thousands separators to the right, words to the left."""
    n_columns = max(map(len, rows), default=0)
    text = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    marks = [
        (">" if any(isinstance(row[i], int) for row in rows if i < len(row)) else "<")
        + str(max(len(row[i]) for row in text if i < len(row)))
        for i in range(n_columns)
    ]
    lines = ("  ".join(format(cell, marks[i]) for i, cell in enumerate(row)) for row in text)
    return "\n".join(line.rstrip() for line in lines)


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)
