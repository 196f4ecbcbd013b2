"""Measure how the AUC of a method grows with the number of repertoires, and whether its pipeline finds anything.

Test folds stay whole. From the other folds, smaller and smaller shares of the donors are learned from. An inverse power
law is fitted to the AUCs. Intervals come from a bootstrap of the tested donors, whose spread is widened because the
choice of the training repertoires changes AUCs, too (`_widen`), and which are not narrower than an interval that knows
class sizes (`_measure_interval`). The form of the curve beyond the cohort is unknown.
So two forms are fitted to each bootstrap sample, the power law and one that rises late; the interval is that of both.

Letters: B repertoires, F folds, S numbers of repertoires, P permutations, D bootstrap samples.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from deeprc.arrays import Floats
from deeprc.benchmarking.execution import Progress
from deeprc.benchmarking.jobs import Outcome
from deeprc.benchmarking.methods import Method, choose_methods
from deeprc.benchmarking.nested import assign_labelled_folds, digest_cohort
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.store import POWER, ResultStore
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.auc_intervals import fold_aucs_interval, overlap_factor
from deeprc.evaluation.cohort_cautions import find_subject_cautions
from deeprc.evaluation.splits import assign_folds, index_given_donors, index_known_donors
from deeprc.groups import index_groups
from deeprc.power.curve import LearningCurve
from deeprc.power.extrapolation import fit_late_curves, fit_power_law, fit_power_laws
from deeprc.power.subsampling import Fit, SubsampledPlan, make_header, run_fits, set_seed
from deeprc.tasks import parse_tasks
from deeprc.training.permutations import permute_labels

__all__ = ["SHARES", "PowerOptions", "measure_learning_curve"]

SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)
"""Shares of the donors to learn from; those that leave fewer than `_MIN_CLASS` of a class are left out."""

_MIN_CLASS = 5
_N_BOOTSTRAPS = 400
_MIN_VARIANCE = 1e-6
_MULTIPLES = (2, 4, 8)  # multiples of the cohort at which the law is shown
_QUANTILES = (0.025, 0.975)


_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PowerOptions:
    """Options of the measurement of a learning curve.

    Attributes
    ----------
    benchmark
        Options of the folds, the donors, the seed and the workers.
    n_draws
        Number of random orders of the donors for each share below 1.
    n_permutations
        Number of permutations of the labels; 0: no test.
    auc
        AUC for which the needed number of repertoires is estimated.

    Raises
    ------
    InputError
        If a value is out of range.
    """

    benchmark: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    n_draws: int = 3
    n_permutations: int = 0
    auc: float = 0.9

    def __post_init__(self) -> None:
        for name, low in (("n_draws", 1), ("n_permutations", 0)):
            if getattr(self, name) < low:
                raise InputError(f"`{name}={getattr(self, name)}`: expected at least {low}")
        if not 0.5 < self.auc < 1:
            raise InputError(f"`auc={self.auc:g}`: expected more than 0.5 and less than 1")
        if not isinstance(self.benchmark.folds, int | np.integer):
            raise InputError("`folds`: a learning curve needs a number of folds")
        if self.benchmark.adjust_for:
            raise InputError("`adjust_for`: a learning curve is not adjusted")


class _Tested(NamedTuple):
    """Scores of one whole cross-validation: for each fold the indices of its repertoires, and their scores."""

    rows: list[NDArray[np.int64]]
    scores: list[Floats]


def measure_learning_curve(
    cohort: str | os.PathLike[str] | RepertoireDataset,
    *,
    target: str,
    methods: Sequence[str],
    output: str | os.PathLike[str] | None = None,
    options: PowerOptions | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> list[LearningCurve]:
    """Return the learning curve of each method: its AUC by the number of repertoires to learn from.

    Parameters
    ----------
    cohort, target, methods
        As in `deeprc.benchmark`; the target has two classes.
    output
        Folder that keeps the outcome of every job; None keeps nothing.
    options
        Options of the learning curve; None: the defaults.
    resume
        Whether to continue an earlier call that wrote to this folder.
    progress
        Function that is called after every job.

    Raises
    ------
    InputError
        If an argument cannot be used, or a fit fails.
    """
    options = PowerOptions() if options is None else options
    dataset = cohort if isinstance(cohort, RepertoireDataset) else open_dataset(cohort)
    whole = _make_full_plan(dataset, target, methods, options)
    n_draws = options.n_draws
    shares = [s for s in SHARES if s == 1 or _count_smallest_class(whole, s, n_draws=n_draws) >= _MIN_CLASS]
    plans = {
        (share, draw): replace(whole, share=share, draw=draw)
        for share in shares
        for draw in range(n_draws if share < 1 else 1)
    }
    permuted = _make_permuted_plans(whole, options)
    header = make_header(whole, options.benchmark, target)
    store = ResultStore(None if output is None else Path(output), header, resume=resume, kind=POWER)
    every = [*plans.values(), *permuted]
    fits = [Fit(plan, method, fold) for plan in every for method in whole.methods for fold in range(whole.n_folds)]
    outcomes = run_fits(fits, store, options.benchmark.workers, progress)
    scores = _group_by_plan(fits, outcomes)
    return [
        _make_curve(
            method,
            whole,
            {place: (plan, scores[id(plan), method.name]) for place, plan in plans.items()},
            [(plan, scores[id(plan), method.name]) for plan in permuted],
            options,
        )
        for method in whole.methods
    ]


def _make_full_plan(
    dataset: RepertoireDataset, target: str, methods: Sequence[str], options: PowerOptions
) -> SubsampledPlan:
    """Return the plan that keeps all donors."""
    how = options.benchmark
    fold_of, _, labels, task = assign_labelled_folds(dataset, target, how)
    if task.kind != "binary":
        raise InputError(f"`target={target}`: a learning curve needs a target with two classes")
    preset = os.fspath(how.preset or "quick")
    chosen, _ = choose_methods(methods, preset=preset, dataset=dataset, task=task)
    groups = index_given_donors(dataset.metadata, how.group_by, str(dataset.container.path))
    for caution in find_subject_cautions(dataset.metadata, fold_of, apart="folds"):
        _logger.warning("%s", caution.text)
    subjects = index_known_donors(dataset.metadata, how.group_by)
    seeded = tuple(set_seed(method, how.seed) for method in chosen)
    content = digest_cohort(dataset)
    return SubsampledPlan(dataset, fold_of, labels, task, how.seed, content, seeded, groups, subjects=subjects)


def _count_smallest_class(plan: SubsampledPlan, share: float, *, n_draws: int) -> int:
    """Return the smallest number of training repertoires of a class in any fold and draw of a share of the donors."""
    parts = [replace(plan, share=share, draw=draw) for draw in range(n_draws)]
    trained = [plan.labels[part.splits[fold].train] for part in parts for fold in range(plan.n_folds)]
    return min(int(np.bincount(labels, minlength=2).min()) for labels in trained)


def _make_permuted_plans(plan: SubsampledPlan, options: PowerOptions) -> list[SubsampledPlan]:
    """Return plans with permuted labels; the folds of each plan are divided again by its labels.

    Donors with different numbers of repertoires may exchange labels. If this leaves a class with fewer repertoires than
    folds, there is no plan, and a warning is logged.
    """
    known = np.flatnonzero(plan.fold_of >= 0)
    if not options.n_permutations:
        return []
    donors = index_groups(plan.donors[known])
    rng = np.random.default_rng([plan.seed, len(known)])
    values = plan.labels[known].astype(np.float64)[:, None]
    sizes = plan.dataset.n_sequences[known].astype(np.int64)
    permuted = permute_labels(values, sizes, donors, options.n_permutations, rng)[:, 0, 1:].astype(np.int64)
    plans = []
    for of_known in permuted.T:
        labels = np.full(len(plan.labels), -1)
        labels[known] = of_known
        with suppress(InputError):  # too few repertoires of a class, whose true labels had enough
            plans.append(_relabel(plan, labels, options.benchmark))
    if left_out := options.n_permutations - len(plans):
        _logger.warning(
            "%d of %d permutations of the labels leave too few repertoires of a class for %d `folds`, because donors "
            "have different numbers of repertoires. They are not run, and p counts them as not lower than the true "
            "labels. Fewer `folds` need fewer repertoires",
            left_out,
            options.n_permutations,
            plan.n_folds,
        )
    return plans


def _relabel(plan: SubsampledPlan, labels: NDArray[np.int64], how: BenchmarkOptions) -> SubsampledPlan:
    """Return a plan with other labels, (B,), whose folds are divided by them."""
    sheet, source = plan.dataset.metadata, str(plan.dataset.container.path)
    written = sheet.assign(power_label=pd.Series(labels.astype(str), index=sheet.index).where(labels >= 0))
    tasks = parse_tasks(["power_label=1"], written, source=source)
    fold_of = assign_folds(written, tasks, n_folds=plan.n_folds, group_by=how.group_by, seed=how.seed, source=source)
    return replace(plan, labels=labels, fold_of=fold_of)


def _group_by_plan(fits: Sequence[Fit], outcomes: Sequence[Outcome]) -> dict[tuple[int, str], _Tested]:
    """Return the scores of each cross-validation, by the id of its plan and the name of its method."""
    found: dict[tuple[int, str], _Tested] = {}
    for fit, outcome in zip(fits, outcomes, strict=True):
        tested = found.setdefault((id(fit.plan), fit.method.name), _Tested([], []))
        tested.rows.append(fit.plan.splits[fit.fold].test)
        tested.scores.append(np.asarray(outcome["test"]["score"], np.float64))
    return found


def _make_curve(
    method: Method,
    whole: SubsampledPlan,
    measured: Mapping[tuple[float, int], tuple[SubsampledPlan, _Tested]],
    permuted: Sequence[tuple[SubsampledPlan, _Tested]],
    options: PowerOptions,
) -> LearningCurve:
    """Return the curve of a method from all its cross-validations."""
    shares = sorted({share for share, _ in measured})
    by_share = [[tested for (share, _), (_, tested) in measured.items() if share == own] for own in shares]
    n_learned = np.array(
        [np.mean([measured[share, 0][0].n_learned(fold) for fold in range(whole.n_folds)]) for share in shares]
    )
    auc = _average_aucs(by_share, whole.labels)[0]
    intervals = np.array([_measure_interval(runs, whole) for runs in by_share])  # (S, 2)
    resampled = _resample(by_share, auc, np.array(shares), whole, intervals)
    if not np.isfinite(resampled).all(axis=1).any():
        raise InputError(f"{method.label}: no interval: too few donors have a repertoire of each class in a test fold")
    weights = 1 / np.maximum(np.nanvar(resampled, axis=0), _MIN_VARIANCE)
    law = fit_power_law(n_learned, auc, weights)
    complete = resampled[np.isfinite(resampled).all(axis=1)]
    laws = [fit(n_learned, complete, weights) for fit in (fit_power_laws, fit_late_curves)]
    scale = whole.n_folds / (whole.n_folds - 1)  # size of a cohort, divided by the number of repertoires to learn from
    lows, highs = np.nanquantile(resampled, _QUANTILES, axis=0)  # (S,) each
    lows, highs = np.minimum(lows, intervals[:, 0]), np.maximum(highs, intervals[:, 1])
    rows = [
        ("measured", n, n * scale, value, low, high, len(runs))
        for n, value, low, high, runs in zip(n_learned, auc, lows, highs, by_share, strict=True)
    ]
    for multiple in _MULTIPLES:
        n = float(n_learned[-1] * multiple)
        limits = np.quantile([each.auc(n) for own in laws for each in own], _QUANTILES)
        rows.append(("extrapolated", n, n * scale, law.auc(n), *limits, 0))
    needed = np.sort([each.solve_n(options.auc) for own in laws for each in own]) * scale
    low, high = (float(needed[round(q * (len(needed) - 1))]) for q in _QUANTILES)
    return LearningCurve(
        method.label,
        pd.DataFrame(rows, columns=["kind", "n_learned", "n_cohort", "auc", "auc_low", "auc_high", "n_runs"]),
        law,
        options.auc,
        (law.solve_n(options.auc) * scale, low, high),
        _p_value(float(auc[-1]), permuted, options.n_permutations),
        options.n_permutations,
    )


def _measure_interval(runs: Sequence[_Tested], plan: SubsampledPlan) -> tuple[float, float]:
    """Return the interval of the mean AUC of the draws of one share by `fold_aucs_interval`."""
    folds = [(draw, rows) for draw, tested in enumerate(runs) for rows in tested.rows]
    found = fold_aucs_interval(
        [plan.labels[rows] for _, rows in folds],
        [scores for tested in runs for scores in tested.scores],
        [plan.donors[rows] for _, rows in folds],
        repeats=[draw for draw, _ in folds],
    )
    return found.low, found.high


def _resample(
    by_share: Sequence[Sequence[_Tested]], auc: Floats, shares: Floats, plan: SubsampledPlan, intervals: Floats
) -> Floats:
    """Return the AUCs of bootstrap samples of donors, (D, S), see `_widen`.

    If classes are separated perfectly, all bootstrap samples have the same AUC. So normal noise adds the variance that
    the samples lack, compared with `intervals`, (S, 2), the 95% intervals of `_measure_interval`. One sample has the
    same noise for all shares, because the same donors are tested.
    """
    rng = np.random.default_rng([plan.seed, _N_BOOTSTRAPS])
    times = np.array([_draw_donors(plan.donors, rng) for _ in range(_N_BOOTSTRAPS)])
    draws = _average_aucs(by_share, plan.labels, times)
    by_draw = [np.array([_average_aucs([[tested]], plan.labels)[0, 0] for tested in runs]) for runs in by_share]
    variance = np.nanvar(draws, axis=0)
    spread = _widen(variance, by_draw, shares, plan.n_folds)
    noise = rng.normal(size=(_N_BOOTSTRAPS, 1))
    deviation = np.where(noise < 0, auc - intervals[:, 0], intervals[:, 1] - auc) / norm.ppf(_QUANTILES[1])  # (D, S)
    added = noise * np.sqrt(np.maximum(deviation**2 - spread**2 * variance, 0.0))
    return np.asarray(np.clip(auc + spread * (draws - auc) + added, 0.0, 1.0))


def _widen(variance: Floats, by_draw: Sequence[Floats], shares: Floats, n_folds: int) -> Floats:
    """Return by how much the choice of the training repertoires multiplies the standard deviation of each AUC, (S,).

    This is the larger of two estimates. One is that of `overlap_factor`, which knows the numbers of repertoires only.
    The other is from how the AUCs of the draws of a share differ, which is much if a method selects features. Draws of
    the share s of the same donors have a variance of 1 - s times that of draws of new donors, and the mean over R draws
    has s + (1 - s) / R times this. The variance is assumed to be the same for all shares.

    Parameters
    ----------
    variance
        Variance of each AUC in bootstrap samples of the tested donors, (S,).
    by_draw
        AUC of each draw, (R,), for each share.
    shares
        Shares of the donors, (S,).
    """
    several = [place for place, own in enumerate(by_draw) if shares[place] < 1 and np.isfinite(own).sum() > 1]
    between = sum(float(np.nanvar(by_draw[place], ddof=1)) for place in several)
    of_training = between / sum(float(1 - shares[place]) for place in several) if several else 0.0
    of_mean = of_training * (shares + (1 - shares) / np.array([len(own) for own in by_draw]))
    measured = 1 + of_mean / np.maximum(variance, _MIN_VARIANCE)
    return np.asarray(np.sqrt(np.maximum(measured, overlap_factor(n_folds))))


def _p_value(auc: float, permuted: Sequence[tuple[SubsampledPlan, _Tested]], n_permutations: int) -> float:
    """Return the share of all labellings whose AUC is not lower; a permutation that was not run is not lower."""
    if not n_permutations:
        return float("nan")
    others = [_average_aucs([[tested]], plan.labels)[0, 0] for plan, tested in permuted]
    n_lower = sum(other < auc - 1e-12 for other in others)  # NaN, of folds with one class only, is not lower
    return float(1 + n_permutations - n_lower) / (1 + n_permutations)


def _draw_donors(donors: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return how often each repertoire is in a bootstrap sample of the donors, (B,)."""
    known, place = np.unique(donors, return_inverse=True)
    times = np.bincount(rng.integers(0, len(known), len(known)), minlength=len(known))
    return np.asarray(times[place])


