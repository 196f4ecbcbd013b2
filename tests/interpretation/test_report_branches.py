"""What a report says of a model with branches besides the attention."""

from __future__ import annotations

import base64
import importlib.util
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.branches.composition import CompositionBranch
from deeprc.branches.linear_function import KIND_NAMES, name_kind
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.directions import list_directions
from deeprc.interpretation.report import write_report
from deeprc.interpretation.report.branch_tables import (
    _keep_first_of_clusters,
    find_main_source,
    make_clone_tables,
    make_variation_sentence,
    make_variation_table,
    name_directions,
)
from deeprc.interpretation.report.cautions import collect_cautions
from deeprc.interpretation.report.sequences import SHOWN
from deeprc.interpretation.survey import survey_cohort
from deeprc.runs.assess import assess_predictor
from deeprc.runs.run import Run
from deeprc.runs.variation import VarianceShares
from deeprc.tasks import Task
from deeprc.training.model import Ensemble
from tests.toys.toy_branches import Clones, Composition, with_branches

needs_figures = pytest.mark.skipif(importlib.util.find_spec("logomaker") is None, reason="logomaker is missing")


@pytest.fixture(scope="module")
def branch(trained: Run) -> Run:
    """A run that knows the motif, with two branches that say something else."""
    return replace(trained, model=with_branches(trained.model, Composition("A", [2.0]), Clones("KY", [0.5])))


def test_the_main_source_is_the_one_that_speaks_most_for_the_direction() -> None:
    row = {"contribution": 0.7, "through_attention": 0.3, "through_composition": -0.2, "through_clones": 0.6}
    assert find_main_source(row, 1) == ("clones", pytest.approx(2 / 3))
    assert find_main_source({**row, "contribution": -0.1, "through_composition": -1.0}, -1) == ("composition", 1.0)


def test_the_shares_of_two_outputs() -> None:
    one = VarianceShares("a", "a", {"attention": 0.25, "clones": 0.75})
    two = VarianceShares("b", "b:x", {"attention": -0.1, "clones": 1.1})
    table = make_variation_table([one, two], {"attention": [], "clones": []})
    assert [column.label for column in table.columns] == ["Branch", "Uses", "Share for a", "Share for b:x"]
    assert [[cell.text for cell in row[2:]] for row in table.rows] == [["25%", "\N{MINUS SIGN}10%"], ["75%", "110%"]]
    assert make_variation_sentence(one, "test", {"clones": []}) == (
        "The output differs between the test repertoires. Of its variance, 75% comes through clones (stored clones), "
        "25% through attention (motifs in some sequences)."
    )
    assert len(make_variation_table([], {"attention": [], "clones": []}).columns) == 2


@pytest.mark.parametrize(
    ("features", "uses", "briefly"),
    [
        (["genes"], "all sequences: how frequent genes are", "genes of all sequences"),
        (
            ["k-mers", "genes", "counts"],
            "all sequences: how frequent short pieces (k-mers) are, how frequent genes are and how diverse counts are",
            "k-mers, genes and counts of all sequences",
        ),
        (
            ["k-mers weighted by counts", "genes weighted by counts"],
            "all sequences: which k-mers expanded clones have and which genes expanded clones have",
            "k-mers weighted by counts and genes weighted by counts of all sequences",
        ),
        (
            ["genes of clonal families", "counts"],
            "all sequences: how frequent genes are (each clonal family counts once) and how diverse counts are",
            "genes of clonal families, and counts of all sequences",
        ),
    ],
)
def test_only_the_features_that_the_model_reads_are_named(features: list[str], uses: str, briefly: str) -> None:
    found = VarianceShares("a", "a", {"composition": 1.0})
    assert make_variation_table([found], {"composition": features}).rows[0][1].text == uses
    sentence = make_variation_sentence(found, "test", {"composition": features})
    assert sentence.endswith(f" 100% comes through composition ({briefly}).")


