"""The donors of a cohort, the persons or animals that repertoires come from, by a column of the metadata sheet.

Letters: B repertoires.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.errors import InputError, describe_missing_column
from deeprc.groups import choose_donor_column, find_donor_columns, index_groups

__all__ = ["DonorColumn", "count_divided_donors"]


@dataclass(frozen=True)
class DonorColumn:
    """The column of a sheet that names the donor of each repertoire.

    Attributes
    ----------
    metadata
        The metadata, with one row per repertoire, (B).
    name
        Name of the column; None if the donors are not known.
    """

    metadata: pd.DataFrame
    name: str | None

    @classmethod
    def choose(cls, metadata: pd.DataFrame, group_by: str | None) -> DonorColumn:
        """Return the column `group_by` if it exists, else the column of donors that names the fewest of them."""
        if group_by is not None and group_by in metadata:
            return cls(metadata, group_by)
        return cls(metadata, choose_donor_column(metadata))

    @classmethod
    def require(cls, metadata: pd.DataFrame, group_by: str | None, source: str) -> DonorColumn:
        """Return the column `group_by`; None stands for donors that are not known.

        Raises
        ------
        InputError
            If the column does not exist.
        """
        if group_by is not None and group_by not in metadata:
            raise InputError(f"{source}: {describe_missing_column(group_by, metadata.columns, 'for `group_by`')}")
        return cls(metadata, group_by)

    def index(self) -> NDArray[np.int64]:
        """Return the index of the donor of each repertoire, (B,).

        A repertoire without a donor gets a donor of its own.
        """
        return np.arange(len(self.metadata)) if self.name is None else index_groups(self.metadata[self.name])

    def index_if_known(self) -> NDArray[np.int64] | None:
        """Return the index of the donor of each repertoire, (B,); None if there is no column of donors."""
        return None if self.name is None else self.index()

    def index_by_id(self, repertoire_ids: NDArray[np.object_]) -> dict[str, int] | None:
        """Return the index of each repertoire's donor by repertoire id; None if there is no column of donors."""
        return None if self.name is None else dict(zip(repertoire_ids.tolist(), self.index().tolist(), strict=True))


def count_divided_donors(metadata: pd.DataFrame, part_of: NDArray[np.int64]) -> dict[str, int]:
    """Return, for each column that names donors, the number of donors with repertoires in several parts.

    Columns without such donors are left out. Parts are those of a split, or folds. `part_of` (B,) holds the index of
    the part of each repertoire, -1 if it is in none.
    """
    is_in_part = part_of >= 0
    counts = {}
    for column in find_donor_columns(metadata):
        n_parts = pd.Series(part_of[is_in_part]).groupby(metadata[column].to_numpy()[is_in_part]).nunique()
        if n_divided := int((n_parts > 1).sum()):
            counts[column] = n_divided
    return counts
