"""A network's branches before its training: their fit, with cross-fitted scores, and the sequences that they explain.

Letters: B repertoires, Q branches, T outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deeprc import ranks
from deeprc.branches.clones import CloneBranch
from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.fit import describe_fits, fit_branches
from deeprc.config import NetworkConfig
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.datasets.remaining import RemainingDataset
from deeprc.labels import find_canonical_order
from deeprc.nn.network import DeepRC
from deeprc.progress import track
from deeprc.tasks import Task
from deeprc.training.labelled_repertoires import LabelledRepertoires

__all__ = ["learn_branches", "leave_out_clones"]

_logger = logging.getLogger(__name__)


def learn_branches(
    network: DeepRC, config: NetworkConfig, tasks: Sequence[Task], parts: Sequence[LabelledRepertoires]
) -> None:
    """Fit the branches, and attach those to the network that predict held-out repertoires; there may be none.

    Several ranks divide what they count in each repertoire. Rank 0 alone finds shared clones and fits the branches:
    inner products and regressions are rounded, so their digits would depend on how they were divided.

    Parameters
    ----------
    network
        The network, without branches.
    config
        Configuration, which says which branches the network may have.
    tasks
        Tasks of the labels.
    parts
        Folds to learn from, of one container.
    """
    cohort = LabelledRepertoires.join(parts)
    ordered = cohort.take(find_canonical_order(cohort.dataset, cohort.labels))
    training = TrainingCohort(ordered.dataset, ordered.labels, tasks, ordered.groups)
    fitted = ranks.compute_once(lambda: fit_branches(config, training), shared=[training.dataset.container])
    _logger.info("%s", describe_fits(fitted, config, tasks))
    if not fitted:
        return
    identities = sorted(set(identify_repertoires(ordered.dataset)))
    network.attach_branches([fit.branch for fit in fitted], identities)
    assert network.branches is not None
    scores = np.stack([fit.scores for fit in fitted], axis=1)  # (B, Q, T)
    network.branches.store_known_scores(ordered.dataset, scores)


def leave_out_clones(network: DeepRC, repertoires: LabelledRepertoires) -> LabelledRepertoires:
    """Return repertoires without the sequences that match a strong clone; the same ones if the network stores none.

    The strong clones (`find_sequences_of_strongest`) are associated with the label, so each piece of a clone is, too. A
    search for motifs would list these pieces. If the branch is doubtful, the same repertoires are returned, since its
    clones may have a motif.
    """
    branch = next((branch for branch in network.branches or () if isinstance(branch, CloneBranch)), None)
    if branch is None or branch.is_doubtful:
        return repertoires
    dataset = repertoires.dataset
    found = branch.find_sequences_of_strongest(dataset)
    matching_rows = list(track(found, "matching stored clones", len(dataset)))
    _logger.info(
        "%s of %s sequences of %d repertoires match a strong stored clone, and the search for motifs leaves them out",
        f"{sum(len(rows) for rows in matching_rows):,}",
        f"{int(dataset.n_sequences.sum()):,}",
        len(dataset),
    )
    return replace(repertoires, dataset=RemainingDataset(dataset, matching_rows))
