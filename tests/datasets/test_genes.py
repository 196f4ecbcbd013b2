"""Gene names of real exports as IMGT names; the expected ones were written by hand."""

import csv
import gzip
import io
from collections import Counter
from typing import get_args

import numpy as np
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprc.datasets import genes
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.genes import (
    LOCI,
    GeneName,
    Level,
    infer_locus,
    normalise_gene,
    normalise_genes,
    normalise_locus,
)

GENES = {
    # IMGT and AIRR
    "TRBV6-2": "TRBV6-2",
    "TRBV6-2*01": "TRBV6-2",
    " TRBV6-2*01 ": "TRBV6-2",
    "TRBV6-2*01,TRBV6-2*02": "TRBV6-2",
    "TRBJ2-2P*01": "TRBJ2-2P",
    "TRAV38-2/DV8*01": "TRAV38-2/DV8",
    "IGHV1-69D*01": "IGHV1-69D",
    "IGHV3-30-3*01,IGHV3-30-3*02": "IGHV3-30-3",
    "IGHD2/OR15-2a*01": "IGHD2/OR15-2a",
    "IGKV1D-33*01": "IGKV1D-33",
    "IGLV(I)-11-1*01": "IGLV(I)-11-1",
    "Homsap IGHV1-18*01 F": "IGHV1-18",
    "Homsap TRBV21-1*01 (F)": "TRBV21-1",
    # immunoSEQ
    "TCRBV06-02*01": "TRBV6-2",
    "TCRBV06-02": "TRBV6-2",
    "TCRBV01-01": "TRBV1",
    "TCRBV02-01*01": "TRBV2",
    "TCRBV09-01": "TRBV9",
    "TCRBV09": "TRBV9",
    "TCRBV13-01*01": "TRBV13",
    "TCRBV30-01*05": "TRBV30",
    "TCRBV05-01*01": "TRBV5-1",
    "TCRBV10-03": "TRBV10-3",
    "TCRBV20-01*04": "TRBV20-1",
    "TCRBV20-or09_02": "TRBV20/OR9-2",
    "TCRBV26-or09_02*02": "TRBV26/OR9-2",
    "TCRBVA-or09_02*01": "TRBVA/OR9-2",
    "TCRBVA-01": "TRBVA",
    "TCRBJ02-07*01": "TRBJ2-7",
    "TCRBD01": "TRBD1",
    "TCRBD02-01*02": "TRBD2",
    "TCRAV01-01": "TRAV1-1",
    "TCRAV11-01": "TRAV11",
    "TCRAV14-01": "TRAV14/DV4",
    "TCRAV29-01*02": "TRAV29/DV5",
    "TCRAV38-02": "TRAV38-2/DV8",
    "TCRAJ39-01": "TRAJ39",
    "TCRDV01-01": "TRDV1",
    "TCRGV05P-01": "TRGV5P",
    "TCRGJP1-01": "TRGJP1",
    "IGHV04-34*09": "IGHV4-34",
    "IGHV06-01": "IGHV6-1",
    "IGHV04-30_2": "IGHV4-30-2",
    "IGHV03-30_3": "IGHV3-30-3",
    "IGHV03-NL1": "IGHV3-NL1",
    "IGHV_III-26_1*01": "IGHV(III)-26-1",
    "IGHV04-or15_8": "IGHV4/OR15-8",
    "IGHV05-a": "IGHV5-10-1",
    "IGHJ04-01*02": "IGHJ4",
    "IGHD03-16*02": "IGHD3-16",
    "TRBD1-1": "TRBD1",  # exports before 2014
    "TRBV9-1": "TRBV9",  # what a plain replacement makes of TCRBV09-01
    # MiXCR
    "TRBV20-1*00(1234)": "TRBV20-1",
    "TRBV12-3*00(260.5),TRBV12-4*00(250)": "TRBV12-3",
    "TRBV10-1*01(178.1),TRBV10-1*02(178.1)": "TRBV10-1",
    "TRBV6-6*05(159.6),TRBV6-6*03(154.6),TRBV6-1*01(154.5)": "TRBV6-6",
    "TRBV1*00(9.5),TRBV2*00(10)": "TRBV2",
    # 10x and other spellings
    "TRAV29DV5": "TRAV29/DV5",
    "TRAV38-2DV8": "TRAV38-2/DV8",
    "TRAV38-2": "TRAV38-2/DV8",
    "TRAV14DV4*00(312)": "TRAV14/DV4",
    "IGHV3OR16-9": "IGHV3/OR16-9",
    "IGHD1OR15-1A": "IGHD1/OR15-1a",
    "trbv6-2": "TRBV6-2",
    "TRBV06-2": "TRBV6-2",
    "hTRBV6-2": "TRBV6-2",
    "TCRBV6-2": "TRBV6-2",
}

