"""Which files a cohort is read from and how: what is said of many files at once, files that only the sheet names."""

import gzip

import pytest

from deeprc.checks import check_cohort
from deeprc.datasets.container import Container
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.matching import SourceFiles
from deeprc.datasets.metadata import read_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.plan import describe_missing, plan_files
from deeprc.datasets.preprocessing import preprocess
from deeprc.errors import InputError, quote

BOTH = ("aaSeqCDR3", "count", "CDR3_beta", "TRBV_gene", "TRBJ_gene")
ROWS = [("CASSF", 5, "CASSF", "TRBV5-1", "TRBJ2-1"), ("CAF", 2, "CAF", "TRBV2", "TRBJ2-1")]


@pytest.fixture
def both(tmp_path, write_table):
    """Three files whose header fits two formats."""
    for name in "abc":
        write_table(tmp_path / "files" / f"{name}.tsv", BOTH, ROWS)
    write_table(tmp_path / "metadata.tsv", ("ID", "y"), [("a", 1), ("b", 0), ("c", 1)])
    return tmp_path


def run(folder, *sources, skip_bad_files=False, **options):
    place = [folder / each for each in sources or ("files",)], folder / "metadata.tsv", folder / "cohort.h5"
    return preprocess(*place, options=ReadingOptions(**options), skip_bad_files=skip_bad_files)


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


# --- how ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader_format", ["auto", "mixcr", "tcrex"])
def test_files_that_fit_two_formats_are_read_with_counts_and_genes(both, caplog, reader_format):
    report = run(both, reader_format=reader_format)
    assert {each.format for each in report.repertoires} == {"tcrex" if reader_format == "auto" else reader_format}
    assert report.counts_from == {"count": 6}
    container = Container(both / "cohort.h5")
    assert container.sequences.counts.tolist() == 3 * [5, 2]
    assert container.sequences.v_call.names().tolist() == 3 * ["TRBV5-1", "TRBV2"]
    assert container.sequences.j_call.names().tolist() == 6 * ["TRBJ2-1"]
    said = {
        "auto": "the header fits tcrex and mixcr (tcrex finds sequence, count, V gene, J gene; mixcr finds sequence)",
        "mixcr": "V gene from 'TRBV_gene', J gene from 'TRBJ_gene', count from 'count'",
    }
    expected = [
        f"3 files: read as {report.repertoires[0].format}: {text} (first: {both}/files/a.tsv)"
        for name, text in said.items()
        if name == reader_format
    ]
    assert warnings(caplog) == expected


def test_a_fault_of_all_files_is_said_once(both):
    with pytest.raises(InputError) as error:
        run(both, reader_format="airr")
    (line,) = str(error.value).splitlines()
    assert line.startswith("3 files: no reader knows this header; its first columns are aaSeqCDR3, count, ")
    assert line.endswith(f" (first: {both}/files/a.tsv)")


def test_bad_files_are_not_skipped_where_all_are_bad(both, caplog):
    with pytest.raises(InputError, match="no file can be read: 3 files: no reader knows this header") as error:
        run(both, reader_format="airr", skip_bad_files=True)
    assert "`skip_bad_files`" not in str(error.value)
    for path in (both / "files").iterdir():
        path.write_text("junction_aa\tduplicate_count\nCASSF\tmany\n")
    caplog.clear()
    with pytest.raises(InputError, match="no file can be read: 3 files: row 2, column 'duplicate_count': expected"):
        run(both, skip_bad_files=True)


def test_skipped_files_are_said_once(both, write_table, caplog):
    for name in "bc":
        write_table(both / "files" / f"{name}.tsv", ("x", "y"), [(1, 2)])
    report = run(both, skip_bad_files=True)
    assert [message.partition(";")[0] for message in warnings(caplog)] == [
        f"{both}/files/a.tsv: read as tcrex: the header fits tcrex and mixcr (tcrex finds sequence, count, V gene, "
        "J gene",
        "2 files: no reader knows this header",
    ]
    assert "  2 files: no reader knows this header; its first" in report.to_text()


def test_check_says_a_fault_of_all_files_once_and_advises_what_fits(both, write_table):
    def unreadable():
        options = ReadingOptions(reader_format=reader_format)
        findings = check_cohort([both / "files"], both / "metadata.tsv", options=options).findings
        return [each for each in findings if each.code == "unreadable-file"]

    reader_format = "airr"
    (finding,) = unreadable()
    assert finding.message.startswith("3 files: no reader knows this header")
    assert finding.files == tuple(f"{both}/files/{name}.tsv" for name in "abc")
    assert "`skip_bad_files`" not in finding.advice
    write_table(both / "files" / "a.tsv", ("junction_aa",), [("CASSF",)])
    (finding,) = unreadable()
    assert finding.message.startswith("2 files: no reader knows this header")
    assert "`skip_bad_files`" in finding.advice


def test_a_long_value_is_cut_in_a_message():
    assert quote("x" * 60) == repr("x" * 60)
    assert quote("x" * 61) == repr("x" * 60) + "... (61 letters)"


