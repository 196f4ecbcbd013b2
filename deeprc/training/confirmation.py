"""The motifs from which a training starts, with a test of doubtful ones in other repertoires.

Letters: B repertoires, n of them with a label, P permutations.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import numpy as np

from deeprc import ranks
from deeprc.arrays import Floats
from deeprc.config import Config
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.tasks import Task
from deeprc.training.draws import Purpose, make_generator
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.gap_weights import weigh_gaps
from deeprc.training.kmer_correlations import correlate_columns
from deeprc.training.kmer_frequencies import count_flagged
from deeprc.training.kmer_occurrences import find_sequences_with_kmer
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_search import MOTIF_LEVEL
from deeprc.training.motif_start import find_start_motifs, find_start_variants
from deeprc.training.search_outputs import make_search_output

__all__ = ["confirm_motifs", "find_confirmed_motifs"]

_logger = logging.getLogger(__name__)

_N_PERMUTATIONS = 999
_LEVEL = 0.05


def find_confirmed_motifs(
    config: Config, tasks: Sequence[Task], train: LabelledRepertoires, validation: LabelledRepertoires, *, seed: int
) -> list[EnrichedMotif]:
    """Return the motifs of `find_start_motifs`, with weights of the residues at their gaps.

    Doubtful motifs are among them only if the validation repertoires confirm them. The training repertoires are then
    searched for their variants.

    Rank 0 decides; the other ranks count their parts of each pass over the repertoires, so the result is the same with
    any number of ranks.

    Parameters
    ----------
    config, tasks
        Configuration, and tasks of the labels.
    train, validation
        Training and validation repertoires with their labels and donors.
    seed
        Seed of the training.
    """
    shared = [train.dataset.container, validation.dataset.container]
    return ranks.compute_once(partial(_find_confirmed, config, tasks, train, validation, seed), shared=shared)


def _find_confirmed(
    config: Config, tasks: Sequence[Task], train: LabelledRepertoires, validation: LabelledRepertoires, seed: int
) -> list[EnrichedMotif]:
    """Return the start motifs of the training fold, without doubtful ones that the validation fold does not confirm."""
    own_seed = int(make_generator(seed, Purpose.MOTIFS).integers(2**62))
    motifs = find_start_motifs(config, tasks, train, seed=own_seed)
    if all(motif.p_value <= MOTIF_LEVEL for motif in motifs):
        return weigh_gaps(motifs, train, tasks)
    confirmed = confirm_motifs(motifs, validation, tasks, seed=own_seed)
    refused = ", ".join(motif.pattern for motif in motifs if motif not in confirmed)
    if refused:
        _logger.info(
            "motifs that are not used, because they are doubtful and validation repertoires do not confirm them: %s",
            refused,
        )
    variants = find_start_variants(config, tasks, train, confirmed, seed=own_seed)
    return weigh_gaps([*confirmed, *variants], train, tasks)


def confirm_motifs(
    motifs: Sequence[EnrichedMotif], repertoires: LabelledRepertoires, tasks: Sequence[Task], *, seed: int
) -> list[EnrichedMotif]:
    """Return the motifs that are associated with the label in other repertoires, in the same direction.

    The share of sequences with a motif is correlated with the label, as in `find_enriched_motifs`. It is also
    correlated with 999 permutations of the labels among donors of about the same size, see `permute_labels`. The
    p-value is the share of permutations in which the correlation is at least as large. A motif is confirmed if its
    p-value is at most 5% divided by the number of motifs (Bonferroni).

    Parameters
    ----------
    motifs
        Motifs, each of which is tested alone.
    repertoires, tasks
        The other repertoires with their labels and donors, and the tasks of the labels.
    seed
        Seed of the permutations.
    """
    rng = np.random.default_rng(seed)
    p_values = [_compute_p_value(motif, repertoires, tasks, rng) for motif in motifs]
    return [motif for motif, p in zip(motifs, p_values, strict=True) if p * len(motifs) <= _LEVEL]


def _compute_p_value(
    motif: EnrichedMotif, repertoires: LabelledRepertoires, tasks: Sequence[Task], rng: np.random.Generator
) -> float:
    """Return the share of permutations in which the correlation is at least as large, in the motif's direction.

    The true labels count as one of the permutations.
    """
    search_output, _ = make_search_output(repertoires, tasks, motif.output)
    if search_output.n_donors < 2:
        return 1.0
    labels = search_output.permute_labels(_N_PERMUTATIONS, rng)[:, 0]  # (n, 1 + P)
    share = _compute_motif_share(motif, search_output.dataset)
    (r,) = correlate_columns(share[:, None], labels, search_output.compute_weights())
    in_direction = np.sign(motif.correlation) * r
    return float(np.mean(in_direction >= in_direction[0] - 1e-12)) if in_direction[0] > 0 else 1.0


def _compute_motif_share(motif: EnrichedMotif, dataset: RepertoireDataset) -> Floats:
    """Return the share of sequences with a motif in each repertoire, (n,); no repertoire may be empty."""
    has_motif = find_sequences_with_kmer(dataset, motif.spacing, motif.code)
    return np.asarray(count_flagged(has_motif, compute_offsets(dataset.n_sequences)) / dataset.n_sequences)
