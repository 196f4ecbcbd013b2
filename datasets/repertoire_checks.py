"""Checks of a repertoire that was read: several chains, no row that is kept, and numbers in the place of genes."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from deeprc.datasets.numeric_text import is_number
from deeprc.datasets.report import RepertoireReport
from deeprc.datasets.sequences import Sequences
from deeprc.errors import FaultGroup, InputError, format_count, quote

__all__ = [
    "EMPTY_ADVICE",
    "check_loci",
    "count_numbers_as_genes",
    "describe_empty",
    "group_empty",
    "raise_or_warn_of_empty",
    "warn_of_numbers_as_genes",
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
    if report.has_only_empty_rows:
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
        FaultGroup(names[0] if len(names) == 1 else fault, tuple(names), "repertoires")
        for fault, names in by_reason.items()
    ]


def raise_or_warn_of_empty(path: Path | str, report: RepertoireReport, allow_missing: bool) -> None:
    """Raise or log that no row of a repertoire is kept."""
    message = describe_empty(path, report)
    if not allow_missing:
        raise InputError(f"{message}. {EMPTY_ADVICE}")
    _logger.warning("%s: left out", message)


def count_numbers_as_genes(sequences: Sequences) -> Counter[str]:
    """Return how often each number stands where the name of a V or J gene should be, as if from a wrong column."""
    numbers: Counter[str] = Counter()
    for calls in sequences.genes.values():
        codes = [code for code, name in enumerate(calls.vocabulary) if is_number(name)]
        if codes:
            n_by_code = calls.count_occurrences()
            numbers.update({calls.vocabulary[code]: int(n_by_code[code]) for code in codes})
    return +numbers


def warn_of_numbers_as_genes(numbers_by_file: Mapping[str, Counter[str]]) -> None:
    """Log one warning about all files that have numbers in the place of genes; see `count_numbers_as_genes`."""
    files = [file for file, numbers in numbers_by_file.items() if numbers]
    if not files:
        return
    numbers = sum(numbers_by_file.values(), Counter[str]())
    ((example, _),) = numbers.most_common(1)
    _logger.warning(
        "%s%s: expected names of V and J genes, such as TRBV9, found %s, such as %s. They are stored as they are; is "
        "the column right?",
        files[0],
        f" and {format_count(len(files) - 1, 'more file')}" if len(files) > 1 else "",
        format_count(numbers.total(), "number"),
        quote(example),
    )
