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

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.files import write_text
from deeprc.interpretation.attributions import Attributions
from deeprc.interpretation.motifs.background import draw_compared, unique_rows
from deeprc.interpretation.motifs.carriers import carriers_by_class, cohort_counts
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
from deeprc.interpretation.motifs.seeds import ComparedSequences
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.training.model import Model

__all__ = ["AttendedMotif", "Source", "find_all_motifs", "find_motifs", "motif_table", "write_meme"]

_SPAN = 9  # of a seed, where there is no kernel
_SEARCHED = 2  # times as many patterns as wanted are searched for: some are alike
_MIN_ODDS = 4.0  # of what counts as a motif: with 1,000 sequences, the faintest preference is significant
_MAX_COMMON = 0.25  # share of the background that may carry it
_FLANK = 3  # positions beside the pattern that a matrix may show
_INFORMATIVE = 0.5  # bits that the outermost of them must have


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
    odds_ratio
        Odds ratio of carrying the pattern; 0.5 is added to the four numbers if one is 0.
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
    sources: tuple[Source, ...]
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

    @property
    def source(self) -> str:
        """Where it was found, in words: "windows, kernel 7"."""
        return ", ".join(map(str, self.sources))


class _Found(NamedTuple):
    """A pattern, the logarithm of its corrected p-value, where it was found, and with the places its logo shows."""

    masks: Masks
    score: float
    sources: tuple[Source, ...]
    shown: Masks


class _Evidence(NamedTuple):
    """What motifs are searched in.

    Attributes
    ----------
    samples
        The attended sequences, each once, and those of the background.
    composition
        The background's residues.
    residues
        What the residues of the attended sequences add, (n, L), positive where the network looks.
    """

    samples: ComparedSequences
    composition: Composition
    residues: NDArray[np.float64]


def find_motifs(
    model: Model,
    dataset: RepertoireDataset,
    attributions: Attributions,
    *,
    max_motifs: int = 10,
    background: int = 50_000,
    seed: int = 0,
    group_by: str | None = None,
) -> list[AttendedMotif]:
    """Return the motifs of the sequences that speak for one direction of an output, the most significant first.

    Parameters
    ----------
    model, dataset
        The trained model, or several together, and the cohort.
    attributions
        The attended sequences and what their residues add, see `attribute`. Equal junctions count once; the order of
        the sequences does not matter. Attributions are taken in the direction of a sequence's change: where a
        repertoire has a motif many times, one sequence more may take away from the output what the network sees in all
        of them.
    max_motifs
        Motifs to return, at most.
    background
        Sequences to compare with, at most: drawn evenly from the repertoires, of lengths like the attended ones'.
    seed
        The seed of the background.
    group_by
        The metadata column that says whose a repertoire is; None looks for one.

    Returns
    -------
    Motifs whose corrected p-value is at most 0.05, also on what the more significant ones leave of the sequences, whose
    odds ratio is at least 4, and which at most a quarter of the background carries.

    Raises
    ------
    InputError
        If a parameter is out of range.
    """
    return find_all_motifs(
        model,
        dataset,
        [attributions],
        max_motifs=max_motifs,
        background=background,
        seed=seed,
        group_by=group_by,
    )[0]


def find_all_motifs(
    model: Model,
    dataset: RepertoireDataset,
    attributions: Sequence[Attributions],
    *,
    max_motifs: int = 10,
    background: int = 50_000,
    seed: int = 0,
    group_by: str | None = None,
) -> list[list[AttendedMotif]]:
    """Return what `find_motifs` returns for each of several sets of sequences; their carriers are counted in one pass.

    The parameters are those of `find_motifs`.
    """
    for name, value in (("max_motifs", max_motifs), ("background", background)):
        if value < 1:
            raise InputError(f"{name}: expected at least 1, found {value}")
    searched = []
    for own in attributions:
        prepared = _evidence(dataset, own, background, seed)
        searched.append((prepared, [] if prepared is None else _search(model, dataset, *prepared, max_motifs)))
    counts = cohort_counts(dataset, [one.masks for _, found in searched for one in found])
    motifs, first = [], 0
    for own, (prepared, found) in zip(attributions, searched, strict=True):
        of_found = counts[:, first : first + len(found)]
        first += len(found)
        carriers = carriers_by_class(model, dataset, of_found, output=own.output, group_by=group_by)
        made = [_motif(prepared[0], one, table) for one, table in zip(found, carriers, strict=True) if prepared]
        motifs.append(sorted(made, key=lambda motif: (motif.log10_p, -motif.odds_ratio, motif.pattern)))
    return motifs


