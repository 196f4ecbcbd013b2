"""Tables of immunarch and of its predecessor tcR: https://immunarch.com."""

from __future__ import annotations

from deeprc.datasets.readers.layout import Header, Layout

__all__ = ["ImmunarchReader"]


class ImmunarchReader:
    """A reader of tables `Clones Proportion CDR3.nt CDR3.aa V.name D.name J.name ...`; `CDR3.aa` is the junction."""

    name = "immunarch"
    recognised_by = "CDR3.aa, Clones | CDR3.amino.acid.sequence, Read.count"

    def find_layout(self, header: Header) -> Layout | None:
        """Return the columns of either tool's table; molecules are preferred to reads."""
        sequence = header.find("CDR3.aa", "CDR3.amino.acid.sequence")
        counts = header.find_all("Clones", "Umi.count", "Read.count")
        if sequence is None or not counts:
            return None
        return Layout(
            junction_aa=sequence,
            counts=counts,
            v_call=header.find_all("V.name", "V.gene"),
            j_call=header.find_all("J.name", "J.gene"),
            repertoire=header.find_repertoire_columns(),
            locus=header.find("chain"),
        )
