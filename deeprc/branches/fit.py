"""Construction of a network's branches: by a fit to training repertoires, or from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deeprc.branches.clones import CloneBranch
from deeprc.branches.clones_fit import fit_clones
from deeprc.branches.cohort import FittedBranch, TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_fit import fit_composition
from deeprc.branches.joint_use import adds_to
from deeprc.config import NetworkConfig
from deeprc.documents import abbreviate, validate
from deeprc.errors import InputError
from deeprc.nn.branches import Branch, Branches
from deeprc.nn.network import DeepRC
from deeprc.outputs import list_output_names
from deeprc.tasks import Task

__all__ = ["attach_described_branches", "describe_branches", "describe_fits", "fit_branches"]

_TYPES: Mapping[str, type[Branch]] = {
    branch_class.name: branch_class for branch_class in (CompositionBranch, CloneBranch)
}


def fit_branches(config: NetworkConfig, cohort: TrainingCohort) -> list[FittedBranch]:
    """Fit all branches, and return those that predict held-out repertoires; there may be none.

    Doubtful branches are returned only if no branch is clear. Clones are returned beside a clear composition only if
    they predict better than it, or add to it, see `adds_to`.

    Parameters
    ----------
    config
        Configuration, which says which branches the network may have: `composition`, `clones`.
    cohort
        Repertoires to learn from; test repertoires are never among them.
    """
    composition = fit_composition(cohort, with_counts=config.composition_counts) if config.composition else None
    clones = fit_clones(cohort) if config.clones else None
    fitted = [fit for fit in (composition, clones) if fit is not None]
    clear = [fit for fit in fitted if not fit.branch.is_doubtful]
    if len(clear) == 2 and not _predicts_better(clear[1], clear[0]) and not adds_to(clear[0], clear[1], cohort):
        return clear[:1]
    return clear or fitted


def _predicts_better(branch: FittedBranch, other: FittedBranch) -> bool:
    """Return whether a branch lowers the losses of left-out repertoires more than another one, in all outputs."""
    return bool(branch.loss_decreases.sum() > other.loss_decreases.sum())


def describe_fits(fitted: Sequence[FittedBranch], config: NetworkConfig, tasks: Sequence[Task]) -> str:
    """Return sentences that name the branches in use, say how much each lowers the loss, and name the others.

    The loss is that of repertoires from which the branch was not learned. It is compared with the loss of a constant
    prediction: the frequency of the class or, for a number, the mean.

    Parameters
    ----------
    fitted
        Result of `fit_branches`.
    config
        Configuration, which says which branches the network may have.
    tasks
        Tasks that are predicted.
    """
    sought = [name for name in _TYPES if getattr(config, name)]
    if not sought:
        return "The network has no branch besides its attention."
    used: list[str] = []
    phrase = "its loss on left-out repertoires is below that of a constant prediction by"
    for fit in fitted:
        useful = [
            f"{decrease:.3f} for {output}"
            for decrease, output in zip(fit.loss_decreases, list_output_names(tasks), strict=True)
            if decrease > 0
        ]
        if useful:
            doubt = "; this may be chance" if fit.branch.is_doubtful else ""
            used.append(f"{fit.branch.name} ({phrase} {' and '.join(useful)}{doubt})")
            phrase = "by"
        else:
            used.append(fit.branch.name)
    unused = [name for name in sought if name not in {fit.branch.name for fit in fitted}]
    text = f"Branches used: {', '.join(used) or 'only the attention'}."
    text += "".join(
        f" {fit.branch.name.capitalize()} reads {', '.join(fit.branch.features)}."
        for fit in fitted
        if fit.branch.features
    )
    return f"{text} Not used: {', '.join(unused)}." if unused else text


def describe_branches(branches: Branches | None) -> dict[str, Any]:
    """Return the description of branches that `attach_described_branches` needs, as values for JSON."""
    if branches is None:
        return {}
    members = {branch.name: branch.describe() for branch in branches}
    return {"members": members, "digests": list(branches.identities)}


@dataclass(frozen=True)
class _BranchesDescription:
    """The description that `describe_branches` returns."""

    members: dict[str, Any] = field(default_factory=dict)
    digests: tuple[str, ...] = ()


def attach_described_branches(network: DeepRC, tasks: Sequence[Task], described: Any, where: str) -> None:
    """Attach branches to a network; their buffers have the right shapes, and can then be loaded.

    Parameters
    ----------
    network
        Network without branches.
    tasks
        Tasks of the network.
    described
        Result of `describe_branches`, read from a file.
    where
        Name of the file; error messages begin with it.

    Raises
    ------
    InputError
        If `described` is not a description of branches for these tasks.
    """
    where = f"{where}: branches"
    stored: _BranchesDescription = validate(described, _BranchesDescription, where)
    unknown = sorted(stored.members.keys() - _TYPES.keys())
    if unknown:
        raise InputError(f"{where}: expected some of {', '.join(_TYPES)}, found {abbreviate(unknown[0])}")
    if len(set(stored.digests)) < len(stored.digests):
        raise InputError(f"{where}: digests: expected different ones")
    branches = [
        _TYPES[name].from_description(description, network.n_outputs, f"{where}: {name}")
        for name, description in stored.members.items()
    ]
    is_numeric = [task.kind == "regression" for task in tasks for _ in range(task.n_outputs)]
    for branch in branches:
        branch.check_targets(is_numeric, f"{where}: {branch.name}")
    network.attach_branches(branches, stored.digests)
