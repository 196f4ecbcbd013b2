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
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.association_tests import adjust_by_benjamini_hochberg
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.motif_clusters import cluster_motifs
from deeprc.interpretation.attributions import Attributions
from deeprc.interpretation.motifs.attended_motif import AttendedMotif, Source
from deeprc.interpretation.motifs.background import draw_compared, find_unique_rows
from deeprc.interpretation.motifs.carriers import (
    HeldOutTest,
    compare_held_out_donors,
    count_carrying_sequences,
    tabulate_carriers,
)
from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.interpretation.motifs.enrichment import odds_ratio
from deeprc.interpretation.motifs.kernels import search_kernels
from deeprc.interpretation.motifs.matching import erase_matches
from deeprc.interpretation.motifs.matrices import (
    Composition,
    Matrix,
    align_windows,
    compute_information,
    find_windows,
    measure_background,
)
from deeprc.interpretation.motifs.patterns import ANY, LONGEST, Masks, compute_pattern_cost, format_pattern
from deeprc.interpretation.motifs.search import SIGNIFICANT, score_pattern, search_windows
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.training.model import Model

__all__ = ["MotifOptions", "find_all_motifs", "find_motifs"]

_SPAN = 9  # largest span of a pattern if the encoder has no kernels
_SEARCHED = 2  # number of patterns to search for each wanted motif, because some are similar
_MIN_ODDS = 4.0  # smallest odds ratio of a motif, because with 1,000 sequences the weakest preference is significant
_MAX_COMMON = 0.25  # largest share of the background that may carry a motif
_FLANK = 3  # number of positions beside the pattern that a matrix may show
_MIN_INFORMATION = 0.5  # smallest information in bits of the outermost of these positions
_NOT_TESTED = HeldOutTest(pd.DataFrame(columns=["class", "n_donors", "n_donors_with", "mean_rate"]), float("nan"))


@dataclass(frozen=True, kw_only=True)
class MotifOptions:
    """Options of a search for motifs; `find_motifs` says what they mean."""

    max_motifs: int = 10
    background: int = 50_000
    seed: int = 0
    group_by: str | None = None
    is_held_out: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_motifs", self.max_motifs), ("background", self.background)):
            if value < 1:
                raise InputError(f"{name}: expected at least 1, found {value}")


class _SearchData(NamedTuple):
    """The sequences and attributions in which motifs are searched.

    Attributes
    ----------
    output, sign
        Index of the output to which the attended sequences contribute; 1 if they raise it, -1 if they lower it.
    sequences
        Index of the n different attended sequences.
    samples
        These sequences, and those of the background.
    composition
        Frequencies of the residues in the background.
    residues, kernels
        Attributions of the residues, (n, L), and of the kernels, (n, D), of the attended sequences, positive in the
        direction of the sequence's change.
    """

    output: int
    sign: int
    sequences: SequenceIndex
    samples: ComparedSequences
    composition: Composition
    residues: NDArray[np.float64]
    kernels: NDArray[np.float64]


class _FoundPattern(NamedTuple):
    """A pattern that may be a motif.

    Attributes
    ----------
    masks
        The pattern.
    score
        Logarithm of its corrected p-value, see `score_pattern`.
    sources
        What found it: windows of attributions, or kernels.
    extended
        The pattern with all positions of its logo.
    """

    masks: Masks
    score: float
    sources: tuple[Source, ...]
    extended: Masks


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
    options = MotifOptions(
        max_motifs=max_motifs, background=background, seed=seed, group_by=group_by, is_held_out=is_held_out
    )
    return find_all_motifs(model, dataset, [attributions], [sign], options)[0]


def find_all_motifs(
    model: Model,
    dataset: RepertoireDataset,
    attributions: Sequence[Attributions],
    signs: Sequence[int],
    options: MotifOptions,
) -> list[list[AttendedMotif]]:
    """Return the motifs of several sets of sequences, see `find_motifs`; all carriers are counted in one pass.

    False discovery rates are those of the motifs of all sets together.

    Parameters
    ----------
    model, dataset
        The trained model or ensemble, and the cohort.
    attributions, signs
        Attributions of each set, and the sign of its direction, see `find_motifs`.
    options
        Options of the search.
    """
    data = [_collect_search_data(dataset, *each, options) for each in zip(attributions, signs, strict=True)]
    patterns = [[] if each is None else _find_patterns(model, dataset, each, options.max_motifs) for each in data]
    counts = count_carrying_sequences(dataset, [pattern.masks for found in patterns for pattern in found])
    bounds = pairwise(np.cumsum([0, *map(len, patterns)]).tolist())
    motifs = [
        [] if each is None else _make_motifs(model, dataset, each, found, counts[:, first:stop], options)
        for each, found, (first, stop) in zip(data, patterns, bounds, strict=True)
    ]
    return [sorted(found, key=_make_sort_key) for found in _add_q_values(motifs)]


