"""Settings of a cohort besides its background and signals: sizes, counts, batches, gene shifts and random streams."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.genes import normalise_gene
from deeprc.datasets.random_numbers import draw_uniforms
from deeprc.datasets.simulation.background import Background, draw_standard_normals
from deeprc.errors import InputError

__all__ = ["MAX_REPERTOIRES", "MAX_SEQUENCES", "Batch", "Counts", "GeneShift", "Sizes", "Stream"]

MAX_REPERTOIRES = 1_000_000
"""The largest number of simulated repertoires; their ids and labels are in memory."""

MAX_SEQUENCES = 100_000_000
"""The largest number of sequences of a simulated repertoire: it is in memory, where so many take 11 GB."""

_MAX_COUNT = int(np.iinfo(np.uint32).max)
_MAX_TRIES = 10_000
_N_CHECKED = 4096  # number of sequences in which shifted genes are looked for
_SHOWN = 5


class Stream(IntEnum):
    """The purpose of a random number. Each stream can have its own seed, so that only one thing is changed.

    A new kind of signal needs a stream with a new number. The numbers of the others must not change, because the
    sequences of each seed depend on them.
    """

    SIZES = 1
    STATUS = 2
    BACKGROUND = 3
    SIGNAL = 4
    COUNTS = 5
    BATCH = 6
    LABEL_NOISE = 7
    PREVALENCE = 8
    GENE_SHIFT = 9
    CLONES = 10
    DIFFUSE = 11


@dataclass(frozen=True)
class Sizes:
    """Numbers of sequences: normally distributed, rounded, and drawn again if below the minimum."""

    mean: float = 10_000
    sd: float = 0.0
    minimum: int = 1

    def __post_init__(self) -> None:
        fits = 1 <= self.mean <= MAX_SEQUENCES and 0 <= self.sd <= MAX_SEQUENCES
        if not fits or not 1 <= self.minimum <= self.mean + self.sd:
            raise InputError(
                f"sizes: expected a mean of 1 to {MAX_SEQUENCES:,}, an sd of at least 0 and a minimum of 1 to mean + "
                f"sd, found {self.mean:g}, {self.sd:g} and {self.minimum}"
            )

    def draw(self, key: int) -> int:
        """Return the number of sequences of a repertoire, whose random numbers have this key."""
        for attempt in range(_MAX_TRIES):
            size = round(self.mean + self.sd * float(draw_standard_normals(key, np.array([attempt]))[0]))
            if size >= self.minimum:
                return size
        raise InputError(f"sizes: none of {_MAX_TRIES} draws reaches the minimum {self.minimum}")


@dataclass(frozen=True)
class Counts:
    """Counts of sequences: 1, or from a power law, P(count >= c) = c ^ (1 - exponent), at most `maximum`."""

    exponent: float | None = None
    maximum: int = 1_000_000

    def __post_init__(self) -> None:
        if not (self.exponent is None or 1 < self.exponent < math.inf) or not 1 <= self.maximum <= _MAX_COUNT:
            raise InputError("counts: expected an exponent above 1, or null, and a maximum of 1 to 4294967295")

    def draw(self, key: int, rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the count of the sequence at each row, (n,), of the repertoire of a key."""
        if self.exponent is None:
            return np.ones(len(rows), np.uint32)
        u = 1 - draw_uniforms(key, rows)  # above 0
        with np.errstate(over="ignore"):  # infinity is more than the maximum, too
            counts = np.floor(u ** (-1 / (self.exponent - 1)))
        return np.minimum(counts, self.maximum).astype(np.uint32)


@dataclass(frozen=True)
class GeneShift:
    """A preference for some V genes.

    A sequence whose V gene is none of `v_genes` is drawn again once, with probability `strength`.
    """

    v_genes: tuple[str, ...]
    strength: float

    def __post_init__(self) -> None:
        if not self.v_genes or not 0 <= self.strength <= 1:
            raise InputError("gene shift: expected at least one of v_genes and a strength of 0 to 1")
        for gene in self.v_genes:
            imgt = normalise_gene(gene)
            if imgt.name != gene or imgt.level != "gene":
                raise InputError(f"gene shift: expected V genes by their IMGT names, found {gene!r}")

    def check_background(self, background: Background) -> None:
        """Raise InputError if a background has none of the V genes."""
        drawn = background.draw(0, np.arange(_N_CHECKED))
        if drawn.v_call is None:
            raise InputError("gene_shift: the background has no V genes")
        if not set(self.v_genes) & set(drawn.v_call.vocabulary):
            examples = ", ".join(sorted(filter(None, drawn.v_call.vocabulary))[:_SHOWN])
            raise InputError(
                f"gene_shift: the background has none of {', '.join(self.v_genes)}; it has {examples}, ..."
            )

    def choose_redrawn(self, v_call: Categorical, key: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of the sequences to draw again, given the V genes, n, of those at these rows, (n,)."""
        is_other = np.array([gene not in self.v_genes for gene in v_call.vocabulary])[v_call.codes]
        return np.flatnonzero(is_other & (draw_uniforms(key, rows) < self.strength))


@dataclass(frozen=True)
class Batch:
    """A second batch of half of the repertoires, in which sizes or V genes differ from the first batch.

    Attributes
    ----------
    association
        Strength of the association of the batch with the class, -1 to 1. A positive repertoire is in the second batch
        with a probability of (1 + association) / 2, a negative one with (1 - association) / 2.
    size_factor
        Factor of the numbers of sequences in the second batch.
    gene_shift
        Preference of the second batch for some V genes.
    """

    association: float = 0.0
    size_factor: float = 1.0
    gene_shift: GeneShift | None = None

    def __post_init__(self) -> None:
        if not -1 <= self.association <= 1 or not 0 < self.size_factor < math.inf:
            raise InputError("batch: expected an association of -1 to 1 and a size_factor above 0")
