"""Warnings about packed models, and about attention that adds nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from deeprc.runs.model_cautions import find_packed_cautions, find_unused_attention_cautions


def make_run(
    *, packed: bool = False, best_update: int = 0, motifs: int = 0, branches: tuple[str, ...] = ("composition",)
) -> Any:
    network = SimpleNamespace(branches=SimpleNamespace(names=branches) if branches else None, linear_output=object())
    history = pd.DataFrame({"update": [0, 10], "best_update": [0, best_update]})
    return SimpleNamespace(
        bundle=object() if packed else None,
        model=SimpleNamespace(network=network),
        history=lambda: pd.DataFrame() if packed else history,
        start_motifs=lambda: pd.DataFrame({"motif": ["WWHW"] * motifs}),
    )


def test_a_packed_model_warns_that_new_repertoires_may_be_known() -> None:
    (caution,) = find_packed_cautions([make_run(packed=True)], ["new", "new"])
    assert caution.level == "warning"
    assert caution.text == (
        "A packed model cannot recognise its training repertoires. If this is its training cohort, the metrics are too "
        "good."
    )
    (caution,) = find_packed_cautions([make_run(packed=True), make_run()], ["train", "new"])
    assert caution.text.startswith("1 of 2 models are packed and cannot recognise their training repertoires.")


@pytest.mark.parametrize(
    ("runs", "splits"), [([], ["new"]), ([make_run()], ["new"]), ([make_run(packed=True)] * 2, ["test"])]
)
def test_other_models_do_not_warn(runs: list[Any], splits: list[str]) -> None:
    assert not list(find_packed_cautions(runs, splits))


def test_a_start_without_motifs_that_no_update_improved() -> None:
    (caution,) = find_unused_attention_cautions([make_run(branches=("composition", "clones"))])
    assert caution.level == "warning"
    assert caution.text == (
        "No update lowered the validation loss, so the attention adds nothing: the model predicts from composition and "
        "clones only."
    )
    (caution,) = find_unused_attention_cautions([make_run(), make_run(best_update=10)])
    assert caution.text == (
        "No update of 1 of 2 runs lowered the validation loss, so the attention adds nothing: they predict from "
        "composition only."
    )


@pytest.mark.parametrize(
    "run", [make_run(best_update=10), make_run(motifs=1), make_run(branches=()), make_run(packed=True)]
)
def test_other_networks_use_their_attention_or_it_is_not_known(run: Any) -> None:
    assert not list(find_unused_attention_cautions([run]))
