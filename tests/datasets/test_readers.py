"""Each format's layout, from headers and rows like the real exports'."""

import re
from pathlib import Path

import pytest

from deeprc.datasets.cleaning import clean
from deeprc.datasets.readers import (
    FORMATS,
    READERS,
    GenericReader,
    Header,
    SequenceKind,
    Status,
    choose_reader,
    match_reader,
    read_header,
    read_rows,
)
from deeprc.errors import InputError
from tests.toys.repertoire_tables import read_repertoire

IMMUNOSEQ_OLD = (
    "nucleotide aminoAcid COUNT frequencyCount_(%) cdr3Length vMaxResolved vFamilyName vGeneName vGeneNameTies "
    "jMaxResolved jFamilyName jGeneName sequenceStatus"
)
IMMUNOSEQ_2013 = (
    "sequenceID container nucleotide aminoAcid normalizedFrequency normalizedCopy rawFrequency copy cdr3Length "
    "VFamilyName VGeneName VTies DGeneName JGeneName JTies VDeletion d5Deletion d3Deletion JDeletion n2Insertion "
    "n1Insertion sequenceStatus VIndex n1Index n2Index DIndex JIndex"
)
IMMUNOSEQ_SHORT = "sample_name productive_frequency templates amino_acid rearrangement v_resolved d_resolved j_resolved"
MIXCR_1 = (
    "Clone count|Clone fraction|Clonal sequence(s)|Clonal sequence quality(s)|All V hits|All D hits|All J hits|"
    "All C hits|All V alignment|N. Seq. CDR3|Min. qual. CDR3|AA. seq. FR3|AA. seq. CDR3|AA. seq. FR4"
)
MIXCR_3 = (
    "cloneId cloneCount cloneFraction clonalSequence clonalSequenceQuality allVHitsWithScore allDHitsWithScore "
    "allJHitsWithScore allCHitsWithScore allVAlignments nSeqCDR3 minQualCDR3 aaSeqFR3 aaSeqCDR3 aaSeqFR4 refPoints"
)
MIXCR_4 = (
    "cloneId readCount readFraction uniqueMoleculeCount uniqueMoleculeFraction targetSequences targetQualities "
    "allVHitsWithScore allDHitsWithScore allJHitsWithScore allCHitsWithScore nSeqCDR3 minQualCDR3 aaSeqCDR3 refPoints "
    "topChains isotypePrimary"
)
TENX = (
    "barcode is_cell contig_id high_confidence length chain v_gene d_gene j_gene c_gene full_length productive cdr3 "
    "cdr3_nt reads umis raw_clonotype_id raw_consensus_id"
)
IMMUNARCH = "Clones Proportion CDR3.nt CDR3.aa V.name D.name J.name V.end D.start D.end J.start VJ.ins VD.ins DJ.ins"
HEADERS = {
    "airr": [
        "sequence_id sequence rev_comp productive v_call d_call j_call junction junction_aa duplicate_count",
        "cell_id productive v_call j_call junction_aa consensus_count umi_count is_cell",
        "junction_aa duplicate_count",
        "junction_aa v_call j_call templates",
        "sequence_id v_call j_call cdr3_aa cdr3 locus",
        "sequence_id junction v_call j_call",
        "SEQUENCE_ID FUNCTIONAL IN_FRAME STOP V_CALL J_CALL JUNCTION DUPCOUNT",
    ],
    "immunoseq": [
        IMMUNOSEQ_OLD.replace("COUNT", "count (templates/reads)"),
        IMMUNOSEQ_OLD.replace("COUNT", "count (templates)"),
        IMMUNOSEQ_OLD.replace("COUNT", "count (reads)"),
        IMMUNOSEQ_OLD.replace("COUNT", "count"),
        IMMUNOSEQ_2013,
        IMMUNOSEQ_SHORT,
        "rearrangement amino_acid frame_type rearrangement_type templates reads v_gene j_gene locus",
        "rearrangement extended_rearrangement bio_identity amino_acid templates frame_type v_gene j_gene v_resolved",
        "bio_identity cdr3_amino_acid templates v_resolved j_resolved",
    ],
    "mixcr": [
        MIXCR_3,
        MIXCR_4,
        "cloneId cloneCount bestVHit bestJHit aaSeqImputedCDR3 nSeqImputedCDR3",
        "subject cloneId cloneCount bestVGene bestJGene bestVFamily aaSeqCDR3 nSeqCDR3",
        "cloneCount nSeqCDR3 vGene jGene",
    ],
    "10x": [
        TENX,
        f"sample {TENX} exact_subclonotype_id",
        TENX.replace("cdr3 cdr3_nt", "fwr1 fwr1_nt cdr1 cdr1_nt fwr2 fwr2_nt cdr2 cdr2_nt fwr3 fwr3_nt cdr3 cdr3_nt"),
    ],
    "bd-rhapsody": [
        "Cell_Index Chain_Type V_gene_Dominant J_gene_Dominant Productive CDR3_Translation_Dominant",
        "Cell_Index Chain_Type V_gene J_gene CDR3_Translation Productive Putative",
    ],
    "vdjtools": [
        "count freq cdr3nt cdr3aa v d j VEnd DStart DEnd JStart",
        "#count freq cdr3nt cdr3aa v d j",
        "count frequency CDR3nt CDR3aa V D J",
    ],
    "immunarch": [
        IMMUNARCH,
        f"{IMMUNARCH} Sequence chain Barcode ContigID",
        "Umi.count Read.count CDR3.nucleotide.sequence CDR3.amino.acid.sequence V.gene J.gene D.gene",
    ],
    "tcrex": [" count freq cdr3nt CDR3_beta TRBV_gene d TRBJ_gene VEnd", "TRBV_gene CDR3_beta TRBJ_gene"],
    "deeprc": ["amino_acid templates", "templates amino_acid"],
}
CASES = [(name, header) for name, headers in HEADERS.items() for header in headers]


