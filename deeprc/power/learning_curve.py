"""Measure how the AUC of a method grows with the number of repertoires, and whether its pipeline finds anything.

Test folds stay whole. Of the other folds, the method learns from smaller and smaller shares of the donors. An inverse
power law is fitted to the AUCs. Intervals come from a bootstrap of the tested donors (`resample_aucs`). Its spread is
widened, because the choice of the training repertoires changes AUCs, too. No interval is narrower than that of class
sizes (`measure_interval`). The form of the curve beyond the cohort is unknown. So two forms are fitted to each
bootstrap sample, the power law and a curve that rises late; the interval is that of both forms.

Letters: B repertoires, S numbers of repertoires, D bootstrap samples.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.benchmarking.cohort_digest import digest_cohort
from deeprc.benchmarking.execution import JobProgress
from deeprc.benchmarking.jobs import Outcome
from deeprc.benchmarking.labelled_folds import LabelledFolds
from deeprc.benchmarking.methods import Method, choose_methods, set_seed
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.store import POWER, ResultStore
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.documents import abbreviate
from deeprc.errors import InputError
from deeprc.evaluation.cohort_cautions import find_divided_donor_cautions
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.splits import assign_folds
from deeprc.groups import index_groups
from deeprc.jobs import check_scheduler
from deeprc.permutations import permute_labels
from deeprc.power.curve import LearningCurve
from deeprc.power.extrapolation import LateCurve, PowerLaw, fit_late_curves, fit_power_law, fit_power_laws
from deeprc.power.resampling import (
    MIN_VARIANCE,
    QUANTILES,
    FoldScores,
    average_aucs,
    compute_p_value,
    measure_interval,
    resample_aucs,
)
from deeprc.power.subsampling import Fit, SubsampledPlan, make_header, run_fits
from deeprc.tasks import parse_tasks

__all__ = ["SHARES", "PowerOptions", "measure_learning_curve"]

SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)
"""Shares of the donors to learn from. A share is left out if a class has too few training repertoires then."""

_MIN_CLASS = 5  # smallest number of training repertoires of a class
_MAX_REPEATS = 100_000  # largest number of draws, and of permutations
_MULTIPLES = (2, 4, 8)  # multiples of the cohort for which the curve is extrapolated


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
        Goal: the AUC for which the needed number of repertoires is estimated.

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
            if not low <= getattr(self, name) <= _MAX_REPEATS:
                found = abbreviate(getattr(self, name))
                raise InputError(f"`{name}={found}`: expected {low} to {_MAX_REPEATS:,}")
        if not 0.5 < self.auc < 1:
            raise InputError(f"`auc={self.auc:g}`: expected more than 0.5 and less than 1")
        if not isinstance(self.benchmark.folds, int | np.integer):
            raise InputError("`folds`: a learning curve needs a number of folds")
        if self.benchmark.adjust_for:
            raise InputError("`adjust_for`: a learning curve is not adjusted")


class _MeasuredShare(NamedTuple):
    """The cross-validations that learn from one share of the donors.

    Attributes
    ----------
    share
        Share of the donors.
    n_learned
        Number of repertoires to learn from, the mean over folds.
    runs
        Scores of the cross-validation of each draw of the donors.
    """

    share: float
    n_learned: float
    runs: Sequence[FoldScores]


class _Points(NamedTuple):
    """The measured points of a learning curve.

    Attributes
    ----------
    n_learned, auc, low, high
        Numbers of repertoires to learn from, and AUCs with the limits of their 95% intervals, (S,) each.
    samples
        AUCs of those bootstrap samples that have one for each number of repertoires, (D, S).
    weights
        Weight of each AUC in a fit, (S,).
    """

    n_learned: Floats
    auc: Floats
    low: Floats
    high: Floats
    samples: Floats
    weights: Floats


def measure_learning_curve(
    cohort: str | os.PathLike[str] | RepertoireDataset,
    *,
    target: str,
    methods: Sequence[str],
    output: str | os.PathLike[str] | None = None,
    options: PowerOptions | None = None,
    resume: bool = False,
    progress: JobProgress | None = None,
) -> list[LearningCurve]:
    """Measure the learning curve of each method: its AUC by the number of repertoires to learn from.

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
    if options.benchmark.scheduler is not None:
        check_scheduler(options.benchmark.scheduler)
    dataset = cohort if isinstance(cohort, RepertoireDataset) else open_dataset(cohort)
    full_plan = _make_full_plan(dataset, target, methods, options)
    plans_by_share = _make_plans_by_share(full_plan, options.n_draws)
    permuted_plans = _make_permuted_plans(full_plan, options)
    header = make_header(full_plan, options.benchmark, target)
    store = ResultStore(None if output is None else Path(output), header, resume=resume, kind=POWER)
    all_plans = [*chain.from_iterable(plans_by_share), *permuted_plans]
    fits = [
        Fit(plan, method, fold)
        for plan in all_plans
        for method in full_plan.methods
        for fold in range(full_plan.n_folds)
    ]
    outcomes = run_fits(fits, store, options.benchmark.workers, progress)
    curves = []
    for method in full_plan.methods:
        collect = partial(_collect_scores, fits, outcomes, method)
        measured = [
            _MeasuredShare(plans[0].share, _compute_mean_n_learned(plans[0]), [collect(plan) for plan in plans])
            for plans in plans_by_share
        ]
        permuted = [(plan, collect(plan)) for plan in permuted_plans]
        curves.append(_make_curve(method, full_plan, measured, permuted, options))
    return curves


