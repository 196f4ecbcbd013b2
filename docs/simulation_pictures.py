"""The pictures of docs/simulation.md: sizes, lengths and 3-mers of each background.

python docs/simulation_pictures.py --real FILE [--output docs/simulation]

FILE holds real sequences: a container, a repertoire file or a list.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from drawing import BLACK, BLUE, PURPLE, RED, need_matplotlib, write_picture
from scipy.stats import norm

from deeprc.datasets.kmers import count_kmers
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import (
    Background,
    GermlineBackground,
    IndependentBackground,
    LstmBackground,
    SequencePool,
    load_recipe,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"real": BLACK, "independent": RED, "germline": PURPLE, "LSTM": BLUE}
N = 500_000


@click.command()
@click.option("--real", required=True, type=click.Path(path_type=Path), help="Real sequences.")
@click.option("--output", default=Path("docs/simulation"), type=click.Path(path_type=Path), help="Where to write.")
def main(real: Path, output: Path) -> None:
    """Draw all pictures."""
    need_matplotlib()
    import matplotlib as mpl

    mpl.use("Agg")
    backgrounds: dict[str, Background] = {
        "real": SequencePool(real),
        "independent": IndependentBackground(),
        "germline": GermlineBackground(),
        "LSTM": LstmBackground(),
    }
    drawn = {name: background.draw(1, np.arange(N)) for name, background in backgrounds.items()}
    drawings = {"sizes": draw_sizes, "lengths": lambda: draw_lengths(drawn), "kmers": lambda: draw_kmers(drawn)}
    for name, draw in drawings.items():
        write_picture(draw, output / f"{name}.png", dpi=110)


def draw_sizes() -> Figure:
    """Draw the sizes of the repertoires of two recipes, and the distributions from which they are drawn."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7.5, 2.6), layout="constrained", sharex=True)
    for axis, name in zip(axes, ("simulated-0", "lstm-0"), strict=True):
        cohort, _ = load_recipe(name)
        sizes = cohort.sizes
        edges = np.linspace(0, 900_000, 46)
        axis.hist(cohort.all_sizes, edges, color="0.75", label=f"{cohort.n_repertoires:,} repertoires")
        at = np.linspace(sizes.minimum, 900_000, 300)
        density = norm.pdf(at, sizes.mean, sizes.sd) / norm.sf(sizes.minimum, sizes.mean, sizes.sd)
        expected = density * cohort.n_repertoires * (edges[1] - edges[0])
        axis.plot(at, expected, color=COLOURS["LSTM"], label=f"N({sizes.mean:,.0f}, {sizes.sd:,.0f}), from 5,000 up")
        axis.set(title=name, xlabel="sequences", xticks=[0, 300_000, 600_000, 900_000])
        axis.set_ylim(0, 1.35 * axis.get_ylim()[1])
        axis.legend(loc="upper right")
    axes[0].set(ylabel="repertoires")
    return figure


def draw_lengths(drawn: dict[str, Sequences]) -> Figure:
    """Draw the lengths of the sequences."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 2.8), layout="constrained")
    marks = {"real": "o", "independent": "s", "germline": "^", "LSTM": "x"}
    for name, sequences in drawn.items():
        share = np.bincount(sequences.lengths, minlength=28)[:28] / len(sequences.lengths)
        axis.plot(share, color=COLOURS[name], marker=marks[name], markersize=4, linewidth=1, label=name)
    axis.set(xlabel="residues", ylabel="share of the sequences", xlim=(5, 26), xticks=range(6, 27, 2))
    axis.legend()
    return figure


def draw_kmers(drawn: dict[str, Sequences]) -> Figure:
    """Draw the frequency of each 3-mer in real sequences and in those of each background."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(8, 3), layout="constrained", sharex=True, sharey=True)
    counts = {name: count_kmers(each.residues, each.lengths, range(3)) for name, each in drawn.items()}
    share = {name: np.maximum(each, 0.5) / each.sum() for name, each in counts.items()}  # 0.5 if one never occurs
    for axis, name in zip(axes, list(drawn)[1:], strict=True):
        axis.scatter(share["real"], share[name], s=2, alpha=0.3, color=COLOURS[name], linewidths=0)
        axis.plot([1e-7, 1e-1], [1e-7, 1e-1], color="0.5", linewidth=0.8)
        axis.set(xscale="log", yscale="log", title=name, xlabel="share among real 3-mers")
    axes[0].set(ylabel="share among simulated 3-mers")
    return figure


if __name__ == "__main__":
    main()
