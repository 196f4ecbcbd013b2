"""TCRex' tables, and VDJtools' tables with TCRex' column names."""

from __future__ import annotations

from deeprc.datasets.readers.layout import Header, Layout

__all__ = ["TcrexReader"]


class TcrexReader:
    """A reader of tables `CDR3_beta TRBV_gene TRBJ_gene`, with or without a count and an index column."""

    name = "tcrex"
    recognised_by = "CDR3_beta, TRBV_gene, TRBJ_gene"

    def find_layout(self, header: Header) -> Layout | None:
        """Return the columns of a TCRex table."""
        sequence, v_call = header.find("CDR3_beta"), header.find_all("TRBV_gene")
        if sequence is None or not v_call:
            return None
        return Layout(
            junction_aa=sequence,
            counts=header.find_all("count"),
            v_call=v_call,
            j_call=header.find_all("TRBJ_gene"),
            repertoire=header.find_repertoire_columns(),
        )
