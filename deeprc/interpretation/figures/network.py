"""A picture of a network, from residues to outputs, with the sizes of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from deeprc.config import NetworkConfig
from deeprc.drawing import COLOURS, INK, MUTED, require_matplotlib, shorten_name
from deeprc.tasks import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_network_figure"]

_BLUE, _RED, _GREEN, _ = COLOURS  # colours of learned parts, outputs and data
_WIDTH, _HEIGHT = 1.75, 0.95  # size of a box in inches
_WIDE = 3.0  # width of the box of all branches in inches
_TOP, _MIDDLE, _BOTTOM = 3.3, 2.0, 0.7  # middle of the boxes of each row
_DATA, _ENCODER, _SEQUENCES, _POOLING, _OUTPUTS = 0.15, 2.45, 4.75, 7.05, 9.3  # left edge of the boxes of each column
_MAX_OUTPUTS = 4  # number of lines for the names of the outputs
_BRANCHES = {"clones": "stored clones that it carries"}  # text for a branch that lists no features


@require_matplotlib
def draw_network_figure(config: NetworkConfig, tasks: Sequence[Task], branches: Mapping[str, Sequence[str]]) -> Figure:
    """Draw the parts of a network as boxes, with their sizes, and arrows between them.

    Parameters
    ----------
    config
        Settings of the network.
    tasks
        Tasks that it predicts.
    branches
        Names of its branches, with the features that each reads, see `Model.branch_features`.
    """
    from matplotlib.figure import Figure

    bottom = 0.0 if branches else _MIDDLE - 0.8
    figure = Figure(figsize=(11.2, 4.0 - bottom))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, 11.2), ylim=(bottom, 4.0))
    axis.set_axis_off()
    _draw_boxes(axis, config, tasks)
    _draw_arrows(axis)
    if branches:
        _draw_branches(axis, branches)
    return figure


def _draw_boxes(axis: Axes, config: NetworkConfig, tasks: Sequence[Task]) -> None:
    """Draw the boxes of all parts but the branches."""
    n_values = config.n_kernels + 2 * config.gene_units
    keys = f"{config.n_key_layers} SELU layers\nof {config.key_units} units" if config.n_key_layers else "the values"
    queries = "query" if config.n_heads == 1 else "queries"
    heads = f"{config.n_heads} learned {queries}\nsoftmax({_describe_beta(config)} q·k)"
    mean = f"{config.n_heads * n_values} numbers\nof the repertoire" + (",\nstandardised" if config.standardise else "")
    _draw_box(axis, _DATA, _MIDDLE, "Repertoire", "N sequences of residues" + _describe_features(config), _GREEN)
    _draw_box(axis, _ENCODER, _MIDDLE, "Representation, h1", _describe_encoder(config), _BLUE)
    _draw_box(axis, _SEQUENCES, _TOP, "Keys, h2", keys, _BLUE)
    _draw_box(axis, _SEQUENCES, _MIDDLE, "Values", f"{n_values} numbers\nof each sequence", MUTED)
    _draw_box(axis, _POOLING, _TOP, "Attention", heads, _BLUE)
    _draw_box(axis, _POOLING, _MIDDLE, "Weighted mean", mean, MUTED)
    _draw_box(axis, _OUTPUTS, _MIDDLE, "Outputs, o", _describe_outputs(config, tasks), _RED)


def _draw_arrows(axis: Axes) -> None:
    """Draw the arrows between the boxes of `_draw_boxes`: along both rows, and up and down between the rows."""
    for left, right in pairwise((_DATA, _ENCODER, _SEQUENCES)):
        _draw_arrow(axis, left + _WIDTH, _MIDDLE, right, _MIDDLE)
    below_top, above_middle = _TOP - _HEIGHT / 2, _MIDDLE + _HEIGHT / 2
    _draw_arrow(axis, _SEQUENCES + _WIDTH / 2, above_middle, _SEQUENCES + _WIDTH / 2, below_top)
    _draw_arrow(axis, _SEQUENCES + _WIDTH, _TOP, _POOLING, _TOP)
    _draw_arrow(axis, _SEQUENCES + _WIDTH, _MIDDLE, _POOLING, _MIDDLE)
    _draw_arrow(axis, _POOLING + _WIDTH / 2, below_top, _POOLING + _WIDTH / 2, above_middle)
    _draw_arrow(axis, _POOLING + _WIDTH, _MIDDLE, _OUTPUTS, _MIDDLE)


def _draw_branches(axis: Axes, branches: Mapping[str, Sequence[str]]) -> None:
    """Draw the box of all branches, between the repertoire and the outputs."""
    lines = [
        f"{name}: {', '.join(features) or _BRANCHES.get(name, 'of the whole repertoire')}"
        for name, features in branches.items()
    ]
    left, below_middle = (_SEQUENCES + _WIDTH / 2) - _WIDE / 2, _MIDDLE - _HEIGHT / 2
    text = "\n".join([*lines, "each times a learned gain"])
    _draw_box(axis, left, _BOTTOM, "Branches", text, _BLUE, width=_WIDE)
    _draw_arrow(axis, _DATA + _WIDTH / 2, below_middle, left, _BOTTOM, bent=True)
    _draw_arrow(axis, left + _WIDE, _BOTTOM, _OUTPUTS + _WIDTH / 2, below_middle, bent=True)
    axis.text(_OUTPUTS + _WIDTH / 2 + 0.1, _BOTTOM + 0.2, "added", fontsize=8, color=MUTED, va="center")


def _describe_features(config: NetworkConfig) -> str:
    return "\n20 residues, 3 positions" + (
        "" if config.abundance == "none" else f"\nscaled by {config.abundance}(count)"
    )


def _describe_encoder(config: NetworkConfig) -> str:
    if config.embedding == "convolution":
        text = f"{config.n_kernels} kernels of {config.kernel_size} residues,\nmaximum, SELU"
    else:
        text = f"{config.embedding}, {config.n_kernels} units"
    return text + (f"\nV and J gene: {config.gene_units} each" if config.gene_units else "")


def _describe_beta(config: NetworkConfig) -> str:
    return "learned β" if config.learn_beta else f"{config.beta or config.key_units**-0.5:.3g}"


def _describe_outputs(config: NetworkConfig, tasks: Sequence[Task]) -> str:
    n = config.n_output_layers
    layers = "linear" if n == 1 else f"{n} layers, {config.output_units} units"
    names = [shorten_name(task.name, 24) for task in tasks]
    more = [f"and {len(names) - _MAX_OUTPUTS + 1} more"] if len(names) > _MAX_OUTPUTS else []
    return "\n".join([layers, *(names[: _MAX_OUTPUTS - 1] + more if more else names)])


def _draw_box(axis: Axes, x: float, y: float, title: str, text: str, colour: str, *, width: float = _WIDTH) -> None:
    """Draw a box whose left edge is at x and whose middle is at y."""
    from matplotlib.patches import FancyBboxPatch

    height = max(_HEIGHT, 0.36 + 0.17 * (text.count("\n") + 1))
    axis.add_patch(
        FancyBboxPatch(
            (x + 0.05, y - height / 2 + 0.05),
            width - 0.1,
            height - 0.1,
            boxstyle="round,pad=0.05",
            edgecolor=colour,
            facecolor="none",
            linewidth=1.6,
        )
    )
    top = y + height / 2
    axis.text(x + width / 2, top - 0.18, title, ha="center", va="center", fontsize=9, weight="bold", color=INK)
    axis.text(x + width / 2, (y - height / 2 + top - 0.3) / 2, text, ha="center", va="center", fontsize=8, color=INK)


def _draw_arrow(axis: Axes, x0: float, y0: float, x1: float, y1: float, *, bent: bool = False) -> None:
    from matplotlib.patches import FancyArrowPatch

    is_down = y1 < y0
    style = f"angle,angleA={90 if is_down else 0},angleB={0 if is_down else 90},rad=8" if bent else "arc3"
    axis.add_patch(
        FancyArrowPatch(
            (x0, y0), (x1, y1), arrowstyle="-|>", mutation_scale=10, color=MUTED, linewidth=1.2, shrinkA=2, shrinkB=2,
            connectionstyle=style,
        )
    )  # fmt: skip
