"""The report of preprocessing, per repertoire and in total: JSON for the container, a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from typing import Any

from deeprc.datasets.cleaning import CleanedTable, Cleaning
from deeprc.datasets.drop_reasons import DROP_REASONS
from deeprc.datasets.readers import COUNT_CELLS, COUNT_ONE
from deeprc.errors import format_count, group_errors, show_parameters

__all__ = ["PreprocessingReport", "RepertoireReport", "describe_counts", "format_table"]

_SHOWN = 20
_SEQUENCES_FROM = {
    "junction_aa": "junction_aa",
    "cdr3_aa": "cdr3_aa, completed with the conserved residues at both ends",
    "cdr3_aa as junction_aa": "cdr3_aa, which holds junctions (they begin with C and end with F or W)",
    "junction": "junction, translated",
}


@dataclass(frozen=True)
class RepertoireReport:
    """The report of one repertoire: its rows, how many are kept, and why the others are not.

    Attributes
    ----------
    repertoire_id
        Id in the metadata sheet.
    file
        Path of its file below the folder that has all files of the cohort, so mostly the bare name.
    format
        Name of the format of the file.
    rows_read, kept, merged, dropped, counts_from, counts_rounded, counts_capped, sequences_from, loci
        As in `CleanedTable`; `kept` is the number of sequences, and `dropped` has only the reasons that occur. In
        `counts_from`, "(one)" means that no column had the count, so it is 1.
    locus
        The chain that was asked for; None if none was.
    genes
        Gene names that were changed, for `v_call` and `j_call`: the stored name by the found one.
    """

    repertoire_id: str
    file: str
    format: str
    rows_read: int
    kept: int
    merged: int
    dropped: Mapping[str, int]
    counts_from: Mapping[str, int]
    counts_rounded: int
    counts_capped: int
    sequences_from: Mapping[str, int]
    loci: Mapping[str, int]
    locus: str | None
    genes: Mapping[str, Mapping[str, str]]

    @property
    def rows_of_chain(self) -> int:
        """The number of rows that were read, without those of other chains than the one that was asked for."""
        return self.rows_read - self.dropped.get("other_locus", 0)

    @property
    def dropped_of_chain(self) -> int:
        """The number of dropped rows among `rows_of_chain`."""
        return sum(n for reason, n in self.dropped.items() if reason != "other_locus")

    @property
    def has_only_empty_rows(self) -> bool:
        """Whether there are rows of the chain, and none of them has a sequence."""
        return 0 < self.rows_of_chain == self.dropped.get("empty", 0)

    @classmethod
    def of(
        cls, repertoire_id: str, file: str, reader_format: str, cleaned: CleanedTable, locus: str | None
    ) -> RepertoireReport:
        """Return the report of one cleaned repertoire."""
        return cls(
            repertoire_id=repertoire_id,
            file=file,
            format=reader_format,
            rows_read=cleaned.rows_read,
            kept=cleaned.kept,
            merged=cleaned.merged,
            dropped={reason: n for reason, n in cleaned.dropped.items() if n},
            counts_from=cleaned.counts_from,
            counts_rounded=cleaned.counts_rounded,
            counts_capped=cleaned.counts_capped,
            sequences_from=cleaned.sequences_from,
            loci=cleaned.loci,
            locus=locus,
            genes={name: mapping.renamed for name, mapping in cleaned.genes.items()},
        )

    @classmethod
    def without_file(cls, repertoire_id: str, kept: int) -> RepertoireReport:
        """Return the report of a repertoire of which only the number of its sequences is known."""
        return cls(
            repertoire_id,
            file="",
            format="",
            rows_read=kept,
            kept=kept,
            merged=0,
            dropped={},
            counts_from={"": kept},
            counts_rounded=0,
            counts_capped=0,
            sequences_from={"": kept},
            loci={},
            locus=None,
            genes={},
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RepertoireReport:
        """Return the report from the values of `to_dict`."""
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can hold."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, repr=False)
class PreprocessingReport:
    """The report of a cohort: one report per repertoire that has a file.

    Attributes
    ----------
    repertoires
        Reports in the order of the container; repertoires with nothing kept are not in the container.
    rows_without_file
        Ids of the sheet that were left out because they have no file.
    files_without_row
        Names of files that belong to no row of the sheet.
    repertoires_without_row
        Repertoires that belong to no row, by their file, if other repertoires of the file belong to one.
    skipped_files
        Reason why a file could not be read, by the file.
    cleaning
        Settings that say which sequences were kept.
    """

    repertoires: tuple[RepertoireReport, ...]
    rows_without_file: tuple[str, ...]
    files_without_row: tuple[str, ...]
    repertoires_without_row: Mapping[str, tuple[str, ...]]
    skipped_files: Mapping[str, str]
    cleaning: Cleaning

    def __repr__(self) -> str:
        return (
            f"PreprocessingReport({len(self.repertoires):,} repertoires, {self.kept:,} sequences kept of "
            f"{self.rows_read:,} rows; print(report.to_text()) shows more)"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.to_text())}</pre>"

    @property
    def rows_read(self) -> int:
        """The number of rows of all files."""
        return sum(repertoire.rows_read for repertoire in self.repertoires)

    @property
    def kept(self) -> int:
        """The number of sequences in the container."""
        return sum(repertoire.kept for repertoire in self.repertoires)

    @property
    def merged(self) -> int:
        """The number of rows that were added to another row."""
        return sum(repertoire.merged for repertoire in self.repertoires)

    @property
    def dropped(self) -> dict[str, int]:
        """The number of dropped rows, by reason."""
        total = _sum_counts(repertoire.dropped for repertoire in self.repertoires)
        return {reason: total.get(reason, 0) for reason in DROP_REASONS}

    @property
    def counts_from(self) -> dict[str, int]:
        """Number of kept rows by the column that had their counts."""
        return _sum_counts(repertoire.counts_from for repertoire in self.repertoires)

    @property
    def counts_rounded(self) -> int:
        """The number of kept rows whose count was no whole number of at least 1."""
        return sum(repertoire.counts_rounded for repertoire in self.repertoires)

    @property
    def counts_capped(self) -> int:
        """The number of sequences whose sum of counts is too large to be stored."""
        return sum(repertoire.counts_capped for repertoire in self.repertoires)

    @property
    def sequences_from(self) -> dict[str, int]:
        """The number of kept rows, by the source of their junction."""
        return _sum_counts(repertoire.sequences_from for repertoire in self.repertoires)

    @property
    def loci(self) -> dict[str, int]:
        """The number of rows that would be kept of any chain, by chain; "" is unknown."""
        return _sum_counts(repertoire.loci for repertoire in self.repertoires)

    @property
    def genes(self) -> dict[str, dict[str, str]]:
        """The gene names that were changed, for v_call and j_call, as found and as stored."""
        return {
            name: _merge_changes(repertoire.genes.get(name, {}) for repertoire in self.repertoires)
            for name in ("v_call", "j_call")
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the report as the container's attribute `preprocessing` stores it."""
        repertoires = [repertoire.to_dict() for repertoire in self.repertoires]
        return {
            **asdict(self.cleaning),
            "rows_read": self.rows_read,
            "kept": self.kept,
            "merged": self.merged,
            "dropped": self.dropped,
            "counts_from": self.counts_from,
            "counts_rounded": self.counts_rounded,
            "counts_capped": self.counts_capped,
            "sequences_from": self.sequences_from,
            "loci": self.loci,
            "genes": self.genes,
            "rows_without_file": list(self.rows_without_file),
            "files_without_row": list(self.files_without_row),
            "repertoires_without_row": {file: list(names) for file, names in self.repertoires_without_row.items()},
            "skipped_files": dict(self.skipped_files),
            "repertoires": [
                {name: value for name, value in repertoire.items() if name != "genes"} for repertoire in repertoires
            ],
        }

    def to_text(self) -> str:
        """Return a table of the repertoires (the first few of a large cohort) and the total."""
        reasons = [reason for reason, n in self.dropped.items() if n]
        merged = ["merged"] if self.merged else []
        rows: list[list[str | int]] = [["repertoire", "format", "rows read", "kept", *merged, *reasons]]
        for repertoire in self.repertoires[:_SHOWN]:
            numbers = [repertoire.rows_read, repertoire.kept, *([repertoire.merged] if merged else [])]
            rows.append(
                [
                    repertoire.repertoire_id,
                    repertoire.format,
                    *numbers,
                    *(repertoire.dropped.get(reason, 0) for reason in reasons),
                ]
            )
        if len(self.repertoires) > _SHOWN:
            rows.append([f"... {len(self.repertoires) - _SHOWN} more"])
        numbers = [self.rows_read, self.kept, *([self.merged] if merged else [])]
        rows.append(["total", "", *numbers, *map(self.dropped.__getitem__, reasons)])
        return "\n".join([format_table(rows), *self._list_remarks()])

    def describe_result(self) -> str:
        """Return how many repertoires are in the container, and what was left out: 12 repertoires (left out: ...)."""
        left_out = {
            ("without a kept sequence",) * 2: sum(not repertoire.kept for repertoire in self.repertoires),
            ("unreadable file", "unreadable files"): len(self.skipped_files),
            ("row without a file", "rows without a file"): len(self.rows_without_file),
            ("file without a row", "files without a row"): len(self.files_without_row),
            ("repertoire without a row", "repertoires without a row"): sum(
                map(len, self.repertoires_without_row.values())
            ),
        }
        shown = ", ".join(f"{n:,} {one if n == 1 else many}" for (one, many), n in left_out.items() if n)
        n_written = sum(repertoire.kept > 0 for repertoire in self.repertoires)
        written = format_count(n_written, "repertoire")
        return f"{written} (left out: {shown})" if shown else written

    def _list_remarks(self) -> list[str]:
        """Return remarks below the table: the columns of counts and junctions, chains, and renamed genes."""
        lines = describe_counts(self.counts_from, self.counts_rounded, self.counts_capped, are_merged=self.merged > 0)
        if set(self.sequences_from) - {"junction_aa"}:
            origins = (f"{_SEQUENCES_FROM[name]} ({n:,})" for name, n in self.sequences_from.items())
            lines.append("junctions from: " + ", ".join(origins))
        if set(self.loci) - {""}:
            lines.append("chains: " + ", ".join(f"{name or 'unknown'} ({n:,})" for name, n in self.loci.items()))
        for name, changed in self.genes.items():
            if changed:
                shown = [
                    f"{name_in_file} -> {stored or 'unknown'}" for name_in_file, stored in list(changed.items())[:3]
                ]
                more = f" and {len(changed) - 3:,} more names" if len(changed) > 3 else ""
                lines.append(f"{name} in IMGT's names: {', '.join(shown)}{more}")
        if self.skipped_files:
            lines.append(f"skipped {format_count(len(self.skipped_files), 'file')} that cannot be read:")
            lines += [f"  {show_parameters(group.describe())}" for group in group_errors(self.skipped_files)]
        return lines


def describe_counts(
    counts_from: Mapping[str, int], rounded: int, capped: int, *, are_merged: bool = False
) -> list[str]:
    """Return lines that say where the counts come from; they count rows before any are merged."""
    names = {COUNT_ONE: "1, none given", COUNT_CELLS: "the number of cells"}
    origins = (f"{names.get(name, name)} ({n:,})" for name, n in counts_from.items())
    lines = [f"counts from{' (rows before merging)' if are_merged else ''}: {', '.join(origins)}"]
    if rounded:
        lines.append(f"counts rounded to a whole number of at least 1: {rounded:,}")
    if capped:
        lines.append(f"sums of counts too large to be stored, set to 4,294,967,295: {capped:,}")
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


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts_of_one in counts:
        total.update(counts_of_one)
    return dict(total)


def _merge_changes(changes: Iterable[Mapping[str, str]]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for changes_of_one in changes:
        merged.update(changes_of_one)
    return merged
