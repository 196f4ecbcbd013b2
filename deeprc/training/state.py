"""State of a training that a checkpoint stores beside the tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deeprc.documents import AnyFloat, abbreviate, validate
from deeprc.errors import InputError
from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.training.enriched_motif import EnrichedMotif

__all__ = ["TrainingState", "parse_state"]

_COUNT = {"low": 0, "high": 2**53}  # limits that are checked when a checkpoint is read
_MAX_NUMBER = 1e30  # largest number that is read from a table
_HIGHEST = {"update": _MAX_NUMBER, "loss": _MAX_NUMBER, "seconds": _MAX_NUMBER, "auc": 1.0}
"""Largest numbers of the history by the ends of their names. A monitor may add other names."""


@dataclass
class TrainingState:
    """State of a training: everything in a checkpoint except the tensors.

    Attributes
    ----------
    update
        Number of updates made.
    best_loss, best_update
        Best validation loss so far (see `TrainingConfig.least_gain`), and number of updates after which it was reached.
        If evaluations read samples, they are those of the updates, without the start.
    history
        Results of each evaluation, as one row. `best_update` is the update with the best validation loss until this
        evaluation. When training has ended, that of the last row is the update whose weights are kept, see
        `kept_update`. If whole validation repertoires decided, the last row has `fitted`: 1 if the output that is kept
        was fitted to whole training repertoires, otherwise 0.
    prefers_start
        Whether the start is kept because the best update is not clearly better, see `WeightChoice`.
    finished
        Whether training has ended.
    started
        Whether the network has started, after branches were fitted and motifs were searched.
    start_motifs
        Motifs from which kernels started, each with the fields of an `EnrichedMotif`.
    branches
        Description of the network's branches, see `describe_branches`.
    seconds
        Time of the training so far, with that of the start and of earlier processes.
    """

    update: int = field(default=0, metadata=_COUNT)
    best_loss: AnyFloat = float("inf")
    best_update: int = field(default=0, metadata=_COUNT)
    history: list[dict[str, AnyFloat]] = field(default_factory=list)
    prefers_start: bool = False
    finished: bool = False
    started: bool = False
    start_motifs: list[dict[str, Any]] = field(default_factory=list)
    branches: dict[str, Any] = field(default_factory=dict)
    seconds: float = field(default=0.0, metadata={"low": 0, "high": _MAX_NUMBER})

    @property
    def kept_update(self) -> int:
        """Number of updates of the weights that are kept; 0 if whole validation repertoires decided for the start."""
        return int(self.history[-1]["best_update"]) if self.history else self.best_update

    def describe_last_evaluation(self) -> str:
        """Return the validation loss and AUC of the last evaluation as a text; empty before the first."""
        last = self.history[-1] if self.history else {}
        shown = (name for name in ("validation_loss", "validation_auc") if name in last)
        return ", ".join(f"{name} {last[name]:.3f}" for name in shown)


def parse_state(body: Any, n_outputs: int, where: str) -> TrainingState:
    """Return the state of a checkpoint, of a network with `n_outputs` outputs.

    Raises
    ------
    InputError
        If the state is not one that a training writes.
    """
    # `seeds` is the name of `start_motifs` in earlier versions
    if isinstance(body, Mapping) and "seeds" in body and "start_motifs" not in body:
        body = {"start_motifs" if name == "seeds" else name: value for name, value in body.items()}
    state: TrainingState = validate(body, TrainingState, where)
    state.history = list(body.get("history", []))  # not the validated rows, so that numbers of updates stay integers
    _check_history(state, where)
    if "seconds" not in body and state.history:  # written by an earlier version
        state.seconds = max(0.0, float(state.history[-1]["seconds"]))
    where = f"{where}: start_motifs"
    for motif in (validate(start_motif, EnrichedMotif, where) for start_motif in state.start_motifs):
        if not (0 <= motif.output < n_outputs and all(-1 <= letter < N_AMINO_ACIDS for letter in motif.letters)):
            raise InputError(f"{where}: expected valid letters and the index of an output, found {abbreviate(motif)}")
        sizes = [len(gap_weight) for gap_weight in motif.gap_weights]
        if sizes and (len(sizes) != len(motif.gaps) or not {0, N_AMINO_ACIDS}.issuperset(sizes)):
            raise InputError(f"{where}: expected weights of 20 residues for each gap, found {abbreviate(motif)}")
    return state


def _check_history(state: TrainingState, where: str) -> None:
    """Raise InputError if `history.tsv` could not be written from the history of a state, or not be read again."""
    where, updates = f"{where}: history", []
    for row in state.history:
        for name in ("update", "seconds"):
            if not math.isfinite(row.get(name, math.nan)):
                raise InputError(f"{where}: expected a number {name!r} in each row, found {abbreviate(row)}")
        for name, value in row.items():
            high = next((high for ending, high in _HIGHEST.items() if name.endswith(ending)), math.inf)
            may_be_unknown = math.isnan(value) and name != "validation_loss"
            if math.isfinite(high) and not (may_be_unknown or 0 <= value <= high):
                raise InputError(f"{where}: {name}: expected a number from 0 to {high:g}, found {value}")
        updates.append(row["update"])
    if updates != sorted(set(updates)) or max(updates, default=0) > state.update:
        found = ", ".join(f"{update:g}" for update in updates)
        raise InputError(f"{where}: expected updates that rise to at most {state.update}, found {found}")
    if updates and state.best_update not in {0, *updates}:
        raise InputError(f"{where}: expected the best update {state.best_update} among its updates")
