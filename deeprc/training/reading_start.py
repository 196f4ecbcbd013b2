"""Fit the readings of a network before its training, and store the cross-fitted scores of the training repertoires.

Letters: B repertoires, Q readings, T outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from deeprc import ranks
from deeprc.config import NetworkConfig
from deeprc.estimators import canonical_order
from deeprc.nn.network import DeepRC
from deeprc.readings.cohort import TrainingCohort
from deeprc.readings.fit import describe_fits, fit_readings
from deeprc.tasks import Task
from deeprc.training.fold import Fold

__all__ = ["learn_readings"]

logger = logging.getLogger(__name__)


def learn_readings(network: DeepRC, config: NetworkConfig, tasks: Sequence[Task], folds: Sequence[Fold]) -> None:
    """Fit the readings, and attach to the network those that predict held-out repertoires; perhaps none.

    Parameters
    ----------
    network
        The network.
    config
        Says which readings it may have.
    tasks
        The tasks of the labels.
    folds
        The repertoires to learn from, of one container.
    """
    cohort = Fold.join(folds)
    ordered = cohort.take(canonical_order(cohort.dataset, cohort.labels))
    training = TrainingCohort(**vars(ordered), tasks=tasks)
    fitted = ranks.compute_once(lambda: fit_readings(config, training))
    logger.info("%s", describe_fits(fitted, config, tasks))
    if not fitted:
        return
    digests = sorted({repertoire.digest() for repertoire in ordered.dataset})
    network.attach_readings([each.reading for each in fitted], digests)
    assert network.readings is not None
    network.readings.remember(ordered.dataset, np.stack([each.scores for each in fitted], axis=1))  # (B, Q, T)
