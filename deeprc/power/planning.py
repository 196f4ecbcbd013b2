"""Estimate what a planned study may find, by the rule of the search for motifs and by simulation.

The repertoires of the positive class have a motif in a share of their sequences, the witness rate, and the background
has it by chance. Sequences have independent residues, and all positive repertoires carry the signal. So real studies
find less: sequences of one donor are alike, signals vary, and some positive donors have none.

Letters: n sequences of a repertoire.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from deeprc.benchmarking.cohort_digest import digest_cohort
from deeprc.benchmarking.execution import JobProgress
from deeprc.benchmarking.jobs import Outcome
from deeprc.benchmarking.labelled_folds import LabelledFolds
from deeprc.benchmarking.methods import Method, choose_methods, set_seed
from deeprc.benchmarking.nested_plan import NestedPlan
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.search import apply_setting
from deeprc.benchmarking.store import POWER, ResultStore
from deeprc.datasets.simulation import Cohort, IndependentBackground, Motif, MotifSignal, SimulatedDataset, Sizes
from deeprc.datasets.simulation.cohort_settings import MAX_REPERTOIRES, MAX_SEQUENCES
from deeprc.documents import abbreviate
from deeprc.errors import InputError
from deeprc.evaluation.auc_intervals import compute_fold_aucs_interval
from deeprc.jobs import check_scheduler
from deeprc.power.subsampling import Fit, make_header, run_fits
from deeprc.training.motif_start import MIN_DONORS
from deeprc.training.search_outputs import MIN_MEMBERS

__all__ = ["PlannedStudy", "SearchRule", "SimulatedStudy", "simulate_study"]

_MIN_CLEAR = 5.3  # smallest test statistic of a clear motif, in standard errors: rare-signals.md
_MOTIF = "LDRNTV"
_MAX_LENGTH = len(_MOTIF)
_MIN_DEPTH = 1_000
_MIN_RATE = 1e-12
_MAX_COHORTS = 1_000
_MAX_SEQUENCES = 200_000  # of a simulated cohort; larger studies are shrunk, see `PlannedStudy.shrink`
_ROUNDING = 1e-9
_SHORT_TRAINING = {"overrides.n_updates": 500, "overrides.evaluate_every": 50, "overrides.n_sequences": 1000}
_TARGET = "status=positive"
_SEARCH_NEEDS = "the search for motifs needs"
_NO_LIMIT = (
    "This rule is about clear motifs, and no limit of the AUC: motifs that only the validation repertoires confirm, "
    "branches and other methods may still predict the label. A measured AUC says more than the rule"
)


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """A planned study.

    Attributes
    ----------
    n_repertoires, depth
        Number of repertoires, and number of sequences in each.
    witness_rate
        Share of the sequences of a positive repertoire that carry the signal.
    motif_length
        The number of residues of the motif: 2 to 6.
    positive_share
        The share of positive repertoires.
    n_folds
        The number of folds of the cross-validation; all but two are for training.

    Raises
    ------
    InputError
        If a value is out of range.
    """

    n_repertoires: int
    depth: int
    witness_rate: float
    motif_length: int = 3
    positive_share: float = 0.5
    n_folds: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.positive_share < 1:
            raise InputError(f"`positive_share={self.positive_share:g}`: expected more than 0 and less than 1")
        if self.n_repertoires > MAX_REPERTOIRES:
            found = abbreviate(self.n_repertoires)
            raise InputError(f"`n_repertoires={found}`: expected at most {MAX_REPERTOIRES:,}")
        if self.n_folds < 3:
            raise InputError(f"`n_folds={self.n_folds}`: expected at least 3")
        smallest = self.n_repertoires * min(self.positive_share, 1 - self.positive_share)
        if smallest + _ROUNDING < self.n_folds:
            raise InputError(
                f"`n_repertoires={self.n_repertoires}`: expected at least {self.n_folds} of each class, one per fold"
            )
        if not 1 <= self.depth <= MAX_SEQUENCES:
            raise InputError(f"`depth={abbreviate(self.depth)}`: expected 1 to {MAX_SEQUENCES:,}")
        if not _MIN_RATE <= self.witness_rate <= 1:
            raise InputError(f"`witness_rate={self.witness_rate:g}`: expected {_MIN_RATE:g} to 1")
        if not 2 <= self.motif_length <= _MAX_LENGTH:
            raise InputError(f"`motif_length={self.motif_length}`: expected 2 to {_MAX_LENGTH}")

    @cached_property
    def background_rate(self) -> float:
        """Expected number of occurrences of the motif in a sequence by chance."""
        background = IndependentBackground()
        total = sum(background.weights.values())
        shares = [background.weights[residue] / total for residue in self.motif]
        return float((background.mean_length - self.motif_length + 1) * math.prod(shares))

    @property
    def motif(self) -> str:
        """The motif that is simulated: residues that are neither frequent nor rare."""
        return _MOTIF[: self.motif_length]

    def to_cohort(self, seed: int) -> Cohort:
        """Return a cohort to simulate."""
        signal = MotifSignal((Motif(self.motif),), witness_rate=self.witness_rate)
        return Cohort(
            self.n_repertoires,
            Sizes(self.depth),
            signals=(signal,),
            seed=seed,
            positive_share=self.positive_share,
            name=f"planned-{seed}",
        )

    def shrink(self, max_sequences: int) -> PlannedStudy:
        """Return a study with fewer sequences whose motif has the same correlation with the label.

        Parameters
        ----------
        max_sequences
            Largest number of sequences of all repertoires together; the depth stays at least 1,000.
        """
        depth = max(_MIN_DEPTH, max_sequences // self.n_repertoires)
        if depth >= self.depth:
            return self
        # the correlation is the same if rate^2 * depth / (background + share * rate) is: a quadratic equation
        share, background = self.positive_share, self.background_rate
        ratio = self.witness_rate**2 * self.depth / (background + share * self.witness_rate)
        rate = (ratio * share + math.sqrt((ratio * share) ** 2 + 4 * depth * ratio * background)) / (2 * depth)
        return replace(self, depth=depth, witness_rate=min(rate, 1.0))


@dataclass(frozen=True)
class SearchRule:
    """The rule of the search for motifs, without a simulation: a motif is clear if its correlation is high enough.

    The correlation is that between the label and the share of sequences with the motif, if repertoires differ only by
    chance and by the signal. It is high enough if Student's t test of it is as significant as 5.3 standard errors of a
    normal distribution; with n training repertoires, this is about 5 / √n. `study` is the planned study.
    """

    study: PlannedStudy

    @property
    def n_training(self) -> float:
        """Number of training repertoires in each fold of the cross-validation."""
        return self.study.n_repertoires * (self.study.n_folds - 2) / self.study.n_folds

    @property
    def _smaller_share(self) -> float:
        """Share of the repertoires that are of the smaller class."""
        return min(self.study.positive_share, 1 - self.study.positive_share)

    @property
    def _n_of_smaller_class(self) -> float:
        """Number of training repertoires of the smaller class in each fold."""
        return self.n_training * self._smaller_share

    @property
    def correlation(self) -> float:
        """Expected correlation of the motif's frequency with the label."""
        return _compute_correlation(self.study)

    @property
    def needed_correlation(self) -> float:
        """Smallest correlation with which a motif is clear."""
        return _compute_needed_correlation(self.n_training)

    @property
    def is_clear(self) -> bool:
        """Whether the search finds the motif."""
        enough = self.n_training >= MIN_DONORS and self._n_of_smaller_class >= MIN_MEMBERS - _ROUNDING
        return enough and self.correlation >= self.needed_correlation

    @property
    def min_repertoires(self) -> int:
        """Smallest number of repertoires with which the motif is clear, with the study's depth and witness rate."""
        lowest = max(MIN_DONORS, math.ceil(MIN_MEMBERS / self._smaller_share - _ROUNDING))
        n_training = _find_smallest(lowest, lambda n: _compute_needed_correlation(n) <= self.correlation)
        return math.ceil(n_training * self.study.n_folds / (self.study.n_folds - 2) - _ROUNDING)

    @property
    def min_witness_rate(self) -> float:
        """Smallest witness rate with which the motif is clear with the study's number of repertoires; else NaN."""
        if not SearchRule(replace(self.study, witness_rate=1.0)).is_clear:
            return float("nan")
        low, high = _MIN_RATE, 1.0
        for _ in range(60):
            middle = math.sqrt(low * high)
            if SearchRule(replace(self.study, witness_rate=middle)).is_clear:
                high = middle
            else:
                low = middle
        return high

    def to_lines(self) -> list[str]:
        """Return the rule as a few lines of text."""
        study, needs = self.study, _SEARCH_NEEDS
        lines = [
            f"A motif of {study.motif_length} residues in {study.witness_rate:.3g} of the sequences, and in "
            f"{study.background_rate:.2g} by chance: the correlation of its frequency with the label is "
            f"{self.correlation:.2f}",
            self._describe_verdict(),
            f"At this depth and witness rate, {needs} at least {self.min_repertoires:,} repertoires",
        ]
        if not math.isnan(rate := self.min_witness_rate):
            lines.append(f"With {study.n_repertoires:,} repertoires, {needs} a witness rate of at least {rate:.2g}")
        if not self.is_clear:
            lines.append(_NO_LIMIT)
        return lines

    def _describe_verdict(self) -> str:
        """Return a sentence that says whether the search finds the motif, and why."""
        n = self.n_training
        if n < MIN_DONORS:
            return f"{n:.0f} training repertoires are too few: {_SEARCH_NEEDS} {MIN_DONORS}"
        if self._n_of_smaller_class < MIN_MEMBERS - _ROUNDING:
            return (
                f"{self._n_of_smaller_class:.1f} training repertoires of the smaller class are too few: "
                f"{_SEARCH_NEEDS} {MIN_MEMBERS}"
            )
        return (
            f"With {n:.0f} training repertoires, {_SEARCH_NEEDS} a correlation of at least "
            f"{self.needed_correlation:.2f}: it {'should find' if self.is_clear else 'may miss'} this motif"
        )


