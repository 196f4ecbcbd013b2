"""Real exports, counted a second time by the csv module; skipped without DEEPRC_REAL_DATA."""

import csv
import gzip
import re
import zipfile
from collections import Counter

import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.metadata import read_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.preprocessing import preprocess

# file: format, columns of sequence, status and count (the value kept), rows read, rows kept
FILES = {
    "airr/airrstd_good_rearrangement.tsv": ("airr", "junction_aa", "productive", "duplicate_count", 9, 5),
    "airr/airrstd_bad_rearrangement.tsv": ("airr", "junction_aa", "productive", "duplicate_count", 11, 7),
    "airr/airrstd_rearrangement-example.tsv.gz": (
        "airr",
        "junction_aa",
        "productive",
        "duplicate_count",
        101,
        79,
    ),
    "immunoseq/clustcr_HIP05763.tsv.gz": ("immunoseq", "amino_acid", "frame_type", "templates", 1492, 1110),
    "immunoseq/immunarch_immunoseq_1.txt": ("immunoseq", "amino_acid", "frame_type", "templates", 1, 1),
    "immunoseq/tcrdist3_Adaptive2020.tsv.gz": (
        "immunoseq",
        "amino_acid",
        "frame_type",
        "templates",
        999,
        821,
    ),
    "immunoseq/lymphoseq2_015V06013979_CFAR.tsv.gz": (
        "immunoseq",
        "aminoAcid",
        "sequenceStatus",
        "count (templates)",
        1000,
        836,
    ),
    "immunoseq/lymphoseq_TRB_CD4_949.tsv.gz": (
        "immunoseq",
        "aminoAcid",
        "sequenceStatus",
        "count (templates/reads)",
        1000,
        845,
    ),
    "immunoseq/vdjtools_immunoseqv2.txt.gz": (
        "immunoseq",
        "aminoAcid",
        "sequenceStatus",
        "count (templates/reads)",
        43926,
        34935,
    ),
    "vdjtools/vdjtools_format_vdj.M_15_CD8_beta.clonotypes.TRB.txt.gz": (
        "vdjtools",
        "cdr3aa",
        None,
        "count",
        67238,
        63660,
    ),
}
AMINO_ACIDS = re.compile("[ACDEFGHIKLMNPQRSTVWY]{1,50}")
YES = ("T", "yes", "In")


