"""Annotation of single cells: attention and contributions of their receptors, as columns of AnnData's `obs`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pandas as pd

from deeprc.datasets.cells import read_cells, set_chain_option
from deeprc.datasets.in_memory import MemoryDataset, make_dataset
from deeprc.datasets.metadata import make_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.interpretation.attention import iterate_attention
from deeprc.runs.ensemble import RunEnsemble, load_ensemble
from deeprc.runs.run import Run
from deeprc.training.estimator import DeepRCEstimator
from deeprc.training.model import Model

__all__ = ["annotate_cells"]

_CLONE = ("junction_aa", "v_call", "j_call")
_KEYS = {"genes": _CLONE, "none": _CLONE, "junction": ("junction_aa",)}
"""The columns that identify a sequence of a repertoire, by how equal sequences are merged (`ReadingOptions.merge`)."""
_WEIGHTS = ("attention_weight", "attention_rank")
_CONTRIBUTION = "contribution"  # followed by the name of the output if there are several


def annotate_cells(
    adata: Any,
    run: Run | RunEnsemble | DeepRCEstimator | str | os.PathLike[str],
    *,
    donor: str,
    chain: str | None = None,
    options: ReadingOptions | None = None,
) -> list[str]:
    """Add attention and contribution of each cell's receptor to `obs`; `deeprc.annotate_cells` is this function.

    A cell gets the values of its receptor sequence in the repertoire of its donor, see `deeprc.attention_table`:
    `deeprc_attention_weight`, `deeprc_attention_rank` and `deeprc_contribution` (with several outputs
    `deeprc_contribution_NAME`). If it has several chains of this locus, the chain with the highest weight counts. A
    cell without such a chain, or without a donor, has NaN. Donors without any kept chain are left out.

    Parameters
    ----------
    adata
        AnnData or MuData, as in `deeprc.from_anndata`; the columns are added to `obs` of the AnnData with the
        receptors.
    run
        A run, an ensemble of runs, a fitted classifier, or the path of a run.
    donor, chain, options
        Column of the donor, chain, and reading options, see `deeprc.from_anndata`; they should be as in training.

    Returns
    -------
    The names of the columns. Existing columns with these names are replaced.

    Raises
    ------
    InputError
        If an argument cannot be used.
    """
    options = replace(set_chain_option(options, chain), allow_missing=True)
    cells = read_cells(adata, donor)
    sheet = make_metadata({donor: list(cells.donors.vocabulary)}, id_column=donor)
    dataset = make_dataset(cells.rows, sheet, options)
    scores = _make_scores_table(_load_model(run), dataset)
    chains = cells.list_kept_chains(options)
    keys = ["repertoire_id", *(name for name in _KEYS[options.merge] if name in scores.columns)]
    scored = chains[["cell", *keys]].merge(scores.drop_duplicates(keys), on=keys)
    assert len(scored) == len(chains), "a chain that is kept has no score"
    best = scored.sort_values("attention_weight", ascending=False, kind="stable").drop_duplicates("cell")
    names = [*_WEIGHTS, *(name for name in scores.columns if name.startswith(_CONTRIBUTION))]
    by_cell = best.set_index("cell")[names]
    obs = cells.annotated.obs
    for name in names:
        obs[f"deeprc_{name}"] = by_cell[name].reindex(range(len(obs))).to_numpy(float)
    return [f"deeprc_{name}" for name in names]


def _load_model(run: Run | RunEnsemble | DeepRCEstimator | str | os.PathLike[str]) -> Model:
    if isinstance(run, DeepRCEstimator):
        return run.model_
    return (run if isinstance(run, Run | RunEnsemble) else load_ensemble(run)).model


def _make_scores_table(model: Model, dataset: MemoryDataset) -> pd.DataFrame:
    """Return attention and contributions of the sequences of all donors, with the columns that identify a sequence."""
    key_columns = ("repertoire_id", *_CLONE, *_WEIGHTS)
    tables = []
    for attention in iterate_attention(model, dataset):
        table = attention.sequences
        tables.append(table[[name for name in table.columns if name in key_columns or name.startswith(_CONTRIBUTION)]])
    return pd.concat(tables, ignore_index=True)
