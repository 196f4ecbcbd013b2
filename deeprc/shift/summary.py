"""What a run keeps of its training repertoires to tell how other repertoires differ from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.shift.description import describe, learn_vocabulary
from deeprc.shift.reference import Reference, read_reference, write_reference
from deeprc.shift.sketches import Sketches, read_sketches, write_sketches

__all__ = ["TrainingSummary", "read_summary", "summarise_training", "write_summary"]


@dataclass(frozen=True)
class TrainingSummary:
    """What is known of the training and validation repertoires of a model.

    Attributes
    ----------
    reference
        What is usual among them; None for a run of an earlier version, or of few donors.
    sketches
        What recognises them; None where they are not kept.
    digests
        The digest of each one's content, by its id; empty where ids are not known.
    """

    reference: Reference | None = None
    sketches: Sketches | None = None
    digests: dict[str, str] | None = None


def summarise_training(
    dataset: RepertoireDataset, donors: NDArray[np.int64] | None, *, keep_sketches: bool = True
) -> TrainingSummary:
    """Summarise the training and validation repertoires of a model; `donors` as those of `Reference.of`."""
    vocabulary = learn_vocabulary(dataset)
    reference = Reference.of(describe(dataset, vocabulary), vocabulary, donors) if len(dataset) else None
    return TrainingSummary(reference, Sketches.of(dataset) if keep_sketches and len(dataset) else None)


def write_summary(folder: Path, summary: TrainingSummary) -> None:
    """Write what there is of a summary into a run directory."""
    if summary.reference is not None:
        write_reference(folder, summary.reference)
    if summary.sketches is not None:
        write_sketches(folder, summary.sketches)


def read_summary(folder: Path) -> TrainingSummary:
    """Read what a run directory has of a summary, without the digests.

    Raises
    ------
    InputError
        If a file is damaged.
    """
    return TrainingSummary(read_reference(folder), read_sketches(folder))