def columns_of(header):
    """Split at blanks; `count (templates)` is one column."""
    return [name.replace("\0", " ") for name in header.replace("count (", "count\0(").split(" ")]


def read(write_table, tmp_path, header, *rows, name="r.tsv"):
    """Read rows of `a|b|c`; a header with `|` may have blanks in its names."""
    names = header.split("|") if "|" in header else header.split()
    return read_repertoire(write_table(tmp_path / name, names, [row.split("|") for row in rows]))


def filled(header, **values):
    """Return a row with values in some of the columns, nothing in the others."""
    return "|".join(str(values.get(name, "")) for name in header.split())


def statuses(table):
    return [Status(value).name for value in table["status"]]


def names(table, column):
    return table[column].astype(object).tolist()


@pytest.mark.parametrize(("name", "header"), CASES)
@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz"])
def test_the_header_alone_names_the_format(write_table, tmp_path, name, header, ending):
    path = write_table(tmp_path / f"r{ending}", columns_of(header), [])
    claims = [reader.name for reader in READERS if reader.find_layout(read_header(path)) is not None]
    assert claims == [name], "several readers know this header: see docs/architecture.md, Before you write a reader"
    assert read_repertoire(path).empty


@pytest.mark.parametrize(("name", "header"), CASES)
def test_upper_and_lower_case_are_the_same(name, header):
    header = header.removeprefix("#")
    for columns in (columns_of(header.lower()), columns_of(header.upper())):
        assert match_reader(Header(Path("r.tsv"), tuple(columns))).reader.name == name


def test_every_format_can_be_named():
    assert ("auto", *(reader.name for reader in READERS), "generic") == FORMATS
    assert len(set(FORMATS)) == len(FORMATS)
    for reader in READERS:
        assert choose_reader(reader.name) is reader
    assert choose_reader() is None


def test_every_format_has_headers_here_and_a_row_in_the_docs():
    assert HEADERS.keys() == {reader.name for reader in READERS}
    text = (Path(__file__).parents[2] / "docs" / "file-format.md").read_text()
    table = text.split("| `--format` | recognised by |")[1].split("\n\n")[0]
    documented = dict.fromkeys(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE))  # some formats have several rows
    assert ("auto", *documented) == FORMATS


# --- AIRR -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("productive", "stop_codon", "vj_in_frame", "expected"),
    [
        ("T", "F", "T", "IN_FRAME"),
        ("true", "", "", "IN_FRAME"),
        ("TRUE", "", "", "IN_FRAME"),
        ("1", "", "", "IN_FRAME"),
        ("1.0", "", "", "IN_FRAME"),
        ("Y", "", "", "IN_FRAME"),
        ("yes", "", "", "IN_FRAME"),
        ("F", "T", "T", "STOP_CODON"),
        ("False", "F", "F", "OUT_OF_FRAME"),
        ("0", "T", "F", "OUT_OF_FRAME"),
        ("no", "", "", "UNPRODUCTIVE"),
        ("f", "F", "T", "UNPRODUCTIVE"),
        ("", "", "", "UNKNOWN"),
        ("NA", "null", "None", "UNKNOWN"),
        ("", "T", "", "STOP_CODON"),
        ("", "", "F", "OUT_OF_FRAME"),
        ("", "F", "T", "UNKNOWN"),
    ],
)
def test_airr_productive_and_its_reasons(write_table, tmp_path, productive, stop_codon, vj_in_frame, expected):
    row = f"CASSF|{productive}|{stop_codon}|{vj_in_frame}"
    table = read(write_table, tmp_path, "junction_aa productive stop_codon vj_in_frame", row)
    assert statuses(table) == [expected]


def test_airr_productive_of_another_kind_is_an_error(write_table, tmp_path):
    with pytest.raises(InputError) as error:
        read(write_table, tmp_path, "junction_aa productive", "CASSF|T", "CAF|maybe", "CAF|perhaps")
    assert str(error.value) == (
        f"{tmp_path}/r.tsv: row 3, column 'productive': "
        "expected T, F (also true/false, yes/no, 1/0) or nothing; found 'maybe'"
    )


