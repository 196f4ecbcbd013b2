"""Intervals of the AUCs of `accuracy.py`: they account for donors, and for training repertoires that folds share.

Letters: B repertoires of a test fold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from accuracy_cohorts import Source
from numpy.typing import NDArray

from deeprc.evaluation.auc_intervals import compute_auc_interval, compute_fold_aucs_interval, compute_overlap_factor
from deeprc.evaluation.donors import DonorColumn

__all__ = ["add_interval", "compute_mean_interval"]


def add_interval(
    outcome: dict[str, Any], source: Source, rows: NDArray[np.int64], scores: NDArray[np.float64]
) -> dict[str, Any]:
    """Return an outcome with the 95% interval of its AUC: `ci_low`, `ci_high`.

    If the cohort is a container, the result also has `tested`, the label, donor and score of each test repertoire, for
    `compute_mean_interval`: several seeds test the same donors. Each seed of a recipe is a cohort of its own, without
    donors.

    Parameters
    ----------
    outcome
        The outcome of a job.
    source
        The cohort.
    rows, scores
        Rows of the test repertoires in the cohort, and their scores, (B,) each.
    """
    label = source.labels[rows, 0].astype(np.int64)
    donors = DonorColumn.choose(source.dataset.metadata, source.group_by).index_if_known()
    found = compute_fold_aucs_interval([label], [scores], None if donors is None else [donors[rows]])
    outcome = {**outcome, "ci_low": found.low, "ci_high": found.high}
    if source.path is not None:
        donors = DonorColumn(source.dataset.metadata, None).index() if donors is None else donors
        outcome["tested"] = {"label": label.tolist(), "donor": donors[rows].tolist(), "score": scores.tolist()}
    return outcome


def compute_mean_interval(jobs: pd.DataFrame) -> tuple[float, float]:
    """Return the 95% interval of the mean AUC of a method over the seeds and folds of one cohort.

    Parameters
    ----------
    jobs
        The rows of the method: `seed`, `auc`, `n_positive`, `n_negative`, and `tested` of a container's jobs.
    """
    n_folds = jobs.groupby("seed").size()
    if "tested" not in jobs or jobs["tested"].isna().all():
        factor = compute_overlap_factor(float(n_folds.mean()))
        return compute_auc_interval(jobs["auc"].mean(), jobs["n_positive"], jobs["n_negative"], variance_factor=factor)
    tested = {name: [np.asarray(job[name]) for job in jobs["tested"]] for name in ("label", "donor", "score")}
    # single folds of several seeds share training repertoires, too: they are like the folds of one repeat
    repeats = jobs["seed"].tolist() if n_folds.min() > 1 else None
    found = compute_fold_aucs_interval(tested["label"], tested["score"], tested["donor"], repeats=repeats)
    return found.low, found.high
