"""The picture of docs/examples-molecules.md: the AUC of each method on each random split.

python docs/molecules_pictures.py [--results docs/examples/molecules.tsv] [--output docs/examples]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import pandas as pd
from drawing import BLACK, BLUE, GREEN, PURPLE, RED, need_matplotlib, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "examples"
STYLES = {
    "HopfieldLayer": (RED, "o"),
    "SVM": (BLUE, "s"),
    "random forest": (GREEN, "^"),
    "gradient boosting": (PURPLE, "D"),
}
PAPER = {"bace": 0.902, "bbbp": 0.910, "hiv": 0.815, "sider": 0.672}


def draw_splits(results: pd.DataFrame) -> Figure:
    """Draw the AUC of each split, the mean of each method, and the mean in the paper, one panel per data set."""
    from matplotlib.figure import Figure

    measured = [name for name in PAPER if name in set(results["set"])]
    figure = Figure((8, 2.7), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(measured)), measured, strict=True):
        for place, (method, (colour, marker)) in enumerate(STYLES.items()):
            own = results.query("set == @name and method == @method")["auc"]
            axis.plot([place] * len(own), own, marker, color=colour, fillstyle="none", label=method)
            axis.plot([place - 0.3, place + 0.3], [own.mean()] * 2, color=colour, linewidth=2)
        axis.axhline(PAPER[name], color=BLACK, linewidth=0.8, linestyle="--", label="paper, HopfieldLayer")
        n = results.query("set == @name")["repeat"].nunique()
        axis.set(title=f"{name.upper()}, {n} splits", xticks=(), xlim=(-0.6, len(STYLES) - 0.4))
    figure.axes[0].set_ylabel("AUC, test part")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(STYLES) + 1)
    return figure


@click.command()
@click.option("--results", type=click.Path(exists=True, path_type=Path), default=FOLDER / "molecules.tsv")
@click.option("--output", type=click.Path(path_type=Path), default=FOLDER)
def main(results: Path, output: Path) -> None:
    """Draw the picture."""
    need_matplotlib()
    auc = pd.read_csv(results, sep="\t")
    write_picture(lambda: draw_splits(auc), output / "molecules.svg")


if __name__ == "__main__":
    main()
