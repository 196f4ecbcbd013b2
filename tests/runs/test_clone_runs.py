"""Runs whose network stores clones, from the training to the tables that show them."""

from __future__ import annotations

import base64
import importlib.util
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import deeprc
from deeprc.cli import main
from deeprc.cli.attention import attention
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.report.branch_tables import make_clone_tables
from deeprc.runs.experiment import train_run
from deeprc.runs.learned_tables import _describe_clones
from deeprc.runs.run import Run, load_run
from tests.toys.clone_cohorts import N_ASSOCIATED, draw_groups, draw_repertoires, write_repertoires

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

CONFIG = load_config("deeprc", ["n_updates=10", "evaluate_every=5", "n_kernels=4", "composition=false"])


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """120 repertoires, of which the positive ones have each of ten clones with a probability of 0.6."""
    labels = np.arange(120) % 2
    score = labels + np.random.default_rng(0).normal(scale=0.3, size=120)
    metadata = pd.DataFrame({"status": labels.astype(str), "score": score})
    path = tmp_path_factory.mktemp("clones") / "cohort.h5"
    return write_repertoires(path, draw_repertoires(3, labels), metadata=metadata)


@pytest.fixture(scope="module")
def run(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    output = tmp_path_factory.mktemp("runs") / "run"
    return train_run(
        cohort.container.path, output, targets=("status=1", "score:regression"), config=CONFIG, device="cpu"
    )


def test_the_stored_clones_are_those_of_the_model(run: Run) -> None:
    stored = run.clones()
    assert set(stored["output"]) == {"status=1", "score"}
    assert stored["direction"].isin(["up", "down"]).all()
    of_classes = stored[(stored["output"] == "status=1") & (stored["direction"] == "up")]
    assert N_ASSOCIATED / 2 <= len(of_classes) <= 2 * N_ASSOCIATED
    assert (of_classes["carriers_positive"] > of_classes["carriers_negative"]).all()
    assert stored.loc[stored["output"] == "score", "carriers"].notna().all()
    (table,) = make_clone_tables(run.model)
    labels = [column.label for column in table.columns]
    assert labels[-5:] == ["Carriers: of the class", "Carriers: others", "Carriers", "p", "q"]
    n_significant = (stored["q_value"] <= 0.05).sum()
    counted = f"The first 20 of {len(stored)} stored clones; {n_significant} of all have a q of at most 0.05"
    assert table.caption.startswith(counted)
    first = stored.sort_values("p_value", kind="stable")
    assert [row[0].value for row in table.rows] == first["junction_aa"].head(20).tolist()
    assert {row[3].text for row in table.rows} <= {"status: 1", "status: 0", "score: higher", "score: lower"}


def test_the_command_says_how_many_clones_are_in_clusters(run: Run, tmp_path: Path) -> None:
    table = pd.read_csv(run.path / "clones.tsv", sep="\t")
    where = f"see {tmp_path / 'clones.tsv'}"
    for matches, of_clusters in (([], ""), (["cluster 1", "cluster 2", "cluster 1"], " (3 of them in 2 clusters)")):
        table["match"] = [*matches, *["exact"] * (len(table) - len(matches))]
        table["q_value"] = [0.05, 0.051, *[1e-6] * (len(table) - 3), 1.0]
        table.to_csv(tmp_path / "clones.tsv", sep="\t", index=False)
        lines = list(_describe_clones(tmp_path))
        n_significant = len(table) - 2
        significant = f"of which {n_significant} have a q_value of at most 0.05"
        assert lines == [f"public clones stored in the model: {len(table)}{of_clusters}, {significant}, {where}"]
    (tmp_path / "clones.tsv").write_text("\t".join(table) + "\n")
    assert list(_describe_clones(tmp_path)) == []


def test_contributions_sum_to_the_outputs(run: Run, cohort: RepertoireDataset) -> None:
    parts = load_run(run.path, device="cpu").model.compute_output_parts(cohort)
    for position in (0, 1, 50):
        scores = run.model.score_sequences(cohort, position)
        np.testing.assert_allclose(scores.contributions.sum(axis=0), parts.outputs[position], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            scores.by_source["clones"].sum(axis=0), parts.by_source["clones"][position], rtol=1e-4, atol=1e-5
        )


def test_the_best_sequences_are_the_remembered_ones(run: Run, cohort: RepertoireDataset, tmp_path: Path) -> None:
    file = tmp_path / "top.tsv"
    arguments = [str(run.path), str(cohort.container.path), "-o", str(file), "--top-overall", "30", "--device", "cpu"]
    result = CliRunner().invoke(attention, arguments)
    assert result.exit_code == 0, result.output
    found = pd.read_csv(file, sep="\t")
    assert {"through_attention_status=1", "through_clones_status=1", "through_clones_score"} <= set(found)
    assert set(found["junction_aa"]) <= set(run.clones()["junction_aa"])
    result = CliRunner().invoke(attention, [*arguments, "--by", "contribution", "--class", "score: lower"])
    assert result.exit_code == 0, result.output
    lowest = pd.read_csv(file, sep="\t")["contribution_score"]
    assert lowest.is_monotonic_increasing
    result = CliRunner().invoke(attention, [*arguments, "--by", "attention", "--class", "score: lower"])
    assert result.exit_code != 0


def write_groups(path: Path, seed: int, labels: np.ndarray) -> RepertoireDataset:
    metadata = pd.DataFrame({"status": labels.astype(str)})
    return write_repertoires(path, draw_groups(seed, labels), 0, metadata=metadata)


GROUPS = "CASS.[ACDEFGHIKL]WHEQYF"
"""The sequences of the ten groups that go with the label."""


@pytest.fixture(scope="module")
def run_of_groups(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("groups")
    cohort = write_groups(folder / "cohort.h5", 0, np.arange(120) % 2)
    return train_run(cohort.container.path, folder / "run", targets="status=1", config=CONFIG, device="cpu")


@pytest.fixture(scope="module")
def packed(run_of_groups: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "model.deeprc"
    deeprc.pack(run_of_groups.path, path)
    return path


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return write_groups(tmp_path_factory.mktemp("new") / "new.h5", 1, np.arange(20) % 2)


def read_table_of(command: str, model: Path, dataset: RepertoireDataset, output: Path, *options: str) -> pd.DataFrame:
    with pytest.raises(SystemExit) as end:
        main([command, str(model), str(dataset.container.path), "-o", str(output), "--device", "cpu", *options])
    assert end.value.code == 0
    return pd.read_csv(output, sep="\t")


def test_wildcard_clones_are_stored_and_listed(run_of_groups: Run) -> None:
    stored = run_of_groups.clones()
    groups = stored[stored["match"] == "any residue at position 5"]
    assert set(groups["junction_aa"].str[5:]) == {f"{letter}WHEQYF" for letter in "ACDEFGHIKL"}
    (table,) = make_clone_tables(run_of_groups.model)
    assert "any residue at position 5" in {row[2].text for row in table.rows}


def test_a_packed_model_with_wildcard_clones_predicts_as_its_run(
    run_of_groups: Run, packed: Path, new: RepertoireDataset, tmp_path: Path
) -> None:
    found, expected = (
        read_table_of("predict", model, new, tmp_path / f"{model.stem}.tsv") for model in (packed, run_of_groups.path)
    )
    columns = ["repertoire_id", "target", "label", "probability", "called_class"]
    pd.testing.assert_frame_equal(found[columns], expected[columns])
    assert found["probability"].nunique() > 10
    positive = found["label"].astype(str) == "1"
    assert found.loc[positive, "probability"].min() > found.loc[~positive, "probability"].median()


def test_new_sequences_that_match_a_wildcard_are_in_the_attention_table(
    run_of_groups: Run, packed: Path, new: RepertoireDataset, tmp_path: Path
) -> None:
    """Each of them is evidence for the class, though no stored clone has its sequence; no other sequence is."""
    table = read_table_of("attention", packed, new, tmp_path / "table.tsv")
    is_member = table["junction_aa"].str.fullmatch(GROUPS)
    is_stored = table["junction_aa"].isin(run_of_groups.clones()["junction_aa"])
    assert (is_member & ~is_stored).sum() > 40
    assert table.loc[is_member, "through_clones"].min() > 0.5
    assert table.loc[~is_member & ~is_stored, "through_clones"].max() < 0
    best = read_table_of("attention", packed, new, tmp_path / "best.tsv", "--top-overall", "10")
    assert best["junction_aa"].str.fullmatch(GROUPS).all()


@pytest.mark.skipif(importlib.util.find_spec("logomaker") is None, reason="logomaker is missing")
def test_the_report_on_new_repertoires_shows_sequences_that_match_a_wildcard(
    packed: Path, new: RepertoireDataset, tmp_path: Path
) -> None:
    deeprc.report(packed, new.container.path, output=tmp_path / "report.html", device="cpu")
    page = (tmp_path / "report.html").read_text()
    assert page.count("any residue at position 5") >= 10
    saved = page.partition('download="sequences-1-1.tsv"')[0].rpartition("base64,")[2].partition('"')[0]
    table = pd.read_csv(io.StringIO(base64.b64decode(saved).decode()), sep="\t")
    is_member = table["junction_aa"].str.fullmatch(GROUPS)
    assert is_member[:10].all()
    assert (table["through_clones"] > table["through_attention"])[is_member].all()
