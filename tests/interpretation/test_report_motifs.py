"""What a report says of motifs, and of implanted sequences."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from deeprc.datasets.dataset import Repertoire, RepertoireDataset, open_dataset
from deeprc.interpretation.attributions import attribute
from deeprc.interpretation.directions import Direction
from deeprc.interpretation.motifs import find_motifs
from deeprc.interpretation.ranking import witness_ranking
from deeprc.interpretation.report import directions, motif_parts, run_report, summary
from deeprc.interpretation.report.direction_context import DirectionContext
from deeprc.interpretation.report.findings import find_sequence_carriers
from deeprc.interpretation.report.motif_genes import CommonGene, find_common_genes, make_gene_cell, make_gene_sentence
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.interpretation.survey import TopSequences, survey_cohort
from deeprc.runs.performance import measure_performance
from deeprc.runs.run import Run
from deeprc.tasks import Task

GENES = pd.DataFrame(
    {
        "field": ["v_call", "v_call", "j_call", "j_call", "j_call"],
        "name": ["TRBV2", "TRBV9", "TRBJ1-1", "TRBJ2-6", "unknown"],
        "all": [0.5, 0.004, 0.3, 0.25, 0.01],
    }
)


def motif(pattern: str) -> Any:
    return SimpleNamespace(pattern=pattern)


def test_most_common_genes_by_hand() -> None:
    top = pd.DataFrame(
        {
            "junction_aa": ["CAWF", "CAYF", "CAWF", "CAWFF", "CDDF", "CAYFF"],
            "v_call": ["TRBV2", "TRBV9", "TRBV9", "TRBV9", "TRBV2", ""],
            "j_call": ["TRBJ2-6", "TRBJ2-6", "TRBJ1-1", "TRBJ2-6", "TRBJ1-1", "TRBJ2-6"],
        }
    )
    found = find_common_genes(motif("A[WY]"), top, GENES)  # carried by four different ones: the second CAWF is left out
    assert found == [CommonGene("TRBV9", 0.5, 0.004), CommonGene("TRBJ2-6", 1.0, 0.25)]
    told = ["TRBV9 in 50% (0.4% of all)", "TRBJ2-6 in 100% (25% of all)"]
    assert make_gene_cell(found).value == ", ".join(told)
    assert re.sub("<.*?>", "", make_gene_cell(found).text) == ",".join(told)
    assert make_gene_cell(found).text.split(",<br>")[0] == (
        '<span class="line">TRBV9 in 50%</span> <span class="line">(0.4% of all)</span>'
    )
    assert make_gene_sentence(found, 4) == (
        " 100% of the 4 use TRBJ2-6, but only 25% of all sequences do: the motif may be a piece of that gene."
    )
    assert find_common_genes(motif("A[WY]"), top.drop(columns="v_call"), GENES) == found[1:]
    assert find_common_genes(motif("A[WY]"), top[["junction_aa"]], GENES) == []
    assert find_common_genes(motif("A[WY]"), top, GENES.iloc[:0]) == []
    assert find_common_genes(motif("WWW"), top, GENES) == []
    assert make_gene_cell([CommonGene("<V>", 0.999, 0.006)]).value == "<V> in >99% (0.6% of all)"
    assert make_gene_cell([]).text == make_gene_sentence([], 4) == ""


@pytest.mark.parametrize(
    ("share", "of_all", "stands_out"),
    [(0.5, 0.1, False), (0.51, 0.17, True), (0.51, 0.18, False), (1.0, 1 / 3, True), (0.9, 0.0005, True)],
)
def test_a_gene_stands_out_in_most_carriers_at_thrice_its_share(share: float, of_all: float, stands_out: bool) -> None:
    gene = CommonGene("TRBJ2-6", share, of_all)
    assert gene.stands_out == stands_out
    assert bool(make_gene_sentence([gene], 10)) == stands_out
    assert ("(<0.1% of all)" in str(make_gene_cell([gene]).value)) == (of_all < 0.001)


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_pages_of_directions(trained: Run, motif_cohort: RepertoireDataset) -> None:
    """With each repertoire of its own donor: the sheet's patients are also in training."""
    alone = open_dataset(motif_cohort.container.path)
    alone.container.metadata = motif_cohort.container.metadata.assign(patient_id=motif_cohort.repertoire_ids)
    splits = trained.split_of(alone)
    found = survey_cohort(trained.model, alone, top=60, parts=splits)
    shared = find_sequence_carriers(alone, found.top, [], "patient_id")
    is_held_out = np.array([split == "test" for split in splits])
    pages = directions.make_direction_sections(trained, alone, found, {"status=case": {}}, shared, is_held_out)
    direction, page = found.directions[0], pages[0]
    top = found.top[direction.name].table
    own = attribute(trained.model, alone, top, output=direction.output)
    motifs = find_motifs(trained.model, alone, own, max_motifs=10, is_held_out=is_held_out)
    assert page.motifs is not None
    labels = [re.sub("<.*?>", "", str(column.label)) for column in page.motifs.columns]
    assert labels[:5] == ["Pattern", "healthy: rate", "case: rate", "p", "q"]
    assert labels[-4:] == ["Chosen", "Others", "Enrichment", "Found in"]
    assert [row[3].value for row in page.motifs.rows] == [one.p_donors for one in motifs]
    rates = [junctions_with("WWHW", repertoire) for repertoire in alone[is_held_out]]
    is_case = alone[is_held_out].metadata["status"] == "case"
    groups = [np.array(rates)[is_case == of_class] for of_class in (True, False)]
    every = stats.PermutationMethod(n_resamples=np.inf)
    assert motifs[0].p_donors == pytest.approx(stats.mannwhitneyu(*groups, alternative="greater", method=every).pvalue)
    assert motifs[0].p_donors < 1e-4
    assert "It is associated with the class (p < 0.001" in page.first
    genes = found.genes.set_index("name")["all"]
    carriers = top[top["junction_aa"].str.contains(re.compile(motifs[0].pattern))].drop_duplicates("junction_aa")
    most = carriers["v_call"].value_counts(normalize=True).drop("", errors="ignore")  # "" is not known
    text = page.motifs.rows[0][labels.index("Most common genes")].value
    assert text in [f"{name} in {most.iloc[0]:.0%} ({genes[name]:.0%} of all)" for name in most.index]
    without = replace(found, genes=found.genes.iloc[:0])
    page = directions.make_direction_sections(trained, alone, without, {"status=case": {}}, shared, None)[0]
    assert page.motifs is not None
    labels = [column.label for column in page.motifs.columns]
    assert "Most common genes" not in labels
    assert "p" not in labels
    assert "It is not known whether it is associated with the class" in page.first


