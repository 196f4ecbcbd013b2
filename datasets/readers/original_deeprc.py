"""The two-column table of the original DeepRC: `amino_acid templates`."""

from __future__ import annotations

from deeprc.datasets.readers.immunoseq import has_immunoseq_columns
from deeprc.datasets.readers.layout import Header, Layout

__all__ = ["OriginalDeepRCReader"]


class OriginalDeepRCReader:
    """A reader of tables with `amino_acid` and `templates`, and no column that would make them immunoSEQ's.

    Counts of -1 come from the CMV cohort, from which the published tables were made.
    """

    name = "deeprc"
    recognised_by = "amino_acid, templates and no other column of immunoSEQ"

    def find_layout(self, header: Header) -> Layout | None:
        """Return the two columns."""
        sequence, count = header.find("amino_acid"), header.find("templates")
        if sequence is None or count is None or has_immunoseq_columns(header):
            return None
        return Layout(
            junction_aa=sequence, counts=(count,), negative_is_one=True, repertoire=header.find_repertoire_columns()
        )
