"""Signals of motifs: short patterns that some sequences of one class carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from deeprc.datasets.simulation.imgt import list_imgt_positions
from deeprc.datasets.simulation.motif import Motif
from deeprc.datasets.simulation.signal_checks import check_share
from deeprc.errors import InputError

__all__ = ["LONGEST", "MotifSignal"]

LONGEST = 256
"""Largest length of a junction with named IMGT positions."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class MotifSignal:
    """A signal of short motifs, which some sequences of the repertoires of one class carry.

    A sequence carries at most one signal.

    Attributes
    ----------
    motifs
        Motifs of the signal. Each witness gets one of them, drawn by their weights.
    witness_rate
        Probability that a sequence of a repertoire with this signal is a witness.
    position
        Place of the motif in the sequence. `anywhere`: all positions at which it fits are equally likely. `centre`: the
        centre. `imgt`: an IMGT position of the junction, drawn by `imgt_positions`; the conserved residues at the ends
        are never changed.
    imgt_positions
        Probability of each IMGT position of the motif's first residue. If the probabilities sum to less than 1, the
        rest is the probability of the other positions, which are equally likely. These are also used if the motif does
        not fit at the position that was drawn.
    status, prevalence
        Class whose repertoires carry the signal, and share of its repertoires that do.
    name
        Name of the signal in the truth.
    """

    motifs: tuple[Motif, ...]
    witness_rate: float
    position: Literal["anywhere", "centre", "imgt"] = "anywhere"
    imgt_positions: Mapping[str, float] = field(default_factory=dict)
    status: Literal["positive", "negative"] = "positive"
    prevalence: float = 1.0
    name: str = "signal"

    def __post_init__(self) -> None:
        if not self.motifs:
            raise InputError(f"signal {self.name!r}: expected at least one motif")
        for name in ("witness_rate", "prevalence"):
            check_share(self.name, name, getattr(self, name))
        if bool(self.imgt_positions) != (self.position == "imgt"):
            raise InputError(f"signal {self.name!r}: imgt_positions are needed with `position: imgt`, and only there")
        allowed = set(list_imgt_positions(LONGEST)[1:-1])
        for name, probability in self.imgt_positions.items():
            if name not in allowed or not 0 <= probability <= 1:
                raise InputError(
                    f"signal {self.name!r}: imgt_positions: expected positions of the CDR3, 105 to 117, and "
                    f"probabilities; found {name!r}: {probability}"
                )
        if sum(self.imgt_positions.values()) > 1 + _ROUNDING:
            raise InputError(f"signal {self.name!r}: imgt_positions: expected at most 1 in total")
