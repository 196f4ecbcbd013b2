"""BD Rhapsody's exports: tables of contigs below comment lines, made by hand under the true headers."""

import pytest

from deeprc.datasets.cleaning import Cleaning, clean
from deeprc.datasets.readers import COUNT_CELLS, Status
from deeprc.errors import InputError
from tests.toys.repertoire_tables import read_repertoire, read_with_format

BD_DOMINANT = (
    "Cell_Index Chain_Type Contig_ID Read_Count Molecule_Count V_gene_Dominant D_gene_Dominant J_gene_Dominant "
    "C_gene_Dominant V_gene_E_value J_gene_E_value Full_Length Productive CDR3_Nucleotide_Dominant "
    "CDR3_Translation_Dominant FR4_Nucleotide_Dominant FR4_Translation_Dominant"
)
BD_UNFILTERED = (
    "Cell_Index Chain_Type Contig_ID Read_Count Molecule_Count V_gene D_gene J_gene C_gene Full_Length Productive "
    "CDR3_Nucleotide CDR3_Translation FR4_Nucleotide FR4_Translation Putative_Cell CDR3_Length Dominant"
)
BD_PER_CELL_CHAIN = (
    "Cell_Index Chain_Type V_gene D_gene J_gene C_gene CDR3_Nucleotide CDR3_Translation Productive Read_Count "
    "Molecule_Count Putative"
)
COMMENTS = """####################
## BD Rhapsody Targeted Analysis Pipeline Version 1.10
## Analysis Date - Tue Jan 04 2022 20:35:09 GMT+0000 (Coordinated Universal Time)
## Parameters - Sample Tag Version: None | Sample Tag Names:  | VDJ Version: human, Subsample: None
####################
"""
AIRR = (
    "cell_id cell_type_experimental high_quality_cell_tcr_bcr locus consensus_count duplicate_count productive v_call "
    "j_call cdr3_aa"
)


def write(path, header, *rows, delimiter=","):
    names = header.split()
    lines = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    path.write_text(COMMENTS + "".join(delimiter.join(line) + "\n" for line in lines))
    return path


def contig(cell, chain, cdr3, **others):
    gene = {"TCR_Beta": "TRB", "TCR_Alpha": "TRA", "BCR_Heavy": "IGH", "BCR_Kappa": "IGK"}[chain]
    end = others.pop("end", "")
    values = {"Cell_Index": cell, "Chain_Type": chain, "Productive": True, "Read_Count": 40, "Molecule_Count": 7}
    values |= {f"V_gene{end}": f"{gene}V5-1*01", f"J_gene{end}": f"{gene}J2-1*01", f"CDR3_Translation{end}": cdr3}
    return values | others


def test_dominant_contigs_are_counted_by_cells(tmp_path):
    rows = [
        contig(742, "TCR_Beta", "ASSLGQGWNEQF", end="_Dominant"),
        contig(742, "BCR_Heavy", "ARQVAYSHELDY", end="_Dominant"),
        contig(800, "TCR_Beta", "ASSLGQGWNEQF", end="_Dominant", Read_Count=1, Molecule_Count=1),
        contig(801, "TCR_Beta", "ASSF*GWNEQF", end="_Dominant", Productive=False),
        contig(802, "TCR_Beta", "", end="_Dominant", Productive=False),
    ]
    name, found = read_with_format(write(tmp_path / "d.csv", BD_DOMINANT, *rows))
    assert name == "bd-rhapsody"
    cleaned = clean(found, Cleaning(locus="TRB"))
    assert cleaned.loci == {"TRB": 2, "IGH": 1}
    assert cleaned.counts_from == {COUNT_CELLS: 2}
    assert cleaned.sequences.counts.tolist() == [2]
    assert cleaned.sequences.v_call.vocabulary == ("TRBV5-1",)
    assert cleaned.sequences.j_call.vocabulary == ("TRBJ2-1",)
    assert {reason: n for reason, n in cleaned.dropped.items() if n} == {
        "stop_codon": 1,
        "unproductive": 1,
        "other_locus": 1,
    }


