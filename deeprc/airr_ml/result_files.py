"""Train on one folder of the challenge, predict others, and write the tables: the function behind `deeprc airr-ml`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from deeprc.airr_ml.folders import Folder, open_output_folder, read_folder
from deeprc.airr_ml.predictor import COLUMNS, EVIDENCE_COLUMNS, ImmuneStatePredictor
from deeprc.errors import InputError
from deeprc.files import check_table_output, write_text
from deeprc.runs.repeated_messages import log_once

__all__ = ["ResultFiles", "predict_immune_states"]


class ResultFiles(NamedTuple):
    """The paths of the tables of one training folder, whose name is at the beginning of each file name.

    Attributes
    ----------
    predictions
        Probability of each test repertoire: `<train>_test_predictions.tsv`.
    sequences
        Sequences that are associated with the positive label: `<train>_important_sequences.tsv`.
    evidence
        Reason for each of these sequences: `<train>_evidence.tsv`.
    """

    predictions: Path
    sequences: Path
    evidence: Path


def predict_immune_states(
    train_dir: str | os.PathLike[str],
    test_dirs: Sequence[str | os.PathLike[str]],
    out_dir: str | os.PathLike[str],
    *,
    n_jobs: int = 1,
    device: str = "cpu",
    **options: Any,
) -> ResultFiles:
    """Train on one folder, predict others, and write the tables, as `deeprc airr-ml` does.

    Parameters
    ----------
    train_dir, test_dirs
        Folders of repertoires; all are checked before training.
    out_dir
        Folder for the files, see `ResultFiles`. It is made if it does not exist.
    n_jobs, device, options
        See `ImmuneStatePredictor`.

    Raises
    ------
    InputError
        If a folder or an option cannot be used, two test folders have one name, or `out_dir` is a test folder.
    """
    predictor = ImmuneStatePredictor(n_jobs, device, **options)
    with log_once("deeprc.airr_ml.folders"):  # each folder is read twice
        return _predict_folders(predictor, train_dir, test_dirs, Path(out_dir))


def _predict_folders(
    predictor: ImmuneStatePredictor,
    train_dir: str | os.PathLike[str],
    test_dirs: Sequence[str | os.PathLike[str]],
    out: Path,
) -> ResultFiles:
    """Check all folders, train, predict, and write the tables; see `predict_immune_states`."""
    name = read_folder(train_dir, labelled=True, group_by=predictor.group_by).name
    _check_test_folders([read_folder(test_dir, labelled=False) for test_dir in test_dirs], out)
    files = ResultFiles(
        out / f"{name}_test_predictions.tsv", out / f"{name}_important_sequences.tsv", out / f"{name}_evidence.tsv"
    )
    with open_output_folder(out):
        for path, columns in zip(files, (COLUMNS, COLUMNS, EVIDENCE_COLUMNS), strict=True):
            check_table_output(path, columns)
        predictor.fit(train_dir)
        predictions = pd.concat([predictor.predict_proba(test_dir) for test_dir in test_dirs], ignore_index=True)
        tables = (predictions, predictor.important_sequences_, predictor.evidence_)
        for path, table in zip(files, tables, strict=True):
            assert table is not None
            write_text(path, table.to_csv(sep="\t", index=False, lineterminator="\n"))
    return files


def _check_test_folders(folders: Sequence[Folder], out: Path) -> None:
    """Raise InputError if tables could not tell folders apart, or would lie among the repertoires of a folder."""
    first: dict[str, Folder] = {}
    for folder in folders:
        other = first.setdefault(folder.name, folder)
        if other is not folder:
            raise InputError(
                f"{folder.path}: has the name of {other.path}; the column 'dataset' tells test folders apart by their "
                "names, so rename one"
            )
        if os.path.realpath(folder.path) == os.path.realpath(out):
            raise InputError(f"{out}: is a test folder, where tables would be taken for repertoires; choose another")
