"""Motifs that are implanted, and how they vary between witnesses.

Letters: V variants of a motif, L positions of the longest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.errors import InputError

__all__ = ["GAP", "WILDCARD", "Motif", "Variant"]

WILDCARD, GAP = 20, 21
"""Codes that are no amino acid: any residue, drawn anew for each witness; the background's residue, which stays."""

_TOKEN = re.compile(r"(?P<letter>[A-Z])(?P<removable>\(d\))?|(?P<gap>-)")
_LONGEST = 32
_MAX_CHOICES = 6


class Variant(NamedTuple):
    """One form of a motif: its probability, the codes of its residues, and the position of each in the pattern."""

    probability: float
    codes: tuple[int, ...]
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Motif:
    """A short pattern of residues.

    Attributes
    ----------
    pattern
        Amino acids and three signs, for example SFEN, SF(d)ZN, GL-N. `Z` is a wildcard. `(d)` marks the position before
        it, which is left out with `deletion_probability`. `-` is a gap that keeps the background's residues.
    deletion_probability
        Probability that a position marked `(d)` is left out.
    gap_lengths
        Numbers of residues that a gap may have, all equally likely.
    substitutions
        Probability, for each position of the pattern, that it is altered to another amino acid. At most one position of
        a witness is altered, so the sum is at most 1. If empty, none is altered.
    alteration_rate
        Share of the witnesses to which the alterations apply.
    noise
        Probability, for each amino acid of the motif, that the residue of the background stays.
    weight
        Frequency of this motif in a signal of several motifs, relative to the others.
    """

    pattern: str
    deletion_probability: float = 0.5
    gap_lengths: tuple[int, ...] = (0, 1, 2)
    substitutions: tuple[float, ...] = ()
    alteration_rate: float = 1.0
    noise: float = 0.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        tokens = [match[0] for match in _TOKEN.finditer(self.pattern)]
        letters = {letter for token in tokens for letter in token[:1] if letter != "-"}
        if not tokens or "".join(tokens) != self.pattern or not letters <= {*AMINO_ACIDS, "Z"}:
            raise InputError(
                f"motif {self.pattern!r}: expected amino acids ({AMINO_ACIDS}), Z for any, (d) after a position that "
                "may be left out and - for a gap"
            )
        if self.substitutions and len(self.substitutions) != len(tokens):
            raise InputError(
                f"motif {self.pattern!r}: expected {len(tokens)} substitutions, one per position, found "
                f"{len(self.substitutions)}"
            )
        if any(share and token[0] in "Z-" for share, token in zip(self.substitutions, tokens, strict=False)):
            raise InputError(f"motif {self.pattern!r}: a wildcard or a gap cannot be altered; expected 0 there")
        if not (sum(self.substitutions) <= 1 + 1e-9 and all(share >= 0 for share in self.substitutions)):
            raise InputError(f"motif {self.pattern!r}: expected substitutions of at least 0 that sum to at most 1")
        for name in ("deletion_probability", "alteration_rate", "noise"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"motif {self.pattern!r}: {name}: expected 0 to 1, found {getattr(self, name)}")
        if (
            not 0 < self.weight < math.inf
            or not self.gap_lengths
            or not all(0 <= n <= _LONGEST for n in self.gap_lengths)
        ):
            raise InputError(f"motif {self.pattern!r}: expected a weight above 0 and gap_lengths of 0 to {_LONGEST}")
        if self.pattern.count("(d)") + self.pattern.count("-") > _MAX_CHOICES:
            raise InputError(f"motif {self.pattern!r}: expected at most {_MAX_CHOICES} gaps and positions with (d)")
        if not self.variants or max(len(variant.codes) for variant in self.variants) > _LONGEST:
            raise InputError(f"motif {self.pattern!r}: expected 1 to {_LONGEST} positions")

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The different forms that deletions and gaps give; their probabilities sum to 1."""
        choices = [
            list(self._iterate_forms(position, match)) for position, match in enumerate(_TOKEN.finditer(self.pattern))
        ]
        probability_of: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
        for combination in product(*choices):
            codes = tuple(code for _, form in combination for code, _ in form)
            positions = tuple(position for _, form in combination for _, position in form)
            probability = 1.0
            for factor, _ in combination:
                probability *= factor
            if codes and probability:
                probability_of[codes, positions] = probability_of.get((codes, positions), 0) + probability
        total = sum(probability_of.values())
        return tuple(Variant(value / total, *forms) for forms, value in probability_of.items())

    def _iterate_forms(self, position: int, match: re.Match[str]) -> Iterator[tuple[float, list[tuple[int, int]]]]:
        """Yield the forms of a position: the probability of each, and its codes with their position in the pattern."""
        if match["gap"]:
            for n in self.gap_lengths:
                yield 1 / len(self.gap_lengths), [(GAP, position)] * n
            return
        code = WILDCARD if match["letter"] == "Z" else AMINO_ACIDS.index(match["letter"])
        removed = self.deletion_probability if match["removable"] else 0.0
        yield 1 - removed, [(code, position)]
        if removed:
            yield removed, []
