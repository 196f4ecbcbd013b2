"""A motif that is associated with a label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.training.kmer_sets import ANY, Spacing, compute_code, find_spacing

__all__ = ["EnrichedMotif"]


@dataclass(frozen=True)
class EnrichedMotif:
    """A k-mer, perhaps with gaps, whose frequency is associated with a label.

    Attributes
    ----------
    letters
        Amino-acid indices, (W,); -1 stands for any residue.
    output
        Index of the output with which the motif is associated, among the outputs of all tasks.
    correlation
        Correlation of the motif's frequency with the label of the output. The label is 1 for members of the class and 0
        for others, or the rank of a number. So the correlation is negative if the motif is rarer in members. Sequences
        with an earlier motif of the same output are left out, and those that match a strong stored clone of the network
        (unless its clones are doubtful). For a variant, sequences with another variant of the same round stay.
    p_value
        Probability that the strongest of all k-mers has at least this correlation if labels are independent of
        sequences. It is computed from the same sequences as the correlation. For an overdispersed k-mer, it may be a
        false discovery rate, if that is smaller. For a variant of another motif, it is the false discovery rate among
        the variants of its round, see `find_all_variants`.
    gap_weights
        Weights of the 20 residues at each gap (a position with any residue), in the order of the gaps: how strongly the
        motif with this residue there is associated with the output, as a share of the strongest. Empty for a gap whose
        residues do not differ significantly. See `deeprc.training.gap_weights`.
    """

    letters: tuple[int, ...]
    output: int
    correlation: float
    p_value: float
    gap_weights: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> EnrichedMotif:
        """Return the motif with these fields, whose lists become tuples."""
        weights = tuple(map(tuple, body.get("gap_weights", ())))
        return cls(**{**body, "letters": tuple(body["letters"]), "gap_weights": weights})

    @property
    def gaps(self) -> tuple[int, ...]:
        """Offsets of the positions with any residue."""
        return tuple(offset for offset, letter in enumerate(self.letters) if letter == ANY)

    @property
    def spacing(self) -> Spacing:
        """Offsets of the fixed residues of the motif."""
        return find_spacing(self.letters)

    @property
    def code(self) -> int:
        """Index of the motif among the k-mers of its spacing, as in `deeprc.datasets.kmers.count_kmers`."""
        return compute_code(self.letters)

    @property
    def pattern(self) -> str:
        """Text of the motif, with a point for any residue."""
        return "".join("." if letter == ANY else AMINO_ACIDS[letter] for letter in self.letters)
