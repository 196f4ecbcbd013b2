"""From attended sequences to motifs: search, clusters, tests, and counts over the cohort.

From the sequences that contribute most to one direction of a target, and which of their residues the network uses,
patterns are searched for that are more frequent among them than in the cohort: from enriched gapped k-mers under the
attribution (`search`), and from the kernels (`kernels`). Patterns that are alike are one motif (`cluster_motifs`).

The network chose the attended sequences. So the enrichment shows that a pattern is more frequent among them than by
chance, but not that it is associated with the class. For this, donors that the network has not learned from are
compared (`donor_tests`).

Letters: n attended sequences, L positions of the longest, D kernels, W positions of a motif, B repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.association_tests import benjamini_hochberg
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.motif_clusters import cluster_motifs
from deeprc.interpretation.attributions import Attributions
from deeprc.interpretation.motifs.attended_motif import AttendedMotif, Source
from deeprc.interpretation.motifs.background import draw_compared, find_unique_rows
from deeprc.interpretation.motifs.carriers import (
    HeldOutDonors,
    compare_held_out_donors,
    count_carrying_sequences,
    tabulate_carriers,
)
from deeprc.interpretation.motifs.enrichment import odds_ratio
from deeprc.interpretation.motifs.kernels import search_kernels
from deeprc.interpretation.motifs.matching import erase_matches
from deeprc.interpretation.motifs.matrices import (
    Composition,
    Matrix,
    align_windows,
    background_composition,
    compute_information,
    find_windows,
)
from deeprc.interpretation.motifs.patterns import ANY, LONGEST, Masks, format_pattern, pattern_cost
from deeprc.interpretation.motifs.search import SIGNIFICANT, score_pattern, search_windows
from deeprc.interpretation.motifs.seeds import ComparedSequences
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.training.model import Model

__all__ = ["find_all_motifs", "find_motifs"]

_SPAN = 9  # largest span of a seed if the encoder has no kernels
_SEARCHED = 2  # factor by which more patterns are searched than wanted, because some are similar
_MIN_ODDS = 4.0  # smallest odds ratio of a motif, because with 1,000 sequences the weakest preference is significant
_MAX_COMMON = 0.25  # largest share of the background that may carry a motif
_FLANK = 3  # number of positions beside the pattern that a matrix may show
_INFORMATIVE = 0.5  # smallest information of the outermost of them in bits
_NOT_TESTED = HeldOutDonors(pd.DataFrame(columns=["class", "n_donors", "n_donors_with", "mean_rate"]), float("nan"))


class _Found(NamedTuple):
    """A pattern, the logarithm of its corrected p-value, its sources, and the pattern at all positions of its logo."""

    masks: Masks
    score: float
    sources: tuple[Source, ...]
    shown: Masks


class _Evidence(NamedTuple):
    """The sequences and attributions in which motifs are searched.

    Attributes
    ----------
    samples
        The different attended sequences, and those of the background.
    composition
        Frequencies of the residues in the background.
    residues
        Attributions of the residues of the attended sequences, (n, L), positive in the direction of the sequence's
        change.
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
    sign: int = 1,
    is_held_out: NDArray[np.bool_] | None = None,
) -> list[AttendedMotif]:
    """Return the motifs of the sequences that contribute to one direction of an output.

    They are sorted by `p_donors`, the test of association with the class, and then by the p-value of the enrichment.

    Parameters
    ----------
    model, dataset
        The trained model or ensemble, and the cohort.
    attributions
        Attributions of the attended sequences, see `attribute`. Equal junctions count once; the order of the sequences
        does not matter. The sign of attributions is taken relative to the change of the sequence, because in a
        repertoire with many carriers of a motif, one more carrier may even lower the output.
    max_motifs
        Largest number of motifs.
    background
        Largest number of sequences to compare with. They are drawn evenly from the repertoires, with lengths like those
        of the attended sequences.
    seed
        Seed of the background.
    group_by
        Metadata column that names the donor of a repertoire; None searches for one.
    sign
        1 if the sequences raise the output, -1 if they lower it.
    is_held_out
        Whether the model has not learned from each repertoire, (B,); motifs are tested in these. None makes no test.

    Returns
    -------
    Motifs with a corrected p-value of at most 0.05, also after windows of more significant motifs are erased, with an
    odds ratio of at least 4, and carried by at most a quarter of the background.

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
        signs=[sign],
        is_held_out=is_held_out,
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
    signs: Sequence[int] = (),
    is_held_out: NDArray[np.bool_] | None = None,
) -> list[list[AttendedMotif]]:
    """Return the motifs of several sets of sequences, see `find_motifs`; all carriers are counted in one pass.

    The parameters are those of `find_motifs`; `signs` has the sign of each set, 1 if none are given. False discovery
    rates are those of the motifs of all sets together.
    """
    for name, value in (("max_motifs", max_motifs), ("background", background)):
        if value < 1:
            raise InputError(f"{name}: expected at least 1, found {value}")
    searched = []
    for own in attributions:
        prepared = _collect_evidence(dataset, own, background, seed)
        searched.append((prepared, [] if prepared is None else _search(model, dataset, *prepared, max_motifs)))
    counts = count_carrying_sequences(dataset, [one.masks for _, found in searched for one in found])
    motifs, first = [], 0
    for own, sign, (prepared, found) in zip(attributions, signs or [1] * len(attributions), searched, strict=True):
        of_found = counts[:, first : first + len(found)]
        first += len(found)
        carriers = tabulate_carriers(model, dataset, of_found, output=own.output, group_by=group_by)
        donors = [_NOT_TESTED] * len(found)
        if is_held_out is not None:
            donors = compare_held_out_donors(
                model, dataset, of_found, is_held_out, output=own.output, sign=sign, group_by=group_by
            )
        columns = zip(found, carriers, donors, strict=True)
        motifs.append([_make_motif(prepared[0], *each) for each in columns] if prepared else [])
    return [sorted(own, key=_make_sort_key) for own in _add_q_values(motifs)]


def _make_sort_key(motif: AttendedMotif) -> tuple[float, float, float, str]:
    """Return the key by which motifs are sorted."""
    is_tested = not np.isnan(motif.p_donors)
    return motif.p_donors if is_tested else 2.0, motif.enrichment_log10_p, -motif.enrichment, motif.pattern


def _add_q_values(motifs: Sequence[Sequence[AttendedMotif]]) -> list[list[AttendedMotif]]:
    """Return the motifs with false discovery rates, computed over the tested motifs of all sets together."""
    p_values = np.array([motif.p_donors for own in motifs for motif in own])
    is_tested = ~np.isnan(p_values)
    q_values = np.full(len(p_values), np.nan)
    q_values[is_tested] = benjamini_hochberg(p_values[is_tested], int(is_tested.sum()))
    of_each = iter(q_values.tolist())
    return [[replace(motif, q_donors=next(of_each)) for motif in own] for own in motifs]


class _Chosen(NamedTuple):
    """The different attended sequences, in the order of `_Evidence`, and the attributions of the kernels, (n, D)."""

    sequences: SequenceIndex
    kernels: NDArray[np.float64]


def _collect_evidence(
    dataset: RepertoireDataset, attributions: Attributions, background: int, seed: int
) -> tuple[_Evidence, _Chosen] | None:
    """Return the sequences and attributions in which motifs are searched; None if there are no sequences."""
    if not len(attributions):
        return None
    table = attributions.index.frame(dataset)
    rows = find_unique_rows(table, attributions.change)
    direction = np.sign(attributions.change[rows])[:, None]
    junctions = table["junction_aa"].iloc[rows].tolist()
    samples = draw_compared(junctions, dataset, background=background, seed=seed)
    evidence = _Evidence(samples, background_composition(samples), attributions.residues[rows] * direction)
    return evidence, _Chosen(attributions.index.take(rows), attributions.kernels[rows] * direction)


def _search(
    model: Model, dataset: RepertoireDataset, evidence: _Evidence, chosen: _Chosen, max_motifs: int
) -> list[_Found]:
    """Return the patterns of motifs, before their carriers are counted."""
    samples, composition, residues = evidence
    spans = [member.network.embedding.span or _SPAN for member in model.members]
    span = min(max(spans), LONGEST)  # p-values are corrected for patterns up to this length
    windows = search_windows(samples, composition, residues, span=span, max_patterns=_SEARCHED * max_motifs)
    found = [_Found(each.masks, score_pattern(samples, each.masks), (Source(),), each.masks) for each in windows]
    first = 0
    for number, member in enumerate(model.members, start=1):
        stop = first + member.network.embedding.out_features
        inference, kernels = member.make_inference(dataset), chosen.kernels[:, first:stop]
        for kernel, each in search_kernels(inference, chosen.sequences, samples, composition, residues, kernels):
            source = Source(kernel, number if len(model.members) > 1 else 0)
            found.append(_Found(each.masks, each.score, (source,), each.masks))
        first = stop
    matrices = [_make_matrix(evidence, one.masks) for one in found]
    found = [
        one._replace(shown=_extend_to_matrix(one.masks, *place)) for one, place in zip(found, matrices, strict=True)
    ]
    return _select_independent(samples, _select_representatives(found, [matrix for matrix, _ in matrices]))[:max_motifs]


def _make_matrix(evidence: _Evidence, masks: Masks) -> tuple[Matrix, int]:
    """Return the matrix of a pattern's windows, with informative positions beside it, and the start of the pattern."""
    samples, composition, residues = evidence
    windows = find_windows(samples, masks, residues)
    matrix = align_windows(samples, composition, windows, _FLANK, len(masks) + _FLANK)
    informative = compute_information(matrix).sum(axis=1) >= _INFORMATIVE
    informative[_FLANK : _FLANK + len(masks)] = True
    shown = np.flatnonzero(informative)
    part = slice(shown[0], shown[-1] + 1)
    return Matrix(matrix.counts[part], matrix.expected[part]), _FLANK - int(shown[0])


