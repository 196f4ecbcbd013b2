"""`deeprc cv`."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from deeprc.cli.cv import _describe_motifs
from deeprc.datasets.dataset import RepertoireDataset

Call = Callable[..., tuple[int, str, str]]
SMALL = ["n_updates=10", "evaluate_every=5", "n_kernels=4", "kernel_size=4", "n_sequences=20"]


@pytest.mark.slow
def test_a_cross_validation_and_its_answer(deeprc: Call, cohort: RepertoireDataset, tmp_path: Path) -> None:
    common = ["cv", cohort.container.path, "--target", "status=case", "--target", "age:regression"]
    options = ["--folds", 3, "--members", 1, "--group-by", "patient_id", "--device", "cpu", "--output", tmp_path / "cv"]
    code, out, error = deeprc(*common, *options, *SMALL)
    assert code == 0, error
    found = json.loads((tmp_path / "cv" / "metrics.json").read_text())
    auc, (low, high) = found["status=case"]["auc"], found["status=case"]["auc_ci"]
    assert f"status=case: mean AUC of 3 test folds {auc:.3f} (95% interval {low:.3f} to {high:.3f})" in out
    assert f"age: r2 of the out-of-fold predictions of 26 repertoires {found['age']['r2']:.3f}" in out
    assert "Note: There was only one repeat" in out
    assert "The same call with --repeats 3 adds two repeats." in out
    assert out.endswith(f"Wrote {tmp_path / 'cv'}\n")


def test_motifs_of_several_outputs_are_told_apart() -> None:
    motifs = pd.DataFrame({"motif": ["LDR", "LDR"], "output": ["CMV", "age"], "n_runs": [4, 1], "n_all_runs": 6})
    assert (
        _describe_motifs(motifs) == "motifs, and how many runs found each: LDR for CMV (4 of 6), LDR for age (1 of 6)"
    )
    assert _describe_motifs(motifs[:1]) == "motifs, and how many runs found each: LDR (4 of 6)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--members", 5], "--members 5: expected 1 to 4, one for each validation fold"),
        (["--repeats", 0], "--repeats 0: expected at least 1"),
        (["--folds", 1, "--members", 1], "--folds 1: expected at least 3"),
        (["--group-by", "site"], "no column 'site' for --group-by"),
    ],
)
def test_bad_options_are_one_line(
    deeprc: Call, cohort: RepertoireDataset, tmp_path: Path, options: list[object], message: str
) -> None:
    call = ("cv", cohort.container.path, "--target", "status=case", "--output", tmp_path / "cv", *options)
    code, _, error = deeprc(*call)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "cv").exists()
