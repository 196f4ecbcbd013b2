"""The picture of docs/examples-uci.md: the gain of the Hopfield network over each other method on each data set.

python docs/uci_pictures.py [--results docs/examples/uci.tsv] [--output docs/examples]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import pandas as pd
from drawing import BLACK, BLUE, RED, need_matplotlib, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEST = "Hopfield, any layer"
OTHERS = ("SVM", "random forest", "SNN", "gradient boosting")

FOLDER = Path(__file__).parent / "examples"


def draw_gains(accuracy: pd.DataFrame) -> Figure:
    """Draw the gains of the Hopfield network over each other method on all data sets, in ascending order."""
    from matplotlib.figure import Figure

    figure = Figure((8, 2.6), layout="constrained")
    axes = figure.subplots(1, len(OTHERS), sharey=True)
    for axis, other in zip(axes, OTHERS, strict=True):
        gains = np.sort(100 * (accuracy[BEST] - accuracy[other]))
        axis.bar(np.arange(len(gains)), gains, 1.0, color=np.where(gains < 0, RED, BLUE))
        axis.axhline(0, color=BLACK, linewidth=0.8)
        counts = {"better": (gains > 0).sum(), "worse": (gains < 0).sum(), "equal": (gains == 0).sum()}
        text = "\n".join(f"{n} {name}" for name, n in counts.items())
        axis.text(0.05, 0.95, text, transform=axis.transAxes, va="top")
        axis.set(title=f"against {other}", xticks=(), ylim=(-40, 40))
        axis.spines["bottom"].set_visible(False)
    axes[0].set(ylabel="gain in accuracy, in points")
    figure.supxlabel(f"{len(accuracy)} sets, in rising order")
    return figure


@click.command()
@click.option("--results", type=click.Path(exists=True, path_type=Path), default=FOLDER / "uci.tsv")
@click.option("--output", type=click.Path(path_type=Path), default=FOLDER)
def main(results: Path, output: Path) -> None:
    """Draw the picture."""
    need_matplotlib()
    accuracy = pd.read_csv(results, sep="\t").pivot_table("accuracy", "set", "method")
    write_picture(lambda: draw_gains(accuracy), output / "uci.svg")


if __name__ == "__main__":
    main()