FAMILIES = {
    "TRBV6": "TRBV6",
    "TCRBV06": "TRBV6",
    "TCRBV06-X": "TRBV6",
    "TCRBV20-X": "TRBV20",
    "TCRBV20": "TRBV20",
    "TCRBV24": "TRBV24",
    "TCRBJ02": "TRBJ2",
    "trbj1": "TRBJ1",
    "IGHV03": "IGHV3",
    "IGHV6": "IGHV6",
    "IGHV_II": "IGHV(II)",
    "TRAV14": "TRAV14",
    "TRAV29": "TRAV29",
}

TIES = {
    "TCRBV06-02/06-03*01": "TRBV6-2,TRBV6-3",
    "TCRBV12-03/12-04": "TRBV12-3,TRBV12-4",
    "TRBV6-2/6-3": "TRBV6-2,TRBV6-3",
    "TRBV6-2*01/TRBV6-3*01": "TRBV6-2,TRBV6-3",
    "TCRBV06-02/06-03,TCRBV06-05": "TRBV6-2,TRBV6-3,TRBV6-5",
    "TCRBV20-01,TCRBV20-or09_02": "TRBV20-1,TRBV20/OR9-2",
    "TCRBV11-01,TCRBV11-03,TCRBV07-09": "TRBV7-9,TRBV11-1,TRBV11-3",
    "TCRBV06,TCRBV10": "TRBV6,TRBV10",
    "TCRBD01-01,TCRBD02-01": "TRBD1,TRBD2",
    "IGHV03-64,IGHV03-30_3,IGHV03-30": "IGHV3-30,IGHV3-30-3,IGHV3-64",
    "TRBV6-2*01,TRBV6-3*01": "TRBV6-2,TRBV6-3",
    "TRBV6-3*01,TRBV6-2*01": "TRBV6-2,TRBV6-3",
    "IGHV1-69*01,IGHV1-69D*01": "IGHV1-69,IGHV1-69D",
    "Homsap TRBV6-2*01 F, or Homsap TRBV6-3*01 F": "TRBV6-2,TRBV6-3",
    "TRBV12-4, TRBV12-3": "TRBV12-3,TRBV12-4",
    "TRBV6-2;TRBV6-3": "TRBV6-2,TRBV6-3",
    "TRBV6-2 or TRBV6-3": "TRBV6-2,TRBV6-3",
    "TRBV12-4*00(303.5),TRBV12-3*00(303.5)": "TRBV12-3,TRBV12-4",
    "TRBV6-2*01(164.6),TRBV6-3*01(164.6),TRBV6-5*01(160)": "TRBV6-2,TRBV6-3",
    "TRAV29/DV5*01,TRDV3*01": "TRAV29/DV5,TRDV3",
}

UNKNOWN = ("", " ", ".", "unresolved", "Unresolved", "null", "None", "NA", "nan", "no data", "unknown", "(undefined)")

UNRECOGNISED = {
    # only mice have these
    "TRBV13-2": "TRB",
    "Trbv13-2": "TRB",
    "TRBV13-1": "TRB",
    "TRBV31": "TRB",
    "TRAV3-1": "TRA",
    "TRAV6D-7": "TRA",
    "TRAV21/DV12": "TRA",
    "TRDV4": "TRD",
    "Musmus TRBV13-2*01 F": "TRB",
    # TRBV6-2 for some, TRBV7-8 for others (Arden 1995)
    "TRBV6S2": "TRB",
    "TCRBV6S2": "TRB",
    # nothing that IMGT lists
    "TCRBV12-or09_02": "TRB",
    "IGHV06-or15_adap05": "IGH",
    "TRAV1-69*10": "TRA",
    "TRBV6-99": "TRB",
    "TRBV6-2,TRBV99": "TRB",
    # no tie: two chains, two segments, or we cannot tell
    "TRAV1-2;TRBV6-2": "",
    "TRBV6-2,TRBJ2-1": "TRB",
    "TRBV12-3/4": "TRB",
    "TRBV1/2-1": "TRB",
    "TRBV": "TRB",
    "BV6": "",
    "J1": "",
    "28": "",
    ",": "",
}

