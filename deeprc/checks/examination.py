"""Examine the profiles of repertoires; the result of a check, and its text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deeprc.checks.contents import find_content_problems
from deeprc.checks.features import make_file_features, make_sheet_features, make_size_features, make_usage_features
from deeprc.checks.findings import Finding, count_findings, sort_by_severity, to_text
from deeprc.checks.profile import RepertoireProfile
from deeprc.checks.sheet import SheetDonors, find_donor_problems, find_label_problems
from deeprc.checks.shortcuts import Shortcut, find_shortcuts, make_shortcut_findings
from deeprc.checks.similar_repertoires import SimilarPair, find_similar_repertoires
from deeprc.checks.swaps import ClassComparison, find_swaps
from deeprc.datasets.metadata import Metadata
from deeprc.datasets.report import PreprocessingReport, format_table
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task

__all__ = ["CohortCheck", "examine"]

_HEADINGS = ("target", "property tested (no receptor sequences used)", "how well it predicts the label")


@dataclass(frozen=True, repr=False)
class CohortCheck:
    """The result of a check of a cohort.

    Attributes
    ----------
    findings
        The findings, errors first.
    shortcuts
        Results of all tests whether a property predicts a label, suspicious or not.
    report
        Report of what preprocessing would do; None if the files could not be read, and for a container.
    similar
        The pairs of repertoires that share too many sequences.
    comparisons
        The repertoires that are more similar to a different class of their donor than to their own.
    donor_of
        Pairs of a repertoire and its donor, for repertoires whose donor is known.
    sheet
        The metadata sheet; None if the files could not be assigned to it.
    """

    findings: tuple[Finding, ...]
    shortcuts: tuple[Shortcut, ...] = ()
    report: PreprocessingReport | None = None
    similar: tuple[SimilarPair, ...] = ()
    comparisons: tuple[ClassComparison, ...] = ()
    donor_of: tuple[tuple[str, str], ...] = ()
    sheet: Metadata | None = None

    def __repr__(self) -> str:
        return f"CohortCheck({count_findings(self.findings)}; print(check.to_text()) shows them)"

    @property
    def ok(self) -> bool:
        """Whether nothing was an error."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return findings, shortcuts and report as values that JSON can hold."""
        return {
            "ok": self.ok,
            "findings": [finding.to_dict() for finding in self.findings],
            "shortcuts": [shortcut.to_dict() for shortcut in self.shortcuts],
            "preprocessing": None if self.report is None else self.report.to_dict(),
        }

    def to_text(self) -> str:
        """Return what preprocessing would do, what predicts the labels, and the findings."""
        parts = [] if self.report is None or not self.report.repertoires else [self.report.to_text()]
        if self.shortcuts:
            rows: list[list[str | int]] = [list(_HEADINGS)]
            rows += [
                [shortcut.target, shortcut.property, f"{shortcut.label}: {shortcut.format_measure()}"]
                for shortcut in self.shortcuts
            ]
            parts.append(format_table(rows))
        return "\n\n".join([*parts, to_text(self.findings)])


def examine(
    profiles: Sequence[RepertoireProfile],
    sheet: Metadata,
    tasks: Sequence[Task],
    donors: SheetDonors,
    *,
    allow_empty: bool = False,
    earlier_findings: Iterable[Finding] = (),
    report: PreprocessingReport | None = None,
) -> CohortCheck:
    """Return all findings about repertoires, from their profiles.

    Parameters
    ----------
    profiles
        The profiles of the repertoires, each of which has a row in the sheet.
    sheet, tasks, donors
        The metadata sheet, the targets, and the donors of the repertoires.
    allow_empty
        Whether a repertoire without a kept sequence is a warning, not an error.
    earlier_findings
        Findings of earlier steps, such as reading the files; the result includes them.
    report
        Report of what preprocessing would do.
    """
    similar_findings, similar = find_similar_repertoires(
        profiles, donors.are_same, donors_known=donors.column is not None
    )
    swap_findings, comparisons = find_swaps(profiles, sheet, tasks, donors)
    shortcuts, too_few = _test_shortcuts(sheet, tasks, donors, [profile for profile in profiles if profile.kept])
    findings = [
        *earlier_findings,
        *find_label_problems(sheet, tasks),
        *find_donor_problems(sheet, tasks, donors),
        *find_content_problems(profiles, allow_empty=allow_empty),
        *similar_findings,
        *swap_findings,
        *too_few,
        *make_shortcut_findings(shortcuts),
    ]
    known = tuple((str(name), str(donor)) for name, donor in donors.list_donors().items() if donor is not None)
    return CohortCheck(
        tuple(sort_by_severity(findings)), tuple(shortcuts), report, tuple(similar), tuple(comparisons), known, sheet
    )


def _test_shortcuts(
    sheet: Metadata, tasks: Sequence[Task], donors: SheetDonors, profiles: Sequence[RepertoireProfile]
) -> tuple[list[Shortcut], list[Finding]]:
    """Return tests of properties that may predict a label, and findings about targets with too few repertoires."""
    if not profiles or not tasks:
        return [], []
    row_of = {name: row for row, name in enumerate(sheet.repertoire_ids)}
    rows = [row_of[profile.repertoire_id] for profile in profiles]
    features = [
        *make_size_features(profiles),
        *make_usage_features(profiles),
        *make_file_features(profiles),
        *make_sheet_features(sheet, rows, donors),
    ]
    names = donors.list_donors().iloc[rows].tolist()
    return find_shortcuts(tasks, encode_labels(tasks, sheet.table.iloc[rows]), names, features)
