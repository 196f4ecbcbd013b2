"""Digests of the data that a run learns from: they show whether the data changed since the run was begun."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.progress import track
from deeprc.runs.run_settings import RunSettings
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task

__all__ = ["check_fingerprint", "check_training_data", "digest_split_columns", "digest_training_data"]


def digest_training_data(dataset: RepertoireDataset, tasks: Sequence[Task], config: Config) -> str:
    """Return the fingerprint of a dataset: a hash of its ids, sequences, counts and labels, and of genes if needed.

    Genes are needed if the network or its branches read them.
    """
    digest = hashlib.sha256(encode_labels(tasks, dataset.metadata).tobytes())
    container, network = dataset.sequence_container, config.network
    fields = GENE_FIELDS if network.gene_units or network.composition or network.clones else ()
    for field in fields:
        digest.update(json.dumps(container.gene_names.get(field)).encode())
    repertoires = track(dataset, "hashing repertoires", len(dataset))
    for row, repertoire in zip(dataset.repertoire_indices.tolist(), repertoires, strict=True):
        digest.update(f"{repertoire.repertoire_id}\n{repertoire.digest()}\n".encode())
        for field in fields:
            if field in container.gene_names:
                codes = container.map_to_joint_codes(container.find_part(row), field, repertoire.genes[field].codes)
                digest.update(np.ascontiguousarray(codes).data)
    return digest.hexdigest()


def digest_split_columns(metadata: pd.DataFrame, options: SplitOptions) -> dict[str, str]:
    """Return a hash of each column that the split of a cohort reads besides the targets, by name.

    They are the column of the donors, which the training reads, too; that of a test part; and those of `adjust_for`.
    """
    tested = [name for name in metadata.columns if (options.test or "").startswith(f"{name}=")]
    donors = [] if options.group_by is None else [options.group_by]
    names = dict.fromkeys([*donors, *tested, *options.adjust_for])
    return {name: _digest_column(metadata[name]) for name in names if name in metadata}


def _digest_column(values: pd.Series[Any]) -> str:
    texts = [None if is_missing else str(value) for value, is_missing in zip(values, values.isna(), strict=True)]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def check_training_data(dataset: RepertoireDataset, settings: RunSettings, folder: Path) -> None:
    """Raise InputError unless a dataset is that with which the run of a folder was started; see `check_fingerprint`."""
    check_fingerprint(digest_training_data(dataset, settings.tasks, settings.config), dataset, settings, folder)


def check_fingerprint(fingerprint: str, dataset: RepertoireDataset, settings: RunSettings, folder: Path) -> None:
    """Raise InputError unless a run was started with the data that have this fingerprint, see `digest_training_data`.

    The columns that the split reads must be the same, too. Several runs share the fingerprint of a dataset, because it
    takes long to compute.
    """
    if fingerprint != settings.fingerprint:
        raise InputError(f"{dataset.container.path}: its repertoires or labels have changed since {folder} was started")
    columns = digest_split_columns(dataset.metadata, settings.split_options)
    changed = [name for name, digest in settings.split_columns.items() if columns.get(name) != digest]
    if changed:
        problem = f"its column {changed[0]!r}, on which the split depends, has changed since {folder} was started"
        raise InputError(f"{dataset.container.path}: {problem}")
