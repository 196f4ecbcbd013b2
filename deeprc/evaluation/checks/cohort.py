"""The whole way of a check: read everything, remember little, write nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deeprc.datasets.cleaning import Cleaning, Merge
from deeprc.datasets.matching import find_files
from deeprc.datasets.metadata import Metadata, read_metadata
from deeprc.datasets.plan import Plan, listed, plan_readings
from deeprc.datasets.readers import choose_reader
from deeprc.datasets.reading import Reading, note_failure, read_file, read_files
from deeprc.datasets.report import PreprocessingReport, RepertoireReport, format_table
from deeprc.errors import InputError
from deeprc.evaluation.checks.contents import check_contents
from deeprc.evaluation.checks.features import file_features, sheet_features, size_features, usage_features
from deeprc.evaluation.checks.findings import Finding, Severity, by_severity, to_text
from deeprc.evaluation.checks.profile import RepertoireProfile
from deeprc.evaluation.checks.sheet import Subjects, check_labels, check_subjects, find_targets
from deeprc.evaluation.checks.shortcuts import Shortcut, find_shortcuts, shortcut_findings
from deeprc.evaluation.checks.swaps import check_swaps
from deeprc.evaluation.checks.twins import check_twins
from deeprc.tasks import Task, labels

__all__ = ["CohortCheck", "check_cohort"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CohortCheck:
    """What was found.

    Attributes
    ----------
    findings
        Errors first.
    shortcuts
        All that was tested on whether it predicts a label, suspicious or not.
    report
        What preprocessing would do; None where it could not begin.
    """

    findings: tuple[Finding, ...]
    shortcuts: tuple[Shortcut, ...] = ()
    report: PreprocessingReport | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was an error."""
        return all(each.severity != "error" for each in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON knows it."""
        return {
            "ok": self.ok,
            "findings": [each.to_dict() for each in self.findings],
            "shortcuts": [each.to_dict() for each in self.shortcuts],
            "preprocessing": None if self.report is None else self.report.to_dict(),
        }

    def to_text(self) -> str:
        """Return what preprocessing would do, what predicts the labels, and the findings."""
        parts = [] if self.report is None or not self.report.repertoires else [self.report.to_text()]
        if self.shortcuts:
            rows: list[list[str | int]] = [["target", "what is known without reading a receptor", "how well it tells"]]
            rows += [[each.target, each.property, f"{each.label}: {each.figures()}"] for each in self.shortcuts]
            parts.append(format_table(rows))
        return "\n\n".join([*parts, to_text(self.findings)])


@dataclass
class _Read:
    profiles: list[RepertoireProfile] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def check_cohort(
    sources: Iterable[str | os.PathLike[str]],
    metadata: str | os.PathLike[str],
    *,
    targets: Sequence[str] = (),
    group_by: str | None = None,
    reader_format: str = "auto",
    id_column: str | None = None,
    sequence_column: str | None = None,
    count_column: str | None = None,
    split_by: str | None = None,
    locus: str | None = None,
    merge: Merge = "genes",
    allow_missing: bool = False,
    jobs: int | None = 1,
    min_length: int = 1,
    max_length: int = 50,
    progress: Progress | None = None,
) -> CohortCheck:
    """Read a cohort as `preprocess` does, write nothing, and list every suspicion.

    What one repertoire leaves in memory does not depend on its size: about 35 kB.

    Parameters
    ----------
    sources, metadata, reader_format, id_column, sequence_column, count_column, split_by, locus, merge, jobs, progress
        As in `deeprc.datasets.preprocessing.preprocess`.
    min_length, max_length
        As there.
    allow_missing
        Rows without a file, files without a row and repertoires without a kept sequence are warnings, not errors.
    targets
        What is to be predicted, as in `deeprc.tasks.parse_tasks`. Without, the columns that look like labels.
    group_by
        The column that says whose a repertoire is. None: found by its name.

    Raises
    ------
    InputError
        If what was asked for does not exist: a source, the sheet, a column; or options contradict each other. What is
        wrong with the files or the sheet is a finding.
    """
    reader = choose_reader(reader_format, sequence_column=sequence_column, count_column=count_column)
    files = find_files(sources, exclude=Path(metadata))
    if not Path(metadata).is_file():
        raise InputError(f"{metadata}: no such file")
    try:
        sheet = read_metadata(metadata, id_column=id_column, files=files)
    except InputError as error:
        advice = "mend the sheet; nothing else was checked"
        return CohortCheck((Finding("error", "unreadable-sheet", str(error), advice, (str(metadata),)),))
    subjects = Subjects(sheet, group_by)
    tasks, findings = find_targets(sheet, targets, subjects)
    cleaning = Cleaning(min_length, max_length, locus, merge)
    try:
        plan = plan_readings(sheet, files, reader, cleaning, split_by=split_by, skip_bad_files=True)
    except InputError as error:
        advice = "give each repertoire one file and one row; no file was read"
        findings.append(Finding("error", "ambiguous-files", str(error), advice))
        findings += [*check_labels(sheet, tasks), *check_subjects(sheet, tasks, subjects)]
        return CohortCheck(tuple(by_severity(findings)))
    read = _read(plan, jobs, progress)
    findings += [*_unreadable(plan, read), *_unmatched(sheet, plan, allow_missing)]
    if allow_missing:
        sheet = _without(sheet, plan.missing)
        subjects = Subjects(sheet, group_by)
    findings += [*check_labels(sheet, tasks), *check_subjects(sheet, tasks, subjects)]
    findings += check_contents(read.profiles, allow_empty=allow_missing)
    findings += check_twins(read.profiles, subjects.same)
    findings += check_swaps(read.profiles, sheet, tasks, subjects)
    shortcuts, too_few = _shortcuts(sheet, tasks, subjects, [each for each in read.profiles if each.kept])
    findings += [*too_few, *shortcut_findings(shortcuts)]
    report = PreprocessingReport(
        tuple(each.report for each in read.profiles),
        rows_without_file=plan.missing,
        files_without_row=tuple(file.name for file in plan.left),
        repertoires_without_row={file.name: names for file, names in plan.unknown.items()},
        skipped_files={**plan.skipped, **read.failed},
        cleaning=cleaning,
    )
    return CohortCheck(tuple(by_severity(findings)), tuple(shortcuts), report)


def _without(sheet: Metadata, missing: Sequence[str]) -> Metadata:
    """Return a sheet without the rows that are left out."""
    rows = [row for row, name in enumerate(sheet.repertoire_ids) if name not in set(missing)]
    return replace(
        sheet,
        repertoire_ids=tuple(sheet.repertoire_ids[row] for row in rows),
        table=sheet.table.iloc[rows].reset_index(drop=True),
        files=tuple(sheet.files[row] for row in rows),
    )


def _read(plan: Plan, jobs: int | None, progress: Progress | None) -> _Read:
    done = _Read()
    with closing(read_files(plan.readings, jobs, _profiles)) as results:
        for number, (reading, (profiles, error)) in enumerate(zip(plan.readings, results, strict=True), start=1):
            if error is not None:
                note_failure(done.failed, reading, error)
            done.profiles += profiles
            if progress is not None:
                progress(number, len(plan.readings))
    return done


def _profiles(reading: Reading) -> tuple[list[RepertoireProfile], str | None]:
    """Read a file and keep only its repertoires' profiles, or why it cannot be read; runs in the workers."""
    result = read_file(reading)
    profiles = []
    for repertoire_id, cleaned in result.repertoires:
        report = RepertoireReport.of(repertoire_id, reading.path.name, reading.format, cleaned, reading.cleaning.locus)
        profiles.append(RepertoireProfile.of(cleaned, report, reading))
    return profiles, result.error


def _unreadable(plan: Plan, read: _Read) -> list[Finding]:
    advice = "export or copy the file anew, or leave it out with --skip-bad-files"
    return [
        Finding("error", "unreadable-file", text, advice, (path,))
        for path, text in {**plan.skipped, **read.failed}.items()
    ]


def _unmatched(sheet: Metadata, plan: Plan, allow_missing: bool) -> list[Finding]:
    found = []
    severity: Severity = "warning" if allow_missing else "error"
    advice = "give what is missing, or leave these out with --allow-missing"
    if plan.missing:
        none = len(plan.missing) == len(sheet.repertoire_ids)
        message = f"no file for {listed(plan.missing, 'row', 'rows')} (by column {sheet.id_column!r})"
        found.append(
            Finding(
                "error" if none else severity,
                "row-without-file",
                message,
                "not one file matches: is --id-column right?" if none else advice,
                repertoires=plan.missing,
                column=sheet.id_column,
            )
        )
    if plan.left:
        message = f"no row of the sheet for {listed([file.name for file in plan.left], 'file', 'files')}"
        found.append(Finding(severity, "file-without-row", message, advice, tuple(map(str, plan.left))))
    for file, unknown in plan.unknown.items():
        message = f"no row of the sheet for {listed(unknown, 'repertoire', 'repertoires')} of {file.name}"
        found.append(Finding(severity, "file-without-row", message, advice, (str(file),), unknown))
    return found


def _shortcuts(
    sheet: Metadata, tasks: Sequence[Task], subjects: Subjects, profiles: Sequence[RepertoireProfile]
) -> tuple[list[Shortcut], list[Finding]]:
    """Ask of the repertoires that have a file what tells their labels."""
    if not profiles or not tasks:
        return [], []
    row_of = {name: row for row, name in enumerate(sheet.repertoire_ids)}
    rows = [row_of[each.repertoire_id] for each in profiles]
    features = [
        *size_features(profiles),
        *usage_features(profiles),
        *file_features(profiles),
        *sheet_features(sheet, rows, subjects.columns),
    ]
    names = subjects.of_each().iloc[rows].tolist()
    return find_shortcuts(tasks, labels(tasks, sheet.table.iloc[rows]), names, features)