def _extend_to_matrix(masks: Masks, matrix: Matrix, start: int) -> Masks:
    """Return a pattern with all positions of its matrix; those beside the pattern accept any residue."""
    whole = np.full(len(matrix.counts), ANY, masks.dtype)
    whole[start : start + len(masks)] = masks
    return whole


def _select_representatives(found: Sequence[_Found], matrices: Sequence[Matrix]) -> list[_Found]:
    """Return the most significant pattern of each cluster, with the sources of all its patterns, best first."""
    clusters = cluster_motifs([compute_information(matrix) for matrix in matrices])
    chosen = []
    for cluster in np.unique(clusters):
        members = [one for one, number in zip(found, clusters, strict=True) if number == cluster]
        sources = {source for member in members for source in member.sources}
        best = min(members, key=lambda member: (member.score, format_pattern(member.masks)))
        chosen.append(
            best._replace(
                sources=tuple(sorted(sources, key=lambda source: (source.kernel > 0, source.member, source.kernel)))
            )
        )
    return sorted(chosen, key=lambda one: (one.score, format_pattern(one.masks)))


def _select_independent(samples: ComparedSequences, found: Sequence[_Found]) -> list[_Found]:
    """Return the patterns that are significant, also after those before them are erased, and rare in the background."""
    kept = []
    for one in found:
        significant = one.score <= SIGNIFICANT and score_pattern(samples, one.masks) <= SIGNIFICANT
        if significant and _is_special(samples, one.masks):
            kept.append(one)
            for masks in (one.shown, one.masks):  # positions beside a motif belong to it
                samples = samples._replace(residues=erase_matches(samples.residues, samples.offsets, masks))
    return kept


