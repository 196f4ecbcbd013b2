"""Models with branches besides the attention: what comes through each is told apart, and the parts sum to the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.attention import attention_table, compute_attention
from deeprc.interpretation.attributions import attribute
from deeprc.interpretation.ranking import Ranking
from deeprc.interpretation.survey import survey_cohort
from deeprc.nn.sequence_scores import OutputParts
from deeprc.runs.assess import assess_predictor
from deeprc.runs.run import Run
from deeprc.runs.variation import compute_variance_shares
from deeprc.training.model import Ensemble, Model, TrainedModel
from tests.toys.toy_branches import Clones, Composition, with_branches

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

TARGETS = ("status=case", "age:regression")


@pytest.fixture(scope="module")
def plain(model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset) -> TrainedModel:
    """A model without branches, which does not know the motif: two heads, two outputs."""
    return model_factory(cohort, "n_heads=2", "seeded_start=0", targets=TARGETS, stir=0.3)


@pytest.fixture(scope="module")
def model(plain: TrainedModel) -> TrainedModel:
    """The same with two branches, of gain 2: sequences with W, all together, and those with WWHW, each."""
    return with_branches(plain, Composition("W", [3.0, -1.0]), Clones("WWHW", [10.0, 0.0]), gain=2.0)


@pytest.fixture(scope="module")
def ensemble(model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset, model: TrainedModel) -> Ensemble:
    """The model together with one that has another branch, and one that has none."""
    others = [model_factory(cohort, "top_fraction=0.5", targets=TARGETS, stir=0.3) for _ in range(2)]
    return Ensemble.of([model, with_branches(others[0], Clones("K", [-0.25, 1.0])), others[1]])


def carries(dataset: RepertoireDataset, position: int, pattern: str) -> np.ndarray:
    return np.array([pattern in sequence for sequence in dataset[position].sequences.decode()])


@pytest.mark.parametrize("several", [False, True])
def test_contributions_sum_to_the_outputs(
    several: bool, model: TrainedModel, ensemble: Ensemble, cohort: RepertoireDataset
) -> None:
    chosen: Model = ensemble if several else model
    parts = chosen.compute_output_parts(cohort)
    np.testing.assert_array_equal(parts.outputs, chosen.compute_outputs(cohort).numpy())
    assert list(parts.by_source) == ["attention", "composition", "clones"]
    np.testing.assert_allclose(sum(parts.by_source.values()), parts.outputs, rtol=1e-6)
    for position in (0, 1, 4):
        scores = chosen.score_sequences(cohort, position)
        np.testing.assert_allclose(scores.contributions.sum(axis=0), parts.outputs[position], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scores.outputs, parts.outputs[position], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(sum(scores.by_source.values()), scores.contributions, atol=1e-12)
        for name, part in scores.by_source.items():
            np.testing.assert_allclose(part.sum(axis=0), parts.by_source[name][position], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(
                scores.output_parts.by_source[name], parts.by_source[name][position], rtol=1e-4, atol=1e-5
            )


def test_contributions_through_each_branch_by_hand(
    model: TrainedModel, ensemble: Ensemble, plain: TrainedModel, cohort: RepertoireDataset
) -> None:
    scores, own = model.score_sequences(cohort, 1), plain.score_sequences(cohort, 1)
    n, tryptophan, motif = len(cohort[1]), carries(cohort, 1, "W"), carries(cohort, 1, "WWHW")
    assert motif.sum() >= 6
    np.testing.assert_allclose(scores.by_source["composition"], np.outer(tryptophan, [6 / n, -2 / n]))
    np.testing.assert_allclose(scores.by_source["clones"], np.outer(motif, [20.0, 0.0]))
    np.testing.assert_allclose(scores.by_source["attention"], own.contributions, atol=1e-12)
    np.testing.assert_array_equal(scores.responses, own.responses)
    together = ensemble.score_sequences(cohort, 1)
    np.testing.assert_allclose(together.by_source["composition"][:, 0], tryptophan * 6 / n / 3)
    expected = (20 * motif - 0.25 * carries(cohort, 1, "K")) / 3
    np.testing.assert_allclose(together.by_source["clones"][:, 0], expected)


def test_some_scores_keep_their_parts_by_source(model: TrainedModel, cohort: RepertoireDataset) -> None:
    scores, rows = model.score_sequences(cohort, 1), np.array([5, 0, 20])
    some = scores.take(rows)
    np.testing.assert_array_equal(some.contributions, scores.contributions[rows])
    np.testing.assert_array_equal(some.by_source["clones"], scores.by_source["clones"][rows])
    np.testing.assert_allclose(some.by_source["attention"], scores.by_source["attention"][rows])
    assert len(some) == 3


def test_tables_say_through_what(model: TrainedModel, plain: TrainedModel, cohort: RepertoireDataset) -> None:
    table = attention_table(model, cohort, 3)
    for output in ("status=case", "age"):
        parts = table[[f"through_{name}_{output}" for name in ("attention", "composition", "clones")]]
        np.testing.assert_allclose(parts.sum(axis=1), table[f"contribution_{output}"], atol=1e-12)
    assert not [name for name in attention_table(plain, cohort, 3) if str(name).startswith("through")]


def test_the_top_of_a_table_is_what_adds_most(model: TrainedModel, cohort: RepertoireDataset) -> None:
    whole = attention_table(model, cohort, 3)
    top = attention_table(model, cohort, 3, top=9)
    expected = whole.sort_values("contribution_status=case", ascending=False, kind="stable").head(9)
    pd.testing.assert_frame_equal(top, expected.reset_index(drop=True))
    assert top["junction_aa"].str.contains("WWHW")[:6].all()  # which a branch retrieves
    by_weight = attention_table(model, cohort, 3, top=9, ranking=Ranking("attention"))
    assert by_weight["attention_rank"].tolist() == list(range(1, 10))
    against = attention_table(model, cohort, 3, top=4, ranking=Ranking("contribution", 1, -1))
    assert against["contribution_age"].tolist() == sorted(whole["contribution_age"])[:4]
    heads = [compute_attention(model, cohort, 3, top=top).heads for top in (None, 9)]
    pd.testing.assert_frame_equal(*heads)


def test_a_survey_keeps_both_tops(model: TrainedModel, plain: TrainedModel, cohort: RepertoireDataset) -> None:
    found, without = survey_cohort(model, cohort, top=30), survey_cohort(plain, cohort, top=30)
    assert without.by_residues is without.top
    parts = model.compute_output_parts(cohort)
    for name, part in found.outputs.by_source.items():
        np.testing.assert_allclose(part, parts.by_source[name], rtol=1e-4, atol=1e-5)
    (name, *_) = found.top
    top, others = found.top[name].table, found.by_residues[name].table
    retrieved = [table["junction_aa"].str.contains("WWHW").mean() for table in (top, others)]
    assert retrieved[0] > 0.8 > 0.6 > retrieved[1]
    parts = [f"through_{source}" for source in ("attention", "composition", "clones")]
    np.testing.assert_allclose(top["contribution"], top[parts].sum(axis=1))
    assert not top.duplicated(["junction_aa", "v_call"]).any()
    added = others[parts[:2]].sum(axis=1)
    assert added.is_monotonic_decreasing
    assert (added > 0).all()


def test_attributions_explain_what_comes_through_the_attention(
    model: TrainedModel, plain: TrainedModel, cohort: RepertoireDataset
) -> None:
    rows = pd.DataFrame({"repertoire_id": ["rep.1"] * 3, "sequence_id": [1, 6, 11]})
    found, expected = (attribute(each, cohort, rows, steps=8) for each in (model, plain))
    np.testing.assert_array_equal(found.residues, expected.residues)
    np.testing.assert_array_equal(found.change, expected.change)


def test_shares_of_the_variation_by_hand(plain: TrainedModel) -> None:
    through = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [9.0, 9.0]])
    attention = np.array([[3.0, 5.0], [-3.0, 5.0], [0.0, 5.0], [7.0, 1.0]])
    parts = OutputParts(attention + through, {"clones": through})
    rows = np.array([True, True, True, False])
    (found,) = compute_variance_shares(parts, rows, plain.tasks)  # the second output is the same everywhere
    assert (found.target, found.output) == ("status=case", "status=case")
    assert found.shares == pytest.approx({"attention": 0.75, "clones": 0.25})
    assert compute_variance_shares(OutputParts(attention, {}), rows, plain.tasks) == []
    assert compute_variance_shares(parts, np.zeros(4, np.bool_), plain.tasks) == []


def test_metrics_have_the_shares_of_the_held_out_repertoires(
    run_factory: Callable[..., Run], cohort: RepertoireDataset
) -> None:
    run = run_factory(cohort, "n_updates=2", targets=TARGETS, stir=0.3)
    run = replace(run, model=with_branches(run.model, Clones("WWHW", [0.5, 0.0])))
    metrics = assess_predictor(run, cohort).metrics
    assert [side for side, of in metrics.items() if "variation" in of["status=case"]] == ["test"]
    (own,) = metrics["test"]["status=case"]["variation"]
    assert own["output"] == "status=case"
    test = np.array(run.split_of(cohort)) == "test"
    parts = run.model.compute_output_parts(cohort)
    expected = np.cov(parts.by_source["clones"][test, 0], parts.outputs[test, 0])
    assert own["shares"]["clones"] == pytest.approx(expected[0, 1] / expected[1, 1], rel=1e-4)
    assert sum(own["shares"].values()) == pytest.approx(1)