def _find_smallest(lowest: int, is_enough: Callable[[int], bool]) -> int:
    """Return the smallest number from `lowest` on that is enough; every number above it is enough, too."""
    too_few, enough = lowest - 1, lowest
    while not is_enough(enough):
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if is_enough(middle):
            enough = middle
        else:
            too_few = middle
    return enough


def _compute_needed_correlation(n_training: float) -> float:
    """Return the smallest correlation with the label with which a motif is clear."""
    if n_training <= 2:
        return 1.0
    t = stats.t.isf(stats.norm.sf(_MIN_CLEAR), float(n_training - 2))
    return float(t / math.sqrt(n_training - 2 + t**2))


def _compute_correlation(study: PlannedStudy) -> float:
    """Return the correlation of a motif's frequency with the label if its counts have a Poisson distribution."""
    share, rate = study.positive_share, study.witness_rate
    between = share * (1 - share) * rate**2
    sampling_variance = (study.background_rate + share * rate) / study.depth
    return float((between / (between + sampling_variance)) ** 0.5)


@dataclass(frozen=True)
class SimulatedStudy:
    """The results of the simulated cohorts of a planned study.

    Attributes
    ----------
    study, simulated
        Planned study, and study that was simulated instead: the same one, or one with fewer sequences.
    table
        One row for each method and simulated cohort: `method`, `cohort`, `auc` (the mean of the test folds), `auc_low`
        and `auc_high` (the 95% interval that such a study would report).
    """

    study: PlannedStudy
    simulated: PlannedStudy
    table: pd.DataFrame

    def to_lines(self) -> list[str]:
        """Return the result as a few lines of text."""
        simulated, n = self.simulated, self.table["cohort"].nunique()
        size = f"{simulated.n_repertoires:,} repertoires of {simulated.depth:,} sequences"
        lines = [f"Simulated: {n} cohort{'s' if n > 1 else ''} of {size}, witness rate {simulated.witness_rate:.3g}"]
        if simulated != self.study:
            lines.append("(fewer and richer sequences, so that the motif has the same correlation in less time)")
        for method, rows in self.table.groupby("method", sort=False):
            spread = f", {rows['auc'].min():.3f} to {rows['auc'].max():.3f}" if n > 1 else ""
            width = (rows["auc_high"] - rows["auc_low"]).mean()
            lines.append(
                f"  {method}: expect an AUC of {rows['auc'].mean():.3f}{spread}; its 95% interval is {width:.2f} wide"
            )
        return lines


