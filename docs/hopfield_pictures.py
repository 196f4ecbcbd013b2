"""Pictures and numbers of docs/hopfield.md, which `hopfield_examples.py` computes and this script draws and writes.

python docs/hopfield_pictures.py [--output docs/pictures]

With the same versions of the libraries it writes the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import hopfield_examples as examples
import numpy as np
import torch
from drawing import BLACK, BLUE, GREEN, PURPLE, RED, need_matplotlib, write_picture
from hopfield_examples import Part

from deeprc.hopfield import theory

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from torch import Tensor

STYLES = [(BLACK, "-", "o"), (BLUE, "--", "s"), (RED, "-.", "^"), (GREEN, ":", "D"), (PURPLE, (0, (5, 1)), "v")]


def draw_energies(part: Part) -> Figure:
    """Draw the energy along updates; the second β also has an enlarged part."""
    figure, axes = _axes(1, 3, (8, 3.2))
    (large, of_large), (small, of_small) = part.data["curves"].items()
    curves = ((f"β = {large:g}", of_large), (f"β = {small:g}", of_small), (f"β = {small:g}, lowest energies", of_small))
    for axis, (title, curve) in zip(axes, curves, strict=True):
        for name, path, (colour, dashes, marker) in zip(part.data["names"], curve.T.tolist(), STYLES, strict=True):
            axis.plot(path, color=colour, linestyle=dashes, marker=marker, label=name, linewidth=1.2)
        axis.set(title=title, xlabel="updates", xticks=range(0, 11, 2))
    for axis in axes[:2]:
        for bound in (0, part.numbers["bound"]):
            axis.axhline(bound, color="0.6", linewidth=0.8)
        axis.text(10, part.numbers["bound"] - 3, "2 M²", ha="right", va="top", color="0.4")
        axis.set(ylim=(-8, 138))
    axes[0].set(ylabel="energy E")
    axes[2].set(ylim=(10, 17))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def draw_retrievals(part: Part) -> Figure:
    """Draw the first ten digits: stored, corrupted, after one update, and after convergence."""
    rows: list[tuple[str, Tensor | None]] = [("stored", part.data["stored"])]
    for name, beta, start, once, final in part.data["blocks"]:
        rows += [("", None), (name, start), (f"one update, β = {beta:g}", once), (f"at rest, β = {beta:g}", final)]
    tops = np.cumsum([0] + [4 if pictures is None else 9 for _, pictures in rows])
    canvas = np.full((tops[-1] - 1, 89), np.nan)
    for top, (_, pictures) in zip(tops, rows, strict=False):
        if pictures is not None:
            for column, picture in enumerate(pictures[:10].view(10, 8, 8)):
                canvas[top : top + 8, 9 * column : 9 * column + 8] = picture
    figure, axis = _axes(1, 1, (6.6, 5.8))
    axis.imshow(canvas, cmap="gray_r", interpolation="nearest", vmin=-1.5, vmax=2.5)
    axis.set(xticks=(), yticks=tops[:-1] + 3.5, yticklabels=[name for name, _ in rows])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return figure


def draw_error_bounds(part: Part) -> Figure:
    """Draw observed errors and the bound against the distance of the initial state."""
    numbers, diameter = part.numbers, part.data["diameter"]
    figure, axis = _axes(1, 1, (5.6, 3.2))
    useful = [(x, y) for x, y in zip(numbers["distances"], numbers["bounds"], strict=True) if y < 1e3 * diameter]
    axis.loglog(*zip(*useful, strict=True), color=BLUE, linestyle="--", label="bound of Theorem 5")
    axis.loglog(numbers["distances"], numbers["observed"], "o-", color=BLACK, label="largest of 50 starts")
    axis.axhline(diameter, color="0.6", linewidth=0.8)
    axis.text(11, diameter * 1.6, "above 2 M it says nothing", ha="right", color="0.4")
    axis.set(xlabel="distance of the start from the pattern", ylabel="error after one update", ylim=(None, 1e5))
    axis.legend(loc="upper left")
    return figure


def draw_fixed_points(part: Part) -> Figure:
    """Draw paths to the fixed points at three β, and the size of metastable states against β."""
    figure, axes = _axes(2, 2, (7, 7.2))
    names = ("global average", "metastable states", "single patterns")
    for axis, name, (beta, path, rest) in zip(axes.flat, names, part.data["fields"], strict=False):
        gap = torch.full_like(path[:1], torch.nan)  # between paths, so that all are one line: a smaller file
        tracks = torch.cat([path, gap]).permute(2, 1, 0).flatten(1)  # (T + 1, S, 2) -> (2, S * (T + 1))
        axis.plot(*tracks.tolist(), color="0.75", linewidth=0.8, zorder=1)
        axis.scatter(*path[0].T.tolist(), s=4, color="0.6", zorder=2, label="start, and its path")
        axis.scatter(*part.data["stored"].T.tolist(), s=42, color="white", ec=BLUE, zorder=3, label="stored pattern")
        axis.scatter(*rest.T.tolist(), s=30, marker="x", color=RED, linewidth=1.8, zorder=4, label="fixed point")
        axis.set(title=f"β = {beta:g}: {name}", aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    axis = axes.flat[3]
    middle, ends = part.data["curve"].double().median(dim=1).values, part.data["curve"]
    axis.fill_between(part.data["betas"], ends.amin(dim=1), ends.amax(dim=1), step="mid", color="0.85", linewidth=0)
    axis.step(part.data["betas"], middle, where="mid", color=BLACK)
    for beta, _, _ in part.data["fields"]:
        axis.axvline(beta, color="0.6", linewidth=0.8, linestyle=":")
    axis.set(title="median and range of k", xscale="log", xlabel="β", yticks=range(1, 12, 2), ylim=(0, 12))
    axis.set_ylabel("k: patterns with 0.9 of the weight")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def draw_capacities(part: Part) -> Figure:
    """Draw the share of random patterns that are stored, and the number that the theorem guarantees."""
    figure, axes = _axes(1, 2, (8, 3))
    sizes = part.numbers["sizes"]
    for (d, curve), (colour, _, marker) in zip(part.numbers["curves"].items(), STYLES, strict=False):
        observed, proven = zip(*curve, strict=True)
        axes[0].semilogx(sizes, observed, color=colour, marker=marker, label=f"d = {d}", base=2)
        axes[0].semilogx(sizes, proven, color=colour, marker=marker, linestyle=":", fillstyle="none", base=2)
    axes[0].set(
        xlabel="N random patterns, K = 1", ylabel="share that is stored", title="observed (solid), proven (dotted)"
    )
    axes[0].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    dimensions = range(20, 201, 5)
    for K, (colour, dashes, _) in zip((1.0, 1.5, 3.0), STYLES, strict=False):
        promises = {d: theory.storage_capacity(d, beta=1.0, K=K, p=0.001) for d in dimensions}
        promised = {d: promise.n_patterns for d, promise in promises.items() if promise.proven}
        axes[1].semilogy(list(promised), list(promised.values()), color=colour, linestyle=dashes, label=f"K = {K:g}")
    axes[1].set(xlabel="dimension d", ylabel="N", title="promised by Theorem 3")
    axes[1].legend()
    return figure


def draw_pooling(part: Part) -> Figure:
    """Draw the weights of the patterns of six bags."""
    figure, axes = _axes(2, 3, (7.5, 3.2), sharey=True)
    for number, weights in enumerate(part.data["weights"]):
        axis = axes[number % 2, number // 2]
        colours = [RED if number % 2 and not place else "0.7" for place in range(len(weights))]
        axis.bar(range(1, len(weights) + 1), weights, color=colours, edgecolor=BLACK, linewidth=0.6)
        axis.set(
            title=f"{'positive' if number % 2 else 'negative'} bag", xlim=(0, 20), xticks=(1, 5, 10, 15), ylim=(0, 1)
        )
    figure.supxlabel("pattern of the bag")
    figure.supylabel("association weight")
    return figure


def draw_classifiers(part: Part) -> Figure:
    """Draw mean and standard deviation of the accuracies."""
    figure, axes = _axes(1, 2, (8, 3), sharey=True)
    names = [row["method"] for row in part.numbers["rows"]]
    for axis, data in zip(axes, ("wine", "breast cancer"), strict=True):
        for place, row in enumerate(part.numbers["rows"]):
            mean, spread = row[data]
            own = "Hopfield" in row["method"]
            axis.scatter(part.data["scores"][row["method"]][data], [place + 0.22] * 15, s=5, color="0.7")
            axis.errorbar(mean, place, xerr=spread, marker="o" if own else "s", color=BLUE if own else BLACK, capsize=2)
        axis.set(title=data, xlabel="accuracy on 15 test folds", yticks=range(len(names)), yticklabels=names)
        axis.locator_params(axis="x", nbins=5)
    axes[0].invert_yaxis()
    return figure


def draw_heads(part: Part) -> Figure:
    """Draw the distribution of k for each head, between the limits of the classes."""
    figure, axis = _axes(1, 1, (5.6, 3.2))
    boxes = [sizes.tolist() for sizes in part.data["sizes"].T]
    axis.boxplot(boxes, whis=(0, 100), widths=0.4, medianprops={"color": RED, "linewidth": 1.6})
    for name, limit in (("I", 512), ("II", 256), ("III", 64), ("IV", 16)):
        axis.axhline(limit, color="0.6", linewidth=0.8)
        axis.text(4.75, limit * 0.9, name, ha="right", va="top", color="0.4")
    labels = [f"head {row['head']}\nβ = {row['beta']:g}" for row in part.numbers["rows"]]
    axis.set(yscale="log", ylabel="k of 512 patterns", ylim=(0.8, 700), xlim=(0.4, 4.8))
    axis.set(xticks=range(1, 5), xticklabels=labels, yticks=(1, 16, 64, 256, 512))
    axis.set(yticklabels=["1", "16", "64", "256", "512"])
    axis.minorticks_off()
    return figure


PARTS: dict[str, tuple[str, Callable[[], Part], Callable[[Part], Figure]]] = {
    "energy": ("svg", examples.energies, draw_energies),
    "retrieval": ("png", examples.retrievals, draw_retrievals),
    "bound": ("svg", examples.error_bounds, draw_error_bounds),
    "fixed_points": ("svg", examples.fixed_points, draw_fixed_points),
    "capacity": ("svg", examples.capacities, draw_capacities),
    "pooling": ("svg", examples.pooling, draw_pooling),
    "classifier": ("png", examples.classifiers, draw_classifiers),
    "heads": ("svg", examples.heads, draw_heads),
}


TABLES = {
    "retrieval": {
        "start": "{start}",
        "β": "{beta:g}",
        "distance before": "{before:.2f}",
        "after one update": "{once:.2g}",
        "at rest": "{at_rest:.2g}",
        "updates to rest": "{updates:g}",
        "own digit nearest: after one update": "{own_once} of 24",
        "own digit nearest: at rest": "{own} of 24",
        "fixed points": "{fixed_points}",
    },
    "fixed_points": {
        "β": "{beta:g}",
        "fixed points": "{fixed_points}",
        "k": "{smallest_k} to {largest_k}",
        "global one proven": "{global_proven} of 1",
        "clusters proven": "{clusters_proven} of 3",
        "patterns proven": "{patterns_proven} of 12",
    },
    "capacity": {
        "d": "{d}",
        "K": "{K:g}",
        "c": "{c:.4f}",
        "N promised": "{n_patterns:,.1f}",
        "observed of 1,000": "{stored_of_1000:.1%}",
    },
    "classifier": {
        "method": "{method}",
        "wine": "{wine[0]:.3f} ± {wine[1]:.3f}",
        "breast cancer": "{breast cancer[0]:.3f} ± {breast cancer[1]:.3f}",
    },
    "heads": {
        "head": "{head}",
        "β": "{beta:g}",
        "median k": "{median_size:g}",
        "quartiles": "{lower_quartile:g} to {upper_quartile:g}",
        "class": "{operating_class}",
    },
}
"""Tables of the page: for each column, the function that shows a row of the numbers."""


def table(name: str, numbers: dict[str, Any]) -> str:
    """Return one of the tables of the page in Markdown."""
    columns = TABLES[name]
    rows = [[cell.format(**row) for cell in columns.values()] for row in numbers[name]["rows"]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows))


def write_part(draw: Callable[[Part], Figure], part: Part, path: Path) -> None:
    """Draw a part and write it."""
    write_picture(lambda: draw(part), path, dpi=120, bbox_inches="tight")


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path(__file__).parent / "pictures")
def main(output: Path) -> None:
    """Draw the pictures of docs/hopfield.md, and write its numbers to figures.json; takes about two minutes."""
    need_matplotlib()
    torch.set_num_threads(1)
    output.mkdir(parents=True, exist_ok=True)
    numbers = {}
    for name, (suffix, compute, draw) in PARTS.items():
        part = compute()
        numbers[name] = part.numbers
        write_part(draw, part, output / f"{name}.{suffix}")
    (output / "figures.json").write_text(json.dumps(_rounded(numbers), indent=1) + "\n")
    for name in TABLES:
        click.echo(f"{name}\n{table(name, numbers)}\n")


def _rounded(numbers: Any) -> Any:
    """Return numbers rounded to six digits."""
    if isinstance(numbers, dict):
        return {name: _rounded(value) for name, value in numbers.items()}
    if isinstance(numbers, list | tuple):
        return [_rounded(value) for value in numbers]
    return float(f"{numbers:.6g}") if isinstance(numbers, float) else numbers


def _axes(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


if __name__ == "__main__":
    main()
