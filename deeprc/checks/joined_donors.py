"""Donors by the sheet and by content: repertoires that share far more sequences than by chance are joined.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.arrays import index_connected
from deeprc.checks.examination import CohortCheck
from deeprc.errors import InputError
from deeprc.files import check_table_output, write_text

__all__ = ["JOINED_COLUMN", "check_joined_donors_output", "name_joined_donors", "write_joined_donors"]

JOINED_COLUMN = "joined_subject_id"
"""The column of the sheet with the groups of repertoires that must stay in one part of a split."""


def name_joined_donors(check: CohortCheck) -> list[str]:
    """Return the name of each repertoire's group, (B,), in the order of the sheet.

    Repertoires are in one group if they have the same donor in the sheet. They are also in one group if the check found
    that they have the same content, or share far more sequences than expected by chance. A group has the name of the
    donor of its first repertoire, or the id of this repertoire if its donor is not known.
    """
    assert check.sheet is not None
    ids = check.sheet.repertoire_ids
    donor_of = dict(check.donor_of)
    donors = set(donor_of.values())
    group_of = _index_joined_groups(check, ids)
    name_of_group: dict[int, str] = {}
    for group, first in zip(group_of, ids, strict=True):
        if group not in name_of_group:
            own_name = f"{first} (repertoire)" if first in donors else first
            name_of_group[group] = donor_of.get(first, own_name)
    return [name_of_group[group] for group in group_of]


def _index_joined_groups(check: CohortCheck, ids: Sequence[str]) -> list[int]:
    """Return the index of the group of each of these repertoires, (B,); see `name_joined_donors`."""
    row_of = {name: row for row, name in enumerate(ids)}
    repertoires_of_donor: dict[str, list[str]] = {}
    for name, donor in check.donor_of:
        repertoires_of_donor.setdefault(donor, []).append(name)
    links: list[tuple[int, int]] = []
    for group in [*(group for finding in check.findings for group in finding.groups), *repertoires_of_donor.values()]:
        links += [(row_of[group[0]], row_of[name]) for name in group[1:]]
    groups: list[int] = index_connected(np.array(links, np.int64).reshape(-1, 2).T, len(ids)).tolist()
    return groups


def check_joined_donors_output(path: Path) -> None:
    """Refuse a path at which there is another table.

    Raises
    ------
    InputError
        If something other than such a sheet is there, or nothing can be written.
    """
    check_table_output(path, [JOINED_COLUMN])


def write_joined_donors(check: CohortCheck, path: Path) -> int:
    """Write the sheet of a check as TSV, with the column `JOINED_COLUMN`; return the number of its different values.

    Raises
    ------
    InputError
        If the check could not read the sheet, or the file cannot be written.
    """
    if check.sheet is None:
        raise InputError(f"{path}: is not written, because the sheet or the files could not be read")
    names = name_joined_donors(check)
    table: pd.DataFrame = check.sheet.table.drop(columns=JOINED_COLUMN, errors="ignore").reset_index(drop=True)
    if not check.sheet.id_column:
        table.insert(0, "repertoire_id", list(check.sheet.repertoire_ids))
    write_text(path, table.assign(**{JOINED_COLUMN: names}).to_csv(sep="\t", index=False))
    return len(set(names))