CASE = Direction("case", "case", 0, 1, "status=case")


def some_sequences(n: int) -> TopSequences:
    return TopSequences(pd.DataFrame({"row": range(n)}), SequenceIndex(np.zeros(n, np.int64), np.arange(n)))


def test_sequences_with_known_antigens_are_explained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of a database make another table of the same sequences."""
    asked = []

    def explain(_model: object, _dataset: object, index: SequenceIndex, **_: object) -> Any:
        asked.append(len(index))
        return SimpleNamespace(residues=np.zeros((len(index), 5)))

    monkeypatch.setattr("deeprc.interpretation.report.directions.attribute", explain)
    monkeypatch.setattr("deeprc.interpretation.report.directions.find_all_motifs", lambda *_, **__: [[]])
    top = some_sequences(7)
    annotated, others = replace(top, table=top.table.assign(specificity_match="")), some_sequences(4)
    task = Task("status=case", "status", "binary", ("healthy", "case"))
    predictor: Any = SimpleNamespace(model=SimpleNamespace(tasks=[task]), group_by=None)
    for by_residues, expected in ((top, [7]), (others, [4, 7])):
        found: Any = SimpleNamespace(
            directions=[CASE],
            top={"case": annotated},
            by_residues={"case": by_residues},
            residue_frequencies=np.full(20, 0.05),
        )
        directions._explain_directions(predictor, Any, found, {"case": []}, None)  # type: ignore[arg-type]  # no dataset
        assert asked == expected
        asked.clear()


@pytest.mark.usefixtures("no_figures")
def test_motifs_are_shown_also_if_stored_clones_outweigh_all_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no sequence contributes in total, but some do by their residues."""
    for name in ("make_motif_table", "describe_first_motif", "find_common_genes"):
        monkeypatch.setattr(directions, name, lambda *_, name=name: name)
    monkeypatch.setattr(directions.page_figures, "make_logo_figure", lambda *_, **__: "logo")
    monkeypatch.setattr(directions.page_figures, "make_kernel_figures", lambda *_: ["kernels"])
    attributions: Any = SimpleNamespace(kernels=np.ones((3, 2)))
    results = directions._DirectionResults(
        some_sequences(0), [], None, some_sequences(3), attributions, [motif("WWHW")]
    )
    context = DirectionContext(CASE, 1, "Class", {}, {"case": 0}, [("", 2)], 1.0)
    page = directions._make_direction_section(context, results, GENES)
    assert page.table is None
    assert (page.n_sequences, page.motifs, page.first) == (3, "make_motif_table", "describe_first_motif")
    assert (page.logos, page.kernels) == (["logo"], ["kernels"])


