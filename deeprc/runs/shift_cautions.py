"""Warnings about predictions for repertoires that are unlike those of a model's training, or copies of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import numpy as np
from scipy import stats

from deeprc.errors import cut_name, describe_names, describe_texts, format_count
from deeprc.evaluation.caution import Caution
from deeprc.runs.shift import Shift
from deeprc.shift.feature_table import ASPECTS
from deeprc.shift.training_reference import MIN_DONORS, SHARE_BEYOND

__all__ = ["find_shift_cautions"]

_ALPHA = 0.01  # probability of a warning about the number of repertoires beyond the level if there is no shift
_FAR = 2.0  # factor of the level from which on a single repertoire causes a warning
_SHOWN = 3  # largest number of names, or reasons, in a message


def find_shift_cautions(shift: Shift) -> list[Caution]:
    """Return warnings about predictions for these repertoires, and about their metrics."""
    return [
        *_find_chain_cautions(shift),
        *_find_distance_cautions(shift),
        *_find_copy_cautions(shift),
        *_find_reading_cautions(shift),
        *_find_unknown_cautions(shift),
    ]


def _find_chain_cautions(shift: Shift) -> Iterator[Caution]:
    """Yield a warning if repertoires are of another chain than the training repertoires."""
    counts = Counter(filter(None, shift.other_chains))
    if not counts:
        return
    k = counts.total()
    chains = "; ".join(f"{text}{f' ({n:,})' if len(counts) > 1 else ''}" for text, n in counts.most_common(_SHOWN))
    text = (
        f"{_describe_count(shift, k, int(shift.is_new.sum()))} {'is' if k == 1 else 'are'} of another chain than the "
        f"training repertoires: {chains}. The model has learned almost nothing about this chain, so do not use "
        "these predictions."
    )
    names = [str(name) for name, chain in zip(shift.ids, shift.other_chains, strict=True) if chain]
    yield Caution("warning", text, "setup", "another-chain", {"chains": dict(counts), "names": names})


def _find_distance_cautions(shift: Shift) -> Iterator[Caution]:
    """Yield a warning or note if repertoires are unusually far from the training repertoires."""
    n, k = int((~np.isnan(shift.distance)).sum()), int(shift.is_beyond.sum())
    if k == 0:
        return
    p = float(
        stats.betabinom.sf(k - 1, n, SHARE_BEYOND * (shift.n_donors + 1), (1 - SHARE_BEYOND) * (shift.n_donors + 1))
    )
    are_many, is_far = p < _ALPHA, np.nan_to_num(shift.distance) > _FAR
    text = (
        f"{_describe_count(shift, k, n)} {'is' if k == 1 else 'are'} unlike the training repertoires: "
        f"{'its' if k == 1 else 'their'} shift, the distance from these, is above 1. Of repertoires of the same kind, "
        f"1 in {1 / SHARE_BEYOND:.0f} is above 1 (expected here: {SHARE_BEYOND * n:.3g}). "
    )
    if is_far.any() and not are_many:
        far = describe_names([str(name) for name in shift.ids[is_far]], "repertoire", "repertoires", _SHOWN)
        text += f"This number may be chance, but the shift is above {_FAR:.0f} in {far}. "
    text += _describe_common_reasons(shift)
    level: Literal["warning", "note"] = "warning" if are_many or is_far.any() else "note"
    if level == "warning":
        text += " Their predictions may be wrong, and the metrics of the training cohort do not hold for them."
    details = {"n": n, "beyond": k, "p_value": p, "names": shift.ids[shift.is_beyond].tolist()}
    yield Caution(level, text, "setup", "shift", details)


def _describe_count(shift: Shift, k: int, n: int) -> str:
    """Return the beginning of a sentence about k of n compared repertoires, such as "3 of the 12 new repertoires"."""
    return f"{k:,} of the {n:,} {shift.part} repertoires" if n > 1 else f"The {shift.part} repertoire"


def _describe_common_reasons(shift: Shift) -> str:
    """Return the most frequent reasons, each with its number of repertoires and the text of the median one."""
    counts: Counter[str] = Counter(aspect for reasons in shift.reasons for aspect, _ in reasons)
    frequent = sorted([name for name, _ in counts.most_common(_SHOWN)], key=ASPECTS.index)
    descriptions = []
    for aspect in frequent:
        repertoires = [
            (float(shift.distance[i]), str(shift.ids[i]), text)
            for i, reasons in enumerate(shift.reasons)
            for name, text in reasons
            if name == aspect
        ]
        _, name, text = sorted(repertoires)[len(repertoires) // 2]
        example = "for example " if len(repertoires) > 1 else ""
        descriptions.append(f"{aspect} in {format_count(len(repertoires), 'repertoire')}, {example}{name}: {text}")
    return "Reasons: " + "; ".join(descriptions) + "." if descriptions else ""


def _find_copy_cautions(shift: Shift) -> Iterator[Caution]:
    """Yield a warning if repertoires share more junctions with those of the training than chance explains."""
    ids_and_copies = [(str(name), copy) for name, copy in zip(shift.ids, shift.copies, strict=True) if copy is not None]
    if not ids_and_copies:
        return
    n = len(ids_and_copies)
    texts = [
        f"{cut_name(name)} is like {cut_name(match.repertoire_id)} ({match.overlap:.0%} of the junctions, "
        f"usual {match.typical_overlap:.1%})"
        for name, match in ids_and_copies
    ]
    shown = describe_texts(texts, "repertoire", "repertoires", _SHOWN)
    text = (
        f"{_describe_count(shift, n, int(shift.is_new.sum()))} share{'s' if n == 1 else ''} far more junctions with a "
        "training or validation repertoire than expected by chance. Such repertoires are copies under a different "
        f"name or from different processing, or samples of one donor. {shown}. Metrics that include them are too "
        "good."
    )
    details = {name: [match.repertoire_id, match.overlap] for name, match in ids_and_copies}
    yield Caution("warning", text, "setup", "copies-of-training", details)


def _find_reading_cautions(shift: Shift) -> Iterator[Caution]:
    """Yield a note if files were read with other settings than those of the training repertoires."""
    if shift.read_otherwise:
        differences = "; ".join(shift.read_otherwise)
        text = f"These files were read with other settings than the training files: {differences}."
        yield Caution("note", text, "setup", "read-otherwise")


def _find_unknown_cautions(shift: Shift) -> Iterator[Caution]:
    """Yield a note if models have no summary of their training repertoires to compare with."""
    if shift.n_unknown and shift.is_new.any():
        models = "the model has" if shift.n_models == 1 else f"{shift.n_unknown} of {shift.n_models} models have"
        text = (
            f"It is not known how far new repertoires are from the training repertoires: {models} no summary of "
            f"these (an earlier version trained it, it had fewer than {MIN_DONORS} donors, or it was fitted in "
            "Python)."
        )
        yield Caution("note", text, "setup", "shift-unknown")
