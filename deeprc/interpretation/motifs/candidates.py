"""Patterns that may be motifs: searched among the attended sequences, one for each cluster, and significant alone.

Letters: n attended sequences, L positions of the longest, D kernels, W positions of a pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.motif_clusters import cluster_motifs
from deeprc.interpretation.attributions import Attributions
from deeprc.interpretation.motifs.attended_motif import Source
from deeprc.interpretation.motifs.background import draw_compared_sequences, find_unique_rows
from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.interpretation.motifs.enrichment import compute_odds_ratio
from deeprc.interpretation.motifs.kernels import search_kernels
from deeprc.interpretation.motifs.matching import erase_matches
from deeprc.interpretation.motifs.matrices import (
    PositionFrequencyMatrix,
    align_windows,
    compute_information,
    find_windows,
)
from deeprc.interpretation.motifs.patterns import ANY, LONGEST, Masks, format_pattern
from deeprc.interpretation.motifs.search import SIGNIFICANT, Candidate, score_pattern, search_windows
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.training.model import Model

__all__ = ["FoundPattern", "SearchData", "collect_search_data", "find_patterns"]

_SPAN = 9  # largest span of a pattern if the encoder has no kernels
_SEARCHED = 2  # number of patterns to search for each wanted motif, because some are similar
_MIN_ODDS = 4.0  # smallest odds ratio of a motif, because with 1,000 sequences the weakest preference is significant
_MAX_COMMON = 0.25  # largest share of the background that may carry a motif
_FLANK = 3  # number of positions beside the pattern that a matrix may show
_MIN_INFORMATION = 0.5  # smallest information in bits of the outermost of these positions


class SearchData(NamedTuple):
    """The sequences and attributions in which motifs are searched.

    Attributes
    ----------
    output, sign
        Index of the output to which the attended sequences contribute; 1 if they raise it, -1 if they lower it.
    sequences
        Index of the n different attended sequences.
    samples
        These sequences, and those of the background.
    residues, kernels
        Attributions of the residues, (n, L), and of the kernels, (n, D), of the attended sequences, positive in the
        direction of the sequence's change.
    """

    output: int
    sign: int
    sequences: SequenceIndex
    samples: ComparedSequences
    residues: NDArray[np.float64]
    kernels: NDArray[np.float64]


class FoundPattern(NamedTuple):
    """A pattern that may be a motif.

    Attributes
    ----------
    masks
        The pattern.
    score
        Logarithm of its corrected p-value, see `score_pattern`.
    sources
        The ways in which it was found: by windows of attributions, or by kernels.
    matrix
        Matrix of the windows of the attended sequences, with informative positions beside the pattern.
    start
        Position of the matrix at which the pattern begins.
    """

    masks: Masks
    score: float
    sources: tuple[Source, ...]
    matrix: PositionFrequencyMatrix
    start: int

    @classmethod
    def of(cls, data: SearchData, candidate: Candidate, source: Source) -> FoundPattern:
        """Return a pattern that a source has found, with its matrix."""
        masks = candidate.masks
        windows = find_windows(data.samples, masks, data.residues)
        matrix = align_windows(data.samples, windows, _FLANK, len(masks) + _FLANK)
        is_shown = compute_information(matrix).sum(axis=1) >= _MIN_INFORMATION
        is_shown[_FLANK : _FLANK + len(masks)] = True
        positions = np.flatnonzero(is_shown)
        part = slice(positions[0], positions[-1] + 1)
        shown = PositionFrequencyMatrix(matrix.counts[part], matrix.expected[part])
        return cls(masks, candidate.score, (source,), shown, _FLANK - int(positions[0]))

    @property
    def extended(self) -> Masks:
        """The pattern with all positions of the matrix; those beside the pattern accept any residue."""
        extended = np.full(len(self.matrix.counts), ANY, self.masks.dtype)
        extended[self.start : self.start + len(self.masks)] = self.masks
        return extended


def collect_search_data(
    dataset: RepertoireDataset, attributions: Attributions, sign: int, *, background: int, seed: int
) -> SearchData | None:
    """Return the sequences and attributions in which patterns are searched; None if there are no sequences.

    The parameters are those of `find_motifs`.
    """
    if not len(attributions):
        return None
    table = attributions.index.frame(dataset)
    rows = find_unique_rows(table, attributions.change)
    direction = np.sign(attributions.change[rows])[:, None]
    junctions = table["junction_aa"].iloc[rows].tolist()
    samples = draw_compared_sequences(junctions, dataset, background=background, seed=seed)
    return SearchData(
        attributions.output,
        sign,
        attributions.index.take(rows),
        samples,
        attributions.residues[rows] * direction,
        attributions.kernels[rows] * direction,
    )


def find_patterns(model: Model, dataset: RepertoireDataset, data: SearchData, max_patterns: int) -> list[FoundPattern]:
    """Return the patterns that are motifs, most significant first, before their carriers are counted."""
    patterns = [*_search_windows(model, data, max_patterns), *_search_kernels(model, dataset, data)]
    return _select_independent(data.samples, _select_representatives(patterns))[:max_patterns]


def _search_windows(model: Model, data: SearchData, max_patterns: int) -> list[FoundPattern]:
    """Return patterns of the windows with high attributions."""
    spans = [member.network.embedding.span or _SPAN for member in model.members]
    windows = search_windows(
        data.samples,
        data.residues,
        span=min(max(spans), LONGEST),  # p-values are corrected for patterns up to this length
        max_patterns=_SEARCHED * max_patterns,
    )
    # their scores are those after earlier patterns were erased
    rescored = [Candidate(pattern.masks, score_pattern(data.samples, pattern.masks)) for pattern in windows]
    return [FoundPattern.of(data, candidate, Source()) for candidate in rescored]


def _search_kernels(model: Model, dataset: RepertoireDataset, data: SearchData) -> list[FoundPattern]:
    """Return patterns of the kernels of all members of a model."""
    patterns = []
    first = 0
    for number, member in enumerate(model.members, start=1):
        stop = first + member.network.embedding.out_features
        attributions = data.kernels[:, first:stop]
        searched = (data.sequences, data.samples, data.residues, attributions)
        for kernel, pattern in search_kernels(member.make_inference(dataset), *searched):
            source = Source(kernel, number if len(model.members) > 1 else 0)
            patterns.append(FoundPattern.of(data, pattern, source))
        first = stop
    return patterns


def _select_representatives(patterns: Sequence[FoundPattern]) -> list[FoundPattern]:
    """Return the most significant pattern of each cluster, with the sources of all its patterns, best first."""
    clusters = cluster_motifs([compute_information(pattern.matrix) for pattern in patterns])
    representatives = []
    for cluster in np.unique(clusters):
        members = [pattern for pattern, index in zip(patterns, clusters, strict=True) if index == cluster]
        sources = {source for member in members for source in member.sources}
        in_order = sorted(sources, key=lambda source: (source.kernel > 0, source.member, source.kernel))
        representatives.append(min(members, key=_make_significance_key)._replace(sources=tuple(in_order)))
    return sorted(representatives, key=_make_significance_key)


def _make_significance_key(pattern: FoundPattern) -> tuple[float, str]:
    return pattern.score, format_pattern(pattern.masks)


def _select_independent(samples: ComparedSequences, patterns: Sequence[FoundPattern]) -> list[FoundPattern]:
    """Return the patterns that are significant, also after those before them are erased, and rare in the background."""
    kept = []
    for pattern in patterns:
        is_significant = pattern.score <= SIGNIFICANT and score_pattern(samples, pattern.masks) <= SIGNIFICANT
        if is_significant and _is_specific(samples, pattern.masks):
            kept.append(pattern)
            for masks in (pattern.extended, pattern.masks):  # positions beside a motif belong to it
                samples = samples._replace(residues=erase_matches(samples.residues, samples.offsets, masks))
    return kept


def _is_specific(samples: ComparedSequences, masks: Masks) -> bool:
    """Return whether a pattern is much more frequent in attended sequences than in the background, and rare there."""
    attended_with, background_with = samples.count_carriers([masks])[:, 0].tolist()
    odds = compute_odds_ratio(attended_with, samples.n_attended, background_with, samples.n_background)
    return odds >= _MIN_ODDS and background_with <= _MAX_COMMON * samples.n_background
