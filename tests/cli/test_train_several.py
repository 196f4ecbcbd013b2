"""`deeprc train` of several runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--validation-fold", "every"], "expected the index of a fold or all, found 'every'"),
        (["--fold", "all"], "'all' is not a valid integer"),
        (["--fold", "9"], "--folds 5 --fold 9: expected at least 3 folds and a fold from 0 to folds - 1"),
        (
            ["--scheduler", "tcp://127.0.0.1:1"],
            "--scheduler trains several runs at a time: give --validation-fold all, or leave-one-out",
        ),
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
    code, _, error = deeprc("train", *common, "--validation-fold", "all", "--scheduler", "tcp://127.0.0.1:1")
    assert code == 2
    assert error.startswith("Error: --scheduler tcp://127.0.0.1:1: cannot be reached: ")
    assert error.count("\n") == 1
