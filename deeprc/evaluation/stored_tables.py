"""Read the tables of run directories and benchmark folders; their columns, and checks of their values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from deeprc.documents import abbreviate, parse_json, validate
from deeprc.errors import InputError
from deeprc.evaluation.comparison import validate_predictions
from deeprc.evaluation.scoring_base import Scoring
from deeprc.evaluation.splits import NEW, PARTS
from deeprc.tables import ColumnSchema, read_table
from deeprc.training.history import WHOLE_VALIDATION_PREFIXES, find_kept_update

__all__ = [
    "read_choices",
    "read_clones",
    "read_comparison",
    "read_composition",
    "read_fold_metrics",
    "read_history",
    "read_method_predictions",
    "read_motif_counts",
    "read_out_of_fold",
    "read_results",
    "read_run_predictions",
    "read_start_motifs",
]

_COUNT = ColumnSchema("integer", low=0)
_SHARE = ColumnSchema("number", low=0, high=1)
_SHARE_OR_NONE = ColumnSchema("number", low=0, high=1, may_be_empty=True)
_NUMBER_OR_NONE = ColumnSchema("number", may_be_empty=True)
_KIND = ColumnSchema(choices=("method", "control", "truth"))

_RUN_PREDICTIONS = {
    "repertoire_id": ColumnSchema(),
    "split": ColumnSchema(choices=(*PARTS, NEW)),
    "target": ColumnSchema(),
    "label": _NUMBER_OR_NONE,
    "probability": _SHARE_OR_NONE,
    "prediction": ColumnSchema("number", may_be_empty=True, optional=True),
    "donor": ColumnSchema("integer", low=0, optional=True),
}
_OUT_OF_FOLD = {
    "repertoire_id": ColumnSchema(),
    "repeat": _COUNT,
    "fold": _COUNT,
    "target": ColumnSchema(),
    "label": _NUMBER_OR_NONE,
    "log_odds": _NUMBER_OR_NONE,
    "probability": _SHARE_OR_NONE,
    "positive_class": ColumnSchema(may_be_empty=True),
    "called_class": ColumnSchema(may_be_empty=True),
    "prediction": ColumnSchema("number", may_be_empty=True, optional=True),
}
_FOLD_SHARES = ("auc", "f1", "balanced_accuracy", "accuracy")
_FOLD_NUMBERS = ("r2", "spearman", "mae", "loss", "loss_base_rate", "brier", "brier_base_rate", "calibration_error")
_FOLD_METRICS = {
    "repeat": _COUNT,
    "fold": _COUNT,
    "left_out": ColumnSchema(optional=True),
    "target": ColumnSchema(),
    "n": _COUNT,
    "n_positive": ColumnSchema("integer", low=0, may_be_empty=True, optional=True),
    **dict.fromkeys(_FOLD_SHARES, ColumnSchema("number", low=0, high=1, may_be_empty=True, optional=True)),
    **dict.fromkeys(_FOLD_NUMBERS, ColumnSchema("number", may_be_empty=True, optional=True)),
}
_HISTORY = {
    "update": _COUNT,
    "train_loss": ColumnSchema("number", low=0, may_be_empty=True),
    "validation_loss": ColumnSchema("number", low=0),
    "validation_auc": ColumnSchema("number", low=0, high=1, may_be_empty=True, optional=True),
    "seconds": ColumnSchema("number", low=0),
    "best_update": ColumnSchema("integer", low=0, optional=True),
    "fitted": ColumnSchema("integer", low=0, high=1, may_be_empty=True, optional=True),
    **{
        f"{name}_loss": ColumnSchema("number", low=0, may_be_empty=True, optional=True)
        for name in WHOLE_VALIDATION_PREFIXES
    },
    **{
        f"{name}_auc": ColumnSchema("number", low=0, high=1, may_be_empty=True, optional=True)
        for name in WHOLE_VALIDATION_PREFIXES
    },
}
_SEEDS = {
    "kernel": ColumnSchema("integer", low=1),
    "motif": ColumnSchema(),
    "output": ColumnSchema(),
    "correlation": ColumnSchema("number", low=-1, high=1),
    "p_value": _SHARE,
    "best_residues": ColumnSchema(may_be_empty=True, optional=True),
}
_MOTIFS = {
    "output": ColumnSchema(),
    "motif": ColumnSchema(),
    "forms": ColumnSchema(),
    **dict.fromkeys(("n_runs", "n_all_runs", "n_test_folds", "n_all_test_folds", "n_repeats", "n_all_repeats"), _COUNT),
    "correlation": ColumnSchema("number", low=-1, high=1),
    "max_p_value": _SHARE,
}
_GENE = ColumnSchema(may_be_empty=True, optional=True)
_CARRIERS = ColumnSchema("integer", low=0, may_be_empty=True, optional=True)  # by class, or all of a number
_MATCHES = (
    "exact|one substitution|expanded|up to (?:1 substitution|(?:0|[1-9][0-9]*) substitutions)"
    "|(?:any residue at position|cluster) [1-9][0-9]*"
)
_CLONES = {
    "junction_aa": ColumnSchema(),
    "v_call": _GENE,
    "j_call": _GENE,
    "output": ColumnSchema(),
    "direction": ColumnSchema(choices=("up", "down")),
    "match": ColumnSchema(),
    "carriers_positive": _CARRIERS,
    "carriers_negative": _CARRIERS,
    "carriers": _CARRIERS,
    "p_value": _SHARE,
    "q_value": _SHARE,
}
_COMPOSITION = {
    "output": ColumnSchema(),
    "direction": ColumnSchema(choices=("up", "down")),
    "kind": ColumnSchema(),
    "feature": ColumnSchema(),
    "effect": ColumnSchema("number"),
    "mean_positive": _NUMBER_OR_NONE,
    "mean_negative": _NUMBER_OR_NONE,
}
_RESULTS = {"method": ColumnSchema(), "fold": _COUNT, "metric": ColumnSchema(), "value": _NUMBER_OR_NONE}


def read_run_predictions(path: Path) -> pd.DataFrame:
    """Read a run's `predictions.tsv`.

    Raises
    ------
    InputError
        As in `read_table`; or if a repertoire has two predictions of a target, or a label beside a probability is not
        0 or 1.
    """
    return _read_predictions(path, _RUN_PREDICTIONS, ["repertoire_id", "target"])


def read_out_of_fold(path: Path) -> pd.DataFrame:
    """Read the `predictions.tsv` of a cross-validation.

    Raises
    ------
    InputError
        As in `read_table`; or if a repertoire has two predictions of a target in a repeat, or a label beside a
        probability is not 0 or 1.
    """
    return _read_predictions(path, _OUT_OF_FOLD, ["repertoire_id", "repeat", "target"])


def _read_predictions(path: Path, columns: Mapping[str, ColumnSchema], key: list[str]) -> pd.DataFrame:
    """Read predictions; there is one for each combination of values in the columns of the key."""
    table = read_table(path, columns)
    _refuse_rows(table, table.duplicated(key), path, "a second prediction of the same target")
    wrong = table["probability"].notna() & table["label"].notna() & ~table["label"].isin([0, 1])
    _refuse_rows(table, wrong, path, "expected the label 0 or 1 with a probability")
    return table


def read_fold_metrics(path: Path) -> pd.DataFrame:
    """Read the `folds.tsv` of a cross-validation. Errors: see `read_table`."""
    return read_table(path, _FOLD_METRICS)


def read_history(path: Path) -> pd.DataFrame:
    """Read a run's `history.tsv`.

    Raises
    ------
    InputError
        As in `read_table`; or if it is empty, its updates do not rise, or the kept update is none of them.
    """
    table = read_table(path, _HISTORY)
    if table.empty:
        raise InputError(f"{path}: the history of the training is empty")
    if not table["update"].is_monotonic_increasing or not table["update"].is_unique:
        raise InputError(f"{path}: column 'update': expected numbers that rise")
    if "best_update" in table and find_kept_update(table) not in table["update"].to_numpy():
        raise InputError(f"{path}: column 'best_update': expected one of the updates in its last row")
    return table


def read_start_motifs(path: Path) -> pd.DataFrame:
    """Read a run's `seeds.tsv`. Errors: see `read_table`."""
    return read_table(path, _SEEDS)


