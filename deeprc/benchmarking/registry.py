"""The registry of methods: the names and class of each method, without importing any.

A class may be in any package, also in one above this one, because its name here is only text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["METHODS", "RegisteredMethod"]


@dataclass(frozen=True)
class RegisteredMethod:
    """An entry of `METHODS`.

    Attributes
    ----------
    label
        Name in tables.
    estimator
        Class, as `module:Class`; it is imported only when it is used.
    fixed
        Values of parameters that are always the same.
    kind
        Kind of the method, see `deeprc.benchmarking.methods.Method`.
    regressor, regressor_label
        Class for a numeric target, "" if the method cannot predict numbers; and its label, if it differs.
    """

    label: str
    estimator: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    kind: Literal["method", "control", "truth"] = "method"
    regressor: str = ""
    regressor_label: str = ""


_SVR, _KNN = "deeprc.baselines.svm:SVMRegressor", "deeprc.baselines.knn:KNNRegressor"

METHODS: Mapping[str, RegisteredMethod] = {
    "deeprc": RegisteredMethod(
        "DeepRC",
        "deeprc.training.estimator:DeepRCClassifier",
        regressor="deeprc.training.estimator:DeepRCRegressor",
    ),
    "svm-minmax": RegisteredMethod("SVM (MinMax)", "deeprc.baselines.svm:SVM", {"kernel": "minmax"}, regressor=_SVR),
    "svm-jaccard": RegisteredMethod("SVM (Jaccard)", "deeprc.baselines.svm:SVM", {"kernel": "jaccard"}, regressor=_SVR),
    "knn-minmax": RegisteredMethod("KNN (MinMax)", "deeprc.baselines.knn:KNN", {"kernel": "minmax"}, regressor=_KNN),
    "knn-jaccard": RegisteredMethod("KNN (Jaccard)", "deeprc.baselines.knn:KNN", {"kernel": "jaccard"}, regressor=_KNN),
    "logistic-adam": RegisteredMethod("Log. regr. (paper: Adam)", "deeprc.baselines.logistic:AdamLogisticRegression"),
    "logistic": RegisteredMethod(
        "Log. regr. (converged)",
        "deeprc.baselines.logistic:LogisticRegression",
        regressor="deeprc.baselines.logistic:KmerRidge",
        regressor_label="Ridge regression",
    ),
    "gapped-logistic": RegisteredMethod(
        "Log. regr. (gapped k-mers)", "deeprc.baselines.gapped:GappedKmerLogisticRegression"
    ),
    "boosted": RegisteredMethod(
        "Boosted trees",
        "deeprc.baselines.boosted:BoostedTrees",
        regressor="deeprc.baselines.boosted:BoostedTreesRegressor",
    ),
    "stack": RegisteredMethod("Stack", "deeprc.stacking.stack:Stack"),
    "burden-test": RegisteredMethod("Burden test", "deeprc.baselines.burden:BurdenTest"),
    "public-clones": RegisteredMethod("Public clones (Emerson)", "deeprc.baselines.public_clones:PublicClones"),
    "logistic-mil-4mer": RegisteredMethod(
        "Log. MIL (4MER)", "deeprc.baselines.logistic_mil:LogisticMIL", {"abundance": "4mer"}
    ),
    "logistic-mil-tcrb": RegisteredMethod(
        "Log. MIL (TCRβ)", "deeprc.baselines.logistic_mil:LogisticMIL", {"abundance": "tcrb"}
    ),
    "repertoire-size": RegisteredMethod(
        "Repertoire size",
        "deeprc.baselines.controls:RepertoireSize",
        kind="control",
        regressor="deeprc.baselines.controls:RepertoireSizeRidge",
    ),
    "diversity": RegisteredMethod(
        "Diversity",
        "deeprc.baselines.diversity:Diversity",
        kind="control",
        regressor="deeprc.baselines.diversity:DiversityRidge",
    ),
    "v-gene-usage": RegisteredMethod(
        "V gene usage",
        "deeprc.baselines.controls:VGeneUsage",
        kind="control",
        regressor="deeprc.baselines.controls:VGeneUsageRidge",
    ),
    "sheet-columns": RegisteredMethod(
        "Sheet columns",
        "deeprc.baselines.sheet:SheetColumns",
        kind="control",
        regressor="deeprc.baselines.sheet:SheetColumnsRidge",
    ),
    "known-recipe": RegisteredMethod(
        "Known recipe (likelihood ratio)", "deeprc.baselines.known_recipe:KnownRecipe", kind="truth"
    ),
    "known-motif-binary": RegisteredMethod(
        "Known motif (binary)", "deeprc.baselines.known_motif:KnownMotif", {"overlap": "binary"}, "truth"
    ),
    "known-motif-continuous": RegisteredMethod(
        "Known motif (continuous)", "deeprc.baselines.known_motif:KnownMotif", {"overlap": "continuous"}, "truth"
    ),
}
"""The methods that come with deeprc."""