CASES = [
    *((found, stored, "gene") for found, stored in GENES.items()),
    *((found, stored, "family") for found, stored in FAMILIES.items()),
    *((found, stored, "tie") for found, stored in TIES.items()),
    *((found, "", "unknown") for found in UNKNOWN),
    *((found, found, "unrecognised") for found in UNRECOGNISED),
]


def count_levels(names):
    """Return the number of names at each level that occurs."""
    return Counter(normalise_gene(name).level for name in names)


@pytest.mark.parametrize(("found", "stored", "level"), CASES)
def test_a_name_becomes_what_was_written_by_hand(found, stored, level):
    name = normalise_gene(found)
    assert (name.name, name.level) == (stored, level)


def test_a_normalised_name_stays_what_it_is():
    for found, _, _ in CASES:
        name = normalise_gene(found)
        assert normalise_gene(name.name) == name, found


def test_case_does_not_matter():
    for found in (*GENES, *FAMILIES, *TIES):
        assert normalise_gene(found.lower()) == normalise_gene(found.upper()) == normalise_gene(found), found


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(sorted(genes._GENES)), min_size=2, max_size=5, unique=True), st.sampled_from(",;|"))
def test_a_tie_is_never_one_of_its_genes(tied, separator):
    groups = {gene[:4] for gene in tied}
    name = normalise_gene(separator.join(tied))
    if len(groups) == 1:
        assert name.level == "tie"
        assert sorted(name.name.split(",")) == sorted(tied)
        assert normalise_gene(separator.join(f"{gene}*0{n}" for n, gene in enumerate(tied[::-1]))) == name
    elif groups not in ({"TRAV", "TRDV"}, {"TRAJ", "TRDJ"}):  # segments of TRA and TRD may tie
        assert name.level == "unrecognised"


def test_every_gene_of_the_list_is_itself_in_every_padding_and_with_every_allele():
    for gene in genes._GENES:
        padded = "-".join(part.zfill(2) if part.isdecimal() else part for part in gene.split("-"))
        for spelling in (gene, f"{gene}*01", f"{gene}*00(17.5)", gene.replace("/", ""), padded):
            if spelling in ("TRAV11-01", "TRAV14-01"):
                continue  # immunoSEQ's names of TRAV11 and TRAV14/DV4
            assert normalise_gene(spelling) == GeneName(gene, gene[:3], "gene"), spelling


def test_the_list_has_one_spelling_per_gene_and_no_gene_of_mice():
    keys = [genes._make_spelling_key(gene) for gene in genes._GENES]
    assert len(keys) == len(set(keys)) == 727
    assert not any(genes._MOUSE_ONLY.fullmatch(key) for key in keys)
    assert {gene[:3] for gene in genes._GENES} == set(LOCI)
    assert len([gene for gene in genes._GENES if gene.startswith("TRBV")]) == 77
    assert len([gene for gene in genes._GENES if gene.startswith("TRBJ")]) == 14


@settings(deadline=None, max_examples=100)
@given(st.one_of(st.text(max_size=20), st.text("TCRIGBV0123456789-/*,()_ \u00b2", max_size=20)))
def test_any_text_is_named_or_kept(text):
    name = normalise_gene(text)
    assert name.level in get_args(Level)
    assert name.locus in ("", *LOCI)
    assert normalise_gene(name.name) == name
    if name.level == "unrecognised":
        assert name.name == text.strip()


def test_a_number_of_any_length_is_no_error():
    assert count_levels(["TRBV" + "9" * 5000, f"TRBV9({'9' * 5000})"]) == {"gene": 1, "unrecognised": 1}


