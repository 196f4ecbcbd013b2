"""The result of a benchmark, and its files."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeprc.benchmarking.latex import render_latex
from deeprc.benchmarking.markdown import render_markdown
from deeprc.benchmarking.tables import format_results_tsv
from deeprc.drawing import save_for_screen
from deeprc.evaluation.caution import Caution, write_cautions
from deeprc.evaluation.comparison import MethodInfo, compare, compare_probabilities, compute_fold_metrics
from deeprc.evaluation.comparison_cautions import find_comparison_cautions
from deeprc.evaluation.curves import draw_curves, make_curves_table
from deeprc.evaluation.reliability_figure import draw_reliability_figure, make_reliability_table
from deeprc.evaluation.scoring import BINARY
from deeprc.evaluation.scoring_base import Scoring
from deeprc.evaluation.splits import N_FOLDS
from deeprc.evaluation.strata import StratifiedAuc, compute_stratified_auc
from deeprc.files import write_text
from deeprc.notebook_html import render_details, render_interval, render_table

__all__ = ["MEMBER_COLUMNS", "BenchmarkResult"]

_OF_REPERTOIRE = ("repertoire_id", "contribution")
MEMBER_COLUMNS = ("method", "fold", "member", "auc", "weight", "share", "intercept", *_OF_REPERTOIRE)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class BenchmarkResult:
    """The test predictions of every method for every labelled repertoire, with comparisons, metrics and warnings.

    Attributes
    ----------
    methods
        Methods in the order in which they were given.
    predictions
        Table of method, fold, repertoire_id, label and the predictions; see `deeprc.evaluation.scoring`.
    choices
        Table of the setting that was chosen in each fold: method, fold, validation_auc (or validation_r2); refit_auc
        (or refit_r2), the measure on the test fold after a fit to training and validation folds together, NaN if the
        method learns from both anyway; and settings (JSON).
    costs
        Table of the costs of every job: method, fold, task ("search" or "final"), seconds, cpu_seconds, peak_memory_mb.
    members
        Table of the members of stacks, by fold and test repertoire: `MEMBER_COLUMNS`. The cross-fitted AUC of a member,
        its weight, its share of the variance and the intercept of all members are the same for all repertoires of a
        fold; its contribution to the log-odds is that to one repertoire.
    failures
        Reasons why methods failed, by name.
    n_folds
        Number of folds.
    title
        Heading of the tables: target, cohort, folds and settings.
    scoring
        Scoring for the kind of target.
    known
        Warnings about the cohort and the folds.
    donors
        Index of the donor of each repertoire, by its id; None if every repertoire is from a different donor.
    shortcuts
        Metadata columns that predict the target, with the value of each repertoire by its id.
    """

    methods: Sequence[MethodInfo]
    predictions: pd.DataFrame
    choices: pd.DataFrame
    costs: pd.DataFrame
    members: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=MEMBER_COLUMNS))
    failures: Mapping[str, str] = field(default_factory=dict)
    n_folds: int = N_FOLDS
    title: str = ""
    scoring: Scoring = BINARY
    known: Sequence[Caution] = ()
    donors: Mapping[str, int] | None = None
    shortcuts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"BenchmarkResult({self.title!r}, {len(self.methods)} methods{failed}; print(result.table) shows them)"

    def _repr_html_(self) -> str:
        """Return the methods with their measure and its interval as HTML for a notebook."""
        comparison, estimate_column = self.comparison, self.scoring.estimate_column
        labels = {method.name: method.label for method in self.methods}
        rows, pictures = [], []
        for _, row in comparison.iterrows():
            low, value, high = (float(row[name]) for name in ("ci_low", estimate_column, "ci_high"))
            is_measured = math.isfinite(value)
            numbers = (
                [f"{value:.3f}", f"{low:.3f} to {high:.3f}"]
                if is_measured
                else ["", self.failures.get(row["method"], "")]
            )
            rows.append([labels[row["method"]], *numbers])
            pictures.append(render_interval(low, value, high, chance=self.scoring.chance_level))
        return render_details(
            self.title, [], render_table(["method", self.scoring.heading, "95% interval"], rows, pictures)
        )

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """Table of AUCs (or r2) with intervals and tests by method; see `deeprc.evaluation.comparison.compare`."""
        return compare(self.predictions, self.methods, n_folds=self.n_folds, scoring=self.scoring, donors=self.donors)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Table of every metric of every method and fold; see `deeprc.evaluation.comparison.compute_fold_metrics`."""
        return compute_fold_metrics(self.predictions, self.scoring)

    @cached_property
    def probabilities(self) -> pd.DataFrame:
        """Table of the quality of probabilities by method; see `deeprc.evaluation.comparison.compare_probabilities`."""
        return compare_probabilities(self.predictions, self.methods, self.scoring)

    @cached_property
    def cautions(self) -> list[Caution]:
        """All warnings: about the cohort, the folds, the controls, and few repertoires."""
        few_donors = any(caution.name == "repeated-subjects" and caution.level == "warning" for caution in self.known)
        verdict = find_comparison_cautions(self.comparison, self.methods, self.scoring, few_donors=few_donors)
        return [*self.known, *self._find_strata_cautions(), *verdict]

    def _find_strata_cautions(self) -> Iterator[Caution]:
        """Yield, for columns that predict the target, a warning with the AUCs among repertoires of equal values."""
        if self.scoring.kind != "binary":
            return
        overall_aucs = self.comparison.set_index("method")[self.scoring.estimate_column]
        for column, value_of in self.shortcuts.items():
            aucs_within = self._compute_aucs_within(column, value_of)
            method_texts = [
                f"{method.label} {aucs_within[method.name].auc:.3f} ({overall_aucs[method.name]:.3f} over all)"
                for method in self.methods
                if method.name in aucs_within
            ]
            if method_texts:
                text = (
                    f"AUC among repertoires with the same {column!r}, in the same fold: {', '.join(method_texts)}. A "
                    f"method that has learned {column!r} instead of the target has 0.5 there."
                )
                details = {name: auc_within.to_dict() for name, auc_within in aucs_within.items()}
                yield Caution("warning", text, "controls", "auc-within", details)

    def _compute_aucs_within(self, column: str, value_of: Mapping[str, Any]) -> dict[str, StratifiedAuc]:
        """Return the AUC of each method among repertoires with equal values of a column, if there is one.

        `value_of` has the value of each repertoire by its id.
        """
        aucs_within = {}
        for method in self.methods:
            rows = self.predictions[self.predictions["method"] == method.name]
            ids = rows["repertoire_id"].tolist()
            values = [value_of.get(name) for name in ids]
            donors = None if self.donors is None else np.array([self.donors[name] for name in ids], np.int64)
            label, score = rows["label"].to_numpy(float), rows["score"].to_numpy(float)
            auc_within = compute_stratified_auc(column, values, label, score, donors, folds=rows["fold"].tolist())
            if auc_within is not None:
                aucs_within[method.name] = auc_within
        return aucs_within

    @property
    def table(self) -> str:
        """Table of all methods with explanations and warnings, in Markdown."""
        return render_markdown(self)

    def write(self, folder: Path) -> None:
        """Write tables, predictions and curves; an earlier file stays until the new one is complete."""
        texts = {
            "table.md": self.table,
            "table.tex": render_latex(self),
            "results.tsv": format_results_tsv(self),
            "comparison.tsv": _format_tsv(self.comparison),
            "predictions.tsv": _format_tsv(self.predictions),
            "settings.tsv": _format_tsv(self.choices),
            "costs.tsv": _format_tsv(self.costs),
        }
        for name, text in texts.items():
            write_text(folder / name, text)
        if len(self.probabilities):
            write_text(folder / "probabilities.tsv", _format_tsv(self.probabilities))
            points = make_reliability_table(self.predictions, self.methods, self.scoring)
            write_text(folder / "reliability.tsv", _format_tsv(points))
        members = {
            "members.tsv": self.members.drop(columns=list(_OF_REPERTOIRE)).drop_duplicates(),
            "contributions.tsv": self.members[["method", "fold", "member", *_OF_REPERTOIRE]],
        }
        for name, rows in members.items():
            if len(rows):
                write_text(folder / name, _format_tsv(rows))
            else:
                (folder / name).unlink(missing_ok=True)  # file of an earlier call
        write_cautions(folder, self.cautions)
        (folder / "curves").mkdir(exist_ok=True)
        if find_spec("matplotlib") is not None:
            draw_curves(self.predictions, self.methods, folder / "curves", self.scoring)
            self._draw_reliability(folder / "curves")
        else:
            table = make_curves_table(self.predictions, self.methods, self.scoring)
            write_text(folder / "curves" / "curves.tsv", _format_tsv(table))
            _logger.warning("the curves are written as numbers only; their pictures need matplotlib: deeprc[plots]")

    def _draw_reliability(self, folder: Path) -> None:
        if len(self.probabilities):
            figure = draw_reliability_figure(self.predictions, self.methods, self.scoring)
            save_for_screen(figure, folder / "reliability")


def _format_tsv(table: pd.DataFrame) -> str:
    text: str = table.to_csv(sep="\t", index=False)
    return text
