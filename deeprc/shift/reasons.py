"""Say in words, with numbers, what is unusual about a repertoire."""

from __future__ import annotations

import numpy as np

from deeprc.shift.feature_table import ASPECTS, FeatureTable, ShiftFeature, convert_from_scale
from deeprc.shift.training_reference import Deviations, Reference

__all__ = ["MAX_REASONS", "name_other_chains", "name_reasons"]

MAX_REASONS = 3
"""Largest number of aspects that are named for one repertoire."""

_GENES = ("V genes", "J genes")
_OF_SEQUENCES = ("chain", *_GENES)
_MOST = 0.75  # smallest share of the chain that a repertoire is of
_FEW = 0.05  # largest usual share of a chain that the training repertoires are not of


def name_reasons(reference: Reference, table: FeatureTable, deviations: Deviations) -> list[list[tuple[str, str]]]:
    """Return, for each repertoire, each aspect in which it is beyond the threshold, with a text about it.

    The text describes the feature of the aspect that deviates most. At most `MAX_REASONS` aspects are named, the
    farthest ones, in the order of `ASPECTS`, in which earlier ones explain later ones.
    """
    columns_of = _find_columns(reference)
    all_reasons = []
    for row in range(len(table)):
        z = np.nan_to_num(np.abs(deviations.z[row]))
        reasons = []
        for aspect in _choose_aspects(deviations, row, reference.threshold):
            farthest = max(columns_of[aspect], key=z.__getitem__)
            value = float(table.values[row, farthest])
            examples = table.examples.get(reference.features[farthest].name)
            reasons.append((aspect, _describe_value(reference, farthest, value, examples[row] if examples else "")))
        all_reasons.append(reasons)
    return all_reasons


def _find_columns(reference: Reference) -> dict[str, list[int]]:
    """Return the indices of the features of each aspect."""
    columns_of: dict[str, list[int]] = {}
    for column, feature in enumerate(reference.features):
        columns_of.setdefault(feature.aspect, []).append(column)
    return columns_of


def _choose_aspects(deviations: Deviations, row: int, threshold: float) -> list[str]:
    """Return the aspects that are named for the repertoire at a row; see `name_reasons`."""
    beyond = {aspect: values[row] for aspect, values in deviations.by_aspect.items() if values[row] > threshold}
    if "chain" in beyond:  # another chain has other genes
        beyond = {aspect: distance for aspect, distance in beyond.items() if aspect not in _GENES}
    farthest = sorted(beyond, key=lambda aspect: -beyond[aspect])[:MAX_REASONS]
    return sorted(farthest, key=ASPECTS.index)


def name_other_chains(reference: Reference, table: FeatureTable) -> list[str]:
    """Return, for each repertoire of a chain that training repertoires lack, both chains, as in "TRA, trained on TRB".

    The text is empty for other repertoires, and for those whose genes are not known.
    """
    columns = _find_columns(reference).get("chain", [])
    names = [reference.features[i].name for i in columns]
    usual = [convert_from_scale("share", reference.high[i]) for i in columns]
    trained_on = " and ".join(name for name, share in zip(names, usual, strict=True) if share > _FEW)
    if not trained_on:
        return [""] * len(table)
    texts = []
    for values in table.values[:, columns]:
        shares = [convert_from_scale("share", value) for value in np.nan_to_num(values)]
        most = int(np.argmax(shares))
        is_other = shares[most] >= _MOST and usual[most] <= _FEW
        texts.append(f"{names[most]}, trained on {trained_on}" if is_other else "")
    return texts


def _describe_value(reference: Reference, column: int, value: float, example: str) -> str:
    """Return a text that says what the value of a feature is, and what it is in training repertoires."""
    feature = reference.features[column]
    new, low, high, middle = (
        convert_from_scale(feature.scale, scaled)
        for scaled in (value, reference.low[column], reference.high[column], reference.mean[column])
    )
    shown, usual = _format_value(feature, new), _format_range(_format_value(feature, low), _format_value(feature, high))
    if feature.name == "depth":
        return f"depth {_format_ratio(new, middle)} ({shown} sequences, trained on {usual})"
    if feature.name == "mean count":
        return f"mean count {_format_ratio(new, middle)} ({shown}, trained on {usual})"
    if feature.aspect in _OF_SEQUENCES:
        example_text = f" (most often {example})" if example else ""
        return f"{feature.name} in {shown}{example_text}, trained on {usual}"
    return f"{feature.name}{' in' if feature.aspect == 'residues' else ''} {shown}, trained on {usual}"


def _format_ratio(new: float, usual: float) -> str:
    ratio = max(new, usual) / max(min(new, usual), 0.5)
    return f"{f'{ratio:.0f}' if ratio >= 9.5 else f'{ratio:.1f}'} times {'lower' if new < usual else 'higher'}"


def _format_range(low: str, high: str) -> str:
    if low == high:
        return low
    return f"{low.removesuffix('%')} to {high}" if low.endswith("%") else f"{low} to {high}"


def _format_value(feature: ShiftFeature, value: float) -> str:
    if feature.name == "depth":
        return f"{value:,.0f}"
    if feature.scale == "share" and feature.name != "clonality":
        percent = 100 * value
        return f"{percent:.0f}%" if percent >= 9.95 or percent < 0.005 else f"{percent:.2g}%"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
