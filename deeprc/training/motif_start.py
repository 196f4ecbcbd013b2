"""Start of a network from enriched motifs: kernels match them, and attention and outputs depend on these kernels.

Letters: B repertoires, D kernels, K kernel width, H heads, Q branches, T outputs, S numbers that represent a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeprc.config import Config
from deeprc.nn.batch import Collator
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.outputs import get_output_slices
from deeprc.tasks import Task
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.kmer_occurrences import find_sequences_with_kmer
from deeprc.training.kmer_sets import enumerate_spacings
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_search import MOTIF_LEVEL, MotifLimits, add_in_turn, find_enriched_motifs
from deeprc.training.motif_variants import find_all_variants
from deeprc.training.output_fit import fit_output
from deeprc.training.search_outputs import MIN_MEMBERS, iterate_search_outputs, make_search_output, make_search_outputs

__all__ = ["MIN_DONORS", "describe_start_motifs", "find_start_motifs", "find_start_variants", "start_network"]

MIN_DONORS = 12
"""Smallest number of training donors with a label for which motifs are searched.

With fewer, even a motif that separates the classes is hardly significant.
"""

_ATTENTION = 4.0  # amount that a whole match adds to the attention logit
_FALL = 3.0  # amount by which a match lowers the unit that the query reads
_MAX_NAMED = 5  # number of motifs that the log names; `seeds.tsv` lists all
_MAX_SPAN = 6  # largest number of positions that a motif spans
_RESIDUES = (2, 3, 4)  # numbers of fixed residues of a motif
_DOUBTFUL_LEVEL = 0.5  # largest p-value of a motif that other repertoires have to confirm
_SAMPLED = 1000  # number of sequences of each repertoire from which the scale of the features is estimated


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

    `motifs` are these motifs, and the other parameters those of `find_start_motifs`. All together are at most as many
    as the kernels that may start from motifs, and all are different.
    """
    n_outputs = sum(len(outputs.outputs) for outputs in iterate_search_outputs(repertoires, tasks, MIN_DONORS))
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


@torch.no_grad()
def start_network(
    inference: Inference, motifs: Sequence[EnrichedMotif], labels: NDArray[np.float64], tasks: Sequence[Task]
) -> None:
    """Change a new network in place so that its outputs depend on enriched motifs and on its branches.

    The encoder sets its first features to the motifs, see `SequenceEncoder.start_from_motifs`. The first unit of each
    key layer sums these features, and the first head's query reads this unit. A motif with `gap_weights` has a second
    feature, which this query does not read: a match counts in it in proportion to the product of the weights of its
    residues. A linear output of a standardised representation starts as the regression of the training labels on these
    features and on the scores of the branches alone. Its penalty pulls the gains of the branches towards 1; beside
    motifs towards 0, like the weights of the motifs, since the branches may repeat what the motifs say. Without motifs
    and branches nothing changes.

    Parameters
    ----------
    inference
        The new network, with the training repertoires and the scores of its branches for them. Its encoder must have
        `starts_from_motifs` if there are motifs.
    motifs
        Motifs, at most D.
    labels, tasks
        Labels of the training repertoires, (B, number of tasks), NaN where missing, and the tasks.
    """
    network = inference.network
    if not motifs and network.branches is None:
        return
    n_features = len(motifs)
    if motifs:
        weighed = [motif for motif in motifs if any(motif.gap_weights)][: network.embedding.out_features - len(motifs)]
        n_features += len(weighed)
        letters = [motif.letters for motif in (*motifs, *weighed)]
        shares = [
            {gap: weights for gap, weights in zip(motif.gaps, motif.gap_weights, strict=True) if weights}
            for motif in weighed
        ]
        options: dict[str, Any] = {"shares": [{} for _ in motifs] + shares} if weighed else {}
        match_value, base_value = network.embedding.start_from_motifs(
            letters, _compute_median_scale(inference.collator), **options
        )
        _start_attention(network, len(motifs), match_value, base_value)
    fit_output(inference, labels, tasks, n_features=n_features, expected_gain=0.0 if motifs else 1.0)


def _compute_median_scale(collator: Collator) -> float:
    """Return the median factor of one-hot features over sequences whose factor is not 0."""
    all_repertoires = np.arange(len(collator.dataset))
    scales = collator.sample(all_repertoires, _SAMPLED, np.random.default_rng(0)).sequences.residue_scale
    positive = scales[scales > 0]
    return float(positive.median()) if len(positive) else 1.0


def _start_attention(network: DeepRC, n: int, match_value: float, base_value: float) -> None:
    """Let one unit of each key layer read the first n features, so that the first head attends to any match of them.

    A feature has the value `match_value` in a sequence with its motif, and `base_value` in a sequence without any
    residue of it.

    A match lowers the unit towards the lower bound of SELU, so that two matches count hardly more than one. If matches
    were summed, the few sequences with two would have fifty times the weight of the others, although their number is
    chance. Without key layers there is no such unit, and matches are summed.
    """
    step = match_value - base_value  # amount that a match adds to the feature
    layers = [layer for layer in network.key_network if isinstance(layer, nn.Linear)]
    query = network.pooling.queries[0, 0]  # (d_k,)
    beta = float(network.pooling.association.beta.flatten()[0])
    query.zero_()  # random initial numbers would be noise in every average
    if not layers:
        query[:n] = _ATTENTION / (beta * step)
        return
    first, *later = layers
    first.weight[0] = 0
    first.weight[0, :n] = -_FALL / step
    first.bias[0] = 1 + _FALL * n * base_value / step  # so that the unit is 1 without a match
    without, with_one = _selu(1.0), _selu(1.0 - _FALL)
    for layer in later:
        layer.weight[0] = 0
        layer.weight[0, 0] = 1
        without, with_one = _selu(without), _selu(with_one)
    query[0] = -_ATTENTION / (beta * (without - with_one))


def _selu(value: float) -> float:
    return float(nn.functional.selu(torch.tensor(value, dtype=torch.float64)))
