"""Calibration of probabilities: reliability curve, calibration error, Brier score.

The Brier score and the log loss measure probabilities as a whole. They are compared with those of the base rate, which
gives every repertoire the shares of the classes among the evaluated repertoires. Letters: B repertoires, C classes.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from deeprc.arrays import Floats

__all__ = [
    "MEASURES",
    "compute_calibration_bins",
    "compute_calibration_error",
    "compute_wilson_interval",
    "judge_probabilities",
]

MEASURES = ("brier", "brier_base_rate", "log_loss", "log_loss_base_rate", "calibration_error")
"""The names of the measures that `judge_probabilities` returns."""

_MIN_REPERTOIRES = 10  # with fewer there is no calibration error
_SMALLEST = float(np.finfo(np.float64).eps)


def compute_wilson_interval(n_positive: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share, n_positive of n (J. of the American Statistical Association, 1927)."""
    z = float(norm.ppf(0.5 + 0.95 / 2))
    share = n_positive / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


def compute_calibration_bins(label: Floats, probability: Floats, *, n_bins: int | None = None) -> pd.DataFrame:
    """Return the points of a reliability curve: probability and observed share in bins of about equal size.

    Parameters
    ----------
    label, probability
        Label of each repertoire, 0 or 1, and predicted probability of label 1, (B,) each.
    n_bins
        Largest number of bins; equal probabilities are always in one bin. By default one bin for every 10 repertoires,
        from 2 to 10 bins.

    Returns
    -------
    One row per bin: probability (its mean), share (of label 1), lower and upper (Wilson's 95% interval), n.
    """
    n_bins = min(10, max(2, len(label) // 10)) if n_bins is None else n_bins
    edges = np.unique(np.quantile(probability, np.linspace(0, 1, n_bins + 1)))
    bin_of = np.clip(np.searchsorted(edges, probability, side="right") - 1, 0, max(len(edges) - 2, 0))
    rows = []
    for i in np.unique(bin_of):
        in_bin = bin_of == i
        n, n_positive = int(in_bin.sum()), int(label[in_bin].sum())
        lower, upper = compute_wilson_interval(n_positive, n)
        rows.append((float(probability[in_bin].mean()), n_positive / n, lower, upper, n))
    return pd.DataFrame(rows, columns=["probability", "share", "lower", "upper", "n"])


def compute_calibration_error(label: Floats, probability: Floats) -> float:
    """Return the expected calibration error of probabilities, as a root mean square without its bias.

    It is the square root of the sum over bins of n_k / n [(p_k - s_k)^2 - s_k (1 - s_k) / (n_k - 1)], or 0 if the sum
    is negative. The bins are those of `compute_calibration_bins`, with n_k of n repertoires, the mean probability p_k
    and the share s_k of label 1. The subtracted term is the variance of s_k: without it, the error of perfect
    probabilities is far from 0 in small cohorts. The sum is the debiased reliability of Bröcker (Climate Dynamics 2012,
    39:655-667) and of Kumar, Liang and Ma (Verified uncertainty calibration, NeurIPS 2019). A bin of one repertoire has
    the variance p_k (1 - p_k).

    In simulations of 200 repertoires with perfect probabilities, the mean result is 0.02 to 0.03. The usual expected
    calibration error, the mean absolute difference in 10 bins, is 0.05 to 0.08 there.

    Parameters
    ----------
    label, probability
        Label of each repertoire, 0 or 1, and predicted probability of label 1, (B,) each.

    Returns
    -------
    The error; NaN for fewer than 10 repertoires.
    """
    if len(label) < _MIN_REPERTOIRES:
        return float("nan")
    bins = compute_calibration_bins(label, probability)
    p, share, n = (bins[name].to_numpy(np.float64) for name in ("probability", "share", "n"))
    variance = np.where(n > 1, share * (1 - share) / np.maximum(n - 1, 1), p * (1 - p))
    total = float((n * ((p - share) ** 2 - variance)).sum()) / len(label)
    return float(max(total, 0.0) ** 0.5)


def judge_probabilities(label: NDArray[np.int64], probability: Floats) -> dict[str, float]:
    """Return how good the probabilities of classes are.

    Parameters
    ----------
    label
        The index of the class of each repertoire, (B,), at least one.
    probability
        The probability of each class, (B, C). Two classes may be given by the probability of the second, (B,).

    Returns
    -------
    brier
        For two classes, the mean of (p - y)^2 of the second class; for several, the mean of the sum over classes.
    log_loss
        The mean of -log p of the true class, in nats. Probabilities below 2e-16 count as 2e-16.
    calibration_error
        For two classes, see `compute_calibration_error`; for several, the mean over classes, each against all others.
    brier_base_rate, log_loss_base_rate
        The same measures for predictions that know only the shares of the classes among these repertoires.
    """
    by_class = np.stack([1 - probability, probability], axis=1) if probability.ndim == 1 else probability
    n_classes = by_class.shape[1]
    member = np.eye(n_classes)[label]  # (B, C)
    share = member.mean(axis=0)
    # of two classes, only the second one counts: the first has the same squares and the same error
    divisor, judged_classes = (2, [1]) if n_classes == 2 else (1, range(n_classes))
    errors = [compute_calibration_error(member[:, code], by_class[:, code]) for code in judged_classes]
    positive_share = share[share > 0]
    return {
        "brier": float(((by_class - member) ** 2).sum(axis=1).mean()) / divisor,
        "brier_base_rate": float((share * (1 - share)).sum()) / divisor,
        "log_loss": float(-np.log(np.maximum(by_class[np.arange(len(label)), label], _SMALLEST)).mean()),
        "log_loss_base_rate": float(-(positive_share * np.log(positive_share)).sum()),
        "calibration_error": float(np.mean(errors)),
    }
