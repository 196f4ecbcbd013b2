"""Rankings of sequences in `accuracy.py`: how well a method finds the sequences with an implanted signal.

Letters: B repertoires, R sequences of the list.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from accuracy_cohorts import Source
from numpy.typing import NDArray

from deeprc.airr_ml.ranking import rank_sequences
from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.datasets.linked_container import StoredContainer
from deeprc.datasets.simulation.motif_matching import match_motifs
from deeprc.evaluation.found_sequences import (
    compute_average_precision,
    compute_jaccard_index,
    compute_precision_at_n_true,
)
from deeprc.training.estimator import DeepRCClassifier
from deeprc.training.model import TrainedModel

__all__ = ["MEASURES", "make_classifier", "measure_ranking"]

MEASURES = ("true_sequences", "precision_at_true", "average_precision", "jaccard", "motif_at_true")
"""Measures of `measure_ranking`, without the seconds; `benchmarks/README.md` explains them."""

_MIN_LENGTH = 50_000  # smallest length of the list, as in the AIRR-ML-25 challenge
_MAX_TRUE = 200_000  # a longer list takes too long, and every method finds such a frequent signal


def make_classifier(model: TrainedModel, train: RepertoireDataset, validation: RepertoireDataset) -> DeepRCClassifier:
    """Return a fitted classifier with a model, which knows from which repertoires the model has learned."""
    classifier = DeepRCClassifier()
    classifier.model_ = model
    classifier.train_digests_, classifier.validation_digests_ = (
        np.array(identify_repertoires(dataset), dtype=str) for dataset in (train, validation)
    )
    return classifier


def measure_ranking(
    estimator: Any, source: Source, X: RepertoireDataset, y: NDArray[np.bool_]
) -> dict[str, int | float | None]:
    """Return measures of how well a fitted method finds the true sequences, and the seconds of ranking.

    The keys are those of `MEASURES` and `ranking_seconds`; for the true sequences, see `_find_true_sequences`. The
    result is empty for a cohort without known signals, or without a file. If no sequence, or more than 200,000
    different ones, have a signal, only `true_sequences` has a number.

    Parameters
    ----------
    estimator
        Estimator that was fitted to X and y, see `deeprc.airr_ml.ranking.can_rank`.
    source
        The cohort.
    X, y
        Repertoires from which it learned, (B,), and whether each is positive, (B,).
    """
    truth = _find_true_sequences(source, X, y)
    if truth is None:
        return {}
    n_true = len(truth)
    found: dict[str, int | float | None] = dict.fromkeys((*MEASURES, "ranking_seconds"))
    found["true_sequences"] = n_true
    if not 0 < n_true <= _MAX_TRUE:
        return found
    started = time.perf_counter()
    ranked = rank_sequences(estimator, X, y, max(_MIN_LENGTH, n_true))
    seconds = time.perf_counter() - started
    is_true = np.fromiter((row in truth for row in _list_clones(ranked)), np.bool_, len(ranked))  # (R,)
    return found | {
        "precision_at_true": compute_precision_at_n_true(is_true, n_true),
        "average_precision": compute_average_precision(is_true, n_true),
        "jaccard": compute_jaccard_index(is_true, n_true),
        "motif_at_true": _compute_share_with_motif(source, ranked["junction_aa"].iloc[:n_true]),
        "ranking_seconds": seconds,
    }


def _find_true_sequences(source: Source, X: RepertoireDataset, y: NDArray[np.bool_]) -> set[tuple[str, ...]] | None:
    """Return the different sequences, with their genes, that have an implanted signal in positive repertoires.

    A repertoire is positive by its recorded label, and only signals of the positive class count. None if not known.
    """
    if not isinstance(X.container, StoredContainer):
        return None
    indices = []
    for at in np.flatnonzero(y).tolist():
        repertoire = X[at]
        if repertoire.witness is None:
            return None
        witness = np.asarray(repertoire.witness)
        carries = witness > 0
        if source.cohort is not None:
            positive = [number for number, signal in enumerate(source.cohort.signals, 1) if signal.status == "positive"]
            carries &= np.isin(witness, positive)
        indices.append(X.container.repertoire_offsets[X.repertoire_indices[at]] + np.flatnonzero(carries))
    fields = X.gene_fields
    sequences = X.take_clones(np.concatenate([np.zeros(0, np.int64), *indices]), fields)
    return set(_list_clones(CloneSet(sequences).to_frame()))


def _compute_share_with_motif(source: Source, junctions: Sequence[str]) -> float | None:
    """Return the share of sequences with a whole motif of the positive class; None if this class has no motif."""
    signals = () if source.cohort is None else source.cohort.motif_signals
    motifs = [motif for signal in signals if signal.status == "positive" for motif in signal.motifs]
    if not motifs:
        return None
    residues, offsets = encode_many(list(junctions))
    return float(match_motifs(motifs, residues, np.diff(offsets)).whole.mean())


def _list_clones(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the junction and the genes of each sequence of a table."""
    return list(frame.filter(["junction_aa", "v_call", "j_call"]).itertuples(index=False, name=None))
