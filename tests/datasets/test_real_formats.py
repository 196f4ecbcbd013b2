"""Real exports, every row read a second time by the csv module; skipped without DEEPRC_REAL_DATA."""

import csv
import gzip
import re
import zipfile
from collections import Counter

import pytest

from deeprc.datasets.readers import read_header
from deeprc.errors import InputError
from tests.toys.repertoire_tables import read_with_format, to_frame

MISSING = ("", "na", "NA", "None", "null", "unresolved", "unknown", "no data")
# file: format; columns of sequence, count ("" where cells are counted) and V gene, the first that is filled; rows;
V_GENE, OLD_V_GENE = "v_gene v_gene_ties v_resolved v_family", "vGeneName vGeneNameTies vMaxResolved vFamilyName"

# sum of counts (rows, where cells are counted)
FILES = {
    "airr/airrstd_good_rearrangement.tsv": ("airr", "junction_aa", "duplicate_count", "v_call", 9, 4304),
    "airr/airrstd_bad_rearrangement.tsv": ("airr", "junction_aa", "duplicate_count", "v_call", 11, 4328),
    "airr/airrstd_rearrangement-example.tsv.gz": ("airr", "junction_aa", "duplicate_count", "v_call", 101, 299),
    "airr/scirpy_rearrangement_ig.tsv": ("airr", "junction_aa", "", "v_call", 4, 4),
    "airr/scirpy_rearrangement_tra.tsv": ("airr", "junction_aa", "", "v_call", 4, 4),
    "airr/scirpy_rearrangement_trb.tsv": ("airr", "junction_aa", "", "v_call", 4, 4),
    "immunoseq/clustcr_HIP05763.tsv.gz": ("immunoseq", "amino_acid", "templates", V_GENE, 1492, 7193),
    "immunoseq/immunarch_immunoseq_1.txt": ("immunoseq", "amino_acid", "templates", V_GENE, 1, 654),
    "immunoseq/tcrdist3_Adaptive2020.tsv.gz": ("immunoseq", "amino_acid", "templates", V_GENE, 999, 221828),
    "immunoseq/lymphoseq2_015V06013979_CFAR.tsv.gz": (
        *("immunoseq", "aminoAcid", "count (templates)", OLD_V_GENE, 1000, 2404),
    ),
    "immunoseq/lymphoseq_TRB_CD4_949.tsv.gz": (
        *("immunoseq", "aminoAcid", "count (templates/reads)", OLD_V_GENE, 1000, 25769),
    ),
    "immunoseq/vdjtools_immunoseqv2.txt.gz": (
        *("immunoseq", "aminoAcid", "count (templates/reads)", OLD_V_GENE, 43926, 1108335),
    ),
    "mixcr/deeplion_Example_raw_file.tsv.gz": ("mixcr", "aaSeqCDR3", "cloneCount", "allVHitsWithScore", 729, 1000000),
    "mixcr/tcrsampler_pmbc_mixcr_example_data.txt.gz": (
        *("mixcr", "aaSeqCDR3", "cloneCount", "bestVGene bestVFamily", 10000, 123436),
    ),
    "mixcr/vdjtoolsfix_mixcr.txt.gz": ("mixcr", "AA. seq. CDR3", "Clone count", "All|V|hits", 262, 96132),
    "tenx/10x_vdj_nextgem_hs_pbmc3_t_filtered_contig_annotations.csv.gz": ("10x", "cdr3", "", "v_gene", 4004, 4004),
    "tenx/immunarch_flu.csv.gz": ("10x", "cdr3", "", "v_gene", 20000, 20000),
    "vdjtools/vdjtools_format_vdj.M_15_CD8_beta.clonotypes.TRB.txt.gz": (
        *("vdjtools", "cdr3aa", "count", "v", 67238, 318120),
    ),
    "../covidtcrs/10_cd4_1_S27.txt.gz": ("tcrex", "CDR3_beta", "count", "TRBV_gene", 18096, 421515),
    "../covidtcrs/10_cd8_1_S60.txt.gz": ("tcrex", "CDR3_beta", "count", "TRBV_gene", 3826, 168448),
    "../covidtcrs/23_cd8_1_S80.txt": ("tcrex", "CDR3_beta", "count", "TRBV_gene", 2295, 124290),
}


