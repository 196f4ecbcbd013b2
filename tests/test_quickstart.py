import json
from pathlib import Path

import pandas as pd
import pytest

from deeprc import quickstart
from deeprc.datasets.simulation import MotifCohort, write_motif_cohort
from deeprc.errors import InputError
from deeprc.quickstart import run_quickstart


def test_it_leaves_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quickstart, "_OVERRIDES", ("n_updates=20",))
    lines: list[str] = []
    summary = run_quickstart(
        tmp_path / "out", cohort=MotifCohort(n_repertoires=20, n_sequences=50, witness_rate=0.2), say=lines.append
    )
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    assert {"test_auc", "witnesses_in_top_100", "seconds"} <= set(summary)
    assert all(Path(path).exists() for path in summary["files"].values())
    assert len(lines) == 4
    top = pd.read_csv(tmp_path / "out" / "top_sequences.tsv", sep="\t")
    assert len(top) == 100
    assert top["attention_logit"].is_monotonic_decreasing
    assert summary["witnesses_in_top_100"] == top["junction_aa"].str.contains("LDRW").sum()
    predictions = pd.read_csv(tmp_path / "out" / "run" / "predictions.tsv", sep="\t")
    tested = set(predictions.loc[predictions["split"] == "test", "repertoire_id"])
    assert set(top["repertoire_id"]) <= tested


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="exists already; choose another --output"):
        run_quickstart(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_simulation_implants_at_its_rate(tmp_path: Path) -> None:
    cohort = MotifCohort(n_repertoires=4, n_sequences=3000, motif="WHWC", witness_rate=0.1, seed=3)
    sheet = pd.read_csv(write_motif_cohort(tmp_path / "a", cohort), sep="\t")
    assert sheet["status"].tolist() == ["negative", "positive"] * 2
    for name, status in zip(sheet["filename"], sheet["status"], strict=True):
        table = pd.read_csv(tmp_path / "a" / "repertoires" / name, sep="\t")
        share = table["junction_aa"].str.contains("WHWC").mean()
        assert share == (pytest.approx(0.1, abs=0.02) if status == "positive" else 0)
        assert table["junction_aa"].str.fullmatch("C[ACDEFGHIKLMNPQRSTVWY]{8,18}F").all()
    again = write_motif_cohort(tmp_path / "b", cohort).parent / "repertoires" / "sample_002.tsv"
    assert again.read_text() == (tmp_path / "a" / "repertoires" / "sample_002.tsv").read_text()


@pytest.mark.parametrize("motif", ["", "LDRWW", "LDX"])
def test_a_motif_that_does_not_fit(tmp_path: Path, motif: str) -> None:
    with pytest.raises(InputError, match="expected 1 to 4 of the letters"):
        write_motif_cohort(tmp_path / "a", MotifCohort(motif=motif))
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_the_quickstart_as_a_user_runs_it(tmp_path: Path) -> None:
    summary = run_quickstart(tmp_path / "out")
    assert summary["test_auc"] >= 0.95
    assert summary["witnesses_in_top_100"] >= 90