def read_motif_counts(path: Path) -> pd.DataFrame:
    """Read a cross-validation's `motifs.tsv`, see `count_motifs`. Errors: see `read_table`."""
    return read_table(path, _MOTIFS)


def read_clones(path: Path) -> pd.DataFrame:
    """Read a run's `clones.tsv`. Errors: see `read_table`; also a match that no clone can have."""
    table = read_table(path, _CLONES)
    wrong = table.loc[~table["match"].str.fullmatch(_MATCHES), "match"]
    if len(wrong):
        examples = "any residue at position 7, cluster 2 or up to 3 substitutions"
        expected = f"exact, one substitution, expanded, or such as {examples}"
        raise InputError(f"{path}: column 'match': expected {expected}, found {abbreviate(wrong.iloc[0])}")
    return table


def read_composition(path: Path) -> pd.DataFrame:
    """Read a run's `composition.tsv`, see `make_composition_table`. Errors: see `read_table`."""
    return read_table(path, _COMPOSITION)


def read_method_predictions(path: Path, scoring: Scoring) -> pd.DataFrame:
    """Read a benchmark's `predictions.tsv`. Errors: see `read_table` and `validate_predictions`."""
    columns = {name: _make_prediction_column(name) for name in scoring.columns}
    label = {"binary": ColumnSchema("integer", low=0, high=1), "regression": ColumnSchema("number")}.get(
        scoring.kind, ColumnSchema()
    )
    table = read_table(path, {**columns, "label": label})
    _refuse_rows(table, table.duplicated(["method", "repertoire_id"]), path, "a second prediction of the same method")
    try:
        validate_predictions(table, scoring=scoring)
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix('predictions: ')}") from error
    return table


