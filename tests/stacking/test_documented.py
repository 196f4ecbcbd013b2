"""The table of docs/stacking.md has the saved figures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

DOCS = Path(__file__).parents[2] / "docs"


def shown(value: float, name: str = "") -> str:
    return "" if pd.isna(value) else f"{value:.3f}" + (f" ({name})" if name else "")


def test_the_table_has_the_saved_figures() -> None:
    saved = pd.read_csv(DOCS / "examples" / "stacking.tsv", sep="\t").set_index("method")
    page = (DOCS / "stacking.md").read_text(encoding="utf-8")
    for cohort, rows in saved.groupby("cohort", sort=False):
        others = rows.drop(["stack", "deeprc"])
        cells = [str(cohort), *(f"{rows[name].iloc[0]:,}" for name in ("repertoires", "test_repertoires"))]
        for measure in ("auc", "precision_at_true"):
            known = others[measure].dropna()
            best = (known.max(), str(known.idxmax())) if len(known) else (float("nan"), "")
            cells += [*(shown(rows.loc[name, measure]) for name in ("stack", "deeprc")), shown(*best)]
        assert f"| {' | '.join(cells)} | {shown(rows.loc['stack', 'calibration_error'])} |" in page
