"""From attended sequences to motifs: search, clusters, tests, and counts over the cohort.

The search begins with the sequences that contribute most to one direction of a target (the attended sequences), and
with the residues of them that the network uses.

1. Find patterns that are more frequent among these sequences than in the cohort: gapped k-mers at the used residues
   (`search`), and windows of the kernels (`kernels`).
2. Join patterns that are alike to one motif (`cluster_motifs`).
3. Test whether the motif is associated with the class, in donors from which the network has not learned
   (`donor_tests`). Step 1 does not show this, because the network itself chose the attended sequences.

Letters: n attended sequences, L positions of the longest, D kernels, W positions of a motif, B repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.association_tests import adjust_by_benjamini_hochberg
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.attributions import Attributions
from deeprc.interpretation.motifs.attended_motif import AttendedMotif
from deeprc.interpretation.motifs.candidates import (
    FoundPattern,
    SearchData,
    collect_search_data,
    find_patterns,
)
from deeprc.interpretation.motifs.carriers import (
    HeldOutTest,
    compare_held_out_donors,
    count_carrying_sequences,
    tabulate_carriers,
)
from deeprc.interpretation.motifs.enrichment import compute_odds_ratio
from deeprc.interpretation.motifs.matrices import compute_information
from deeprc.interpretation.motifs.patterns import compute_pattern_cost, format_pattern
from deeprc.training.model import Model

__all__ = ["MotifOptions", "find_all_motifs", "find_motifs"]

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
    sets = [
        collect_search_data(dataset, *attributed, background=options.background, seed=options.seed)
        for attributed in zip(attributions, signs, strict=True)
    ]
    patterns = [[] if data is None else find_patterns(model, dataset, data, options.max_motifs) for data in sets]
    counts = count_carrying_sequences(dataset, [pattern.masks for of_set in patterns for pattern in of_set])  # (B, M)
    bounds = pairwise(np.cumsum([0, *map(len, patterns)]).tolist())
    motifs = [
        [] if data is None else _make_motifs(model, dataset, data, of_set, counts[:, first:stop], options)
        for data, of_set, (first, stop) in zip(sets, patterns, bounds, strict=True)
    ]
    return [sorted(of_set, key=_make_sort_key) for of_set in _add_q_values(motifs)]


def _make_motifs(
    model: Model,
    dataset: RepertoireDataset,
    data: SearchData,
    patterns: Sequence[FoundPattern],
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
    return [_make_motif(data, *arguments) for arguments in zip(patterns, carriers, tests, strict=True)]


def _make_sort_key(motif: AttendedMotif) -> tuple[float, float, float, str]:
    """Return the key by which motifs are sorted."""
    is_tested = not np.isnan(motif.p_donors)
    return motif.p_donors if is_tested else 2.0, motif.enrichment_log10_p, -motif.enrichment, motif.pattern


def _add_q_values(motifs: Sequence[Sequence[AttendedMotif]]) -> list[list[AttendedMotif]]:
    """Return the motifs with false discovery rates, computed over the tested motifs of all sets together."""
    p_values = np.array([motif.p_donors for of_set in motifs for motif in of_set])
    is_tested = ~np.isnan(p_values)
    q_values = np.full(len(p_values), np.nan)
    q_values[is_tested] = adjust_by_benjamini_hochberg(p_values[is_tested], int(is_tested.sum()))
    remaining = iter(q_values.tolist())
    return [[replace(motif, q_donors=next(remaining)) for motif in of_set] for of_set in motifs]


def _make_motif(data: SearchData, pattern: FoundPattern, carriers: pd.DataFrame, test: HeldOutTest) -> AttendedMotif:
    """Return a found pattern as a motif, with its matrix, its enrichment among attended sequences, and its tests."""
    samples, masks = data.samples, pattern.masks
    matrix = pattern.matrix
    attended_with, background_with = samples.count_carriers([masks])[:, 0].tolist()
    log_p = float(samples.log_p([masks])[0])
    return AttendedMotif(
        pattern=format_pattern(masks),
        counts=matrix.counts,
        expected=matrix.expected,
        frequencies=matrix.frequencies,
        information=compute_information(matrix),
        start=pattern.start,
        background=samples.frequencies.overall,
        sources=pattern.sources,
        n_attended=samples.n_attended,
        n_attended_with=attended_with,
        n_background=samples.n_background,
        n_background_with=background_with,
        enrichment=compute_odds_ratio(attended_with, samples.n_attended, background_with, samples.n_background),
        enrichment_log10_p=log_p / log(10),
        enrichment_log10_p_adjusted=min(0.0, (log_p + compute_pattern_cost(masks)) / log(10)),
        donors=test.donors,
        p_donors=test.p_value,
        q_donors=float("nan"),
        carriers=carriers,
    )
