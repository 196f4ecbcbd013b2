"""`AttendedMotif`: a motif with its matrices, its test and its carriers; and motifs as a table and as a MEME file.

Letters: W positions of a motif.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.files import write_text

__all__ = ["AttendedMotif", "Source", "motif_table", "write_meme"]


class Source(NamedTuple):
    """Where a pattern was found.

    Attributes
    ----------
    kernel
        The kernel whose best windows have it, from 1; 0 where it was found in the windows of the sequences.
    member
        The number of the kernel's model in an ensemble, from 1; 0 where there is but one model.
    """

    kernel: int = 0
    member: int = 0

    def __str__(self) -> str:
        if self.kernel == 0:
            return "windows"
        return f"kernel {self.kernel}" + f" of model {self.member}" * (self.member > 0)


@dataclass(frozen=True)
class AttendedMotif:
    """A pattern that attended sequences share.

    Attributes
    ----------
    pattern
        The residues that each position accepts, a regular expression: LDR[WY], `.` for any, [^CP] for any but C and P.
    counts
        Residues of the windows that match, aligned, (W, 20) in the order of `AMINO_ACIDS`. A window, one per sequence,
        counts as much as its share of the sequence's attribution.
    expected
        The residues' frequencies in background sequences of the same lengths at the same places, (W, 20).
    frequencies
        Frequencies of the residues, (W, 20): the counts and one expected residue more.
    information
        Heights of a logo's letters, (W, 20), in bits: frequency times the position's relative entropy to `expected`.
    start
        The position of the matrices where the pattern begins: informative positions beside it are shown too.
    background
        Frequencies of the residues at all places of the background, (20,).
    sources
        Where it was found.
    n_attended, n_attended_with
        Different attended sequences, and how many carry the pattern anywhere.
    n_background, n_background_with
        Different background sequences, and how many carry it.
    enrichment
        Odds ratio of carrying the pattern, of attended sequences against background; 0.5 is added to the four numbers
        if one is 0. The network chose the attended sequences, so this says what they share, not what goes with a class.
    enrichment_log10_p
        Fisher's exact test, one-sided, that attended sequences carry it more often; of so many sequences that it
        would be as small in a cohort without any signal.
    enrichment_log10_p_adjusted
        Corrected for all patterns that there are (Bonferroni, weighted: see `pattern_cost`), and so for everything that
        the search looked at.
    donors
        Of the repertoires that the model has not learned from, by class of the target ("all" for a number): class,
        n_donors, n_donors_with, mean_rate (mean over donors of the share of their sequences with it). Empty if it is
        not known which these are.
    p_donors, q_donors
        The test that the motif is associated with the class, or the number: that its rate is higher in donors of the
        class that the attended sequences contribute to, see `donor_tests`; and the false discovery rate (Benjamini and
        Hochberg) over all motifs that were found together. NaN if there are no donors to compare.
    carriers
        Over the whole cohort, by class of the target ("all" for a number): class, n_repertoires, n_repertoires_with,
        n_sequences, n_sequences_with, mean_share (mean over repertoires of the share of their sequences with it).
        Repertoires without a label are left out. Where people have several repertoires, also n_people and
        n_people_with.
    """

    pattern: str
    counts: NDArray[np.float64]
    expected: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    information: NDArray[np.float64]
    start: int
    background: NDArray[np.float64]
    sources: tuple[Source, ...]
    n_attended: int
    n_attended_with: int
    n_background: int
    n_background_with: int
    enrichment: float
    enrichment_log10_p: float
    enrichment_log10_p_adjusted: float
    donors: pd.DataFrame
    p_donors: float
    q_donors: float
    carriers: pd.DataFrame

    @property
    def source(self) -> str:
        """Where it was found, in words: "windows, kernel 7"."""
        return ", ".join(map(str, self.sources))

    @property
    def n_models(self) -> int:
        """In the kernels of how many of several models it was found; of one model 0 or 1."""
        return len({source.member for source in self.sources if source.kernel})


def motif_table(motifs: Sequence[AttendedMotif]) -> pd.DataFrame:
    """Return the motifs as a table, one row each: rank (from 1), and the attributes of `AttendedMotif`.

    The columns of `donors` and `carriers` follow once per class, as n_donors:CLASS, n_repertoires:CLASS and so on.
    """
    names = ("pattern", "p_donors", "q_donors", "source", "n_attended", "n_attended_with", "n_background")
    tests = ("n_background_with", "enrichment", "enrichment_log10_p", "enrichment_log10_p_adjusted")
    rows = []
    for rank, motif in enumerate(motifs, 1):
        row: dict[str, object] = {"rank": rank, **{name: getattr(motif, name) for name in (*names, *tests)}}
        for record in [*motif.donors.to_dict("records"), *motif.carriers.to_dict("records")]:
            of_class = record.pop("class")
            row |= {f"{name}:{of_class}": value for name, value in record.items()}
        rows.append(row)
    return pd.DataFrame(rows, columns=None if rows else ["rank", *names, *tests])


def write_meme(path: str | Path, motifs: Sequence[AttendedMotif]) -> None:
    """Write the motifs in MEME's minimal format, which tools for motifs read (Tomtom, FIMO).

    E is the adjusted p-value of the enrichment.

    Raises
    ------
    InputError
        If the folder does not exist.
    """
    overall = motifs[0].background if motifs else np.full(len(AMINO_ACIDS), 1 / len(AMINO_ACIDS))
    frequencies = " ".join(f"{letter} {value:.5f}" for letter, value in zip(AMINO_ACIDS, overall, strict=True))
    lines = ["MEME version 5", "", f"ALPHABET= {AMINO_ACIDS}", "", "Background letter frequencies", frequencies, ""]
    for rank, motif in enumerate(motifs, 1):
        shape = f"alength= {len(AMINO_ACIDS)} w= {len(motif.frequencies)} nsites= {motif.n_attended_with}"
        lines += [
            f"MOTIF {rank} {motif.pattern}",
            f"letter-probability matrix: {shape} E= {10**motif.enrichment_log10_p_adjusted:.3g}",
        ]
        lines += [" ".join(f"{value:.6f}" for value in row) for row in motif.frequencies]
        lines.append("")
    write_text(Path(path), "\n".join(lines))