def rows_of(path):
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return list(csv.DictReader(text.splitlines(), delimiter="," if ".csv" in path.name else "\t"))


def filled(value):
    return "" if value in MISSING else value


def best(name):
    """Return the hits that share MiXCR's best score."""
    hits = re.findall(r"([^,(]+)\(([\d.]+)\)", name)
    top = max((float(score) for _, score in hits), default=0)
    return ",".join(gene for gene, score in hits if float(score) == top) if hits else name


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_row_is_read_as_the_csv_module_reads_it(real_data, name):
    expected_format, sequence, count, genes, n_rows, total = FILES[name]
    path = real_data / "formats" / name
    found_format, rows = read_with_format(path)
    expected = rows_of(path)
    assert found_format == expected_format
    assert len(rows) == len(expected) == n_rows
    table = to_frame(rows)
    assert table["junction_aa"].tolist() == [filled(row[sequence]) for row in expected]
    assert table["duplicate_count"].tolist() == [int(float(row[count] or 1)) if count else 1 for row in expected]
    assert int(table["duplicate_count"].sum()) == total
    columns = [column.replace("|", " ") for column in genes.split()]
    assert table["v_call"].tolist() == [
        best(next((row[column] for column in columns if filled(row.get(column, ""))), "")) for row in expected
    ]


def test_cells_and_chains(real_data):
    folder = real_data / "formats" / "tenx"
    _, rows = read_with_format(folder / "10x_vdj_nextgem_hs_pbmc3_t_filtered_contig_annotations.csv.gz")
    table = to_frame(rows)
    assert table["cell_id"].nunique() == 1556
    assert table["locus"].value_counts().to_dict() == {"TRB": 2076, "TRA": 1916, "Multi": 12}
    assert Counter(rows.status.tolist()) == {1: 3123, 4: 881}
    _, rows = read_with_format(folder / "immunarch_flu.csv.gz")
    table = to_frame(rows)
    cells = table.groupby("repertoire_id", observed=True)["cell_id"].nunique().to_dict()
    assert cells == {"023-002_D7_Lane1": 7043, "023-002_D7_Lane10": 2957}
    assert Counter(rows.status.tolist()) == {1: 19766, 5: 234}
    _, rows = read_with_format(real_data / "formats" / "airr" / "scirpy_rearrangement_tra.tsv")
    assert to_frame(rows)["cell_id"].tolist() == [
        row["cell_id"] for row in rows_of(real_data / "formats" / "airr" / "scirpy_rearrangement_tra.tsv")
    ]


def test_a_zip_of_many_repertoires_is_refused_and_its_files_are_read(real_data, tmp_path):
    path = real_data / "formats" / "airr" / "immuneML_quickstart_data.zip"
    with pytest.raises(InputError, match="the zip file holds 101 files; expected one, unpack it first"):
        read_header(path)
    with zipfile.ZipFile(path) as archive:
        archive.extract("repertoires/repertoire_92.tsv", tmp_path)
    path = tmp_path / "repertoires" / "repertoire_92.tsv"
    name, rows = read_with_format(path)
    expected = rows_of(path)
    assert name == "airr"
    assert set(rows.kinds.tolist()) == {1}
    assert to_frame(rows)["junction_aa"].tolist() == [row["cdr3_aa"] for row in expected]
    assert to_frame(rows)["duplicate_count"].tolist() == [int(row["duplicate_count"]) for row in expected]


@pytest.mark.long
def test_four_million_unquoted_rows_of_one_column(real_data):
    path = real_data / "background_trb" / "trb_cdr3_unique.tsv.gz"
    name, rows = read_with_format(path)
    lines = gzip.decompress(path.read_bytes()).split(b"\n")
    assert name == "airr"
    assert rows.sequences.letters.tobytes() == b"".join(lines[1:])
    assert len(rows) == len(lines) - 2
