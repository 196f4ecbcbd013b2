"""Runs whose network starts from motifs: what may decide them, and runs of earlier versions, which lack them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

from deeprc.cli.train import train
from deeprc.config import load_config
from deeprc.datasets.dataset import open_dataset
from deeprc.evaluation.splits import SplitOptions, make_split
from deeprc.runs.experiment import train_run
from deeprc.runs.run import load_run
from deeprc.runs.run_settings import read_settings
from deeprc.tasks import parse_tasks
from deeprc.training import confirmation, motif_start
from tests.conftest import motif, random_sequences, write_cohort

SETTINGS = ["n_updates=4", "evaluate_every=2", "n_kernels=8", "kernel_size=4", "n_sequences=40"]
SETTINGS += ["composition=false", "clones=false"]  # the motifs are looked at, and no branch
CONFIG = load_config("deeprc", SETTINGS)


@pytest.fixture(autouse=True)
def _few_labels_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(motif_start, "MIN_DONORS", 8)


def planted(sequences: list[str], motif: str) -> list[str]:
    return [s[:1] + motif + s[1:] if i % 4 == 0 else s for i, s in enumerate(sequences)]


def written(folder: Path, elsewhere: str | None) -> Path:
    """Write 120 repertoires; WWHW is in the positive ones, another motif in those that train no network."""
    rng = np.random.default_rng(0)
    metadata = pd.DataFrame({"status": ["case" if b % 2 else "healthy" for b in range(120)]})
    split = make_split(
        metadata,
        parse_tasks(["status"], metadata),
        SplitOptions(folds=3),
        seed=0,
        source="a test",
    )
    repertoires = [random_sequences(rng, 50) for _ in range(120)]
    for b in range(1, 120, 2):
        repertoires[b] = planted(repertoires[b], "WWHW")
    if elsewhere is not None:
        for b in np.concatenate([split.validation, split.test]).tolist():
            repertoires[b] = planted(repertoires[b], elsewhere) if b % 2 else random_sequences(rng, 30)
    folder.mkdir()
    return write_cohort(folder / "cohort.h5", repertoires, metadata).container.path


@pytest.mark.slow
def test_validation_and_test_repertoires_propose_no_motif(tmp_path: Path) -> None:
    tables = []
    for name, elsewhere in (("a", None), ("b", "CYFC")):
        path = written(tmp_path / name, elsewhere)
        run = train_run(
            path, tmp_path / name / "run", targets="status", config=CONFIG, split=SplitOptions(folds=3), device="cpu"
        )
        tables.append(pd.read_csv(run.path / "seeds.tsv", sep="\t"))
    pd.testing.assert_frame_equal(*tables)
    assert tables[0].columns.tolist() == ["kernel", "motif", "output", "correlation", "p_value", "best_residues"]
    assert tables[0]["kernel"].tolist() == list(range(1, len(tables[0]) + 1))
    first = tables[0].iloc[0]
    assert set(first["motif"]) <= set("WH.")
    assert (first["output"], first["correlation"] > 0.5, first["p_value"] < 0.05) == ("status", True, True)


@pytest.mark.slow
def test_the_command_names_the_motifs(tmp_path: Path) -> None:
    path = written(tmp_path / "a", None)
    output = tmp_path / "run"
    result = CliRunner().invoke(train, [str(path), "--target", "status", "--output", str(output), *SETTINGS])
    assert result.exit_code == 0, result.output
    motifs = pd.read_csv(output / "seeds.tsv", sep="\t")["motif"]
    assert f"start motifs: {', '.join(motifs)}, see {output / 'seeds.tsv'}\n" in result.output


@pytest.mark.slow
def test_the_command_says_which_motifs_are_doubtful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doubtful = motif("WWHW", p_value=0.2)
    monkeypatch.setattr(confirmation, "find_start_motifs", lambda *args, **options: [doubtful])
    output = tmp_path / "run"
    path = written(tmp_path / "a", None)
    result = CliRunner().invoke(train, [str(path), "--target", "status", "--output", str(output), *SETTINGS])
    assert result.exit_code == 0, result.output
    assert "start motifs: WWHW (doubtful, confirmed by the validation fold), see " in result.output
    assert pd.read_csv(output / "seeds.tsv", sep="\t")["p_value"].tolist() == [0.2]


@pytest.mark.slow
def test_a_run_without_these_keys_is_read_as_it_was_trained(tmp_path: Path) -> None:
    path = written(tmp_path / "a", None)
    run = train_run(path, tmp_path / "run", targets="status", config=CONFIG, split=SplitOptions(folds=3), device="cpu")
    file = run.path / "config.yaml"
    body = yaml.safe_load(file.read_text())
    for key in ("seeded_start", "weight_average", "least_gain", "top_number", "unattended"):
        del body["training"][key]
    file.write_text(yaml.safe_dump(body))
    (run.path / "seeds.tsv").unlink()
    training = read_settings(run.path).config.training
    assert (training.seeded_start, training.weight_average, training.least_gain) == (0.0, 0.0, 0.0)
    assert (training.top_number, training.unattended) == (None, "dropped")
    cohort = open_dataset(path)
    pd.testing.assert_frame_equal(load_run(run.path, device="cpu").predict(cohort), run.predict(cohort))
