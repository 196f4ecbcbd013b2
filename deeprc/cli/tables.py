"""Metrics, warnings and summaries of heads as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deeprc.errors import show_parameters

if TYPE_CHECKING:
    from deeprc.evaluation.caution import Caution
    from deeprc.hopfield.analysis import HeadSummary

__all__ = ["format_cautions", "format_heads", "format_metrics"]

_COLUMNS = (
    "n",
    "auc",
    "auc_ci",
    "cutoff",
    "f1",
    "balanced_accuracy",
    "accuracy",
    "r2",
    "r2_ci",
    "spearman",
    "spearman_ci",
    "mae",
    "mae_ci",
    "loss",
    "loss_base_rate",
    "brier",
    "brier_base_rate",
    "calibration_error",
)
_SEEN = {
    "train": "fitted to the 'train' repertoires",
    "validation": "chosen with the 'validation' repertoires",
}
_Metrics = Mapping[str, Mapping[str, Mapping[str, Any]]]  # values by part of the split, target and name
_ABOUT_CONTROLS = "Control methods, which see no amino-acid sequence (difference to the network, p of a paired test):"


def format_metrics(metrics: _Metrics) -> str:
    """Return the content of `metrics.json` as text: a table of splits and targets, and a table of control methods."""
    import pandas as pd  # imported here, because it takes half a second, for which --help must not wait

    rows = [
        {
            "split": part,
            "target": target,
            "positive": values.get("positive_class", ""),
            **{name: _format_value(values[name]) for name in _COLUMNS if name in values},
        }
        for part, target, values in _iterate_targets(metrics)
    ]
    positive_column = ["positive"] if any(row["positive"] for row in rows) else []
    columns = ["split", "target", *positive_column, *(name for name in _COLUMNS if any(name in row for row in rows))]
    table = pd.DataFrame(rows, columns=columns).fillna("").to_string(index=False)
    controls = [
        _make_control_row(part, target, control)
        for part, target, values in _iterate_targets(metrics)
        for control in values.get("controls", [])
    ]
    seen = " and ".join(text for part, text in _SEEN.items() if part in metrics)
    parts = [table]
    if seen:
        parts.append(f"Judge the model by the rows 'test' and 'new' only. It was {seen}: their rows may be too good.")
    parts += _format_variation(metrics)
    parts += _format_within(metrics)
    if controls:
        parts.append(_ABOUT_CONTROLS)
        parts.append(pd.DataFrame(controls).fillna("").to_string(index=False))
    return "\n".join(parts)


def _iterate_targets(metrics: _Metrics) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield each part of the split with each target and its values."""
    for part, targets in metrics.items():
        for target, values in targets.items():
            yield part, target, values


def _format_variation(metrics: _Metrics) -> Iterator[str]:
    """Yield a line with the shares of the variance of each output between held-out repertoires."""
    for part, _, values in _iterate_targets(metrics):
        for variation in values.get("variation", []):
            shares = ", ".join(f"{name} {round(share, 2) + 0.0:.0%}" for name, share in variation["shares"].items())
            outputs = f"outputs of the {_name_repertoires(part)} ({variation['output']})"
            yield f"Differences between the {outputs} come from: {shares}"


def _format_within(metrics: _Metrics) -> Iterator[str]:
    """Yield a line with the AUCs of each target within the values of metadata columns."""
    for part, target, values in _iterate_targets(metrics):
        column_texts = [
            f"{stratified['column']}: {stratified['auc']:.3f} ({_format_value(stratified['auc_ci'])})"
            for stratified in values.get("within", [])
        ]
        if column_texts:
            among = _name_repertoires(part)
            yield f"AUC of {target} among {among} with the same {', with the same '.join(column_texts)}"


def _name_repertoires(part: str) -> str:
    """Return the repertoires of a part of the split in words; the part may be followed by ` of ` and a run's name."""
    split, separator, run = part.partition(" of ")
    return f"{split} repertoires{separator}{run}"


def _make_control_row(part: str, target: str, values: Mapping[str, Any]) -> dict[str, str]:
    from deeprc.evaluation.significance import format_p_value  # imported here, because it needs numpy
    from deeprc.runs.control_comparison import NAMES

    measure = "r2" if "r2" in values else "auc"
    control = NAMES.get(values["control"], values["control"])
    row = {"split": part, "target": values.get("contrast", target), "control": control}
    numbers = {name: _format_value(values.get(name)) for name in (measure, f"{measure}_ci", "difference")}
    p_value = values["p_value"]
    return {**row, **numbers, "p_value": "undefined" if p_value is None else format_p_value(p_value)}


def format_cautions(cautions: Sequence[Caution]) -> Iterator[str]:
    """Yield each warning as a line of text."""
    for caution in cautions:
        yield f"{'Warning' if caution.level == 'warning' else 'Note'}: {show_parameters(caution.text)}"


def format_heads(heads: Sequence[HeadSummary]) -> Iterator[str]:
    """Yield a line for each head with the number of sequences that have 90% of its attention."""
    for head in heads:
        size, low, high = (f"{value:,.0f}" for value in (head.median_size, head.lower_quartile, head.upper_quartile))
        yield (
            f"head {head.head}: 90% of the attention is on {size} sequences (median of the repertoires; quartiles "
            f"{low} and {high}), {head.median_fraction:.1%} of a repertoire"
        )


def _format_value(value: Any) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, list):
        joint = " to " if min(value) < 0 else "-"
        return joint.join(f"{limit:.3f}" for limit in value)
    return str(value) if isinstance(value, int) else f"{value:.3f}"
