"""Metrics of a run are read back as they were written; what is damaged is told with its file and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deeprc.cli.tables import format_metrics
from deeprc.errors import InputError
from deeprc.runs.metrics import read_metrics

CONTROL = {
    "control": "size",
    "auc": 0.6,
    "auc_ci": [0.5, 0.7],
    "difference": -0.1,
    "p_value": None,
    "relation": "worse",
}
VALUES = {
    "n": 24,
    "auc": 0.7,
    "auc_ci": [0.6, 0.8],
    "loss": float("inf"),
    "positive_class": "1",
    "controls": [CONTROL],
    "variation": [{"output": "status", "shares": {"attention": 1.0}}],
    "within": [{"column": "site", "auc": 0.7, "auc_ci": [0.6, 0.8]}],
    "of a later version": {"x": [1]},
}


def write(folder: Path, content: Any) -> Path:
    (folder / "metrics.json").write_text(json.dumps(content))
    return folder


def test_metrics_are_read_as_they_were_written(tmp_path: Path) -> None:
    content = {"test": {"status": VALUES}}
    assert read_metrics(write(tmp_path, content)) == content
    text = format_metrics(read_metrics(tmp_path))
    assert "0.600-0.800" in text
    assert "Differences between the outputs of the test repertoires (status) come from: attention 100%" in text


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"n": "x"}, "n: expected a whole number of 64 bits, found 'x'"),
        ({"auc": []}, "auc: expected a finite number, found []"),
        ({"auc_ci": "1e999"}, "auc_ci: expected a list, found '1e999'"),
        ({"auc_ci": [0.6, ""]}, "auc_ci[1]: expected a finite number, found ''"),
        ({"positive_class": 1}, "positive_class: expected text, found 1"),
        ({"controls": {"x": 1}}, "controls: expected a list, found {'x': 1}"),
        ({"controls": [7]}, "controls[0]: expected names and values, found 7"),
        ({"controls": [{"control": "size"}]}, "controls[0]: difference: is missing"),
        (
            {"controls": [CONTROL, {**CONTROL, "p_value": "x"}]},
            "controls[1]: p_value: expected a finite number, found 'x'",
        ),
        (
            {"variation": [{"output": "status", "shares": 3}]},
            "variation[0]: shares: expected names and values, found 3",
        ),
        ({"within": [{"column": "site", "auc": 0.7}]}, "within[0]: auc_ci: is missing"),
    ],
)
def test_damaged_metrics_are_told_by_key(tmp_path: Path, damage: dict[str, Any], message: str) -> None:
    write(tmp_path, {"test": {"status": {**VALUES, **damage}}})
    with pytest.raises(InputError) as error:
        read_metrics(tmp_path)
    assert str(error.value) == f"{tmp_path / 'metrics.json'}: test: status: {message}"


def test_a_file_that_holds_no_metrics(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"metrics\.json: no such file"):
        read_metrics(tmp_path)
    with pytest.raises(InputError, match=r"metrics\.json\.'test': expected names and values, found 7$"):
        read_metrics(write(tmp_path, {"test": 7}))
