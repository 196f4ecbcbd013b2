"""`check_cohort`: each suspicion is found where it is, and nowhere else."""

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.checks import CODES, check_cohort
from deeprc.checks.features import _parse_numbers, make_sheet_features
from deeprc.checks.overlaps import find_overlaps
from deeprc.checks.profile import hash_with_gene_names
from deeprc.checks.sheet import SheetDonors, _are_alike
from deeprc.datasets.alphabet import AMINO_ACIDS, encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.metadata import read_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError

LETTERS = np.array(list(AMINO_ACIDS))
V = ("TRBV2", "TRBV5-1", "TRBV6-2", "TRBV7-9", "TRBV19", "TRBV20-1", "TRBV28", "TRBV29-1")
J = ("TRBJ1-1", "TRBJ1-2", "TRBJ2-1", "TRBJ2-3", "TRBJ2-7")


class Cohort:
    """Repertoires as tables and a sheet, random and without anything to find; a test spoils what it is about."""

    def __init__(self, n: int = 12, seed: int = 0, n_sequences: int = 60) -> None:
        rng = self.rng = np.random.default_rng(seed)
        usage = rng.dirichlet(np.full(len(V), 5.0))
        self.tables = {
            f"hd{number}": self.repertoire(int(rng.integers(n_sequences, 3 * n_sequences)), rng.dirichlet(200 * usage))
            for number in range(n)
        }
        status = rng.permutation(np.resize(["case", "control"], n))
        self.sheet = pd.DataFrame(
            {
                "repertoire_id": list(self.tables),
                "status": status,
                "age": rng.integers(20, 80, n),
                "sex": rng.choice(["F", "M"], n),
                "batch": rng.choice(["A", "B", "C"], n),
                "drawn": [f"2020-0{m}-1{d}" for m, d in zip(rng.integers(1, 9, n), rng.integers(0, 9, n), strict=True)],
                "subject_id": [f"p{number}" for number in rng.permutation(n)],
            }
        )

    def repertoire(self, n: int, usage: object = None) -> pd.DataFrame:
        rng = self.rng
        lengths = rng.integers(6, 14, n)
        text, ends = "".join(LETTERS[rng.integers(0, len(LETTERS), lengths.sum())]), np.cumsum(lengths)
        sequences = [f"CAS{text[start:end]}F" for start, end in zip(ends - lengths, ends, strict=True)]
        in_frame = rng.random(n) > 0.1
        return pd.DataFrame(
            {
                "sequence_id": np.arange(n),
                "junction_aa": sequences,
                "duplicate_count": rng.geometric(0.3, n),
                "productive": np.where(in_frame, "T", "F"),
                "v_call": rng.choice(V, n, p=usage),
                "j_call": rng.choice(J, n),
            }
        )

    def without_subjects(self) -> "Cohort":
        self.sheet = self.sheet.drop(columns="subject_id")
        return self

    def cases(self) -> list[str]:
        return self.sheet.loc[self.sheet["status"] == "case", "repertoire_id"].tolist()

    def write(self, folder: Path) -> "Cohort":
        self.folder = folder
        (folder / "files").mkdir()
        for name, table in self.tables.items():
            table.to_csv(folder / "files" / f"{name}.tsv", sep="\t", index=False)
        self.sheet.to_csv(folder / "sheet.tsv", sep="\t", index=False)
        return self

    def check(
        self, *, targets: Sequence[str] = ("status",), group_by: str | None = None, jobs: int = 1, **options: object
    ):
        place = [self.folder / "files"], self.folder / "sheet.tsv"
        reading = ReadingOptions(**options)
        return check_cohort(*place, targets=targets, group_by=group_by, jobs=jobs, options=reading)


def codes(found, *severities: str) -> list[str]:
    return [each.code for each in found.findings if each.severity in (severities or ("error", "warning"))]


def only(found, code: str):
    findings = [each for each in found.findings if each.code == code]
    assert len(findings) == 1, findings
    return findings[0]


@pytest.fixture
def cohort() -> Cohort:
    return Cohort()


def big(seed: int = 0) -> Cohort:
    """Return a cohort that is large enough to look for shortcuts."""
    return Cohort(n=40, seed=seed, n_sequences=40)


@pytest.mark.parametrize("seed", [0, 1, pytest.param(range(2, 20), marks=pytest.mark.long)])
@pytest.mark.parametrize("with_subjects", [True, False])
def test_a_clean_cohort_raises_no_alarm(tmp_path, seed, with_subjects):
    for number in [seed] if isinstance(seed, int) else seed:
        folder = tmp_path / str(number)
        folder.mkdir()
        cohort = big(number) if with_subjects else big(number).without_subjects()
        found = cohort.write(folder).check()
        assert codes(found) == [], (number, found.to_text())
        assert found.ok
        assert {each.property for each in found.shortcuts} >= {
            "number of sequences",
            "sum of counts",
            "share of dropped rows",
            "V gene usage",
            "J gene usage",
            "column 'age'",
            "column 'sex'",
            "column 'batch' (technical)",
            "column 'drawn'",
        }


def test_check_reports_what_preprocess_would_do_and_writes_nothing(tmp_path, cohort):
    cohort.write(tmp_path)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    found = cohort.check(jobs=2)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
    assert found.to_dict() == cohort.check(jobs=1).to_dict()
    report = preprocess([tmp_path / "files"], tmp_path / "sheet.tsv", tmp_path / "c.h5")
    assert found.report == report
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["preprocessing"] == report.to_dict()
    assert found.to_text().startswith(report.to_text())


