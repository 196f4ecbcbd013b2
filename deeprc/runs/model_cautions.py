"""Warnings about what a model knows and uses: packed models, attention that adds nothing, and doubtful branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from deeprc.evaluation.caution import Caution
from deeprc.evaluation.splits import NEW
from deeprc.training.history import find_kept_update
from deeprc.training.model import Model

if TYPE_CHECKING:
    from deeprc.runs.run import Run

__all__ = [
    "DOUBTFUL_BRANCH",
    "UNUSED_ATTENTION",
    "find_doubtful_branch_cautions",
    "find_packed_cautions",
    "find_unused_attention_cautions",
    "reads_only_branches",
]

DOUBTFUL_BRANCH = "doubtful-branch"
"""Name of the warning about a branch for which there is little evidence."""

UNUSED_ATTENTION = "unused-attention"
"""Name of the warning about attention that adds nothing to the outputs."""


def find_packed_cautions(runs: Sequence[Run], parts: Sequence[str]) -> Iterator[Caution]:
    """Yield a warning if repertoires count as new, but may be training repertoires of a packed run.

    Parameters
    ----------
    runs
        Runs that predict together; empty for a model that was fitted in Python.
    parts
        Part of the split of each repertoire, (B,).
    """
    n_packed = sum(run.bundle is not None for run in runs)
    if not n_packed or NEW not in parts:
        return
    if n_packed == len(runs):
        text = (
            "A packed model cannot recognise its training repertoires. If this is its training cohort, its predictions "
            "and metrics are too good."
        )
    else:
        text = (
            f"{n_packed} of {len(runs)} models are packed and cannot recognise their training repertoires. If this is "
            "their training cohort, the predictions and metrics of new repertoires are too good."
        )
    yield Caution("warning", text, "performance", "packed", {"n_packed": n_packed, "n_runs": len(runs)})


def find_unused_attention_cautions(runs: Sequence[Run]) -> Iterator[Caution]:
    """Yield a warning if the attention of runs adds nothing to their outputs, see `reads_only_branches`."""
    ignoring = [run for run in runs if reads_only_branches(run)]
    if not ignoring:
        return
    branches = dict.fromkeys(
        name for run in ignoring if run.model.network.branches for name in run.model.network.branches.names
    )
    read = " and ".join(branches)
    if len(runs) == 1:
        text = (
            "No update lowered the validation loss clearly, so the attention adds nothing: the model predicts from "
            f"{read} only."
        )
    else:
        these_runs, predict = ("this run", "it predicts") if len(ignoring) == 1 else ("these runs", "they predict")
        text = (
            f"In {len(ignoring)} of {len(runs)} runs, no update lowered the validation loss clearly. The attention of "
            f"{these_runs} adds nothing: {predict} from {read} only."
        )
    details = {"n": len(ignoring), "n_runs": len(runs), "branches": list(branches)}
    yield Caution("warning", text, "branches", UNUSED_ATTENTION, details)


def reads_only_branches(run: Run) -> bool:
    """Return whether the kept weights are those of the start, in which the output layer reads only the branches.

    The start is the regression on start motifs and branches. Without start motifs, all output weights of the attention
    are 0, see `deeprc.training.network_start.start_network`.
    """
    network, history = run.model.network, run.history()
    if (
        network.branches is None
        or network.linear_output is None
        or "best_update" not in history  # a run of an earlier version
        or len(run.start_motifs())
    ):
        return False
    return find_kept_update(history) == 0


def find_doubtful_branch_cautions(model: Model) -> Iterator[Caution]:
    """Yield a warning if it may be chance that a branch of a model predicts anything, see `Branch.is_doubtful`."""
    members = [
        [branch.name for branch in member.network.branches or () if branch.is_doubtful] for member in model.members
    ]
    names, n = list(dict.fromkeys(name for member in members for name in member)), sum(map(bool, members))
    if not n:
        return
    where = f"In {n} of {len(members)} models, the" if len(members) > 1 else "The"
    text = (
        f"{where} evidence for the branch {' and '.join(names)} is weak: it may be chance that it predicts left-out "
        "repertoires. Of cohorts without any signal, about one in three with fewer than 50 donors gets such a branch, "
        "and about one in ten with more."
    )
    details = {"n": n, "n_models": len(members), "branches": names}
    yield Caution("warning", text, "branches", DOUBTFUL_BRANCH, details)