@pytest.mark.parametrize(
    ("gene", "locus"),
    [
        ("TCRBV06-02*01", "TRB"),
        ("TCRBJ02-07", "TRB"),
        ("unresolved", ""),
        ("TRAJ9", "TRA"),
        ("TRAV29/DV5", "TRA"),
        ("TRDV1", "TRD"),
        ("TRBV13-2", "TRB"),
        ("IGHV06-or15_adap05", "IGH"),
        ("BV6", ""),
        ("", ""),
    ],
)
def test_the_locus_of_a_gene(gene, locus):
    assert infer_locus(gene) == locus


def test_an_unrecognised_name_may_still_tell_its_locus():
    assert {name: infer_locus(name) for name in UNRECOGNISED} == UNRECOGNISED


@pytest.mark.parametrize(
    ("text", "locus"),
    [
        *((locus, locus) for locus in LOCI),
        ("TCRB", "TRB"),
        ("trb", "TRB"),
        (" TCR-beta ", "TRB"),
        ("TCRbeta", "TRB"),
        ("TCR\u03b2", "TRB"),
        ("TCR\u0392", "TRB"),
        ("beta chain", "TRB"),
        ("T cell receptor alpha", "TRA"),
        ("delta", "TRD"),
        ("hsTCRB", "TRB"),
        ("IG heavy", "IGH"),
        ("Kappa", "IGK"),
        ("TRB:CASSLGF", "TRB"),
        ("TRB:CASSF;TRB:CASSLF", "TRB"),
        ("TRA:CAVF;TRB:CASSF", ""),
        ("TCRAD", ""),
        ("Multi", ""),
        ("light", ""),
        ("None", ""),
        ("", ""),
    ],
)
def test_the_spellings_of_a_locus_column(text, locus):
    assert normalise_locus(text) == locus


def test_a_vocabulary_is_mapped_and_reported():
    found = ("", "TCRBV06-02*01", "TRBV6-2", "TCRBV10-01", "TCRBV06-02/06-03", "TRBV6", "unresolved", "mine")
    mapping = normalise_genes(found)
    assert mapping.stored.vocabulary == ("", "TRBV6", "TRBV6-2", "TRBV6-2,TRBV6-3", "TRBV10-1", "mine")
    assert count_levels(found) == {"gene": 3, "family": 1, "tie": 1, "unknown": 2, "unrecognised": 1}
    assert mapping.mouse == ()
    assert mapping.renamed == {
        "TCRBV06-02*01": "TRBV6-2",
        "TCRBV06-02/06-03": "TRBV6-2,TRBV6-3",
        "TCRBV10-01": "TRBV10-1",
        "unresolved": "",
    }
    assert list(mapping.renamed) == ["TCRBV06-02*01", "TCRBV06-02/06-03", "TCRBV10-01", "unresolved"]
    calls = Categorical(np.array([1, 2, 0, 6, 7], np.uint16), found)
    mapped = mapping.stored.take(calls.codes)
    assert mapped.names().tolist() == ["TRBV6-2", "TRBV6-2", "", "", "mine"]


def test_the_renamed_genes_are_without_scores():
    mapping = normalise_genes(["TRBV9*00(20)", "TRBV9*00(30.5)", "TRBV9*00(20),TRBV2*00(20)"])
    assert mapping.stored.vocabulary == ("TRBV2,TRBV9", "TRBV9")
    assert mapping.stored.codes.tolist() == [1, 1, 0]
    assert mapping.renamed == {"TRBV9*00": "TRBV9", "TRBV9*00,TRBV2*00": "TRBV2,TRBV9"}


def test_an_empty_vocabulary():
    mapping = normalise_genes([])
    assert (mapping.stored.vocabulary, mapping.stored.codes.tolist(), mapping.renamed) == ((), [], {})


def test_a_vocabulary_with_genes_of_mice_is_not_read_as_human():
    human = normalise_genes(["TCRBV13-01", "TCRBV20-01", "TRBV6-2"])
    assert (human.stored.vocabulary, human.mouse) == (("TRBV6-2", "TRBV13", "TRBV20-1"), ())
    mouse = normalise_genes(["TCRBV13-01", "TCRBV13-02*01", "TCRBV20-01", "TRBV19", "unresolved"])
    assert mouse.stored.vocabulary == ("", "TCRBV13-01", "TCRBV13-02*01", "TCRBV20-01", "TRBV19")
    assert mouse.mouse == ("TCRBV13-02*01",)
    assert mouse.renamed == {"unresolved": ""}


