"""`Stack`: DeepRC and other methods predict together, weighted by how well each predicts repertoires it has not seen.

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

from deeprc.baselines.inner_folds import grouped_folds
from deeprc.benchmarking.methods import Method, choose_methods
from deeprc.benchmarking.registry import METHODS
from deeprc.benchmarking.search import with_setting
from deeprc.config import load_config
from deeprc.datasets.cache import repertoire_digests
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import (
    BinaryClassifier,
    canonical_order,
    collect_fitted_state,
    encode_two_classes,
    validate_dataset,
)
from deeprc.evaluation.auc_comparison import midrank_aucs
from deeprc.stacking.combination import Combination, fit_combination
from deeprc.stacking.members import Member, Training, fit_member
from deeprc.stacking.storage import restore_members, store_members
from deeprc.training.fold import validate_groups

__all__ = ["MEMBERS", "Stack"]

MEMBERS = ("deeprc", "logistic", "gapped-logistic", "svm-minmax", "public-clones", "boosted", "v-gene-usage")
"""The methods that a stack consists of, by their names in `deeprc benchmark`."""

_MIN_PER_CLASS = 3
_OWN = "deeprc.stacking.stack:Stack"

Floats = NDArray[np.float64]
_logger = logging.getLogger(__name__)


class Stack(BinaryClassifier):
    """Several methods that predict together (stacked generalisation: Wolpert 1992; van der Laan et al. 2007).

    The training repertoires are divided into folds, stratified by class. Each method, with each of its settings, is
    fitted without a fold and scores that fold. The setting with the highest AUC is taken. A logistic regression with
    weights that are not negative combines these scores (`deeprc.stacking.combination`), so a method counts as much as
    it adds to the others for repertoires that it has not seen. Then each method is fitted to all repertoires; of DeepRC
    the networks of all folds predict together. A method that the cohort cannot serve is left out, such as the usage of
    V genes where there are none. `deeprc.benchmarking` sees to it that no label of a test repertoire is used.

    Parameters
    ----------
    members
        Names of methods, see `deeprc.benchmarking.registry.METHODS`; at least one.
    preset
        The search spaces of the members: `quick`, `paper` or a YAML file; see `deeprc.benchmarking.methods`.
    n_folds
        Number of folds; fewer if a class is in fewer different repertoires, or in fewer groups.
    config, overrides, device
        Of DeepRC, see `deeprc.training.estimator.DeepRCClassifier`.
    seed
        Seed of the members.

    Attributes
    ----------
    classes_
        (2,) labels in sorted order.
    combination_
        The weights of the members, in the order of `member_names_`.
    member_names_
        Names of the members that the cohort can serve, (M,) text.
    member_aucs_
        AUC of each member's cross-fitted scores, (M,).
    auc_
        AUC of the whole stack: each repertoire is scored by members and weights that were fitted without its fold.
    importance_
        How much of the variance of the stack's cross-fitted log-odds comes from each member, (M,); they sum to 1.
    target_
        The name of the target, if `deeprc.stacking.cohort.fit_stack` has fitted the stack; else "".
    """

    uses_groups = True

    combination_: Combination
    member_names_: NDArray[np.str_]
    member_aucs_: Floats
    auc_: float
    importance_: Floats
    target_: str

    def __init__(
        self,
        *,
        members: Sequence[str] = MEMBERS,
        preset: str = "quick",
        n_folds: int = 5,
        config: str = "deeprc",
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
        """Raise InputError if a member is unknown or given twice, or the configuration of DeepRC cannot be used."""
        allowed = [name for name, entry in METHODS.items() if entry.kind != "truth" and entry.estimator != _OWN]
        names = list(self.members) if not isinstance(self.members, str) else [self.members]
        for name in names:
            if name not in allowed or names.count(name) > 1:
                raise InputError(f"members: expected different ones of {', '.join(allowed)}, found {name!r}")
        if not names:
            raise InputError("members: expected at least one, found none")
        load_config(self.config, self.overrides or {})

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache what the members need and what does not depend on labels."""
        for method in self._methods(X):
            if hasattr(method.estimator, "prepare"):
                method.estimator.prepare(X)

    def fit(self, X: RepertoireDataset, y: ArrayLike, *, groups: ArrayLike | None = None) -> Stack:
        """Learn from the repertoires X, (B,), with labels y, (B,), of two classes, at least three of each.

        Repertoires with equal `groups`, (B,), are of one donor: no fold separates them. The order of X does not matter.

        Raises
        ------
        TypeError
            If X is no `RepertoireDataset`.
        ValueError
            If X and y differ in length, y does not have two classes or has a missing label, a class has too few
            repertoires or groups, or a parameter is out of range.
        """
        self.check_parameters()
        classes, positive = encode_two_classes(X, y)
        donors = validate_groups(X, groups)
        order = canonical_order(X, positive.astype(np.int64))
        X, positive = X[order], positive[order]
        donors = None if donors is None else donors[order]
        index = positive.astype(np.int64)
        fold_of = grouped_folds(repertoire_digests(X), index, self.n_folds, groups=donors)
        if np.bincount(index).min() < _MIN_PER_CLASS or not fold_of.any():
            expected = f"expected at least {_MIN_PER_CLASS} different repertoires of each class"
            raise ValueError(f"y: {expected}, in 2 groups or more, found {np.bincount(index).tolist()}")
        training = Training(X, index, fold_of, donors, self.seed)
        self._members, scores = [], []
        for method in self._methods(X):
            member, held_out = fit_member(method, training)
            self._members.append(member)
            scores.append(held_out)
        self.classes_, self.calibration_, self.target_ = classes, np.array([1.0, 0.0]), ""
        self._combine(np.stack(scores, axis=1), positive, fold_of)
        return self

    def _combine(self, scores: Floats, positive: NDArray[np.bool_], fold_of: NDArray[np.int64]) -> None:
        """Learn the weights of the members from their cross-fitted scores, (B, M)."""
        labels = positive.astype(np.int64)
        fitted = fit_combination(scores, positive, fold_of)
        self.combination_ = fitted.combination
        self.member_names_ = np.array([member.name for member in self._members])
        self.member_aucs_ = midrank_aucs(labels, scores.T)
        self.auc_ = float(midrank_aucs(labels, fitted.log_odds[None])[0])
        self.importance_ = self.combination_.variance_shares(scores)
        shown = zip(self.member_names_.tolist(), self.member_aucs_.tolist(), self.importance_.tolist(), strict=True)
        text = ", ".join(f"{name} {auc:.3f} ({share:.0%})" for name, auc, share in shown)
        _logger.info("stack: AUC %.3f; members: AUC (share of the stack): %s", self.auc_, text)

    def _methods(self, X: RepertoireDataset) -> list[Method]:
        """Return the members that a cohort can serve, unfitted."""
        methods = []
        for name in self.members:
            try:
                ((method,), _) = choose_methods([name], preset=self.preset, dataset=X)
            except InputError as error:
                _logger.info("the stack leaves out %s: %s", name, error)
                continue
            if name == "deeprc":
                overrides = {**(method.estimator.overrides or {}), **(self.overrides or {})}
                own = {"config": self.config, "overrides": overrides, "seed": self.seed, "device": self.device}
                method = replace(method, estimator=with_setting(method.estimator, own))
            methods.append(method)
        if not methods:
            raise InputError(f"{X.container.path}: serves none of the members {', '.join(self.members)}")
        return methods

    def member_scores(self, X: RepertoireDataset) -> pd.DataFrame:
        """Return the score of each repertoire by each member: a row per repertoire, a column per member."""
        check_is_fitted(self)
        scores = {member.name: member.scores(X) for member in self._members}
        return pd.DataFrame(scores, index=pd.Index(X.repertoire_ids, name="repertoire_id"))

    def contributions(self, X: RepertoireDataset) -> pd.DataFrame:
        """Return what each member adds to the log-odds of each repertoire: a row per repertoire, a column per member.

        The log-odds are the sum of the contributions and `combination_.intercept`.
        """
        scores = self.member_scores(X)
        return pd.DataFrame(self.combination_.contributions(scores.to_numpy()), scores.index, scores.columns)

    def member_table(self) -> pd.DataFrame:
        """Return a row per member: its cross-fitted AUC, its weight, and its share of the stack's variance."""
        check_is_fitted(self)
        table = {"auc": self.member_aucs_, "weight": self.combination_.weights, "share": self.importance_}
        return pd.DataFrame(table, index=pd.Index(self.member_names_, name="member"))

    def describe_members(self, X: RepertoireDataset) -> list[dict[str, Any]]:
        """Return a row per member: `member`, those of `member_table`, and its `contributions`, B numbers."""
        table, added = self.member_table(), self.contributions(X)
        columns = zip(table.index, table["auc"], table["weight"], table["share"], strict=True)
        rows = [dict(zip(("member", "auc", "weight", "share"), row, strict=True)) for row in columns]
        return [{**row, "contributions": added[row["member"]].tolist()} for row in rows]

    def shares(self) -> list[tuple[Member, float]]:
        """Return each fitted member with its share of the stack's variance."""
        check_is_fitted(self)
        return list(zip(self._members, self.importance_.tolist(), strict=True))

    def _decide(self, X: RepertoireDataset) -> Floats:
        return self.combination_.log_odds(self.member_scores(validate_dataset(X)).to_numpy())

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        own = {name: value for name, value in vars(self).items() if name != "combination_"}
        arrays, values = collect_fitted_state(own)
        member_arrays, stored = store_members(self._members)
        combination = {f"combination.{name}": each for name, each in asdict(self.combination_).items()}
        held = {**values, "members_": {"value": stored}}
        return {**arrays, **member_arrays, **{name: np.atleast_1d(each) for name, each in combination.items()}}, held

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        self.check_parameters()
        own = {name: each for name, each in arrays.items() if name.endswith("_")}
        super()._restore(own, {name: each for name, each in values.items() if name != "members_"})
        self._members = restore_members(arrays, values["members_"]["value"])
        centres, scales, weights, intercept = (arrays[f"combination.{each.name}"] for each in fields(Combination))
        self.combination_ = Combination(centres, scales, weights, intercept.item())
        shape = (len(self._members),)
        per_member = (centres, scales, weights, self.member_names_, self.member_aucs_, self.importance_)
        if any(each.shape != shape for each in per_member) or not (scales > 0).all():
            raise ValueError(f"combination: expected weights of {len(self._members)} members")
        if self.member_names_.tolist() != [member.name for member in self._members]:
            raise ValueError(f"members: expected {self.member_names_.tolist()}")
