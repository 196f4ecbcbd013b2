"""Whether motifs make a better start of the network than its branches alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.donors import count_standard_errors
from deeprc.nn.inference import Inference
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.network_start import start_network
from deeprc.training.validation import Evaluator
from deeprc.training.weight_choice import copy_state

__all__ = ["choose_start_motifs"]

_MIN_STANDARD_ERRORS = 0.5
"""Number of standard errors by which the loss must be lower without motifs, see docs/experiments.md, 2026-11-30.

A start that is as good with motifs is kept, because updates may learn more from it."""

_MIN_MOTIFS = 6
"""Number of motifs from which the starts are compared: a few motifs may be true, and the attention should read them."""

_logger = logging.getLogger(__name__)


def choose_start_motifs(
    inference: Inference,
    motifs: Sequence[EnrichedMotif],
    labels: NDArray[np.float64],
    evaluator: Evaluator,
) -> list[EnrichedMotif]:
    """Return the motifs; none if they are many and the branches alone predict validation repertoires better.

    If the residues of all sequences differ a little, many motifs are associated with the label. They then repeat what
    the branch `composition` says, with more noise. So the two starts are compared if there are at least `_MIN_MOTIFS`,
    and the network has this branch without doubt. The network is not changed.

    Parameters
    ----------
    inference, motifs, labels
        See `start_network`.
    evaluator
        Evaluator of the validation repertoires, for the same tasks.
    """
    network = inference.network
    branches = [branch for branch in network.branches or () if isinstance(branch, CompositionBranch)]
    if len(motifs) < _MIN_MOTIFS or not branches or branches[0].is_doubtful:
        return list(motifs)
    initial, was_training = copy_state(network), network.training
    losses = []
    for used in ([], motifs):
        start_network(inference, used, labels, evaluator.tasks)
        losses.append(evaluator.compute_repertoire_losses(network))
        network.load_state_dict(initial)
        network.train(was_training)  # an evaluation ends this
    alone, with_motifs = losses
    if not _are_higher(with_motifs, alone, evaluator.repertoires.groups):
        return list(motifs)
    _logger.info(
        "The start from motifs predicts the validation repertoires worse than composition does (loss %.3f, not %.3f), "
        "so it is not used.",
        with_motifs.sum(),
        alone.sum(),
    )
    return []


def _are_higher(losses: Floats, other_losses: Floats, groups: NDArray[np.int64] | None) -> bool:
    """Return whether losses, (B,), are higher than others, by `_MIN_STANDARD_ERRORS`, or not finite if the others are.

    `groups` are the donors of the repertoires, (B,), see `count_standard_errors`.
    """
    if not (np.isfinite(losses).all() and np.isfinite(other_losses).all()):
        return bool(np.isfinite(other_losses).all())
    return count_standard_errors(losses - other_losses, groups) > _MIN_STANDARD_ERRORS