# -- files ------------------------------------------------------------------------------------------------------------


def test_every_bad_file_is_listed_and_the_others_are_checked(tmp_path, cohort):
    cohort.write(tmp_path)
    files = tmp_path / "files"
    (files / "hd1.tsv").write_text("what\tis\tthis\n1\t2\t3\n")
    (files / "hd2.tsv").write_bytes(b"")
    text = (files / "hd3.tsv").read_text().splitlines()
    (files / "hd3.tsv").write_text("\n".join([*text[:5], "7\tCASSF\t-7\tT\tTRBV2\tTRBJ1-1", *text[6:]]))
    packed = gzip.compress((files / "hd4.tsv").read_bytes())
    (files / "hd4.tsv").unlink()
    (files / "hd4.tsv.gz").write_bytes(packed[: len(packed) // 2])
    found = cohort.check()
    bad = [each for each in found.findings if each.severity == "error"]
    assert [each.code for each in bad] == ["unreadable-file"] * 4
    assert sorted(Path(each.files[0]).name for each in bad) == ["hd1.tsv", "hd2.tsv", "hd3.tsv", "hd4.tsv.gz"]
    assert any("row 6, column 'duplicate_count'" in each.message for each in bad)
    assert len(found.report.repertoires) == 8
    assert not found.ok


def test_a_row_without_a_file_and_a_file_without_a_row_are_errors_unless_allowed(tmp_path, cohort):
    cohort.write(tmp_path)
    (tmp_path / "files" / "hd3.tsv").rename(tmp_path / "files" / "other.tsv")
    found = cohort.check()
    assert codes(found, "error") == ["row-without-file", "file-without-row"]
    assert only(found, "row-without-file").repertoires == ("hd3",)
    assert not found.ok
    tolerant = cohort.check(allow_missing=True)
    assert {"row-without-file", "file-without-row"} <= set(codes(tolerant, "warning"))
    assert tolerant.ok


def test_rows_that_are_left_out_do_not_count(tmp_path, cohort):
    cohort.sheet["status"] = [*["case"] * 3, *["control"] * 9]
    cohort.write(tmp_path)
    for number in range(3):
        (tmp_path / "files" / f"hd{number}.tsv").unlink()
    message = only(cohort.check(allow_missing=True), "small-class").message
    assert message == "target 'status': fewer than 15 repertoires in 2 classes: 'control' (9), 'case' (0)"


def test_no_matching_file_is_an_error_even_if_missing_files_are_allowed(tmp_path, cohort):
    cohort.sheet["repertoire_id"] = [f"x{number}" for number in range(12)]
    found = cohort.write(tmp_path).check(allow_missing=True)
    assert codes(found, "error") == ["row-without-file"]
    assert found.report.repertoires == ()


def test_two_files_for_one_row_are_an_error(tmp_path, cohort):
    cohort.write(tmp_path)
    (tmp_path / "files" / "hd3.txt").write_text((tmp_path / "files" / "hd3.tsv").read_text())
    found = cohort.check()
    assert codes(found, "error") == ["ambiguous-files"]
    assert "two files match the repertoire 'hd3'" in found.findings[0].message
    assert found.report is None


def test_a_sheet_that_names_a_repertoire_twice_is_an_error(tmp_path, cohort):
    cohort.sheet = pd.concat([cohort.sheet, cohort.sheet.iloc[[0]]])
    found = cohort.write(tmp_path).check()
    assert codes(found) == ["unreadable-sheet"]
    assert "rows 2 and 14 have the same repertoire_id 'hd0'" in found.findings[0].message


def test_an_empty_repertoire_is_an_error_unless_allowed(tmp_path, cohort):
    cohort.tables["hd5"]["productive"] = "F"
    cohort.write(tmp_path)
    message = only(cohort.check(), "empty-repertoire").message
    assert message.startswith("none of the ")
    assert "unproductive" in message
    assert "empty-repertoire" in codes(cohort.check(allow_missing=True), "warning")


# -- chains, species, genes -------------------------------------------------------------------------------------------


def test_two_chains_are_an_error_unless_one_is_chosen(tmp_path, cohort):
    alpha = cohort.tables["hd2"].iloc[:9].copy()
    alpha["v_call"], alpha["j_call"] = "TRAV1-2", "TRAJ33"
    cohort.tables["hd2"] = pd.concat([cohort.tables["hd2"], alpha])
    cohort.write(tmp_path)
    finding = only(cohort.check(), "mixed-chains")
    assert finding.severity == "error"
    assert finding.repertoires == ("hd2",)
    assert finding.advice == "Choose one chain with `locus`, such as `locus=TRB`."
    assert "mixed-chains" not in codes(cohort.check(locus="TRB"))


@pytest.mark.parametrize(("n", "severity"), [(2, None), (4, "warning"), (200, "error")])
def test_genes_that_contradict_the_chain_are_a_warning_or_if_many_an_error(tmp_path, cohort, n, severity):
    cohort.tables["hd2"] = cohort.repertoire(200)
    cohort.tables["hd2"]["productive"] = "T"
    for table in cohort.tables.values():
        table["locus"] = "TRB"
    cohort.tables["hd2"].loc[: n - 1, "v_call"] = "TRAV1-2"
    found = cohort.write(tmp_path).check()
    assert [each.severity for each in found.findings if each.code == "chain-contradiction"] == [severity] * bool(
        severity
    )


def test_v_genes_that_two_chains_share_contradict_neither(tmp_path, cohort):
    for table in cohort.tables.values():
        table["v_call"], table["j_call"] = "TRAV29/DV5", "TRDJ1"
    assert "chain-contradiction" not in codes(cohort.write(tmp_path).check())


def test_mice_among_humans_are_an_error_and_mice_alone_a_note(tmp_path, cohort):
    cohort.tables["hd2"]["v_call"] = "TRBV13-2"  # no human gene
    cohort.write(tmp_path)
    finding = only(cohort.check(), "mixed-species")
    assert finding.severity == "error"
    assert finding.repertoires == ("hd2",)
    for name, table in cohort.tables.items():
        table["v_call"] = "TRBV13-2"
        table.to_csv(tmp_path / "files" / f"{name}.tsv", sep="\t", index=False)
    alone = cohort.check()
    assert only(alone, "mouse-genes").severity == "note"
    assert "unknown-genes" not in codes(alone, "warning", "note")


def test_a_single_mouse_gene_is_a_warning(tmp_path, cohort):
    cohort.tables["hd2"] = cohort.repertoire(200)
    cohort.tables["hd2"].loc[3, ["v_call", "productive"]] = "TRBV13-2", "T"
    finding = only(cohort.write(tmp_path).check(), "mouse-genes")
    assert finding.severity == "warning"
    assert finding.message.startswith("1 sequences have genes that only mice have (TRBV13-2)")


def test_names_that_are_no_genes_are_a_warning(tmp_path, cohort):
    cohort.tables["hd2"]["v_call"] = "Vbeta 8.1 (BD)"
    finding = only(cohort.write(tmp_path).check(), "unknown-genes")
    assert finding.severity == "warning"
    assert "'Vbeta 8.1 (BD)'" in finding.message
    assert finding.repertoires == ("hd2",)


def test_genes_that_one_file_lacks_are_a_warning(tmp_path, cohort):
    cohort.tables["hd2"]["j_call"] = ""
    finding = only(cohort.write(tmp_path).check(), "missing-genes")
    assert (finding.repertoires, finding.column) == (("hd2",), "j_call")


# -- counts, sizes ----------------------------------------------------------------------------------------------------


def test_a_cohort_without_counts_is_a_note(tmp_path, cohort):
    cohort.tables = {name: table.drop(columns="duplicate_count") for name, table in cohort.tables.items()}
    found = cohort.write(tmp_path).check()
    assert only(found, "no-counts").severity == "note"
    assert not {"counts-all-one", "missing-counts"} & set(codes(found, "note", "warning"))


def test_counts_that_some_files_lack_are_a_warning(tmp_path, cohort):
    cohort.tables["hd2"] = cohort.tables["hd2"].drop(columns="duplicate_count")
    cohort.tables["hd3"]["duplicate_count"] = cohort.tables["hd3"]["duplicate_count"].astype(object)
    cohort.tables["hd3"].loc[:4, "duplicate_count"] = ""
    finding = only(cohort.write(tmp_path).check(), "missing-counts")
    assert finding.severity == "warning"
    assert finding.repertoires == ("hd2", "hd3")


def test_counts_from_different_columns_are_found(tmp_path, cohort):
    cohort.tables["hd2"] = cohort.tables["hd2"].rename(columns={"duplicate_count": "consensus_count"})
    assert (
        "'consensus_count' in 1 repertoire: hd2"
        in only(cohort.write(tmp_path).check(), "different-count-columns").message
    )


def test_cells_are_counts_so_nothing_is_missing(tmp_path, cohort):
    cohort.tables = {name: table.drop(columns="duplicate_count") for name, table in cohort.tables.items()}
    for table in cohort.tables.values():
        table["cell_id"] = [f"cell{number}" for number in range(len(table))]
    found = cohort.write(tmp_path).check()
    assert not {"no-counts", "missing-counts", "counts-all-one"} & set(codes(found, "warning", "note"))


def test_counts_that_are_one_rounded_dominant_or_too_large_are_found(tmp_path, cohort):
    cohort.tables["hd1"]["duplicate_count"] = 1
    cohort.tables["hd2"]["duplicate_count"] = cohort.tables["hd2"]["duplicate_count"] / 1000
    cohort.tables["hd3"].loc[0, ["duplicate_count", "productive"]] = 100_000, "T"
    cohort.tables["hd4"].loc[0, ["duplicate_count", "productive"]] = 2**32 - 1, "T"
    found = cohort.write(tmp_path).check()
    assert only(found, "counts-all-one").repertoires == ("hd1", "hd2")  # fractions become 1
    assert only(found, "rounded-counts").repertoires == ("hd2",)
    assert only(found, "dominant-sequence").repertoires == ("hd3", "hd4")
    assert only(found, "saturated-counts").repertoires == ("hd4",)


def test_counts_that_are_one_everywhere_are_a_note(tmp_path, cohort):
    for table in cohort.tables.values():
        table["duplicate_count"] = 1
    assert only(cohort.write(tmp_path).check(), "counts-all-one").severity == "note"


def test_a_repertoire_much_smaller_than_the_others_is_found(tmp_path, cohort):
    cohort.tables["hd2"] = cohort.tables["hd2"].iloc[:3]
    finding = only(cohort.write(tmp_path).check(), "small-repertoire")
    assert finding.repertoires == ("hd2",)


def test_sizes_that_are_spread_widely_are_not_small(tmp_path, cohort):
    cohort.tables = {name: cohort.repertoire(int(12 * 1.6**i)) for i, name in enumerate(cohort.tables)}
    assert "small-repertoire" not in codes(cohort.write(tmp_path).check())


def test_a_drop_rate_unlike_the_rest_is_found(tmp_path, cohort):
    cohort.tables["hd2"].loc[::2, "productive"] = "F"
    finding = only(cohort.write(tmp_path).check(), "odd-drop-rate")
    assert finding.repertoires == ("hd2",)
    assert finding.message.startswith("rows dropped as 'unproductive': ")


def test_rows_of_another_chain_do_not_change_the_drop_rate_of_this_chain(tmp_path, cohort):
    for table in cohort.tables.values():
        table.loc[::2, "productive"] = "F"
    alpha = cohort.repertoire(1000).assign(v_call="TRAV1-1", j_call="TRAJ10", productive="T")
    cohort.tables["hd2"] = pd.concat([cohort.tables["hd2"], alpha])
    finding = only(cohort.write(tmp_path).check(locus="TRB"), "odd-drop-rate")
    assert finding.repertoires == ("hd2",)
    assert finding.message.startswith("rows dropped as 'other_locus': ")


def test_junctions_from_different_columns_are_a_note(tmp_path, cohort):
    cohort.tables["hd2"] = cohort.tables["hd2"].rename(columns={"junction_aa": "cdr3_aa"})
    assert only(cohort.write(tmp_path).check(), "different-junctions").severity == "note"


# -- content ----------------------------------------------------------------------------------------------------------


def test_the_same_repertoire_under_two_names_is_an_error(tmp_path, cohort):
    cohort.tables["hd7"] = cohort.tables["hd2"].sample(frac=1, random_state=0)
    found = cohort.write(tmp_path).check()
    finding = only(found, "same-content")
    assert (finding.severity, finding.repertoires) == ("error", ("hd2", "hd7"))
    assert "similar-content" not in codes(found)


def test_one_count_that_differs_is_not_the_same_but_similar(tmp_path, cohort):
    cohort.tables["hd7"] = cohort.tables["hd2"].copy()
    cohort.tables["hd7"].loc[5, ["duplicate_count", "productive"]] = 77, "T"
    cohort.tables["hd2"].loc[5, "productive"] = "T"
    found = cohort.write(tmp_path).check()
    assert "same-content" not in codes(found)
    assert only(found, "similar-content").repertoires == ("hd2", "hd7")


def test_a_contaminated_repertoire_is_found_unless_the_subject_is_the_same(tmp_path, cohort):
    spilled = cohort.tables["hd2"].iloc[:30]
    cohort.tables["hd7"] = pd.concat([cohort.tables["hd7"], spilled])
    cohort.write(tmp_path)
    assert only(cohort.check(), "similar-content").repertoires == ("hd2", "hd7")
    cohort.sheet.loc[[2, 7], "subject_id"] = "p2"
    cohort.sheet.to_csv(tmp_path / "sheet.tsv", sep="\t", index=False)
    assert "similar-content" not in codes(cohort.check())


def test_repertoires_of_unknown_subjects_are_not_of_one_subject(tmp_path, cohort):
    cohort.tables["hd7"] = pd.concat([cohort.tables["hd7"], cohort.tables["hd2"].iloc[:30]])
    cohort.sheet.loc[[2, 7], "subject_id"] = ""
    assert only(cohort.write(tmp_path).check(), "similar-content").repertoires == ("hd2", "hd7")


def test_repertoires_that_all_share_much_are_no_surprise(tmp_path, cohort):
    pool = cohort.repertoire(100)
    for name in cohort.tables:
        cohort.tables[name] = pool.sample(60, random_state=int(name[2:]))
    assert "similar-content" not in codes(cohort.write(tmp_path).check())


def test_without_a_donor_column_the_finding_names_no_different_donors(tmp_path, cohort):
    cohort.tables["hd7"] = pd.concat([cohort.tables["hd7"], cohort.tables["hd2"].iloc[:30]])
    cohort.sheet = cohort.sheet.drop(columns="subject_id")
    message = only(cohort.write(tmp_path).check(), "similar-content").message
    assert message.startswith(
        "2 repertoires (no column names their donors) share far more sequences than expected by chance: hd2, hd7. They "
        "share "
    )


def test_many_similar_pairs_are_one_finding_with_groups(tmp_path, cohort):
    """hd1 to hd4 hold what hd0 does, hd7 what hd6 does: a group of five, ten pairs, and one of two."""
    for number, source in ((1, 0), (2, 0), (3, 0), (4, 0), (7, 6)):
        half = cohort.tables[f"hd{source}"]
        cohort.tables[f"hd{number}"] = pd.concat([half.iloc[:-3], cohort.repertoire(3)])
    found = cohort.write(tmp_path).check()
    finding = only(found, "similar-content")
    assert finding.groups == (("hd0", "hd1", "hd2", "hd3", "hd4"), ("hd6", "hd7"))
    assert finding.message.startswith(
        "7 repertoires of different donors, in 2 groups, share far more sequences than expected by chance; the largest "
        "group: hd0, hd1, hd2 and 2 more. The 11 pairs share up to "
    )
    assert "\n" not in finding.message
    assert (finding.numbers["pairs"], finding.numbers["groups"]) == (11, 2)
    assert len({each.names for each in found.similar}) == 11
    assert {each.measure for each in found.similar} == {"sequences", "largest sequences"}


def test_copies_are_one_finding_with_groups(tmp_path, cohort):
    for number, source in ((3, 2), (4, 2), (9, 8)):
        cohort.tables[f"hd{number}"] = cohort.tables[f"hd{source}"]
    finding = only(cohort.write(tmp_path).check(), "same-content")
    assert finding.groups == (("hd2", "hd3", "hd4"), ("hd8", "hd9"))
    assert finding.message == (
        "all repertoires of a group have the same sequences, genes and counts (2 groups, 5 repertoires); the largest "
        "group: hd2, hd3, hd4"
    )


def test_no_finding_names_more_than_a_few(tmp_path):
    """In a cohort with everything wrong, each finding is a line, and has every name in its fields."""
    cohort = Cohort(n=40, n_sequences=40)
    for number, name in enumerate(list(cohort.tables)):
        table = cohort.tables[name]
        if number < 12:
            cohort.tables[name] = cohort.tables["hd0"].sample(frac=0.9, random_state=number)
        elif number < 18:
            table.loc[::2, "productive"] = "F"
        elif number < 24:
            cohort.tables[name] = table.iloc[:3]
        elif number < 30:
            table["productive"] = "F"
    cohort.sheet["subject_id"] = [f"p{number // 2}" if number > 11 else f"q{number}" for number in range(40)]
    cohort.write(tmp_path)
    for number in range(30, 36):
        (tmp_path / "files" / f"hd{number}.tsv").write_text(f"what\tis\tthis\n{number}\t2\t3\n")
    found = cohort.check()
    names = [each.split(": ")[0] for each in found.to_text().splitlines() if each.startswith(("error", "warning"))]
    assert len(names) == len([each for each in found.findings if each.severity != "note"])
    for finding in found.findings:
        mentioned = sum(f"{name}" in re.findall(r"\bhd\d+\b", finding.message) for name in cohort.tables)
        assert mentioned <= 4, finding.message
        assert finding.code == "unreadable-file" or len(finding.message) < 400  # a reader's own sentence is longer
    bad = only(found, "unreadable-file")
    assert bad.message.startswith("6 files: no reader knows this header; its first columns are what, is, this. ")
    assert bad.message.endswith("hd30.tsv)")
    assert len(bad.files) == 6
    assert len(only(found, "empty-repertoire").repertoires) == 6
    assert len(only(found, "similar-content").groups[0]) == 12


def test_overlaps_estimate_what_is_shared():
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, 50_000, np.uint64)
    a, b = np.unique(hashes[:30_000]), np.unique(hashes[25_000:])  # 5,000 in common of 25,000
    (pair,) = find_overlaps([a[:4096], b[:4096]], [True, True])
    assert pair.overlap == pytest.approx(0.2, abs=0.02)
    small = np.unique(hashes[26_000:26_500])  # all of it is in both
    (pair,) = find_overlaps([b[:4096], small], [True, False])
    assert pair.overlap == 1.0
    assert find_overlaps([a[:10], np.unique(hashes[40_000:])[:10]], [True, True]) == []


def test_hashes_know_residues_and_gene_names_but_not_their_codes():
    residues, offsets = encode_many(["CASSF", "CASSF", "CASFS", "CAS"])

    def table(vocabulary, codes):
        return Sequences(residues, offsets, np.ones(4, np.uint32), Categorical(np.array(codes, np.uint16), vocabulary))

    one = hash_with_gene_names(table(("TRBV2", "TRBV9"), [0, 1, 0, 0]))
    other = hash_with_gene_names(table(("", "TRBV9", "TRBV2"), [2, 1, 2, 0]))
    assert len(set(one.tolist())) == 4
    assert one[:3].tolist() == other[:3].tolist()
    assert one[3] != other[3]


# -- subjects and labels ----------------------------------------------------------------------------------------------


def test_subjects_with_several_repertoires_are_a_warning_unless_grouped(tmp_path, cohort):
    cohort.sheet["subject_id"] = [f"p{number // 2}" for number in range(12)]
    cohort.sheet["status"] = np.repeat(["case", "control"], 6)
    cohort.write(tmp_path)
    found = cohort.check()
    assert only(found, "repeated-subject").severity == "warning"
    assert "Train with `group_by=subject_id`" in only(found, "repeated-subject").advice
    assert "subject-in-both-classes" not in codes(found, "warning", "note")
    assert only(cohort.check(group_by="subject_id"), "repeated-subject").severity == "note"


def test_a_subject_that_is_called_none_is_not_an_unknown_one(tmp_path, cohort):
    cohort.sheet["status"] = np.resize(["case", "control"], 12)
    cohort.sheet.loc[[1, 2], "subject_id"] = ""
    cohort.sheet.loc[[3, 4], "subject_id"] = "None"
    found = cohort.write(tmp_path).check()
    assert only(found, "repeated-subject").repertoires == ("hd3", "hd4")
    assert only(found, "subject-in-both-classes").repertoires == ("hd3", "hd4")


def test_one_subject_in_both_classes_is_a_warning(tmp_path, cohort):
    cohort.sheet["subject_id"] = [f"p{number // 2}" for number in range(12)]
    cohort.sheet["status"] = ["case"] * 5 + ["control"] * 7  # p2 is both
    finding = only(cohort.write(tmp_path).check(), "subject-in-both-classes")
    assert (finding.severity, finding.repertoires) == ("warning", ("hd4", "hd5"))


def test_a_paired_design_is_a_note(tmp_path, cohort):
    cohort.sheet["subject_id"] = [f"p{number // 2}" for number in range(12)]
    cohort.sheet["status"] = ["before", "after"] * 6
    assert only(cohort.write(tmp_path).check(), "subject-in-both-classes").severity == "note"


def test_classes_that_were_left_out_are_not_missing(tmp_path, cohort):
    cohort.sheet["status"] = ["case", "control", *["other"] * 9, None]
    found = cohort.write(tmp_path).check(targets=["status=case vs control"])
    assert only(found, "missing-labels").repertoires == ("hd11",)
    assert only(found, "missing-labels").severity == "note"


def test_missing_labels_and_small_classes_are_found(tmp_path, cohort):
    cohort.sheet["status"] = ["case", "case", *["control"] * 8, None, "n/a"]
    found = cohort.write(tmp_path).check()
    assert only(found, "missing-labels").repertoires == ("hd10", "hd11")
    assert only(found, "missing-labels").severity == "note"
    small = only(found, "small-class")
    assert small.message == "target 'status': fewer than 15 repertoires in 2 classes: 'control' (8), 'case' (2)"
    assert small.numbers == {"repertoires of control": 8, "repertoires of case": 2}
    assert only(found, "too-few").severity == "note"


def test_one_class_is_an_error_and_a_column_that_is_not_there_is_wrong_usage(tmp_path, cohort):
    cohort.sheet["constant"] = "yes"
    cohort.write(tmp_path)
    found = cohort.check(targets=["constant", "status=ill"])
    assert codes(found, "error") == ["unusable-target"] * 2
    with pytest.raises(InputError, match=r"no metadata column 'satus'.*did you mean 'status'"):
        cohort.check(targets=["satus"])
    with pytest.raises(InputError, match=r"no metadata column 'constant_too'"):  # begins with the name of a column
        cohort.check(targets=["constant_too=yes"])
    with pytest.raises(InputError, match="no column 'who' for `group_by`"):
        cohort.check(group_by="who")


def test_labels_that_look_alike_are_found(tmp_path, cohort):
    cohort.sheet["status"] = ["Case", "case", "case", "control", "contrl", *["control"] * 7]
    found = cohort.write(tmp_path).check(targets=["status:multiclass"])
    assert only(found, "similar-labels").message == (
        "column 'status': labels that may mean the same, 2 pairs: 'Case' (1) and 'case' (2), 'contrl' (1) and "
        "'control' (8)"
    )


def test_spellings_that_the_target_joins_are_no_finding(tmp_path, cohort):
    cohort.sheet["status"] = ["Case", "case", "case", "control", "Control", *["control"] * 7]
    cohort.write(tmp_path)
    assert "similar-labels" not in codes(cohort.check(targets=["status=Case,case vs control,Control"]))
    assert "similar-labels" not in codes(cohort.check(targets=["status=Case,case"]))
    for target in ("status=case", "status=case vs control,Control"):  # the other spelling is negative, or left out
        assert only(cohort.check(targets=[target]), "similar-labels").message == (
            "column 'status': labels that may mean the same, 1 pair: 'Case' (1) and 'case' (2)"
        )


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("Case", "case", True),
        ("long covid", "Long_COVID", True),
        ("pos", "Positive", True),
        ("control", "contorl", True),
        ("control", "controls", True),
        ("CMV+", "CMV-", False),
        ("+", "-", False),
        ("cd4", "cd8", False),
        ("grade1", "grade2", False),
        ("male", "female", False),
        ("healthy", "unhealthy", False),
        ("mild", "mold", False),
    ],
)
def test_labels_look_alike_if_spelling_or_one_typo_separates_them(first, second, alike):
    assert _are_alike(first, second, 1) is alike


