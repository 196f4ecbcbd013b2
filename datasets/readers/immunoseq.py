"""Adaptive's immunoSEQ Analyzer exports: the older camelCase layout and the newer snake_case one."""

from __future__ import annotations

from collections.abc import Mapping

from deeprc.datasets.readers.layout import Header, InvalidValueError, Layout, Status, is_missing

__all__ = ["ImmunoseqReader"]

_OLD_COUNTS = ("count (templates/reads)", "count (templates)", "count (reads)", "count")
_STATUS = {
    "in": Status.IN_FRAME,
    "productive": Status.IN_FRAME,
    "out": Status.OUT_OF_FRAME,
    "out of frame": Status.OUT_OF_FRAME,
    "stop": Status.STOP_CODON,
    "has stop": Status.STOP_CODON,
}


class ImmunoseqReader:
    """Tables with `aminoAcid` and a count, or with `amino_acid` and `frame_type`."""

    name = "immunoseq"
    recognised_by = "aminoAcid, count (templates/reads) | amino_acid, frame_type"

    def layout(self, header: Header) -> Layout | None:
        """Return the columns of either layout; templates go before reads, genes before alleles."""
        newer, frame_type = header.find("amino_acid"), header.find("frame_type")
        if newer is not None and frame_type is not None:
            return Layout(
                newer,
                counts=header.find_all("templates", "reads"),
                v_call=header.find("v_gene", "v_resolved"),
                j_call=header.find("j_gene", "j_resolved"),
                status=(frame_type,),
                judge=_judge,
                repertoire=header.find("sample_name"),
            )
        older, counts = header.find("aminoAcid"), header.find_all(*_OLD_COUNTS)
        if older is not None and counts:
            return Layout(
                older,
                counts=counts,
                v_call=header.find("vGeneName", "vMaxResolved"),
                j_call=header.find("jGeneName", "jMaxResolved"),
                status=header.find_all("sequenceStatus"),
                judge=_judge,
            )
        return None


def _judge(values: Mapping[str, str]) -> Status:
    """Return what `frame_type` or `sequenceStatus` says."""
    for column, value in values.items():
        word = value.strip().lower()
        if word in _STATUS:
            return _STATUS[word]
        if not is_missing(value):
            raise InvalidValueError(column, value, "In, Out or Stop")
    return Status.UNKNOWN
