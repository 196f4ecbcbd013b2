"""Warnings about columns of the sheet, such as batches, within whose values the AUC is not better than chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deeprc.evaluation.caution import Caution
from deeprc.evaluation.strata import StratifiedAuc
from deeprc.runs.performance import Performance

__all__ = ["find_cross_validated_strata_cautions", "find_strata_cautions"]


def find_strata_cautions(
    stratified_aucs: Mapping[str, Sequence[StratifiedAuc]], performance: Performance, adjust_for: Sequence[str]
) -> Iterator[Caution]:
    """Yield a warning for each column within whose values the AUC is not better than chance.

    Parameters
    ----------
    stratified_aucs
        AUCs within the values of columns, by target.
    performance
        Performance of the run.
    adjust_for
        Metadata columns for which the training was adjusted.
    """
    for contrast in performance.contrasts:
        auc = contrast.measure_auc(performance.is_held_out)
        if auc is None:
            continue
        for stratified in stratified_aucs.get(contrast.target, ()):
            if stratified.explains(auc.value, auc.low):
                auc_text = _describe_lower_auc(stratified, contrast.for_target, auc.value)
                text = f"Among {auc_text} {_describe_learned_column(stratified.column, adjust_for)}"
                yield Caution("warning", text, "controls", "auc-within", stratified.to_dict())


def find_cross_validated_strata_cautions(
    stratified_aucs: Mapping[str, Sequence[StratifiedAuc]],
    metrics: Mapping[str, Mapping[str, Any]],
    adjust_for: Sequence[str],
) -> list[Caution]:
    """Return a warning for each column within whose values the cross-validated AUC is not better than chance."""
    cautions = []
    for target, aucs in stratified_aucs.items():
        auc, limits = metrics[target]["auc"], metrics[target]["auc_ci"]
        for stratified in aucs:
            if auc is not None and limits is not None and stratified.explains(auc, limits[0]):
                auc_text = _describe_lower_auc(stratified, "", auc)
                text = f"{target}: among {auc_text} {_describe_learned_column(stratified.column, adjust_for)}"
                details = {"target": target, **stratified.to_dict()}
                cautions.append(Caution("warning", text, "controls", "auc-within", details))
    return cautions


def _describe_lower_auc(stratified: StratifiedAuc, of_target: str, auc: float) -> str:
    """Return how much lower the AUC within the values of a column is, to put after "among"."""
    return (
        f"repertoires with the same {stratified.column!r}, the AUC{of_target} is {stratified.auc:.3f} "
        f"({stratified.low:.3f} to {stratified.high:.3f}), but {auc:.3f} over all repertoires."
    )


def _describe_learned_column(column: str, adjust_for: Sequence[str]) -> str:
    """Return sentences that say what a network may have learned instead of the target, and what to do."""
    if column in adjust_for:
        return f"The network may have learned {column!r} instead of the target, although training was adjusted for it."
    return f"The network may have learned {column!r} instead of the target. Train with `adjust_for={column}`."
