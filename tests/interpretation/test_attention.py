from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deeprc.cli import main
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation import attention, attention_files, sequence_ranks
from deeprc.interpretation.attention import attention_table, compute_attention, iterate_attention
from deeprc.interpretation.attention_files import write_attention
from deeprc.runs.composition_table import make_composition_table
from deeprc.runs.run import Run, load_run
from deeprc.training.estimator import DeepRCClassifier
from deeprc.training.model import TrainedModel

REQUIRED = "sequence sequence_alignment germline_alignment junction v_cigar d_cigar j_cigar d_call rev_comp productive"


@pytest.fixture(scope="module")
def two_heads(run_factory: Callable[..., Run], cohort: RepertoireDataset) -> Run:
    return run_factory(cohort, "n_updates=5", "n_heads=2", stir=0.1)


def written(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, sep="\t", keep_default_na=False)


@pytest.fixture
def airr() -> Any:
    """The validator, which takes a second to import."""
    import airr

    return airr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the validator's own
@pytest.mark.parametrize("name", ["attention.tsv", "attention.tsv.gz"])
def test_the_file_holds_all_tables_and_is_valid_airr(
    name: str, airr: Any, two_heads: Run, cohort: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (attention, attention_files):
        monkeypatch.setattr(module, "PIECE", 17)  # so that a repertoire takes several
    some = cohort[:6]
    path = tmp_path / name
    summary = write_attention(path, iterate_attention(two_heads.model, some))
    tables = [compute_attention(two_heads.model, some, i).sequences for i in range(len(some))]
    expected = pd.concat(tables, ignore_index=True)
    assert summary.n_sequences == len(expected)
    found = written(path)
    columns = [*expected.columns, *(name for name in found if name not in expected)]
    assert found.columns.tolist() == columns
    for column in expected:
        if expected[column].dtype.kind == "f":
            np.testing.assert_allclose(found[column], expected[column], rtol=1e-6)
        else:
            assert found[column].tolist() == expected[column].tolist()
    assert (found[REQUIRED.split()] == "").all(axis=None)
    assert found.groupby("repertoire_id")["attention_weight"].sum().to_numpy() == pytest.approx(1, abs=1e-5)
    plain = tmp_path / "plain.tsv"
    plain.write_bytes(gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes())
    assert airr.validate_rearrangement(str(plain))
    again = tmp_path / f"again.{name}"
    write_attention(again, iterate_attention(two_heads.model, some))
    assert again.read_bytes() == path.read_bytes()


def test_the_validator_would_notice(airr: Any, two_heads: Run, cohort: RepertoireDataset, tmp_path: Path) -> None:
    path = tmp_path / "attention.tsv"
    write_attention(path, iterate_attention(two_heads.model, cohort[:1]))
    path.write_text(path.read_text().replace("sequence_alignment", "alignment"))
    assert not airr.validate_rearrangement(str(path))


def test_the_head_is_the_one_that_looks_most(two_heads: Run, cohort: RepertoireDataset) -> None:
    table = compute_attention(two_heads.model, cohort, 2).sequences
    weights = table[["attention_weight_1", "attention_weight_2"]].to_numpy()
    assert table["head"].tolist() == (weights.argmax(axis=1) + 1).tolist()
    np.testing.assert_allclose(table["attention_weight"], weights.mean(axis=1))


def test_the_best_of_all_repertoires(two_heads: Run, cohort: RepertoireDataset, tmp_path: Path) -> None:
    path = tmp_path / "top.tsv"
    call = ["attention", str(two_heads.path), str(cohort.container.path), "-o", str(path), "--device", "cpu"]
    with pytest.raises(SystemExit, match="0"):
        main([*call, "--top-overall", "30", "--by", "response"])
    found = written(path)
    assert len(found) == 30
    saved = load_run(two_heads.path)  # whose weights are not stirred
    whole = pd.concat([compute_attention(saved.model, cohort, i).sequences for i in range(len(cohort))])
    np.testing.assert_allclose(found["response"], whole["response"].nlargest(30), rtol=1e-6)
    heads = pd.read_csv(tmp_path / "top.heads.tsv", sep="\t")
    assert len(heads) == 2 * len(cohort)  # of all repertoires, whatever was kept


def test_two_kinds_of_top_are_refused(
    two_heads: Run, cohort: RepertoireDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["attention", str(two_heads.path), str(cohort.container.path), "-o", str(tmp_path / "a.tsv")]
    with pytest.raises(SystemExit, match="2"):
        main([*call, "--top", "3", "--top-overall", "30"])
    assert "give only one" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ids_with_quotation_marks_are_kept(
    model_factory: Callable[..., TrainedModel], cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    dataset = cohort_factory(15, 12, seed=6)
    model = model_factory(dataset)
    dataset.container.repertoire_ids[0] = 'the "first"'
    write_attention(tmp_path / "a.tsv", iterate_attention(model, dataset[:2]))
    assert set(written(tmp_path / "a.tsv")["repertoire_id"]) == {'the "first"', "rep.1"}


def test_a_table_of_nothing_has_its_header(two_heads: Run, cohort: RepertoireDataset, tmp_path: Path) -> None:
    dataset = cohort[:1]
    dataset.container = cohort.container
    one = next(iter(iterate_attention(two_heads.model, dataset)))
    empty = replace(one, rows=np.zeros(0, np.int64))
    summary = write_attention(tmp_path / "a.tsv", [empty])
    assert summary.n_sequences == 0
    assert (tmp_path / "a.tsv").read_text().split("\t")[:3] == ["repertoire_id", "sequence_id", "junction_aa"]


@pytest.mark.parametrize("piece", [7, 1000])
@pytest.mark.parametrize("n", [1, 5, 40, 60, 100])
def test_the_best_rows_are_those_of_a_sort(monkeypatch: pytest.MonkeyPatch, n: int, piece: int) -> None:
    """Also where weights underflow to 0, and where neither weight nor logit tells two apart."""
    monkeypatch.setattr(sequence_ranks, "_PIECE", piece)
    rng = np.random.default_rng(n)
    logit = rng.integers(0, 20, 60).astype(np.float32)
    for weight in (rng.integers(0, 4, 60) / 60, np.zeros(60), logit.astype(np.float64)):
        expected = np.argsort(sequence_ranks.rank_weights(weight, logit), kind="stable")[:n]
        assert sequence_ranks.find_best_rows(weight, logit, n).tolist() == expected.tolist()


def test_a_table_of_no_sequences_is_refused(two_heads: Run, cohort: RepertoireDataset) -> None:
    with pytest.raises(InputError, match="`top=0`: expected at least 1"):
        attention_table(two_heads.model, cohort, 0, top=0)


def test_attention_table_refuses_what_is_no_model_or_no_position(two_heads: Run, cohort: RepertoireDataset) -> None:
    with pytest.raises(TypeError, match=r"such as `run\.model` of a run or `classifier\.model_` .*, found Run"):
        attention_table(two_heads, cohort, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="found DeepRCClassifier"):
        make_composition_table(DeepRCClassifier(), cohort)  # type: ignore[arg-type]
    name = cohort.repertoire_ids[3]
    with pytest.raises(TypeError, match=f"expected the position of one repertoire in the dataset, found '{name}'"):
        attention_table(two_heads.model, cohort, name)
    position = cohort.repertoire_ids.tolist().index(name)  # as the message says
    assert attention_table(two_heads.model, cohort, position)["repertoire_id"].unique().tolist() == [name]


@pytest.mark.parametrize("top", [1, 7, 10_000])
def test_the_top_is_that_of_the_whole_table(two_heads: Run, cohort: RepertoireDataset, top: int) -> None:
    whole, some = compute_attention(two_heads.model, cohort, 2), compute_attention(two_heads.model, cohort, 2, top=top)
    expected = whole.sequences.sort_values("attention_rank")[:top].reset_index(drop=True)
    pd.testing.assert_frame_equal(some.sequences, expected, rtol=1e-12)
    pd.testing.assert_frame_equal(some.heads, whole.heads)
