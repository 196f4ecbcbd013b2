"""Small repertoires with given junctions and V genes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences


def write_genes(
    path: Path, junctions: Sequence[Sequence[str]], genes: Sequence[Sequence[str]] | None
) -> RepertoireDataset:
    """Write repertoires with these V genes, or without any; every sequence was seen once."""
    with ContainerWriter(path) as writer:
        for number, each in enumerate(junctions):
            residues, offsets = encode_many(each)
            calls = {} if genes is None else {"v_call": Categorical.encode(genes[number])}
            writer.append(f"rep.{number}", Sequences(residues, offsets, np.ones(len(each), np.uint32), **calls))
        writer.finish(pd.DataFrame({"status": ["ab"[number % 2] for number in range(len(junctions))]}), source="a test")
    return open_dataset(path)
