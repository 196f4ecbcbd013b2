"""Digests of what the outcome of a job depends on: the content of a cohort, and the columns of its sheet."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from deeprc.datasets.cache import digest_container, digest_with_genes
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.linked_container import StoredContainer

__all__ = ["collect_read_columns", "digest_cohort", "digest_read_content", "digest_values", "is_class_of_deeprc"]


def digest_values(*values: Any) -> str:
    """Return a digest of values: JSON values, arrays, and other objects such as estimators."""
    return hashlib.blake2b(
        json.dumps(values, sort_keys=True, default=_make_canonical).encode(), digest_size=12
    ).hexdigest()


def _make_canonical(value: Any) -> Any:
    """Return a representation of a value that is equal in every process."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        content = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).hexdigest()
        return [str(value.dtype), list(value.shape), content]
    if isinstance(value, np.generic):
        return value.item()
    name = f"{type(value).__module__}:{type(value).__qualname__}"
    if hasattr(value, "get_params"):
        return [name, value.get_params(deep=False)]
    return [name, re.sub(" at 0x[0-9a-f]+", "", repr(value))]


def digest_cohort(dataset: RepertoireDataset) -> str:
    """Return a digest of the content of a cohort."""
    container = dataset.container
    rows = dataset.repertoire_indices.tolist()
    if isinstance(container, StoredContainer):
        return digest_values(digest_container(container), rows)
    from deeprc.datasets.simulation import SimulatedDataset
    from deeprc.datasets.simulation.recipe import cohort_to_mapping

    if isinstance(dataset, SimulatedDataset):
        return digest_values(cohort_to_mapping(dataset.cohort), rows)
    return digest_values(digest_with_genes(dataset))  # a table in memory


def digest_read_content(dataset: RepertoireDataset, estimator: BaseEstimator) -> str:
    """Return a digest of the content of a cohort and of the columns of its sheet that a method reads."""
    return digest_values(digest_cohort(dataset), collect_read_columns(estimator, dataset.metadata))


def collect_read_columns(estimator: BaseEstimator, metadata: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return the columns of the sheet that a method reads, with their values as text; a user's class may read any."""
    columns = list(metadata.columns)
    if is_class_of_deeprc(type(estimator)):
        columns = [name for name in columns if name in estimator.sheet_columns]
    return [(str(name), metadata[name].map(str).tolist()) for name in columns]


def is_class_of_deeprc(estimator_class: type) -> bool:
    """Return whether a class belongs to deeprc."""
    return estimator_class.__module__.partition(".")[0] == "deeprc"
