"""Write the folder of a check: all findings, groups and pairs as tables, and one JSON document."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from deeprc.checks.examination import CohortCheck
from deeprc.checks.findings import Finding
from deeprc.documents import read_json
from deeprc.errors import InputError, show_parameters
from deeprc.files import check_new_folder

__all__ = ["check_folder", "write_check"]

_WRITTEN = "written.json"
_PAIR_COLUMNS = [
    *("group", "repertoire_id_1", "repertoire_id_2", "subject_1", "subject_2", "measure"),
    *("shared", "compared_1", "compared_2", "overlap", "median_overlap", "expected_shared"),
]
_COMPARISON_COLUMNS = [
    *("target", "subject", "repertoire_id", "class", "nearest_of_other_class", "other_class"),
    *("shared_with_other", "overlap_with_other", "shared_with_own", "overlap_with_own", "p_value"),
]
_FORMAT = "deeprc-check"


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds anything other than the unchanged files of an earlier check.

    Raises
    ------
    InputError
        If the folder holds another file, or one that was changed, or cannot be made.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        check_new_folder(folder)
        return
    foreign = next(_find_foreign_files(folder), None)
    if foreign is not None:
        raise InputError(
            f"{folder}: exists, and {foreign} was not written by `deeprc check`, or was changed since; choose another "
            "`output`. Nothing was changed."
        )


def _find_foreign_files(folder: Path) -> Iterator[str]:
    """Yield the names of files in a folder that no check has written, or that were changed since."""
    try:
        written = read_json(folder / _WRITTEN)
        known = dict(written["files"]) if written["format"] == _FORMAT else {}
    except (ValueError, KeyError, TypeError):
        known = {}
    for path in sorted(folder.iterdir()):
        is_own = path.name == _WRITTEN and known
        if not is_own and not (path.name in known and path.is_file() and known[path.name] == _digest_file(path)):
            yield path.name


def _digest_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_check(check: CohortCheck, folder: Path) -> None:
    """Write the tables and the JSON document of a check to a folder; an earlier check there is replaced as a whole.

    A folder that exists stays: it may be a link, or the working folder.

    Raises
    ------
    InputError
        If the folder cannot be used, see `check_folder`, or the disk is full.
    """
    check_folder(folder)
    real_folder = Path(os.path.realpath(folder))
    real_folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{real_folder.name}.", dir=real_folder.parent) as temporary:
            new, before = Path(temporary) / "new", Path(temporary) / "before"
            new.mkdir()
            _write_files(check, new)
            if real_folder.exists():
                before.mkdir()
                _replace_files(real_folder, new, before)
            else:
                new.rename(real_folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _replace_files(folder: Path, new: Path, before: Path) -> None:
    """Move the files of a folder to `before`, and those of `new` into the folder; undo all if one cannot be moved."""
    moves = [(path, before / path.name) for path in folder.iterdir()]
    moves += [(path, folder / path.name) for path in new.iterdir()]
    try:
        for source, target in moves:
            source.rename(target)
    except BaseException:
        for source, target in reversed(moves):
            if not source.exists() and target.exists():
                target.rename(source)
        raise


def _write_files(check: CohortCheck, folder: Path) -> None:
    for name, table in _make_tables(check).items():
        table.to_csv(folder / f"{name}.tsv", sep="\t", index=False, float_format="%.6g")
    (folder / "check.json").write_text(json.dumps(check.to_dict(), indent=1) + "\n", encoding="utf-8")
    digests = {path.name: _digest_file(path) for path in sorted(folder.iterdir())}
    content = {"format": _FORMAT, "files": digests}
    (folder / _WRITTEN).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _make_tables(check: CohortCheck) -> dict[str, pd.DataFrame]:
    """Return the tables of a check by the name of their file, without its ending."""
    shortcuts = pd.DataFrame(
        [_flatten_interval(shortcut.to_dict()) for shortcut in check.shortcuts],
        columns=["target", "label", "property", "column", "code", "measure", "value", "low", "high", "verdict"],
    )
    return {
        "findings": _make_finding_table(check),
        "finding_repertoires": _make_member_table(check),
        "groups": _make_group_table(check),
        "similar_pairs": _make_pair_table(check),
        "closer_to_other_class": _make_comparison_table(check),
        "shortcuts": shortcuts,
    }


def _make_finding_table(check: CohortCheck) -> pd.DataFrame:
    """Return a table with a row for each finding, numbered from 1."""
    rows = [
        (
            *(number, finding.severity, finding.code, finding.target, finding.column),
            *(*_format_finding(finding), len(finding.repertoires), len(finding.files)),
        )
        for number, finding in enumerate(check.findings, start=1)
    ]
    names = ["finding", "severity", "code", "target", "column", "message", "advice", "n_repertoires", "n_files"]
    return pd.DataFrame(rows, columns=names)


def _make_member_table(check: CohortCheck) -> pd.DataFrame:
    """Return a table with a row for each repertoire and each file that a finding names."""
    rows = []
    for number, finding in enumerate(check.findings, start=1):
        rows += [(number, finding.code, "repertoire", name) for name in finding.repertoires]
        rows += [(number, finding.code, "file", name) for name in finding.files]
    return pd.DataFrame(rows, columns=["finding", "code", "kind", "name"])


def _format_finding(finding: Finding) -> tuple[str, str]:
    """Return the message of a finding in one line, and its advice."""
    return show_parameters(" ".join(finding.message.split())), show_parameters(finding.advice)


def _flatten_interval(shortcut: dict[str, Any]) -> dict[str, Any]:
    low, high = shortcut["interval"] or (None, None)
    return {**shortcut, "low": low, "high": high}


def _make_group_table(check: CohortCheck) -> pd.DataFrame:
    """Return a table of the repertoires in the groups of findings."""
    donor = dict(check.donor_of)
    rows = [
        (number, finding.code, index, len(group), name, donor.get(name))
        for number, finding in enumerate(check.findings, start=1)
        for index, group in enumerate(finding.groups, start=1)
        for name in group
    ]
    return pd.DataFrame(rows, columns=["finding", "code", "group", "n_repertoires", "repertoire_id", "subject"])


def _make_pair_table(check: CohortCheck) -> pd.DataFrame:
    """Return a table of the pairs of repertoires that share far more sequences than is usual, by group."""
    donor = dict(check.donor_of)
    group_of = {
        name: index
        for finding in check.findings
        if finding.code == "similar-content"
        for index, group in enumerate(finding.groups, start=1)
        for name in group
    }
    rows = []
    for similarity in check.similar:
        (first, second), pair = similarity.names, similarity.pair
        rows.append(
            {
                "group": group_of[first],
                "repertoire_id_1": first,
                "repertoire_id_2": second,
                "subject_1": donor.get(first),
                "subject_2": donor.get(second),
                "measure": similarity.measure,
                "shared": pair.shared,
                "compared_1": pair.sizes[0],
                "compared_2": pair.sizes[1],
                "overlap": pair.overlap,
                "median_overlap": similarity.usual,
                "expected_shared": similarity.expected,
            }
        )
    table = pd.DataFrame(rows, columns=_PAIR_COLUMNS)
    return table.sort_values(["group", "overlap"], ascending=[True, False], kind="stable")


def _make_comparison_table(check: CohortCheck) -> pd.DataFrame:
    """Return a table of the repertoires that share more with the other class of their donor than with their own."""
    rows = [
        {
            "target": comparison.target,
            "subject": comparison.donor,
            "repertoire_id": comparison.names[0],
            "class": comparison.classes[0],
            "nearest_of_other_class": comparison.names[1],
            "other_class": comparison.classes[1],
            "shared_with_other": comparison.across.shared,
            "overlap_with_other": comparison.across.overlap,
            "shared_with_own": comparison.within.shared,
            "overlap_with_own": comparison.within.overlap,
            "p_value": comparison.p_value,
        }
        for comparison in check.comparisons
    ]
    return pd.DataFrame(rows, columns=_COMPARISON_COLUMNS)
