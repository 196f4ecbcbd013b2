"""Make warnings for readers of results from findings of a check: shortcuts to the label, copies in several folds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from deeprc.checks.findings import Finding
from deeprc.errors import cut_name, describe_texts
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.cohort_cautions import WHERE_APART

__all__ = ["find_duplicate_cautions", "find_shortcut_cautions", "format_finding"]

_SHORTCUTS = ("label-from-column", "label-from-processing", "label-from-name")  # controls show sizes and genes
_SHOWN = 3


def format_finding(finding: Finding) -> str:
    """Return a finding of a check and its advice as sentences."""
    sentences = (f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in (finding.message, finding.advice))
    return " ".join(sentences)


def find_shortcut_cautions(findings: Sequence[Finding]) -> Iterator[Caution]:
    """Yield a warning for each column, file name or format that predicts a label."""
    for finding in findings:
        if finding.code in _SHORTCUTS and finding.severity == "warning":
            details = {"target": finding.target, "column": finding.column, **finding.numbers}
            yield Caution("warning", format_finding(finding), "setup", finding.code, details)


def find_duplicate_cautions(
    findings: Sequence[Finding], part_of: Mapping[str, object], *, apart: Literal["folds", "parts"]
) -> Iterator[Caution]:
    """Yield a warning if repertoires that share far more than chance are in different folds or parts of the split.

    Parameters
    ----------
    findings
        Findings of a check.
    part_of
        Fold, or part of the split, of the repertoires that are in one, by repertoire id.
    apart
        Kind of the parts: folds, or parts of a split.
    """
    all_groups = dict.fromkeys(group for finding in findings for group in finding.groups)
    groups = [group for group in all_groups if len({part_of[name] for name in group if name in part_of}) > 1]
    if groups:
        group_texts = [" + ".join(map(cut_name, group[:_SHOWN])) for group in groups]
        shown = describe_texts(group_texts, "group", "groups", _SHOWN)
        text = (
            f"Repertoires that share far more sequences than expected by chance are {WHERE_APART[apart]} ({shown}). "
            "They may be copies, or samples of one donor, so every metric may be too good. `deeprc check` with "
            "`write_subjects` writes a sheet with a column that joins them. Use this column as `group_by`."
        )
        details = {"groups": [list(group) for group in groups], "apart": apart}
        yield Caution("warning", text, "setup", "duplicates-apart", details)