def _make_motifs(
    model: Model,
    dataset: RepertoireDataset,
    data: _SearchData,
    patterns: Sequence[_FoundPattern],
    counts: NDArray[np.int64],
    options: MotifOptions,
) -> list[AttendedMotif]:
    """Return a motif for each pattern, from the number of carrying sequences of each repertoire, (B, M)."""
    carriers = tabulate_carriers(model, dataset, counts, output=data.output, group_by=options.group_by)
    tests = [_NOT_TESTED] * len(patterns)
    if options.is_held_out is not None:
        tests = compare_held_out_donors(
            model,
            dataset,
            counts,
            options.is_held_out,
            output=data.output,
            sign=data.sign,
            group_by=options.group_by,
        )
    return [_make_motif(data, *each) for each in zip(patterns, carriers, tests, strict=True)]


def _make_sort_key(motif: AttendedMotif) -> tuple[float, float, float, str]:
    """Return the key by which motifs are sorted."""
    is_tested = not np.isnan(motif.p_donors)
    return motif.p_donors if is_tested else 2.0, motif.enrichment_log10_p, -motif.enrichment, motif.pattern


def _add_q_values(motifs: Sequence[Sequence[AttendedMotif]]) -> list[list[AttendedMotif]]:
    """Return the motifs with false discovery rates, computed over the tested motifs of all sets together."""
    p_values = np.array([motif.p_donors for found in motifs for motif in found])
    is_tested = ~np.isnan(p_values)
    q_values = np.full(len(p_values), np.nan)
    q_values[is_tested] = adjust_by_benjamini_hochberg(p_values[is_tested], int(is_tested.sum()))
    remaining = iter(q_values.tolist())
    return [[replace(motif, q_donors=next(remaining)) for motif in found] for found in motifs]


def _collect_search_data(
    dataset: RepertoireDataset, attributions: Attributions, sign: int, options: MotifOptions
) -> _SearchData | None:
    """Return the sequences and attributions in which motifs are searched; None if there are no sequences."""
    if not len(attributions):
        return None
    table = attributions.index.frame(dataset)
    rows = find_unique_rows(table, attributions.change)
    direction = np.sign(attributions.change[rows])[:, None]
    junctions = table["junction_aa"].iloc[rows].tolist()
    samples = draw_compared(junctions, dataset, background=options.background, seed=options.seed)
    return _SearchData(
        attributions.output,
        sign,
        attributions.index.take(rows),
        samples,
        measure_background(samples),
        attributions.residues[rows] * direction,
        attributions.kernels[rows] * direction,
    )


def _find_patterns(
    model: Model, dataset: RepertoireDataset, data: _SearchData, max_patterns: int
) -> list[_FoundPattern]:
    """Return the patterns that are motifs, most significant first, before their carriers are counted."""
    found = [*_search_windows(model, data, max_patterns), *_search_kernels(model, dataset, data)]
    matrices = [_make_matrix(data, pattern.masks) for pattern in found]
    extended = [
        pattern._replace(extended=_extend_to_matrix(pattern.masks, *matrix_and_start))
        for pattern, matrix_and_start in zip(found, matrices, strict=True)
    ]
    representatives = _select_representatives(extended, [matrix for matrix, _ in matrices])
    return _select_independent(data.samples, representatives)[:max_patterns]


def _search_windows(model: Model, data: _SearchData, max_patterns: int) -> list[_FoundPattern]:
    """Return patterns of the windows with high attributions."""
    spans = [member.network.embedding.span or _SPAN for member in model.members]
    windows = search_windows(
        data.samples,
        data.composition,
        data.residues,
        span=min(max(spans), LONGEST),  # p-values are corrected for patterns up to this length
        max_patterns=_SEARCHED * max_patterns,
    )
    return [
        _FoundPattern(each.masks, score_pattern(data.samples, each.masks), (Source(),), each.masks) for each in windows
    ]