def test_the_cdr3_is_completed_to_the_junction(tmp_path):
    rows = [contig(i, "TCR_Beta", f"ASSL{'A' * i}QF", end="_Dominant") for i in range(12)]
    rows.append(contig(20, "BCR_Heavy", "ARQVAYSHELDY", end="_Dominant"))
    _, found = read_with_format(write(tmp_path / "d.csv", BD_DOMINANT, *rows))
    cleaned = clean(found)
    text = "".join("ACDEFGHIKLMNPQRSTVWY"[code] for code in cleaned.sequences.residues)
    assert text.startswith("CASSLQFFCASSLAQFF")
    assert text.endswith("CARQVAYSHELDYW")
    assert cleaned.sequences_from == {"cdr3_aa": 13}


def test_of_unfiltered_contigs_the_dominant_ones_of_cells_are_trusted(tmp_path):
    rows = [
        contig(1, "TCR_Beta", "ASSLF", Putative_Cell=True, Dominant=True),
        contig(1, "TCR_Beta", "ASSLY", Putative_Cell=True, Dominant=False),
        contig(2, "TCR_Beta", "ASSLF", Putative_Cell=False, Dominant=False),
        contig(3, "BCR_Kappa", "QQYT", Putative_Cell=True, Dominant=True, Productive=False),
    ]
    name, found = read_with_format(write(tmp_path / "u.csv", BD_UNFILTERED, *rows))
    assert name == "bd-rhapsody"
    expected = [Status.IN_FRAME, Status.LOW_CONFIDENCE, Status.LOW_CONFIDENCE, Status.UNPRODUCTIVE]
    assert found.status.tolist() == [int(status) for status in expected]
    assert clean(found).loci == {"TRB": 1}


def test_contigs_of_version_1_9(tmp_path):
    rows = [contig(1, "TCR_Alpha", "AAGQNFV", Putative=False), contig(39, "TCR_Alpha", "ATWDEYY", Putative=True)]
    name, found = read_with_format(write(tmp_path / "c.csv", BD_PER_CELL_CHAIN, *rows))
    assert name == "bd-rhapsody"
    assert found.status.tolist() == [int(Status.LOW_CONFIDENCE), int(Status.IN_FRAME)]


def test_the_airr_table_of_later_versions_counts_cells_too(tmp_path):
    row = {"cell_id": 1, "locus": "TRB", "duplicate_count": 40, "productive": "T", "v_call": "TRBV5-1*01"}
    rows = [row | {"cdr3_aa": "ASSLF"}, row | {"cdr3_aa": "ASSLF", "cell_id": 2}]
    name, found = read_with_format(write(tmp_path / "a.tsv", AIRR, *rows, delimiter="\t"))
    assert name == "airr"
    assert clean(found).sequences.counts.tolist() == [2]


def test_the_airr_table_of_unfiltered_contigs(tmp_path):
    row = {"cell_id": 1, "locus": "TRB", "productive": "T", "cdr3_aa": "ASSLF"}
    flags = [("T", "T"), ("T", "F"), ("F", "T")]
    rows = [row | {"putative_cell": cell, "dominant": dominant} for cell, dominant in flags]
    _, found = read_with_format(write(tmp_path / "a.tsv", f"{AIRR} putative_cell dominant", *rows, delimiter="\t"))
    assert found.status.tolist() == [int(Status.IN_FRAME)] + 2 * [int(Status.LOW_CONFIDENCE)]


def test_the_table_of_cells_says_what_to_give_instead(tmp_path):
    header = "Cell_Index Total_VDJ_Read_Count TCR_Beta_Delta_V_gene_Dominant TCR_Beta_Delta_CDR3_Translation_Dominant"
    path = write(tmp_path / "p.csv", header, {"Cell_Index": 1})
    with pytest.raises(InputError, match=r"p\.csv: BD Rhapsody's table of cells.*_VDJ_Dominant_Contigs_AIRR\.tsv"):
        read_repertoire(path)