def test_airr_counts_fall_back_row_by_row(write_table, tmp_path):
    header = "junction_aa consensus_count duplicate_count umi_count v_call j_call"
    rows = ["CA|9|5|7|V1|J1", "CC|9||7||", "CD|9||NA|V2|J1", "CE|||null|.|J2"]
    table = read(write_table, tmp_path, header, *rows)
    assert table["junction_aa"].tolist() == ["CA", "CC", "CD", "CE"]
    assert table["duplicate_count"].tolist() == [5, 7, 9, 1]
    assert table["count_source"].tolist() == ["duplicate_count", "umi_count", "consensus_count", "(one)"]
    assert names(table, "v_call") == ["V1", "", "V2", ""]
    assert names(table, "j_call") == ["J1", "", "J1", "J2"]
    assert statuses(table) == ["UNKNOWN"] * 4


def test_airr_quoted_fields(tmp_path):
    path = tmp_path / "r.tsv"
    path.write_text('"sequence_id"\t"productive"\t"junction_aa"\n"a\tb"\t"T"\t"CASSF"\n"two\nlines"\t"F"\t"CA*F"\n')
    table = read_repertoire(path)
    assert table["junction_aa"].tolist() == ["CASSF", "CA*F"]
    assert statuses(table) == ["IN_FRAME", "UNPRODUCTIVE"]


def test_airr_takes_the_first_sequence_that_a_row_has(write_table, tmp_path):
    header = "junction_aa cdr3_aa junction"
    rows = ["CASSF|ASS|TGTGCC", "|ASSLG|TGTGCC", "NA||tgtgccTGG", "|null|TGTGCCTG", "||TGTNCCTGA", "||"]
    path = write_table(tmp_path / "r.tsv", header.split(), [row.split("|") for row in rows])
    assert read_repertoire(path)["junction_aa"].tolist() == ["CASSF", "ASSLG", "CAW", "CA_", "CX*", ""]
    header = read_header(path)
    kinds = [SequenceKind(kind).name for kind in read_rows(header, match_reader(header).layout).kinds[:5]]
    assert kinds == ["JUNCTION_AA", "CDR3_AA", "JUNCTION", "JUNCTION", "JUNCTION"]


@pytest.mark.parametrize(
    ("header", "row", "kind"),
    [("cdr3_aa v_call", "ASS|V1", SequenceKind.CDR3_AA), ("junction v_call", "TGTGCC|V1", SequenceKind.JUNCTION)],
)
def test_airr_with_one_column_of_sequences(write_table, tmp_path, header, row, kind):
    header = read_header(write_table(tmp_path / "r.tsv", header.split(), [row.split("|")]))
    assert read_rows(header, match_reader(header).layout).kinds.tolist() == [kind]


def test_airr_repertoires_and_loci(write_table, tmp_path):
    header = "repertoire_id sample_id locus junction_aa"
    table = read(write_table, tmp_path, header, "A|x|TRB|CASSF", "B|x|TRA|CATTF", "|x||CAF")
    assert names(table, "repertoire_id") == ["A", "B", ""]
    assert names(table, "locus") == ["TRB", "TRA", ""]
    assert names(read(write_table, tmp_path, "sample_id junction_aa", "x|CAF"), "repertoire_id") == ["x"]


@pytest.mark.parametrize(
    ("header", "rows", "cells", "counts"),
    [
        ("cell_id junction_aa umi_count consensus_count", ["a|CAF|7|90", "b|CAF|2|8"], ["a", "b"], [1, 1]),
        ("cell_id junction_aa duplicate_count is_cell", ["a|CAF|7|T", "b|CAF|2|T"], ["a", "b"], [1, 1]),
        ("cell_id junction_aa duplicate_count", ["a|CAF|7", "|CAF|2"], None, [7, 2]),
        ("cell_id junction_aa umi_count consensus_count", ["|CAF|7|90", "|CAF|2|8"], None, [7, 2]),
        ("cell_id junction_aa duplicate_count is_cell", ["|CAF|7|T", "|CAF|2|T"], None, [7, 2]),
        ("cell_id junction_aa", ["a|CAF", "|CAF", "|CAF"], ["a", "", ""], [1, 1, 1]),
        ("cell_id junction_aa", ["|CAF", "|CAF"], None, [1, 1]),
    ],
)
def test_airr_counts_cells_where_the_table_is_of_single_cells(write_table, tmp_path, header, rows, cells, counts):
    table = read(write_table, tmp_path, header, *rows)
    assert (names(table, "cell_id") if "cell_id" in table else None) == cells
    assert table["duplicate_count"].tolist() == counts


def test_a_row_without_a_cell_is_a_cell_of_its_own(write_table, tmp_path):
    rows = [("a", "CAF"), ("", "CAF"), ("na", "CAF"), ("a", "CAF")]
    header = read_header(write_table(tmp_path / "r.tsv", ["cell_id", "junction_aa"], rows))
    found = read_rows(header, match_reader(header).layout)
    assert found.cell.names().tolist() == ["a", "", "", "a"]
    assert clean(found).sequences.counts.tolist() == [3]


def test_airr_rows_that_are_no_cell(write_table, tmp_path):
    header = "cell_id junction_aa is_cell productive"
    table = read(write_table, tmp_path, header, "a|CAF|T|T", "b|CAF|F|T", "c|CAF||F")
    assert statuses(table) == ["IN_FRAME", "LOW_CONFIDENCE", "UNPRODUCTIVE"]


