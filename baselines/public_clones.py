"""`PublicClones`: the classifier of Emerson et al. 2017 (Nature Genetics 49:659), which reads clones of many donors.

Letters: B repertoires, M associated clones, R residues, T thresholds, F folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deeprc.arrays import Floats, Integers
from deeprc.baselines.beta_binomial import compute_beta_binomial_log_odds, fit_two_beta_binomials
from deeprc.baselines.carrier_counts import CountedUnits, find_associated_clones
from deeprc.baselines.cross_fitted_clone_counts import count_clones_out_of_fold
from deeprc.baselines.inner_folds import assign_inner_folds
from deeprc.baselines.parameters import check_whole_number
from deeprc.baselines.restored import check_clones
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.distinct import count_distinct_clones
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import GENE_FIELDS, Sequences
from deeprc.documents import abbreviate, validate
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier
from deeprc.groups import validate_groups
from deeprc.labels import find_canonical_order

__all__ = ["THRESHOLDS", "PublicClones"]

THRESHOLDS = (0.1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6, 1e-7)
"""The thresholds of the p-value to select from, in falling order."""

_PUBLISHED = 1e-4  # the threshold of Emerson et al., for cohorts that are too small to select one


class PublicClones(BinaryClassifier):
    """A beta-binomial model of the number of label-associated clones that a repertoire carries.

    A clone is a sequence with its V and J gene. It is associated with the label if its p-value by Fisher's exact test,
    one-sided for "carried more often by the second class", is below a threshold. The model of each class is a
    beta-binomial distribution of the number of associated clones among the n different clones of a repertoire. The
    score is the log posterior odds of the classes, so that probabilities need no calibration. If no clone is
    associated, all scores are the log prior odds.

    The threshold is selected by cross-validation within the training repertoires: it has the lowest cross-entropy for
    repertoires that had no part in the selection of clones. Of equally good thresholds, the strictest is taken.

    This differs from the published method in one respect. Training repertoires, above all positive ones, carry more of
    the clones that were selected on them than new repertoires do. So distributions that are fitted to these counts are
    biased. Here they are fitted to cross-fitted counts: for each training repertoire, clones are selected without its
    fold, which finds slightly fewer of them. `cross_fit=False` gives the published method.

    If `fit` gets `groups`, no fold separates repertoires of one donor. The test of a clone then counts a donor's
    repertoires with the same label once. The distributions are those of repertoires. Only clones with at least two
    carriers (donors, or else training repertoires) are considered.

    Parameters
    ----------
    genes
        Whether a clone is a sequence with its genes, compared by name: those of `v_call` and `j_call` that the training
        container has. Otherwise a clone is the sequence alone.
    p_value
        Threshold of the p-value; None selects it.
    thresholds
        Thresholds to select from, (T,); None means eleven from 0.1 to 1e-7.
    n_inner_folds
        Number of folds, F; fewer if a class has fewer repertoires or donors. If a class has a single one, nothing can
        be held out; then the published method is used, with its threshold of 1e-4.
    cross_fit
        Whether the distributions are fitted to cross-fitted counts; see above.

    Attributes
    ----------
    p_value_
        Threshold that was used.
    thresholds_, cross_entropy_
        Thresholds in falling order and the cross-entropy of held-out repertoires for each, (T,) each; `cross_entropy_`
        is (0,) if no threshold was selected.
    distributions_
        Alpha and beta of the first and the second class, (2, 2); (0, 2) if no clone is associated.
    """

    calibrates_itself = True

    def __init__(
        self,
        *,
        genes: bool = True,
        p_value: float | None = None,
        thresholds: Sequence[float] | None = None,
        n_inner_folds: int = 10,
        cross_fit: bool = True,
    ) -> None:
        self.genes = genes
        self.p_value = p_value
        self.thresholds = thresholds
        self.n_inner_folds = n_inner_folds
        self.cross_fit = cross_fit

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        self._validate_thresholds()
        check_whole_number("n_inner_folds", self.n_inner_folds, low=2)

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the clones that the container's repertoires share."""
        fields = X.gene_fields if self.genes else []
        find_shared_clones(X, fields)
        count_distinct_clones(X, fields)

    def associated_clones(self) -> pd.DataFrame:
        """Return the associated clones in rising order of their p-values.

        Returns
        -------
        pandas.DataFrame
            Columns `junction_aa`, `v_call` and `j_call` (if genes are part of a clone), `carriers_positive` and
            `carriers_negative` (numbers of carriers of the second and of the first class: donors if these are known,
            otherwise training repertoires), and `p_value`.
        """
        frame = self._make_clone_set().to_frame()
        frame["carriers_positive"] = self.carriers_[1]
        frame["carriers_negative"] = self.carriers_[0]
        frame["p_value"] = self.p_values_
        return frame

    def fit_uncalibrated(self, X: RepertoireDataset, y: ArrayLike, *, groups: ArrayLike | None = None) -> PublicClones:
        """Learn as `fit` does. No inner fold separates a group; if there are groups, at least two are needed."""
        positive, donors = self._start_fit(X, y), validate_groups(X, groups)
        order = find_canonical_order(X, positive)
        self._learn(X[order], positive[order], None if donors is None else donors[order])
        return self

    def _learn(self, X: RepertoireDataset, positive: NDArray[np.bool_], groups: Integers | None) -> None:
        """Learn from the repertoires in canonical order."""
        thresholds = self._validate_thresholds()
        folds = assign_inner_folds(X, positive, self.n_inner_folds, groups)
        self.fields_ = X.gene_fields if self.genes else []
        n = count_distinct_clones(X, self.fields_)
        self.prior_ = _compute_prior_log_odds(positive)
        cross_fit = self.cross_fit and bool(folds.any())
        if self.p_value is None and not folds.any():
            thresholds = np.array([_PUBLISHED])
        units = CountedUnits.of(X, positive, groups)
        counts = count_clones_out_of_fold(
            find_shared_clones(X, self.fields_), X, units, folds, thresholds, cross_fit=cross_fit
        )
        self.thresholds_, self.cross_entropy_ = thresholds, np.zeros(0)
        best = 0
        if len(thresholds) > 1:
            self.cross_entropy_ = np.array([self._compute_cross_entropy(k, n, positive, folds) for k in counts])
            best = int(np.flatnonzero(self.cross_entropy_ == self.cross_entropy_.min())[-1])  # the strictest one
        self.p_value_ = float(thresholds[best])
        self._store_associated_clones(X, units)
        self.distributions_ = fit_two_beta_binomials(counts[best, :, -1], n, positive)
        if len(self.p_values_) == 0:
            self.distributions_ = np.zeros((0, 2))

    def _validate_thresholds(self) -> Floats:
        """Return the thresholds to select from, in falling order."""
        if self.p_value is not None:
            values = [self.p_value]
        else:
            values = list(THRESHOLDS if self.thresholds is None else self.thresholds)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value <= 1:
                raise InputError(f"p_value, thresholds: expected numbers above 0, up to 1, found {value!r}")
        if not values:
            raise InputError("thresholds: expected at least one, found none")
        return np.array(sorted(set(values), reverse=True), np.float64)

    def _compute_cross_entropy(self, k: Integers, n: Integers, positive: NDArray[np.bool_], folds: Integers) -> float:
        """Return the mean cross-entropy of held-out repertoires.

        `k` is the number of associated clones that each repertoire carries with each fold held out, (B, F + 1); `n` is
        its number of different clones, (B,).
        """
        total = 0.0
        for fold in range(k.shape[1] - 1):
            held_out = folds == fold
            classes = fit_two_beta_binomials(k[~held_out, fold], n[~held_out], positive[~held_out])
            prior = _compute_prior_log_odds(positive[~held_out])
            scores = prior + compute_beta_binomial_log_odds(classes, k[held_out, fold], n[held_out])
            total += float(np.logaddexp(0, np.where(positive[held_out], -scores, scores)).sum())
        return total / len(positive)

    def _store_associated_clones(self, X: RepertoireDataset, units: CountedUnits) -> None:
        """Keep the clones that are associated with the label in all training repertoires."""
        clones = find_shared_clones(X, self.fields_)
        associated = find_associated_clones(clones, units, self.p_value_)
        chosen = CloneSet(X.take_clones(clones.representative[associated.indices], self.fields_))
        junctions_and_genes = chosen.to_frame().to_numpy(str).T
        order = np.lexsort((*junctions_and_genes[::-1], associated.p_values))  # by p-value, then by junction and genes
        sequences = chosen.take(order).sequences
        self.residues_, self.offsets_ = sequences.residues, sequences.offsets
        names = {field: calls.names().astype(str) for field, calls in sequences.genes.items()}
        self.v_call_, self.j_call_ = (names.get(field, np.zeros(0, "<U1")) for field in GENE_FIELDS)
        n_positive = associated.label_sums
        self.carriers_ = np.stack([associated.n_carriers - n_positive, n_positive])[:, order]
        self.p_values_ = associated.p_values[order]

    def _make_clone_set(self) -> CloneSet:
        names = {"v_call": self.v_call_, "j_call": self.j_call_}
        genes = {field: Categorical.encode(names[field].tolist()) for field in self.fields_}
        return CloneSet(Sequences.counted_once(self.residues_, self.offsets_).with_genes(genes))

    def _score_repertoires(self, X: RepertoireDataset) -> Floats:
        k = np.array([len(clones) for clones in self._make_clone_set().find_in(X)], np.int64)
        return self.prior_ + compute_beta_binomial_log_odds(
            self.distributions_, k, count_distinct_clones(X, self.fields_)
        )

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        super()._restore(arrays, values)
        self.v_call_, self.j_call_ = self.v_call_.astype(str), self.j_call_.astype(str)  # an empty array is text, too
        check_clones(self.residues_, self.offsets_)
        n = len(self.offsets_) - 1
        for field in validate(self.fields_, list[str], "fields"):
            if field not in GENE_FIELDS:
                raise ValueError(f"fields: expected some of {', '.join(GENE_FIELDS)}, found {abbreviate(field)}")
            if (shape := getattr(self, f"{field}_").shape) != (n,):
                raise ValueError(f"{field}: expected the genes of {n:,} clones, found {shape}")
        self.prior_ = validate(self.prior_, float, "prior")
        if self.distributions_.shape not in ((0, 2), (2, 2)) or not (self.distributions_ > 0).all():
            raise ValueError("distributions: expected alpha and beta of two classes, above 0")


def _compute_prior_log_odds(positive: NDArray[np.bool_]) -> float:
    """Return the prior log-odds of the positive class, with one more repertoire of each class than there are."""
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    return float(np.log((n_positive + 1) / (n_negative + 1)))