class _Chosen(NamedTuple):
    """The attended sequences, each once, in the order of `_Evidence`, and what the kernels add in them, (n, D)."""

    sequences: SequenceIndex
    kernels: NDArray[np.float64]


def _evidence(
    dataset: RepertoireDataset, attributions: Attributions, background: int, seed: int
) -> tuple[_Evidence, _Chosen] | None:
    """Return what motifs are searched in; None without a sequence."""
    if not len(attributions):
        return None
    table = attributions.index.frame(dataset)
    rows = unique_rows(table, attributions.change)
    direction = np.sign(attributions.change[rows])[:, None]
    junctions = table["junction_aa"].iloc[rows].tolist()
    samples = draw_compared(junctions, dataset, background=background, seed=seed)
    evidence = _Evidence(samples, background_composition(samples), attributions.residues[rows] * direction)
    return evidence, _Chosen(attributions.index.take(rows), attributions.kernels[rows] * direction)


def _search(
    model: Model, dataset: RepertoireDataset, evidence: _Evidence, chosen: _Chosen, max_motifs: int
) -> list[_Found]:
    """Return the patterns that are motifs, before their carriers are counted."""
    samples, composition, residues = evidence
    spans = [member.network.embedding.span or _SPAN for member in model.members]
    windows = search_windows(samples, composition, residues, span=max(spans), max_patterns=_SEARCHED * max_motifs)
    found = [_Found(each.masks, score_of(samples, each.masks), (Source(),), each.masks) for each in windows]
    first = 0
    for number, member in enumerate(model.members, start=1):
        stop = first + member.network.embedding.out_features
        inference, kernels = member.inference(dataset), chosen.kernels[:, first:stop]
        for kernel, each in search_kernels(inference, chosen.sequences, samples, composition, residues, kernels):
            source = Source(kernel, number if len(model.members) > 1 else 0)
            found.append(_Found(each.masks, each.score, (source,), each.masks))
        first = stop
    matrices = [_matrix(evidence, one.masks) for one in found]
    found = [one._replace(shown=_shown(one.masks, *place)) for one, place in zip(found, matrices, strict=True)]
    return _independent(samples, _representatives(found, [matrix for matrix, _ in matrices]))[:max_motifs]


def _matrix(evidence: _Evidence, masks: Masks) -> tuple[Matrix, int]:
    """Return the matrix of a pattern's windows with informative positions beside it, and where the pattern begins."""
    samples, composition, residues = evidence
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
        chosen.append(
            best._replace(
                sources=tuple(sorted(sources, key=lambda source: (source.kernel > 0, source.member, source.kernel)))
            )
        )
    return sorted(chosen, key=lambda one: (one.score, pattern_text(one.masks)))


def _independent(samples: ComparedSequences, found: Sequence[_Found]) -> list[_Found]:
    """Return the patterns that are significant, also where those before them are erased, and not common anyway."""
    kept = []
    for one in found:
        significant = one.score <= SIGNIFICANT and score_of(samples, one.masks) <= SIGNIFICANT
        if significant and _is_special(samples, one.masks):
            kept.append(one)
            for masks in (one.shown, one.masks):  # what stands beside a motif belongs to it
                samples = samples._replace(residues=erased(samples.residues, samples.offsets, masks))
    return kept


def _is_special(samples: ComparedSequences, masks: Masks) -> bool:
    n_with, others_with = samples.counts([masks])[:, 0].tolist()
    odds = odds_ratio(n_with, samples.n, others_with, samples.others)
    return odds >= _MIN_ODDS and others_with <= _MAX_COMMON * samples.others


def _motif(evidence: _Evidence, found: _Found, carriers: pd.DataFrame) -> AttendedMotif:
    samples, composition, _ = evidence
    matrix, start = _matrix(evidence, found.masks)
    n_with, others_with = samples.counts([found.masks])[:, 0].tolist()
    log_p = float(samples.log_p([found.masks])[0])
    return AttendedMotif(
        pattern=pattern_text(found.masks),
        counts=matrix.counts,
        expected=matrix.expected,
        frequencies=matrix.frequencies,
        information=information_of(matrix),
        start=start,
        background=composition.overall,
        sources=found.sources,
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


def motif_table(motifs: Sequence[AttendedMotif]) -> pd.DataFrame:
    """Return the motifs as a table, one row each: rank (from 1), and the attributes of `AttendedMotif`.

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


def write_meme(path: str | Path, motifs: Sequence[AttendedMotif]) -> None:
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
