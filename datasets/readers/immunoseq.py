"""Adaptive's immunoSEQ Analyzer exports: pre-2014, camelCase, snake_case, 2020, and the short sample export."""

from __future__ import annotations

from collections.abc import Mapping

from deeprc.datasets.missing import MISSING_IN_TABLES, is_missing
from deeprc.datasets.readers.layout import Header, InvalidValueError, Layout, Status

__all__ = ["ImmunoseqReader", "has_immunoseq_columns"]

_SIGNS = ("frame_type", "rearrangement", "extended_rearrangement", "bio_identity", "v_gene", "v_family", "v_resolved")
_OLD_COUNTS = ("count (templates/reads)", "count (templates)", "count (reads)", "count", "copy")
_STATUS = {
    "in": Status.IN_FRAME,
    "productive": Status.IN_FRAME,
    "out": Status.OUT_OF_FRAME,
    "out of frame": Status.OUT_OF_FRAME,
    "stop": Status.STOP_CODON,
    "has stop": Status.STOP_CODON,
}


class ImmunoseqReader:
    """A reader of tables with `aminoAcid` and a count, or with `amino_acid` and another column of immunoSEQ.

    The sequence is the junction. Templates are preferred to reads; the CMV cohort has -1 if there are none. An
    unresolved gene is given as the genes that it may be, or otherwise as its family.
    """

    name = "immunoseq"
    recognised_by = "aminoAcid and a count | amino_acid and frame_type, rearrangement, v_gene or v_resolved"

    def find_layout(self, header: Header) -> Layout | None:
        """Return the columns of the export's layout."""
        newer = header.find("amino_acid", "cdr3_amino_acid")
        if newer is not None and has_immunoseq_columns(header):
            return Layout(
                junction_aa=newer,
                counts=header.find_all("templates", "reads", "seq_reads"),
                negative_is_one=True,
                v_call=header.find_all("v_gene", "v_gene_ties", "v_resolved", "v_family", "v_family_ties"),
                j_call=header.find_all("j_gene", "j_gene_ties", "j_resolved", "j_family", "j_family_ties"),
                status=header.find_all("frame_type"),
                choose_status=_choose_status,
                repertoire=header.find_repertoire_columns(),
                locus=header.find("locus"),
            )
        older, counts = header.find("aminoAcid"), header.find_all(*_OLD_COUNTS)
        if older is not None and counts:
            return Layout(
                junction_aa=older,
                counts=counts,
                negative_is_one=True,
                v_call=header.find_all(*_find_older_gene_columns(header, "v")),
                j_call=header.find_all(*_find_older_gene_columns(header, "j")),
                status=header.find_all("sequenceStatus"),
                choose_status=_choose_status,
                repertoire=header.find_repertoire_columns(),
                locus=header.find("locus"),
            )
        return None


def has_immunoseq_columns(header: Header) -> bool:
    """Return whether a table with `amino_acid` has a column that only immunoSEQ's exports have."""
    return header.find(*_SIGNS) is not None


def _find_older_gene_columns(header: Header, segment: str) -> tuple[str, ...]:
    """Return the columns of a gene's name: pre-2014 exports give ties in one column, and families as bare numbers."""
    if header.find(f"{segment}Ties") is not None:
        return (f"{segment}GeneName", f"{segment}Ties")
    columns = ("GeneName", "GeneNameTies", "MaxResolved", "FamilyName", "FamilyTies")
    return tuple(f"{segment}{column}" for column in columns)


def _choose_status(values: Mapping[str, str]) -> Status:
    """Return the status that `frame_type` or `sequenceStatus` gives."""
    for column, value in values.items():
        word = value.strip().lower()
        if word in _STATUS:
            return _STATUS[word]
        if not is_missing(value, MISSING_IN_TABLES):
            raise InvalidValueError(column, value, "In, Out or Stop")
    return Status.UNKNOWN
