"""The result of the search for motifs: a motif with its matrices, tests and carriers; and tables and MEME files.

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

__all__ = ["AttendedMotif", "Source", "tabulate_motifs", "write_meme"]


class Source(NamedTuple):
    """The place where a pattern was found: windows of the sequences, or a kernel.

    Attributes
    ----------
    kernel
        Index of the kernel whose best windows have the pattern, from 1; 0 if it was found in windows of the sequences.
    member
        Index of the kernel's model in an ensemble, from 1; 0 if there is only one model.
    """

    kernel: int = 0
    member: int = 0

    def __str__(self) -> str:
        if self.kernel == 0:
            return "windows"
        return f"kernel {self.kernel}" + (f" of model {self.member}" if self.member > 0 else "")


@dataclass(frozen=True)
class AttendedMotif:
    """A pattern that attended sequences share, with matrices, tests and carriers.

    Attributes
    ----------
    pattern
        Residues that each position accepts, as a regular expression: LDR[WY], `.` for any, [^CP] for any but C and P.
    counts
        Weighted counts of residues in the matching windows, aligned, (W, 20), in the order of `AMINO_ACIDS`. Each
        sequence has one window, whose weight is its fraction of the sequence's attribution.
    expected
        Frequencies of the residues in background sequences of the same lengths at the same positions, (W, 20).
    frequencies
        Frequencies of the residues, (W, 20), after adding one expected residue to the counts of each position.
    information
        Heights of the letters of a logo in bits, (W, 20): frequency times the relative entropy of the position to
        `expected`.
    start
        Position of the matrices at which the pattern begins; informative positions beside the pattern are shown, too.
    background
        Frequencies of the residues at all positions of the background, (20,).
    sources
        Places where the pattern was found.
    n_attended, n_attended_with
        Number of different attended sequences, and number of those that carry the pattern anywhere.
    n_background, n_background_with
        Number of different background sequences, and number of those that carry it.
    enrichment
        Odds ratio of carrying the pattern, attended sequences against background; 0.5 is added to all four numbers if
        one is 0. The network chose the attended sequences, so this shows what they share, not what is associated with a
        class.
    enrichment_log10_p
        Logarithm to base 10 of the one-sided p-value of Fisher's exact test that attended sequences carry it more
        often. With so many sequences, it would also be very small in a cohort without any signal.
    enrichment_log10_p_adjusted
        The same, corrected for all possible patterns (weighted Bonferroni, see `compute_pattern_cost`), and so for all
        patterns that the search tried.
    donors
        Table of donors that the model has not learned from, by class of the target ("all" for a number): class,
        n_donors, n_donors_with, mean_rate (mean over donors of the share of their sequences with the pattern). Empty if
        these donors are not known.
    p_donors, q_donors
        P-value of the test that the motif is associated with the class, or the number: that its rate is higher in
        donors of the class to which the attended sequences contribute, see `donor_tests`; and the false discovery rate
        (Benjamini and Hochberg) over all motifs that were found together. NaN if there are no donors to compare.
    carriers
        Table of carriers in the whole cohort, by class of the target ("all" for a number): class, n_repertoires,
        n_repertoires_with, n_sequences, n_sequences_with, mean_share (mean over repertoires of the share of their
        sequences with the pattern). Repertoires without a label are left out. If donors have several repertoires, also
        n_cohort_donors and n_cohort_donors_with.
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
        """Text that says where the pattern was found: "windows, kernel 7"."""
        return ", ".join(map(str, self.sources))

    @property
    def has_numeric_target(self) -> bool:
        """Whether the target is a number, so that carriers are not divided into classes."""
        return self.carriers["class"].tolist() == ["all"]

    @property
    def n_models(self) -> int:
        """Number of models in whose kernels it was found."""
        return len({source.member for source in self.sources if source.kernel})


def tabulate_motifs(motifs: Sequence[AttendedMotif]) -> pd.DataFrame:
    """Return the motifs as a table, one row each, with rank (from 1) and the attributes of `AttendedMotif`.

    The columns of `donors` and `carriers` are repeated for each class, as n_donors:CLASS, n_repertoires:CLASS and so
    on.
    """
    names = ("pattern", "p_donors", "q_donors", "source", "n_attended", "n_attended_with", "n_background")
    tests = ("n_background_with", "enrichment", "enrichment_log10_p", "enrichment_log10_p_adjusted")
    rows = []
    for rank, motif in enumerate(motifs, 1):
        row: dict[str, object] = {"rank": rank, **{name: getattr(motif, name) for name in (*names, *tests)}}
        for record in [*motif.donors.to_dict("records"), *motif.carriers.to_dict("records")]:
            class_name = record.pop("class")
            class_columns = {f"{name}:{class_name}": value for name, value in record.items()}
            assert row.keys().isdisjoint(class_columns), "donors and carriers have columns of the same name"
            row |= class_columns
        rows.append(row)
    return pd.DataFrame(rows, columns=None if rows else ["rank", *names, *tests])


def write_meme(path: str | Path, motifs: Sequence[AttendedMotif]) -> None:
    """Write the motifs in the minimal format of MEME, which other tools read (Tomtom, FIMO).

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