def test_labels_are_found_without_being_named(tmp_path, cohort):
    cohort.sheet["grade"] = np.resize(["1", "2", "3"], 12)
    found = cohort.write(tmp_path).check(targets=[])
    assert only(found, "checked-targets").message == "columns used as labels: status"  # its name says so
    cohort.sheet = cohort.sheet.rename(columns={"status": "y"})
    cohort.sheet.to_csv(tmp_path / "sheet.tsv", sep="\t", index=False)
    assert only(cohort.check(targets=[]), "checked-targets").message == "columns used as labels: y, grade"


# -- shortcuts --------------------------------------------------------------------------------------------------------


def test_size_that_predicts_the_label(tmp_path):
    cohort = big()
    for name in cohort.cases():
        cohort.tables[name] = cohort.tables[name].iloc[:30]
    found = cohort.write(tmp_path).check()
    sizes = [each for each in found.findings if each.code == "label-from-size"]
    assert [each.severity for each in sizes] == ["warning", "warning"]
    expected = "target 'status': the number of sequences predicts 'case' against 'control' with an AUC of 1.00 (95% "
    assert sizes[0].message == f"{expected}interval 0.90 to 1.00); it is lower in 'case'"


def test_filters_that_predict_the_label(tmp_path):
    cohort = big()
    for name in cohort.cases():
        cohort.tables[name] = cohort.tables[name].query("productive == 'T'")
    found = cohort.write(tmp_path).check()
    assert codes(found) == ["label-from-processing"]
    assert "share of dropped rows" in only(found, "label-from-processing").message


