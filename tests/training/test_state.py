"""The state of a training in a checkpoint."""

from typing import Any

import numpy as np
import pytest

from deeprc.errors import InputError
from deeprc.training.state import TrainingState, parse_state


def body(**changes: Any) -> dict[str, Any]:
    rows = [{"update": update, "validation_loss": 0.7, "seconds": 1.5, "best_update": 2} for update in (0, 2, 4)]
    return {"update": 4, "history": rows, "seconds": 2.0, **changes}


def row(**changes: float) -> dict[str, float]:
    return {"update": 2, "validation_loss": 0.7, "seconds": 1.5, **changes}


def test_a_state_is_read() -> None:
    state = parse_state(body(), 1, "last")
    assert (state.update, state.seconds, state.kept_update) == (4, 2.0, 2)
    assert [row["update"] for row in state.history] == [0, 2, 4]
    assert parse_state({}, 1, "last") == TrainingState()


def test_an_auc_and_the_training_loss_may_be_unknown() -> None:
    unknown = float("nan")
    state = parse_state(body(history=[row(validation_auc=unknown, train_loss=unknown)]), 1, "last")
    assert np.isnan([state.history[0]["validation_auc"], state.history[0]["train_loss"]]).all()


def test_a_monitor_may_be_negative() -> None:
    rows = [row(validation_r2=-0.3)]
    assert parse_state(body(history=rows), 1, "last").history == rows


def test_a_training_may_be_ahead_of_its_last_evaluation() -> None:
    assert parse_state(body(update=5), 1, "last").update == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"update": 3}, "expected updates that rise to at most 3, found 0, 2, 4"),
        (
            {"history": [body()["history"][i] for i in (0, 2, 1)]},
            "expected updates that rise to at most 4, found 0, 4, 2",
        ),
        ({"history": [body()["history"][0]] * 2}, "expected updates that rise to at most 4, found 0, 0"),
        ({"history": [row(validation_loss=-1.0)]}, "validation_loss: expected a number from 0 to 1e+30, found -1.0"),
        (
            {"history": [row(validation_loss=float("nan"))]},
            "validation_loss: expected a number from 0 to 1e+30, found nan",
        ),
        ({"history": [row(train_loss=float("inf"))]}, "train_loss: expected a number from 0 to 1e+30, found inf"),
        ({"history": [row(validation_auc=1.5)]}, "validation_auc: expected a number from 0 to 1, found 1.5"),
        ({"history": [row(seconds=1e308)]}, "seconds: expected a number from 0 to 1e+30, found 1e+308"),
        ({"best_update": 3}, "expected the best update 3 among its updates"),
        ({"history": [{"update": 2}]}, "expected a number 'seconds' in each row"),
        ({"history": [{"update": float("nan"), "seconds": 1.0}]}, "expected a number 'update' in each row"),
    ],
)
def test_a_history_that_could_not_be_written_is_refused(changes: dict[str, Any], message: str) -> None:
    """A training that went on from it would fail after its last update, when it reads its own `history.tsv`."""
    with pytest.raises(InputError, match=r"^last: history: ") as caught:
        parse_state(body(**changes), 1, "last")
    assert message in str(caught.value)
