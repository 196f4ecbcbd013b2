"""`DeepRCClassifier`: DeepRC as a scikit-learn estimator over `RepertoireDataset`.

Letters: B repertoires, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.device import resolve_device
from deeprc.estimators import RepertoireClassifier, checked_labels
from deeprc.nn.batch import BatchMaker
from deeprc.nn.inference import attention_logits, cohort_outputs
from deeprc.tasks import Task, activate
from deeprc.training.trainer import Fold, Trainer

__all__ = ["DeepRCClassifier"]


class DeepRCClassifier(RepertoireClassifier):
    """Classify repertoires with DeepRC.

    Parameters
    ----------
    config
        A preset's name or a YAML file.
    overrides
        `{"n_updates": 500, ...}`, changes of the configuration.
    validation_fraction
        Share of the repertoires given to `fit` that early stopping watches; at least one per class.
    seed
        Of the inner split, the network's start and the sampling.
    device
        `auto`, `cpu`, `cuda` ...

    Attributes
    ----------
    classes_
        (C,) labels in sorted order.
    network_
        The trained `deeprc.nn.DeepRC`.
    history_
        One row per evaluation.
    """

    def __init__(
        self,
        *,
        config: str = "deeprc",
        overrides: dict[str, Any] | None = None,
        validation_fraction: float = 0.2,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.config = config
        self.overrides = overrides
        self.validation_fraction = validation_fraction
        self.seed = seed
        self.device = device

    def fit(self, X: RepertoireDataset, y: ArrayLike) -> DeepRCClassifier:
        """Train on the repertoires X, (B,), with labels y, (B,), of any type; at least two per class.

        Raises
        ------
        TypeError
            If X is no `RepertoireDataset`.
        ValueError
            If X and y differ in length, y has one class or a missing label, or a parameter is out of range.
        """
        share = self.validation_fraction
        if not 0 < share < 1:
            raise ValueError(f"validation_fraction: expected a share between 0 and 1, found {share}")
        self.classes_, index = checked_labels(X, y)
        config = load_config(self.config, self.overrides or {})
        held_out = max(len(self.classes_), round(share * len(index)))
        train, validation = train_test_split(
            np.arange(len(index)), test_size=held_out, stratify=index, random_state=self.seed
        )
        label = index.astype(np.float64)[:, None]
        trainer = Trainer(
            config,
            [self._task()],
            Fold(X[train], label[train]),
            Fold(X[validation], label[validation]),
            seed=self.seed,
            device=resolve_device(self.device),
        )
        self.history_ = trainer.fit().history
        self.network_ = trainer.network
        self.config_ = config
        return self

    def predict_proba(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the probability of each class, (B, C), in the order of X and of `classes_`."""
        check_is_fitted(self)
        if len(X) == 0:
            return np.zeros((0, len(self.classes_)))
        maker = BatchMaker(X, self.config_.network.abundance)
        outputs = cohort_outputs(self.network_, maker, top_fraction=self.config_.training.top_fraction)
        probability = activate(outputs, [self._task()])[0]
        return np.stack([1 - probability, probability], axis=1) if probability.ndim == 1 else probability

    def attention(self, X: RepertoireDataset) -> list[NDArray[np.float64]]:
        """Return the attention weights of each repertoire's sequences, (N, H), which sum to 1 per head."""
        check_is_fitted(self)
        maker = BatchMaker(X, self.config_.network.abundance)
        return [torch.softmax(attention_logits(self.network_, maker, i).double(), dim=0).numpy() for i in range(len(X))]

    def _task(self) -> Task:
        names = tuple(str(value) for value in self.classes_)
        return Task("y", "y", "binary" if len(names) == 2 else "multiclass", names)