def _make_full_plan(
    dataset: RepertoireDataset, target: str, methods: Sequence[str], options: PowerOptions
) -> SubsampledPlan:
    """Return the plan that keeps all donors."""
    benchmark = options.benchmark
    folds = LabelledFolds.assign(dataset, target, benchmark)
    if folds.task.kind != "binary":
        raise InputError(f"`target={target}`: a learning curve needs a target with two classes")
    preset = os.fspath(benchmark.preset or "quick")
    chosen, _ = choose_methods(methods, preset=preset, dataset=dataset, task=folds.task)
    groups = DonorColumn.require(dataset.metadata, benchmark.group_by, str(dataset.container.path)).index_if_known()
    for caution in find_divided_donor_cautions(dataset.metadata, folds.fold_of, apart="folds"):
        _logger.warning("%s", caution.text)
    known_donors = DonorColumn.choose(dataset.metadata, benchmark.group_by).index_if_known()
    seeded = tuple(set_seed(method, benchmark.seed) for method in chosen)
    return SubsampledPlan(
        dataset=dataset,
        folds=folds,
        seed=benchmark.seed,
        content=digest_cohort(dataset),
        methods=seeded,
        groups=groups,
        refits=False,
        known_donors=known_donors,
    )


def _make_plans_by_share(full_plan: SubsampledPlan, n_draws: int) -> list[list[SubsampledPlan]]:
    """Return the plans of each share of the donors, one for each draw, without shares that leave too few of a class."""
    plans_by_share = []
    for share in SHARES:
        plans = [replace(full_plan, share=share, draw=draw) for draw in range(n_draws if share < 1 else 1)]
        if share == 1 or _count_smallest_class(plans) >= _MIN_CLASS:
            plans_by_share.append(plans)
    return plans_by_share


def _count_smallest_class(plans: Sequence[SubsampledPlan]) -> int:
    """Return the smallest number of training repertoires of a class in any fold of any plan."""
    training_labels = [plan.folds.labels[split.train] for plan in plans for split in plan.splits]
    return min(int(np.bincount(labels, minlength=2).min()) for labels in training_labels)


def _make_permuted_plans(plan: SubsampledPlan, options: PowerOptions) -> list[SubsampledPlan]:
    """Return plans with permuted labels; the folds of each plan are divided again by its labels.

    Donors with different numbers of repertoires may exchange labels. If a class has fewer repertoires than folds then,
    there is no plan, and a warning is logged.
    """
    if not options.n_permutations:
        return []
    labelled = np.flatnonzero(plan.folds.fold_of >= 0)
    donors = index_groups(plan.donors[labelled])
    rng = np.random.default_rng([plan.seed, len(labelled)])
    values = plan.folds.labels[labelled].astype(np.float64)[:, None]
    sizes = plan.dataset.n_sequences[labelled].astype(np.int64)
    permuted = permute_labels(values, sizes, donors, options.n_permutations, rng)[:, 0, 1:].astype(np.int64)
    plans = []
    for permuted_labels in permuted.T:
        labels = np.full(len(plan.folds.labels), -1)
        labels[labelled] = permuted_labels
        with suppress(InputError):  # too few repertoires of a class, whose true labels had enough
            plans.append(_replace_labels(plan, labels, options.benchmark))
    if n_left_out := options.n_permutations - len(plans):
        _logger.warning(
            "%d of %d permutations of the labels leave too few repertoires of a class for %d `folds`, because donors "
            "have different numbers of repertoires. They are not run, and p counts them as not lower than the true "
            "labels. Fewer `folds` need fewer repertoires",
            n_left_out,
            options.n_permutations,
            plan.n_folds,
        )
    return plans


def _replace_labels(plan: SubsampledPlan, labels: NDArray[np.int64], options: BenchmarkOptions) -> SubsampledPlan:
    """Return a plan with other labels, (B,), by which its folds are divided."""
    metadata, source = plan.dataset.metadata, str(plan.dataset.container.path)
    relabelled = metadata.assign(power_label=pd.Series(labels.astype(str), index=metadata.index).where(labels >= 0))
    tasks = parse_tasks(["power_label=1"], relabelled, source=source)
    fold_of = assign_folds(
        relabelled, tasks, n_folds=plan.n_folds, group_by=options.group_by, seed=options.seed, source=source
    )
    return replace(plan, folds=replace(plan.folds, labels=labels, fold_of=fold_of, inner_fold_of=None))


