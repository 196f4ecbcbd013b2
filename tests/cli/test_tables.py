"""Metrics as text."""

from __future__ import annotations

import pytest

from deeprc.cli.tables import format_metrics


@pytest.mark.parametrize(
    ("part", "among"),
    [
        ("out-of-fold", "out-of-fold repertoires"),
        ("test", "test repertoires"),
        ("test of fold-1", "test repertoires of fold-1"),
    ],
)
def test_the_auc_within_columns_names_its_repertoires(part: str, among: str) -> None:
    within = [
        {"column": "Severity", "auc": 0.902, "auc_ci": [0.8, 0.95]},
        {"column": "site", "auc": 0.7, "auc_ci": [0.5, 0.9]},
    ]
    text = format_metrics({part: {"cell=cd4": {"n": 12, "auc": 0.95, "within": within}}})
    assert text.splitlines()[-1] == (
        f"AUC of cell=cd4 among {among} with the same Severity: 0.902 (0.800-0.950), with the same site: 0.700 "
        "(0.500-0.900)"
    )
