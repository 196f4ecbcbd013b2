"""Check a cohort of repertoire files: read all of them, keep a small profile of each repertoire, write nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from deeprc.checks.examination import CohortCheck, examine
from deeprc.checks.findings import Finding, Severity, name_few, sort_by_severity
from deeprc.checks.profile import RepertoireProfile
from deeprc.checks.sheet import SheetDonors, find_donor_problems, find_label_problems, find_targets
from deeprc.datasets.file_reading import FileToRead, choose_workers, note_failure, read_file, read_files
from deeprc.datasets.matching import SourceFiles, find_files
from deeprc.datasets.metadata import Metadata, read_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.plan import Plan, describe_missing, plan_files
from deeprc.datasets.report import RepertoireReport
from deeprc.errors import InputError, group_errors
from deeprc.files import check_regular_file
from deeprc.progress import CountFunction, track

__all__ = ["check_cohort"]


@dataclass
class _ProfiledFiles:
    """What was read of a cohort.

    Attributes
    ----------
    profiles
        Profiles of the repertoires of all files that could be read.
    failed
        Error of each file that could not be read, by the path of the file.
    """

    profiles: list[RepertoireProfile] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def check_cohort(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    metadata: str | os.PathLike[str],
    *,
    targets: Sequence[str] | str = (),
    group_by: str | None = None,
    options: ReadingOptions | None = None,
    jobs: int | None = 1,
    progress: CountFunction | None = None,
) -> CohortCheck:
    """Read a cohort as `preprocess` does, without writing anything, and list every suspicion.

    A repertoire takes about 35 kB of memory, whatever its size.

    Parameters
    ----------
    sources, metadata, jobs, progress
        As in `deeprc.preprocess`.
    options
        Options of reading the files, as in `deeprc.preprocess`. With `allow_missing` rows without a file, files without
        a row and repertoires without a kept sequence are warnings, not errors.
    targets
        The targets that are to be predicted, as in `deeprc.tasks.parse_tasks`; by default the columns that look like
        labels.
    group_by
        Column that names the donor of each repertoire; None: it is found by its name.

    Raises
    ------
    InputError
        If a source, the sheet or a column does not exist. A fault of a file or of the sheet is a finding.
    """
    targets = [targets] if isinstance(targets, str) else targets
    options = ReadingOptions() if options is None else options
    source_files = find_files(sources, exclude=Path(metadata))
    check_regular_file(Path(metadata), expected="a metadata sheet")
    try:
        sheet = read_metadata(metadata, id_column=options.id_column, files=source_files.tables)
    except InputError as error:
        return CohortCheck((_make_unreadable_sheet_finding(metadata, error),))
    files = source_files.select_named(sheet.files)
    donors = SheetDonors(sheet, group_by)
    tasks, findings = find_targets(sheet, targets, donors)
    try:
        plan = plan_files(sheet, files, options, skip_bad_files=True)
    except InputError as error:
        findings += [
            _make_ambiguous_files_finding(error),
            *find_label_problems(sheet, tasks),
            *find_donor_problems(sheet, tasks, donors),
        ]
        return CohortCheck(tuple(sort_by_severity(findings)))
    profiled = _profile_files(plan.files_to_read, jobs, progress)
    findings += [
        *_make_unreadable_findings(plan, profiled),
        *_make_unmatched_findings(sheet, plan, source_files, allow_missing=options.allow_missing),
    ]
    if options.allow_missing:
        sheet = _drop_missing(sheet, plan.rows_without_file)
        donors = SheetDonors(sheet, group_by)
    return examine(
        profiled.profiles,
        sheet,
        tasks,
        donors,
        allow_empty=options.allow_missing,
        earlier_findings=findings,
        report=plan.make_report(
            (profile.report for profile in profiled.profiles), profiled.failed, options.make_cleaning()
        ),
    )


def _make_unreadable_sheet_finding(metadata: str | os.PathLike[str], error: InputError) -> Finding:
    advice = "Correct the sheet. Nothing else was checked."
    return Finding("error", "unreadable-sheet", str(error), advice, files=(str(metadata),))


def _make_ambiguous_files_finding(error: InputError) -> Finding:
    advice = "Give each repertoire one file and one row of the sheet. No file was read."
    return Finding("error", "ambiguous-files", str(error), advice)


def _drop_missing(sheet: Metadata, missing: Sequence[str]) -> Metadata:
    """Return a sheet without the rows of missing repertoires."""
    missing_ids = set(missing)
    rows = [row for row, name in enumerate(sheet.repertoire_ids) if name not in missing_ids]
    return replace(
        sheet,
        repertoire_ids=tuple(sheet.repertoire_ids[row] for row in rows),
        table=sheet.table.iloc[rows].reset_index(drop=True),
        files=tuple(sheet.files[row] for row in rows),
    )


def _profile_files(files: Sequence[FileToRead], jobs: int | None, progress: CountFunction | None) -> _ProfiledFiles:
    """Return the profiles of the repertoires of all files, and the errors of files that cannot be read."""
    done = _ProfiledFiles()
    with closing(read_files(files, choose_workers(files, jobs), _profile_file)) as results:
        shown = track(zip(files, results, strict=True), "reading repertoire files", len(files))
        for n_done, (file, (profiles, error)) in enumerate(shown, start=1):
            if error is not None:
                note_failure(done.failed, file, error)
            done.profiles += profiles
            if progress is not None:
                progress(n_done, len(files))
    return done


def _profile_file(file: FileToRead) -> tuple[list[RepertoireProfile], str | None]:
    """Return the profiles of the repertoires of a file, and the error if it cannot be read; runs in the workers."""
    result = read_file(file)
    profiles = []
    for repertoire_id, cleaned in result.repertoires:
        report = RepertoireReport.of(repertoire_id, file.path.name, file.format, cleaned, file.cleaning.locus)
        profiles.append(RepertoireProfile.of(cleaned, report, file))
    return profiles, result.error


def _make_unreadable_findings(plan: Plan, profiled: _ProfiledFiles) -> list[Finding]:
    """Return one finding for each fault, even if many files have it; the report names all of these files."""
    advice = (
        "Do what the message says; if a file is damaged, export or copy it again. `deeprc preprocess` with "
        "`skip_bad_files` leaves such files out."
    )
    if not profiled.profiles:
        advice = (
            "No file can be read. Do what the message says. Otherwise check `reader_format`. A table of an unknown "
            "format needs `sequence_column`."
        )
    findings = []
    for fault in group_errors({**plan.skipped, **profiled.failed}):
        numbers = {"files": len(fault.members)}
        findings.append(
            Finding("error", "unreadable-file", fault.describe(), advice, files=fault.members, numbers=numbers)
        )
    return findings


def _make_unmatched_findings(sheet: Metadata, plan: Plan, files: SourceFiles, *, allow_missing: bool) -> list[Finding]:
    """Return findings about rows without a file, and files or repertoires without a row."""
    severity: Severity = "warning" if allow_missing else "error"
    advice = "Add the missing files or rows, or leave these out with `allow_missing`."
    if allow_missing:
        advice = "These are left out, as you asked (`allow_missing`). Add what is missing if they belong to the cohort."
    findings = []
    if plan.rows_without_file:
        findings.append(_make_missing_file_finding(sheet, plan, files, severity, advice))
    if plan.files_without_row:
        names = [file.name for file in plan.files_without_row]
        message = f"the sheet has no row for {name_few(names, 'file', 'files')}"
        paths = tuple(map(str, plan.files_without_row))
        findings.append(Finding(severity, "file-without-row", message, advice, files=paths))
    if plan.repertoires_without_row:
        holders = [file.name for file in plan.repertoires_without_row]
        unknown = tuple(chain.from_iterable(plan.repertoires_without_row.values()))
        where = name_few(holders, "file", "files")
        message = f"the sheet has no row for {name_few(unknown, 'repertoire', 'repertoires')}, in {where}"
        paths = tuple(map(str, plan.repertoires_without_row))
        findings.append(Finding(severity, "file-without-row", message, advice, files=paths, repertoires=unknown))
    return findings


def _make_missing_file_finding(
    sheet: Metadata, plan: Plan, files: SourceFiles, severity: Severity, advice: str
) -> Finding:
    """Return the finding about rows without a file; it is an error with an advice of its own if no row has one."""
    if len(plan.rows_without_file) == len(sheet.repertoire_ids):
        severity, advice = "error", "No file matches a row. Check `id_column` and the names of the files."
    return Finding(
        severity,
        "row-without-file",
        describe_missing(sheet, plan, files),
        advice,
        repertoires=plan.rows_without_file,
        column=sheet.id_column,
    )