def test_an_empty_column_of_changeo_leaves_the_decision_to_that_of_airr(write_table, tmp_path):
    header = "junction_aa productive functional vj_in_frame in_frame"
    table = read(write_table, tmp_path, header, "CAF|F|||", "CAF|||F|", "CAF||T||")
    assert statuses(table) == ["UNPRODUCTIVE", "OUT_OF_FRAME", "IN_FRAME"]


def test_airr_challenge_files(write_table, tmp_path):
    header = "junction_aa v_call j_call templates"
    table = read(write_table, tmp_path, header, "CASSF|TRBV19|TRBJ2-1|4", "CATTF|TRBV2|TRBJ1-1|-1")
    assert table["duplicate_count"].tolist() == [4, 1]
    assert names(table, "count_source") == ["templates", "templates"]


def test_changeo(write_table, tmp_path):
    header = "FUNCTIONAL IN_FRAME STOP V_CALL J_CALL JUNCTION DUPCOUNT"
    table = read(write_table, tmp_path, header, "T|T|F|IGHV1-2*01|IGHJ4|TGTGCGTGG|3", "F|F|T|||TGTG|1")
    assert table["junction_aa"].tolist() == ["CAW", "C_"]
    assert table["duplicate_count"].tolist() == [3, 1]
    assert statuses(table) == ["IN_FRAME", "OUT_OF_FRAME"]


# --- immunoSEQ and the original DeepRC ------------------------------------------------------------------


@pytest.mark.parametrize("count", ["count (templates/reads)", "count (templates)", "count (reads)", "count"])
def test_immunoseq_camel_case(write_table, tmp_path, count):
    header = columns_of(IMMUNOSEQ_OLD.replace("COUNT", count))
    v = [
        ("TCRBV19-01*01", "TCRBV19", "TCRBV19-01", ""),
        ("unresolved", "TCRBV06", "unresolved", "TCRBV06-02,TCRBV06-03"),
        ("TCRBV12", "", "unresolved", "TCRBV12-03,TCRBV12-04"),
        ("unresolved", "NA", "NA", ""),
    ]
    j = [("TCRBJ01-01*01", "TCRBJ01", "TCRBJ01-01"), ("TCRBJ01-02*01", "TCRBJ01", "TCRBJ01-02")]
    j += [("TCRBJ02", "TCRBJ02", "null"), ("unresolved", "", "null")]
    firsts = [("CASSF", 12), ("", 3), ("CA*F", "null"), ("NA", "-1")]
    rows = [
        ("ACGT", *first, 0.1, 15, *genes, *joining, status)
        for first, genes, joining, status in zip(firsts, v, j, ["In", "Out", "Stop", "NA"], strict=True)
    ]
    table = read_repertoire(write_table(tmp_path / "r.tsv", header, rows))
    assert table["junction_aa"].tolist() == ["CASSF", "", "CA*F", ""]
    assert table["duplicate_count"].tolist() == [12, 3, 1, 1]
    assert names(table, "count_source") == [count, count, "(one)", count]
    assert names(table, "v_call") == ["TCRBV19-01", "TCRBV06-02,TCRBV06-03", "TCRBV12-03,TCRBV12-04", ""]
    assert names(table, "j_call") == ["TCRBJ01-01", "TCRBJ01-02", "TCRBJ02", ""]
    assert statuses(table) == ["IN_FRAME", "OUT_OF_FRAME", "STOP_CODON", "UNKNOWN"]


def test_immunoseq_before_2014(write_table, tmp_path):
    rows = [
        {"aminoAcid": "CASSPPGQF", "VFamilyName": 28, "VGeneName": "TRBV28", "sequenceStatus": "Productive"},
        {"aminoAcid": "", "VFamilyName": 11, "VGeneName": "(undefined)", "VTies": "TRBV7-2, TRBV11-2"},
        {"aminoAcid": "CA*F", "VFamilyName": 6, "VGeneName": "(undefined)", "sequenceStatus": "Has stop"},
    ]
    rows[1]["sequenceStatus"] = "Out of frame"
    values = [filled(IMMUNOSEQ_2013, copy=copy, normalizedCopy=20, **row) for copy, row in enumerate(rows, start=2)]
    table = read(write_table, tmp_path, IMMUNOSEQ_2013, *values)
    assert table["junction_aa"].tolist() == ["CASSPPGQF", "", "CA*F"]
    assert table["duplicate_count"].tolist() == [2, 3, 4]
    assert names(table, "count_source") == ["copy"] * 3
    assert names(table, "v_call") == ["TRBV28", "TRBV7-2, TRBV11-2", ""]
    assert statuses(table) == ["IN_FRAME", "OUT_OF_FRAME", "STOP_CODON"]


def test_immunoseq_snake_case(write_table, tmp_path):
    header = "rearrangement amino_acid frame_type templates reads v_family v_gene j_gene sample_name locus"
    rows = [
        "A|CASSF|In|654|null|TCRBV19|TCRBV19-01|J1|HIP1|TCRB",
        "A|CAF|In|null|40|TCRBV06|unresolved|J1|HIP1|TCRB",
        "A|na|Out|-1|no data|||J1|HIP1|",
        "A|CATF|In|-1|7|unknown|unresolved|J1|HIP1|",
    ]
    table = read(write_table, tmp_path, header, *rows)
    assert table["junction_aa"].tolist() == ["CASSF", "CAF", "", "CATF"]
    assert table["duplicate_count"].tolist() == [654, 40, 1, 1]
    assert names(table, "count_source") == ["templates", "reads", "templates", "templates"]
    assert names(table, "v_call") == ["TCRBV19-01", "TCRBV06", "", ""]
    assert names(table, "locus") == ["TCRB", "TCRB", "", ""]
    assert names(table, "repertoire_id") == ["HIP1"] * 4
    assert statuses(table) == ["IN_FRAME", "IN_FRAME", "OUT_OF_FRAME", "IN_FRAME"]