def _search_kernels(model: Model, dataset: RepertoireDataset, data: _SearchData) -> list[_FoundPattern]:
    """Return patterns of the kernels of all members of a model."""
    found = []
    first = 0
    for number, member in enumerate(model.members, start=1):
        stop = first + member.network.embedding.out_features
        attributions = data.kernels[:, first:stop]
        searched = (data.sequences, data.samples, data.composition, data.residues, attributions)
        for kernel, each in search_kernels(member.make_inference(dataset), *searched):
            source = Source(kernel, number if len(model.members) > 1 else 0)
            found.append(_FoundPattern(each.masks, each.score, (source,), each.masks))
        first = stop
    return found


def _make_matrix(data: _SearchData, masks: Masks) -> tuple[Matrix, int]:
    """Return the matrix of a pattern's windows, with informative positions beside it, and the start of the pattern."""
    windows = find_windows(data.samples, masks, data.residues)
    matrix = align_windows(data.samples, data.composition, windows, _FLANK, len(masks) + _FLANK)
    is_informative = compute_information(matrix).sum(axis=1) >= _MIN_INFORMATION
    is_informative[_FLANK : _FLANK + len(masks)] = True
    positions = np.flatnonzero(is_informative)
    part = slice(positions[0], positions[-1] + 1)
    return Matrix(matrix.counts[part], matrix.expected[part]), _FLANK - int(positions[0])


def _extend_to_matrix(masks: Masks, matrix: Matrix, start: int) -> Masks:
    """Return a pattern with all positions of its matrix; those beside the pattern accept any residue."""
    extended = np.full(len(matrix.counts), ANY, masks.dtype)
    extended[start : start + len(masks)] = masks
    return extended


def _select_representatives(found: Sequence[_FoundPattern], matrices: Sequence[Matrix]) -> list[_FoundPattern]:
    """Return the most significant pattern of each cluster, with the sources of all its patterns, best first."""
    clusters = cluster_motifs([compute_information(matrix) for matrix in matrices])
    representatives = []
    for cluster in np.unique(clusters):
        members = [pattern for pattern, own in zip(found, clusters, strict=True) if own == cluster]
        sources = {source for member in members for source in member.sources}
        in_order = sorted(sources, key=lambda source: (source.kernel > 0, source.member, source.kernel))
        representatives.append(min(members, key=_make_significance_key)._replace(sources=tuple(in_order)))
    return sorted(representatives, key=_make_significance_key)


def _make_significance_key(pattern: _FoundPattern) -> tuple[float, str]:
    return pattern.score, format_pattern(pattern.masks)


def _select_independent(samples: ComparedSequences, found: Sequence[_FoundPattern]) -> list[_FoundPattern]:
    """Return the patterns that are significant, also after those before them are erased, and rare in the background."""
    kept = []
    for pattern in found:
        is_significant = pattern.score <= SIGNIFICANT and score_pattern(samples, pattern.masks) <= SIGNIFICANT
        if is_significant and _is_specific(samples, pattern.masks):
            kept.append(pattern)
            for masks in (pattern.extended, pattern.masks):  # positions beside a motif belong to it
                samples = samples._replace(residues=erase_matches(samples.residues, samples.offsets, masks))
    return kept


def _is_specific(samples: ComparedSequences, masks: Masks) -> bool:
    """Return whether a pattern is much more frequent in attended sequences than in the background, and rare there."""
    n_with, others_with = samples.counts([masks])[:, 0].tolist()
    odds = odds_ratio(n_with, samples.n, others_with, samples.others)
    return odds >= _MIN_ODDS and others_with <= _MAX_COMMON * samples.others


def _make_motif(data: _SearchData, pattern: _FoundPattern, carriers: pd.DataFrame, test: HeldOutTest) -> AttendedMotif:
    samples, masks = data.samples, pattern.masks
    matrix, start = _make_matrix(data, masks)
    n_with, others_with = samples.counts([masks])[:, 0].tolist()
    log_p = float(samples.log_p([masks])[0])
    return AttendedMotif(
        pattern=format_pattern(masks),
        counts=matrix.counts,
        expected=matrix.expected,
        frequencies=matrix.frequencies,
        information=compute_information(matrix),
        start=start,
        background=data.composition.overall,
        sources=pattern.sources,
        n_attended=samples.n,
        n_attended_with=n_with,
        n_background=samples.others,
        n_background_with=others_with,
        enrichment=odds_ratio(n_with, samples.n, others_with, samples.others),
        enrichment_log10_p=log_p / log(10),
        enrichment_log10_p_adjusted=min(0.0, (log_p + compute_pattern_cost(masks)) / log(10)),
        donors=test.donors,
        p_donors=test.p_value,
        q_donors=float("nan"),
        carriers=carriers,
    )