@pytest.mark.parametrize("with_subjects", [True, False])
@pytest.mark.parametrize(("column", "name"), [("v_call", "V gene usage"), ("j_call", "J gene usage")])
def test_genes_that_predict_the_label(tmp_path, column, name, with_subjects):
    cohort = big() if with_subjects else big().without_subjects()
    for case in cohort.cases():
        table = cohort.tables[case]
        table.loc[: len(table) // 3, column] = {"v_call": V, "j_call": J}[column][0]
    found = cohort.write(tmp_path).check()
    assert codes(found) == ["label-from-genes"]
    assert name in only(found, "label-from-genes").message


@pytest.mark.parametrize("column", ["batch", "sex"])
def test_a_column_that_predicts_the_label(tmp_path, column):
    cohort = big()
    cohort.sheet[column] = np.where(cohort.sheet["status"] == "case", "X", "Y")
    cohort.sheet.loc[[3, 4], column] = "Y"
    finding = only(cohort.write(tmp_path).check(), "label-from-column")
    assert (finding.severity, finding.column) == ("warning", column)
    assert "with 'X' are " in finding.message


@pytest.mark.parametrize("first", ["0001-01-01", "1970-01-01", "9999-12-31"])
def test_dates_of_any_year_are_days(first):
    """A spreadsheet may have the first or the last day that there is."""
    found = _parse_numbers(pd.Series([first, "1970-01-03", None, "2020-02-29"], dtype=object))
    assert found[1:].tolist()[::2] == [2.0, 18321.0]
    assert np.isnan(found[2])
    expected = (np.datetime64(first) - np.datetime64("1970-01-01")).astype(int)
    assert np.isnan(found[0]) or found[0] == expected  # older versions of pandas have no such year


def test_dates_numbers_and_their_absence_that_predict_the_label(tmp_path):
    cohort = big()
    case = (cohort.sheet["status"] == "case").to_numpy()
    cohort.sheet["drawn"] = [f"2020-0{2 + is_case}-{10 + i % 19}" for i, is_case in enumerate(case.astype(int))]
    cohort.sheet["age"] += 60 * case
    cohort.sheet["bmi"] = np.where(case, cohort.rng.normal(25, 3, 40).round(1), np.nan)
    found = cohort.write(tmp_path).check()
    columns = {each.column: each.message for each in found.findings if each.code == "label-from-column"}
    assert set(columns) == {"drawn", "age", "bmi"}
    assert "whether column 'bmi' has a value" in columns["bmi"]


def test_names_and_folders_that_predict_the_label(tmp_path):
    cohort = big()
    case = set(cohort.cases())
    names = {name: f"{'HIP' if name in case else 'Keck'}{name[2:]}" for name in cohort.tables}
    cohort.tables = {names[name]: table for name, table in cohort.tables.items()}
    cohort.sheet["repertoire_id"] = cohort.sheet["repertoire_id"].map(names)
    found = cohort.write(tmp_path).check()
    assert codes(found) == ["label-from-name"]
    assert "beginning of the file name" in only(found, "label-from-name").message
    for folder in ("first", "second"):
        (tmp_path / "files" / folder).mkdir()
    for path in (tmp_path / "files").glob("*.tsv"):
        path.rename(path.parent / ("first" if path.name.startswith("H") else "second") / path.name)
    both = [each.message for each in cohort.check().findings if each.code == "label-from-name"]
    assert len(both) == 1  # letters and folder say the same, so it is said once
    assert "folder" in both[0]


def test_folders_named_like_the_label_only_sort_the_files(tmp_path):
    cohort = big()
    cohort.write(tmp_path)
    label = cohort.sheet.set_index("repertoire_id")["status"]
    for folder in ("Case", "Control"):
        (tmp_path / "files" / folder).mkdir()
    for path in (tmp_path / "files").glob("*.tsv"):
        path.rename(path.parent / label[path.stem].capitalize() / path.name)
    assert codes(cohort.check()) == []


def test_several_repertoires_of_a_subject_are_no_evidence(tmp_path):
    """Ten subjects with four repertoires each: what is common to a subject would seem to predict the label."""
    cohort = big()
    subject = np.arange(40) // 4
    cohort.sheet["subject_id"] = [f"p{number}" for number in subject]
    cohort.sheet["status"] = np.where(subject % 2, "case", "control")
    cohort.sheet["site"] = np.where(subject < 4, "A", np.where(subject % 2, "B", "C"))
    found = cohort.write(tmp_path).check()
    assert only(found, "too-few").message.endswith(
        ": 5 of control, 5 of case (donors, or repertoires of an unknown donor); a test needs at least 8 in a class "
        "and in the rest"
    )
    assert codes(found) == ["repeated-subject"]


@pytest.mark.parametrize("column", [None, "subject_id"])
def test_repertoires_of_unknown_subjects_count_one_each(tmp_path, column):
    """No column of subjects, or one without an entry in most rows: they are not all of one subject."""
    cohort = big()
    subject = [7.0 if number < 2 else None for number in range(40)]  # a column of numbers, in which missing is NaN
    cohort.sheet = cohort.sheet.drop(columns="subject_id").assign(**({column: subject} if column else {}))
    cohort.sheet.loc[[0, 1], "status"] = "case"
    for name in cohort.cases():
        cohort.tables[name] = cohort.tables[name].iloc[:30]
    found = cohort.write(tmp_path).check()
    assert "too-few" not in codes(found, "note")
    sizes = [each for each in found.findings if each.code == "label-from-size"]
    assert [each.severity for each in sizes] == ["warning", "warning"]
    subjects = SheetDonors(read_metadata(tmp_path / "sheet.tsv"), None).list_donors().tolist()
    assert subjects == (["7", "7", *[None] * 38] if column else [None] * 40)


def test_a_column_of_files_with_a_gap_is_no_feature(tmp_path):
    (tmp_path / "sheet.tsv").write_text("sample_id\tfile\tsite\na\tx.tsv\t1\nb\tx.tsv\t2\nc\tNA\t3\n")
    sheet = read_metadata(tmp_path / "sheet.tsv")
    assert [each.column for each in make_sheet_features(sheet, range(3), SheetDonors(sheet, None))] == ["site"]


def test_whether_a_column_holds_categories_depends_on_the_subjects_that_the_user_names(tmp_path):
    """Litters 1 to 8 of 40 repertoires are categories; of ten cages, one number each, they are measurements."""
    cages = "".join(f"r{i}\tcage {i % 10}\t{i % 10 % 8}\n" for i in range(40))
    (tmp_path / "sheet.tsv").write_text(f"repertoire_id\tcage\tlitter\n{cages}")
    sheet = read_metadata(tmp_path / "sheet.tsv")
    assert [
        make_sheet_features(sheet, range(40), SheetDonors(sheet, column))[-1].is_categorical
        for column in (None, "cage")
    ] == [
        True,
        False,
    ]


def test_size_predicts_one_of_three_classes_and_the_half_of_a_number(tmp_path):
    cohort = Cohort(n=45, n_sequences=40)
    cohort.sheet["grade"] = np.resize(["low", "mid", "high"], 45)
    for number in range(2, 45, 3):
        cohort.tables[f"hd{number}"] = cohort.tables[f"hd{number}"].iloc[:30]
    cohort.write(tmp_path)
    first = cohort.check(targets=["grade:multiclass"]).shortcuts[0]
    assert first.label == "'high' against the other classes"
    assert (first.value, first.detail) == (1.0, "; it is lower in 'high'")
    assert first.verdict == "warning"
    cohort.sheet["age"] = [len(table) for table in cohort.tables.values()]
    cohort.sheet.to_csv(tmp_path / "sheet.tsv", sep="\t", index=False)
    first = cohort.check(targets=["age:regression"]).shortcuts[0]
    assert first.label == "'upper half' against 'lower half'"
    assert first.verdict == "warning"


def test_a_rare_class_does_not_hide_what_tells_the_others(tmp_path):
    cohort = big()
    for name in cohort.cases():
        cohort.tables[name] = cohort.tables[name].iloc[:30]
    cohort.sheet.loc[[0, 1], "status"] = "other"
    found = cohort.write(tmp_path).check(targets=["status:multiclass"])
    assert found.shortcuts[0].verdict == "warning"
    assert found.shortcuts[0].label in ("'case' against the other classes", "'control' against the other classes")


def test_every_code_is_explained_in_the_docs():
    text = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    documented = re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)  # names of files have a dot
    assert sorted(documented) == sorted(CODES)


