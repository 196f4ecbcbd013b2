"""AIRR Rearrangement TSV: https://docs.airr-community.org/en/stable/datarep/rearrangements.html."""

from __future__ import annotations

from collections.abc import Mapping

from deeprc.datasets.readers.layout import Header, InvalidValueError, Layout, Status

__all__ = ["AirrReader"]

_TRUE = frozenset({"t", "true", "1", "yes"})
_FALSE = frozenset({"f", "false", "0", "no"})


class AirrReader:
    """Tables with AIRR field names; `junction_aa` is the one that is needed."""

    name = "airr"
    recognised_by = "junction_aa"

    def layout(self, header: Header) -> Layout | None:
        """Return the columns of an AIRR table."""
        junction_aa = header.find("junction_aa")
        if junction_aa is None:
            return None
        return Layout(
            junction_aa,
            counts=header.find_all("duplicate_count", "umi_count", "consensus_count"),
            v_call=header.find("v_call"),
            j_call=header.find("j_call"),
            status=header.find_all("productive", "vj_in_frame", "stop_codon"),
            judge=_judge,
            repertoire=header.find("repertoire_id"),
        )


def _judge(values: Mapping[str, str]) -> Status:
    """Return `productive`'s verdict, and where it is no, the reason that the other two give.

    An empty `productive` leaves the decision to the other two and then to the residues. A rearrangement that
    is out of frame usually runs into a stop codon too: it counts as out of frame.
    """
    flags = {column.lower(): _boolean(column, value) for column, value in values.items()}
    productive = flags.get("productive")
    if productive:
        return Status.IN_FRAME
    if flags.get("vj_in_frame") is False:
        return Status.OUT_OF_FRAME
    if flags.get("stop_codon"):
        return Status.STOP_CODON
    return Status.UNKNOWN if productive is None else Status.UNPRODUCTIVE


def _boolean(column: str, value: str) -> bool | None:
    word = value.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    if not word:
        return None
    raise InvalidValueError(column, value, "T, F (also true/false, yes/no, 1/0) or nothing")
