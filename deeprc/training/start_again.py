"""The start of a network, learned again from training and validation repertoires together.

Of few donors, every fifth one less is a loss: a motif that 48 donors show may be hidden in 36. After a training that
has kept its start, validation repertoires have done their work, so the start may be learned from all repertoires.
"""

from __future__ import annotations

import logging

from deeprc import ranks
from deeprc.training.branch_start import leave_out_clones
from deeprc.training.confirmation import find_motifs_again
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_start import describe_start_motifs, start_network
from deeprc.training.trainer import Trainer
from deeprc.training.validation import has_few_donors

__all__ = ["learn_start_again"]

_logger = logging.getLogger(__name__)


def learn_start_again(trainer: Trainer) -> bool:
    """Learn the start again from training and validation repertoires together, if this can be better.

    This is so if there are few validation donors (see `has_few_donors`), the training has kept its start, the start is
    a regression, and the branches have learned from the validation repertoires, too. Motifs are searched again, see
    `find_motifs_again`; the branches stay, and the regression is fitted to all repertoires. Afterwards the validation
    repertoires are training repertoires: the losses of the history, and a calibration, are those of the start before.

    Parameters
    ----------
    trainer
        Training that has ended; its network is changed in place.

    Returns
    -------
    bool
        Whether the start was learned again.
    """
    config, tasks, network = trainer.config, trainer.tasks, trainer.network
    is_start = trainer.state.kept_update == 0 and bool(trainer.state.start_motifs or trainer.state.branches)
    can_learn = config.training.branches_use_validation and network.linear_output is not None
    is_joint = trainer.train.dataset.is_of_same_cohort(trainer.validation.dataset)
    if not (is_start and can_learn and is_joint and has_few_donors(trainer.validation)):
        return False
    joint = LabelledRepertoires.join([trainer.train, trainer.validation]).take_labelled_in_order()
    motifs = trainer.start_motifs
    if config.training.seeded_start > 0 and network.embedding.starts_from_motifs and config.network.abundance == "none":
        searched = leave_out_clones(network, joint)
        motifs = find_motifs_again(config, tasks, searched, motifs, seed=trainer.seed)
        _logger.info(
            "No update is better than the start, so the start was learned again from %d training and validation "
            "repertoires. %s",
            *(len(joint.labels), describe_start_motifs(motifs, searched, tasks, config)),
        )
    network.load_state_dict({**network.state_dict(), **trainer.make_initial_network().state_dict()})
    start_network(trainer.make_model().make_inference(joint.dataset), motifs, joint.labels, tasks)
    ranks.broadcast_tensors(list(network.state_dict().values()))
    network.eval()
    return True