def _average_aucs(
    by_share: Sequence[Sequence[_Tested]], labels: NDArray[np.int64], times: NDArray[np.int64] | None = None
) -> Floats:
    """Return the AUC of each sample for each number of repertoires, (D, S): the mean over all folds of all runs.

    `times` (D, B) says how often a repertoire counts; None: once, in one sample. Folds with one class are left out.
    """
    times = np.ones((1, len(labels)), np.int64) if times is None else times
    means = np.full((len(times), len(by_share)), np.nan)
    for place, runs in enumerate(by_share):
        own = np.array(
            [
                _aucs(labels[rows], scores, times[:, rows])
                for tested in runs
                for rows, scores in zip(tested.rows, tested.scores, strict=True)
            ]
        )  # (runs x F, D)
        known = np.isfinite(own)
        count = known.sum(axis=0)
        means[count > 0, place] = (np.where(known, own, 0.0).sum(axis=0) / np.maximum(count, 1))[count > 0]
    return means


def _aucs(labels: NDArray[np.int64], scores: Floats, times: NDArray[np.int64]) -> Floats:
    """Return the AUC of repertoires that count several times, (D,); NaN if a class is missing."""
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, scores[order][1:] != scores[order][:-1]])  # of equal scores
    ordered, positive = times[:, order].astype(np.float64), labels[order] == 1
    above, below = (np.add.reduceat(np.where(own, ordered, 0.0), starts, axis=1) for own in (positive, ~positive))
    pairs = above.sum(axis=1) * below.sum(axis=1)
    won = (above * (below.cumsum(axis=1) - below / 2)).sum(axis=1)
    return np.asarray(np.where(pairs > 0, won / np.maximum(pairs, 1), np.nan))