def test_any_other_table_may_have_genes_and_repertoires(tmp_path, write_table):
    rows = [("CASSF", "TRBV2", "TRBJ1-1", "p"), ("CAF", "", "TRBJ2-1", "q"), ("CATF", "TRBV2*02", "", "p")]
    write_table(tmp_path / "all.txt", ("seq", "gene V", "gene J", "who"), rows)
    write_table(tmp_path / "metadata.tsv", ("ID", "y"), [("q", 1), ("p", 0)])
    run(tmp_path, "all.txt", sequence_column="seq", v_column="gene V", j_column="gene J", split_by="who")
    dataset, container = RepertoireDataset(tmp_path / "cohort.h5"), Container(tmp_path / "cohort.h5")
    texts = {each.repertoire_id: each.sequences.decode() for each in dataset}
    assert texts == {"p": ["CASSF", "CATF"], "q": ["CAF"]}
    assert container.sequences.v_call.names().tolist() == ["", "TRBV2", "TRBV2"]
    assert container.sequences.j_call.names().tolist() == ["TRBJ2-1", "TRBJ1-1", ""]
    options = ReadingOptions(sequence_column="seq", v_column="gene")
    found = check_cohort([tmp_path / "all.txt"], tmp_path / "metadata.tsv", options=options)
    (finding,) = [each for each in found.findings if each.code == "unreadable-file"]
    assert finding.message == f"{tmp_path}/all.txt: no column 'gene'; the file's columns are seq, gene V, gene J, who"


# --- which ----------------------------------------------------------------------------------------------


def write_changeo(path):
    path.parent.mkdir(exist_ok=True)
    text = "SEQUENCE_ID\tFUNCTIONAL\tJUNCTION\tDUPCOUNT\na\tT\tTGTGCGAGAGATTGG\t3\n"
    path.write_bytes(gzip.compress(text.encode()))


def test_a_file_that_the_sheet_names_is_found_whatever_its_ending(tmp_path, write_table):
    write_changeo(tmp_path / "files" / "changeo_ExampleDb.gz")
    (tmp_path / "files" / "notes.gz").write_bytes(b"of no row")
    write_table(tmp_path / "metadata.tsv", ("sample_id", "filename"), [("s1", "changeo_ExampleDb.gz")])
    report = run(tmp_path)
    assert [(each.repertoire_id, each.file) for each in report.repertoires] == [("s1", "changeo_ExampleDb.gz")]
    assert report.files_without_row == ()
    found = check_cohort([tmp_path / "files"], tmp_path / "metadata.tsv")
    assert found.report.repertoires[0].file == "changeo_ExampleDb.gz"


def test_a_missing_file_is_told_by_the_column_that_names_it(tmp_path, write_table):
    write_changeo(tmp_path / "files" / "ExampleDb.gz")
    rows = [("s1", "ExampleDb.gz"), ("s2", "gone.gz"), ("s3", "")]
    write_table(tmp_path / "metadata.tsv", ("sample_id", "filename"), rows)
    message = "no file for 2 rows: s2 (gone.gz), s3 (by columns 'filename' and 'sample_id')"
    with pytest.raises(InputError) as error:
        run(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}/metadata.tsv: {message}. Give what is missing")
    found = check_cohort([tmp_path / "files"], tmp_path / "metadata.tsv")
    (finding,) = [each for each in found.findings if each.code == "row-without-file"]
    assert finding.message == message


def test_one_column_whose_name_has_an_and_is_one_column(tmp_path, write_table):
    write_table(tmp_path / "metadata.tsv", ("donor and visit", "status"), [("s1", "case"), ("s2", "control")])
    sheet = read_metadata(tmp_path / "metadata.tsv", id_column="donor and visit")
    plan = plan_files(sheet, [tmp_path / "s1.tsv"], ReadingOptions(), skip_bad_files=True)
    message = describe_missing(sheet, plan, SourceFiles(()))
    assert message == "no file for 1 row: s2 (by column 'donor and visit')"


def test_comments_and_a_folder_of_bd_rhapsody(tmp_path, write_table):
    (tmp_path / "files").mkdir()
    text = "####\n## BD Rhapsody, Version 1.10\n####\nCell_Index,Chain_Type,V_gene_Dominant,CDR3_Translation_Dominant\n"
    (tmp_path / "files" / "s1_VDJ_Dominant_Contigs.csv").write_text(text + "1,TCR_Beta,TRBV2*01,ASSLF\n")
    (tmp_path / "files" / "s2_VDJ_Dominant_Contigs.csv").write_text(text + "1,TCR_Beta,TRBV2*01,ASSLY\n")
    rows = [("s1", "s1_VDJ_Dominant_Contigs.csv"), ("s2", "s2_VDJ_Dominant_Contigs.csv")]
    write_table(tmp_path / "metadata.tsv", ("sample_id", "filename"), rows)
    report = run(tmp_path)
    assert {each.format for each in report.repertoires} == {"bd-rhapsody"}
    assert [each.sequences.decode() for each in RepertoireDataset(tmp_path / "cohort.h5")] == [["CASSLFF"], ["CASSLYF"]]
