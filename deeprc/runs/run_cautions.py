"""Warnings about the performance of a run: chance, controls, few repertoires, shared donors and overfitting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from deeprc.evaluation.caution import Caution
from deeprc.evaluation.cohort_cautions import find_donor_cautions, find_subject_cautions, index_split_parts
from deeprc.evaluation.splits import SPLITS, Split
from deeprc.evaluation.strata import StratifiedAuc
from deeprc.evaluation.trust import is_few
from deeprc.runs.controls import SHORT, Controls
from deeprc.runs.performance import SPLIT_NAMES, Auc, Contrast, Numbers, Performance
from deeprc.tasks import TaskKind

__all__ = ["find_control_cautions", "find_run_cautions"]

_GAP, _GAP_R2 = 0.1, 0.2  # excess of AUC and r2 on training over validation that may be overfitting


def find_run_cautions(
    performance: Performance,
    controls: Sequence[Controls],
    *,
    metadata: pd.DataFrame,
    within: Mapping[str, Sequence[StratifiedAuc]] | None = None,
) -> list[Caution]:
    """Return the warnings about the performance of a run, most important first.

    Parameters
    ----------
    performance, controls
        Performance of the run, and its controls.
    metadata
        Metadata sheet of the cohort, one row per repertoire.
    within
        AUCs within the values of columns, by target.
    """
    return [
        *_warn_of_no_held_out(performance),
        *_warn_of_chance(performance),
        *_warn_of_shared_subjects(metadata, performance),
        *find_control_cautions(controls, within or {}),
        *_warn_of_few_repertoires(performance),
        *_warn_of_overfitting(performance),
    ]


def _group_by_target(performance: Performance) -> Iterator[tuple[str, list[Contrast]]]:
    """Yield the contrasts of each target: one for two classes, one per class for several."""
    for target in dict.fromkeys(each.target for each in performance.contrasts):
        yield target, [each for each in performance.contrasts if each.target == target]


def _iterate_aucs(performance: Performance) -> Iterator[tuple[str, Sequence[tuple[Contrast, Auc]]]]:
    """Yield each target with its contrasts and their AUCs on the held-out repertoires."""
    rows = performance.rows(performance.held_out)
    for target, contrasts in _group_by_target(performance):
        found = [(each, each.auc(rows)) for each in contrasts]
        yield target, [(each, auc) for each, auc in found if auc is not None]


def _warn_of_no_held_out(performance: Performance) -> Iterator[Caution]:
    if performance.held_out is None:
        text = (
            "This cohort has no labelled repertoire that the network has not been trained or selected on: nothing here "
            "says how good it is. The sequences and motifs may be those of these repertoires only."
        )
        yield Caution("warning", text, "performance", "nothing-to-judge-by")
        return
    for target, contrasts in _group_by_target(performance):
        without = [each for each in contrasts if each.auc(performance.rows(performance.held_out)) is None]
        if not without:
            continue
        split, names = SPLIT_NAMES[performance.held_out], [each.positive for each in without]
        if len(contrasts) == 1 or len(without) == len(contrasts):
            named = contrasts[0].named if len(contrasts) == 1 else f" of {target}"
            text = (
                f"The {split} repertoires are of one class{named}: there is no AUC, and how good the network is is not "
                "known."
            )
        else:
            text = (
                f"No {split} repertoire of {target} is {' or '.join(names)}: there is no AUC of "
                f"{_name_these_classes(names)}."
            )
        yield Caution("warning", text, "performance", "one-class", {"target": target, "classes": names})
    for numbers in performance.numbers:
        found = numbers.r2(performance.rows(performance.held_out))
        if found is None or found.interval is None:
            split = SPLIT_NAMES[performance.held_out]
            text = (
                f"The {split} repertoires are too few, or too alike in {numbers.target}, for an "
                "interval of r²: how good the network is is not known."
            )
            yield Caution("warning", text, "performance", "no-interval", {"target": numbers.target})


def _warn_of_chance(performance: Performance) -> Iterator[Caution]:
    for target, aucs in _iterate_aucs(performance):
        poor = [(each, auc) for each, auc in aucs if auc.low <= 0.5]
        if len(aucs) == 1 and poor:
            ((contrast, auc),) = poor
            text = (
                f"The network{contrast.named} cannot be told from chance: its AUC is {auc.value:.3f}, with a 95% "
                f"interval from {auc.low:.3f} to {auc.high:.3f} that contains 0.5 or lies below it. Its sequences and "
                "motifs then mean nothing."
            )
            details = {"target": target, "auc": auc.value, "low": auc.low, "high": auc.high}
            yield Caution("warning", text, "performance", "chance", details)
        elif poor:
            told = [f"{each.positive} ({auc.value:.3f}, {auc.low:.3f} to {auc.high:.3f})" for each, auc in poor]
            text = (
                f"The network cannot be told from chance for {len(poor)} of {len(aucs)} classes of {target}, each "
                f"against the others (AUC, 95% interval): {', '.join(told)}. Their sequences and motifs then mean "
                "nothing."
            )
            by_class = {each.positive: [auc.value, auc.low, auc.high] for each, auc in poor}
            yield Caution("warning", text, "performance", "chance", {"target": target, "aucs": by_class})
    for numbers in performance.numbers:
        found = numbers.r2(performance.rows(performance.held_out))
        if found is not None and (found.value <= 0 or (found.interval is not None and found.interval[0] <= 0)):
            low, high = found.interval or (np.nan, np.nan)
            limits = f", with a 95% interval from {low:.3f} to {high:.3f}" if found.interval else ""
            text = (
                f"The network is not shown to predict {numbers.target} better than the mean does: r² is "
                f"{found.value:.3f}{limits}. Its sequences and motifs then mean nothing."
            )
            values = {"target": numbers.target, "r2": found.value, "interval": list(found.interval or ())}
            yield Caution("warning", text, "performance", "chance", values)


def _warn_of_shared_subjects(metadata: pd.DataFrame, performance: Performance) -> list[Caution]:
    labelled = ~np.isnan(performance.labels).all(axis=1)
    rows = Split(**{split: np.flatnonzero(performance.rows(split) & labelled) for split in SPLITS})
    found = find_subject_cautions(metadata, index_split_parts(rows, len(metadata)), apart="parts")
    if (
        performance.donors is None
        or performance.held_out is None
        or performance.subject_column in [f.details["column"] for f in found]
    ):
        return found
    targets = _list_target_kinds(performance)
    for target, kind in targets.items():
        where = f"{SPLIT_NAMES[performance.held_out]} repertoires{f' for {target}' * (len(targets) > 1)}: "
        classes = performance.classes(target)
        found += find_donor_cautions(
            performance.donors, str(performance.subject_column), classes, kind=kind, where=where
        )
    return found


def _list_target_kinds(performance: Performance) -> dict[str, TaskKind]:
    """Return the kind of each target by name; a target with several classes counts as binary, class by class."""
    found: dict[str, TaskKind] = {each.target: "binary" for each in performance.contrasts}
    return {**found, **{each.target: "regression" for each in performance.numbers}}


def find_control_cautions(
    controls: Sequence[Controls], within: Mapping[str, Sequence[StratifiedAuc]]
) -> Iterator[Caution]:
    """Yield a warning for each control that is not worse than the network, and a note if there is none.

    If the control reads columns of the sheet, and the network is better than chance within the values of each of them
    (`within`, by target), the warning also says so: then none of them alone explains what the network tells.
    """
    for each in controls:
        if each.is_of_class:
            continue
        for entry in each.to_list():
            if entry["relation"] != "worse":
                text = each.sentence(entry["control"])
                if entry["control"] == "sheet":
                    text += _describe_auc_within(within.get(each.contrast.target, []), each.columns)
                yield Caution("warning", text, "controls", "control-not-worse", entry)
        if each.comparison.empty:
            names = ", ".join(SHORT.values())
            text = f"Controls ({names}) are not compared with the network. {each.reasons[0]}"
            yield Caution("note", text, "controls", "no-control")


def _describe_auc_within(strata: Sequence[StratifiedAuc], columns: Sequence[str]) -> str:
    """Return a sentence if the AUC within the values of each column is known and above chance, otherwise ""."""
    if {each.column for each in strata} != set(columns) or not all(each.low > 0.5 for each in strata):
        return ""
    told = ", ".join(f"{each.column!r} ({each.auc:.3f}, {each.low:.3f} to {each.high:.3f})" for each in strata)
    alone = "it alone does not explain" if len(strata) == 1 else "none of them alone explains"
    return (
        f" But the network also tells the classes among repertoires with the same value of {told}: {alone} what the "
        "network has learned."
    )


def _warn_of_few_repertoires(performance: Performance) -> Iterator[Caution]:
    split = SPLIT_NAMES[performance.held_out or "test"]
    for target, aucs in _iterate_aucs(performance):
        sizes = {each.positive: min(auc.n_positive, auc.n_negative) for each, auc in aucs}
        few = {name: n for name, n in sizes.items() if is_few("binary", n)}
        if len(aucs) == 1 and few:
            ((contrast, auc),) = aucs
            (n,) = few.values()
            text = (
                f"Only {n:,} {split} {_pluralise(n, 'repertoire')} of the smaller "
                f"class{contrast.named}: the AUC may be anything from {auc.low:.3f} to {auc.high:.3f}."
            )
            yield Caution("warning", text, "performance", "few-repertoires", {"n": n})
        elif few:
            told = ", ".join(f"{name} ({n:,})" for name, n in few.items())
            text = (
                f"Few {split} repertoires of {target}, so that the AUC of {_name_these_classes(list(few))} "
                f"says little: {told}."
            )
            yield Caution("warning", text, "performance", "few-repertoires", {"n": min(few.values()), "sizes": few})
    for numbers in performance.numbers:
        found = numbers.r2(performance.rows(performance.held_out))
        if found is not None and is_few("regression", found.n):
            text = f"Only {found.n:,} {split} {_pluralise(found.n, 'repertoire')}{numbers.named}"
            if found.interval is not None:
                text += f": r² may be anything from {found.interval[0]:.3f} to {found.interval[1]:.3f}"
            yield Caution("warning", f"{text}.", "performance", "few-repertoires", {"n": found.n})


def _warn_of_overfitting(performance: Performance) -> Iterator[Caution]:
    told = "the network is overfitted to some of the former. Their sequences may stand out for no other reason."
    for target, contrasts in _group_by_target(performance):
        pairs = [
            (each, each.auc(performance.rows("train")), each.auc(performance.rows("validation"))) for each in contrasts
        ]
        learned = {
            each.positive: (training.value, validation.value)
            for each, training, validation in pairs
            if training and validation
            if _is_learned_by_heart(training.value, validation.value, training.low, 0.5, _GAP)
        }
        if learned:
            named = f" of {target}={', '.join(learned)}" if len(contrasts) > 1 else contrasts[0].named
            first, second = (", ".join(f"{of[i]:.3f}" for of in learned.values()) for i in range(2))
            text = f"The AUC{named} is {first} on training and {second} on validation repertoires: {told}"
            told_of = {"target": target, "classes": list(learned)}
            yield Caution("warning", text, "history", "learned-by-heart", told_of)
    for numbers in performance.numbers:
        yield from _warn_of_overfitted_numbers(numbers, performance, told)


def _is_learned_by_heart(training: float, validation: float, low: float, chance: float, gap: float) -> bool:
    """Return whether training is better than chance, and validation below its interval, by more than the gap."""
    return low > chance and validation < low and training - validation > gap


def _warn_of_overfitted_numbers(numbers: Numbers, performance: Performance, told: str) -> Iterator[Caution]:
    training, validation = numbers.r2(performance.rows("train")), numbers.r2(performance.rows("validation"))
    low = training.interval[0] if training and training.interval else np.nan
    if training and validation and _is_learned_by_heart(training.value, validation.value, low, 0.0, _GAP_R2):
        text = (
            f"r²{numbers.named} is {training.value:.3f} on training and {validation.value:.3f} on validation "
            f"repertoires: {told}"
        )
        yield Caution("warning", text, "history", "learned-by-heart")


def _name_these_classes(names: Sequence[str]) -> str:
    return "this class" if len(names) == 1 else "these classes"


def _pluralise(n: int, word: str) -> str:
    return word if n == 1 else f"{word}s"
