"""The first thing that a report says: a few plain sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.run import Run
from deeprc.interpretation.report.controls import Controls
from deeprc.interpretation.report.judged import SIDE_NAMES, Contrast, Judged
from deeprc.interpretation.report.sides import SidePage
from deeprc.tasks import Task

__all__ = ["summary"]

_SHORT = {"size": "repertoire size", "v-genes": "V gene usage", "genes": "V and J gene usage"}


def summary(
    run: Run, dataset: RepertoireDataset, judged: Judged, controls: Sequence[Controls], sides: Sequence[SidePage]
) -> list[tuple[str, str]]:
    """Return the report in brief: terms and sentences."""
    lines = [("Question", " ".join(_question(task) for task in run.tasks))]
    n = {name: int(judged.rows(side).sum()) for side, name in SIDE_NAMES.items()}
    sizes = ", ".join(f"{count:,} {name}" for name, count in n.items() if count)
    name = Path(dataset.container.path).name
    lines.append(
        (
            "Cohort",
            f"{len(dataset):,} repertoires of {name} with {int(dataset.n_sequences.sum()):,} sequences: {sizes}.",
        )
    )
    lines += [(f"Answer{contrast.named}", _answer(contrast, judged)) for contrast in judged.contrasts]
    for numbers in judged.numbers:
        found = judged.metrics.get(judged.side or "", {}).get(numbers.target, {})
        if found.get("r2") is not None:
            told = f"r² {found['r2']:.3f}, mean error {found['mae']:.3g}, on {found['n']:,} repertoires"
            lines.append(("Answer", f"{numbers.target} is predicted with {told} that the network had not seen."))
    lines += [(f"Controls{each.contrast.named}", _compared(each)) for each in controls if not each.comparison.empty]
    for page in sides:
        lines.append((f"First motif for {page.side.name}", page.first or _no_motif(page)))
    return lines


def _no_motif(page: SidePage) -> str:
    if page.n_sequences == 0:
        return "None: no sequence speaks for it."
    return f"None is more frequent among the {page.n_sequences:,} sequences that speak most for it than elsewhere."


def _question(task: Task) -> str:
    if task.kind == "regression":
        return f"Do receptor sequences tell the value of “{task.column}”?"
    if task.kind == "multiclass":
        return f"Do receptor sequences tell the class of “{task.column}”: {', '.join(task.classes)}?"
    return f"Do receptor sequences tell whether “{task.column}” is {task.classes[-1]} or {task.negative}?"


def _answer(contrast: Contrast, judged: Judged) -> str:
    auc = contrast.auc(judged.rows(judged.side))
    if auc is None:
        return "Not known: there are no repertoires of both classes that the network has not seen."
    n = int((judged.rows(judged.side) & ~np.isnan(contrast.label)).sum())
    verdict = "cannot be shown to tell" if auc.low <= 0.5 else "tells"
    return (
        f"The network {verdict} {contrast.positive} from {contrast.negative}: its AUC is {auc.value:.3f} (95% interval "
        f"{auc.low:.3f} to {auc.high:.3f}; 1 is perfect, 0.5 is guessing) on {n:,} {SIDE_NAMES[judged.side or '']} "
        f"repertoires that it had not seen, {auc.n_positive:,} of them {contrast.positive}."
    )


def _compared(controls: Controls) -> str:
    named = [f"{_SHORT[name]} {auc:.3f}" for name, auc in controls.aucs.items() if name != "network"]
    if not named:
        return "None could be fitted."
    if controls.reaching:
        not_better = " or ".join(_SHORT[name] for name in controls.reaching)
        verdict = f"the network is not shown to be better than {not_better}"
    else:
        verdict = "the network is better"
    return f"Classifiers that read no receptor sequence have an AUC of: {', '.join(named)}; {verdict}."
