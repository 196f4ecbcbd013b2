"""The picture of docs/examples-transformer.md: number of residues that each head averages, by layer, during training.

python docs/transformer_pictures.py [--results docs/examples/transformer.json] [--output docs/examples]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from drawing import BLUE, GREEN, PURPLE, RED, need_matplotlib, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "examples"
STYLES = [(BLUE, "-", "o"), (RED, "--", "s"), (GREEN, "-.", "^"), (PURPLE, ":", "D")]


def draw_heads(history: list[dict[str, Any]]) -> Figure:
    """Draw the median of k / N of each head against updates, one panel per layer."""
    from matplotlib.figure import Figure

    layers = sorted({head["layer"] for head in history[0]["heads"]})
    figure = Figure((8, 2.9), layout="constrained")
    axes = figure.subplots(1, len(layers), sharey=True)
    places = range(len(history))
    for axis, layer in zip(axes, layers, strict=True):
        for number, (colour, dashes, marker) in enumerate(STYLES, start=1):
            own = [
                head for each in history for head in each["heads"] if (head["layer"], head["head"]) == (layer, number)
            ]
            sizes = [head["median_fraction"] for head in own]
            axis.plot(
                places, sizes, color=colour, linestyle=dashes, marker=marker, label=f"head {number}", linewidth=1.2
            )
        axis.axhline(1 / 2, color="0.6", linewidth=0.8)
        axis.text(len(history) - 0.8, 0.79, "class I", ha="right", va="top", color="0.4")
        axis.text(0, 0.21, "class II", va="bottom", color="0.4")
        axis.set(title=f"layer {layer}", ylim=(0.2, 0.8), xlim=(-0.3, len(history) - 0.7))
        axis.set_xticks(list(places), [f"{each['update']:,}" for each in history], rotation=90)
    axes[0].set_ylabel("median of k / N")
    figure.supxlabel("updates; the distances between them are not to scale")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(STYLES))
    return figure


@click.command()
@click.option("--results", type=click.Path(exists=True, path_type=Path), default=FOLDER / "transformer.json")
@click.option("--output", type=click.Path(path_type=Path), default=FOLDER)
def main(results: Path, output: Path) -> None:
    """Draw the picture."""
    need_matplotlib()
    history = json.loads(results.read_text())["history"]
    write_picture(lambda: draw_heads(history), output / "transformer.svg")


if __name__ == "__main__":
    main()
