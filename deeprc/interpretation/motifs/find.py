"""From attended sequences to motifs: search, join what is alike, test, count over the cohort.

From the sequences that speak most for one side of a target, and which of their residues the network uses, patterns are
searched for that are more frequent among them than in the cohort: from enriched gapped k-mers under the attribution
(`search`), and from the kernels (`kernels`). Patterns that are alike are one motif (`clusters`).

The network chose the attended sequences. The test says that a pattern is more frequent among them than by chance, not
that it goes with the class: for that, see each motif's `carriers`, best over repertoires the network was not trained
with.

Letters: n attended sequences, L positions of the longest, D kernels, W positions of a motif, B repertoires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.files import write_text
from deeprc.interpretation.motifs.background import draw_samples, unique_rows
from deeprc.interpretation.motifs.carriers import carriers_by_class
from deeprc.interpretation.motifs.clusters import cluster_motifs
from deeprc.interpretation.motifs.enrichment import odds_ratio, p_of
from deeprc.interpretation.motifs.kernels import search_kernels
from deeprc.interpretation.motifs.matching import erased
from deeprc.interpretation.motifs.matrices import (
    Composition,
    Matrix,
    aligned,
    background_composition,
    information_of,
    windows_of,
)
from deeprc.interpretation.motifs.patterns import ANY, Masks, pattern_cost, pattern_text
from deeprc.interpretation.motifs.search import SIGNIFICANT, score_of, search_windows
from deeprc.interpretation.motifs.seeds import Samples
from deeprc.runs.run import Run

__all__ = ["Motif", "find_motifs", "motif_table", "write_meme"]

_SPAN = 9  # of a seed, where there is no kernel
_SEARCHED = 2  # times as many patterns as wanted are searched for: some are alike
_LEAST_ODDS = 4.0  # of what counts as a motif: with 1,000 sequences, the faintest preference is significant
_MOST_COMMON = 0.25  # share of the background that may carry it
_FLANK = 3  # positions beside the pattern that a matrix may show
_INFORMATIVE = 0.5  # bits that the outermost of them must have


class _Attributions(Protocol):
    @property
    def residues(self) -> NDArray[np.float64]: ...
    @property
    def kernels(self) -> NDArray[np.float64]: ...
    @property
    def change(self) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Motif:
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
        Of the residues, (W, 20): the counts and one expected residue more.
    information
        Heights of a logo's letters, (W, 20), in bits: frequency times the position's relative entropy to `expected`.
    start
        The position of the matrices where the pattern begins: informative positions beside it are shown too.
    background
        Frequencies of the residues at all places of the background, (20,).
    source
        Where it was found: "windows", "kernel 7" (from 1), several joined by ", ".
    n_attended, n_attended_with
        Different attended sequences, and how many carry the pattern anywhere.
    n_background, n_background_with
        Different background sequences, and how many carry it.
    odds_ratio
        Of carrying it; 0.5 is added to the four numbers if one is 0.
    log10_p, p_value
        Fisher's exact test, one-sided, that attended sequences carry it more often. `p_value` is 0 below 1e-300.
    log10_p_adjusted, p_adjusted
        Corrected for all patterns that there are (Bonferroni, weighted: see `pattern_cost`), and so for everything that
        the search looked at.
    carriers
        Over the whole cohort, by class of the target ("all" for a number): class, n_repertoires, n_repertoires_with,
        n_sequences, n_sequences_with, mean_share (mean over repertoires of the share of their sequences with it).
        Repertoires without a label are left out. Where people have several repertoires, also n_people, n_people_with
        and p_people, see `people_p_value`.
    """

    pattern: str
    counts: NDArray[np.float64]
    expected: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    information: NDArray[np.float64]
    start: int
    background: NDArray[np.float64]
    source: str
    n_attended: int
    n_attended_with: int
    n_background: int
    n_background_with: int
    odds_ratio: float
    log10_p: float
    p_value: float
    log10_p_adjusted: float
    p_adjusted: float
    carriers: pd.DataFrame


class _Found(NamedTuple):
    """A pattern, the logarithm of its corrected p-value, where it was found, and with the places its logo shows."""

    masks: Masks
    score: float
    sources: tuple[str, ...]
    shown: Masks


