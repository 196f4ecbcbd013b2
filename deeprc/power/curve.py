"""The learning curve of a method, as a table and in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from deeprc.power.extrapolation import PowerLaw

__all__ = ["LearningCurve"]

_MANY = 1e7  # with more repertoires than this, an AUC counts as never reached


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
        An AUC, and the size of the cohort that reaches it: the estimate by the law, and the limits of its 95% interval.
        Infinity if it is not reached.
    p_value, n_permutations
        Share of the labellings, true and permuted, whose AUC with all repertoires is at least as high as the true one,
        NaN without permutations; and the number of permutations.
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
            how = "" if row["kind"] == "measured" else ", extrapolated"
            limits = f"95% interval {row['auc_low']:.3f} to {row['auc_high']:.3f}"
            lines.append(f"  {row['n_cohort']:>6,.0f} repertoires: AUC {row['auc']:.3f} ({limits}{how})")
        if self.law.loss < 1e-3:
            lines.append("  The AUC does not rise with the number of repertoires")
        smallest = float(self.table["n_cohort"].min())
        lines.append(f"  {self._describe_need(smallest)}, if the curve goes on like this")
        if self.n_permutations:
            what = f"p = {self.p_value:.3g}, {self.n_permutations:,} permutations of the labels between donors"
            lines.append(f"  Does it find anything? {what}")
        return lines

    def _describe_need(self, smallest: float) -> str:
        """Return a sentence with the number of repertoires that the AUC needs, and its 95% interval.

        Numbers below `smallest`, the smallest that was measured, are not given.
        """
        needed, low, high = self.n_needed
        limits = "not reached"
        if _is_reached(low):
            first, last = _count(low, smallest), _count(high, smallest)
            limits = first if first == last else f"{first} to {last}"
            limits = limits if _is_reached(high) else f"from {first} upwards, or never"
        if min(self.n_needed) < smallest:
            limits += f"; {np.ceil(smallest):,.0f} is the smallest that was measured"
        how = f"needs {_count(needed, smallest)}" if _is_reached(needed) else "is not reached with any number of"
        return f"AUC {self.target_auc:g} {how} repertoires (95% interval {limits})"


def _is_reached(n: float) -> bool:
    return bool(n <= _MANY)


def _count(n: float, smallest: float) -> str:
    """Return a number of repertoires as text; numbers below the smallest measured one are not given."""
    if n < smallest:
        return f"fewer than {np.ceil(smallest):,.0f}"
    return f"{np.ceil(n):,.0f}" if _is_reached(n) else "never"