def test_a_page_without_motifs_says_what_a_motif_must_be() -> None:
    """A pattern of all chosen sequences is none if more than a quarter of the other sequences carry it, too."""
    text = summary._explain_no_motif(page_without_motifs(1_030))
    assert text == (
        "None. A motif must be clearly more frequent among the 1,030 sequences that contribute most to "
        "it than among others, and at most a quarter of the others may carry it. No pattern fulfils both conditions."
    )
    assert summary._explain_no_motif(page_without_motifs(0)) == "None: no sequence contributes to it."


def page_without_motifs(n_sequences: int) -> Any:
    return SimpleNamespace(n_sequences=n_sequences, table=None)


def junctions_with(pattern: str, repertoire: Repertoire) -> float:
    return float(np.mean([pattern in junction for junction in repertoire.sequences.decode()]))


def motif_with(p_donors: float, q_donors: float) -> Any:
    donors = pd.DataFrame(
        {"class": ["well", "ill"], "n_donors": [8, 9], "n_donors_with": [8, 9], "mean_rate": [0.01, 0.02]}
    )
    return SimpleNamespace(p_donors=p_donors, q_donors=q_donors, donors=donors, has_numeric_target=False)


def test_the_verdict_needs_the_test() -> None:
    """A rate that is twice as high is no evidence by itself."""
    direction = Direction("ill", "ill", 0, 1, "status=ill")
    assert motif_parts._describe_donor_test(motif_with(0.2, 0.3), direction) == (
        " It is not shown to be associated with the class (p = 0.20, false discovery rate "
        "0.30). In repertoires that the network has not seen, this share of a donor's sequences carries it: 1.000% on "
        "average in well (8 donors), 2.000% on average in ill (9 donors)."
    )
    told = motif_parts._describe_donor_test(motif_with(1e-5, 0.05), direction)
    assert told.startswith(
        " It is associated with the class (p < 0.001, false discovery rate 0.050). In repertoires that"
    )


def test_implanted_sequences_are_looked_for_in_each_direction(
    trained: Run, cohort_factory: Callable[..., RepertoireDataset]
) -> None:
    dataset = cohort_factory(20, 60, seed=5)
    performance = measure_performance(trained, dataset, trained.model.compute_outputs(dataset).double().numpy())
    splits = trained.split_of(dataset)
    assert run_report._select_witness_repertoires(dataset, splits, performance.labels) == []
    assert run_report._make_witness_table(survey_cohort(trained.model, dataset, top=5)) is None
    carries = [["WWHW" in junction for junction in repertoire.sequences.decode()] for repertoire in dataset]
    known = np.concatenate(carries).astype(np.uint8)
    dataset.container.sequences = replace(dataset.container.sequences, witness=known)
    places = run_report._select_witness_repertoires(dataset, splits, performance.labels)
    assert places == np.flatnonzero(performance.is_held_out).tolist()
    table = run_report._make_witness_table(survey_cohort(trained.model, dataset, top=5, witnesses_among=places))
    assert table is not None
    assert [column.label for column in table.columns[:2]] == ["Ranked by", "For"]
    assert [[cell.text for cell in row[:2]] for row in table.rows] == [
        ["attention", "\N{EN DASH}"],
        ["contribution", "case"],
        ["response", "case"],
        ["contribution", "healthy"],
        ["response", "healthy"],
    ]
    case, healthy = (witness_ranking(trained.model, dataset, places, sign=sign) for sign in (1, -1))
    auc = [column.label for column in table.columns].index("AUC")
    assert [row[auc].value for row in table.rows] == [*case["auc"], *healthy["auc"][1:]]