def find_motifs(
    run: Run,
    dataset: RepertoireDataset,
    sequences: pd.DataFrame,
    attributions: _Attributions,
    *,
    output: int = 0,
    most: int = 10,
    background: int = 50_000,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
) -> list[Motif]:
    """Return the motifs of the sequences that speak for one side of a target, the most significant first.

    Parameters
    ----------
    run, dataset
        The network and the cohort.
    sequences
        The attended sequences, (n,) rows with repertoire_id, sequence_id and junction_aa, as in `Survey.top`. Equal
        junctions count once; the order of the rows does not matter.
    attributions
        Of these rows: residues (n, L), kernels (n, D), change (n,). They are taken in the direction of a row's change:
        where a repertoire has a motif many times, one sequence more may take away from the output what the network
        sees in all of them.
    output
        Which of the network's outputs they speak for or against; its target's classes are those of the `carriers`.
    most
        Motifs to return, at most.
    background
        Sequences to compare with, at most: drawn evenly from the repertoires, of lengths like the attended ones'.
    seed
        Of the background.
    progress
        Called with 1 for each repertoire whose carriers have been counted.

    Returns
    -------
    Motifs whose corrected p-value is at most 0.05, also on what the more significant ones leave of the sequences, whose
    odds ratio is at least 4, and which at most a quarter of the background carries.

    Raises
    ------
    InputError
        If a column is missing, or the attributions are those of other sequences.
    """
    _check(run, dataset, sequences, attributions, output, most, background)
    if not len(sequences):
        return []
    rows = unique_rows(sequences, attributions.change)
    chosen = sequences.iloc[rows].reset_index(drop=True)
    direction = np.sign(attributions.change[rows])[:, None]
    residues, kernels = attributions.residues[rows] * direction, attributions.kernels[rows] * direction
    samples = draw_samples([*chosen["junction_aa"]], dataset, background=background, seed=seed)
    composition = background_composition(samples)
    span = run.network.embedding.span or _SPAN
    windows = search_windows(samples, composition, residues, span=span, most=_SEARCHED * most)
    found = [
        _Found(candidate.masks, score_of(samples, candidate.masks), ("windows",), candidate.masks)
        for candidate in windows
    ]
    for kernel, candidate in search_kernels(run, dataset, chosen, samples, composition, residues, kernels):
        found.append(_Found(candidate.masks, candidate.score, (f"kernel {kernel}",), candidate.masks))
    matrices = [_matrix(samples, composition, residues, one.masks) for one in found]
    found = [one._replace(shown=_shown(one.masks, *place)) for one, place in zip(found, matrices, strict=True)]
    kept = _independent(samples, _representatives(found, [matrix for matrix, _ in matrices]))[:most]
    carriers = carriers_by_class(run, dataset, [one.masks for one in kept], output=output, progress=progress)
    motifs = [_motif(samples, composition, residues, one, table) for one, table in zip(kept, carriers, strict=True)]
    return sorted(motifs, key=lambda motif: (motif.log10_p, -motif.odds_ratio, motif.pattern))


def _check(
    run: Run,
    dataset: RepertoireDataset,
    sequences: pd.DataFrame,
    attributions: _Attributions,
    output: int,
    most: int,
    background: int,
) -> None:
    missing = [name for name in ("repertoire_id", "sequence_id", "junction_aa") if name not in sequences]
    if missing:
        raise InputError(f"sequences: no column {missing[0]!r}; expected rows of a survey's top sequences")
    n, longest = len(sequences), int(sequences["junction_aa"].str.len().max()) if len(sequences) else 0
    for name in ("residues", "kernels", "change"):
        if len(getattr(attributions, name)) != n:
            raise InputError(f"attributions: {name} of {len(getattr(attributions, name))} sequences; expected {n}")
    if attributions.residues.shape[1] < longest:
        raise InputError(
            f"attributions: of {attributions.residues.shape[1]} residues; expected {longest}, the longest sequence's"
        )
    unknown = set(sequences["repertoire_id"]) - set(dataset.repertoire_ids)
    if unknown:
        raise InputError(f"sequences: {dataset.container.path} has no repertoire {min(unknown)!r}")
    n_outputs = sum(task.n_outputs for task in run.tasks)
    if not 0 <= output < n_outputs:
        raise InputError(f"output: expected 0 to {n_outputs - 1}, found {output}")
    for name, value in (("most", most), ("background", background)):
        if value < 1:
            raise InputError(f"{name}: expected at least 1, found {value}")


def _matrix(
    samples: Samples, composition: Composition, residues: NDArray[np.float64], masks: Masks
) -> tuple[Matrix, int]:
    """Return the matrix of a pattern's windows with informative positions beside it, and where the pattern begins."""
    windows = windows_of(samples, masks, residues)
    matrix = aligned(samples, composition, windows, _FLANK, len(masks) + _FLANK)
    informative = information_of(matrix).sum(axis=1) >= _INFORMATIVE
    informative[_FLANK : _FLANK + len(masks)] = True
    shown = np.flatnonzero(informative)
    part = slice(shown[0], shown[-1] + 1)
    return Matrix(matrix.counts[part], matrix.expected[part]), _FLANK - int(shown[0])


