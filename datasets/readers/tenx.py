"""Cell Ranger's `*_contig_annotations.csv`: one row for each contig of each cell."""

from __future__ import annotations

from collections.abc import Mapping

from deeprc.datasets.readers.layout import Header, Layout, Status, parse_boolean

__all__ = ["TenxReader"]


class TenxReader:
    """A reader of tables `barcode is_cell contig_id high_confidence ... chain v_gene ... productive cdr3 ...`.

    `cdr3` is the junction. The count of a sequence is the number of its cells, not of the molecules or reads seen in
    them. Rows that are no cell, or of which Cell Ranger is not sure, are left out.
    """

    name = "10x"
    recognised_by = "barcode, contig_id, cdr3"

    def find_layout(self, header: Header) -> Layout | None:
        """Return the columns of a table of contigs."""
        barcode, contig, sequence = (header.find(name) for name in ("barcode", "contig_id", "cdr3"))
        if barcode is None or contig is None or sequence is None:
            return None
        return Layout(
            junction_aa=sequence,
            v_call=header.find_all("v_gene"),
            j_call=header.find_all("j_gene"),
            status=header.find_all("is_cell", "high_confidence", "productive"),
            choose_status=_choose_status,
            repertoire=header.find_repertoire_columns(),
            locus=header.find("chain"),
            cell=barcode,
        )


def _choose_status(values: Mapping[str, str]) -> Status:
    """Return the status of a contig; a contig that does not reach from V to J (`None`) is not productive."""
    flags = {column.lower(): parse_boolean(column, value) for column, value in values.items()}
    if flags.get("is_cell") is False or flags.get("high_confidence") is False:
        return Status.LOW_CONFIDENCE
    if "productive" not in flags:
        return Status.UNKNOWN
    return Status.IN_FRAME if flags["productive"] else Status.UNPRODUCTIVE
