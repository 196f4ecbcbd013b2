"""Warnings about the performance of a run: chance, controls, few repertoires, shared donors and overfitting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from deeprc.errors import format_count
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.cohort_cautions import find_divided_donor_cautions, find_donor_cautions, index_split_parts
from deeprc.evaluation.significance import are_few_repertoires
from deeprc.evaluation.splits import PARTS, Split
from deeprc.evaluation.strata import StratifiedAuc
from deeprc.runs.control_comparison import NAMES, ControlComparison
from deeprc.runs.performance import PART_NAMES, Auc, Contrast, NumericTarget, Performance
from deeprc.tasks import TaskKind

__all__ = ["ONE_CLASS_PART", "find_control_cautions", "find_one_class_cautions", "find_run_cautions"]

_GAP, _GAP_R2 = 0.1, 0.2  # excess of AUC and r2 on training over validation that may be overfitting
ONE_CLASS_PART = "one-class-part"
"""Name of the warning about training or validation repertoires of one class."""


def find_run_cautions(
    performance: Performance,
    controls: Sequence[ControlComparison],
    *,
    metadata: pd.DataFrame,
    stratified_aucs: Mapping[str, Sequence[StratifiedAuc]] | None = None,
    is_cross_fitted: bool = False,
) -> list[Caution]:
    """Return the warnings about the performance of a run, most important first.

    Parameters
    ----------
    performance, controls
        Performance of the run, and its controls.
    metadata
        Metadata sheet of the cohort, one row per repertoire.
    stratified_aucs
        AUCs within the values of columns, by target.
    is_cross_fitted
        Whether training repertoires are predicted by models that did not learn from them, because the network reads
        branches only. Then it cannot be overfitted to them.
    """
    return [
        *_find_no_held_out_cautions(performance),
        *_find_undefined_auc_cautions(performance),
        *_find_no_interval_cautions(performance),
        *_find_chance_cautions(performance),
        *_find_shared_donor_cautions(metadata, performance),
        *find_control_cautions(controls, stratified_aucs or {}),
        *_find_few_repertoires_cautions(performance),
        *([] if is_cross_fitted else _find_overfitting_cautions(performance)),
    ]


def _iterate_aucs(performance: Performance) -> Iterator[tuple[str, Sequence[tuple[Contrast, Auc]]]]:
    """Yield each target with its contrasts and their AUCs on the held-out repertoires."""
    for target, contrasts in performance.iterate_targets():
        aucs = [(contrast, contrast.measure_auc(performance.is_held_out)) for contrast in contrasts]
        yield target, [(contrast, auc) for contrast, auc in aucs if auc is not None]


def _find_no_held_out_cautions(performance: Performance) -> Iterator[Caution]:
    """Yield a warning if no repertoire is held out, so that nothing shows how good the network is."""
    if performance.held_out is None:
        text = (
            "All labelled repertoires of this cohort were used to train or to choose the network, so nothing here "
            "shows how good it is. Its sequences and motifs may be specific to these repertoires."
        )
        yield Caution("warning", text, "performance", "nothing-to-judge-by")


def _find_undefined_auc_cautions(performance: Performance) -> Iterator[Caution]:
    """Yield a warning for each target of which some class has no AUC on the held-out repertoires."""
    if performance.held_out is None:
        return
    part = PART_NAMES[performance.held_out]
    for target, contrasts in performance.iterate_targets():
        names = [contrast.positive for contrast in contrasts if contrast.measure_auc(performance.is_held_out) is None]
        if not names:
            continue
        if np.isnan(contrasts[0].label[performance.is_held_out]).all():
            text = f"No {part} repertoire has a label of {target}, so it is not known how good the network is."
        elif len(names) == len(contrasts):
            of_target = contrasts[0].for_target if len(contrasts) == 1 else f" of {target}"
            text = (
                f"The {part} repertoires have only one class{of_target}, so there is no AUC, and it is not known how "
                "good the network is."
            )
        else:
            text = (
                f"No {part} repertoire of {target} is {' or '.join(names)}, so there is no AUC of "
                f"{_name_these_classes(names)}."
            )
        yield Caution("warning", text, "performance", "one-class", {"target": target, "classes": names})


def _find_no_interval_cautions(performance: Performance) -> Iterator[Caution]:
    """Yield a warning for each numeric target whose r2 on the held-out repertoires has no interval."""
    if performance.held_out is None:
        return
    for numeric in performance.numeric_targets:
        r2 = numeric.measure_r2(performance.is_held_out)
        if r2 is None or r2.interval is None:
            text = (
                f"The {PART_NAMES[performance.held_out]} repertoires are too few, or too alike in {numeric.target}, "
                "for an interval of r². So it is not known how good the network is."
            )
            yield Caution("warning", text, "performance", "no-interval", {"target": numeric.target})


def _find_chance_cautions(performance: Performance) -> Iterator[Caution]:
    """Yield a warning for each target for which the network is not significantly better than chance."""
    for target, aucs in _iterate_aucs(performance):
        poor = [(contrast, auc) for contrast, auc in aucs if auc.low <= 0.5]
        if len(aucs) == 1 and poor:
            ((contrast, auc),) = poor
            text = f"{_describe_chance(contrast, auc, performance)} Do not interpret its sequences and motifs."
            details = {"target": target, "auc": auc.value, "low": auc.low, "high": auc.high}
            yield Caution("warning", text, "performance", "chance", details)
        elif poor:
            classes = [
                f"{contrast.positive} ({auc.value:.3f}, {auc.low:.3f} to {auc.high:.3f})" for contrast, auc in poor
            ]
            text = (
                f"The network is not significantly better than chance for {len(poor)} of {len(aucs)} classes of "
                f"{target}, each against the others (AUC, 95% interval): {', '.join(classes)}. Do not interpret the "
                "sequences and motifs of these classes."
            )
            by_class = {contrast.positive: [auc.value, auc.low, auc.high] for contrast, auc in poor}
            yield Caution("warning", text, "performance", "chance", {"target": target, "aucs": by_class})
    for numeric in performance.numeric_targets:
        r2 = numeric.measure_r2(performance.is_held_out)
        if r2 is not None and (r2.value <= 0 or (r2.interval is not None and r2.interval[0] <= 0)):
            low, high = r2.interval or (np.nan, np.nan)
            limits = f", with a 95% interval from {low:.3f} to {high:.3f}" if r2.interval else ""
            text = (
                f"The network does not predict {numeric.target} significantly better than the mean does: r² is "
                f"{r2.value:.3f}{limits}. Do not interpret its sequences and motifs."
            )
            values = {"target": numeric.target, "r2": r2.value, "interval": list(r2.interval or ())}
            yield Caution("warning", text, "performance", "chance", values)


def _describe_chance(contrast: Contrast, auc: Auc, performance: Performance) -> str:
    """Return a sentence that says why an AUC does not show that the network is better than chance."""
    few_donors, for_target = performance.has_few_donors(contrast.target), contrast.for_target
    if auc.value > 0.5 and (few_donors or are_few_repertoires("binary", min(auc.n_positive, auc.n_negative))):
        few = "donors" if few_donors else f"{PART_NAMES[performance.held_out or 'test']} repertoires"
        return (
            f"The AUC of the network{for_target} is {auc.value:.3f}, but with so few {few} it could be as low as "
            f"{auc.low:.3f} (95% interval from {auc.low:.3f} to {auc.high:.3f}). So it is not evidence that the "
            "network is better than chance."
        )
    return (
        f"The network{for_target} is not significantly better than chance: its AUC is {auc.value:.3f}, with a 95% "
        f"interval from {auc.low:.3f} to {auc.high:.3f}."
    )


def _find_shared_donor_cautions(metadata: pd.DataFrame, performance: Performance) -> list[Caution]:
    """Return warnings about donors in several parts of the split, and about held-out parts with few donors."""
    labelled = ~np.isnan(performance.labels).all(axis=1)
    split = Split(**{part: np.flatnonzero(performance.is_in(part) & labelled) for part in PARTS})
    cautions = find_divided_donor_cautions(metadata, index_split_parts(split, len(metadata)), apart="parts")
    if (
        performance.donors is None
        or performance.held_out is None
        or performance.donor_column in [caution.details["column"] for caution in cautions]
    ):
        return cautions
    targets = _list_target_kinds(performance)
    for target, kind in targets.items():
        prefix = f"{PART_NAMES[performance.held_out]} repertoires{f' for {target}' if len(targets) > 1 else ''}: "
        classes = performance.select_classes(target)
        cautions += find_donor_cautions(
            performance.donors, str(performance.donor_column), classes, kind=kind, where=prefix
        )
    return cautions


def _list_target_kinds(performance: Performance) -> dict[str, TaskKind]:
    """Return the kind of each target by name; a target with several classes counts as binary, class by class."""
    kinds: dict[str, TaskKind] = {contrast.target: "binary" for contrast in performance.contrasts}
    return {**kinds, **{numeric.target: "regression" for numeric in performance.numeric_targets}}


def find_control_cautions(
    controls: Sequence[ControlComparison], stratified_aucs: Mapping[str, Sequence[StratifiedAuc]]
) -> Iterator[Caution]:
    """Yield a warning for each control that is not worse than the network, and a note if no control was compared.

    If the network is not better than chance, another warning says so. Then a control has a warning here only if it is
    better than chance and better than the network.

    A control may read columns of the sheet. If the network is better than chance within the values of each of them
    (`stratified_aucs`, by target), none of these columns alone explains what it has learned, and the warning says so.
    """
    for comparison in controls:
        if comparison.is_of_class:
            continue
        for entry in comparison.to_list():
            name, is_better = entry["control"], entry["relation"] == "better"
            is_control_above_chance = comparison.is_above_chance(name)
            may_warn = comparison.is_above_chance("network") or (is_better and is_control_above_chance)
            if entry["relation"] != "worse" and may_warn:
                text = comparison.describe(name)
                if name == "sheet" and is_control_above_chance:
                    text += _describe_auc_within(
                        stratified_aucs.get(comparison.quantity.target, []), comparison.columns
                    )
                yield Caution("warning", text, "controls", "control-not-worse", entry)
        if comparison.table.empty:
            names = ", ".join(NAMES.values())
            text = f"Control methods ({names}) were not compared with the network. {comparison.reasons[0]}"
            yield Caution("note", text, "controls", "no-control")


def _describe_auc_within(aucs: Sequence[StratifiedAuc], columns: Sequence[str]) -> str:
    """Return a sentence if the AUC within the values of each column is known and above chance, else ""."""
    if {stratified.column for stratified in aucs} != set(columns) or not all(
        stratified.low > 0.5 for stratified in aucs
    ):
        return ""
    auc_texts = ", ".join(
        f"{stratified.column!r} ({stratified.auc:.3f}, {stratified.low:.3f} to {stratified.high:.3f})"
        for stratified in aucs
    )
    alone = "this column alone does not explain" if len(aucs) == 1 else "none of these columns alone explains"
    return (
        f" But the network also separates the classes among repertoires with the same value of {auc_texts}. So {alone} "
        "what the network has learned."
    )


def _find_few_repertoires_cautions(performance: Performance) -> Iterator[Caution]:
    """Yield a warning for each target with few held-out repertoires, so that its metric is uncertain."""
    part = PART_NAMES[performance.held_out or "test"]
    for target, aucs in _iterate_aucs(performance):
        sizes = {contrast.positive: min(auc.n_positive, auc.n_negative) for contrast, auc in aucs}
        few = {name: n for name, n in sizes.items() if are_few_repertoires("binary", n)}
        if len(aucs) == 1 and few:
            ((contrast, auc),) = aucs
            (n,) = few.values()
            text = (
                f"Only {format_count(n, f'{part} repertoire')} of the smaller class{contrast.for_target}. With so few, "
                f"the AUC may be anything from {auc.low:.3f} to {auc.high:.3f}."
            )
            yield Caution("warning", text, "performance", "few-repertoires", {"n": n})
        elif few:
            classes = ", ".join(f"{name} ({n:,})" for name, n in few.items())
            text = (
                f"There are few {part} repertoires of {target}, so the AUC of {_name_these_classes(list(few))} is "
                f"uncertain: {classes}."
            )
            yield Caution("warning", text, "performance", "few-repertoires", {"n": min(few.values()), "sizes": few})
    for numeric in performance.numeric_targets:
        r2 = numeric.measure_r2(performance.is_held_out)
        if r2 is not None and are_few_repertoires("regression", r2.n):
            text = f"Only {format_count(r2.n, f'{part} repertoire')}{numeric.for_target}"
            if r2.interval is not None:
                text += f". With so few, r² may be anything from {r2.interval[0]:.3f} to {r2.interval[1]:.3f}"
            yield Caution("warning", f"{text}.", "performance", "few-repertoires", {"n": r2.n})


def _find_overfitting_cautions(performance: Performance) -> Iterator[Caution]:
    """Yield a warning for each target that is predicted much better on training than on validation repertoires."""
    explanation = (
        "the network is overfitted to training repertoires. So sequences of these may rank high without any signal."
    )
    is_training, is_validation = performance.is_in("train"), performance.is_in("validation")
    for target, contrasts in performance.iterate_targets():
        training_aucs: dict[str, float] = {}  # of the classes that are overfitted
        validation_aucs: dict[str, float] = {}
        for contrast in contrasts:
            training, validation = contrast.measure_auc(is_training), contrast.measure_auc(is_validation)
            if not (training and validation):
                continue
            if _is_overfitted(training.value, validation.value, training.low, 0.5, _GAP):
                training_aucs[contrast.positive] = training.value
                validation_aucs[contrast.positive] = validation.value
        if not training_aucs:
            continue
        of_target = f" of {target}={', '.join(training_aucs)}" if len(contrasts) > 1 else contrasts[0].for_target
        on_training, on_validation = (
            ", ".join(f"{auc:.3f}" for auc in aucs.values()) for aucs in (training_aucs, validation_aucs)
        )
        text = (
            f"The AUC{of_target} is {on_training} on training and {on_validation} on validation repertoires: "
            f"{explanation}"
        )
        details = {"target": target, "classes": list(training_aucs)}
        yield Caution("warning", text, "history", "learned-by-heart", details)
    for numeric in performance.numeric_targets:
        yield from _find_overfitted_number_cautions(numeric, performance, explanation)


def _is_overfitted(training: float, validation: float, low: float, chance: float, gap: float) -> bool:
    """Return whether training is better than chance, and validation below its interval, by more than the gap."""
    return low > chance and validation < low and training - validation > gap


def _find_overfitted_number_cautions(
    numeric: NumericTarget, performance: Performance, explanation: str
) -> Iterator[Caution]:
    training, validation = (numeric.measure_r2(performance.is_in(part)) for part in ("train", "validation"))
    low = training.interval[0] if training and training.interval else np.nan
    if training and validation and _is_overfitted(training.value, validation.value, low, 0.0, _GAP_R2):
        text = (
            f"r²{numeric.for_target} is {training.value:.3f} on training and {validation.value:.3f} on validation "
            f"repertoires: {explanation}"
        )
        yield Caution("warning", text, "history", "learned-by-heart")


def _name_these_classes(names: Sequence[str]) -> str:
    return "this class" if len(names) == 1 else "these classes"


def find_one_class_cautions(performance: Performance) -> Iterator[Caution]:
    """Yield a warning for each target whose training or validation repertoires have one class only.

    Parameters
    ----------
    performance
        Performance on all repertoires of the run's split. If a cohort has only some of them, the classes that they have
        do not show what the run was trained on.
    """
    effects = {
        "train": "the network could not learn to separate the classes",
        "validation": "they could not show which weights and which cutoff separate the classes best",
    }
    for target, contrasts in performance.iterate_targets():
        for part, effect in effects.items():
            labels = [contrast.label[performance.is_in(part) & ~np.isnan(contrast.label)] for contrast in contrasts]
            n_present = sum(bool(label.any()) for label in labels)
            if len(contrasts) == 1:
                n_present += bool((labels[0] == 0).any())
            if n_present == 1:
                text = (
                    f"The {PART_NAMES[part]} repertoires have only one class of {target!r}, so {effect}. Try another "
                    "`seed` or fewer `folds`."
                )
                yield Caution("warning", text, "setup", ONE_CLASS_PART, {"target": target, "part": part})
