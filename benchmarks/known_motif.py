"""Difficulty of the simulated cohorts: AUCs of methods that know the motif, compared with the paper's tables.

python benchmarks/known_motif.py [--recipe simulated-2 ...] [--scale 0.04] [--background FILE] [KEY=VALUE ...]

`binary` ranks repertoires by the share of their sequences with the motif. `continuous` ranks them by the mean over
sequences of the largest number of residues of the motif at any position (paper lines 8912-8931; see
`deeprc.baselines.known_motif.score_motifs`). `binary_count` ranks them by the number of sequences with the motif, which
also depends on the size of the repertoire. The AUC is that of all repertoires together, and the standard error (of
`binary`) is by DeLong's formula; the paper has the mean and standard deviation over 5 folds.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from common import report
from torch import device

from deeprc.baselines.known_motif import score_motifs
from deeprc.datasets.simulation import SimulatedDataset, load_recipe

_BINARY = [1, 1, 0.973, 1, 1, 0.865, 1, 1, 0.700, 1, 0.989, 0.609, 1, 0.946, 0.570, 1, 0.834, 0.532]
_CONTINUOUS = [0.999, 0.720, 0.529, 0.999, 0.698, 0.534, 0.999, 0.694, 0.532]
_CONTINUOUS += [1.000, 0.696, 0.527, 0.997, 0.666, 0.520, 0.998, 0.668, 0.509]
_PAPER = {f"simulated-{number}": both for number, both in enumerate(zip(_BINARY, _CONTINUOUS, strict=True))}
_LSTM = [(1, 1), (1, 1), (1, 0.989), (0.999, 0.722), (0.999, 0.626)]
_PAPER |= {f"lstm-{number}": both for number, both in enumerate(_LSTM)}
_PAPER |= {"implanted-om-1": (1, 0.920), "implanted-om-0.1": (0.704, 0.562)}
_PAPER |= {"implanted-mm-1": (0.994, 0.647), "implanted-mm-0.1": (0.620, 0.515)}


@click.command()
@click.option(
    "--recipe", "recipes", multiple=True, help="Names from `deeprc simulate --list`.  [default: simulated-0 to 17]"
)
@click.option("--scale", default=0.04, help="Factor for the number of repertoires.")
@click.option("--seed", default=0, help="Seed of every random choice.")
@click.option("--background", type=click.Path(path_type=Path), help="Real sequences.")
@click.argument("overrides", nargs=-1)
def main(
    recipes: tuple[str, ...], scale: float, seed: int, background: Path | None, overrides: tuple[str, ...]
) -> None:
    """Count the motif and rank the repertoires."""
    table = []
    for name in recipes or tuple(name for name in _PAPER if name.startswith("simulated")):
        cohort, mapping = load_recipe(name, overrides, seed=seed, scale=scale, background=background)
        dataset = SimulatedDataset(cohort)
        figures = {overlap: score_motifs(dataset, mapping["signals"], overlap) for overlap in ("binary", "continuous")}
        figures["binary_count"] = np.rint(figures["binary"] * cohort.all_sizes)
        positive = np.array([cohort.is_positive(number) for number in range(cohort.n_repertoires)])
        binary, continuous = _PAPER.get(name, (None, None))
        row = {"recipe": name, "repertoires": cohort.n_repertoires, "sequences": int(cohort.all_sizes.sum())}
        for column, values in figures.items():
            row[column], error = _compute_auc(values[positive], values[~positive])
            if column == "binary":
                row["error"] = error
        table.append({**row, "paper_binary": binary, "paper_continuous": continuous})
        click.echo(" ".join(f"{key}={value}" for key, value in table[-1].items()), err=True)
    report("known_motif", table, device("cpu"))


def _compute_auc(positive: np.ndarray, negative: np.ndarray) -> tuple[float, float]:
    """Return the area under the ROC curve and its standard error (DeLong et al. 1988)."""
    wins = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    of_positive, of_negative = wins.mean(axis=1), wins.mean(axis=0)
    variance = of_positive.var(ddof=1) / len(positive) + of_negative.var(ddof=1) / len(negative)
    return float(wins.mean()), float(np.sqrt(variance))


if __name__ == "__main__":
    main()