def names_of(path, columns):
    """Collect the distinct values of these columns."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = data.decode()
    rows = csv.reader(io.StringIO(text), delimiter="\t" if "\t" in text[:1000] else ",")
    header = next(rows)
    places = [header.index(column) for column in columns]
    return {row[place] for row in rows for place in places}


# names at each level: gene, family, tie, unknown
REAL = {
    "formats/immunoseq/clustcr_HIP05763.tsv.gz": ("v_gene v_gene_ties j_gene", (62, 0, 15, 2)),
    "formats/immunoseq/immunarch_immunoseq_1.txt": ("v_gene v_family j_gene", (3, 0, 0, 0)),
    "formats/immunoseq/lymphoseq2_015V06013979_CFAR.tsv.gz": (
        "vMaxResolved vGeneNameTies jMaxResolved",
        (61, 8, 10, 1),
    ),
    "formats/immunoseq/lymphoseq_TRB_CD4_949.tsv.gz": ("vMaxResolved vGeneNameTies jMaxResolved", (62, 0, 9, 2)),
    "formats/immunoseq/tcrdist3_Adaptive2020.tsv.gz": ("v_resolved v_gene_ties j_resolved", (78, 4, 12, 2)),
    "formats/immunoseq/vdjtools_immunoseqv2.txt.gz": ("vMaxResolved vGeneNameTies jMaxResolved", (72, 0, 37, 2)),
    "formats/mixcr/deeplion_Example_raw_file.tsv.gz": ("allVHitsWithScore allJHitsWithScore", (1212, 0, 68, 0)),
    "formats/mixcr/tcrsampler_pmbc_mixcr_example_data.txt.gz": ("bestVGene bestJGene", (70, 0, 0, 1)),
    "formats/mixcr/vdjtoolsfix_mixcr.txt.gz": ("All V hits,All J hits", (390, 0, 7, 0)),
    "formats/tenx/10x_vdj_nextgem_hs_pbmc3_t_filtered_contig_annotations.csv.gz": ("v_gene j_gene", (161, 0, 0, 1)),
    "formats/tenx/immunarch_flu.csv.gz": ("v_gene d_gene j_gene", (145, 0, 0, 1)),
    "formats/vdjtools/vdjtools_format_vdj.M_15_CD8_beta.clonotypes.TRB.txt.gz": ("v d j", (75, 0, 0, 1)),
    "formats/airr/airrstd_rearrangement-example.tsv.gz": ("v_call d_call j_call", (63, 0, 27, 1)),
    "covidtcrs/5_cd4_1_S4.txt": ("TRBV_gene TRBJ_gene", (23, 0, 0, 0)),
}


@pytest.mark.parametrize("name", REAL)
def test_every_name_of_real_exports_is_recognised(real_data, name):
    columns, levels = REAL[name]
    names = names_of(real_data / name, columns.split("," if "," in columns else " "))
    mapping = normalise_genes(sorted(names))
    counts = count_levels(names)
    assert counts["unrecognised"] == 0
    assert tuple(counts[level] for level in ("gene", "family", "tie", "unknown")) == levels
    assert mapping.mouse == ()


def test_names_that_a_test_file_made_up_are_kept(real_data):
    names = names_of(real_data / "formats" / "airr" / "scirpy_rearrangement_tra.tsv", ["v_call"])
    assert names == {"TRAV1-69*10", "TRAV3-33*06", "TRAV3-49*03", "TRAV5-51*01"}  # genes of IGH, renamed
    mapping = normalise_genes(sorted(names))
    assert set(mapping.stored.vocabulary) == names
    assert count_levels(names) == {"unrecognised": 4}


def test_the_genes_of_the_cmv_associated_sequences(real_data):
    sheet = openpyxl.load_workbook(real_data / "emerson2017" / "ng.3822-S3.xlsx").worksheets[0]
    rows = [row for row in sheet.iter_rows(min_row=2, values_only=True) if row[0]]
    v_calls = {row[0] for row in rows}
    assert count_levels(v_calls) == {"gene": 34, "family": 4}
    families = {gene.name for gene in map(normalise_gene, v_calls) if gene.level == "family"}
    assert families == {"TRBV3", "TRBV12", "TRBV20", "TRBV24"}
    assert {infer_locus(gene) for row in rows for gene in (row[0], row[2])} == {"TRB"}