def test_immunoseq_of_2020(write_table, tmp_path):
    header = (
        "rearrangement extended_rearrangement bio_identity amino_acid templates frame_type v_family v_gene v_resolved"
    )
    rows = [
        "A|unknown|X+TCRBV28-01+TCRBJ02-07|na|1135|Out|TCRBV28|TCRBV28-01|TCRBV28-01*01",
        "A|AA|CASSF+TCRBV05-04+TCRBJ01-02|CASSF|1300|In|TCRBV12|unresolved|TCRBV12",
        "A|AA|CAF+X+TCRBJ01-02|CAF|2|Stop|unknown|unresolved|unknown",
    ]
    table = read(write_table, tmp_path, header, *rows)
    assert table["junction_aa"].tolist() == ["", "CASSF", "CAF"]
    assert names(table, "v_call") == ["TCRBV28-01", "TCRBV12", ""]
    assert statuses(table) == ["OUT_OF_FRAME", "IN_FRAME", "STOP_CODON"]


def test_immunoseq_short_sample_export(write_table, tmp_path):
    row = "NOD_Treg|0.0021|150|CASSIRDRDEQYF|TTTTCT|TCRBV19-01*01|TCRBD01-01*01|TCRBJ02-07*01"
    table = read(write_table, tmp_path, IMMUNOSEQ_SHORT, row)
    assert table["junction_aa"].tolist() == ["CASSIRDRDEQYF"]
    assert table["duplicate_count"].tolist() == [150]
    assert names(table, "v_call") == ["TCRBV19-01*01"]
    assert names(table, "j_call") == ["TCRBJ02-07*01"]
    assert names(table, "repertoire_id") == ["NOD_Treg"]
    assert statuses(table) == ["UNKNOWN"]


def test_immunoseq_unknown_frame_type_is_an_error(write_table, tmp_path):
    header = "rearrangement amino_acid frame_type templates"
    with pytest.raises(InputError, match="row 2, column 'frame_type': expected In, Out or Stop; found 'Up'"):
        read(write_table, tmp_path, header, "A|CASSF|Up|1")


def test_original_deeprc(write_table, tmp_path):
    table = read(write_table, tmp_path, "amino_acid templates", "CASSF|3", "CAF|1.0", "CATF|-1")
    assert table["duplicate_count"].tolist() == [3, 1, 1]
    assert "v_call" not in table


# --- MiXCR and 10x --------------------------------------------------------------------------------------


def test_mixcr_1(write_table, tmp_path):
    values = {"Clone count": "16988.0", "All V hits": "TRBV13*00(401.5)", "All J hits": "TRBJ2-4*00(203.8)"}
    rows = [values | {"AA. seq. CDR3": "CASSF"}, values | {"Clone count": 2, "AA. seq. CDR3": "CASSLG_NIQYF"}]
    lines = ["|".join(str(row.get(name, "")) for name in MIXCR_1.split("|")) for row in rows]
    table = read(write_table, tmp_path, MIXCR_1, *lines)
    assert table["junction_aa"].tolist() == ["CASSF", "CASSLG_NIQYF"]
    assert table["duplicate_count"].tolist() == [16988, 2]
    assert not table["count_rounded"].any()
    assert names(table, "v_call") == ["TRBV13*00"] * 2
    assert names(table, "j_call") == ["TRBJ2-4*00"] * 2


def test_mixcr_3(write_table, tmp_path):
    hits = "TRBV6-2*00(300),TRBV6-3*00(300),TRBV6-1*00(280)"
    row = filled(MIXCR_3, cloneCount="63510.0", aaSeqCDR3="CASSF", allVHitsWithScore=hits, nSeqCDR3="TGT")
    header = read_header(write_table(tmp_path / "r.tsv", MIXCR_3.split(), [row.split("|")]))
    rows = read_rows(header, match_reader(header).layout)
    assert rows.counts.tolist() == [63510]
    assert rows.v_call.get_name(0) == "TRBV6-2*00,TRBV6-3*00"
    assert rows.j_call.get_name(0) == ""
    table = clean(rows).sequences
    assert table.v_call.vocabulary[table.v_call.codes[0]] == "TRBV6-2,TRBV6-3"


def test_mixcr_4_takes_molecules_before_reads(write_table, tmp_path):
    values = {"readCount": 900, "aaSeqCDR3": "CASSF", "allVHitsWithScore": "TRBV19*00(400)", "topChains": "TRB"}
    rows = [filled(MIXCR_4, uniqueMoleculeCount=7, **values), filled(MIXCR_4, **values)]
    table = read(write_table, tmp_path, MIXCR_4, *rows)
    assert table["duplicate_count"].tolist() == [7, 900]
    assert names(table, "count_source") == ["uniqueMoleculeCount", "readCount"]
    assert names(table, "locus") == ["TRB", "TRB"]