def _make_prediction_column(name: str) -> ColumnSchema:
    if name == "fold":
        return _COUNT
    if name.split("=")[0] == "score":
        return ColumnSchema("number", low=-float("inf"), high=float("inf"))
    if name.split("=")[0] == "probability":
        return _SHARE
    if name == "cutoff":
        return ColumnSchema("number", low=0, high=1, optional=True)  # earlier versions lack it
    return ColumnSchema("number") if name == "prediction" else ColumnSchema()


def read_comparison(path: Path, scoring: Scoring) -> pd.DataFrame:
    """Read a benchmark's `comparison.tsv`. Errors: see `read_table`; also a method that is listed twice."""
    share = _SHARE_OR_NONE if scoring.measure_name == "auc" else _NUMBER_OR_NONE
    columns = {
        "method": ColumnSchema(),
        "kind": _KIND,
        "best": ColumnSchema("boolean"),
        **dict.fromkeys((scoring.estimate_column, scoring.sd_column, "ci_low", "ci_high"), share),
        **dict.fromkeys(("p_value", "p_holm"), _SHARE_OR_NONE),
        **dict.fromkeys(("n_folds", "n_wanted", "n_repertoires", "n_smallest"), _COUNT),
        "complete": ColumnSchema("boolean"),
        "test": ColumnSchema(may_be_empty=True),
    }
    table = read_table(path, columns)
    repeated = table["method"].duplicated()
    if repeated.any():
        raise InputError(f"{path}: the method {abbreviate(table['method'][repeated].iloc[0])} is listed twice")
    return table


def read_choices(path: Path, scoring: Scoring) -> pd.DataFrame:
    """Read a benchmark's `settings.tsv`: which settings were chosen in each fold.

    Raises
    ------
    InputError
        As in `read_table`; or if settings are not a JSON object, as the report reads them.
    """
    measured = {
        f"{part}_{scoring.measure_name}": ColumnSchema("number", may_be_empty=True) for part in ("validation", "refit")
    }
    table = read_table(path, {"method": ColumnSchema(), "fold": _COUNT, **measured, "settings": ColumnSchema()})
    for row, text in enumerate(table["settings"], start=2):
        where = f"{path}: column 'settings', row {row}"
        validate(parse_json(text, source=where), dict[str, Any], where)
    return table


def read_results(path: Path) -> pd.DataFrame:
    """Read a benchmark's `results.tsv`. Errors: see `read_table`."""
    return read_table(path, _RESULTS)


def _refuse_rows(table: pd.DataFrame, wrong: pd.Series, path: Path, problem: str) -> None:
    if wrong.any():
        raise InputError(f"{path}: repertoire {abbreviate(table.loc[wrong, 'repertoire_id'].iloc[0])}: {problem}")
