"""The tables of stacks in docs/ have the saved figures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

DOCS = Path(__file__).parents[2] / "docs"


def shown(value: float, name: str = "") -> str:
    return "" if pd.isna(value) else f"{value:.3f}" + (f" ({name})" if name else "")


@pytest.mark.parametrize(
    ("name", "page_name"),
    [
        ("stacking.tsv", "experiments.md"),
        ("stacking-101.tsv", "stacking-measured.md"),
        ("stacking-102.tsv", "stacking-measured.md"),
        ("stacking-103.tsv", "stacking-measured.md"),
    ],
)
def test_the_tables_have_the_saved_figures(name: str, page_name: str) -> None:
    saved = pd.read_csv(DOCS / "examples" / name, sep="\t").set_index("method")
    page = (DOCS / page_name).read_text(encoding="utf-8")
    for cohort, rows in saved.groupby("cohort", sort=False):
        others = rows.drop(["stack", "deeprc"])
        cells = [str(cohort), *(f"{rows[size].iloc[0]:,}" for size in ("repertoires", "test_repertoires"))]
        for measure in ("auc", "precision_at_true"):
            known = others[measure].dropna()
            best = (known.max(), str(known.idxmax())) if len(known) else (float("nan"), "")
            cells += [*(shown(rows.loc[of, measure]) for of in ("stack", "deeprc")), shown(*best)]
        assert f"| {' | '.join(cells)} | {shown(rows.loc['stack', 'calibration_error'])} |" in page
