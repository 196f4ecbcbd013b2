"""Time of logistic regression on 4-mers: the converged solver compared with scikit-learn's liblinear, and Adam.

python benchmarks/logistic.py [--rows 60 --rows 300] [--columns 160000]

Each row solves for all values of C, one after the other. liblinear, with scikit-learn's settings, gets columns that are
standardised in double precision, which is not timed. `largest_gap` is an upper limit of the relative distance of our
objective from the minimum; `liblinear_excess` is the relative excess of liblinear's objective over ours, at the worst
C.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import click
import numpy as np
import torch
from common import report
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from deeprc.baselines.adam import AdamSettings, AdamState, draw_batches, make_updates
from deeprc.baselines.elastic_net import Solution, fit_elastic_net_path


@click.command()
@click.option(
    "--rows", multiple=True, default=(60, 300), help="Number of repertoires. The option may be given several times."
)
@click.option("--columns", default=160_000, help="Number of k-mers.")
@click.option("--penalties", default=12, help="Number of values of C, from 0.01 to 100.")
@click.option("--repeats", default=3, help="Number of runs of our solver; the median counts.")
@click.option("--updates", default=2_000, help="Number of updates of Adam.")
def main(rows: tuple[int, ...], columns: int, penalties: int, repeats: int, updates: int) -> None:
    """Time a path of penalties, and updates of Adam."""
    torch.set_num_threads(1)
    Cs = np.logspace(-2, 2, penalties)
    lines: list[dict[str, Any]] = []
    for n_rows in rows:
        matrix, positive = _draw_cohort(n_rows, columns)
        for penalty, l1_ratio in (("l1", 1.0), ("l2", 0.0)):
            ours, found = _time_ours(matrix, positive, Cs.tolist(), l1_ratio, repeats)
            theirs, excess = _time_liblinear(matrix, positive, Cs, penalty, found)
            lines.append(
                {
                    "rows": n_rows,
                    "solver": penalty,
                    "ours_s": ours,
                    "liblinear_s": theirs,
                    "ratio": theirs / ours,
                    "largest_gap": max(solution.gap for solution in found),
                    "liblinear_excess": excess,
                }
            )
        lines.append({"rows": n_rows, "solver": "Adam", "us_per_update": 1e6 * _time_adam(matrix, positive, updates)})
    report("logistic", lines, torch.device("cpu"))


def _draw_cohort(n_rows: int, n_columns: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return random frequencies of k-mers, a few of which are slightly more frequent in the positive class."""
    rng = np.random.default_rng(0)
    mean = rng.lognormal(0, 2, n_columns)
    positive = np.arange(n_rows) % 2 == 1
    size = rng.lognormal(0, 0.5, n_rows)[:, None]
    matrix = np.empty((n_rows, n_columns), np.float32)
    for row in range(n_rows):
        matrix[row] = rng.poisson(mean * size[row]) / size[row]
    carrying = np.argsort(mean)[-5000::500]
    matrix[:, carrying] += positive[:, None] * matrix[:, carrying].std(axis=0) * 0.5
    return matrix, positive


def _time_ours(
    matrix: NDArray[np.float32], positive: NDArray[np.bool_], Cs: list[float], l1_ratio: float, repeats: int
) -> tuple[float, list[Solution]]:
    """Return the median seconds for all C, and the solutions."""
    times, found = [], []
    for _ in range(1 + repeats):
        started = time.perf_counter()
        found = list(fit_elastic_net_path(matrix, positive, Cs, l1_ratio=l1_ratio))
        times.append(time.perf_counter() - started)
    return float(np.median(times[1:])), found  # without the first, which compiles


def _time_liblinear(
    matrix: NDArray[np.float32], positive: NDArray[np.bool_], Cs: NDArray[Any], penalty: str, ours: list[Solution]
) -> tuple[float, float]:
    """Return the seconds for all C, and the largest relative excess of an objective over ours."""
    spread = matrix.std(axis=0, dtype=np.float64)
    kept = np.flatnonzero(spread)
    z = (matrix[:, kept].astype(np.float64) - matrix[:, kept].mean(axis=0, dtype=np.float64)) / spread[kept]
    seconds, worst = 0.0, 0.0
    for C, solution in zip(Cs, ours, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parameters that newer versions of scikit-learn have renamed
            model = LogisticRegression(solver="liblinear", penalty=penalty, C=C, random_state=0)
            started = time.perf_counter()
            model.fit(z, positive)
            seconds += time.perf_counter() - started
        every = np.zeros(matrix.shape[1])
        every[solution.columns] = solution.coefficients * spread[solution.columns]
        at_mean = solution.intercept + solution.coefficients @ matrix[:, solution.columns].mean(
            axis=0, dtype=np.float64
        )
        least = _compute_objective(z, positive, every[kept], at_mean, C, penalty)
        worst = max(worst, _compute_objective(z, positive, model.coef_[0], model.intercept_[0], C, penalty) / least - 1)
    return seconds, worst


def _compute_objective(
    z: NDArray[Any], positive: NDArray[np.bool_], w: NDArray[Any], intercept: float, C: float, penalty: str
) -> float:
    odds = z @ w + intercept
    cost = np.abs(w).sum() if penalty == "l1" else (w**2).sum() / 2
    return float(C * np.logaddexp(0, np.where(positive, -odds, odds)).sum() + cost)


def _time_adam(matrix: NDArray[np.float32], positive: NDArray[np.bool_], n_updates: int) -> float:
    batches = draw_batches(len(matrix), 4, n_updates, seed=0)
    settings = AdamSettings(1e-3, l1=1e-7, l2=1e-3)
    make_updates(AdamState(matrix.shape[1]), matrix, positive, batches[:10], settings)
    started = time.perf_counter()
    make_updates(AdamState(matrix.shape[1]), matrix, positive, batches, settings)
    return (time.perf_counter() - started) / n_updates


if __name__ == "__main__":
    main()
