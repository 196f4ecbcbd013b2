"""The tables of `accuracy.py`: means over seeds and folds by cohort and method, and means over cohorts by method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch
from accuracy_intervals import compute_mean_interval
from accuracy_jobs import JUDGED
from accuracy_ranking import MEASURES
from common import report

from deeprc.files import write_text

__all__ = ["KNOWN", "show", "summarise", "tell"]

KNOWN = "known-motif"
"""Name of the entry with which all others are compared."""

_HIDDEN = ("entry", "tested", "members")  # columns that results.tsv does not have


def summarise(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return a table by cohort and method: means over seeds and folds, intervals, and differences to known motif."""
    truth = jobs[jobs["entry"] == KNOWN].set_index(["cohort", "seed", "fold"])["auc"]
    places = pd.MultiIndex.from_frame(jobs[["cohort", "seed", "fold"]])
    jobs = jobs.assign(to_known_motif=jobs["auc"].to_numpy() - truth.reindex(places).to_numpy(np.float64))
    rows = []
    for (cohort, _), part in jobs.groupby(["cohort", "entry"], sort=False):
        low, high = compute_mean_interval(part)
        optional = (*MEASURES, *JUDGED, "seeded_kernels", "updates")  # columns that not every method has
        rows.append(
            {
                "cohort": cohort,
                "method": part["method"].iloc[0],
                "jobs": len(part),
                "auc": part["auc"].mean(),
                "sd": part["auc"].std(),
                "ci_low": low,
                "ci_high": high,
                "to_known_motif": part["to_known_motif"].mean(),
                **{name: part[name].astype(float).mean() if name in part else np.nan for name in optional},
                "seconds": part["seconds"].mean(),
            }
        )
    return pd.DataFrame(rows)


def take_means(summary: pd.DataFrame) -> pd.DataFrame:
    """Return a table by method: means over cohorts, and the worst difference to the known motif with its cohort."""
    rows = []
    for method, part in summary.groupby("method", sort=False):
        differences = part.set_index("cohort")["to_known_motif"].dropna()
        rows.append(
            {
                "method": method,
                "cohorts": len(part),
                "auc": part["auc"].mean(),
                **{name: part[name].mean() for name in (*MEASURES[1:], *JUDGED)},
                "to_known_motif": differences.mean(),
                "worst_to_known_motif": differences.min(),
                "worst_cohort": None if differences.empty else differences.idxmin(),
                "seconds": part["seconds"].mean(),
                "longest_seconds": part["seconds"].max(),
            }
        )
    return pd.DataFrame(rows)


def show(table: pd.DataFrame) -> None:
    """Print a table."""
    click.echo(table.to_string(index=False, float_format=lambda value: f"{value:,.4g}"), err=True)


def tell(jobs: pd.DataFrame, output: Path, device: torch.device) -> None:
    """Write `results.tsv` and `table.md`, and print the tables and their JSON lines."""
    summary = summarise(jobs)
    means = take_means(summary)
    shown = jobs.drop(columns=[name for name in _HIDDEN if name in jobs])
    write_text(output / "results.tsv", shown.to_csv(sep="\t", index=False))
    write_text(output / "table.md", _format_markdown(summary) + "\n" + _format_markdown(means))
    report("accuracy", _replace_missing(summary), device)
    report("accuracy, means over cohorts", _replace_missing(means), device)


def _replace_missing(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows in which missing values are None, for JSON."""
    rows = table.to_dict("records")
    return [{str(name): None if pd.isna(value) else value for name, value in row.items()} for row in rows]


def _format_markdown(table: pd.DataFrame) -> str:
    shown = {name: [_format_cell(str(name), value) for value in table[name]] for name in table}
    lines = [" | ".join(map(str, shown)), " | ".join("---" for _ in shown)]
    lines += [" | ".join(row) for row in zip(*shown.values(), strict=True)]
    return "".join(f"| {line} |\n" for line in lines)


def _format_cell(name: str, value: Any) -> str:
    if pd.isna(value):
        return ""
    if not isinstance(value, float):
        return str(value)
    if "seconds" in name or name in ("updates", "seeded_kernels", "true_sequences"):
        return f"{value:,.1f}"
    return f"{value:+.3f}" if "known_motif" in name else f"{value:.3f}"
