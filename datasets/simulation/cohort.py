"""A simulated cohort: what its repertoires are, as a function of a seed.

Letters: B repertoires, n sequences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from deeprc.datasets.alphabet import offsets_of, take
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.counters import key_of, uniforms
from deeprc.datasets.genes import normalise_gene
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import Background, DrawnSequences, IndependentBackground
from deeprc.datasets.simulation.signal import Implanter, Implants, Signal
from deeprc.errors import InputError

__all__ = ["Batch", "Cohort", "Counts", "GeneShift", "Sizes", "Stream"]

_OTHER_ROWS = 1 << 40
_MOST_TRIES = 10_000
_SUM = 1e-9
_LARGEST = 1_000_000_000  # sequences of a repertoire
_MOST_SIGNALS = 255  # what uint8 tells apart
_LOOKED_AT = 4096
_SHOWN = 5
_LARGEST_COUNT = int(np.iinfo(np.uint32).max)
_POSITIVE, _NEGATIVE = "positive", "negative"


class Stream(IntEnum):
    """What a random number is for. Each stream can have a seed of its own, so that one thing alone is changed."""

    SIZES = 1
    STATUS = 2
    BACKGROUND = 3
    SIGNAL = 4
    COUNTS = 5
    BATCH = 6
    LABEL_NOISE = 7
    PREVALENCE = 8
    GENE_SHIFT = 9


@dataclass(frozen=True)
class Sizes:
    """Numbers of sequences: normally distributed, rounded, drawn again below the minimum."""

    mean: float = 10_000
    sd: float = 0.0
    minimum: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.mean <= _LARGEST and 0 <= self.sd <= _LARGEST and 1 <= self.minimum <= self.mean + self.sd):
            raise InputError(
                f"sizes: expected a mean of 1 to {_LARGEST:,}, an sd of at least 0 and a minimum of 1 to mean + sd, "
                f"found {self.mean:g}, {self.sd:g} and {self.minimum}"
            )


@dataclass(frozen=True)
class Counts:
    """Abundances of sequences: 1, or from a power law, P(count >= c) = c ^ (1 - exponent), at most `maximum`."""

    exponent: float | None = None
    maximum: int = 1_000_000

    def __post_init__(self) -> None:
        if not (self.exponent is None or 1 < self.exponent < math.inf) or not 1 <= self.maximum <= _LARGEST_COUNT:
            raise InputError("counts: expected an exponent above 1, or null, and a maximum of 1 to 4294967295")


@dataclass(frozen=True)
class GeneShift:
    """A sequence whose V gene is none of `v_genes` is drawn again, once, with the probability `strength`."""

    v_genes: tuple[str, ...]
    strength: float

    def __post_init__(self) -> None:
        if not self.v_genes or not 0 <= self.strength <= 1:
            raise InputError("gene shift: expected at least one of v_genes and a strength of 0 to 1")
        for gene in self.v_genes:
            if normalise_gene(gene)[::2] != (gene, "gene"):
                raise InputError(f"gene shift: expected V genes by their IMGT names, found {gene!r}")


@dataclass(frozen=True)
class Batch:
    """Half of the repertoires come from a second batch, which differs.

    Attributes
    ----------
    association
        With the class: a positive repertoire is of the second batch with the probability (1 + association) / 2, a
        negative one with (1 - association) / 2.
    size_factor
        Of the second batch's numbers of sequences.
    gene_shift
        Of the second batch.
    """

    association: float = 0.0
    size_factor: float = 1.0
    gene_shift: GeneShift | None = None

    def __post_init__(self) -> None:
        if not -1 <= self.association <= 1 or not 0 < self.size_factor < math.inf:
            raise InputError("batch: expected an association of -1 to 1 and a size_factor above 0")


@dataclass(frozen=True)
class Cohort:
    """What to simulate. Any repertoire can be made alone, and is the same in a cohort of any size.

    Attributes
    ----------
    n_repertoires
        B. Of the first two one is positive, of the next two one, and so on.
    sizes, background, counts
        What the repertoires are made of.
    signals
        What they carry; at most one of them per sequence.
    batch
        A second batch.
    gene_shift
        Of the positive repertoires: a confounder.
    label_noise
        The probability that a repertoire's `status` is recorded wrongly; `true_status` then tells.
    seed
        Of every random choice.
    seeds
        For single streams (`signal`, `background`, `sizes` ...) a seed of their own.
    name
        What the cohort is called.
    """

    n_repertoires: int
    sizes: Sizes = field(default_factory=Sizes)
    background: Background = field(default_factory=IndependentBackground)
    signals: tuple[Signal, ...] = ()
    counts: Counts = field(default_factory=Counts)
    batch: Batch | None = None
    gene_shift: GeneShift | None = None
    label_noise: float = 0.0
    seed: int = 0
    seeds: Mapping[str, int] = field(default_factory=dict)
    name: str = "cohort"

    def __post_init__(self) -> None:
        known = {stream.name.lower() for stream in Stream}
        if self.n_repertoires < 1:
            raise InputError(f"n_repertoires: expected at least 1, found {self.n_repertoires}")
        if not 0 <= self.label_noise <= 1:
            raise InputError(f"label_noise: expected 0 to 1, found {self.label_noise}")
        if not set(self.seeds) <= known:
            raise InputError(f"seeds: expected some of {', '.join(sorted(known))}, found {', '.join(self.seeds)}")
        if len({signal.name for signal in self.signals}) < len(self.signals):
            raise InputError("signals: expected a name of its own for each")
        for status in (_POSITIVE, _NEGATIVE):
            if sum(signal.witness_rate for signal in self.signals if signal.status == status) > 1 + _SUM:
                raise InputError(f"signals: the witness rates of the {status} class sum to more than 1")
        if len(self.signals) > _MOST_SIGNALS:
            raise InputError(f"signals: expected at most {_MOST_SIGNALS}, found {len(self.signals)}")
        for shift in (self.gene_shift, None if self.batch is None else self.batch.gene_shift):
            self._check_shift(shift)

    def _check_shift(self, shift: GeneShift | None) -> None:
        if shift is None:
            return
        drawn = self.background.draw(0, np.arange(_LOOKED_AT))
        if drawn.v_call is None:
            raise InputError("gene_shift: the background has no V genes")
        if not set(shift.v_genes) & set(drawn.v_call.vocabulary):
            found = ", ".join(sorted(filter(None, drawn.v_call.vocabulary))[:_SHOWN])
            raise InputError(f"gene_shift: the background has none of {', '.join(shift.v_genes)}; it has {found}, ...")

    def repertoire_id(self, number: int) -> str:
        """Return the id of a repertoire, numbered from 0."""
        return f"repertoire_{number + 1:05d}"

    def is_positive(self, number: int) -> bool:
        """Tell whether a repertoire is of the positive class; in each pair, 2 j and 2 j + 1, one is."""
        first = self._uniform(Stream.STATUS, number // 2) < 0.5
        return first == (number % 2 == 0)

    def is_of_second_batch(self, number: int) -> bool:
        """Tell whether a repertoire is of the second batch."""
        if self.batch is None:
            return False
        sign = 1 if self.is_positive(number) else -1
        return self._uniform(Stream.BATCH, number) < (1 + sign * self.batch.association) / 2

    def carried(self, number: int) -> list[bool]:
        """Tell which of the signals a repertoire carries."""
        status = _POSITIVE if self.is_positive(number) else _NEGATIVE
        return [
            signal.status == status and self._uniform(Stream.PREVALENCE, number, place) < signal.prevalence
            for place, signal in enumerate(self.signals)
        ]

    def size(self, number: int) -> int:
        """Return the number of sequences of a repertoire."""
        factor = self.batch.size_factor if self.batch is not None and self.is_of_second_batch(number) else 1.0
        key = self._key(Stream.SIZES, number)
        for attempt in range(_MOST_TRIES):
            u = float(uniforms(key, np.array([attempt]))[0])
            size = round(self.sizes.mean + self.sizes.sd * float(ndtri(u + 2.0**-54)))
            if size >= self.sizes.minimum:
                return max(round(factor * size), 1)
        raise InputError(f"sizes: none of {_MOST_TRIES} draws reaches the minimum {self.sizes.minimum}")

    @cached_property
    def all_sizes(self) -> NDArray[np.int64]:
        """The number of sequences of each repertoire, (B,)."""
        return np.array([self.size(number) for number in range(self.n_repertoires)], np.int64)

    def metadata(self) -> pd.DataFrame:
        """Return the sheet: `repertoire_id`, `status` (positive or negative), and the truth behind it where it is more.

        `true_status` with label noise, `batch` (1 or 2) with a second batch, and `carries_<signal>` (1 or 0) where the
        class does not tell it.
        """
        numbers = range(self.n_repertoires)
        truth = [_POSITIVE if self.is_positive(number) else _NEGATIVE for number in numbers]
        columns: dict[str, list[str] | list[int]] = {
            "repertoire_id": [self.repertoire_id(number) for number in numbers],
            "status": [self._recorded(number, status) for number, status in enumerate(truth)],
        }
        if self.label_noise:
            columns["true_status"] = truth
        if self.batch is not None:
            columns["batch"] = [1 + self.is_of_second_batch(number) for number in numbers]
        carried = [self.carried(number) for number in numbers]
        for place, signal in enumerate(self.signals):
            if len(self.signals) > 1 or signal.prevalence < 1:
                columns[f"carries_{signal.name}"] = [int(each[place]) for each in carried]
        table = pd.DataFrame(columns)
        return table.astype({name: object for name in ("repertoire_id", "status", "true_status") if name in table})

    def draw(self, number: int, rows: NDArray[np.int64] | None = None) -> tuple[Sequences, Implants]:
        """Return a repertoire's sequences, all or those at some rows, (n,), and the truth about them."""
        rows = np.arange(self.size(number)) if rows is None else rows
        drawn = self._with_shifted_genes(number, rows, self.background.draw(self._key(Stream.BACKGROUND, number), rows))
        key = self._key(Stream.SIGNAL, number)
        implants = self._implanter.implant(key, rows, drawn.residues, drawn.lengths, self.carried(number))
        table = Sequences(
            drawn.residues,
            offsets_of(drawn.lengths),
            self._counts(number, rows),
            drawn.v_call,
            drawn.j_call,
            implants.signal,
        )
        return table, implants

    def lengths_and_counts(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Return those of a whole repertoire, (n,), without its residues; signals do not change them."""
        rows = np.arange(self.size(number))
        if any(self._shifts(number)):
            lengths = self.draw(number)[0].lengths
        else:
            lengths = self.background.draw_lengths(self._key(Stream.BACKGROUND, number), rows)
        return lengths, self._counts(number, rows)

    def _shifts(self, number: int) -> tuple[GeneShift | None, GeneShift | None]:
        """Return the shifts of a repertoire's class and of its batch."""
        of_batch = self.batch.gene_shift if self.batch is not None and self.is_of_second_batch(number) else None
        return self.gene_shift if self.is_positive(number) else None, of_batch

    @cached_property
    def _implanter(self) -> Implanter:
        return Implanter(self.signals)

    def _counts(self, number: int, rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        if self.counts.exponent is None:
            return np.ones(len(rows), np.uint32)
        u = 1 - uniforms(self._key(Stream.COUNTS, number), rows)  # above 0
        with np.errstate(over="ignore"):  # infinity is more than the maximum, too
            counts = np.floor(u ** (-1 / (self.counts.exponent - 1)))
        return np.minimum(counts, self.counts.maximum).astype(np.uint32)

    def _with_shifted_genes(self, number: int, rows: NDArray[np.int64], drawn: DrawnSequences) -> DrawnSequences:
        for part, shift in enumerate(self._shifts(number)):
            if shift is None:
                continue
            assert drawn.v_call is not None
            other = np.array([gene not in shift.v_genes for gene in drawn.v_call.vocabulary])[drawn.v_call.codes]
            u = uniforms(self._key(Stream.GENE_SHIFT, number, part), rows)
            again = np.flatnonzero(other & (u < shift.strength))
            key = self._key(Stream.BACKGROUND, number)
            drawn = _replaced(drawn, again, self.background.draw(key, rows[again] + (part + 1) * _OTHER_ROWS))
        return drawn

    def _recorded(self, number: int, status: str) -> str:
        if self._uniform(Stream.LABEL_NOISE, number) >= self.label_noise:
            return status
        return _NEGATIVE if status == _POSITIVE else _POSITIVE

    def _key(self, stream: Stream, *parts: int) -> int:
        return key_of(self.seeds.get(stream.name.lower(), self.seed), stream, *parts)

    def _uniform(self, stream: Stream, *parts: int) -> float:
        return float(uniforms(self._key(stream, *parts), np.zeros(1, np.int64))[0])


def _replaced(drawn: DrawnSequences, rows: NDArray[np.int64], others: DrawnSequences) -> DrawnSequences:
    """Return sequences of which those at some rows are others."""
    place = np.arange(len(drawn.lengths))
    place[rows] = len(drawn.lengths) + np.arange(len(rows))
    both = np.concatenate([drawn.residues, others.residues])
    residues, offsets = take(both, offsets_of(np.concatenate([drawn.lengths, others.lengths])), place)
    genes: list[Categorical | None] = []
    for before, after in ((drawn.v_call, others.v_call), (drawn.j_call, others.j_call)):
        known = [calls for calls in (before, after) if calls is not None]
        genes.append(Categorical.concatenate(known).take(place) if len(known) == 2 else None)
    return DrawnSequences(residues, np.diff(offsets), *genes)
