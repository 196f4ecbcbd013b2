"""Fit of the branch `composition`: penalised linear models, whose settings are chosen on held-out repertoires.

For each output, a penalised linear model is fitted to the features of the repertoires. A setting is the kind of the
models (which features, which penalty; see `composition_models`) with the weight of the losses, C. The network learns a
gain for each branch, so settings are compared by the cross entropy of held-out repertoires after the best slope and
intercept for their scores. This slope is part of the weights.

In small cohorts, several kinds of models predict nearly as well, and the best one is in part the best by chance. So the
branch is a weighted mean of the best model and of others that are nearly as good, see `_average_settings`.

Letters: B repertoires, n of them with a label; T outputs, V values of C.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from deeprc.arrays import Floats
from deeprc.baselines.inner_folds import assign_grouped_folds
from deeprc.branches.cohort import FittedBranch, TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_features import CompositionFeatures
from deeprc.branches.composition_models import FittedFunction, Models, list_models
from deeprc.branches.donors import count_standard_errors, count_units
from deeprc.branches.frequencies import has_families
from deeprc.branches.linear_function import KIND_OF_MODEL, Kind, LinearFunction
from deeprc.branches.loss_weights import weigh_by_losses
from deeprc.branches.slopes import compute_baseline_losses, fit_slopes
from deeprc.compilation import open_threads
from deeprc.datasets.cache import digest_with_genes
from deeprc.progress import track
from deeprc.threads import limit_blas_threads

__all__ = ["fit_composition"]

_N_FOLDS = 10
_LARGE_COHORT, _N_FOLDS_IF_LARGE = 2000, 5  # more than 2,000 repertoires have 5 folds: a third of the time
_SMALL_COHORT, _N_REPEATS_IF_SMALL = 200, 3  # at most 200 repertoires are divided into folds 3 times
_MIN_UNITS = 16  # see `count_units`; with fewer units, one in four cohorts without a signal would get a branch
_MIN_STANDARD_ERRORS, _EXTRA_FOR_FEW_UNITS = 1.5, 10.0
"""The mean decrease of the loss is clear if it exceeds (1.5 + 10 / n_units) standard errors."""

_FEW_UNITS, _MIN_DOUBTFUL_STANDARD_ERRORS = 50, 1.0
"""With fewer than 50 units, a decrease of one standard error is enough for a doubtful branch (`Branch.is_doubtful`).

