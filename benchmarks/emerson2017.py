"""The classifier of Emerson et al. 2017 on their CMV cohort, from their 164 associated sequences in 641 subjects.

python benchmarks/emerson2017.py --data FOLDER

FOLDER has the file `featureDetect.1e-4.CMV.sampleFeatures.tsv`: for each subject the status, the number of unique
sequences, and the carried ones of the 164. The 164 were selected on the same subjects, so every AUC here is in-sample,
even if the distributions of the classes are fitted to other subjects than those that are scored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from common import report
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from torch import device

from deeprc.baselines.beta_binomial import compute_beta_binomial_log_pmf, fit_beta_binomial

_TABLE = "featureDetect.1e-4.CMV.sampleFeatures.tsv"
_NOTE = "The sequences were selected on these subjects: every AUC is in-sample."


@click.command()
@click.option("--data", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--folds", default=10, help="Number of folds of the cross-validation.")
@click.option("--repeats", default=10, help="Number of repeats of the cross-validation, each with other folds.")
def main(data: Path, folds: int, repeats: int) -> None:
    """Measure AUCs of several scores."""
    table = pd.read_csv(data / _TABLE, sep="\t")
    positive, n = table["status"].to_numpy() == 1, table["uniques"].to_numpy()
    k = table.iloc[:, 3:].to_numpy().sum(axis=1)
    held_out = [_score_held_out(k, n, positive, folds, seed) for seed in range(repeats)]
    classes = _fit_classes(k, n, positive)
    odds = _compute_log_odds(k, n, classes)
    rows: list[dict[str, Any]] = [
        _make_row("beta-binomial, fitted to all", positive, [odds]),
        _make_row(f"beta-binomial, fitted to other folds ({repeats} x {folds})", positive, held_out),
        _make_row("carried", positive, [k]),
        _make_row("carried / unique sequences", positive, [k / n]),
        _make_row("unique sequences alone", positive, [n]),
    ]
    print(f"{len(positive)} subjects, {positive.sum()} CMV+; {table.shape[1] - 3} sequences. {_NOTE}")
    for name, (alpha, beta) in zip(("CMV-", "CMV+"), classes, strict=True):
        print(f"{name}: alpha {alpha:.3g}, beta {beta:.4g}, mean {1e6 * alpha / (alpha + beta):.1f} in a million")
    report("emerson2017", rows, device("cpu"))


def _make_row(score: str, positive: NDArray[np.bool_], scores: list[NDArray[Any]]) -> dict[str, Any]:
    aucs = [float(roc_auc_score(positive, repeat_scores)) for repeat_scores in scores]
    return {"score": score, "in_sample_auc": float(np.mean(aucs)), "sd_of_repeats": float(np.std(aucs))}


def _fit_classes(k: NDArray[Any], n: NDArray[Any], positive: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Return alpha and beta of the negative and of the positive subjects."""
    return [fit_beta_binomial(k[chosen], n[chosen]) for chosen in (~positive, positive)]


def _compute_log_odds(k: NDArray[Any], n: NDArray[Any], classes: list[tuple[float, float]]) -> NDArray[np.float64]:
    negative, positive = (compute_beta_binomial_log_pmf(k, n, *parameters) for parameters in classes)
    return positive - negative


def _score_held_out(
    k: NDArray[Any], n: NDArray[Any], positive: NDArray[np.bool_], folds: int, seed: int
) -> NDArray[np.float64]:
    """Return the log-odds of each subject from the distributions of the other folds."""
    odds = np.zeros(len(k))
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(k, positive):
        odds[test] = _compute_log_odds(k[test], n[test], _fit_classes(k[train], n[train], positive[train]))
    return odds


if __name__ == "__main__":
    main()