def _is_special(samples: ComparedSequences, masks: Masks) -> bool:
    n_with, others_with = samples.counts([masks])[:, 0].tolist()
    odds = odds_ratio(n_with, samples.n, others_with, samples.others)
    return odds >= _MIN_ODDS and others_with <= _MAX_COMMON * samples.others


def _make_motif(evidence: _Evidence, found: _Found, carriers: pd.DataFrame, donors: HeldOutDonors) -> AttendedMotif:
    samples, composition, _ = evidence
    matrix, start = _make_matrix(evidence, found.masks)
    n_with, others_with = samples.counts([found.masks])[:, 0].tolist()
    log_p = float(samples.log_p([found.masks])[0])
    return AttendedMotif(
        pattern=format_pattern(found.masks),
        counts=matrix.counts,
        expected=matrix.expected,
        frequencies=matrix.frequencies,
        information=compute_information(matrix),
        start=start,
        background=composition.overall,
        sources=found.sources,
        n_attended=samples.n,
        n_attended_with=n_with,
        n_background=samples.others,
        n_background_with=others_with,
        enrichment=odds_ratio(n_with, samples.n, others_with, samples.others),
        enrichment_log10_p=log_p / log(10),
        enrichment_log10_p_adjusted=min(0.0, (log_p + pattern_cost(found.masks)) / log(10)),
        donors=donors.table,
        p_donors=donors.p_value,
        q_donors=float("nan"),
        carriers=carriers,
    )
