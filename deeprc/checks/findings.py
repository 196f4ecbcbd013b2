"""The findings of a check: each has a code that never changes, says what it is about, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from deeprc.documents import abbreviate, validate
from deeprc.errors import InputError, describe_names, describe_texts, join_names, show_parameters

__all__ = [
    "CODES",
    "Finding",
    "Severity",
    "count_findings",
    "join_few",
    "list_few",
    "name_few",
    "sort_by_severity",
    "to_text",
]

Severity = Literal["error", "warning", "note"]
"""An error is refused by `deeprc preprocess` or `train`, or makes results wrong; a warning may make them wrong."""

_SEVERITIES: tuple[Severity, ...] = get_args(Severity)

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
    "chain-contradiction": "the V or J gene is of a different chain than the locus column or the other gene says",
    "mixed-species": "some repertoires have genes that only mice have, others do not",
    "mouse-genes": "all repertoires, or single sequences, have genes that only mice have",
    "unknown-genes": "gene names are not recognised",
    "missing-genes": "some repertoires have no V or J genes where the others have",
    # counts
    "no-counts": "no file has counts, so each sequence gets the count 1",
    "missing-counts": "some rows or repertoires have no count (or -1), and get the count 1",
    "different-count-columns": "counts are from different columns",
    "counts-all-one": "all counts of a repertoire are 1",
    "rounded-counts": "counts are not whole numbers of at least 1",
    "saturated-counts": "a count reaches the largest that can be stored",
    "dominant-sequence": "one sequence has more than half of a repertoire's counts",
    # sizes
    "small-repertoire": "a repertoire is much smaller than the rest",
    "odd-drop-rate": "the share of dropped rows is very different from that of the other repertoires",
    "different-junctions": "junctions are from different columns",
    # content
    "same-content": "repertoires have the same sequences, genes and counts",
    "similar-content": "repertoires of different donors share far more sequences than is usual in this cohort",
    "closer-to-other-class": "a repertoire shares more sequences with a different class of its donor than with its own",
    # donors and labels
    "repeated-subject": "a donor has several repertoires",
    "subject-in-both-classes": "repertoires of the same donor have different labels",
    "unusable-target": "a model cannot be trained for this target",
    "missing-labels": "labels are missing",
    "small-class": "classes have very few repertoires",
    "similar-labels": "two classes may be two spellings of one",
    "checked-targets": "which columns were used as labels",
    "too-few": "too few repertoires to test for shortcuts",
    # shortcuts: what predicts the label without any receptor sequence
    "label-from-size": "the size of the repertoire predicts the label",
    "label-from-processing": "how the file was made or read predicts the label",
    "label-from-genes": "the usage of V or J genes predicts the label",
    "label-from-name": "the name or the folder of the file predicts the label",
    "label-from-column": "another column of the sheet predicts the label",
}
"""The meaning of each code; `docs/check.md` lists the codes with their rules and advice."""

_SHOWN = 3
"""Largest number of names in a message; the finding holds all of them."""


@dataclass(frozen=True)
class Finding:
    """One suspicion about a cohort.

    Attributes
    ----------
    severity, code
        The severity, and one of `CODES`.
    message
        Description of the finding, with numbers.
    advice
        Advice on what to do about it.
    files, repertoires
        Files and repertoires that the finding is about; empty if it is about all of them.
    column
        The column of the sheet, or of the files, that the finding is about.
    target
        Target that the finding is about; None if it does not depend on a target.
    groups
        Repertoires that belong together, the largest group first (`same-content` and `similar-content`).
    numbers
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
    numbers: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.code in CODES, self.code

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as values that JSON can hold."""
        lists = {
            "files": list(self.files),
            "repertoires": list(self.repertoires),
            "groups": list(map(list, self.groups)),
        }
        values = {**asdict(self), **lists}
        del values["numbers"]
        return {**values, "figures": dict(self.numbers)}

    @classmethod
    def from_dict(cls, values: Any, where: str) -> Finding:
        """Return the finding from the values that `to_dict` returned, read from a file.

        Raises
        ------
        InputError
            If they are damaged; the message begins with `where`.
        """
        stored: dict[str, Any] = validate(values, dict[str, Any], where)
        if stored.get("code") not in list(CODES):
            raise InputError(f"{where}: code: expected a code of a finding, found {abbreviate(stored.get('code'))}")
        named = {"numbers" if name == "figures" else name: value for name, value in stored.items()}
        finding: Finding = validate(named, cls, where)
        return finding

    def to_text(self) -> str:
        """Return the finding as text: one line with its message, and one with its advice."""
        message = " ".join(self.message.split())
        return show_parameters(f"{self.severity}: {self.code}: {message}\n    -> {self.advice}")


def name_few(names: Sequence[str], one: str, many: str) -> str:
    """Return the number of names and the first few of them, as in "7 files: a, b, c and 4 more"."""
    return describe_names(names, one, many, _SHOWN)


def list_few(texts: Sequence[str], one: str, many: str) -> str:
    """Return the number of texts and the first few of them, uncut, as in "7 files: a (2), b (3), c (4) and 4 more".

    `one` and `many` are the noun for a single text and for several, here "file" and "files".
    """
    return describe_texts(texts, one, many, _SHOWN)


def join_few(names: Sequence[str]) -> str:
    """Return the first few of some names, as in "a, b, c and 4 more"."""
    return join_names(names, _SHOWN)


def sort_by_severity(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings sorted by severity, errors first; findings of one severity keep their order."""
    return sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity))


def to_text(findings: Sequence[Finding]) -> str:
    """Return all findings and a last line with their number."""
    return "\n".join([*(finding.to_text() for finding in sort_by_severity(findings)), count_findings(findings)])


def count_findings(findings: Sequence[Finding]) -> str:
    """Return the number of findings by severity: 1 error, 2 warnings, 0 notes."""
    counts = [(sum(finding.severity == severity for finding in findings), severity) for severity in _SEVERITIES]
    return ", ".join(f"{n} {severity}{'s' if n != 1 else ''}" for n, severity in counts)