def _shown(masks: Masks, matrix: Matrix, start: int) -> Masks:
    """Return a pattern with the places beside it that its matrix has, where any residue goes."""
    whole = np.full(len(matrix.counts), ANY, masks.dtype)
    whole[start : start + len(masks)] = masks
    return whole


def _representatives(found: Sequence[_Found], matrices: Sequence[Matrix]) -> list[_Found]:
    """Return the most significant pattern of each cluster with the sources of all, the most significant first."""
    clusters = cluster_motifs([information_of(matrix) for matrix in matrices])
    chosen = []
    for cluster in np.unique(clusters):
        members = [one for one, number in zip(found, clusters, strict=True) if number == cluster]
        sources = {source for member in members for source in member.sources}
        best = min(members, key=lambda member: (member.score, pattern_text(member.masks)))
        chosen.append(best._replace(sources=tuple(sorted(sources, key=_source_order))))
    return sorted(chosen, key=lambda one: (one.score, pattern_text(one.masks)))


def _source_order(source: str) -> tuple[bool, int]:
    kind, _, number = source.partition(" ")
    return kind != "windows", int(number or 0)


def _independent(samples: Samples, found: Sequence[_Found]) -> list[_Found]:
    """Return the patterns that are significant, also where those before them are erased, and not common anyway."""
    kept = []
    for one in found:
        significant = one.score <= SIGNIFICANT and score_of(samples, one.masks) <= SIGNIFICANT
        if significant and _is_special(samples, one.masks):
            kept.append(one)
            for masks in (one.shown, one.masks):  # what stands beside a motif belongs to it
                samples = samples._replace(residues=erased(samples.residues, samples.offsets, masks))
    return kept


def _is_special(samples: Samples, masks: Masks) -> bool:
    n_with, others_with = samples.counts([masks])[:, 0].tolist()
    odds = odds_ratio(n_with, samples.n, others_with, samples.others)
    return odds >= _LEAST_ODDS and others_with <= _MOST_COMMON * samples.others


def _motif(
    samples: Samples, composition: Composition, residues: NDArray[np.float64], found: _Found, carriers: pd.DataFrame
) -> Motif:
    matrix, start = _matrix(samples, composition, residues, found.masks)
    n_with, others_with = samples.counts([found.masks])[:, 0].tolist()
    log_p = float(samples.log_p([found.masks])[0])
    return Motif(
        pattern=pattern_text(found.masks),
        counts=matrix.counts,
        expected=matrix.expected,
        frequencies=matrix.frequencies,
        information=information_of(matrix),
        start=start,
        background=composition.overall,
        source=", ".join(found.sources),
        n_attended=samples.n,
        n_attended_with=n_with,
        n_background=samples.others,
        n_background_with=others_with,
        odds_ratio=odds_ratio(n_with, samples.n, others_with, samples.others),
        log10_p=log_p / log(10),
        p_value=p_of(log_p),
        log10_p_adjusted=min(0.0, (log_p + pattern_cost(found.masks)) / log(10)),
        p_adjusted=p_of(log_p + pattern_cost(found.masks)),
        carriers=carriers,
    )


def motif_table(motifs: Sequence[Motif]) -> pd.DataFrame:
    """Return the motifs as a table, one row each: rank (from 1), pattern, source, numbers and test as in `Motif`.

    The carriers' columns follow once per class, as n_repertoires:CLASS, n_repertoires_with:CLASS and so on.
    """
    names = ("pattern", "source", "n_attended", "n_attended_with", "n_background", "n_background_with")
    tests = ("odds_ratio", "log10_p", "p_value", "log10_p_adjusted", "p_adjusted")
    rows = []
    for rank, motif in enumerate(motifs, 1):
        row: dict[str, object] = {"rank": rank, **{name: getattr(motif, name) for name in (*names, *tests)}}
        for record in motif.carriers.to_dict("records"):
            of_class = record.pop("class")
            row |= {f"{name}:{of_class}": value for name, value in record.items()}
        rows.append(row)
    return pd.DataFrame(rows, columns=None if rows else ["rank", *names, *tests])


def write_meme(path: str | Path, motifs: Sequence[Motif]) -> None:
    """Write the motifs in MEME's minimal format, which tools for motifs read (Tomtom, FIMO); E is the adjusted p-value.

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
        lines += [f"MOTIF {rank} {motif.pattern}", f"letter-probability matrix: {shape} E= {motif.p_adjusted:.3g}"]
        lines += [" ".join(f"{value:.6f}" for value in row) for row in motif.frequencies]
        lines.append("")
    write_text(Path(path), "\n".join(lines))
