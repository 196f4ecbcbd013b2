import json
import shlex
from pathlib import Path

import pandas as pd
import pytest

from deeprc import quickstart
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation import load_recipe
from deeprc.errors import InputError
from deeprc.quickstart import run_quickstart
from deeprc.runs.run import Run


def name_run_and_cohort(run: Run, dataset: RepertoireDataset, path: Path) -> None:
    """Write what a report is about, in its place: the report itself takes most of the time."""
    path.write_text(f"{run.path} {dataset.container.path}")


def test_the_quickstart_writes_the_files_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quickstart, "_OVERRIDES", ("n_updates=20",))
    monkeypatch.setattr(quickstart, "write_report", name_run_and_cohort)
    lines: list[str] = []
    small = ("n_repertoires=20", "sizes.mean=50", "witness_rate=0.2")
    summary = run_quickstart(tmp_path / "my output", cohort=load_recipe("quickstart", small)[0], say=lines.append)
    assert json.loads((tmp_path / "my output" / "summary.json").read_text()) == summary
    assert {"test_auc", "witnesses_in_top_100", "seconds"} <= set(summary)
    assert all(Path(path).exists() for path in summary["files"].values())
    assert len(lines) == 5
    words = [shlex.split(line)[1:] for line in lines[1:]]
    assert [command[:2] for command in words] == [["deeprc", n] for n in ("preprocess", "train", "attention", "report")]
    assert words[1][2:] == [str(tmp_path / "my output" / "cohort.h5"), "--target", "status", "--output",
                            str(tmp_path / "my output" / "run"), "n_updates=20"]  # fmt: skip
    run, container = tmp_path / "my output" / "run", tmp_path / "my output" / "cohort.h5"
    assert (tmp_path / "my output" / "report.html").read_text() == f"{run} {container}"
    top = pd.read_csv(tmp_path / "my output" / "top_sequences.tsv", sep="\t")
    assert len(top) == 100
    assert top["contribution"].is_monotonic_decreasing
    assert summary["witnesses_in_top_100"] == top["junction_aa"].str.contains("LDRW").sum()
    predictions = pd.read_csv(tmp_path / "my output" / "run" / "predictions.tsv", sep="\t")
    tested = set(predictions.loc[predictions["split"] == "test", "repertoire_id"])
    assert set(top["repertoire_id"]) <= tested


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="exists already; choose another `output`"):
        run_quickstart(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.long
def test_the_quickstart_as_a_user_runs_it(tmp_path: Path) -> None:
    summary = run_quickstart(tmp_path / "out")
    assert summary["test_auc"] >= 0.95
    assert summary["witnesses_in_top_100"] >= 90
