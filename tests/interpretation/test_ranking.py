from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation import ranking
from deeprc.interpretation.attention import compute_attention, iterate_attention
from deeprc.interpretation.cohort_ranking import best_sequences
from deeprc.interpretation.column_tables import Columns, take_rows
from deeprc.interpretation.ranking import BestRows, Ranking, witness_ranking
from deeprc.runs.run import Run


@pytest.mark.parametrize(("most", "n_parts"), [(1, 3), (7, 50), (100, 10), (5000, 4)])
def test_the_best_rows_of_parts_are_those_of_the_whole(most: int, n_parts: int) -> None:
    rng = np.random.default_rng(most)
    keys = rng.integers(0, 200, 1000).astype(np.float64)  # with ties
    whole = pd.DataFrame({"row": np.arange(1000), "key": keys})
    columns: Columns = {str(name): whole[name].to_numpy() for name in whole}
    best = BestRows(most)
    for rows in np.array_split(np.arange(1000), n_parts):
        best.add_candidates(keys[rows], lambda chosen, rows=rows: take_rows(columns, rows[chosen]))
    expected = whole.sort_values("key", ascending=False, kind="stable").head(most)
    assert best.make_table()["row"].tolist() == expected["row"].tolist()


@pytest.mark.parametrize("n_parts", [3, 50])
def test_the_best_of_equal_rows_is_kept_once(n_parts: int) -> None:
    rng = np.random.default_rng(0)
    whole = pd.DataFrame({"name": rng.integers(0, 60, 1000), "key": rng.random(1000)})
    columns: Columns = {str(name): whole[name].to_numpy() for name in whole}
    best = BestRows(40, unique_by=("name", "absent"))
    for rows in np.array_split(np.arange(1000), n_parts):
        best.add_candidates(whole["key"].to_numpy()[rows], lambda chosen, rows=rows: take_rows(columns, rows[chosen]))
    expected = whole.sort_values("key", ascending=False).drop_duplicates("name").head(40)
    pd.testing.assert_frame_equal(best.make_table(), expected.reset_index(drop=True))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_equal_rows_of_one_part_do_not_displace_others(most: int) -> None:
    columns: Columns = {"name": np.array(["c", "a", "a", "b", "a"]), "row": np.arange(5)}
    best = BestRows(most, unique_by=("name",))
    best.add_candidates(np.array([1.0, 4.0, 5.0, 3.0, 5.0]), lambda rows: take_rows(columns, rows))
    assert best.make_table()["row"].tolist() == [2, 3, 0][:most]


def test_best_rows_without_any() -> None:
    best = BestRows(3)
    best.add_candidates(np.full(4, -np.inf), lambda rows: {"row": rows})
    assert best.make_table().empty


@pytest.mark.parametrize("by", ["attention", "contribution", "response"])
def test_best_sequences_are_the_first_of_all_tables_together(
    by: str, trained: Run, motif_cohort: RepertoireDataset
) -> None:
    some = motif_cohort[:20]
    tables = [compute_attention(trained.model, some, i).sequences for i in range(len(some))]
    whole = pd.concat(tables, ignore_index=True)
    column = "attention_logit" if by == "attention" else by
    expected = whole.sort_values(column, ascending=False, kind="stable").head(25).reset_index(drop=True)
    found = best_sequences(iterate_attention(trained.model, some), 25, Ranking(by))
    pd.testing.assert_frame_equal(found, expected)
    if by != "attention":
        lowest = best_sequences(iterate_attention(trained.model, some), 5, Ranking(by, sign=-1))
        assert lowest[column].tolist() == sorted(whole[column])[:5]


def test_an_unknown_ranking_is_refused() -> None:
    with pytest.raises(InputError, match="expected a ranking by attention or contribution or response, found 'size'"):
        Ranking("size")


def test_witness_ranking_by_hand(trained: Run, cohort_factory: Callable[..., RepertoireDataset]) -> None:
    dataset = cohort_factory(6, 40, seed=3)
    carries = [np.array(["WWHW" in s for s in repertoire.sequences.decode()]) for repertoire in dataset]
    known = np.concatenate(carries).astype(np.uint8)
    dataset.container.sequences = replace(dataset.container.sequences, witness=known)
    positions = [1, 2, 5]
    table = witness_ranking(trained.model, dataset, positions).set_index("score")
    known = np.concatenate([carries[i] for i in positions])
    for name in ("attention", "contribution", "response"):
        key = np.concatenate([Ranking(name).keys(trained.model.score_sequences(dataset, i)) for i in positions])
        key = key.astype(np.float32)
        wins = (key[known][:, None] > key[~known]) + 0.5 * (key[known][:, None] == key[~known])
        assert table.loc[name, "auc"] == pytest.approx(wins.mean())
        assert table.loc[name, "precision_at_100"] == known[np.argsort(-key, kind="stable")[:100]].sum() / 100
        assert table.loc[name, "recall_at_1000"] == 1
    assert (table["n_sequences"] == len(known)).all()
    assert (table["n_witnesses"] == known.sum()).all()


def test_a_share_of_the_others_gives_about_the_same(
    trained: Run, cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = cohort_factory(10, 200, seed=3)
    carries = [np.array(["WWHW" in s for s in repertoire.sequences.decode()]) for repertoire in dataset]
    known = np.concatenate(carries).astype(np.uint8)
    dataset.container.sequences = replace(dataset.container.sequences, witness=known)
    whole = witness_ranking(trained.model, dataset).set_index("score")
    monkeypatch.setattr(ranking, "_MAX_OTHERS", 500)
    some = witness_ranking(trained.model, dataset).set_index("score")
    exact = ["n_sequences", "n_witnesses", "precision_at_100", "precision_at_1000", "recall_at_100", "recall_at_1000"]
    pd.testing.assert_frame_equal(some[exact], whole[exact])
    assert some.loc["contribution", "auc"] != whole.loc["contribution", "auc"]
    np.testing.assert_allclose(some["auc"], whole["auc"], atol=0.03)
    np.testing.assert_allclose(some["average_precision"], whole["average_precision"], atol=0.15)


def test_without_witnesses_there_is_nothing_to_compare_with(trained: Run, motif_cohort: RepertoireDataset) -> None:
    with pytest.raises(InputError, match="does not say which sequences carry a signal"):
        witness_ranking(trained.model, motif_cohort)
