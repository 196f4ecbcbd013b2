"""What a reader must know before the rest of a report is believed, most important first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from deeprc.evaluation.predictor import NEW
from deeprc.evaluation.run import Run
from deeprc.evaluation.splits import SPLITS, Split, straddling_subjects
from deeprc.interpretation.report.controls import LABELS, Controls
from deeprc.interpretation.report.judged import SIDE_NAMES, Auc, Judged
from deeprc.interpretation.report.page import Caution
from deeprc.training.enrichment import LEVEL

__all__ = ["cautions"]

_FEW = 15  # repertoires of a class on the side that judges
_GAP = 0.1  # AUC on the training side above that on the validation side
_BROAD, _VERY_BROAD = 1 / 8, 1 / 2  # of the sequences that hold 90% of the attention: operating classes II and I


def cautions(
    run: Run,
    judged: Judged,
    controls: Sequence[Controls],
    *,
    metadata: pd.DataFrame,
    heads: pd.DataFrame,
    history: pd.DataFrame,
    seeds: pd.DataFrame,
) -> list[Caution]:
    """Return all cautions, the most important first.

    Parameters
    ----------
    run, judged, controls
        The run, how good it is, and its controls.
    metadata
        Of the cohort, one row per repertoire.
    heads
        See `deeprc.interpretation.survey.Survey`.
    history, seeds
        The run's `history.tsv` and `seeds.tsv`.
    """
    return [
        *_judging(judged),
        *_chance(judged),
        *_subjects(metadata, judged),
        *_confounding(controls),
        *_few(judged),
        *_overfitting(judged),
        *_doubtful(seeds),
        *_strangers(run, judged),
        *_broad(heads),
        *_unfinished(run, history),
    ]


def _aucs(judged: Judged) -> Iterator[tuple[str, Auc]]:
    for contrast in judged.contrasts:
        auc = contrast.auc(judged.rows(judged.side))
        if auc is not None:
            yield contrast.named, auc


def _judging(judged: Judged) -> Iterator[Caution]:
    if judged.side is None:
        text = (
            "This cohort has no labelled repertoire that the network has not been trained or selected on: nothing in "
            "this report says how good it is. The sequences and motifs may be those of these repertoires only."
        )
        yield Caution("warning", text, "performance")
        return
    for contrast in judged.contrasts:
        if contrast.auc(judged.rows(judged.side)) is None:
            text = (
                f"The {SIDE_NAMES[judged.side]} repertoires are of one class{contrast.named}: there is no "
                "AUC, and how good the network is is not known."
            )
            yield Caution("warning", text, "performance")


def _chance(judged: Judged) -> Iterator[Caution]:
    for name, auc in _aucs(judged):
        if auc.low <= 0.5:
            text = (
                f"The network{name} cannot be told from chance: its AUC is {auc.value:.3f}, with a 95% interval from "
                f"{auc.low:.3f} to {auc.high:.3f} that contains 0.5 or lies below it. The sequences and motifs below "
                "then mean nothing."
            )
            yield Caution("warning", text, "performance")
    for numbers in judged.numbers:
        r2 = judged.metrics.get(judged.side or "", {}).get(numbers.target, {}).get("r2")
        if r2 is not None and r2 <= 0:
            text = (
                f"The network predicts {numbers.target} no better than the mean does (r² = {r2:.3f}). The sequences "
                "and motifs below then mean nothing."
            )
            yield Caution("warning", text, "performance")


def _subjects(metadata: pd.DataFrame, judged: Judged) -> Iterator[Caution]:
    split = Split(**{side: np.flatnonzero(judged.rows(side)) for side in SPLITS})
    for column, n in straddling_subjects(metadata, split).items():
        text = (
            f"{n:,} {_plural(n, 'value')} of “{column}” {'has' if n == 1 else 'have'} repertoires on more than one "
            "side of the split: the network may know the person, not the disease, and its AUC may be too high. Train "
            f"with --group-by “{column}”."
        )
        yield Caution("warning", text, "setup")


def _confounding(controls: Sequence[Controls]) -> Iterator[Caution]:
    for each in controls:
        for name in each.reaching:
            yield Caution("warning", each.sentence(name), "controls")
        if each.comparison.empty:
            text = f"{LABELS['size']} and {LABELS['v-genes']} are not compared with the network. {each.reasons[0]}"
            yield Caution("note", text, "controls")


def _few(judged: Judged) -> Iterator[Caution]:
    for name, auc in _aucs(judged):
        smaller = min(auc.n_positive, auc.n_negative)
        if smaller < _FEW:
            text = (
                f"Only {smaller:,} {SIDE_NAMES[judged.side or '']} {_plural(smaller, 'repertoire')} of the smaller "
                f"class{name}: the AUC may be anything from {auc.low:.3f} to {auc.high:.3f}."
            )
            yield Caution("warning", text, "performance")


def _overfitting(judged: Judged) -> Iterator[Caution]:
    for contrast in judged.contrasts:
        training, validation = contrast.auc(judged.rows("train")), contrast.auc(judged.rows("validation"))
        if training and validation and training.value - validation.value > _GAP:
            text = (
                f"The AUC{contrast.named} is {training.value:.3f} on training and {validation.value:.3f} on "
                "validation repertoires: the network has learned some of the former by heart. Their sequences may "
                "stand out for no other reason."
            )
            yield Caution("warning", text, "history")


def _doubtful(seeds: pd.DataFrame) -> Iterator[Caution]:
    names = seeds.loc[seeds["p_value"] > LEVEL, "motif"].tolist() if "p_value" in seeds else []
    if names:
        text = (
            f"Training started from {len(names):,} {_plural(len(names), 'motif')} that did not stand out clearly in "
            f"the training repertoires, but held in the validation repertoires: {', '.join(names)}. The figures of the "
            "latter are better than they would be for new repertoires."
        )
        yield Caution("note", text, "performance")


def _strangers(run: Run, judged: Judged) -> Iterator[Caution]:
    new = judged.rows(NEW)
    n = int(new.sum())
    if n == 0:
        return
    known = {i for side in SPLITS for i in run.splits[side]}
    changed = sum(str(name) in known for name in judged.ids[new])
    if n == len(new):
        text = "None of this cohort's repertoires took part in training, validation or test: all are judged as “new”."
    else:
        text = f"{n:,} of {len(new):,} repertoires took no part in training, validation or test: they are “new”."
    if changed:
        text += f" {changed:,} of them {'has' if changed == 1 else 'have'} the id of one that did, but other sequences."
    yield Caution("warning" if changed else "note", text, "setup")


def _broad(heads: pd.DataFrame) -> Iterator[Caution]:
    occupied = heads[heads["n_sequences"] > 0]
    if occupied.empty:
        return
    shares = (occupied["metastable_size"] / occupied["n_sequences"]).groupby(occupied["head"]).median()
    least = float(shares.min())
    if least > _BROAD:
        is_very = least > _VERY_BROAD
        text = (
            f"Attention is {'very ' * is_very}broad: half of the repertoires need more than {least:.0%} of their "
            "sequences to collect 90% of it. A single sequence says little: look at what many share, the motifs."
        )
        yield Caution("warning" if is_very else "note", text, "attention")


def _unfinished(run: Run, history: pd.DataFrame) -> Iterator[Caution]:
    n_updates = run.settings.config.training.n_updates
    if history.empty or "validation_loss" not in history or int(history["update"].iloc[-1]) < n_updates:
        return
    if history["validation_loss"].idxmin() == history.index[-1]:
        text = (
            f"Training ended at its limit of {n_updates:,} updates while the validation loss was still falling: with "
            "more (n_updates) the network may become better."
        )
        yield Caution("note", text, "history")


def _plural(n: int, word: str) -> str:
    return word if n == 1 else f"{word}s"