@pytest.mark.slow
def test_covidtcrs_without_subjects_warns_of_v_genes(real_data, tmp_path):
    """Without the columns of patients, each sample counts, and the use of V genes is a warning."""
    folder = real_data / "covidtcrs"
    sheet = pd.read_csv(folder / "metadata_TRB_10umi_filter_MiXCR_to_VDJtools.txt", sep="\t")
    sheet.drop(columns=["patient_id", "study_patient_id"]).to_csv(tmp_path / "sheet.tsv", sep="\t", index=False)
    options = ReadingOptions(allow_missing=True)
    found = check_cohort([folder], tmp_path / "sheet.tsv", targets=["T-cell_type=cd4"], options=options)
    assert "too-few" not in codes(found, "note")
    genes = [each for each in found.findings if each.code == "label-from-genes"]
    assert [each.severity for each in genes] == ["warning", "warning"]
    assert genes[0].message.startswith(
        "target 'T-cell_type=cd4': the V gene usage predicts 'cd4' against 'cd8' with an AUC of 0.9"
    )


@pytest.mark.slow
def test_covidtcrs_has_the_findings_that_are_known(real_data):
    folder = real_data / "covidtcrs"
    sheet = folder / "metadata_TRB_10umi_filter_MiXCR_to_VDJtools.txt"
    found = check_cohort([folder], sheet, targets=["T-cell_type"], options=ReadingOptions(allow_missing=True))
    assert codes(found, "error") == []
    assert only(found, "small-repertoire").repertoires == ("2_cd4_1_S67", "5_cd4_1_S4")
    assert only(found, "similar-content").repertoires == ("31_cd8_1_S64", "34_cd4_1_S55")  # two subjects
    assert only(found, "subject-in-both-classes").severity == "note"
    assert "(2 donors: covidam10, covidam12). Example: " in only(found, "closer-to-other-class").message
    genes = {each.property: each.value for each in found.shortcuts if each.code == "label-from-genes"}
    assert min(genes.values()) > 0.85  # an independent scikit-learn pipeline, grouped by subject: 0.90 and 0.97