@pytest.mark.parametrize("of_families", [False, True])
def test_a_report_can_name_every_kind_of_features(of_families: bool) -> None:
    found = VarianceShares("a", "a", {"composition": 1.0})
    for kind in KIND_NAMES:
        features = [name_kind(kind, of_families=of_families)]
        assert make_variation_table([found], {"composition": features}).rows[0][1].text.startswith("all sequences: ")


def test_the_features_of_several_models_are_those_of_each(trained: Run) -> None:
    genes, kmers = CompositionBranch(1, {"v_call": ["TRBV1"]}), CompositionBranch(1, reads_abundances=True)
    genes.get_buffer("v_call_weights")[:] = 1
    kmers.kmer_weights[0, 3] = 1
    kmers.get_buffer("abundance_weights")[:] = 1
    members = [with_branches(trained.model, *branches) for branches in ([genes], [kmers, Clones("KY", [0.5])], [genes])]
    assert Ensemble(trained.tasks, tuple(members)).branch_features == {
        "composition": ["genes", "k-mers", "counts"], "clones": [],
    }  # fmt: skip
    assert trained.model.branch_features == {}


def test_a_doubtful_branch_is_a_warning(trained: Run, motif_cohort: RepertoireDataset) -> None:
    for is_doubtful in (True, False):
        branch = CompositionBranch(1, is_doubtful=is_doubtful)
        run = replace(trained, model=with_branches(trained.model, branch))
        cautions = {each.name: each for each in assess_predictor(run, motif_cohort).cautions}
        assert ("doubtful-branch" in cautions) == is_doubtful


def test_directions_have_the_same_names_in_all_tables() -> None:
    """With two targets of one column, the name of the target tells them apart."""
    severe = Task("status=severe", "status", "binary", ("healthy", "severe"))
    case = Task("status=case", "status", "binary", ("healthy", "case"))
    grade = Task("grade", "grade", "multiclass", ("low", "mid", "high"))
    age = Task("age", "age", "regression")
    names = name_directions([severe, case, grade, age])
    directions = list_directions([severe, case, grade, age])
    assert {name for name in names.values() if "not" not in name} == {each.name for each in directions}
    assert names["status=case", "up"] == "status=case: case"
    assert names["status=severe", "down"] == "status=severe: healthy"
    assert (names["grade:mid", "up"], names["grade:mid", "down"]) == ("grade: mid", "grade: not mid")
    assert names["age", "down"] == "age: lower"
    assert name_directions([case]) == {("status=case", "up"): "case", ("status=case", "down"): "healthy"}


def test_one_clone_of_each_cluster_is_shown() -> None:
    stored = pd.DataFrame(
        {
            "junction_aa": ["CAAF", "CACF", "CADF", "CAEF", "CAGF", "CAHF"],
            "output": "status=case",
            "direction": ["up", "up", "up", "up", "down", "up"],
            "match": ["cluster 2", "exact", "cluster 2", "cluster 1", "cluster 2", "exact"],
        }
    )
    shown = _keep_first_of_clusters(stored)
    assert shown["junction_aa"].tolist() == ["CAAF", "CACF", "CAEF", "CAGF", "CAHF"]
    assert shown["match"].tolist() == [
        *("cluster 2 (clones: 2)", "exact", "cluster 1 (clones: 1)", "cluster 2 (clones: 1)", "exact")
    ]


def test_each_model_has_a_table_of_its_stored_clones(trained: Run) -> None:
    tasks = (*trained.tasks, Task("grade", "grade", "multiclass", ("high", "low")))
    first = replace(with_branches(trained.model, Clones("KY", [-0.5, 1.0, -1.0])), tasks=tasks)
    (table,) = make_clone_tables(Ensemble(tasks, (first, replace(trained.model, tasks=tasks))))
    assert [column.label for column in table.columns] == [
        *("Clone", "V gene", "J gene", "Evidence for", "Match", "Carriers: of the class", "Carriers: others", "p", "q")
    ]
    assert [row[3].text for row in table.rows] == ["status: healthy", "grade: high", "grade: not low"]
    assert [cell.text for cell in table.rows[0][4:]] == ["exact", "5", "0", "1e\N{MINUS SIGN}04", "0.010"]
    assert first.name in table.caption
    assert make_clone_tables(trained.model) == []