def test_mixcr_imputed_sequences_and_families(write_table, tmp_path):
    header = "cloneCount bestVGene bestVFamily aaSeqImputedCDR3 nSeqImputedCDR3"
    table = read(write_table, tmp_path, header, "3|TRBV5-1|TRBV5|CASSf|TGT", "1||TRBV12|CAF|TGT")
    assert table["junction_aa"].tolist() == ["CASSf", "CAF"]
    assert names(table, "v_call") == ["TRBV5-1", "TRBV12"]


def test_mixcr_nucleotides_alone(write_table, tmp_path):
    table = read(write_table, tmp_path, "cloneCount nSeqCDR3", "3|TGTGCCTTC", "1|TGTGC")
    assert table["junction_aa"].tolist() == ["CAF", "C_"]


def test_10x(write_table, tmp_path):
    contigs = [
        {"barcode": "AA-1", "is_cell": "True", "high_confidence": "True", "productive": "True", "cdr3": "CASSF"},
        {"barcode": "AC-1", "is_cell": "true", "high_confidence": "true", "productive": "true", "cdr3": "CATTF"},
        {"barcode": "AG-1", "is_cell": "False", "high_confidence": "True", "productive": "True", "cdr3": "CAF"},
        {"barcode": "AT-1", "is_cell": "True", "high_confidence": "False", "productive": "True", "cdr3": "CAF"},
        {"barcode": "AA-1", "is_cell": "True", "high_confidence": "True", "productive": "None", "cdr3": "None"},
        {"barcode": "CA-1", "is_cell": "True", "high_confidence": "True", "productive": "False", "cdr3": "CAF"},
    ]
    common = {"chain": "TRB", "v_gene": "TRBV16", "d_gene": "None", "j_gene": "None", "umis": 4, "reads": 2692}
    table = read(write_table, tmp_path, TENX, *(filled(TENX, **common, **contig) for contig in contigs))
    assert table["junction_aa"].tolist() == ["CASSF", "CATTF", "CAF", "CAF", "", "CAF"]
    assert table["duplicate_count"].tolist() == [1] * 6
    assert names(table, "cell_id") == [contig["barcode"] for contig in contigs]
    assert names(table, "locus") == ["TRB"] * 6
    assert names(table, "v_call") == ["TRBV16"] * 6
    assert names(table, "j_call") == [""] * 6
    assert statuses(table) == ["IN_FRAME", "IN_FRAME", *["LOW_CONFIDENCE"] * 2, *["UNPRODUCTIVE"] * 2]


def test_10x_of_several_samples_and_without_flags(write_table, tmp_path):
    header = "sample barcode contig_id chain v_gene cdr3"
    table = read(write_table, tmp_path, header, "A|c|1|TRA|V|CAF", "B|c|2|TRA|V|CAF")
    assert names(table, "repertoire_id") == ["A", "B"]
    assert statuses(table) == ["UNKNOWN"] * 2


def test_rows_that_a_file_marks_as_bad_are_dropped(write_table, tmp_path):
    """A row is kept only if its status is in-frame or unknown."""
    rows = [("a", "F", "T", "CAF"), ("b", "T", "T", "CAF")]
    header = read_header(write_table(tmp_path / "r.tsv", ["cell_id", "is_cell", "productive", "junction_aa"], rows))
    rows = read_rows(header, match_reader(header).layout)
    assert clean(rows).kept == 1
    for status in set(Status) - {Status.UNKNOWN, Status.IN_FRAME}:
        rows.status[:] = status
        assert clean(rows).kept == 0, status.name


# --- the other formats ----------------------------------------------------------------------------------


def test_vdjtools(write_table, tmp_path):
    rows = ["38|0.12|TGT|CASSF|TRBV7-9|TRBD1|TRBJ2-1", "2|0.01|TGT|CA_SF|TRBV7-9|.|TRBJ2-2"]
    table = read(write_table, tmp_path, "#count freq cdr3nt cdr3aa v d j", *rows)
    assert table["junction_aa"].tolist() == ["CASSF", "CA_SF"]
    assert table["duplicate_count"].tolist() == [38, 2]
    assert table["v_call"].tolist() == ["TRBV7-9", "TRBV7-9"]
    assert table["j_call"].tolist() == ["TRBJ2-1", "TRBJ2-2"]


def test_tcrex_with_an_unnamed_index(write_table, tmp_path):
    header = ["", "count", "cdr3nt", "CDR3_beta", "TRBV_gene", "d", "TRBJ_gene"]
    path = write_table(tmp_path / "r.txt", header, [(0, 7, "TGT", "CASSF", "TRBV27", "TRBD1", "TRBJ2-1")])
    table = read_repertoire(path)
    assert table.drop(columns=["count_rounded", "status"]).to_dict("records") == [
        {
            "junction_aa": "CASSF",
            "duplicate_count": 7,
            "count_source": "count",
            "v_call": "TRBV27",
            "j_call": "TRBJ2-1",
        }
    ]


