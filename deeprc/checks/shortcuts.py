"""Find properties that predict a label without any receptor sequence: shortcuts that make a published AUC worthless.

Every property is tested alone. The probability of any false alarm in a cohort is at most 1%, corrected for the number
of tests. A strong association is a warning, a weak but significant one a note.

Repertoires of one donor are not independent: those with the same label count as one unit, with the mean of their
numbers and the most frequent of their categories.

Letters: B repertoires, U units (donors with a label), G genes, K levels of a category, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from deeprc.checks.contingency import compute_cramers_v, compute_permutation_p
from deeprc.checks.features import Feature
from deeprc.checks.findings import Finding
from deeprc.checks.unit_labels import MIN_UNITS, UnitLabels, aggregate_by_unit, label_units
from deeprc.evaluation.auc_comparison import compute_midrank_aucs
from deeprc.evaluation.auc_intervals import compute_auc_interval
from deeprc.tasks import Task

__all__ = ["Shortcut", "find_shortcuts", "make_shortcut_findings"]

ALPHA = 0.01
"""Largest probability of any false alarm in one cohort."""

_STRONG_AUC, _STRONG_V = 0.6, 0.2  # from these values on, an association is a warning
_FOLDS, _REPEATS = 5, 3  # numbers of the cross-validation of several features together
_INVERSE_PENALTY = 0.05  # C of the logistic regression
_SEED = 0
_MAX_NAMED = 4  # classes in a message


@dataclass(frozen=True)
class Shortcut:
    """The result of a test whether one property predicts one label.

    Attributes
    ----------
    target, label
        Name of the target, and the classes that are compared, such as "'sick' against 'healthy'".
    property, column, code
        The property, its column if it has one, and the code of the finding.
    measure, value, interval
        For numbers an AUC with its 95% interval. That of a single number is at least 0.5, because its direction does
        not matter. That of several numbers together is measured on held-out folds, so it may be lower. For categories
        Cramer's V (0 to 1, corrected for its bias) without an interval.
    verdict
        "warning", "note", or "" if the association may be chance.
    detail
        Further numbers, as text.
    """

    target: str
    label: str
    property: str
    column: str | None
    code: str
    measure: Literal["auc", "cramers_v"]
    value: float
    interval: tuple[float, float] | None
    verdict: Literal["warning", "note", ""]
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """Return the shortcut as values that JSON can hold."""
        return asdict(self)

    def format_measure(self, *, in_sentence: bool = False) -> str:
        """Return the measure with its interval as text, for a table or after "with" in a sentence."""
        name, limits = "Cramer's V", ""
        if self.interval is not None:
            name, limits = "AUC", f" (95% interval {self.interval[0]:.2f} to {self.interval[1]:.2f})"
        if in_sentence:
            name, limits = ("a Cramer's V of", " (at most 1)") if self.interval is None else ("an AUC of", limits)
        return f"{name} {self.value:.2f}{limits}"


def find_shortcuts(
    tasks: Sequence[Task], labels: NDArray[np.float64], donors: Sequence[str | None], features: Sequence[Feature]
) -> tuple[list[Shortcut], list[Finding]]:
    """Test every feature against every target.

    Parameters
    ----------
    tasks, labels
        The targets, and their labels (B, targets) from `deeprc.task_labels.encode_labels`.
    donors
        The donor of each repertoire, (B,); None where it is not known.
    features
        The properties of the repertoires.

    Returns
    -------
    The result of every test, and findings about targets with too few repertoires and about copies of the label.
    """
    labels_by_target, findings = list[UnitLabels](), list[Finding]()
    for task, values in zip(tasks, labels.T, strict=True):
        unit_labels = label_units(task, values, donors)
        if unit_labels.find_testable_classes():
            labels_by_target.append(unit_labels)
        else:
            findings.append(_make_too_few_finding(unit_labels))
    findings += _make_copy_findings(labels_by_target, features)
    pairs = [
        (unit_labels, feature) for unit_labels in labels_by_target for feature in _select_usable(unit_labels, features)
    ]
    pairs = _drop_repeated_pairs(pairs)
    n_tests = sum(
        1 if feature.is_categorical else len(unit_labels.find_testable_classes()) for unit_labels, feature in pairs
    )
    return [_test_feature(unit_labels, feature, ALPHA / n_tests) for unit_labels, feature in pairs], findings


def _make_too_few_finding(unit_labels: UnitLabels) -> Finding:
    """Return a note that says how many units each class of a target has, which are too few for a test."""
    task, names = unit_labels.task, unit_labels.names
    sizes = np.bincount(unit_labels.codes, minlength=len(names)).tolist()
    shown = ", ".join(f"{n} of {name}" for name, n in list(zip(names, sizes, strict=True))[:_MAX_NAMED])
    shown += f" and {len(sizes) - _MAX_NAMED} more classes" if len(sizes) > _MAX_NAMED else ""
    return Finding(
        "note",
        "too-few",
        f"target {task.name!r}: too few to test for shortcuts: {shown} (donors, or repertoires of an "
        f"unknown donor); a test needs at least {MIN_UNITS} in a class and in the rest",
        "Check yourself whether batches, dates and repertoire sizes differ between the classes.",
        column=task.column,
        target=task.name,
    )


def _choose_article(shortcut: Shortcut) -> str:
    """Return "the " before a property that needs an article in a sentence."""
    return "" if shortcut.column or shortcut.property.startswith("part ") else "the "


def make_shortcut_findings(shortcuts: Sequence[Shortcut]) -> list[Finding]:
    """Return a finding for each significant shortcut."""
    return [
        Finding(
            shortcut.verdict,
            shortcut.code,
            f"target {shortcut.target!r}: {_choose_article(shortcut)}{shortcut.property} predicts "
            f"{shortcut.label} with {shortcut.format_measure(in_sentence=True)}{shortcut.detail}",
            _ADVICE[shortcut.code],
            column=shortcut.column,
            target=shortcut.target,
            numbers={shortcut.measure: shortcut.value},
        )
        for shortcut in shortcuts
        if shortcut.verdict
    ]


_ADVICE = {
    "label-from-size": "A classifier could reach this AUC from the size of a repertoire alone. If sequencing depth or "
    "cell numbers differ by protocol, balance the classes, or sample the same number of sequences from every "
    "repertoire. Report this AUC together with that of the model.",
    "label-from-processing": "The files of the classes were exported or filtered in different ways. Export all files "
    "in the same way.",
    "label-from-genes": "This may be biology (cell type, HLA), or primers and annotation that differ between the "
    "classes. Compare within a batch. Only the part of the model's AUC above this value is evidence that it uses "
    "receptor sequences.",
    "label-from-name": "Training does not use file names, but they often show the batch or the study. If they do, "
    "compare within a batch or study. If they only sort the files by label, ignore this finding.",
    "label-from-column": "If this column is just another form of the label, ignore this finding. If it is a batch, a "
    "site or a trait such as age, a model may learn it instead of the label. Then adjust for it (`adjust_for`), or "
    "test on another cohort.",
}


def _select_usable(unit_labels: UnitLabels, features: Sequence[Feature]) -> list[Feature]:
    """Return the features that can be tested.

    The target itself is left out. So are categories that are the same in all units, or have fewer than two units on
    average; parts of names that divide the units as an earlier feature does, or that are the label itself; and numbers
    that do not vary, or are known for too few units.
    """
    usable, seen = [], set[tuple[int, ...]]()
    for feature in features:
        if feature.column == unit_labels.task.column:
            continue
        values = aggregate_by_unit(unit_labels, feature)
        if feature.is_categorical:
            categories = tuple(pd.factorize(values)[0].tolist())  # index of the category of each unit
            if feature.column is None and (categories in seen or _is_copy(unit_labels, values)):
                continue
            if not 2 <= len(set(categories)) <= len(values) / 2:
                continue
            seen.add(categories)
        elif values.ndim == 1:
            known = ~np.isnan(values)
            if not unit_labels.find_testable_classes(known) or len(np.unique(values[known])) < 2:
                continue
        usable.append(feature)
    return usable


def _is_copy(unit_labels: UnitLabels, values: Sequence[str] | NDArray[np.object_]) -> bool:
    """Return whether categories are the label itself, apart from case and punctuation."""
    classes = (unit_labels.names[code] for code in unit_labels.codes)
    return all(_simplify_name(a) == _simplify_name(b) for a, b in zip(values, classes, strict=True))


def _make_copy_findings(labels_by_target: Sequence[UnitLabels], features: Sequence[Feature]) -> Iterator[Finding]:
    """Yield a note for each target that a folder, or a part of the file name, equals; such a copy is not tested."""
    texts = [feature for feature in features if feature.is_categorical and feature.code == "label-from-name"]
    for unit_labels in labels_by_target:
        names = [feature.name for feature in texts if _is_copy(unit_labels, aggregate_by_unit(unit_labels, feature))]
        if names:
            verb = "equals" if len(names) == 1 else "equal"
            was = "was" if len(names) == 1 else "were"
            yield Finding(
                "note",
                "label-from-name",
                f"target {unit_labels.task.name!r}: {' and '.join(names)} {verb} the label, and {was} not tested",
                "Nothing, if the names only sort the files by label. Training does not use file names.",
                column=unit_labels.task.column,
                target=unit_labels.task.name,
            )


def _simplify_name(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold())) or text


def _drop_repeated_pairs(pairs: Sequence[tuple[UnitLabels, Feature]]) -> list[tuple[UnitLabels, Feature]]:
    """Return the pairs without repetitions: whether one target predicts another is tested in one direction only."""
    kept, seen = [], set[tuple[str, str]]()  # column of the target, column of the feature
    for unit_labels, feature in pairs:
        if feature.is_categorical and (feature.column, unit_labels.task.column) in seen:
            continue
        if feature.is_categorical and feature.column is not None:
            seen.add((unit_labels.task.column, feature.column))
        kept.append((unit_labels, feature))
    return kept


def _test_feature(unit_labels: UnitLabels, feature: Feature, alpha: float) -> Shortcut:
    """Return how well a feature predicts the labels."""
    values = aggregate_by_unit(unit_labels, feature)
    if feature.is_categorical:
        return _test_categories(unit_labels, feature, values, alpha)
    if values.ndim == 1:
        return _test_number(unit_labels, feature, values, alpha)
    return _test_numbers_together(unit_labels, feature, values, alpha)


class _ClassAuc(NamedTuple):
    """The AUC of a class against the others, the code of the class, and the numbers of units in it and not in it."""

    auc: float
    code: int
    n_positive: int
    n_negative: int

    @classmethod
    def of(cls, auc: float, code: int, label: NDArray[np.bool_]) -> _ClassAuc:
        """Return the AUC of a class with its number of units; `label` says which units belong to the class, (U,)."""
        return cls(auc, code, int(label.sum()), int((~label).sum()))

    @property
    def directed_auc(self) -> float:
        """The AUC in the direction in which it is at least 0.5."""
        return max(self.auc, 1 - self.auc)

    def compute_certain_excess(self, alpha: float) -> float:
        """Return by how much the directed AUC is above 0.5 at least, with the probability of error alpha."""
        low, _ = compute_auc_interval(self.directed_auc, self.n_positive, self.n_negative, level=1 - alpha)
        return max(low - 0.5, 0.0)


def _test_number(unit_labels: UnitLabels, feature: Feature, values: NDArray[np.float64], alpha: float) -> Shortcut:
    """Return the AUC of the class that a number, (U,), predicts best; it may be higher or lower in the class.

    The best class is the one whose interval is highest above 0.5; if no interval is above it, the one with the highest
    AUC. Units with a missing number are left out.
    """
    known = ~np.isnan(values)
    aucs = []
    for code in unit_labels.find_testable_classes(known):
        label = unit_labels.codes[known] == code
        aucs.append(_ClassAuc.of(_compute_auc(label, values[known]), code, label))
    best = max(aucs, key=lambda class_auc: (class_auc.compute_certain_excess(alpha), class_auc.directed_auc))
    detail = f"; it is {'lower' if best.auc < 0.5 else 'higher'} in {unit_labels.names[best.code]!r}"
    return _make_auc_shortcut(unit_labels, feature, best._replace(auc=best.directed_auc), alpha, detail)


def _test_numbers_together(
    unit_labels: UnitLabels, feature: Feature, values: NDArray[np.float64], alpha: float
) -> Shortcut:
    """Return the highest AUC of a class that several numbers of each unit, (U, G), predict together."""
    aucs = []
    for code in unit_labels.find_testable_classes():
        label = unit_labels.codes == code
        aucs.append(_ClassAuc.of(_cross_validate_auc(label, values), code, label))
    best = max(aucs, key=lambda class_auc: class_auc.auc)
    # folds share training units, which makes the variance up to twice as large: as if there were half of the units
    halved = best._replace(n_positive=best.n_positive // 2, n_negative=best.n_negative // 2)
    return _make_auc_shortcut(unit_labels, feature, halved, alpha)


def _make_auc_shortcut(
    unit_labels: UnitLabels, feature: Feature, best: _ClassAuc, alpha: float, detail: str = ""
) -> Shortcut:
    """Return the result of a test by the AUC of the class that the feature predicts best."""
    sizes = best.n_positive, best.n_negative
    is_significant = compute_auc_interval(best.auc, *sizes, level=1 - alpha)[0] > 0.5
    return Shortcut(
        target=unit_labels.task.name,
        label=_describe_contrast(unit_labels, best.code),
        property=feature.name,
        column=feature.column,
        code=feature.code,
        measure="auc",
        value=best.auc,
        interval=compute_auc_interval(best.auc, *sizes),
        verdict=_judge(is_significant=is_significant, is_strong=best.auc >= _STRONG_AUC),
        detail=detail,
    )


def _judge(*, is_significant: bool, is_strong: bool) -> Literal["warning", "note", ""]:
    """Return the verdict on an association."""
    if not is_significant:
        return ""
    return "warning" if is_strong else "note"


def _describe_contrast(unit_labels: UnitLabels, code: int) -> str:
    others = repr(unit_labels.names[0]) if len(unit_labels.names) == 2 else "the other classes"
    return f"{unit_labels.names[code]!r} against {others}"


def _compute_auc(label: NDArray[np.bool_], values: NDArray[np.float64]) -> float:
    return float(compute_midrank_aucs(label.astype(np.int64), values[None])[0])


def _cross_validate_auc(label: NDArray[np.bool_], values: NDArray[np.float64]) -> float:
    """Return the mean AUC of a logistic regression on held-out units, over folds and repeats."""
    folds = min(_FOLDS, int(min(label.sum(), (~label).sum())))
    aucs = []
    for repeat in range(_REPEATS):
        splitter = StratifiedKFold(folds, shuffle=True, random_state=_SEED + repeat)
        for train, test in splitter.split(values, label):
            mean, scale = values[train].mean(axis=0), values[train].std(axis=0)
            scaled = (values - mean) / np.where(scale > 0, scale, 1.0)
            model = LogisticRegression(C=_INVERSE_PENALTY, solver="newton-cholesky").fit(scaled[train], label[train])
            aucs.append(_compute_auc(label[test], model.decision_function(scaled[test])))
    return float(np.mean(aucs))


def _test_categories(unit_labels: UnitLabels, feature: Feature, values: NDArray[np.object_], alpha: float) -> Shortcut:
    """Return how well the categories of a feature predict the classes: Cramér's V, with a permutation test.

    A class without any unit does not count: its repertoires may all be missing or empty.
    """
    levels, level_names = pd.factorize(values, sort=True)  # index of the level of each unit, (U,), and names, (K,)
    occurring_codes, classes = np.unique(unit_labels.codes, return_inverse=True)  # (C,), and the class of each unit
    class_names = [unit_labels.names[code] for code in occurring_codes]
    counts = np.zeros((len(level_names), len(class_names)), np.int64)  # units by level and class, (K, C)
    np.add.at(counts, (levels, classes), 1)
    v = compute_cramers_v(counts)
    is_significant = compute_permutation_p(levels, classes, counts, alpha) <= alpha
    return Shortcut(
        target=unit_labels.task.name,
        label=_describe_contrast(unit_labels, 1) if len(unit_labels.names) == 2 else "the classes",
        property=feature.name,
        column=feature.column,
        code=feature.code,
        measure="cramers_v",
        value=v,
        interval=None,
        verdict=_judge(is_significant=is_significant, is_strong=v >= _STRONG_V),
        detail=_describe_striking_levels(counts, [str(name) for name in level_names], class_names),
    )


def _describe_striking_levels(counts: NDArray[np.int64], names: Sequence[str], classes: Sequence[str]) -> str:
    """Return the three levels that deviate most from independence, with their numbers, as text."""
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    order = np.argsort(-((counts - expected) ** 2 / expected).sum(axis=1), kind="stable")[:3]
    parts = []
    for level in order:
        code = 1 if len(classes) == 2 else int(np.argmax(counts[level] - expected[level]))
        share = f"{counts[level, code]} of {counts[level].sum()}"
        parts.append(f"{share} with {names[level]!r} are {classes[code]!r}")
    return "; " + ", ".join(parts)
