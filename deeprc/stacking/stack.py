"""`Stack`: DeepRC and other methods, weighted by how much each improves the prediction of held-out repertoires.

Letters: B repertoires, M members.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from deeprc.arrays import Floats
from deeprc.baselines.inner_folds import assign_grouped_folds
from deeprc.baselines.parameters import check_whole_number
from deeprc.benchmarking.cross_fitting import compute_fold_aucs, folds_have_both_classes
from deeprc.benchmarking.methods import Method, make_methods
from deeprc.benchmarking.search import apply_setting
from deeprc.datasets.cache import digest_with_genes
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import KnownRepertoires, identify_repertoires
from deeprc.device import resolve_device
from deeprc.documents import validate
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier, collect_fitted_state
from deeprc.groups import validate_groups
from deeprc.labels import encode_two_classes, find_canonical_order, validate_dataset
from deeprc.progress import track
from deeprc.stacking.combination import Combination, fit_combination
from deeprc.stacking.members import Member, TrainingFolds, fit_member, is_network
from deeprc.stacking.storage import list_allowed_members, restore_members, store_members

__all__ = ["MEMBERS", "Stack"]

MEMBERS = ("deeprc", "logistic", "gapped-logistic", "svm-minmax", "public-clones", "boosted", "v-gene-usage")
"""The methods that a stack consists of, by their names in `deeprc benchmark`."""

_MIN_UNITS = 3  # smallest number of repertoires of a class, and of donors: one to fit, one to stop early, one to score

_logger = logging.getLogger(__name__)


class Stack(BinaryClassifier):
    """A weighted combination of several methods (stacked generalisation: Wolpert 1992; van der Laan et al. 2007).

    The training repertoires are divided into folds, stratified by class. Each method, with each of its settings, is
    fitted without a fold and scores that fold. The setting with the highest AUC is chosen. A logistic regression with
    nonnegative weights combines these scores (`deeprc.stacking.combination`), so the weight of a method depends on how
    much it improves the prediction of held-out repertoires. Then each method is fitted to all repertoires; for DeepRC,
    the networks of all folds predict together. A method that cannot be fitted to the cohort is left out, such as
    `v-gene-usage` without gene names. `deeprc.benchmarking` ensures that no label of a test repertoire is used.

    Parameters
    ----------
    members
        Names of methods, see `deeprc.benchmarking.registry.METHODS`; at least one.
    preset
        The search spaces of the members: `quick`, `paper` or a YAML file; see `deeprc.benchmarking.methods`.
    n_folds
        Number of folds; fewer if a class has fewer different repertoires or fewer donors.
    config, overrides, device
        Configuration of DeepRC, changes of it, and device, see `deeprc.training.estimator.DeepRCClassifier`; without
        `config`, the configuration is that of the preset.
    seed
        Seed of every member that draws random numbers.

    Attributes
    ----------
    classes_
        Labels of the two classes in sorted order, (2,).
    combination_
        Weights of the members, in the order of `member_names_`.
    member_names_
        Names of the members that can be fitted to the cohort, (M,) text.
    member_aucs_
        AUC of each member's cross-fitted scores, (M,), the mean over the folds. It is slightly too high, because the
        setting was chosen on the same folds.
    auc_
        AUC of the whole stack, the mean over the folds: each fold is scored by members that were fitted without it, and
        weights that were fitted to the cross-fitted scores of the others. It is slightly too high, because settings and
        the penalty of the weights were chosen on the same folds.
    importance_
        Share of the variance of the stack's cross-fitted log-odds that comes from each member, (M,); the sum is 1.
    target_, positive_class_
        Name of the target and of its positive class, if `deeprc.stacking.cohort.fit_stack` has fitted the stack;
        otherwise "".
    training_identities_
        Identity of each different training repertoire, text, see `identify_repertoires`; empty for the file of an
        earlier version.
    """

    calibrates_itself = True

    combination_: Combination
    member_names_: NDArray[np.str_]
    member_aucs_: Floats
    auc_: float
    importance_: Floats
    target_: str
    positive_class_: str
    training_identities_: NDArray[np.str_]

    def __init__(
        self,
        *,
        members: Sequence[str] = MEMBERS,
        preset: str = "quick",
        n_folds: int = 5,
        config: str | None = None,
        overrides: dict[str, Any] | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.members = members
        self.preset = preset
        self.n_folds = n_folds
        self.config = config
        self.overrides = overrides
        self.device = device
        self.seed = seed

    def check_parameters(self) -> None:
        """Raise InputError if a member is unknown or given twice, or another parameter cannot be used."""
        names = self.members
        expected = f"members: expected different ones of {', '.join(list_allowed_members())}"
        if isinstance(names, str) or not isinstance(names, Sequence) or not names:
            raise InputError(f"{expected}, found {names!r}")
        for name in names:
            if name not in list_allowed_members() or list(names).count(name) > 1:
                raise InputError(f"{expected}, found {name!r}")
        super().check_parameters()
        check_whole_number("n_folds", self.n_folds, low=2)
        methods = self._make_methods()
        if any(is_network(method.estimator) for method in methods):
            resolve_device(self.device)
        for method in methods:
            method.estimator.check_parameters()

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the results that the members need and that do not depend on labels."""
        for method in self._select_usable_methods(X):
            method.estimator.prepare(X)

    def fit_uncalibrated(self, X: RepertoireDataset, y: ArrayLike, *, groups: ArrayLike | None = None) -> Stack:
        """Learn from the repertoires X, (B,), with labels y, (B,), of two classes, at least three of each.

        Repertoires with equal `groups`, (B,), are of one donor: no fold separates them. The order of X does not matter.

        Raises
        ------
        TypeError
            If X is no `RepertoireDataset`.
        ValueError
            If X and y differ in length, y does not have two classes or has a missing label, a class has too few
            repertoires or donors, or a parameter is out of range.
        """
        self.check_parameters()
        classes, positive = encode_two_classes(X, y)
        donors = validate_groups(X, groups)
        order = find_canonical_order(X, positive)
        X, positive = X[order], positive[order]
        donors = None if donors is None else donors[order]
        training = TrainingFolds(
            X, positive.astype(np.int64), self._assign_folds(X, positive, donors), donors, self.seed
        )
        members, cross_fitted_scores = [], []
        methods = self._select_usable_methods(X)
        for method in track(methods, "members of the stack", len(methods)):
            member, scores = fit_member(method, training)
            members.append(member)
            cross_fitted_scores.append(scores)
        self._members = members
        self.classes_, self.calibration_ = classes, np.array([1.0, 0.0])
        self.target_, self.positive_class_ = "", ""
        self.training_identities_ = np.array(sorted(set(identify_repertoires(X))))
        self._fit_combination(np.stack(cross_fitted_scores, axis=1), training)
        return self

    def assign_folds(self, X: RepertoireDataset, y: ArrayLike, *, groups: ArrayLike | None = None) -> NDArray[np.int64]:
        """Return the index of the fold into which `fit`, with the same arguments, puts each repertoire, (B,)."""
        _, positive = encode_two_classes(X, y)
        donors = validate_groups(X, groups)
        order = find_canonical_order(X, positive)
        fold_of = np.empty(len(X), np.int64)
        fold_of[order] = self._assign_folds(X[order], positive[order], None if donors is None else donors[order])
        return fold_of

    def member_scores(self, X: RepertoireDataset) -> pd.DataFrame:
        """Return the score of each repertoire by each member: a row per repertoire, a column per member."""
        check_is_fitted(self)
        members = track(self._members, "scores of the stack's members", len(self._members))
        scores = {member.name: member.scores(X) for member in members}
        return pd.DataFrame(scores, index=pd.Index(X.repertoire_ids, name="repertoire_id"))

    def contributions(self, X: RepertoireDataset) -> pd.DataFrame:
        """Return the part of the log-odds of each repertoire that each member adds.

        There is a row per repertoire and a column per member. The log-odds are the sum of the contributions and
        `combination_.intercept`.
        """
        scores = self.member_scores(X)
        return pd.DataFrame(self.combination_.contributions(scores.to_numpy()), scores.index, scores.columns)

    def is_known(self, X: RepertoireDataset) -> NDArray[np.bool_]:
        """Return whether each repertoire was among the training repertoires, (B,), by its content; genes may differ."""
        check_is_fitted(self)
        known = KnownRepertoires(self.training_identities_.tolist())
        return np.array(
            [known.find(identity, with_other_genes=True) is not None for identity in identify_repertoires(X)]
        )

    def member_table(self) -> pd.DataFrame:
        """Return a row per member: its cross-fitted AUC, its weight, and its share of the stack's variance."""
        check_is_fitted(self)
        table = {"auc": self.member_aucs_, "weight": self.combination_.weights, "share": self.importance_}
        return pd.DataFrame(table, index=pd.Index(self.member_names_, name="member"))

    def score_with_members(self, X: RepertoireDataset) -> tuple[Floats, list[dict[str, Any]]]:
        """Return the score of each repertoire, (B,), and a row per member.

        A row has `member`, the columns of `member_table`, its `contributions`, B numbers, and the `intercept`.
        """
        added, intercept = self.contributions(X), self.combination_.intercept
        rows = [
            {str(name): value for name, value in row.items()}
            for row in self.member_table().reset_index().to_dict("records")
        ]
        members = [{**row, "contributions": added[row["member"]].tolist(), "intercept": intercept} for row in rows]
        return np.asarray(intercept + added.to_numpy().sum(axis=1)), members

    def shares(self) -> list[tuple[Member, float]]:
        """Return each fitted member with its share of the stack's variance."""
        check_is_fitted(self)
        return list(zip(self._members, self.importance_.tolist(), strict=True))

    def _make_methods(self) -> list[Method]:
        """Return the members, unfitted, with the parameters of the stack."""
        methods = []
        for method in make_methods(self.members, preset=self.preset):
            presets = method.estimator.get_params(deep=False)
            changes: dict[str, Any] = {"seed": self.seed} if "seed" in presets else {}
            if is_network(method.estimator):
                changes["device"] = self.device
                changes["overrides"] = {**(presets["overrides"] or {}), **(self.overrides or {})}
                if self.config is not None:
                    changes["config"] = self.config
            methods.append(replace(method, estimator=apply_setting(method.estimator, changes)))
        return methods

    def _select_usable_methods(self, X: RepertoireDataset) -> list[Method]:
        """Return the members that can be fitted to a cohort."""
        methods = self._make_methods()
        reasons = [_explain_unfit_method(method, X) for method in methods]
        for method, reason in zip(methods, reasons, strict=True):
            if reason:
                _logger.info("the stack leaves out %s: %s", method.name, reason)
        usable = [method for method, reason in zip(methods, reasons, strict=True) if not reason]
        if not usable:
            raise InputError(f"{X.container.path}: none of the members {', '.join(self.members)} can be fitted to it")
        return usable

    def _assign_folds(
        self, X: RepertoireDataset, positive: NDArray[np.bool_], donors: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Return the index of the fold of each repertoire, (B,): up to `n_folds` folds, each with both classes."""
        label, digests = positive.astype(np.int64), digest_with_genes(X)
        different = [len({digest for digest, y in zip(digests, label, strict=True) if y == c}) for c in (0, 1)]
        if min(different) < _MIN_UNITS:
            raise ValueError(
                f"y: expected at least {_MIN_UNITS} different repertoires of each class, found {different}"
            )
        if donors is not None and len(np.unique(donors)) < _MIN_UNITS:
            raise ValueError(f"groups: expected at least {_MIN_UNITS} donors, found {len(np.unique(donors))}")
        for n_folds in range(self.n_folds, 1, -1):
            fold_of = assign_grouped_folds(digests, label, n_folds, groups=donors)
            if fold_of.any() and folds_have_both_classes(fold_of, label):
                return fold_of
        raise ValueError("groups: expected donors that can be divided into folds with both classes each")

    def _fit_combination(self, scores: Floats, training: TrainingFolds) -> None:
        """Learn the weights of the members from their cross-fitted scores, (B, M)."""
        slopes = np.array([float(member.scores_are_log_odds) for member in self._members])
        fitted = fit_combination(scores, training.y == 1, training.fold_of, slopes, training.donors)
        self.combination_ = fitted.combination
        self.member_names_ = np.array([member.name for member in self._members])
        self.member_aucs_ = compute_fold_aucs(training.y, scores.T, training.fold_of)
        self.auc_ = compute_fold_aucs(training.y, fitted.log_odds[None], training.fold_of).item()
        self.importance_ = self.combination_.compute_variance_shares(scores)

    def _score_repertoires(self, X: RepertoireDataset) -> Floats:
        return self.combination_.log_odds(self.member_scores(validate_dataset(X)).to_numpy())

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        attributes = {name: value for name, value in vars(self).items() if name != "combination_"}
        arrays, values = collect_fitted_state(attributes)
        member_arrays, stored_members = store_members(self._members)
        combination = {f"combination.{name}": np.atleast_1d(value) for name, value in asdict(self.combination_).items()}
        return {**arrays, **member_arrays, **combination}, {**values, "members_": {"value": stored_members}}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        """Set the fitted attributes from those of a file; raise ValueError if they do not fit together."""
        stack_arrays = {name: array for name, array in arrays.items() if "." not in name}
        self.positive_class_, self.training_identities_ = "", np.array([], dtype=str)  # files of earlier versions
        super()._restore(stack_arrays, {name: value for name, value in values.items() if name != "members_"})
        for name in ("target_", "positive_class_"):
            validate(getattr(self, name, None), str, name)
        self._members = restore_members(arrays, values["members_"]["value"])
        centres, scales, weights, intercept = (arrays[f"combination.{field.name}"] for field in fields(Combination))
        self.combination_ = Combination(centres, scales, weights, intercept.item())
        self._check_restored()

    def _check_restored(self) -> None:
        """Raise ValueError if the fitted attributes from a file do not fit together."""
        combination, shape = self.combination_, (len(self._members),)
        weights = (combination.centres, combination.scales, combination.weights)
        per_member = (*weights, self.member_names_, self.member_aucs_, self.importance_)
        if any(array.shape != shape for array in per_member):
            raise ValueError(f"combination: expected weights of {len(self._members)} members")
        measured = (self.member_aucs_, self.importance_, self.calibration_)
        finite = (combination.centres, combination.weights, combination.intercept, *measured)
        is_in_range = (combination.scales > 0).all() and (combination.weights >= 0).all()
        if not all(np.isfinite(array).all() for array in finite) or not is_in_range:
            raise ValueError("combination: expected finite centres, scales above 0 and weights of at least 0")
        if self.classes_.shape != (2,) or self.calibration_.shape != (2,):
            raise ValueError("classes: expected two")
        if self.member_names_.tolist() != [member.name for member in self._members]:
            raise ValueError(f"members: expected {self.member_names_.tolist()}")


def _explain_unfit_method(method: Method, X: RepertoireDataset) -> str:
    """Return the reason why a method cannot be fitted to a cohort, or ""."""
    try:
        method.estimator.check_cohort(X)
    except InputError as error:
        return str(error)
    return ""
