from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.attention import compute_attention, iterate_attention
from deeprc.interpretation.cohort_ranking import best_sequences
from deeprc.interpretation.directions import find_direction, list_directions
from deeprc.interpretation.ranking import Ranking
from deeprc.interpretation.survey import Survey, survey_cohort
from deeprc.runs.run import Run
from deeprc.tasks import Task, parse_tasks
from deeprc.training.model import TrainedModel


@pytest.fixture(scope="module")
def found(trained: Run, motif_cohort: RepertoireDataset) -> Survey:
    return survey_cohort(trained.model, motif_cohort, top=40, parts=trained.split_of(motif_cohort))


def test_outputs_and_heads_are_those_of_the_repertoires(
    found: Survey, trained: Run, motif_cohort: RepertoireDataset
) -> None:
    np.testing.assert_allclose(
        found.outputs.outputs, trained.model.compute_outputs(motif_cohort).numpy(), rtol=1e-5, atol=1e-6
    )
    one = compute_attention(trained.model, motif_cohort, 3).heads
    pd.testing.assert_frame_equal(
        found.heads[found.heads["repertoire_id"] == "rep.3"].reset_index(drop=True), one, check_dtype=False
    )


def test_the_top_of_each_direction(found: Survey, trained: Run, motif_cohort: RepertoireDataset) -> None:
    assert [(direction.name, direction.sign) for direction in found.directions] == [("case", 1), ("healthy", -1)]
    for direction in found.directions:
        best = best_sequences(
            iterate_attention(trained.model, motif_cohort), 40, Ranking("contribution", sign=direction.sign)
        )
        best = best[direction.sign * best["contribution"] > 0]
        top = found.top[direction.name]
        pd.testing.assert_frame_equal(top.table.drop(columns="split"), best, check_dtype=False)
        named = top.index.frame(motif_cohort)
        assert named["junction_aa"].tolist() == top.table["junction_aa"].tolist()
        assert named["sequence_id"].tolist() == top.table["sequence_id"].tolist()
    top = found.top["case"].table
    assert top["junction_aa"].str.contains("WWHW").mean() >= 0.75
    split = dict(zip(motif_cohort.repertoire_ids, trained.split_of(motif_cohort), strict=True))
    assert top["split"].tolist() == [split[i] for i in top["repertoire_id"]]


def test_curves_cumulate_the_attention_from_the_most_attended(
    found: Survey, trained: Run, motif_cohort: RepertoireDataset
) -> None:
    weights = np.sort(compute_attention(trained.model, motif_cohort, 5).sequences["attention_weight"].to_numpy())[::-1]
    curve = found.curves[found.curves["repertoire_id"] == "rep.5"]
    assert curve["share"].iloc[0] == 1 / len(weights)
    assert curve["attention"].iloc[0] == pytest.approx(weights[0])
    assert curve["share"].iloc[-1] == 1
    assert curve["attention"].iloc[-1] == pytest.approx(1)
    expected = np.interp(curve["share"] * len(weights), np.arange(len(weights) + 1), np.append(0, np.cumsum(weights)))
    np.testing.assert_allclose(curve["attention"], expected)


@pytest.mark.slow
def test_gene_usage_of_all_and_of_the_attention(found: Survey, trained: Run, motif_cohort: RepertoireDataset) -> None:
    tables = [compute_attention(trained.model, motif_cohort, i).sequences for i in range(len(motif_cohort))]
    genes = found.genes[found.genes["field"] == "v_call"].set_index("name")
    for gene in ("TRBV1", "TRBV2"):
        shares = [(table["v_call"] == gene).mean() for table in tables]
        assert genes.loc[gene, "all"] == pytest.approx(np.mean(shares))
        attended = [table.loc[table["v_call"] == gene, "attention_weight"].sum() for table in tables]
        assert genes.loc[gene, "attended"] == pytest.approx(np.mean(attended))
    assert genes["all"].sum() == pytest.approx(1)
    assert "unknown" in genes.index
    assert not (found.genes["field"] == "j_call").any()


def test_directions_of_all_kinds_of_targets() -> None:
    tasks = [
        Task("CMV=+", "CMV", "binary", ("-", "?", "+")),
        Task("grade", "grade", "multiclass", ("a", "b")),
        Task("age", "age", "regression"),
    ]
    found = [
        (direction.name, direction.output, direction.sign, direction.target) for direction in list_directions(tasks)
    ]
    assert found == [
        ("CMV: +", 0, 1, "CMV=+"),
        ("CMV: not +", 0, -1, "CMV=+"),
        ("grade: a", 1, 1, "grade"),
        ("grade: b", 2, 1, "grade"),
        ("age: higher", 3, 1, "age"),
        ("age: lower", 3, -1, "age"),
    ]
    assert [direction.name for direction in list_directions(tasks[:1])] == ["+", "not +"]
    assert find_direction(tasks, None).name == "CMV: +"
    assert find_direction(tasks, "age: lower").sign == -1
    assert find_direction(tasks, "lower").name == "age: lower"
    assert find_direction(tasks, None, target="age").name == "age: higher"
    with pytest.raises(InputError, match=r"^no class 'old': expected one of CMV: \+, CMV: not \+, .*, age: lower$"):
        find_direction(tasks, "old")
    with pytest.raises(InputError, match=r"^no class '\+' of the target 'age': expected one of age: higher, "):
        find_direction(tasks, "+", target="age")


def test_a_label_of_several_targets_is_not_enough() -> None:
    tasks = parse_tasks(["CMV=+", "EBV=+"], pd.DataFrame({"CMV": ["+", "-"], "EBV": ["-", "+"]}))
    assert find_direction(tasks, "+", target="EBV=+").name == "EBV: +"
    with pytest.raises(InputError, match=r"^several targets have the class '\+': expected one of CMV: \+, EBV: \+$"):
        find_direction(tasks, "+")


def test_two_targets_of_one_column() -> None:
    tasks = parse_tasks(["grade=low vs high", "grade:multiclass"], pd.DataFrame({"grade": ["high", "mid", "low"]}))
    names = [direction.name for direction in list_directions(tasks)]
    assert names == [
        *("grade=low vs high: low", "grade=low vs high: high"),
        *("grade: high", "grade: low", "grade: mid"),
    ]


@pytest.mark.slow
def test_a_container_without_genes_and_an_empty_repertoire(
    model_factory: Callable[..., TrainedModel],
    cohort: RepertoireDataset,
    cohort_factory: Callable[..., RepertoireDataset],
) -> None:
    model = model_factory(cohort)
    other = cohort_factory(4, 10, seed=8)
    other.container.sequences = replace(other.container.sequences, v_call=None)
    other.container.repertoire_offsets = np.insert(other.container.repertoire_offsets[1:-1], 0, [0, 0])
    other.container.repertoire_ids = np.array([f"new.{i}" for i in range(4)], object)[: len(other)]
    other.repertoire_indices = np.arange(len(other.container.repertoire_offsets) - 1)
    found = survey_cohort(model, other)
    assert found.genes.empty
    assert found.heads["n_sequences"].tolist()[0] == 0
    assert "new.0" not in set(found.curves["repertoire_id"])