def test_tcrex_without_a_count(write_table, tmp_path):
    table = read(write_table, tmp_path, "TRBV_gene CDR3_beta TRBJ_gene", "V1|CASSF|J1")
    assert table["duplicate_count"].tolist() == [1]
    assert table["count_source"].tolist() == ["(one)"]


def test_immunarch(write_table, tmp_path):
    values = {"Clones": 173, "CDR3.nt": "TGT", "CDR3.aa": "CASSF", "V.name": "TRBV12-4, TRBV12-3", "J.name": "TRBJ2-1"}
    header = f"{IMMUNARCH} chain"
    table = read(write_table, tmp_path, header, filled(header, chain="TRB", **values))
    assert table["junction_aa"].tolist() == ["CASSF"]
    assert table["duplicate_count"].tolist() == [173]
    assert names(table, "v_call") == ["TRBV12-4, TRBV12-3"]
    assert names(table, "j_call") == ["TRBJ2-1"]
    assert names(table, "locus") == ["TRB"]


def test_immunarch_predecessor(write_table, tmp_path):
    header = "Umi.count Read.count CDR3.nucleotide.sequence CDR3.amino.acid.sequence V.gene J.gene"
    table = read(write_table, tmp_path, header, "NA|90|TGT|CASSF|TRBV19|TRBJ1-1", "4|90|TGT|CAF|TRBV19|TRBJ1-1")
    assert table["duplicate_count"].tolist() == [90, 4]


@pytest.mark.parametrize(("count_column", "counts"), [("n", [4, 2]), (None, [1, 1])])
def test_generic(write_table, tmp_path, count_column, counts):
    path = write_table(tmp_path / "r.csv", ["x", "seq, aa", "n"], [(1, "CASSF", 4), (2, "CAF", 2)], ";")
    table = read_repertoire(path, reader=GenericReader("seq, aa", count_column))
    assert table["junction_aa"].tolist() == ["CASSF", "CAF"]
    assert table["duplicate_count"].tolist() == counts


def test_generic_names_the_columns_that_there_are(write_table, tmp_path):
    path = write_table(tmp_path / "r.tsv", ["a", "b"], [])
    with pytest.raises(InputError, match=r"r\.tsv: no column 'seq'; the file's columns are a, b"):
        read_repertoire(path, reader=GenericReader("seq"))


# --- counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "count", "rounded"),
    [("12", 12, False), ("12.0", 12, False), ("1e3", 1000, False), (" 5 ", 5, False), ("2.6", 3, True)]
    + [("0.2", 1, True), ("0", 1, True), ("4294967295", 4294967295, False)]
    + [(word, 1, False) for word in ("", "null", "na", "NA", "no data", "NaN", "None", "n/a")],
)
def test_counts_that_can_be_used(write_table, tmp_path, value, count, rounded):
    path = write_table(tmp_path / "r.tsv", ["cdr3aa", "count"], [("CASSF", value)])
    table = read_repertoire(path)
    assert table["duplicate_count"].tolist() == [count]
    assert table["count_rounded"].tolist() == [rounded]


@pytest.mark.parametrize("value", ["abc", "-1", "-0.5", "4294967296", "inf", "1_000", "1,000", "12 3"])
def test_counts_that_cannot(write_table, tmp_path, value):
    path = write_table(tmp_path / "r.tsv", ["cdr3aa", "count"], [("CASSF", 2), ("CAF", value)])
    expected = "expected a number from 0 to 4294967295, or nothing"
    expected = f"{path}: row 3, column 'count': {expected}; found {value!r}"
    with pytest.raises(InputError, match=re.escape(expected)):
        read_repertoire(path)


@pytest.mark.parametrize("value", ["-2", "-1.5"])
def test_only_minus_one_is_one(write_table, tmp_path, value):
    path = write_table(tmp_path / "r.tsv", ["amino_acid", "templates"], [("CASSF", value)])
    with pytest.raises(InputError, match="row 2, column 'templates': expected a number from 0 to 4294967295"):
        read_repertoire(path)


# --- which reader ---------------------------------------------------------------------------------------


def test_a_header_that_no_reader_knows():
    header = Header(Path("x/r.tsv"), tuple(f"column{i}" for i in range(20)))
    with pytest.raises(InputError) as error:
        match_reader(header)
    message = str(error.value)
    assert message.startswith(
        "x/r.tsv: no reader knows this header; its first columns are column0, column1, column2, column3, "
        "column4, column5, column6, column7, .... Known formats: airr (junction_aa | cdr3_aa | junction); immunoseq ("
    )
    assert message.endswith("Any other table is read with `sequence_column` and `count_column`.")
    for name in FORMATS[2:-1]:
        assert f"; {name} (" in message


def test_of_two_readers_the_one_that_reads_more_is_taken():
    header = Header(Path("r.tsv"), ("aaSeqCDR3", "count", "CDR3_beta", "TRBV_gene", "TRBJ_gene"))
    reader, layout, remark = match_reader(header)
    assert reader.name == "tcrex"
    assert layout.columns == ("CDR3_beta", "count", "TRBV_gene", "TRBJ_gene")
    assert remark == (
        "read as tcrex: the header fits tcrex and mixcr (tcrex finds sequence, count, V gene, J gene; "
        "mixcr finds sequence)"
    )