def simulate_study(
    study: PlannedStudy,
    *,
    methods: Sequence[str] = ("gapped-logistic", "known-recipe"),
    n_cohorts: int = 2,
    output: str | os.PathLike[str] | None = None,
    options: BenchmarkOptions | None = None,
    resume: bool = False,
    progress: JobProgress | None = None,
) -> SimulatedStudy:
    """Cross-validate methods on simulated cohorts like those of a planned study, and return their AUCs.

    Parameters
    ----------
    study
        Planned study.
    methods
        Names of methods, as in `deeprc.benchmark`. `known-recipe` knows what was simulated: no method can be better.
    n_cohorts
        Number of simulated cohorts.
    output, resume, progress
        As in `deeprc.power.measure_learning_curve`.
    options
        Options of the seed and the workers; the folds are those of the study.

    Raises
    ------
    InputError
        If a parameter is out of range, or if a fit fails.
    """
    options = BenchmarkOptions() if options is None else options
    if options.scheduler is not None:
        check_scheduler(options.scheduler)
    if not 1 <= n_cohorts <= _MAX_COHORTS:
        raise InputError(f"`n_cohorts={abbreviate(n_cohorts)}`: expected 1 to {_MAX_COHORTS:,}")
    simulated = study.shrink(_MAX_SEQUENCES)
    benchmark_options = replace(options, folds=study.n_folds, group_by=None)
    cohorts = [simulated.to_cohort(options.seed + index) for index in range(n_cohorts)]
    plans = [_make_plan(cohort, methods, benchmark_options) for cohort in cohorts]
    header = make_header(plans[0], benchmark_options, _TARGET)  # so a later call may have more cohorts
    store = ResultStore(None if output is None else Path(output), header, resume=resume, kind=POWER)
    fits = [Fit(plan, method, fold) for plan in plans for method in plan.methods for fold in range(plan.n_folds)]
    outcomes = run_fits(fits, store, options.workers, progress)
    return SimulatedStudy(study, simulated, _tabulate_aucs(plans, fits, outcomes))