def _compute_mean_n_learned(plan: SubsampledPlan) -> float:
    """Return the mean over folds of the number of repertoires for training and validation."""
    return float(np.mean([plan.n_learned(fold) for fold in range(plan.n_folds)]))


def _collect_scores(
    fits: Sequence[Fit], outcomes: Sequence[Outcome], method: Method, plan: SubsampledPlan
) -> FoldScores:
    """Return the scores of the cross-validation of one method by one plan."""
    collected = FoldScores([], [])
    for fit, outcome in zip(fits, outcomes, strict=True):
        if fit.plan is plan and fit.method is method:
            collected.rows.append(plan.splits[fit.fold].test)
            collected.scores.append(np.asarray(outcome["test"]["score"], np.float64))
    return collected


def _make_curve(
    method: Method,
    full_plan: SubsampledPlan,
    measured: Sequence[_MeasuredShare],
    permuted: Sequence[tuple[SubsampledPlan, FoldScores]],
    options: PowerOptions,
) -> LearningCurve:
    """Return the curve of a method from all its cross-validations."""
    points = _measure_points(method, full_plan, measured)
    law = fit_power_law(points.n_learned, points.auc, points.weights)
    sampled_curves: list[PowerLaw | LateCurve] = [
        *fit_power_laws(points.n_learned, points.samples, points.weights),
        *fit_late_curves(points.n_learned, points.samples, points.weights),
    ]
    cohort_factor = full_plan.n_folds / (full_plan.n_folds - 1)  # size of a cohort per repertoire that is learned from
    rows = [
        ("measured", n, n * cohort_factor, auc, low, high, len(share.runs))
        for n, auc, low, high, share in zip(
            points.n_learned, points.auc, points.low, points.high, measured, strict=True
        )
    ]
    rows += _extrapolate_curve(law, sampled_curves, float(points.n_learned[-1]), cohort_factor)
    return LearningCurve(
        method.label,
        pd.DataFrame(rows, columns=["kind", "n_learned", "n_cohort", "auc", "auc_low", "auc_high", "n_runs"]),
        law,
        options.auc,
        _estimate_need(law, sampled_curves, options.auc, cohort_factor),
        compute_p_value(float(points.auc[-1]), permuted, options.n_permutations),
        options.n_permutations,
    )


def _measure_points(method: Method, full_plan: SubsampledPlan, measured: Sequence[_MeasuredShare]) -> _Points:
    """Return the measured points of the curve of a method; raise InputError if they have no interval."""
    by_share = [share.runs for share in measured]
    auc = average_aucs(by_share, full_plan.folds.labels)[0]
    intervals = np.array([measure_interval(runs, full_plan) for runs in by_share])  # (S, 2)
    samples = resample_aucs(by_share, auc, np.array([share.share for share in measured]), full_plan, intervals)
    complete = samples[np.isfinite(samples).all(axis=1)]
    if not len(complete):
        raise InputError(f"{method.label}: no interval: too few donors have a repertoire of each class in a test fold")
    lows, highs = np.nanquantile(samples, QUANTILES, axis=0)  # (S,) each
    return _Points(
        n_learned=np.array([share.n_learned for share in measured]),
        auc=auc,
        low=np.minimum(lows, intervals[:, 0]),
        high=np.maximum(highs, intervals[:, 1]),
        samples=complete,
        weights=1 / np.maximum(np.nanvar(samples, axis=0), MIN_VARIANCE),
    )


def _extrapolate_curve(
    law: PowerLaw, sampled_curves: Sequence[PowerLaw | LateCurve], n_learned: float, cohort_factor: float
) -> list[tuple[Any, ...]]:
    """Return the rows of the table for multiples of the largest measured number of repertoires, `n_learned`."""
    rows = []
    for multiple in _MULTIPLES:
        n = n_learned * multiple
        low, high = np.quantile([curve.predict_auc(n) for curve in sampled_curves], QUANTILES)
        rows.append(("extrapolated", n, n * cohort_factor, law.predict_auc(n), low, high, 0))
    return rows


def _estimate_need(
    law: PowerLaw, sampled_curves: Sequence[PowerLaw | LateCurve], auc: float, cohort_factor: float
) -> tuple[float, float, float]:
    """Return the size of a cohort that reaches an AUC, by the law, and the limits of its 95% interval."""
    needed = np.sort([curve.solve_n(auc) for curve in sampled_curves]) * cohort_factor
    low, high = (float(needed[round(quantile * (len(needed) - 1))]) for quantile in QUANTILES)
    return law.solve_n(auc) * cohort_factor, low, high