In so few repertoires the search finds strong motifs only; otherwise the network would learn from random weights alone.
"""

_LOSS_PER_WEIGHT = 3.0  # see `weigh_by_losses`; chosen in docs/experiments.md, 2026-11-30

_EXTRA_EVIDENCE = 0.5
"""Models of expanded clones, and of clonal families, need so many more standard errors: each is one more choice."""


def fit_composition(cohort: TrainingCohort, *, with_counts: bool = True) -> FittedBranch | None:
    """Fit the branch `composition`; return None if it predicts no output.

    If the evidence is clear for some outputs, it has no weights for others. If it is clear for none, the branch is
    doubtful.

    Parameters
    ----------
    cohort
        Training repertoires.
    with_counts
        Whether features of the counts may be used.
    """
    fits = []
    for of_families in (False, True) if has_families(cohort.dataset) else (False,):
        fit = _fit_branch(cohort, CompositionFeatures(cohort.dataset, of_families=of_families, with_counts=with_counts))
        if fit is not None:
            fits.append(fit)
    return max(fits, key=lambda fit: (not fit.branch.is_doubtful, fit.loss_decreases.sum()), default=None)


def _fit_branch(cohort: TrainingCohort, features: CompositionFeatures) -> FittedBranch | None:
    """Return the branch that is learned from these features; None if it predicts no output."""
    n_outputs = sum(task.n_outputs for task in cohort.tasks)
    models = enumerate(_fit_models(features, cohort))
    fitted = [(output, model) for output, model in models if model is not None]
    if not fitted:
        return None
    clear = [(output, model) for output, model in fitted if model.is_clear]
    used = clear or fitted
    scores, loss_decreases = np.zeros((len(cohort.dataset), n_outputs)), np.zeros(n_outputs)
    for output, model in used:
        scores[:, output], loss_decreases[output] = model.scores, model.loss_decrease
    return FittedBranch(_make_branch(features, used, n_outputs, is_doubtful=not clear), scores, loss_decreases)


@dataclass(frozen=True)
class _FittedOutput:
    """The model of one output, a mean of models (`_average_settings`) that are fitted to all training repertoires.

    Attributes
    ----------
    function
        Weights of the features.
    kinds
        Kinds of the features.
    scores, loss_decrease
        Cross-fitted scores, (B,), and the decrease of the mean loss by them.
    is_clear
        Whether the decrease is hardly chance.
    """

    function: LinearFunction
    kinds: set[Kind]
    scores: Floats
    loss_decrease: float
    is_clear: bool


def _make_branch(
    features: CompositionFeatures,
    models: Sequence[tuple[int, _FittedOutput]],
    n_outputs: int,
    *,
    is_doubtful: bool = False,
) -> CompositionBranch:
    """Return the branch with the weights of all models; it has only the kinds of features that a model uses."""
    kinds = set().union(*(model.kinds for _, model in models))
    branch = CompositionBranch(
        n_outputs,
        features.genes if kinds - {"kmers", "abundances", "expansion"} else {},
        reads_abundances="abundances" in kinds,
        richness_depth=features.richness_depth if "abundances" in kinds else 0,
        reads_expansion=bool(kinds & {"expansion", "gene_expansion"}),
        reads_residues="residues" in kinds,
        reads_gene_pairs="gene_pairs" in kinds,
        counts_families=features.of_families,
        is_doubtful=is_doubtful,
    )
    if branch.reads_residues:
        branch.expected_residues = features.expected_residues
    for output, model in models:
        branch.set_linear_function(output, model.function, features.centre)
    return branch


def _fit_models(features: CompositionFeatures, cohort: TrainingCohort) -> Iterator[_FittedOutput | None]:
    """Yield the model of each output; None for an output that cannot be predicted."""
    digests = np.array(digest_with_genes(cohort.dataset))
    for known, target, is_number in cohort.list_output_targets():
        groups = None if cohort.groups is None else cohort.groups[known]
        n_repeats = _N_REPEATS_IF_SMALL if len(known) <= _SMALL_COHORT else 1
        n_folds = _N_FOLDS_IF_LARGE if len(known) > _LARGE_COHORT else _N_FOLDS
        strata = _assign_quarters(target) if is_number else target.astype(np.int64)
        folds = [
            assign_grouped_folds(digests[known].tolist(), strata, n_folds, groups=groups, repeat=repeat)
            for repeat in range(n_repeats)
        ]
        yield _fit_output(_OutputData(features, known, folds, groups, is_number), target)


def _assign_quarters(numbers: Floats) -> NDArray[np.int64]:
    """Return the quarter of the distribution, 0 to 3, in which each number is, (n,)."""
    edges = np.quantile(numbers, [0.25, 0.5, 0.75]) if len(numbers) else np.zeros(0)
    return np.asarray(np.searchsorted(edges, numbers), np.int64)


@dataclass(frozen=True)
class _OutputData:
    """The repertoires from which the model of one output learns, and their folds.

    Attributes
    ----------
    features
        Features of all B repertoires.
    known
        Rows of the repertoires with a label, (n,).
    folds
        Fold of each repertoire with a label, (n,), for each repeat.
    groups
        Donor of each repertoire with a label as an index, (n,); None if every repertoire is from a different donor.
    is_number
        Whether a number is predicted.
    """

    features: CompositionFeatures
    known: NDArray[np.int64]
    folds: Sequence[NDArray[np.int64]]
    groups: NDArray[np.int64] | None
    is_number: bool


class _Setting(NamedTuple):
    """Models of one kind with one C, and how well they predict left-out repertoires.

    Attributes
    ----------
    models, C
        The models, and the weight of the losses.
    scores, slope
        Cross-fitted scores of the repertoires with a label, (n,), and their best slope.
    loss_decreases
        Decrease of the loss of each of these repertoires by the scores, (n,).
    """

    models: Models
    C: float
    scores: Floats
    slope: float
    loss_decreases: Floats

    @property
    def kinds(self) -> set[Kind]:
        """Kinds of the features that have weights."""
        return {KIND_OF_MODEL[kind] for kind in self.models.kinds}

    @property
    def of_families(self) -> bool:
        """Whether each clonal family counts once in the models."""
        return self.models.features.of_families

    @property
    def reads_expansion(self) -> bool:
        """Whether the models have features of expanded clones."""
        return not {"expansion", "gene_expansion"}.isdisjoint(self.kinds)


def _fit_output(data: _OutputData, target: Floats) -> _FittedOutput | None:
    """Return the model of an output with these targets, (n,); None if it does not predict held-out repertoires."""
    n_units = count_units(data.groups, None if data.is_number else target, n=len(target))
    if n_units < _MIN_UNITS or len(np.unique(target)) < 2 or any(folds.max() == 0 for folds in data.folds):
        return None
    all_models = list_models(data.features, is_number=data.is_number)
    if not all_models:
        return None
    with limit_blas_threads(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of a lasso: it is compared by its predictions
        settings = [_find_lowest_loss([*_try_settings(data, models, target)]) for models in all_models]
        min_evidence = _MIN_STANDARD_ERRORS + _EXTRA_FOR_FEW_UNITS / n_units
        best, evidence = _choose_setting(settings, data.groups, min_evidence)
        if evidence <= (_MIN_DOUBTFUL_STANDARD_ERRORS if n_units < _FEW_UNITS else min_evidence):
            return None
        averaged = _average_settings(settings, best, target, data.is_number, n_units)
        function, scores = averaged.fit(target, data.known)
    scores[data.known] = averaged.scores
    loss_decrease = float(averaged.loss_decreases.mean())
    return _FittedOutput(function, best.kinds, scores, loss_decrease, is_clear=evidence > min_evidence)


def _try_settings(data: _OutputData, models: Models, target: Floats) -> Iterator[_Setting]:
    """Yield the setting of each C, with cross-fitted scores."""
    for C, scores in zip(models.Cs, _cross_fit_scores(data, models, target), strict=True):
        yield _Setting(models, C, scores, *_fit_slope(scores, target, data.is_number))


def _choose_setting(
    settings: Sequence[_Setting], groups: NDArray[np.int64] | None, min_evidence: float
) -> tuple[_Setting, float]:
    """Return the setting that lowers the mean loss most, and the evidence that it does so, in standard errors.

    Models of expanded clones or clonal families have `_EXTRA_EVIDENCE` less. If the setting reads features of expanded
    clones and the evidence is not clear, it may be the best setting without them.

    Parameters
    ----------
    settings
        Settings to choose from, at least one.
    groups
        Donor of each repertoire, see `_OutputData`.
    min_evidence
        Evidence above which a setting is clear.
    """

    def measure(setting: _Setting) -> tuple[_Setting, float]:
        evidence = count_standard_errors(setting.loss_decreases, groups)
        return setting, evidence - _EXTRA_EVIDENCE * (setting.reads_expansion + setting.of_families)

    best = measure(_find_lowest_loss(settings))
    without_expansion = [setting for setting in settings if not setting.reads_expansion]
    if best[1] > min_evidence or not without_expansion:
        return best
    return max(best, measure(_find_lowest_loss(without_expansion)), key=lambda measured: measured[1])


class _AveragedSettings(NamedTuple):
    """A sum of the models of K settings with weights, and how well it predicts left-out repertoires.

    Attributes
    ----------
    settings
        The settings.
    weights
        Weight of the scores of each setting, (K,).
    loss_decreases
        Decrease of the loss of each repertoire with a label, (n,).
    """

    settings: Sequence[_Setting]
    weights: Floats
    loss_decreases: Floats

    @property
    def scores(self) -> Floats:
        """Weighted sum of the cross-fitted scores, (n,)."""
        return np.asarray(self.weights @ np.stack([setting.scores for setting in self.settings]))

    def fit(self, target: Floats, training: NDArray[np.int64]) -> FittedFunction:
        """Fit all models, and return their weighted sum; see `Models.fit`."""
        fits = [
            setting.models.fit(target, training, setting.C, slope=weight)
            for setting, weight in zip(self.settings, self.weights.tolist(), strict=True)
        ]
        return FittedFunction(reduce(add, (fit.function for fit in fits)), np.asarray(sum(fit.scores for fit in fits)))


def _average_settings(
    settings: Sequence[_Setting], best: _Setting, target: Floats, is_number: bool, n_units: int
) -> _AveragedSettings:
    """Return a mean of the best setting and of others that read no other features, weighted by their losses.

    Parameters
    ----------
    settings
        Settings of different models, among them the best one.
    best
        The setting that was chosen.
    target, is_number
        Label of each repertoire, (n,), and whether it is a number.
    n_units
        Number of donors, or of pairs of donor and class, see `count_units`: the mean loss counts so many times.
    """
    allowed = [setting for setting in settings if setting.kinds <= best.kinds]
    losses = -np.array([setting.loss_decreases.mean() for setting in allowed]) * n_units
    weights = weigh_by_losses(losses, loss_per_weight=_LOSS_PER_WEIGHT)
    slopes = weights * np.array([setting.slope for setting in allowed])
    kept = [allowed[index] for index in np.flatnonzero(slopes)]
    slopes = slopes[slopes > 0]
    slope, loss_decreases = _fit_slope(slopes @ np.stack([setting.scores for setting in kept]), target, is_number)
    return _AveragedSettings(kept, slope * slopes, loss_decreases)


def _find_lowest_loss(settings: Sequence[_Setting]) -> _Setting:
    """Return the first setting that lowers the mean loss most."""
    return max(settings, key=lambda setting: setting.loss_decreases.mean())


def _cross_fit_scores(data: _OutputData, models: Models, target: Floats) -> Floats:
    """Return cross-fitted scores of the repertoires for each C, (V, n), as means over repeats."""
    all_folds = [(folds, fold) for folds in data.folds for fold in range(int(folds.max()) + 1)]  # of all repeats
    total = np.zeros((len(models.Cs), len(target)))
    with open_threads() as threads:
        fold_scores = threads.map(lambda folds_and_fold: _score_fold(data, models, target, *folds_and_fold), all_folds)
        shown = track(fold_scores, "learning from composition", len(all_folds))
        for (folds, fold), scores in zip(all_folds, shown, strict=True):
            total[:, folds == fold] += scores
    return np.asarray(total / len(data.folds))


def _score_fold(data: _OutputData, models: Models, target: Floats, folds: NDArray[np.int64], fold: int) -> Floats:
    """Return the scores of the repertoires of one fold, (V, n of the fold), by models that are fitted without it."""
    is_fitted, is_left_out = folds != fold, folds == fold
    if len(np.unique(target[is_fitted])) < 2:
        return np.zeros((len(models.Cs), int(is_left_out.sum())))
    return models.score_left_out(target[is_fitted], data.known[is_fitted], data.known[is_left_out])


def _fit_slope(scores: Floats, target: Floats, is_number: bool) -> tuple[float, Floats]:
    """Return the best slope of the scores, at least 0, and the decrease of each repertoire's loss, (n,)."""
    fitted = fit_slopes(scores[:, None], target, is_number=is_number)
    slope = float(fitted.slopes[0])
    if slope <= 0:
        return 0.0, np.zeros(len(scores))
    return slope, compute_baseline_losses(target, is_number=is_number) - fitted.losses
