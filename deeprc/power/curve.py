"""The learning curve of a method, as a table and in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from deeprc.power.extrapolation import PowerLaw

__all__ = ["LearningCurve"]

_MAX_REPERTOIRES = 1e7  # an AUC that needs more repertoires than this counts as never reached


@dataclass(frozen=True)
class LearningCurve:
    """The learning curve of one method.

    Attributes
    ----------
    method
        The label of the method.
    table
        One row for each measured number of repertoires to learn from (`kind` "measured"), and for multiples of the
        largest ("extrapolated"): `n_learned`, `n_cohort` (the size of a cohort whose cross-validation learns from so
        many), `auc`, `auc_low`, `auc_high` (95% interval) and, if measured, `n_runs`.
    law
        The inverse power law of the measured AUCs.
    target_auc, n_needed
        AUC that is the goal, and number of repertoires of a cohort that reaches it: the estimate by the law, and the
        limits of its 95% interval. Infinity if the goal is not reached.
    p_value, n_permutations
        Share of all labellings (the true one and the permuted ones) whose AUC with all repertoires is at least as high
        as that of the true labels; NaN without permutations. And number of permutations.
    """

    method: str
    table: pd.DataFrame
    law: PowerLaw
    target_auc: float
    n_needed: tuple[float, float, float]
    p_value: float
    n_permutations: int

    def to_lines(self) -> list[str]:
        """Return the result as a few lines of text."""
        lines = [f"{self.method}:"]
        for row in self.table.to_dict("records"):
            remark = "" if row["kind"] == "measured" else ", extrapolated"
            limits = f"95% interval {row['auc_low']:.3f} to {row['auc_high']:.3f}"
            lines.append(f"  {row['n_cohort']:>6,.0f} repertoires: AUC {row['auc']:.3f} ({limits}{remark})")
        if self.law.deficit < 1e-3:
            lines.append("  The AUC does not rise with the number of repertoires")
        smallest = float(self.table["n_cohort"].min())
        lines.append(f"  {self._describe_need(smallest)}, if the curve goes on like this")
        largest, auc = self.table.loc[self.table["kind"] == "measured", ["n_cohort", "auc"]].iloc[-1]
        if (auc >= self.target_auc) != (self.n_needed[0] <= largest):
            measured = f"the measured AUC of {largest:,.0f} repertoires is {auc:.3f}"
            lines.append(f"  This number is from the curve through all sizes; {measured}")
        if self.n_permutations:
            test_result = f"p = {self.p_value:.3g}, {self.n_permutations:,} permutations of the labels between donors"
            lines.append(f"  Does it find anything? {test_result}")
        return lines

    def _describe_need(self, smallest: float) -> str:
        """Return a sentence with the number of repertoires that the AUC needs, and its 95% interval.

        Numbers below `smallest`, the smallest number that was measured, are not shown.
        """
        needed, low, high = self.n_needed
        limits = _format_limits(low, high, smallest)
        if min(self.n_needed) < smallest:
            limits += f"; {np.ceil(smallest):,.0f} is the smallest that was measured"
        if _is_reached(needed):
            n_text = _format_number(needed, smallest)
            return f"AUC {self.target_auc:g} needs {n_text} repertoires (95% interval: {limits})"
        return f"AUC {self.target_auc:g} is not reached with any number of repertoires (95% interval: {limits})"


def _is_reached(n: float) -> bool:
    return bool(n <= _MAX_REPERTOIRES)


def _format_limits(low: float, high: float, smallest: float) -> str:
    """Return the limits of an interval of a number of repertoires as text."""
    if not _is_reached(low):
        return "not reached"
    first = _format_number(low, smallest)
    if not _is_reached(high):
        return f"any number from {first} on, or never"
    last = _format_number(high, smallest)
    return first if first == last else f"{first} to {last}"


def _format_number(n: float, smallest: float) -> str:
    """Return a number of repertoires as text; instead of a number below `smallest`, `fewer than` that one."""
    return f"fewer than {np.ceil(smallest):,.0f}" if n < smallest else f"{np.ceil(n):,.0f}"
