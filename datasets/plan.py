"""Plan which repertoires are read from which file, for `deeprc preprocess` and `deeprc check`."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deeprc.datasets.cleaning import Cleaning
from deeprc.datasets.file_reading import ORIGINAL, FileToRead
from deeprc.datasets.matching import (
    SourceFiles,
    find_excel_files,
    find_unsearched_files,
    list_stems,
    match_files,
    name_files,
)
from deeprc.datasets.metadata import Metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.readers import Header, Match, NoTableError, find_repertoire_names, match_reader, read_header
from deeprc.datasets.readers.columns import check_column_names, read_columns
from deeprc.datasets.readers.original_hdf5 import is_original_container, read_original_ids
from deeprc.datasets.report import PreprocessingReport, RepertoireReport
from deeprc.datasets.unmatched import (
    describe_excel_files,
    describe_unsearched_files,
    explain_different_names,
    explain_folder_names,
    explain_longer_names,
)
from deeprc.errors import (
    InputError,
    UnusableFiles,
    describe_missing_column,
    describe_names,
    group_errors,
    number_faults,
)

__all__ = [
    "BAD_FILES_ADVICE",
    "NO_SPLIT",
    "SKIP_ADVICE",
    "Plan",
    "describe_missing",
    "plan_files",
    "raise_or_warn_of_unmatched",
]

_logger = logging.getLogger(__name__)

NO_SPLIT = "none"
"""The value of `split_by` that makes each file one repertoire, whatever its columns say."""

SKIP_ADVICE = "`skip_bad_files` leaves out files with faults"
"""The end of a message about all files that cannot be read."""

BAD_FILES_ADVICE = f"`deeprc check` lists the faults of all files; {SKIP_ADVICE}"
"""The end of a message about files whose headers cannot be read; others may have faults further down."""


@dataclass(frozen=True)
class Plan:
    """The plan of what is read from each file, and of what is left out.

    Attributes
    ----------
    files_to_read
        Files and their repertoires to read, in the order of the sheet, by the first repertoire of each file.
    rows_without_file
        Ids of the sheet that have no file.
    files_without_row
        Files that belong to no row.
    repertoires_without_row
        Repertoires that belong to no row, by their file, which also holds repertoires of the sheet.
    skipped
        Reason why the header of a file cannot be used, by the file's path, if such files are skipped.
    names
        Name of each file in reports, see `name_files`.
    """

    files_to_read: tuple[FileToRead, ...]
    rows_without_file: tuple[str, ...]
    files_without_row: tuple[Path, ...]
    repertoires_without_row: Mapping[Path, tuple[str, ...]]
    skipped: Mapping[str, str]
    names: Mapping[Path, str]

    def make_report(
        self, repertoires: Iterable[RepertoireReport], failed: Mapping[str, str], cleaning: Cleaning
    ) -> PreprocessingReport:
        """Return the report of a cohort that was read by this plan.

        Parameters
        ----------
        repertoires
            Report of each repertoire that was read.
        failed
            Reason why a file could not be read, by its path.
        cleaning
            Settings that say which sequences were kept.
        """
        return PreprocessingReport(
            tuple(repertoires),
            rows_without_file=self.rows_without_file,
            files_without_row=tuple(self.names[file] for file in self.files_without_row),
            repertoires_without_row={self.names[file]: names for file, names in self.repertoires_without_row.items()},
            skipped_files={**self.skipped, **failed},
            cleaning=cleaning,
        )


def plan_files(
    sheet: Metadata, files: Sequence[Path], options: ReadingOptions, *, skip_bad_files: bool = False
) -> Plan:
    """Find each repertoire's file, and read every header before the first file is parsed.

    A file belongs to the row of the sheet that names it; see `match_files`. If a file belongs to no row, but has a
    column that names repertoires, it holds those of its values that are ids of the sheet. With `split_by`, this holds
    for every file, or for no file if it is `NO_SPLIT`.

    Raises
    ------
    InputError
        If headers cannot be used, with a line for each fault, unless these files are skipped; or if two files hold one
        repertoire.
    """
    is_original = {file: is_original_container(file) for file in files}
    tables = [file for file in files if not is_original[file]]
    file_of_row: list[Path | None] = [None] * len(sheet.repertoire_ids)
    unmatched = tables
    if options.split_by in (None, NO_SPLIT):
        file_of_row, unmatched = match_files(sheet.repertoire_ids, sheet.files, tables)
    planner = _Planner(sheet, options)
    for repertoire_id, file in zip(sheet.repertoire_ids, file_of_row, strict=True):
        if file is not None:
            planner.add_table(file, {"": repertoire_id})
    for file in unmatched:
        planner.add_split_table(file)
    for file in files:
        if is_original[file]:
            planner.add_original(file)
    for remark in group_errors(planner.remarks):
        _logger.warning("%s", remark.describe())
    files_to_read = planner.sort_files()
    if planner.errors and not skip_bad_files:
        raise _make_header_errors(planner.errors, has_other_files=bool(files_to_read))
    has_file = _find_owners(files_to_read).keys() | {
        repertoire_id
        for repertoire_id, file in zip(sheet.repertoire_ids, file_of_row, strict=True)
        if file is not None and str(file) in planner.errors
    }
    return Plan(
        files_to_read=files_to_read,
        rows_without_file=tuple(name for name in sheet.repertoire_ids if name not in has_file),
        files_without_row=tuple(planner.files_without_row),
        repertoires_without_row=planner.repertoires_without_row,
        skipped=planner.errors,
        names=name_files(files),
    )


def _make_header_errors(errors: Mapping[str, str], *, has_other_files: bool) -> UnusableFiles:
    """Return the error about files whose headers cannot be used, by their paths, with an advice if others can."""
    faults = [group.describe() for group in group_errors(errors)]
    *before, last = number_faults(f"{len(errors):,} files cannot be read", faults)
    return UnusableFiles((*before, last.removesuffix(".")), BAD_FILES_ADVICE if has_other_files else "")


def describe_missing(sheet: Metadata, plan: Plan, source_files: SourceFiles) -> str:
    """Return a message that says which rows of the sheet have no file, and by which columns files were looked for.

    It adds a remark if a folder, or a file that is not read, has the name of a row; if names differ as if a spreadsheet
    program had changed them; or if the names of files are longer.
    """
    missing, file_of = plan.rows_without_file, dict(zip(sheet.repertoire_ids, sheet.files, strict=True))
    shown = [
        f"{repertoire_id} ({file_of[repertoire_id]})" if file_of[repertoire_id] else repertoire_id
        for repertoire_id in missing
    ]
    by_file = any(file_of[repertoire_id] for repertoire_id in missing)
    columns = [sheet.file_column, sheet.id_column] if by_file else [sheet.id_column]
    different = list(map(repr, dict.fromkeys(columns)))
    listing = f"column{'s' if len(different) > 1 else ''} {' and '.join(different)}"
    names = [
        [stem for name in (repertoire_id, file_of[repertoire_id]) if name for stem in list_stems(name)]
        for repertoire_id in missing
    ]
    stem_of = {file: list_stems(file.name)[-1] for file in plan.files_without_row}
    unmatched_stems = [stem for file in plan.files_without_row for stem in list_stems(file.name)]
    all_names = [name for alternatives in names for name in alternatives]
    excel = find_excel_files((*source_files.tables, *source_files.others), all_names)
    remarks = [
        describe_excel_files(excel),
        describe_unsearched_files(find_unsearched_files(source_files.others, all_names), sheet.file_column),
        explain_different_names(names, unmatched_stems)
        or explain_folder_names(names, plan.files_without_row, sheet.file_column)
        or explain_longer_names(names, stem_of, sheet.file_column),
    ]
    return "; ".join([f"no file for {describe_names(shown, 'row', 'rows')} (by {listing})", *filter(None, remarks)])


def raise_or_warn_of_unmatched(
    faults: Mapping[str, str], allow_missing: bool, advice: str = "leave these out with `allow_missing`"
) -> None:
    """Raise InputError that says what is missing, such as the files of some rows; or log it, if `allow_missing`.

    Parameters
    ----------
    faults
        For each fault, such as a row without a file, what happens to it if the call goes on, such as "left out".
    allow_missing
        Whether to go on.
    advice
        The other thing that a user can do, beside giving what is missing.
    """
    if faults and not allow_missing:
        raise InputError(f"{'; '.join(faults)}. Give what is missing, or {advice}")
    for fault, consequence in faults.items():
        _logger.warning("%s: %s", fault, consequence)


class _Planner:
    """A collector of the files to read with their repertoires, and of the files that are not read."""

    def __init__(self, sheet: Metadata, options: ReadingOptions) -> None:
        self.row_of = {name: row for row, name in enumerate(sheet.repertoire_ids)}
        self.reader, self.cleaning, self.split_by = options.find_reader(), options.make_cleaning(), options.split_by
        self.errors: dict[str, str] = {}  # by the file's path, as the remarks
        self.remarks: dict[str, str] = {}
        self.files_without_row: list[Path] = []
        self.repertoires_without_row: dict[Path, tuple[str, ...]] = {}
        self._files: list[FileToRead] = []
        self._matches: dict[tuple[tuple[str, ...], str], Match] = {}

    def sort_files(self) -> tuple[FileToRead, ...]:
        """Return the files in the order of the sheet."""
        return tuple(sorted(self._files, key=lambda file: min(self.row_of[name] for name in file.repertoires.values())))

    def add_table(self, file: Path, repertoires: Mapping[str, str]) -> None:
        """Plan to read a table whose repertoires are known."""
        try:
            header = read_header(file)
            matched, layout, remark = self._match_reader(header)
            if self.split_by is not None:
                column = None if self.split_by == NO_SPLIT else header.find(self.split_by)
                layout = replace(layout, repertoire=() if column is None else (column,))
            check_column_names(header, layout.columns)
        except InputError as error:
            self.errors[str(file)] = str(error)
            return
        if remark:
            self.remarks[str(file)] = f"{file}: {remark}"
        self._files.append(FileToRead(file, matched.name, repertoires, self.cleaning, header, layout))

    def add_split_table(self, file: Path) -> None:
        """Plan to read the repertoires that a table's column names, if the sheet has them."""
        if self.split_by == NO_SPLIT:
            self.files_without_row.append(file)
            return
        try:
            repertoire_names = self._read_repertoire_names(file)
            with_row = sorted((name for name in repertoire_names if name in self.row_of), key=self.row_of.__getitem__)
        except InputError as error:
            if self.split_by is not None or not isinstance(error, NoTableError):
                self.errors[str(file)] = str(error)
                return
            repertoire_names, with_row = (), []  # a file of another kind, which nobody has asked for
        if with_row:
            self.add_table(file, {name: name for name in with_row})
            self._note_repertoires_without_row(file, repertoire_names, set(with_row))
        else:
            self.files_without_row.append(file)

    def add_original(self, file: Path) -> None:
        """Plan to read an original container, repertoire by repertoire.

        Its keys are file names; the sheet may leave out their endings.
        """
        keys_in_file = {}
        try:
            keys = read_original_ids(file)
        except InputError as error:
            self.errors[str(file)] = str(error)
            return
        for key in keys:
            name = next((stem for stem in list_stems(key) if stem in self.row_of), None)
            if name is not None:
                keys_in_file[key] = name
        if keys_in_file:
            self._files += [
                FileToRead(file, ORIGINAL, {key: name}, self.cleaning) for key, name in keys_in_file.items()
            ]
            self._note_repertoires_without_row(file, keys, keys_in_file)
        else:
            self.files_without_row.append(file)

    def _match_reader(self, header: Header) -> Match:
        """Return the reader of a file; files of one cohort mostly have the same header."""
        names = (header.columns, header.delimiter)
        if names not in self._matches:
            self._matches[names] = match_reader(header, self.reader)
        return self._matches[names]

    def _note_repertoires_without_row(
        self, file: Path, repertoire_names: Sequence[str], with_row: Container[str]
    ) -> None:
        """Remember the repertoires of a file that are not in the sheet."""
        unknown = [name or "(no name)" for name in repertoire_names if name not in with_row]
        if unknown:
            self.repertoires_without_row[file] = tuple(unknown)

    def _read_repertoire_names(self, file: Path) -> tuple[str, ...]:
        """Return the names of the repertoires that a column of a table has; none if there is no such column."""
        header = read_header(file)
        if self.split_by is None:
            columns = self._match_reader(header).layout.repertoire
            if not columns:
                return ()
        else:
            column = header.find(self.split_by)
            if column is None:
                missing = describe_missing_column(self.split_by, header.columns, "to split by")
                raise InputError(f"{file}: {missing}")
            columns = (column,)
        coded = read_columns(header, (), columns)[1]
        return find_repertoire_names(coded, columns)[1].vocabulary


def _find_owners(files_to_read: Sequence[FileToRead]) -> dict[str, Path]:
    """Return the file of each repertoire, by its id; raise InputError if there are two."""
    owners: dict[str, Path] = {}
    for file in files_to_read:
        for name in file.repertoires.values():
            if name in owners:
                raise InputError(f"two files hold the repertoire {name!r}: {owners[name]} and {file.path}")
            owners[name] = file.path
    return owners
