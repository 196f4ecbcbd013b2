"""What can be found: every suspicion has a code that stays, what it is about, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

__all__ = ["CODES", "SEVERITIES", "Finding", "Severity", "by_severity", "to_text"]

Severity = Literal["error", "warning", "note"]
"""An error is what `deeprc preprocess` or `train` would refuse, or what makes results wrong; a warning may do so."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)

CODES = {
    # files and rows
    "unreadable-file": "a file cannot be read",
    "unreadable-sheet": "the metadata sheet cannot be read",
    "ambiguous-files": "it is not clear which file belongs to which row",
    "row-without-file": "rows of the sheet have no file",
    "file-without-row": "files belong to no row of the sheet",
    "empty-repertoire": "a repertoire has no sequence that is kept",
    # chains and genes
    "mixed-chains": "the files hold several chains and none was chosen",
    "chain-contradiction": "gene names are of another chain than the locus column or the other gene says",
    "mixed-species": "some repertoires have genes that only mice have, others do not",
    "mouse-genes": "all repertoires, or single sequences, have genes that only mice have",
    "unknown-genes": "gene names are not understood",
    "missing-genes": "some repertoires have no V or J genes where the others have",
    # counts
    "no-counts": "no file has a column of counts, so each sequence counts 1",
    "missing-counts": "some rows or repertoires have no count (or -1), which counts 1",
    "different-count-columns": "counts are from different columns",
    "counts-all-one": "all counts of some repertoires are 1, those of the others are not",
    "rounded-counts": "counts were no whole numbers of at least 1",
    "saturated-counts": "a count reaches the largest that can be stored",
    "dominant-sequence": "one sequence has more than half of a repertoire's counts",
    # sizes
    "small-repertoire": "a repertoire is much smaller than the rest",
    "odd-drop-rate": "a repertoire loses a very different share of its rows than the rest",
    "different-junctions": "junctions are from different columns",
    # content
    "same-content": "two repertoires hold the same sequences, genes and counts",
    "similar-content": "two repertoires of different subjects share far more than is usual in this cohort",
    "closer-to-other-class": "a subject's repertoires share more across classes than within",
    # subjects and labels
    "repeated-subject": "a subject has several repertoires",
    "subject-in-both-classes": "a subject's repertoires have different labels",
    "unusable-target": "a target cannot be trained",
    "missing-labels": "labels are missing",
    "small-class": "a class has very few repertoires",
    "similar-labels": "two classes look like two spellings of one",
    "checked-targets": "which columns were taken for labels",
    "too-few": "too few repertoires to find shortcuts",
    # shortcuts: what predicts the label without reading a receptor
    "label-from-size": "the size of the repertoire predicts the label",
    "label-from-processing": "how the file was made or read predicts the label",
    "label-from-genes": "the usage of V or J genes predicts the label",
    "label-from-name": "the name or the folder of the file predicts the label",
    "label-from-column": "another column of the sheet predicts the label",
}
"""Every code and what it means; `docs/check.md` has the same list with rules and advice."""

_SHOWN = 10


@dataclass(frozen=True)
class Finding:
    """One suspicion.

    Attributes
    ----------
    severity, code
        How bad it is, and one of `CODES`.
    message
        What was found, with its figures.
    advice
        What to do about it.
    files, repertoires
        Which it is about; none where it is about all.
    column
        Of the sheet or of the files.
    """

    severity: Severity
    code: str
    message: str
    advice: str
    files: tuple[str, ...] = ()
    repertoires: tuple[str, ...] = ()
    column: str | None = None

    def __post_init__(self) -> None:
        assert self.code in CODES, self.code

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON knows it."""
        return {**asdict(self), "files": list(self.files), "repertoires": list(self.repertoires)}

    def to_text(self) -> str:
        """Return one line on what was found and one on what to do; an error in several lines stays one."""
        head, *rest = self.message.splitlines() or [""]
        lines = [f"{self.severity}: {self.code}: {head}", *(f"    {line}" for line in rest)]
        return "\n".join([*lines, f"    -> {self.advice}"])


def by_severity(findings: Sequence[Finding]) -> list[Finding]:
    """Return errors first, then warnings, then notes; else in the order in which they were found."""
    return sorted(findings, key=lambda each: SEVERITIES.index(each.severity))


def to_text(findings: Sequence[Finding]) -> str:
    """Return all findings and a last line with their number."""
    numbers = [(sum(each.severity == severity for each in findings), severity) for severity in SEVERITIES]
    total = ", ".join(f"{n} {severity}{'s' * (n != 1)}" for n, severity in numbers)
    return "\n".join([*(each.to_text() for each in by_severity(findings)), total])
