"""A simulated cohort, whose repertoires are a function of a seed.

Letters: B repertoires, n sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import ceil

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.random_numbers import derive_key, draw_uniforms
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import Background, IndependentBackground, replace_rows
from deeprc.datasets.simulation.carrier_table import CarrierTable
from deeprc.datasets.simulation.clone_signal import ClonePools, CloneSignal
from deeprc.datasets.simulation.cohort_settings import MAX_REPERTOIRES, Batch, Counts, GeneShift, Sizes, Stream
from deeprc.datasets.simulation.diffuse_signal import DiffuseSignal, SequencePreference, choose_second_draws
from deeprc.datasets.simulation.implanter import Implanter, Implants
from deeprc.datasets.simulation.motif_signal import MotifSignal
from deeprc.datasets.simulation.signal_checks import check_names
from deeprc.errors import InputError

__all__ = ["Batch", "Cohort", "Counts", "GeneShift", "Signal", "Sizes", "Stream"]

Signal = MotifSignal | CloneSignal | CarrierTable | DiffuseSignal

_REDRAW_OFFSET = 1 << 40  # a sequence that is drawn again for purpose k is that at row + k * this offset
_PREFERENCE_REDRAW = 3  # purpose k of diffuse signals; 1 and 2 are those of shifted genes
_ROUNDING = 1e-9
_MAX_MOTIFS = 2_500  # indices of these and of the largest number of clones fit into int16
_MAX_SIGNALS = 255  # their indices fit into uint8
_POSITIVE, _NEGATIVE = "positive", "negative"


@dataclass(frozen=True)
class Cohort:
    """A cohort to simulate. Any repertoire can be made alone, and is the same in a cohort of any size.

    Attributes
    ----------
    n_repertoires
        Number of repertoires, B.
    sizes, background, counts
        Numbers of sequences, source of the sequences, and distribution of their abundances.
    signals
        Signals that the repertoires of one class carry; a sequence carries at most one signal.
    batch
        Second batch; None: there is one batch only.
    gene_shift
        Preference of the positive repertoires for some V genes: a confounder.
    label_noise
        Probability that a repertoire's `status` is recorded wrongly; `true_status` is then the truth.
    seed
        Seed of every random choice.
    seeds
        Seeds of single streams (`signal`, `background`, `sizes` ...), if they differ from `seed`.
    name
        Name of the cohort.
    exclusive
        Whether a repertoire carries at most one of its class's signals. The signals' prevalences are then the
        probabilities of each.
    positive_share
        Share of the positive repertoires, up to one repertoire. With 0.5, one of the first two repertoires is
        positive, one of the next two, and so on.
    test_share
        Share of each class that is `test` in the sheet's column `part`; the others are `train`. If the share is 0,
        there is no such column.
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
    exclusive: bool = False
    positive_share: float = 0.5
    test_share: float = 0.0

    def __post_init__(self) -> None:
        streams = {stream.name.lower() for stream in Stream}
        if not 1 <= self.n_repertoires <= MAX_REPERTOIRES:
            raise InputError(f"n_repertoires: expected 1 to {MAX_REPERTOIRES:,}, found {self.n_repertoires:,}")
        for name in ("label_noise", "positive_share", "test_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}: expected 0 to 1, found {getattr(self, name)}")
        if not set(self.seeds) <= streams:
            raise InputError(f"seeds: expected some of {', '.join(sorted(streams))}, found {', '.join(self.seeds)}")
        self._check_signals()
        self._check_carrier_table()
        for shift in (self.gene_shift, None if self.batch is None else self.batch.gene_shift):
            if shift is not None:
                shift.check_background(self.background)

    def _check_signals(self) -> None:
        """Raise InputError if the signals do not fit together, or are too many."""
        check_names(self.name, [signal.name for signal in self.signals])
        for status in (_POSITIVE, _NEGATIVE):
            class_signals = [signal for signal in self.signals if signal.status == status]
            if sum(signal.witness_rate for signal in class_signals if isinstance(signal, MotifSignal)) > 1 + _ROUNDING:
                raise InputError(f"signals: the witness rates of the {status} class sum to more than 1")
            if self.exclusive and sum(signal.prevalence for signal in class_signals) > 1 + _ROUNDING:
                raise InputError(f"signals: with exclusive, the prevalences of the {status} class sum to more than 1")
        if len(self.signals) > _MAX_SIGNALS:
            raise InputError(f"signals: expected at most {_MAX_SIGNALS}, found {len(self.signals)}")
        n_motifs = sum(len(signal.motifs) for signal in self.motif_signals)
        if n_motifs > _MAX_MOTIFS:
            raise InputError(f"signals: expected at most {_MAX_MOTIFS:,} motifs in total, found {n_motifs:,}")
        if not self.test_share and any(getattr(signal, "test_burden", None) is not None for signal in self.signals):
            raise InputError("signals: a test_burden needs a test_share above 0")

    def _check_carrier_table(self) -> None:
        """Raise InputError if the cohort does not agree with the table of carriers that a signal reads."""
        if sum(isinstance(signal, CarrierTable) for signal in self.signals) > 1:
            raise InputError("signals: expected at most one of kind carriers")
        table = self._carrier_table
        if table is not None and self.n_repertoires > len(table):
            raise InputError(
                f"n_repertoires: expected at most {len(table)}, the number of rows of {table.path}, found "
                f"{self.n_repertoires}"
            )
        if table is not None and self.positive_share != type(self).positive_share:
            raise InputError(f"positive_share: {table.path} says which repertoires are positive")

    @cached_property
    def _carrier_table(self) -> CarrierTable | None:
        return next((signal for signal in self.signals if isinstance(signal, CarrierTable)), None)

    def repertoire_id(self, index: int) -> str:
        """Return the id of a repertoire, numbered from 0."""
        table = self._carrier_table
        return f"repertoire_{index + 1:05d}" if table is None else table.repertoire_ids[index]

    def is_positive(self, index: int) -> bool:
        """Return whether a repertoire is positive.

        If no table says it, positive repertoire k is one of those from k / share to (k + 1) / share, all equally
        likely. So the number of positive repertoires among the first ones is never far from their share.
        """
        if self._carrier_table is not None:
            return bool(self._carrier_table.is_positive[index])
        share = Fraction(str(self.positive_share))  # exact, so that no bound is rounded
        if not share:
            return False
        k = int(index * share)  # the last one whose range begins at this index or before
        first, stop = ceil(k / share), ceil((k + 1) / share)
        u = self._draw_uniform(Stream.STATUS, k)
        return index == first + int(u * (stop - first))

    def is_of_test_part(self, index: int) -> bool:
        """Return whether a repertoire is of the part that the sheet calls `test`."""
        return bool(self._are_of_test_part[index])

    @cached_property
    def _are_of_test_part(self) -> NDArray[np.bool_]:
        """Whether each repertoire is of the test part, (B,); those of a class are taken at equal distances."""
        is_test = np.zeros(self.n_repertoires, np.bool_)
        if self.test_share:
            positive = np.array([self.is_positive(index) for index in range(self.n_repertoires)])
            for rows in (np.flatnonzero(positive), np.flatnonzero(~positive)):
                n_test_until = np.floor(np.arange(len(rows) + 1) * self.test_share + _ROUNDING)
                is_test[rows] = np.diff(n_test_until) > 0
        return is_test

    def is_of_second_batch(self, index: int) -> bool:
        """Return whether a repertoire is of the second batch."""
        if self.batch is None:
            return False
        sign = 1 if self.is_positive(index) else -1
        return self._draw_uniform(Stream.BATCH, index) < (1 + sign * self.batch.association) / 2

    def _find_second_batch(self, index: int) -> Batch | None:
        """Return how a repertoire differs from the first batch; None if it is of the first batch."""
        return self.batch if self.is_of_second_batch(index) else None

    def find_carried_signals(self, index: int) -> list[bool]:
        """Return whether a repertoire carries each of the signals."""
        status = _POSITIVE if self.is_positive(index) else _NEGATIVE
        is_carried = []
        below = 0.0  # sum of the prevalences of the class's earlier signals, if signals exclude each other
        for i, signal in enumerate(self.signals):
            u = self._draw_uniform(Stream.PREVALENCE, index, 0 if self.exclusive else i)
            is_carried.append(signal.status == status and below <= u < below + signal.prevalence)
            if self.exclusive and signal.status == status:
                below += signal.prevalence
        return is_carried

    def size(self, index: int) -> int:
        """Return the number of sequences of a repertoire."""
        batch = self._find_second_batch(index)
        factor = 1.0 if batch is None else batch.size_factor
        table = self._carrier_table
        size = self.sizes.draw(self._derive_key(Stream.SIZES, index)) if table is None else int(table.sizes[index])
        return max(round(factor * size), 1)

    @cached_property
    def all_sizes(self) -> NDArray[np.int64]:
        """The number of sequences of each repertoire, (B,)."""
        return np.array([self.size(index) for index in range(self.n_repertoires)], np.int64)

    def metadata(self) -> pd.DataFrame:
        """Return the metadata sheet: `repertoire_id`, `status` (positive or negative), and columns with the truth.

        The sheet has `true_status` with label noise, `part` (train or test) with a test part, and `batch` (1 or 2) with
        a second batch. It has `carries_<signal>` (1 or 0) if the class alone does not tell which signals a repertoire
        carries.
        """
        indices = range(self.n_repertoires)
        truth = [_POSITIVE if self.is_positive(index) else _NEGATIVE for index in indices]
        columns: dict[str, list[str] | list[int]] = {
            "repertoire_id": [self.repertoire_id(index) for index in indices],
            "status": [self._record_status(index, status) for index, status in enumerate(truth)],
        }
        if self.label_noise:
            columns["true_status"] = truth
        if self.test_share:
            columns["part"] = ["test" if self.is_of_test_part(index) else "train" for index in indices]
        if self.batch is not None:
            columns["batch"] = [1 + self.is_of_second_batch(index) for index in indices]
        carried = [self.find_carried_signals(index) for index in indices]
        for i, signal in enumerate(self.signals):
            if len(self.signals) > 1 or signal.prevalence < 1:
                columns[f"carries_{signal.name}"] = [int(carriers[i]) for carriers in carried]
        table = pd.DataFrame(columns)
        return table.astype(
            {name: object for name in ("repertoire_id", "status", "true_status", "part") if name in table}
        )

    def draw(self, index: int, rows: NDArray[np.int64] | None = None) -> tuple[Sequences, Implants]:
        """Return the sequences of a repertoire, all or those at some rows, (n,), and the truth about them."""
        rows = np.arange(self.size(index)) if rows is None else rows
        is_carried = self.find_carried_signals(index)
        sequences = self._draw_with_preferences(index, rows, is_carried)
        implants = self._implant_motifs(index, rows, is_carried, sequences)
        sequences = self._insert_clones(index, rows, is_carried, sequences, implants)
        return replace(sequences, counts=self._draw_counts(index, rows), witness=implants.signal), implants

    def draw_lengths_and_counts(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Return the lengths and counts of a whole repertoire, (n,) each, without its residues, which take longer."""
        rows = np.arange(self.size(index))
        if any(self._find_gene_shifts(index)) or len(self.motif_signals) < len(self.signals):
            lengths = self.draw(index)[0].lengths
        else:  # motifs change no length
            lengths = self.background.draw_lengths(self._derive_key(Stream.BACKGROUND, index), rows)
        return lengths, self._draw_counts(index, rows)

    def _find_gene_shifts(self, index: int) -> tuple[GeneShift | None, GeneShift | None]:
        """Return the shifts of a repertoire's class and of its batch."""
        batch = self._find_second_batch(index)
        return self.gene_shift if self.is_positive(index) else None, None if batch is None else batch.gene_shift

    @property
    def patterns(self) -> list[str]:
        """The motifs of all signals, then the junctions of all clones: `Implants.motif` is an index into this list."""
        motifs = [motif.pattern for signal in self.motif_signals for motif in signal.motifs]
        return motifs if self.clone_pools is None else motifs + self.clone_pools.junctions

    @property
    def motif_signals(self) -> tuple[MotifSignal, ...]:
        """The signals that implant motifs."""
        return tuple(signal for signal in self.signals if isinstance(signal, MotifSignal))

    @cached_property
    def motif_signal_indices(self) -> list[int]:
        """The indices of the signals that implant motifs."""
        return [i for i, signal in enumerate(self.signals) if isinstance(signal, MotifSignal)]

    @cached_property
    def _clone_signal_indices(self) -> list[int]:
        """The indices of the signals that are clones."""
        return [i for i, signal in enumerate(self.signals) if isinstance(signal, CloneSignal | CarrierTable)]

    @cached_property
    def _implanter(self) -> Implanter:
        return Implanter(self.motif_signals)

    @cached_property
    def clone_pools(self) -> ClonePools | None:
        """The clones of all signals; None if no signal is of clones."""
        sources = [signal for signal in self.signals if isinstance(signal, CloneSignal | CarrierTable)]
        keys = [self._derive_key(Stream.CLONES, i) for i in self._clone_signal_indices]
        return ClonePools(sources, self.background, keys) if sources else None

    def make_common_preference(self, i: int) -> SequencePreference:
        """Return the preference that the repertoires which carry signal i, a diffuse one, have in common."""
        signal = self.signals[i]
        assert isinstance(signal, DiffuseSignal)
        return SequencePreference(self._derive_key(Stream.DIFFUSE, i), signal.strength, signal.k, signal.gene_share)

    def _draw_with_preferences(self, index: int, rows: NDArray[np.int64], is_carried: Sequence[bool]) -> Sequences:
        """Return the sequences of a repertoire before anything is implanted."""
        first = self._draw_shifted(index, rows)
        preferences = self._list_preferences(index, is_carried)
        if not preferences:
            return first
        second = self._draw_shifted(index, rows + _PREFERENCE_REDRAW * _REDRAW_OFFSET)
        key = self._derive_key(Stream.DIFFUSE, len(self.signals), index)
        chosen = choose_second_draws(first, second, preferences, key, rows)
        return replace_rows(first, chosen, second.take(chosen))

    def _list_preferences(self, index: int, is_carried: Sequence[bool]) -> list[SequencePreference]:
        """Return the preferences of a repertoire: of each diffuse signal, the common one and its own."""
        preferences = []
        for i, signal in enumerate(self.signals):
            if isinstance(signal, DiffuseSignal):
                if is_carried[i] and signal.strength:
                    preferences.append(self.make_common_preference(i))
                if signal.repertoire_strength:
                    key = self._derive_key(Stream.DIFFUSE, i, index)
                    preferences.append(SequencePreference(key, signal.repertoire_strength, signal.k, signal.gene_share))
        return preferences

    def _implant_motifs(
        self, index: int, rows: NDArray[np.int64], is_carried: Sequence[bool], sequences: Sequences
    ) -> Implants:
        """Implant motifs into sequences of a repertoire, in place, and return the truth about them."""
        key, indices = self._derive_key(Stream.SIGNAL, index), self.motif_signal_indices
        carried = [is_carried[i] for i in indices]
        implants = self._implanter.implant(key, rows, sequences.residues, sequences.lengths, carried)
        # the implanter counts signals of motifs only, the truth all signals, from 1; 0 is no signal
        index_in_truth = np.array([0, *(1 + i for i in indices)], np.uint8)
        return implants._replace(signal=index_in_truth[implants.signal])

    def _insert_clones(
        self,
        index: int,
        rows: NDArray[np.int64],
        is_carried: Sequence[bool],
        sequences: Sequences,
        implants: Implants,
    ) -> Sequences:
        """Return sequences of a repertoire with its clones in the place of some; the clones are added to the truth."""
        if self.clone_pools is None:
            return sequences
        pools_carried = [is_carried[i] for i in self._clone_signal_indices]
        is_test = self.is_of_test_part(index)
        carried = self.clone_pools.draw_clones(index, self.size(index), pools_carried, is_test=is_test)
        replaced = np.flatnonzero(np.isin(rows, carried.rows))
        order = np.argsort(carried.rows)
        # which of the carried clones each of the replaced sequences becomes
        clones = order[np.searchsorted(carried.rows, rows[replaced], sorter=order)]
        implants.signal[replaced] = np.array(self._clone_signal_indices, np.uint8)[carried.signal[clones]] + 1
        implants.motif[replaced] = carried.clone[clones] + sum(len(signal.motifs) for signal in self.motif_signals)
        implants.start[replaced] = 0
        return replace_rows(sequences, replaced, carried.sequences.take(clones))

    def _draw_counts(self, index: int, rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        return self.counts.draw(self._derive_key(Stream.COUNTS, index), rows)

    def _draw_shifted(self, index: int, rows: NDArray[np.int64]) -> Sequences:
        """Return the background's sequences; if V genes are shifted, some of them are drawn again."""
        key = self._derive_key(Stream.BACKGROUND, index)
        drawn = self.background.draw(key, rows)
        for i, shift in enumerate(self._find_gene_shifts(index)):
            if shift is None:
                continue
            assert drawn.v_call is not None
            redrawn = shift.choose_redrawn(drawn.v_call, self._derive_key(Stream.GENE_SHIFT, index, i), rows)
            others = self.background.draw(key, rows[redrawn] + (i + 1) * _REDRAW_OFFSET)
            drawn = replace_rows(drawn, redrawn, others)
        return drawn

    def _record_status(self, index: int, status: str) -> str:
        if self._draw_uniform(Stream.LABEL_NOISE, index) >= self.label_noise:
            return status
        return _NEGATIVE if status == _POSITIVE else _POSITIVE

    def _derive_key(self, stream: Stream, *indices: int) -> int:
        return derive_key(self.seeds.get(stream.name.lower(), self.seed), stream, *indices)

    def _draw_uniform(self, stream: Stream, *indices: int) -> float:
        return float(draw_uniforms(self._derive_key(stream, *indices), np.zeros(1, np.int64))[0])
