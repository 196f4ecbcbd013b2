"""Summarise the training repertoires of a run, to measure how other repertoires differ from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.shift.feature_table import compute_features, learn_vocabulary
from deeprc.shift.sketches import Sketches, read_sketches, write_sketches
from deeprc.shift.training_reference import Reference, read_reference, write_reference

__all__ = ["TrainingSummary", "read_summary", "summarise_training", "write_summary"]


@dataclass(frozen=True)
class TrainingSummary:
    """A summary of the training and validation repertoires of a model.

    Attributes
    ----------
    reference
        Usual values among them; None for a run of an earlier version, or with few donors.
    sketches
        Hashes that recognise copies of them; None if they are not kept.
    identities
        Identity of each repertoire, by its id, see `identify_repertoire`; None or empty if ids are not known.
    """

    reference: Reference | None = None
    sketches: Sketches | None = None
    identities: dict[str, str] | None = None


def summarise_training(
    dataset: RepertoireDataset, donors: NDArray[np.int64] | None, *, keep_sketches: bool = True
) -> TrainingSummary:
    """Summarise the training and validation repertoires of a model; `donors` are those of `Reference.of`."""
    vocabulary = learn_vocabulary(dataset)
    reference = Reference.of(compute_features(dataset, vocabulary), vocabulary, donors) if len(dataset) else None
    return TrainingSummary(reference, Sketches.of(dataset) if keep_sketches and len(dataset) else None)


def write_summary(folder: Path, summary: TrainingSummary) -> None:
    """Write the existing parts of a summary into a run directory."""
    if summary.reference is not None:
        write_reference(folder, summary.reference)
    if summary.sketches is not None:
        write_sketches(folder, summary.sketches)


def read_summary(folder: Path) -> TrainingSummary:
    """Read the parts of a summary that a run directory has, without the identities.

    Raises
    ------
    InputError
        If a file is damaged.
    """
    return TrainingSummary(read_reference(folder), read_sketches(folder))
