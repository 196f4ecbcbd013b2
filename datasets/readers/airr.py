"""AIRR Rearrangement TSV: https://docs.airr-community.org/en/stable/datarep/rearrangements.html."""

from __future__ import annotations

from collections.abc import Mapping

from deeprc.datasets.readers.layout import Header, Layout, Status, parse_boolean

__all__ = ["AirrReader"]

_COUNTS = ("duplicate_count", "templates", "umi_count", "consensus_count", "dupcount", "conscount")
_FLAGS = ("productive", "vj_in_frame", "stop_codon", "is_cell", "functional", "in_frame", "stop")
_BD_RHAPSODY = "cell_type_experimental"
_CELL_FLAGS = ("putative_cell", "dominant", "high_confidence")
_CHANGEO = {"functional": "productive", "in_frame": "vj_in_frame", "stop": "stop_codon"}


class AirrReader:
    """A reader of tables with AIRR field names, such as those of the AIRR-ML-25 challenge and of Change-O.

    One of `junction_aa`, `cdr3_aa` and `junction` is needed; of several, a row takes the first that it has.

    If the table is of single cells, cells are counted, not the molecules of a contig in its cell. A table is of single
    cells if it has a `cell_id`, and one of these holds: it has `is_cell` (Cell Ranger), it has `cell_type_experimental`
    (BD Rhapsody), or it has no `duplicate_count`. A `cell_id` alone is not enough, because repositories write an empty
    `cell_id` into tables of bulk sequencing. So if no row names a cell, the other counts are read.
    """

    name = "airr"
    recognised_by = "junction_aa | cdr3_aa | junction"

    def find_layout(self, header: Header) -> Layout | None:
        """Return the columns of an AIRR table."""
        junction_aa, cdr3_aa, junction = (header.find(name) for name in ("junction_aa", "cdr3_aa", "junction"))
        if junction_aa is None and cdr3_aa is None and junction is None:
            return None
        cell = header.find("cell_id")
        has_cells = header.find("is_cell", _BD_RHAPSODY) is not None
        if not has_cells and header.find("duplicate_count", "templates") is not None:
            cell = None
        flags = _FLAGS if cell is None else (*_FLAGS, *_CELL_FLAGS)
        return Layout(
            junction_aa=junction_aa,
            cdr3_aa=cdr3_aa,
            junction=junction,
            counts=header.find_all(*_COUNTS),
            negative_is_one=header.find("templates") is not None,
            v_call=header.find_all("v_call"),
            j_call=header.find_all("j_call"),
            status=header.find_all(*flags),
            choose_status=_choose_status,
            repertoire=header.find_repertoire_columns(),
            locus=header.find("locus"),
            cell=cell,
        )


def _choose_status(values: Mapping[str, str]) -> Status:
    """Return the status that `productive` gives, or, if it is no, the reason that the other two columns give.

    An empty `productive` leaves the decision to the other two columns, and then to the residues. A rearrangement that
    is out of frame usually has a stop codon, too; it counts as out of frame.
    """
    flags: dict[str, bool | None] = {}
    for column, value in values.items():
        name = _CHANGEO.get(column.lower(), column.lower())
        if flags.get(name) is None:  # an empty column of Change-O says nothing beside AIRR's own
            flags[name] = parse_boolean(column, value)
    productive = flags.get("productive")
    if any(flags.get(name) is False for name in ("is_cell", *_CELL_FLAGS)):
        return Status.LOW_CONFIDENCE
    if productive:
        return Status.IN_FRAME
    if flags.get("vj_in_frame") is False:
        return Status.OUT_OF_FRAME
    if flags.get("stop_codon"):
        return Status.STOP_CODON
    return Status.UNKNOWN if productive is None else Status.UNPRODUCTIVE
