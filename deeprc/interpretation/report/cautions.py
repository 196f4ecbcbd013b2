"""All warnings and notes of a report, most important first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.errors import format_count
from deeprc.evaluation.caution import Caution, read_cautions
from deeprc.evaluation.splits import NEW, PARTS
from deeprc.interpretation.figures.classes import format_class_names
from deeprc.nn.sequence_scores import ATTENTION
from deeprc.runs.assess import Assessment
from deeprc.runs.model_cautions import UNUSED_ATTENTION
from deeprc.runs.performance import Performance
from deeprc.runs.predictor import Predictor
from deeprc.runs.run import Run
from deeprc.tasks import Task
from deeprc.training.history import find_kept_update
from deeprc.training.motif_search import MOTIF_LEVEL

__all__ = ["collect_cautions"]

_SILENT = 0.1  # share of the outputs' variance below which the attention explains little
_BROAD, _VERY_BROAD = 1 / 8, 1 / 2  # shares of sequences with 90% of the attention: operating classes II and I


def collect_cautions(
    predictor: Predictor, assessment: Assessment, *, heads: pd.DataFrame, relabelled: bool = False
) -> list[Caution]:
    """Return all warnings and notes, most important first.

    Parameters
    ----------
    predictor, assessment
        The run or ensemble, and its assessment.
    heads
        Table of the heads, see `deeprc.interpretation.survey.Survey`.
    relabelled
        Whether the metadata have changed since training, so that stored warnings about them are out of date.
    """
    performance = assessment.performance
    cautions = [
        *assessment.cautions,
        *([] if relabelled else _collect_stored_cautions(predictor.runs, assessment.cautions)),
        *(caution for run in predictor.runs for caution in _warn_of_doubtful_start_motifs(run.start_motifs())),
        *_warn_of_new_repertoires(predictor.runs, performance),
        *(_note_silent_attention(assessment) or _warn_of_broad_attention(heads, performance, predictor.model.tasks)),
        *(caution for run in predictor.runs for caution in _warn_of_unfinished_training(run, run.history())),
    ]
    return list({caution.text: caution for caution in cautions}.values())  # several runs may have the same warning


def _collect_stored_cautions(runs: Sequence[Run], known: Sequence[Caution]) -> list[Caution]:
    """Return stored warnings about cohort and split of the trainings that are not also found in this cohort.

    A caution is also found if one with the same name and details is: an older version may have worded it differently.
    """
    texts = {caution.text for caution in known}
    details = [(caution.name, caution.details) for caution in known if caution.details]
    stored = [caution for run in runs for caution in read_cautions(run.path) if caution.section == "setup"]
    return [
        caution for caution in stored if caution.text not in texts and (caution.name, caution.details) not in details
    ]


def _warn_of_doubtful_start_motifs(start_motifs: pd.DataFrame) -> Iterator[Caution]:
    is_known = "p_value" in start_motifs  # runs of earlier versions lack this column
    names = start_motifs.loc[start_motifs["p_value"] > MOTIF_LEVEL, "motif"].tolist() if is_known else []
    if names:
        text = (
            f"Training started from {format_count(len(names), 'motif')} that did not stand out clearly in "
            "the training repertoires, but were confirmed in the validation repertoires: "
            f"{', '.join(names)}. So the metrics of the validation repertoires are better than they would be for "
            "new repertoires."
        )
        yield Caution("note", text, "performance")


def _warn_of_new_repertoires(runs: Sequence[Run], performance: Performance) -> Iterator[Caution]:
    """Yield a warning or note if repertoires of this cohort are in no part of the split of the runs."""
    new = performance.is_in(NEW)
    n = int(new.sum())
    if n == 0:
        return
    if all(run.bundle is not None for run in runs):
        return  # the assessment warns that they cannot recognise their training repertoires
    known = {i for run in runs for part in PARTS for i in run.splits[part]}
    changed = sum(str(name) in known for name in performance.ids[new])
    if n == len(new):
        text = "None of this cohort's repertoires took part in training, validation or test: all are judged as “new”."
    else:
        text = f"{n:,} of {len(new):,} repertoires took no part in training, validation or test: they are “new”."
    if changed:
        has = "has" if changed == 1 else "have"
        text += f" {changed:,} of them {has} the id of one that took part, but other sequences."
    yield Caution("warning" if changed else "note", text, "setup")


def _note_silent_attention(assessment: Assessment) -> list[Caution]:
    """Return a note if almost nothing of any output comes through the attention.

    If the assessment says that no run uses its attention, this warning is returned instead.
    """
    known = [
        caution
        for caution in assessment.cautions
        if caution.name == UNUSED_ATTENTION and caution.details["n"] == caution.details["n_runs"]
    ]
    if known:
        return known
    shares = [output_variation.shares[ATTENTION] for output_variation in assessment.variation]
    if not shares or max(shares) >= _SILENT:
        return []
    text = (
        f"Only {max(0.0, *shares):.0%} of the variance of the output comes through the attention. So the sequences "
        "with much attention, and the kernels, say little about the target: look at the other branches."
    )
    return [Caution("note", text, "branches")]


def _warn_of_broad_attention(heads: pd.DataFrame, performance: Performance, tasks: Sequence[Task]) -> Iterator[Caution]:
    """Yield warnings if attention is broad in repertoires in which it should be narrow.

    For a binary target these are the positive repertoires: they have the sequences on which attention can concentrate,
    and the negative ones lack them. If a target has several classes, one with narrow attention is enough. For a number,
    all repertoires count.
    """
    occupied = heads[heads["n_sequences"] > 0]
    if occupied.empty:
        return
    texts: list[tuple[float, str]] = []
    for i, task in enumerate(tasks):
        shares = _compute_attended_shares(occupied, performance, task, performance.labels[:, i])
        sought = (
            shares.get(task.class_names[1], min(shares.values())) if task.kind == "binary" else min(shares.values())
        )
        texts.append((sought, _format_shares(shares)))
    least, text = min(texts)
    if least > _BROAD:
        is_very = least > _VERY_BROAD
        text = (
            f"Attention is {'very broad' if is_very else 'broad'}: in half of the repertoires, 90% of it is on more "
            f"than {text} of the sequences. A single sequence says little: look at the motifs, which many sequences "
            "share."
        )
        yield Caution("warning" if is_very else "note", text, "attention")


def _compute_attended_shares(
    occupied: pd.DataFrame, performance: Performance, task: Task, labels: NDArray[np.float64]
) -> dict[str, float]:
    """Return the share of sequences with 90% of the attention: the median over repertoires by class, narrowest head.

    For a number, or if no repertoire with attention has a label, all repertoires are one class, "".
    """
    share = occupied["metastable_size"] / occupied["n_sequences"]
    class_of = dict(zip(performance.ids, format_class_names(task, labels), strict=True))
    names = occupied["repertoire_id"].map(class_of).fillna("")
    if task.kind == "regression" or (names == "").all():
        names = pd.Series("", index=occupied.index)
    medians = share.groupby([names, occupied["head"]]).median().groupby(level=0).min()
    return {str(name): float(value) for name, value in medians.items() if name or len(medians) == 1}


def _format_shares(shares: Mapping[str, float]) -> str:
    """Return a text with the median share of each class with broad attention."""
    broad = {name: share for name, share in shares.items() if share > _BROAD}
    return ", ".join(f"{share:.0%}{f' ({name})' if name else ''}" for name, share in broad.items())


def _warn_of_unfinished_training(run: Run, history: pd.DataFrame) -> Iterator[Caution]:
    n_updates = run.settings.config.training.n_updates
    if history.empty or "validation_loss" not in history or int(history["update"].iloc[-1]) < n_updates:
        return
    kept_last = find_kept_update(history) == int(history["update"].iloc[-1])
    if len(history) > 1 and kept_last and history["validation_loss"].idxmin() == history.index[-1]:
        text = (
            f"Training ended at its limit of {n_updates:,} updates while the validation loss was still falling: with "
            "more updates (n_updates), the network may become better."
        )
        yield Caution("note", text, "history")
