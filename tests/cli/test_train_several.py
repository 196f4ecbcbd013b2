"""`deeprc train` of several runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deeprc.cli.tables import mean_lines

Call = Callable[..., tuple[int, str, str]]


def test_the_mean_over_runs() -> None:
    tested = {
        "fold-0": {"status": {"auc": 0.5}, "age": {"r2": 0.25}},
        "fold-1": {"status": {"auc": 1.0}, "age": {"r2": None}},
    }
    assert list(mean_lines(tested)) == ["status: mean auc of 2 runs 0.750, sd 0.354"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fold", "every"], "expected the index of a fold or all, found 'every'"),
        (["--fold", "9"], "--folds 5 --fold 9: expected at least 3 folds and a fold from 0 to folds - 1"),
        (["--fold", "all", "--test", "a=1"], "--fold all tests on each fold, and --test names the part for testing"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler trains several runs at a time: give --fold all"),
    ],
)
def test_what_cannot_be_trained(deeprc: Call, tmp_path: Path, options: list[str], message: str) -> None:
    code, _, error = deeprc("train", "cohort.h5", "--target", "status", "--output", tmp_path / "runs", *options)
    assert code == 2
    assert message in error
    assert not (tmp_path / "runs").exists()


def test_a_scheduler_that_is_not_there(deeprc: Call, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    common = ("cohort.h5", "--target", "status", "--output", tmp_path / "runs")
    code, _, error = deeprc("train", *common, "--fold", "all", "--scheduler", "tcp://127.0.0.1:1")
    assert code == 2
    assert error.startswith("Error: --scheduler tcp://127.0.0.1:1: cannot be reached: ")
    assert error.count("\n") == 1
