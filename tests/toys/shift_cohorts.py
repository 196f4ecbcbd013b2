"""Cohorts whose repertoires differ as those of donors do, and cohorts that differ from them in one respect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences

N_V, N_J = 30, 13


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How repertoires are drawn.

    `depth` is the median number of sequences, `of_v` the share of TRBV20-1 in all repertoires (None: as drawn), `chain`
    the names' beginning, and `trimmed` the number of residues that both ends of the junctions lack.
    """

    depth: int = 400
    of_v: float | None = None
    chain: str = "TRB"
    trimmed: int = 0


def draw_repertoire(rng: np.random.Generator, recipe: Recipe) -> Sequences:
    """Draw one donor's repertoire: V and J usage, residues, lengths and depth vary between donors."""
    n = max(int(recipe.depth * np.exp(0.3 * rng.standard_normal())), 30)
    usual = np.random.default_rng(7)  # the same for all donors
    v_usage = rng.dirichlet(200 * usual.dirichlet(np.full(N_V, 3.0)))
    j_usage = rng.dirichlet(300 * usual.dirichlet(np.full(N_J, 3.0)))
    residue_usage = rng.dirichlet(2000 * usual.dirichlet(np.full(20, 5.0)))
    if recipe.of_v is not None:
        v_usage = np.append((1 - recipe.of_v) * v_usage[1:] / v_usage[1:].sum(), recipe.of_v)[[-1, *range(N_V - 1)]]
    lengths = np.clip(np.round(rng.normal(14.5 + 0.1 * rng.standard_normal(), 1.6, n)), 9, 25).astype(np.int64)
    offsets = compute_offsets(lengths)
    residues = rng.choice(20, int(offsets[-1]), p=residue_usage).astype(np.uint8)
    for at, letter in ((0, "C"), (1, "A"), (2, "S")):
        residues[offsets[:-1] + at] = AMINO_ACIDS.index(letter)
    residues[offsets[1:] - 1] = AMINO_ACIDS.index("F")
    if recipe.trimmed:
        inside = np.arange(len(residues)) - np.repeat(offsets[:-1], lengths)
        kept = (inside >= recipe.trimmed) & (inside < np.repeat(lengths, lengths) - recipe.trimmed)
        residues, offsets = residues[kept], compute_offsets(lengths - 2 * recipe.trimmed)
    names_v = ("", f"{recipe.chain}V20-1", *(f"{recipe.chain}V{number}" for number in range(1, N_V)))
    names_j = ("", *(f"{recipe.chain}J{2 if number < 7 else 1}-{1 + number % 7}" for number in range(N_J)))
    return Sequences(
        residues,
        offsets,
        rng.geometric(0.5, n).astype(np.uint32),
        v_call=Categorical((1 + rng.choice(N_V, n, p=v_usage)).astype(np.uint16), names_v),
        j_call=Categorical((1 + rng.choice(N_J, n, p=j_usage)).astype(np.uint16), names_j),
    )


def write_repertoires(path: Path, repertoires: dict[str, Sequences], **columns: object) -> RepertoireDataset:
    """Write repertoires by their ids, with columns of metadata."""
    with ContainerWriter(path) as writer:
        for name, sequences in repertoires.items():
            writer.append(name, sequences)
        writer.finish(pd.DataFrame({"sample": list(repertoires), **columns}), source="a test")
    return open_dataset(path)


def draw_cohort(path: Path, n: int, *, seed: int, recipe: Recipe | None = None, name: str = "rep") -> RepertoireDataset:
    """Write the repertoires of n donors, every other one sick."""
    rng = np.random.default_rng(seed)
    drawn = {f"{name}.{i}": draw_repertoire(rng, recipe or Recipe()) for i in range(n)}
    return write_repertoires(path, drawn, status=["well", "sick"] * (n // 2) + ["well"] * (n % 2))