def test_of_two_readers_that_read_the_same_the_first_is_taken():
    header = Header(Path("r.tsv"), ("CDR3_beta", "TRBV_gene", "cdr3aa", "count"))
    assert [each.find_layout(header).kinds for each in READERS if each.find_layout(header)] == [
        ("sequence", "count"),
        ("sequence", "count", "V gene"),
    ]
    header = Header(Path("r.tsv"), ("aaSeqCDR3", "cloneCount", "CDR3.aa", "Clones"))
    assert match_reader(header).reader.name == "mixcr"
    assert match_reader(header, choose_reader("immunarch")).layout.junction_aa == "CDR3.aa"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("aaSeqCDR3 count CDR3_beta TRBV_gene TRBJ_gene", ("count", "TRBV_gene", "TRBJ_gene")),
        ("aaSeqCDR3 Clones V.name J.name", ("Clones", "V.name", "J.name")),
        ("aaSeqCDR3 count v j", ("count", "v", "j")),
        ("aaSeqCDR3 DUPLICATE_COUNT V_call J_call v j count", ("DUPLICATE_COUNT", "V_call", "J_call")),
    ],
)
def test_a_chosen_format_reads_counts_and_genes_under_other_formats_names(columns, expected):
    _, layout, remark = match_reader(Header(Path("r.tsv"), tuple(columns.split())), choose_reader("mixcr"))
    assert (layout.junction_aa, *layout.counts, *layout.v_call, *layout.j_call) == ("aaSeqCDR3", *expected)
    assert remark == "read as mixcr: V gene from {1!r}, J gene from {2!r}, count from {0!r}".format(*expected)


def test_a_chosen_format_says_what_it_did_not_find():
    header = Header(Path("r.tsv"), ("aaSeqCDR3", "CDR3_beta"))
    remark = match_reader(header, choose_reader("mixcr")).remark
    assert remark == "read as mixcr: no column of count, V gene, J gene was found"
    assert match_reader(header).remark == ""


def test_templates_of_another_format_may_be_minus_one(write_table, tmp_path):
    path = write_table(tmp_path / "r.tsv", ["aaSeqCDR3", "templates"], [("CASSF", -1), ("CAF", 3)])
    assert read_repertoire(path)["duplicate_count"].tolist() == [1, 3]


def test_cells_are_not_counted_by_another_formats_column():
    layout = match_reader(Header(Path("r.csv"), tuple(f"{TENX} count".split()))).layout
    assert layout.counts == ()


def test_a_generic_table_has_the_named_columns_only(write_table, tmp_path):
    rows = [("CASSF", 3, "TRBV6-2", "TRBJ1-1", "x"), ("CAF", 2, "", "TRBJ2-1", "y")]
    path = write_table(tmp_path / "r.tsv", ["seq", "n", "gene V", "gene J", "v_call"], rows)
    reader = choose_reader(sequence_column="seq", count_column="n", v_column="gene V", j_column="gene J")
    table = read_repertoire(path, reader=reader)
    assert names(table, "v_call") == ["TRBV6-2", ""]
    assert names(table, "j_call") == ["TRBJ1-1", "TRBJ2-1"]
    assert table["duplicate_count"].tolist() == [3, 2]
    assert "v_call" not in read_repertoire(path, reader=choose_reader(sequence_column="seq"))


def test_a_generic_table_without_the_named_columns_lists_its_own(write_table, tmp_path):
    path = write_table(tmp_path / "r.tsv", ["seq", "n"], [("CASSF", 3)])
    reader = choose_reader(sequence_column="seq", v_column="V", j_column="J")
    with pytest.raises(InputError, match=r"r\.tsv: no column 'V' and 'J'; the file's columns are seq, n$"):
        read_repertoire(path, reader=reader)


def test_the_chosen_format_must_fit():
    with pytest.raises(
        InputError, match=r"no reader knows this header.*Known formats: airr \(junction_aa \| cdr3_aa \| junction\)$"
    ):
        match_reader(Header(Path("r.tsv"), ("amino_acid", "templates")), choose_reader("airr"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reader_format": "arr"}, "unknown format 'arr'; expected one of auto, airr"),
        ({"reader_format": "generic"}, "`reader_format=generic` needs `sequence_column`"),
        ({"count_column": "n"}, "`count_column` needs `sequence_column`"),
        ({"v_column": "v"}, "`v_column` needs `sequence_column`"),
        ({"sequence_column": "s", "v_column": "g", "j_column": "g"}, "`v_column` and `j_column` both name 'g'"),
        ({"reader_format": "airr", "sequence_column": "s"}, "cannot be combined with `reader_format=airr`"),
        ({"sequence_column": "s", "count_column": "s"}, "both name 's'"),
    ],
)
def test_options_that_contradict_each_other(options, message):
    with pytest.raises(InputError, match=message):
        choose_reader(**options)


@pytest.mark.parametrize(("name", "header"), CASES)
def test_a_layout_reads_the_same_in_every_process(name, header):
    layout = match_reader(Header(Path("r.tsv"), tuple(columns_of(header.removeprefix("#")))))[1]
    assert " at 0x" not in repr(layout)
