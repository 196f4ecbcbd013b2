"""What can be found: every suspicion has a code that stays, what it is about, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from deeprc.datasets.plan import describe_items

__all__ = ["CODES", "SEVERITIES", "Finding", "Severity", "by_severity", "count_findings", "named", "to_text"]

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
    "same-content": "repertoires hold the same sequences, genes and counts",
    "similar-content": "repertoires of different subjects share far more than is usual in this cohort",
    "closer-to-other-class": "repertoires of one subject share more across classes than within",
    # subjects and labels
    "repeated-subject": "subjects have several repertoires",
    "subject-in-both-classes": "repertoires of one subject have different labels",
    "unusable-target": "a target cannot be trained",
    "missing-labels": "labels are missing",
    "small-class": "classes have very few repertoires",
    "similar-labels": "classes look like two spellings of one",
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

_SHOWN = 3
"""Names in a message, at most; the finding has all of them."""


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
    target
        The target that it is about; None where it is about the repertoires, whatever is predicted.
    groups
        Repertoires that belong together, the largest group first, by `same-content` and `similar-content`.
    figures
        The numbers of the message by their names, such as the number of pairs.
    """

    severity: Severity
    code: str
    message: str
    advice: str
    files: tuple[str, ...] = ()
    repertoires: tuple[str, ...] = ()
    column: str | None = None
    target: str | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    figures: Mapping[str, int | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.code in CODES, self.code

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON knows it."""
        lists = {
            "files": list(self.files),
            "repertoires": list(self.repertoires),
            "groups": list(map(list, self.groups)),
        }
        return {**asdict(self), **lists, "figures": dict(self.figures)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Finding:
        """Return the finding that `to_dict` gave."""
        groups = tuple(map(tuple, values["groups"]))
        return cls(**{**values, **{name: tuple(values[name]) for name in ("files", "repertoires")}, "groups": groups})

    def to_text(self) -> str:
        """Return one line on what was found and one on what to do."""
        return f"{self.severity}: {self.code}: {' '.join(self.message.split())}\n    -> {self.advice}"


def named(names: Sequence[str], one: str, many: str) -> str:
    """Return how many there are, and the first few of them."""
    return describe_items(names, one, many, _SHOWN)


def by_severity(findings: Sequence[Finding]) -> list[Finding]:
    """Return errors first, then warnings, then notes; else in the order in which they were found."""
    return sorted(findings, key=lambda each: SEVERITIES.index(each.severity))


def to_text(findings: Sequence[Finding]) -> str:
    """Return all findings and a last line with their number."""
    return "\n".join([*(each.to_text() for each in by_severity(findings)), count_findings(findings)])


def count_findings(findings: Sequence[Finding]) -> str:
    """Return the number of findings by severity: 1 error, 2 warnings, 0 notes."""
    numbers = [(sum(each.severity == severity for each in findings), severity) for severity in SEVERITIES]
    return ", ".join(f"{n} {severity}{'s' * (n != 1)}" for n, severity in numbers)
