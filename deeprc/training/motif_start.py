"""The search for the motifs from which the kernels of a network start, and sentences about its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deeprc.config import Config
from deeprc.outputs import get_output_slices
from deeprc.tasks import Task
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.kmer_occurrences import find_sequences_with_kmer
from deeprc.training.kmer_sets import enumerate_spacings
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_search import MOTIF_LEVEL, MotifLimits, add_in_turn, find_enriched_motifs
from deeprc.training.motif_variants import find_all_variants
from deeprc.training.search_outputs import MIN_MEMBERS, iterate_search_outputs, make_search_output, make_search_outputs

__all__ = ["MIN_DONORS", "describe_start_motifs", "find_start_motifs", "find_start_variants"]

MIN_DONORS = 12
"""Smallest number of training donors with a label for which motifs are searched.

With fewer, even a motif that separates the classes is hardly significant.
"""

_MAX_NAMED = 5  # number of motifs that the log names; `seeds.tsv` lists all
_MAX_SPAN = 6  # largest number of positions that a motif spans
_RESIDUES = (2, 3, 4)  # numbers of fixed residues of a motif
_DOUBTFUL_LEVEL = 0.5  # largest p-value of a motif that other repertoires have to confirm


def find_start_motifs(
    config: Config, tasks: Sequence[Task], repertoires: LabelledRepertoires, *, seed: int
) -> list[EnrichedMotif]:
    """Return the motifs from which `start_network` may start a network, best first; the list may be empty.

    Motifs have 2 to 4 fixed residues within 6 positions, or within a kernel if it is narrower; see
    `find_enriched_motifs`. A target with labels for fewer than 12 donors has no motifs. If there is no significant
    motif, each output may have a doubtful one: its p-value is above `MOTIF_LEVEL` and at most 0.5, and other
    repertoires have to confirm it.

    Parameters
    ----------
    config
        Configuration; `seeded_start` is the largest share of kernels that start from motifs.
    tasks
        Tasks of the labels.
    repertoires
        Training repertoires, and no others, with their labels and donors.
    seed
        Seed of the permutations of labels.
    """
    limits = MotifLimits(_count_start_kernels(config), min_donors=MIN_DONORS, doubtful_level=_DOUBTFUL_LEVEL)
    return find_enriched_motifs(repertoires, tasks, spacings=_list_spacings(config), limits=limits, seed=seed)


def find_start_variants(
    config: Config,
    tasks: Sequence[Task],
    repertoires: LabelledRepertoires,
    motifs: Sequence[EnrichedMotif],
    *,
    seed: int,
) -> list[EnrichedMotif]:
    """Return the variants of doubtful motifs that other repertoires have confirmed, see `find_all_variants`.

    `motifs` are the doubtful motifs; the other parameters are those of `find_start_motifs`. Motifs and variants are all
    different, and together at most as many as the kernels that may start from them.
    """
    n_outputs = sum(len(searched.outputs) for searched in iterate_search_outputs(repertoires, tasks, MIN_DONORS))
    n_kernels = _count_start_kernels(config)
    chosen = {motif.letters: motif for motif in motifs}
    variants_by_output: list[list[EnrichedMotif]] = []
    if len(chosen) < n_kernels:
        for motif in motifs:
            search_output, _ = make_search_output(repertoires, tasks, motif.output)
            variants = find_all_variants(
                [motif],
                search_output,
                _list_spacings(config),
                find_sequences_with_kmer(search_output.dataset, motif.spacing, motif.code),
                max_variants=n_kernels - len(chosen),
                level=MOTIF_LEVEL / n_outputs,
                rng=np.random.default_rng([seed, 2, motif.output]),
            )
            variants_by_output.append([replace(variant, p_value=variant.p_value * n_outputs) for variant in variants])
    add_in_turn(chosen, variants_by_output, n_kernels)
    return list(chosen.values())[len(motifs) :]


def _count_start_kernels(config: Config) -> int:
    """Return the largest number of kernels that start from motifs."""
    return int(config.training.seeded_start * config.network.n_kernels)


def _list_spacings(config: Config) -> list[tuple[int, ...]]:
    """Return the spacings of the motifs that are searched; there are none if a kernel spans one position only."""
    span = min(_MAX_SPAN, config.network.kernel_size)
    return [spacing for k in _RESIDUES if k <= span for spacing in enumerate_spacings(k, span)]


def describe_start_motifs(
    motifs: Sequence[EnrichedMotif], repertoires: LabelledRepertoires, tasks: Sequence[Task], config: Config
) -> str:
    """Return sentences that name the motifs from which kernels start, or say why there are none.

    Parameters
    ----------
    motifs
        Motifs from which kernels start.
    repertoires
        Training repertoires with their labels and donors.
    tasks, config
        Tasks of the labels, and configuration, as in `find_start_motifs`.
    """
    n_kernels = config.network.n_kernels
    if not motifs and (reason := _explain_missing_search(repertoires, tasks, config)):
        return f"deeprc did not search for short motifs, so the kernels start at random: {reason}."
    if not motifs:
        return (
            "No short motif is associated with the label in the training repertoires beyond chance, so the kernels "
            "start at random."
        )
    shown = motifs[:_MAX_NAMED]
    motif_list = ", ".join(f"{motif.pattern} ({motif.correlation:+.2f}, p = {motif.p_value:.2g})" for motif in shown)
    starts = "starts from a short motif" if len(motifs) == 1 else "start from short motifs"
    more = f", and {len(motifs) - len(shown)} more" if len(motifs) > len(shown) else ""
    return (
        f"{len(motifs)} of {n_kernels} kernels {starts} associated with the label in the training repertoires, the "
        f"others at random. In brackets, the correlation with the label and the corrected p-value: {motif_list}{more}"
    )


def _explain_missing_search(repertoires: LabelledRepertoires, tasks: Sequence[Task], config: Config) -> str:
    """Return why `find_start_motifs` searches no motif; empty if it searches some."""
    if _count_start_kernels(config) == 0:
        share, n_kernels = config.training.seeded_start, config.network.n_kernels
        return f"seeded_start={share:g} of {n_kernels} kernels is less than one kernel"
    if not _list_spacings(config):
        return f"a motif has at least two residues, but kernel_size={config.network.kernel_size}"
    if any(True for _ in iterate_search_outputs(repertoires, tasks, MIN_DONORS)):
        return ""
    each_task = zip(tasks, get_output_slices(tasks), repertoires.labels.T, strict=True)
    n_donors = [make_search_outputs(repertoires, task, outputs, column).n_donors for task, outputs, column in each_task]
    units_text = "training repertoires" if repertoires.groups is None else "donors of training repertoires"
    return "; ".join(_explain_unsearched_task(task, n, units_text) for task, n in zip(tasks, n_donors, strict=True))


def _explain_unsearched_task(task: Task, n_donors: int, units_text: str) -> str:
    """Return why no motif is searched for a task; `n_donors` have a label, and `units_text` names what is counted."""
    if n_donors < MIN_DONORS:
        return f"target {task.name!r} has labels of {n_donors} {units_text}, and the search needs at least {MIN_DONORS}"
    if task.kind == "regression":
        return f"all labels of target {task.name!r} are equal"
    needed = f"{MIN_MEMBERS} {units_text} in a class of target {task.name!r}"
    return f"the search needs {needed}, and {MIN_MEMBERS} in the others"
