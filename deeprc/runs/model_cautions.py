"""Warnings about what a model knows and uses: packed models, and attention that adds nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from deeprc.evaluation.caution import Caution
from deeprc.evaluation.splits import NEW

if TYPE_CHECKING:
    from deeprc.runs.run import Run

__all__ = ["UNUSED_ATTENTION", "find_packed_cautions", "find_unused_attention_cautions"]

UNUSED_ATTENTION = "unused-attention"
"""Name of the warning about attention that adds nothing to the outputs."""


def find_packed_cautions(runs: Sequence[Run], splits: Sequence[str]) -> Iterator[Caution]:
    """Yield a warning if repertoires count as new, but may be training repertoires of a packed run.

    Parameters
    ----------
    runs
        Runs that predict together; empty for a model that was fitted in Python.
    splits
        Part of the split of each repertoire, (B,).
    """
    n_packed = sum(run.bundle is not None for run in runs)
    if not n_packed or NEW not in splits:
        return
    if n_packed == len(runs):
        text = (
            "A packed model cannot recognise its training repertoires. If this is its training cohort, the metrics are "
            "too good."
        )
    else:
        text = (
            f"{n_packed} of {len(runs)} models are packed and cannot recognise their training repertoires. If this is "
            "their training cohort, the metrics of new repertoires are too good."
        )
    yield Caution("warning", text, "performance", "packed", {"n_packed": n_packed, "n_runs": len(runs)})


def find_unused_attention_cautions(runs: Sequence[Run]) -> Iterator[Caution]:
    """Yield a warning if the attention of runs adds nothing to their outputs, see `_ignores_attention`."""
    ignoring = [run for run in runs if _ignores_attention(run)]
    if not ignoring:
        return
    branches = dict.fromkeys(
        name for run in ignoring if run.model.network.branches for name in run.model.network.branches.names
    )
    which = "" if len(runs) == 1 else f" of {len(ignoring)} of {len(runs)} runs"
    subject = "the model predicts" if len(runs) == 1 else "they predict"
    text = (
        f"No update{which} lowered the validation loss, so the attention adds nothing: {subject} from "
        f"{' and '.join(branches)} only."
    )
    yield Caution("warning", text, "branches", UNUSED_ATTENTION, {"n": len(ignoring), "branches": list(branches)})


def _ignores_attention(run: Run) -> bool:
    """Return whether a run kept its start, whose output layer reads only the branches.

    The start is the regression on start motifs and branches. Without start motifs, all output weights of the attention
    are 0, see `deeprc.training.motif_start.start_network`.
    """
    network, history = run.model.network, run.history()
    if (
        network.branches is None
        or network.linear_output is None
        or "best_update" not in history
        or len(run.start_motifs())
    ):
        return False
    return bool(history["best_update"].iloc[-1] == 0)
