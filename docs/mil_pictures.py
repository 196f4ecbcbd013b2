"""The picture of docs/examples-mil.md: the AUC of the paper and ours on each data set.

python docs/mil_pictures.py [--results docs/examples/mil.tsv] [--output docs/examples]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import pandas as pd
from drawing import BLACK, BLUE, RED, need_matplotlib, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "examples"
STYLES = {"paper": (BLACK, "s"), "one model": (BLUE, "o"), "ensemble": (RED, "D")}


def draw_aucs(results: pd.DataFrame) -> Figure:
    """Draw the mean AUC of each method on each data set, with the standard deviation of the repetitions."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(results["set"]))
    figure = Figure((6, 2.8), layout="constrained")
    axis = figure.subplots()
    for place, (method, (colour, marker)) in enumerate(STYLES.items()):
        own = results[results["method"] == method]
        at = [names.index(name) + 0.2 * (place - 1) for name in own["set"]]
        axis.errorbar(at, own["auc"], own["sd"].fillna(0), fmt=marker, color=colour, capsize=3, label=method)
    axis.set(xticks=range(len(names)), xticklabels=names, ylabel="AUC")
    axis.legend(loc="lower right")
    return figure


@click.command()
@click.option("--results", type=click.Path(exists=True, path_type=Path), default=FOLDER / "mil.tsv")
@click.option("--output", type=click.Path(path_type=Path), default=FOLDER)
def main(results: Path, output: Path) -> None:
    """Draw the picture."""
    need_matplotlib()
    auc = pd.read_csv(results, sep="\t")
    write_picture(lambda: draw_aucs(auc), output / "mil.svg")


if __name__ == "__main__":
    main()
