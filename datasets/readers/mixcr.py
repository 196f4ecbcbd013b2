"""MiXCR's `exportClones`: headers with spaces (1.x), camelCase (2.x, 3.x) and 4.x; also MiXCR-like tables of others."""

from __future__ import annotations

from deeprc.datasets.readers.layout import Header, Layout

__all__ = ["COUNTS", "GENES", "MixcrReader"]

_SEQUENCES = ("aaSeqCDR3", "AA. Seq. CDR3", "aaSeqImputedCDR3", "AA. Seq. imputed CDR3")
_NUCLEOTIDES = ("nSeqCDR3", "N. Seq. CDR3", "nSeqImputedCDR3", "N. Seq. imputed CDR3")
COUNTS = (
    "uniqueCellCount",
    "uniqueMoleculeCount",
    "uniqueUMICount",
    "uniqueTagCountMolecule",
    "uniqueTagCountUMI",
    "cloneCount",
    "Clone count",
    "readCount",
)
"""Columns of counts, in this order: cells, molecules, reads."""

GENES = (
    "all{}HitsWithScore",
    "best{}Hit",
    "best{}Gene",
    "{}Hit",
    "{}Gene",
    "all{}Hits",
    "all{}Genes",
    "All {} hits",
    "Best {} hit",
    "Best {} gene",
    "All {} genes",
    "best{}Family",
    "Best {} family",
)
"""Columns of a gene's name, where {} is V or J; families last."""


class MixcrReader:
    """A reader of tables with MiXCR's column of CDR3s, which has the conserved residues: it is the junction.

    Cells are preferred to molecules, molecules to reads.
    """

    name = "mixcr"
    recognised_by = "aaSeqCDR3 | AA. Seq. CDR3 | aaSeqImputedCDR3 | nSeqCDR3"

    def find_layout(self, header: Header) -> Layout | None:
        """Return the columns of a table of clones; nucleotides are translated if there are no amino acids."""
        sequence, nucleotides = header.find(*_SEQUENCES), header.find(*_NUCLEOTIDES)
        if sequence is None and nucleotides is None:
            return None
        return Layout(
            junction_aa=sequence,
            junction=nucleotides if sequence is None else None,
            counts=header.find_all(*COUNTS),
            v_call=header.find_all(*(name.format("V") for name in GENES)),
            j_call=header.find_all(*(name.format("J") for name in GENES)),
            repertoire=header.find_repertoire_columns("tagValueSAMPLE"),
            locus=header.find("topChains", "chains"),
        )
