"""VDJtools' clonotype tables: https://vdjtools-doc.readthedocs.io/en/master/input.html."""

from __future__ import annotations

from deeprc.datasets.readers.layout import Header, Layout

__all__ = ["VdjtoolsReader"]


class VdjtoolsReader:
    """A reader of tables `count freq cdr3nt cdr3aa v d j ...`, whose `cdr3aa` is the junction.

    A junction that is non-coding has `*`, `_` or `~`.
    """

    name = "vdjtools"
    recognised_by = "count, cdr3aa"

    def find_layout(self, header: Header) -> Layout | None:
        """Return the columns of a VDJtools table, whose header may start with `#`."""
        sequence, count = header.find("cdr3aa"), header.find("count")
        if sequence is None or count is None:
            return None
        return Layout(
            junction_aa=sequence,
            counts=(count,),
            v_call=header.find_all("v"),
            j_call=header.find_all("j"),
            repertoire=header.find_repertoire_columns(),
        )
