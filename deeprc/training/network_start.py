"""What a training learns before its first update: the network's branches, and the motifs from which kernels start."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from deeprc.config import Config
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training.branch_start import learn_branches, leave_out_clones
from deeprc.training.confirmation import find_confirmed_motifs
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_start import describe_start_motifs

__all__ = ["fit_branches_and_find_motifs"]

_logger = logging.getLogger(__name__)


def fit_branches_and_find_motifs(
    network: DeepRC,
    config: Config,
    tasks: Sequence[Task],
    train: LabelledRepertoires,
    validation: LabelledRepertoires,
    *,
    seed: int,
) -> list[EnrichedMotif]:
    """Attach branches to a new network, and return the motifs from which `start_network` may start its kernels.

    With `branches_use_validation`, the branches also learn from the validation repertoires, if these are in the same
    container. This does not mislead early stopping, because their scores are cross-fitted, like those of training
    repertoires.

    Motifs are searched among the sequences that match no stored clone of the branches. A doubtful motif is used only if
    the validation fold confirms it. Motifs are not searched if counts scale the residues (`abundance`), or if the
    encoder cannot start from motifs.

    Parameters
    ----------
    network
        The network, without branches.
    config, tasks
        Configuration of network and training, and tasks of the labels.
    train, validation
        Training and validation repertoires with their labels and donors.
    seed
        Seed of the training.
    """
    parts = [train]
    if config.training.branches_use_validation and train.dataset.is_of_same_cohort(validation.dataset):
        parts.append(validation)
    learn_branches(network, config.network, tasks, parts)
    can_start = network.embedding.starts_from_motifs and config.network.abundance == "none"
    if config.training.seeded_start <= 0 or not can_start:
        return []
    searched, confirming = (leave_out_clones(network, repertoires) for repertoires in (train, validation))
    motifs = find_confirmed_motifs(config, tasks, searched, confirming, seed=seed)
    _logger.info("%s", describe_start_motifs(motifs, searched, tasks, config))
    return motifs
