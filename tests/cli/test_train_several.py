"""`deeprc train` of several runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.caution import read_cautions

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--validation-fold", "every"], "expected the index of a fold, or 'all', found 'every'"),
        (["--fold", "all"], "'all' is not a valid integer"),
        (["seed=3"], "seed=3: seed is not a setting of the configuration, but an option: --seed 3"),
        (["validation_fold=all"], "but an option: --validation-fold all"),
        (["--fold", "9"], "--folds 5 --fold 9: expected 3 to 100,000 folds and a fold from 0 to folds - 1"),
        (
            ["--scheduler", "tcp://127.0.0.1:1"],
            "--scheduler trains several runs at a time: it needs --validation-fold all, or leave-one-out",
        ),
    ],
)
def test_train_refuses_bad_options_and_writes_nothing(
    deeprc: Call, tmp_path: Path, options: list[str], message: str
) -> None:
    (tmp_path / "cohort.h5").touch()
    common = (tmp_path / "cohort.h5", "--target", "status", "--output", tmp_path / "runs")
    code, _, error = deeprc("train", *common, *options)
    assert code == 2
    assert message in error
    assert not (tmp_path / "runs").exists()


def test_a_scheduler_that_is_not_there(deeprc: Call, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "cohort.h5").touch()
    common = (tmp_path / "cohort.h5", "--target", "status", "--output", tmp_path / "runs")
    code, _, error = deeprc("train", *common, "--validation-fold", "all", "--scheduler", "tcp://127.0.0.1:1")
    assert code == 2
    assert error.startswith("Error: --scheduler tcp://127.0.0.1:1: cannot be reached: ")
    assert error.count("\n") == 1


@pytest.mark.slow
def test_metrics_are_of_test_repertoires_and_warnings_are_shown(
    deeprc: Call, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    settings = ("n_updates=5", "evaluate_every=5", "n_kernels=4", "n_sequences=20", "clones=false")
    common = ("train", cohort.container.path, "--target", "status=case", "--folds", 3, "--device", "cpu")
    code, out, _ = deeprc(*common, "--validation-fold", "all", "--output", tmp_path / "runs", *settings)
    assert code == 0
    assert "test of validation-1" in out
    assert "the test repertoires of validation-1" in out or "varies" not in out
    warnings = [each for run in (tmp_path / "runs").iterdir() for each in read_cautions(run)]
    assert warnings
    assert all(each.text.partition("`")[0] in out for each in warnings)  # names of parameters are options here
    together = f"give {tmp_path}/runs to `deeprc evaluate` or `deeprc predict`, and they predict together"
    assert together in out
