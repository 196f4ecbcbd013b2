"""Containers of short sequences that occur in several repertoires."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences

V, J = ("", "TRBV1", "TRBV2"), ("TRBJ1", "TRBJ2")


def write_repertoires(
    path: Path, repertoires: list[list[str]], seed: int = 0, fields: tuple[str, ...] = ("v", "j")
) -> Path:
    rng = np.random.default_rng(seed)
    with ContainerWriter(path) as writer:
        for number, sequences in enumerate(repertoires):
            residues, offsets = encode_many(sequences)
            n = len(sequences)
            v = Categorical(rng.integers(0, 3, n).astype(np.uint16), V) if "v" in fields else None
            j = Categorical(rng.integers(0, 2, n).astype(np.uint16), J) if "j" in fields else None
            table = Sequences(residues, offsets, np.ones(n, np.uint32), v_call=v, j_call=j)
            writer.append(f"rep.{number}", table)
        writer.finish(pd.DataFrame({"status": np.arange(len(repertoires)) % 2}), source="a test")
    return path


def make_crowded(folder: Path) -> RepertoireDataset:
    """Return short sequences of few letters, 1 to 14 long, that meet often, also within a repertoire; one is empty."""
    rng = np.random.default_rng(1)
    sizes = (160, 0, 280, 120, 220)
    repertoires = [["".join(rng.choice(list("AY"), rng.integers(1, 15))) for _ in range(n)] for n in sizes]
    return open_dataset(write_repertoires(folder / "c.h5", repertoires))
