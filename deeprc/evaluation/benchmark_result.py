"""What a benchmark found, and the files that say it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from deeprc.evaluation.benchmark_tables import results_tsv, table_latex, table_markdown
from deeprc.evaluation.comparison import MethodInfo, compare, fold_metrics
from deeprc.evaluation.curves import curves_table, draw_curves
from deeprc.files import write_text

__all__ = ["BenchmarkResult"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchmarkResult:
    """Predictions of every method for every labelled repertoire, made when it was tested.

    Attributes
    ----------
    methods
        In the order in which they were asked for.
    predictions
        method, fold, repertoire_id, label (0 or 1), score, probability.
    choices
        method, fold, validation_auc, settings (JSON): the setting that was chosen.
    costs
        method, fold, task ("search" or "final"), seconds, cpu_seconds, peak_memory_mb: of every job.
    failures
        Why methods failed that did.
    n_folds
        How many folds there are.
    title
        What was compared, for the tables.
    """

    methods: Sequence[MethodInfo]
    predictions: pd.DataFrame
    choices: pd.DataFrame
    costs: pd.DataFrame
    failures: Mapping[str, str] = field(default_factory=dict)
    n_folds: int = 5
    title: str = ""

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """AUCs with intervals and tests, one row per method; see `deeprc.evaluation.comparison.compare`."""
        return compare(self.predictions, self.methods, n_folds=self.n_folds)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Every metric of every method and fold; see `deeprc.evaluation.comparison.fold_metrics`."""
        return fold_metrics(self.predictions)

    @property
    def table(self) -> str:
        """The table of all methods and what to know about it, as Markdown."""
        return table_markdown(
            self.comparison,
            self.metrics,
            self.methods,
            title=self.title,
            choices=self.choices,
            costs=self.costs,
            failures=self.failures,
        )

    def write(self, folder: Path) -> None:
        """Write tables, predictions and curves; each file aside first, then renamed."""
        latex = table_latex(
            self.comparison, self.metrics, self.methods, title=self.title, costs=self.costs, failures=self.failures
        )
        texts = {
            "table.md": self.table,
            "table.tex": latex,
            "results.tsv": results_tsv(self.metrics, choices=self.choices, costs=self.costs),
            "comparison.tsv": _tsv(self.comparison),
            "predictions.tsv": _tsv(self.predictions),
            "settings.tsv": _tsv(self.choices),
            "costs.tsv": _tsv(self.costs),
        }
        for name, text in texts.items():
            write_text(folder / name, text)
        (folder / "curves").mkdir(exist_ok=True)
        if find_spec("matplotlib") is not None:
            draw_curves(self.predictions, self.methods, folder / "curves")
        else:
            write_text(folder / "curves" / "curves.tsv", _tsv(curves_table(self.predictions, self.methods)))
            logger.warning("the curves are written as numbers only; their pictures need matplotlib: deeprc[plots]")


def _tsv(table: pd.DataFrame) -> str:
    text: str = table.to_csv(sep="\t", index=False)
    return text
