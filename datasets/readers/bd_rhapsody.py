"""BD Rhapsody's tables of contigs: `*_VDJ_Dominant_Contigs.csv`, `*_VDJ_Unfiltered_Contigs.csv`, `*_perCellChain.csv`.

Their headers are those of the pipeline's versions 1.9 and 1.10, whose files stand in the test data of scirpy
(https://github.com/scverse/scirpy, `src/scirpy/tests/data/bd`, read there by `read_bd_rhapsody`). Later versions write
`*_VDJ_Dominant_Contigs_AIRR.tsv`, which is AIRR.
"""

from __future__ import annotations

from collections.abc import Mapping

from deeprc.datasets.readers.layout import Header, Layout, NoTableError, Status, parse_boolean

__all__ = ["BdRhapsodyReader"]

_TRUSTED = ("Putative_Cell", "Putative", "Dominant")
_PER_CELL = ("TCR_Beta_Delta_CDR3_Translation_Dominant", "BCR_Heavy_CDR3_Translation_Dominant")


class BdRhapsodyReader:
    """A reader of tables `Cell_Index Chain_Type ... V_gene J_gene ... Productive ... CDR3_Translation ...`.

    In the table of dominant contigs the genes and the CDR3 end in `_Dominant`. The CDR3 lacks the conserved residues of
    the junction. The count of a sequence is the number of its cells, not of the molecules (`Molecule_Count`) or reads
    seen in them. Contigs that are not of a putative cell, or not the dominant one of their cell and chain, are left
    out.
    """

    name = "bd-rhapsody"
    recognised_by = "Cell_Index, Chain_Type, CDR3_Translation | CDR3_Translation_Dominant"

    def find_layout(self, header: Header) -> Layout | None:
        """Return the columns of a table of contigs.

        Raises
        ------
        NoTableError
            If it is the table of cells, which has several chains in each row.
        """
        cell, chain = header.find("Cell_Index"), header.find("Chain_Type")
        sequence = header.find("CDR3_Translation_Dominant", "CDR3_Translation")
        per_cell = header.find(*_PER_CELL)
        if cell is not None and per_cell is not None:
            prefix = per_cell.removesuffix("CDR3_Translation_Dominant")
            raise NoTableError(
                f"{header.path}: BD Rhapsody's table of cells, which has several chains in each row; give "
                "*_VDJ_Dominant_Contigs_AIRR.tsv or *_VDJ_Dominant_Contigs.csv instead, or read the CDR3s of one "
                f"chain, without their conserved ends, by `sequence_column={per_cell}`, "
                f"`v_column={prefix}V_gene_Dominant` and `j_column={prefix}J_gene_Dominant`"
            )
        if cell is None or chain is None or sequence is None:
            return None
        return Layout(
            cdr3_aa=sequence,
            v_call=header.find_all("V_gene_Dominant", "V_gene"),
            j_call=header.find_all("J_gene_Dominant", "J_gene"),
            status=header.find_all(*_TRUSTED, "Productive"),
            choose_status=_choose_status,
            repertoire=header.find_repertoire_columns(),
            locus=chain,
            cell=cell,
        )


def _choose_status(values: Mapping[str, str]) -> Status:
    """Return the status of a contig."""
    flags = {column.lower(): parse_boolean(column, value) for column, value in values.items()}
    if any(flags.get(name.lower()) is False for name in _TRUSTED):
        return Status.LOW_CONFIDENCE
    productive = flags.get("productive")
    if productive is None:
        return Status.UNKNOWN
    return Status.IN_FRAME if productive else Status.UNPRODUCTIVE
