"""Count in how many runs, test folds and repeats of a cross-validation the search finds a motif.

Each run searches its own training repertoires, and confirms what is doubtful on its validation repertoires. Motifs of
different runs that are alike and have the same sign of correlation, such as LDR.F and LDR, are one motif.

Letters: M motifs of all runs, W positions of one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.evaluation.motif_clusters import cluster_motifs

__all__ = ["count_motifs"]

_COLUMNS = (
    "output", "motif", "forms", "n_runs", "n_all_runs", "n_test_folds", "n_all_test_folds", "n_repeats",
    "n_all_repeats", "correlation", "max_p_value",
)  # fmt: skip


def count_motifs(start_motifs: Mapping[tuple[int, int, int], pd.DataFrame]) -> pd.DataFrame:
    """Return how often each motif is found, those of the most runs first.

    Parameters
    ----------
    start_motifs
        Table `seeds.tsv` of each run by its repeat, test fold and validation fold.

    Returns
    -------
    pandas.DataFrame
        A row for each motif:

        - `output`; `motif`, the form of the motif that most runs find; `forms`, all of its forms;
        - `n_runs`, `n_test_folds`, `n_repeats`: the numbers of runs, test folds and repeats in which it is found. Test
          folds of different repeats are different. `n_all_runs` and so on: how many there are;
        - `correlation`: the median over its runs of the correlation of its frequency with the label;
        - `max_p_value`: its largest p-value in a run.
    """
    all_runs = pd.DataFrame(list(start_motifs), columns=["repeat", "fold", "validation"])
    n_all = {
        "n_all_runs": len(all_runs),
        "n_all_test_folds": len(all_runs[["repeat", "fold"]].drop_duplicates()),
        "n_all_repeats": all_runs["repeat"].nunique(),
    }
    parts = [
        table.assign(repeat=repeat, fold=fold, run=run)
        for run, ((repeat, fold, _), table) in enumerate(start_motifs.items())
        if len(table)  # pandas below 3 warns of empty ones
    ]
    motifs = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"output": [], "correlation": []})
    rows = []
    for (output, _), in_direction in motifs.groupby(["output", motifs["correlation"] > 0], sort=False):
        cluster_of = cluster_motifs([_compute_letter_heights(motif) for motif in in_direction["motif"]])
        rows += [_make_row(output, cluster) | n_all for _, cluster in in_direction.groupby(cluster_of)]
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    return table.sort_values(["n_runs", "max_p_value", "motif"], ascending=[False, True, True], ignore_index=True)


def _make_row(output: object, cluster: pd.DataFrame) -> dict[str, object]:
    """Return the row of a motif from the motifs of runs that are alike; a run counts with its strongest form."""
    order = cluster["correlation"].abs().sort_values(ascending=False, kind="stable").index
    by_run = cluster.loc[order].drop_duplicates("run")
    forms = cluster.drop_duplicates(["run", "motif"])["motif"].value_counts()
    ranked = sorted(forms.index, key=lambda form: (-forms[form], -len(form.replace(".", "")), form))
    return {
        "output": output,
        "motif": ranked[0],
        "forms": " ".join(ranked),
        "n_runs": len(by_run),
        "n_test_folds": len(by_run[["repeat", "fold"]].drop_duplicates()),
        "n_repeats": by_run["repeat"].nunique(),
        "correlation": float(by_run["correlation"].median()),
        "max_p_value": float(by_run["p_value"].max()),
    }


def _compute_letter_heights(motif: str) -> NDArray[np.float64]:
    """Return the letter heights of a motif, (W, 20): 1 for the residue of each position, 0 where any may stand."""
    return np.array([[float(letter == residue) for residue in AMINO_ACIDS] for letter in motif])
