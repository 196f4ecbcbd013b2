"""Runs whose network stores clones, from the training to the tables that show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import deeprc
from deeprc.cli.attention import attention
from deeprc.config import load_config
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.interpretation.report.branch_tables import make_clone_tables
from deeprc.runs.experiment import train_run
from deeprc.runs.run import Run, load_run
from tests.toys.clone_cohorts import N_ASSOCIATED, draw_groups, draw_repertoires

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

CONFIG = load_config("deeprc", ["n_updates=10", "evaluate_every=5", "n_kernels=4", "composition=false"])


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """120 repertoires, of which the positive ones have each of ten clones with a probability of 0.6."""
    labels = np.arange(120) % 2
    path = tmp_path_factory.mktemp("clones") / "cohort.h5"
    with ContainerWriter(path) as writer:
        for number, clones in enumerate(draw_repertoires(3, labels)):
            junctions, v_genes, j_genes = zip(*clones, strict=True)
            genes = {"v_call": Categorical.encode(v_genes), "j_call": Categorical.encode(j_genes)}
            writer.append(f"r{number}", Sequences.encode(junctions).with_genes(genes))
        score = labels + np.random.default_rng(0).normal(scale=0.3, size=120)
        writer.finish(pd.DataFrame({"status": labels.astype(str), "score": score}), source="a test")
    return open_dataset(path)


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
    first = stored.sort_values("p_value", kind="stable")
    assert [row[0].value for row in table.rows] == first["junction_aa"].head(20).tolist()
    assert {row[3].text for row in table.rows} <= {"status: 1", "status: 0", "score: higher", "score: lower"}


def test_contributions_sum_to_the_outputs(run: Run, cohort: RepertoireDataset) -> None:
    parts = load_run(run.path, device="cpu").model.compute_output_parts(cohort)
    for position in (0, 1, 50):
        scores = run.model.score_sequences(cohort, position)
        np.testing.assert_allclose(scores.contributions.sum(axis=0), parts.outputs[position], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            scores.by_branch["clones"].sum(axis=0), parts.by_branch["clones"][position], rtol=1e-4, atol=1e-5
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
    with ContainerWriter(path) as writer:
        for number, clones in enumerate(draw_groups(seed, labels)):
            writer.append(f"r{number}", Sequences.encode([junction for junction, *_ in clones]))
        writer.finish(pd.DataFrame({"status": labels.astype(str)}), source="a test")
    return open_dataset(path)


def test_a_packed_model_with_wildcard_clones(tmp_path: Path) -> None:
    """Sequences of ten groups go with the label; what the run says of new ones, the packed model says, too."""
    cohort = write_groups(tmp_path / "cohort.h5", 0, np.arange(120) % 2)
    new = write_groups(tmp_path / "new.h5", 1, np.arange(20) % 2)
    run = train_run(cohort.container.path, tmp_path / "run", targets="status=1", config=CONFIG, device="cpu")
    stored = run.clones()
    groups = stored[stored["match"] == "any residue at position 5"]
    assert set(groups["junction_aa"].str[5:]) == {f"{letter}WHEQYF" for letter in "ACDEFGHIKL"}
    (table,) = make_clone_tables(run.model)
    assert "any residue at position 5" in {row[2].text for row in table.rows}
    deeprc.pack(run.path, tmp_path / "model.deeprc")
    model = deeprc.load(tmp_path / "model.deeprc").model
    np.testing.assert_array_equal(model.compute_outputs(new).numpy(), run.model.compute_outputs(new).numpy())
    evidence = model.score_sequences(new, 1).by_branch["clones"][:, 0]
    is_member = new[1].to_frame()["junction_aa"].str.fullmatch("CASS.[ACDEFGHIKL]WHEQYF").to_numpy()
    assert is_member.sum() > 3
    assert evidence[is_member].min() > np.median(evidence[~is_member])