@pytest.mark.slow
@needs_figures
@pytest.mark.usefixtures("no_figures")
def test_the_page_tells_the_branches_apart(branch: Run, motif_cohort: RepertoireDataset, tmp_path: Path) -> None:
    write_report(branch, motif_cohort, tmp_path / "report.html", top=120)
    page = (tmp_path / "report.html").read_text()
    assert "<h2>All, some or single sequences?</h2>" in page
    (varied,) = assess_predictor(branch, motif_cohort).variation
    for share in varied.shares.values():
        assert f"{round(share, 2) + 0.0:.0%}".replace("-", "\N{MINUS SIGN}") in page
    assert 'id="clones-1"' in page
    assert "The same clone can have several rows, each with a different match." in page
    assert "Mainly through" in page
    saved = page.partition('download="sequences-case.tsv"')[0].rpartition("base64,")[2].partition('"')[0]
    table = pd.read_csv(io.StringIO(base64.b64decode(saved).decode()), sep="\t")
    parts = table[["through_attention", "through_composition", "through_clones"]]
    np.testing.assert_allclose(parts.sum(axis=1), table["contribution"], rtol=1e-6)
    retrieved = table["junction_aa"].str.contains("KY") & (table["through_clones"] > table["through_attention"])
    assert retrieved[:SHOWN].any()
    assert "WWHW" in page  # the motif of what is attended


@pytest.mark.slow
@needs_figures
@pytest.mark.usefixtures("no_figures")
def test_a_page_without_branches_says_nothing_of_them(
    trained: Run, motif_cohort: RepertoireDataset, tmp_path: Path
) -> None:
    write_report(trained, motif_cohort, tmp_path / "report.html", top=30)
    page = (tmp_path / "report.html").read_text()
    assert "All, some or single" not in page
    assert "Mainly through" not in page


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_retrieved_clones_are_not_shaded(branch: Run, motif_cohort: RepertoireDataset) -> None:
    from deeprc.interpretation.report.directions import make_direction_sections
    from deeprc.interpretation.report.findings import find_sequence_carriers

    found = survey_cohort(branch.model, motif_cohort, top=120, parts=branch.split_of(motif_cohort))
    shared = find_sequence_carriers(motif_cohort, found.top, [], None)
    page = make_direction_sections(branch, motif_cohort, found, {"status=case": {}}, shared, None)[0]
    assert page.table is not None
    sources = [row[2].text for row in page.table.rows]
    shaded = ["title=" in row[0].text for row in page.table.rows]
    assert {source.split(" ")[0] for source in sources} >= {"attention", "clones"}
    assert shaded == [not source.startswith("clones") for source in sources]
    assert page.motifs is not None
    assert page.motifs.rows[0][0].value == "WWHW"


@pytest.mark.slow
def test_attention_through_which_nothing_comes_is_not_called_broad(
    branch: Run, motif_cohort: RepertoireDataset
) -> None:
    found = assess_predictor(branch, motif_cohort)
    heads = pd.DataFrame({"repertoire_id": ["rep.1"], "head": [1], "n_sequences": [100], "metastable_size": [90]})
    attention = {0.04: False, 0.3: True}
    for share, is_told in attention.items():
        varied = VarianceShares("status=case", "status=case", {"attention": share, "clones": 1 - share})
        texts = [each.text for each in collect_cautions(branch, replace(found, variation=[varied]), heads=heads)]
        assert any(text.startswith("Attention is very broad") for text in texts) == is_told
        assert any(text.startswith("Only 4% of the variance of the output comes") for text in texts) != is_told
