"""Checks of a repertoire that was read: several chains, and no row that is kept."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from deeprc.datasets.report import RepertoireReport
from deeprc.errors import FaultGroup, InputError

__all__ = [
    "EMPTY_ADVICE",
    "check_loci",
    "describe_empty",
    "group_empty",
    "raise_or_warn_of_empty",
]

_logger = logging.getLogger(__name__)

EMPTY_ADVICE = "`allow_missing` leaves such repertoires out"
"""Advice if no row of a repertoire is kept."""

_QUESTIONS = {
    "other_locus": "is `locus` right?",
    "too_long": "is `max_length` right?",
    "too_short": "is `min_length` right?",
}
"""Question to ask if most rows of a repertoire are left out for a reason."""


def check_loci(seen: dict[str, str], report: RepertoireReport) -> None:
    """Refuse a mixture of chains, because only the user knows which one is meant."""
    if report.locus is not None:
        return
    for locus in report.loci:
        if locus:
            seen.setdefault(locus, report.repertoire_id)
    if len(seen) > 1:
        chains = " and ".join(f"{locus} (repertoire {name!r})" for locus, name in sorted(seen.items()))
        raise InputError(f"the files hold several chains, {chains}; choose one with `locus`")


def describe_empty(path: Path | str, report: RepertoireReport) -> str:
    """Return a message about a repertoire of which no row is kept."""
    if not report.rows_read:
        return f"{path}: has a header, but no rows (repertoire {report.repertoire_id!r})"
    reasons = ", ".join(f"{reason} {n}" for reason, n in report.dropped.items() if n)
    message = f"{path}: none of the {report.rows_read} rows of repertoire {report.repertoire_id!r} is kept ({reasons})"
    if report.dropped.get("empty") == report.rows_read:
        message += "; are the sequences in another column? Name it with `sequence_column`"
    return "; ".join(filter(None, [message, _QUESTIONS.get(_find_main_reason(report))]))


def _find_main_reason(report: RepertoireReport) -> str:
    """Return the reason for which most rows of a repertoire are left out; "" if it has no row."""
    return max(report.dropped, key=lambda reason: report.dropped[reason]) if report.rows_read else ""


def group_empty(empty: Sequence[tuple[Path, RepertoireReport]]) -> list[FaultGroup]:
    """Group repertoires without a kept row by their main reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for path, report in empty:
        reason = _find_main_reason(report)
        fault = f"no row is kept, most for the reason {reason!r}" if reason else "no row is kept"
        by_reason[fault].append(describe_empty(path, report))
    return [
        FaultGroup(some[0] if len(some) == 1 else fault, tuple(some), "repertoires")
        for fault, some in by_reason.items()
    ]


def raise_or_warn_of_empty(path: Path | str, report: RepertoireReport, allow_missing: bool) -> None:
    """Raise or log that no row of a repertoire is kept."""
    message = describe_empty(path, report)
    if not allow_missing:
        raise InputError(f"{message}. {EMPTY_ADVICE}")
    _logger.warning("%s: left out", message)
