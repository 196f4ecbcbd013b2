"""Small repertoires, given as text or as arrays, in a container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences


def make_sequences(
    texts: Sequence[str],
    counts: Sequence[int] | None = None,
    *,
    v_call: Sequence[str] | None = None,
    j_call: Sequence[str] | None = None,
) -> Sequences:
    """Return sequences, each with a count of 1 if there are no counts, and with the genes that are given."""
    numbers = np.ones(len(texts), np.uint32) if counts is None else np.array(counts, np.uint32)
    genes = [None if names is None else Categorical.encode(names) for names in (v_call, j_call)]
    return Sequences(*encode_many(texts), numbers, *genes)


def write_repertoires(
    path: Path, repertoires: Iterable[Sequences], metadata: Mapping[str, object], ids: Sequence[str] | None = None
) -> RepertoireDataset:
    """Write repertoires with these columns of metadata; without ids, they are r0, r1 ..."""
    with ContainerWriter(path) as writer:
        for number, sequences in enumerate(repertoires):
            writer.append(f"r{number}" if ids is None else ids[number], sequences)
        writer.finish(pd.DataFrame(metadata), source="a test")
    return open_dataset(path)