def rows_of(path):
    """Read a table the slow way."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))


def kept_by_hand(rows, sequence, status, count):
    return Counter(
        (row[sequence], int(row[count]))
        for row in rows
        if AMINO_ACIDS.fullmatch(row[sequence]) and (status is None or row[status] in YES)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_file_is_read_as_the_csv_module_reads_it(real_data, tmp_path, name):
    expected_format, sequence, status, count, n_read, n_kept = FILES[name]
    path = real_data / "formats" / name
    (tmp_path / "m.tsv").write_text(f"filename\n{path.name}\n")
    report = preprocess([path], tmp_path / "m.tsv", tmp_path / "c.h5", options=ReadingOptions(merge="none"))
    rows = rows_of(path)
    assert report.repertoires[0].format == expected_format
    assert report.rows_read == len(rows) == n_read == report.kept + sum(report.dropped.values())
    assert report.kept == n_kept
    assert report.counts_from == {count: n_kept}
    repertoire = RepertoireDataset(tmp_path / "c.h5")[0]
    found = Counter(zip(repertoire.sequences.decode(), repertoire.counts.tolist(), strict=True))
    assert found == kept_by_hand(rows, sequence, status, count)
    merged = preprocess([path], tmp_path / "m.tsv", tmp_path / "c.h5", options=ReadingOptions(merge="junction"))
    totals = Counter()
    for (junction, n), times in found.items():
        totals[junction] += n * times
    repertoire = RepertoireDataset(tmp_path / "c.h5")[0]
    assert dict(zip(repertoire.sequences.decode(), repertoire.counts.tolist(), strict=True)) == dict(totals)
    assert merged.merged == n_kept - len(totals)


def test_covidtcrs(real_data, tmp_path):
    folder = real_data / "covidtcrs"
    sheet = folder / "metadata_TRB_10umi_filter_MiXCR_to_VDJtools.txt"
    with pytest.raises(ValueError, match=r"no file for 120 rows: .*for 2 files: SOURCE\.txt, clean_IMSEQ_age\.tsv"):
        preprocess([folder], sheet, tmp_path / "c.h5")
    report = preprocess([folder], sheet, tmp_path / "c.h5", options=ReadingOptions(allow_missing=True, merge="none"))
    dataset = RepertoireDataset(tmp_path / "c.h5")
    assert len(dataset) == 60
    assert dataset.metadata["T-cell_type"].value_counts().to_dict() == {"cd4": 30, "cd8": 30}
    present = {path.name.split(".")[0]: path for path in folder.glob("*_S*.txt*")}
    ids = [row["sample_id"] for row in rows_of(sheet) if row["sample_id"] in present]
    assert dataset.repertoire_ids.tolist() == ids
    dropped = Counter()
    for repertoire_id, repertoire, each in zip(ids, dataset, report.repertoires, strict=True):
        rows = rows_of(present[repertoire_id])
        kept = [row for row in rows if AMINO_ACIDS.fullmatch(row["CDR3_beta"])]
        assert repertoire.sequences.decode() == [row["CDR3_beta"] for row in kept]
        assert repertoire.counts.tolist() == [int(row["count"]) for row in kept]
        assert repertoire.to_frame()["v_call"].tolist() == [row["TRBV_gene"] for row in kept]
        assert each.rows_read == len(rows)
        dropped.update(
            "out_of_frame" if "_" in row["CDR3_beta"] else "stop_codon"
            for row in rows
            if not AMINO_ACIDS.fullmatch(row["CDR3_beta"])
        )
    assert {reason: n for reason, n in report.dropped.items() if n} == dropped
    assert (report.rows_read, report.kept) == (478_902, 456_614)


def test_cells_of_single_cell_tables_are_counted(real_data, tmp_path):
    path = real_data / "formats" / "airr" / "scirpy_rearrangement_ig.tsv"
    (tmp_path / "m.tsv").write_text(f"filename\n{path.name}\n")
    with pytest.raises(ValueError, match=r"several chains, IGH .* and IGK .* and IGL .*; choose one with `locus`"):
        preprocess([path], tmp_path / "m.tsv", tmp_path / "c.h5")
    report = preprocess([path], tmp_path / "m.tsv", tmp_path / "c.h5", options=ReadingOptions(locus="IGH"))
    assert (report.rows_read, report.kept, report.dropped["other_locus"]) == (4, 2, 2)
    heavy = [row for row in rows_of(path) if row["v_call"].startswith("IGH")]
    repertoire = RepertoireDataset(tmp_path / "c.h5")[0]
    assert repertoire.sequences.decode() == [row["junction_aa"] for row in heavy]
    assert repertoire.counts.tolist() == [1, 1]


@pytest.mark.slow
def test_immuneml_quickstart(real_data, tmp_path):
    with zipfile.ZipFile(real_data / "formats" / "airr" / "immuneML_quickstart_data.zip") as archive:
        archive.extractall(tmp_path / "data")
    sheet = next((tmp_path / "data").rglob("metadata.csv"))
    report = preprocess(
        [tmp_path / "data"], sheet, tmp_path / "c.h5", options=ReadingOptions(allow_missing=True, merge="none")
    )
    dataset = RepertoireDataset(tmp_path / "c.h5")
    assert len(dataset) == 100
    assert dataset.repertoire_ids.tolist()[:3] == ["1", "2", "3"]
    assert set(report.sequences_from) == {"cdr3_aa"}  # its junction_aa is empty everywhere
    for name, repertoire in zip(dataset.metadata["filename"], dataset, strict=True):
        rows = rows_of(next((tmp_path / "data").rglob(name)))
        expected = [f"C{row['cdr3_aa']}W" for row in rows if AMINO_ACIDS.fullmatch(row["cdr3_aa"])]
        assert repertoire.sequences.decode() == expected
    assert report.rows_read == report.kept + sum(report.dropped.values())


def test_sheets_of_the_cmv_cohort(real_data):
    folder = real_data / "emerson2017"
    overview = read_metadata(next(folder.glob("SampleOverview*.tsv")))
    assert overview.id_column == "sample_name"
    assert len(overview.repertoire_ids) == 786
    assert overview.table["cmv"].value_counts().to_dict() == {"+": 340, "-": 421}
    with pytest.raises(ValueError, match="no column of repertoire ids among V gene, CDR3"):
        read_metadata(folder / "ng.3822-S3.xlsx")
