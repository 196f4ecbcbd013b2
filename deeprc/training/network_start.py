"""The start of a network before its first update: branches, and kernels, attention and outputs from motifs.

Letters: B repertoires, D kernels, H heads.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeprc import ranks
from deeprc.config import Config
from deeprc.nn.batch import Collator
from deeprc.nn.encoders import SequenceEncoder
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training.branch_start import learn_branches, leave_out_clones
from deeprc.training.confirmation import find_confirmed_motifs
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_start import describe_start_motifs
from deeprc.training.output_fit import fit_output

__all__ = ["fit_branches_and_find_motifs", "start_network"]

_logger = logging.getLogger(__name__)

_LOGIT_OF_MATCH = 4.0  # amount that a whole match adds to the attention logit
_UNIT_FALL = 3.0  # amount by which a match lowers the unit that the query reads
_SAMPLED = 1000  # number of sequences of each repertoire from which the scale of the features is estimated


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

    Motifs are searched among the sequences that match no strong stored clone of the branches, or among all sequences if
    the clones are doubtful (`leave_out_clones`). A doubtful motif is used only if the validation fold confirms it.
    Motifs are not searched if counts scale the residues (`abundance`), or if the encoder cannot start from motifs.

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


@torch.no_grad()
def start_network(
    inference: Inference, motifs: Sequence[EnrichedMotif], labels: NDArray[np.float64], tasks: Sequence[Task]
) -> None:
    """Let a new network start from enriched motifs and from its branches; it is changed in place.

    Without motifs and branches, nothing changes. Otherwise:

    1. **Encoder.** Its first values match the motifs, one value for each, see `SequenceEncoder.start_from_motifs`. A
       motif with `gap_weights` gets a second value, in which a match counts by the product of the weights of its
       residues at the gaps.
    2. **Attention.** The first unit of each key layer sums the first values (not the second ones), and the query of the
       first head reads this unit. So this head attends to sequences with a motif.
    3. **Output.** A linear output starts as a regression of the training labels on the pooled values of the motifs and
       on the scores of the branches. The penalty of this regression pulls the gains of the branches towards 1. With
       motifs it pulls them towards 0, like the weights of the motifs, because the branches may repeat what the motifs
       say.

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
    network, n_features = inference.network, len(motifs)
    if not motifs and network.branches is None:
        return
    if motifs:
        gap_weighted = [motif for motif in motifs if any(motif.gap_weights)]
        gap_weighted = gap_weighted[: network.embedding.out_features - len(motifs)]
        scale = _compute_median_scale(inference.collator)
        match_value, base_value = _start_encoder(network.embedding, motifs, gap_weighted, scale)
        _start_attention(network, len(motifs), match_value, base_value)
        n_features += len(gap_weighted)
    fit_output(inference, labels, tasks, n_features=n_features, expected_gain=0.0 if motifs else 1.0)
    ranks.broadcast_tensors(list(network.state_dict().values()))


def _start_encoder(
    encoder: SequenceEncoder, motifs: Sequence[EnrichedMotif], gap_weighted: Sequence[EnrichedMotif], scale: float
) -> tuple[float, float]:
    """Let the first values match motifs, and the next ones match motifs with the weights of their gaps.

    `scale` and the result are those of `SequenceEncoder.start_from_motifs`.
    """
    letters = [motif.letters for motif in (*motifs, *gap_weighted)]
    if not gap_weighted:
        return encoder.start_from_motifs(letters, scale)
    shares = [
        {gap: weights for gap, weights in zip(motif.gaps, motif.gap_weights, strict=True) if weights}
        for motif in gap_weighted
    ]
    return encoder.start_from_motifs(letters, scale, shares=[*({} for _ in motifs), *shares])


def _compute_median_scale(collator: Collator) -> float:
    """Return the median factor of one-hot features over sequences whose factor is not 0."""
    all_repertoires = np.arange(len(collator.dataset))
    scales = collator.sample(all_repertoires, _SAMPLED, np.random.default_rng(0)).sequences.residue_scale
    positive = scales[scales > 0]
    return float(positive.median()) if len(positive) else 1.0


def _start_attention(network: DeepRC, n_motifs: int, match_value: float, base_value: float) -> None:
    """Let the first head attend to sequences with a motif; the first `n_motifs` values are those of the motifs.

    The first unit of each key layer reads these values. A match lowers the unit towards the lower bound of SELU, so
    that two matches count hardly more than one. If matches were summed, the few sequences with two would have fifty
    times the weight of the others, although their number is chance. Without key layers there is no such unit, and
    matches are summed.

    Parameters
    ----------
    network
        The network, which is changed in place.
    n_motifs
        Number of motifs.
    match_value, base_value
        Value of a motif in a sequence that has it, and in a sequence that has none of its residues.
    """
    match_step = match_value - base_value
    layers = [layer for layer in network.key_network if isinstance(layer, nn.Linear)]
    query = network.pooling.queries[0, 0]  # (d_k,)
    beta = float(network.pooling.association.beta.flatten()[0])
    query.zero_()  # random initial numbers would be noise in every average
    if not layers:
        query[:n_motifs] = _LOGIT_OF_MATCH / (beta * match_step)
        return
    first, *later = layers
    first.weight[0] = 0
    first.weight[0, :n_motifs] = -_UNIT_FALL / match_step
    first.bias[0] = 1 + _UNIT_FALL * n_motifs * base_value / match_step  # so that the unit is 1 without a match
    unit_without_match, unit_with_match = _selu(1.0), _selu(1.0 - _UNIT_FALL)
    for layer in later:
        layer.weight[0] = 0
        layer.weight[0, 0] = 1
        unit_without_match, unit_with_match = _selu(unit_without_match), _selu(unit_with_match)
    query[0] = -_LOGIT_OF_MATCH / (beta * (unit_without_match - unit_with_match))


def _selu(value: float) -> float:
    return float(nn.functional.selu(torch.tensor(value, dtype=torch.float64)))
