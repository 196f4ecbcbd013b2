"""Which sequences match a database, and what would match by chance."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.emerson2017 import read_associated_sequences
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.simulation import SimulatedDataset, load_recipe
from deeprc.errors import InputError
from deeprc.specificity import annotate_sequences, read_database
from deeprc.specificity.annotate import compute_upper_tail
from deeprc.specificity.background import Strata, classify_publicity, draw_clone_background, estimate_match_rates
from tests.toys.repertoires import make_sequences, write_repertoires

DATABASE = pd.DataFrame(
    [
        ("ASSIRSSYEQY", "TRBV19", "GILGFVFTL", "M", "InfluenzaA"),
        ("ASSIRSSYEQY", "TRBV19", "GILGFVFTL", "M", "InfluenzaA, strain B"),
        ("ASSIRSSYEQY", "TRBV2", "NLV", "pp65", "CMV"),
        ("ASSWWWWYEQY", "", "EAA", "", "EBV"),
    ],
    columns=["cdr3_aa", "v_call", "epitope", "antigen", "antigen_organism"],
)


def test_the_best_matches_describe_a_sequence() -> None:
    rows = {
        "CASSIRSSYEQYF": ("TRBV19*01", "exact, same V", "InfluenzaA; InfluenzaA, strain B", "M", "GILGFVFTL", 2),
        "CASSIRSSYEQYW": ("TRBV5-1", "exact", "InfluenzaA; InfluenzaA, strain B; CMV", "M; pp65", "GILGFVFTL; NLV", 3),
        "CASSIRSAYEQYF": ("TRBV2", "one substitution, same V", "CMV", "pp65", "NLV", 1),
        "CASSWWAWYEQYF": ("", "one substitution", "EBV", "", "EAA", 1),
        "CASSAAAAYEQYF": ("TRBV19", "", "", "", "", 0),
        "CASSIRSSYEQF": ("TRBV19", "", "", "", "", 0),  # shorter
        "CAS*F": ("TRBV19", "", "", "", "", 0),
    }
    # the first and the second have the same residues between the conserved ones: one annotation for both
    for junction, (v_call, *expected) in rows.items():
        table = pd.DataFrame({"junction_aa": [junction], "v_call": [v_call], "mine": ["x"]})
        found = annotate_sequences(table, DATABASE).table
        assert list(found)[:3] == ["junction_aa", "v_call", "mine"]
        assert found.iloc[0, 3:].tolist() == expected, junction


def test_rows_stay_in_their_order_with_their_index() -> None:
    table = pd.DataFrame({"junction_aa": ["CAF", "CASSIRSSYEQYF", None, "CASSIRSSYEQYF"]}, index=[7, 7, 3, 1])
    found = annotate_sequences(table, DATABASE)
    assert found.table.index.tolist() == [7, 7, 3, 1]
    assert found.table["n_database_entries"].tolist() == [0, 3, 0, 3]
    assert found.n_matched == 1
    counts = found.organisms.set_index("antigen_organism")
    assert counts.loc["CMV", ["n_exact", "n_within_one", "n_tested"]].tolist() == [1, 1, 1]


def test_a_table_that_is_annotated_or_has_no_sequences_is_refused() -> None:
    table = pd.DataFrame({"junction_aa": ["CASSIRSSYEQYF"]})
    with pytest.raises(InputError, match="has a column 'specificity_match' already"):
        annotate_sequences(annotate_sequences(table, DATABASE).table, DATABASE)
    with pytest.raises(InputError, match="expected the column junction_aa or cdr3_aa, found sequence"):
        annotate_sequences(pd.DataFrame({"sequence": ["A"]}), DATABASE)
    with pytest.raises(InputError, match=r"found x{60}\.\.\., c0, c1, .*c18 and 80 more$"):
        annotate_sequences(pd.DataFrame(columns=["x" * 100_000, *(f"c{i}" for i in range(99))]), DATABASE)


def test_the_v_gene_of_each_row_counts_and_a_sequence_once() -> None:
    calls = ["TRBV19", "TRBV5-1", "TRBV2"]
    for order in ([0, 1, 2], [2, 1, 0]):
        table = pd.DataFrame({"junction_aa": "CASSIRSSYEQYF", "v_call": [calls[i] for i in order]})
        found = annotate_sequences(table, DATABASE)
        matches = dict(zip(found.table["v_call"], found.table["specificity_match"], strict=True))
        assert matches == {"TRBV19": "exact, same V", "TRBV5-1": "exact", "TRBV2": "exact, same V"}
        assert (found.n_matched, found.n_tested) == (1, 1)
        assert found.organisms["n_exact"].tolist() == [1, 1, 1]


def test_a_table_without_any_match_says_so() -> None:
    found = annotate_sequences(pd.DataFrame({"cdr3_aa": ["AAAAAAA"]}), DATABASE)
    assert found.to_lines() == ["0 of 1 different sequences match a database, with at most one substitution"]


def test_the_probability_of_at_least_n_events() -> None:
    rates = np.array([0.1, 0.5, 0.25, 0.9])
    for n in range(6):
        direct = sum(
            float(np.prod([p if hit else 1 - p for p, hit in zip(rates, hits, strict=True)]))
            for hits in product((0, 1), repeat=4)
            if sum(hits) >= n
        )
        assert compute_upper_tail(n, rates) == pytest.approx(direct, abs=1e-12)
    assert compute_upper_tail(9, np.full(60, 0.01)) == pytest.approx(
        binom.sf(8, 60, 0.01), rel=1e-9
    )  # 1e-9: no cancellation


def test_publicity_rises_with_each_doubling_of_carriers() -> None:
    assert classify_publicity(np.array([0, 1, 2, 3, 4, 5, 8, 9])).tolist() == [0, 0, 1, 2, 2, 3, 3, 4]


def test_a_rate_is_drawn_towards_that_of_the_coarser_stratum() -> None:
    of_background = Strata(np.array([0] * 100 + [1] * 50), np.full(150, 11), np.full(150, 2))
    hits = np.zeros((150, 1), bool)
    hits[:10] = True
    of_table = Strata(np.array([0, 1, 9]), np.array([11, 11, 11]), np.array([2, 2, 2]))
    overall = (10 + 1) / 151
    coarse = (10 + 50 * (10 + 50 * overall) / 200) / 200  # by publicity, then by length
    expected = [(10 + 50 * coarse) / 150, (0 + 50 * coarse) / 100, coarse]
    np.testing.assert_allclose(estimate_match_rates(of_table, of_background, hits)[:, 0], expected)


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> tuple[RepertoireDataset, list[str]]:
    """Return 12 repertoires that share 600 public clones, each carried by four, beside 500 clones of their own."""
    rng = np.random.default_rng(0)
    letters = np.array(list("ADEGHKLNPQRSTVWY"))

    def draw(n: int) -> list[str]:
        return [f"CASS{''.join(row)}F" for row in letters[rng.integers(0, 16, (n, 8))]]

    clones = draw(600)
    path = tmp_path_factory.mktemp("public") / "cohort.h5"
    carriers, repertoires = [rng.choice(12, 4, replace=False) for _ in clones], []
    for i in range(12):
        own = [clone for clone, who in zip(clones, carriers, strict=True) if i in who]
        repertoires.append(make_sequences([*own, *draw(500)]))
    return write_repertoires(path, repertoires, {"status": ["a", "b"] * 6}), clones


def test_public_clones_are_compared_with_public_clones(public: tuple[RepertoireDataset, list[str]]) -> None:
    """A database of public clones: 60 of 600 match. Among random clones of the cohort, hardly one of a hundred does."""
    cohort, clones = public
    known = [clone[1:-1] for clone in clones[:60]]
    database = pd.DataFrame({"cdr3_aa": known, "v_call": "", "epitope": "", "antigen": "", "antigen_organism": "X"})
    chance = annotate_sequences(pd.DataFrame({"junction_aa": clones[50:150]}), database, cohort=cohort).organisms
    assert chance["n_exact"].tolist() == [10]
    assert chance["expected_exact"].iloc[0] == pytest.approx(10, abs=3)
    assert 0.2 < chance["p_exact"].iloc[0] < 0.9
    found = annotate_sequences(pd.DataFrame({"junction_aa": clones[20:120]}), database, cohort=cohort)
    (row,) = found.organisms.to_dict("records")
    assert row["n_exact"] == 40
    assert row["expected_exact"] < 8
    assert row["p_exact"] == row["q_exact"] < 1e-15
    assert "exact matches of X: 40 (" in found.to_lines()[1]


def test_cdr3s_and_other_conserved_residues_are_found_in_the_cohort(
    public: tuple[RepertoireDataset, list[str]],
) -> None:
    cohort, clones = public
    known = [clone[1:-1] for clone in clones[:60]]
    database = pd.DataFrame({"cdr3_aa": known, "v_call": "", "epitope": "", "antigen": "", "antigen_organism": "X"})
    tables = {"junction_aa": clones[50:150], "cdr3_aa": [clone[1:-1] for clone in clones[50:150]]}
    first, second = (
        annotate_sequences(pd.DataFrame({name: texts}), database, cohort=cohort).organisms
        for name, texts in tables.items()
    )
    pd.testing.assert_frame_equal(first, second)


def test_a_view_of_a_cohort_has_the_publicity_of_the_whole(public: tuple[RepertoireDataset, list[str]]) -> None:
    """Clones of the background count their carriers in the whole container, so those of the table do, too."""
    cohort, clones = public
    known = [clone[1:-1] for clone in clones[:60]]
    database = pd.DataFrame({"cdr3_aa": known, "v_call": "", "epitope": "", "antigen": "", "antigen_organism": "X"})
    table = pd.DataFrame({"junction_aa": clones[50:150]})
    whole, part = (annotate_sequences(table, database, cohort=each).organisms for each in (cohort, cohort[:3]))
    pd.testing.assert_frame_equal(part, whole)


def test_the_background_lacks_the_table_and_knows_how_public_clones_are(
    public: tuple[RepertoireDataset, list[str]],
) -> None:
    cohort, clones = public
    background = draw_clone_background(cohort, without=clones[:100])
    of_publicity = np.bincount(background.publicity)
    assert of_publicity[2] == 500  # carried by four
    assert of_publicity[0] == 12 * 500
    assert not set(background.sequences.decode()) & set(clones[:100])


@pytest.mark.slow
def test_clones_associated_with_cmv_are_known_for_cmv(real_data: Path) -> None:
    database = read_database(real_data / "vdjdb" / "vdjdb_human_trb.tsv.gz")
    table = read_associated_sequences(real_data / "emerson2017" / "ng.3822-S3.xlsx")[["junction_aa", "v_call"]]
    found = annotate_sequences(table, database)
    assert found.organisms.iloc[0, :2].tolist() == ["CMV", 18]
    exact = found.table[found.table["specificity_match"] == "exact, same V"]
    assert len(exact) == 16
    assert "NLVPMVATV" in exact.set_index("junction_aa").loc["CASSLAPGATNEKLFF", "epitope"]


@pytest.mark.slow
def test_they_are_enriched_for_cmv_against_real_repertoires(real_data: Path, tmp_path: Path) -> None:
    """18 of the 164 clones are known for CMV; among clones with their V genes and lengths less than one would be."""
    folder = real_data / "covidtcrs"
    sheet = folder / "metadata_TRB_10umi_filter_MiXCR_to_VDJtools.txt"
    preprocess([folder], sheet, tmp_path / "tcells.h5", options=ReadingOptions(allow_missing=True))
    table = read_associated_sequences(real_data / "emerson2017" / "ng.3822-S3.xlsx")[["junction_aa", "v_call"]]
    database = read_database(real_data / "vdjdb" / "vdjdb_human_trb.tsv.gz")
    organisms = annotate_sequences(table, database, cohort=open_dataset(tmp_path / "tcells.h5")).organisms
    cmv = organisms.iloc[0]
    assert (cmv["antigen_organism"], cmv["n_exact"], cmv["n_tested"]) == ("CMV", 18, 164)
    assert cmv["expected_exact"] < 1
    assert cmv["q_exact"] < 1e-15
    assert (organisms["q_exact"].iloc[1:] > 0.05).all()


@pytest.mark.slow
def test_random_sequences_with_a_motif_are_enriched_for_nothing(real_data: Path) -> None:
    cohort, _ = load_recipe("quickstart", ("n_repertoires=60", "sizes.mean=400"))
    dataset = SimulatedDataset(cohort)
    witnesses = [text for i in range(60) for text in dataset[i].sequences.decode() if "LDRW" in text]
    database = read_database(real_data / "vdjdb" / "vdjdb_human_trb.tsv.gz")
    found = annotate_sequences(pd.DataFrame({"junction_aa": witnesses[:100]}), database, cohort=dataset).organisms
    assert len(witnesses) > 100
    assert len(found) > 0  # some match by chance
    assert (found[["q_exact", "q_within_one"]] > 0.05).all(axis=None)