def _tabulate_aucs(plans: Sequence[NestedPlan], fits: Sequence[Fit], outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return the table of a `SimulatedStudy` from the outcome of each fit; each plan is of one cohort."""
    rows = []
    for cohort_number, plan in enumerate(plans, start=1):
        for method in plan.methods:
            tests = [
                outcome["test"]
                for fit, outcome in zip(fits, outcomes, strict=True)
                if fit.plan is plan and fit.method is method
            ]
            labels = [np.asarray(test["label"], np.int64) for test in tests]
            scores = [np.asarray(test["score"], np.float64) for test in tests]
            interval = compute_fold_aucs_interval(labels, scores)
            rows.append((method.label, cohort_number, float(interval.aucs.mean()), interval.low, interval.high))
    return pd.DataFrame(rows, columns=["method", "cohort", "auc", "auc_low", "auc_high"])


def _make_plan(cohort: Cohort, methods: Sequence[str], options: BenchmarkOptions) -> NestedPlan:
    """Return the plan of a cross-validation of methods on a simulated cohort."""
    dataset = SimulatedDataset(cohort)
    folds = LabelledFolds.assign(dataset, _TARGET, options)
    preset = os.fspath(options.preset or "quick")
    chosen: list[Method] = choose_methods(methods, preset=preset, dataset=dataset, task=folds.task)[0]
    seeded = tuple(_shorten_training(set_seed(method, options.seed)) for method in chosen)
    return NestedPlan(
        dataset=dataset,
        folds=folds,
        seed=options.seed,
        content=digest_cohort(dataset),
        methods=seeded,
        refits=False,
    )


def _shorten_training(method: Method) -> Method:
    """Return a method; a network gets a short training, because its start motifs give it most of its AUC."""
    if method.name != "deeprc":
        return method
    return replace(method, estimator=apply_setting(method.estimator, _SHORT_TRAINING))
