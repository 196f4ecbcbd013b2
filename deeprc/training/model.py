"""Trained models: a network with its configuration and tasks, and an ensemble of several such models.

Letters: N sequences of one repertoire, B repertoires, H heads, T outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc import ranks
from deeprc.branches.fit import attach_described_branches, describe_branches
from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import abbreviate, validate
from deeprc.errors import InputError
from deeprc.nn.batch import Collator
from deeprc.nn.branches import BranchScores
from deeprc.nn.contributions import score_sequences
from deeprc.nn.genes import GeneNames
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.nn.pooled_values import PooledValueCache
from deeprc.nn.sequence_scores import OutputParts, SequenceScores, UnitConversion, combine_parts, combine_scores
from deeprc.progress import open_step
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task
from deeprc.training.building import build_network
from deeprc.training.calibration import average_calibrations, describe_calibration, restore_calibration
from deeprc.training.checkpoint import load_tensors, save_tensors
from deeprc.training.log_abundance import warn_of_counts_of_one

__all__ = ["Ensemble", "Model", "TrainedModel", "check_model", "describe_network", "load_weights", "rebuild_network"]


@dataclass(frozen=True)
class Model(ABC):
    """Base class of models: a `TrainedModel`, or an `Ensemble` of several.

    Attributes
    ----------
    tasks
        Tasks that are predicted, with the mean and scale of numbers.
    """

    tasks: tuple[Task, ...]

    @property
    @abstractmethod
    def members(self) -> tuple[TrainedModel, ...]:
        """Trained models that predict together; a model that predicts alone is its own only member."""

    @property
    def unit_conversion(self) -> UnitConversion:
        """Conversion of the outputs of each member to the units of `tasks`.

        It is needed because each model standardises numbers by its own training fold.
        """
        scales, shifts = [], []
        for member in self.members:
            pairs = list(zip(member._list_output_tasks(), self._list_output_tasks(), strict=True))
            scales.append([task.scale / joint.scale for task, joint in pairs])
            shifts.append([(task.mean - joint.mean) / joint.scale for task, joint in pairs])
        return UnitConversion(np.array(scales), np.array(shifts))

    def _list_output_tasks(self) -> list[Task]:
        """Return the task of each output, (T,)."""
        return [task for task in self.tasks for _ in range(task.n_outputs)]

    @property
    def branch_names(self) -> list[str]:
        """Names of the branches that at least one member has, each once."""
        names: dict[str, None] = {}
        for member in self.members:
            if member.network.branches is not None:
                names |= dict.fromkeys(member.network.branches.names)
        return list(names)

    @property
    def branch_features(self) -> dict[str, list[str]]:
        """What each branch of `branch_names` reads in any member, such as k-mers; empty if its name says it."""
        features_of: dict[str, dict[str, None]] = {name: {} for name in self.branch_names}
        for member in self.members:
            for branch in member.network.branches or ():
                features_of[branch.name].update(dict.fromkeys(branch.features))
        return {name: list(features) for name, features in features_of.items()}

    @property
    def n_outputs(self) -> int:
        """Number of outputs of all targets, T."""
        return sum(task.n_outputs for task in self.tasks)

    def encode_labels(self, dataset: RepertoireDataset) -> NDArray[np.float64]:
        """Return the labels, (B, number of tasks); all are missing if the dataset lacks the column of a target."""
        missing = np.full((len(dataset), 1), np.nan)
        columns = [
            encode_labels([task], dataset.metadata) if task.column in dataset.metadata else missing
            for task in self.tasks
        ]
        return np.concatenate(columns, axis=1)

    def compute_outputs(self, dataset: RepertoireDataset) -> Tensor:
        """Return the outputs before their activation, (B, T); several members give their mean in common units.

        Parameters
        ----------
        dataset
            The repertoires.

        Raises
        ------
        InputError
            If the weights are such that an output is not finite.
        """
        return torch.from_numpy(self.compute_output_parts(dataset).outputs)

    def compute_output_parts(self, dataset: RepertoireDataset) -> OutputParts:
        """Return the same outputs as `compute_outputs`, with the part of them that comes through each branch.

        The ranks (`deeprc.ranks`) share the repertoires, and all get the outputs of all.
        """
        rank_share = dataset[ranks.take_share_by_size(dataset.n_sequences)]
        streams = [member.iterate_parts(rank_share) for member in self.members]
        conversion = self.unit_conversion.to_float32()
        own_parts = []
        with open_step("outputs of repertoires", len(rank_share)) as step:
            for parts in zip(*streams, strict=True):
                own_parts.append(combine_parts(parts, conversion))
                step.advance()
        return OutputParts.stack(ranks.gather(own_parts), self.n_outputs)

    def score_sequences(self, dataset: RepertoireDataset, position: int) -> SequenceScores:
        """Return the attention and contributions of the sequences of `dataset[position]`.

        Memory grows with the number of sequences, heads and outputs, not with the width of the network.

        Raises
        ------
        InputError
            If the weights are such that a number is not finite.
        """
        scores = [score_sequences(member.make_inference(dataset), position) for member in self.members]
        for member, member_scores in zip(self.members, scores, strict=True):
            member.check_scores(member_scores)
        return self.combine_scores(scores)

    def combine_scores(self, scores: Sequence[SequenceScores]) -> SequenceScores:
        """Return the scores of all members together from those of each, see `nn.sequence_scores.combine_scores`."""
        return scores[0] if len(self.members) == 1 else combine_scores(scores, self.unit_conversion)


def check_model(model: object) -> None:
    """Raise TypeError if an argument is no model, but for example a run or an estimator, which hold one."""
    if not isinstance(model, Model):
        raise TypeError(
            "model: expected a trained model, such as `run.model` of a run or `classifier.model_` of a fitted "
            f"DeepRCClassifier, found {type(model).__name__}"
        )


@dataclass(frozen=True)
class TrainedModel(Model):
    """A trained network with its configuration and tasks.

    Attributes
    ----------
    tasks
        Tasks that are predicted, with the mean and scale of numbers in the training fold, and the calibration.
    network
        The network, ready for inference; it knows the names of the genes that it reads.
    config
        Configuration of network and training. It determines how batches are made, and which sequences inference keeps.
    name
        Name of the model in messages: its run directory.
    pooled_value_cache
        Averages of whole repertoires that its training has computed; None keeps none.
    """

    network: DeepRC
    config: Config
    name: str = "the model"
    pooled_value_cache: PooledValueCache | None = None

    @property
    def members(self) -> tuple[TrainedModel, ...]:
        """The model itself."""
        return (self,)

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return self.network.pooling.queries.device

    def make_inference(self, dataset: RepertoireDataset) -> Inference:
        """Return an `Inference` of a dataset, which makes features and averages as in training."""
        branches = None if self.network.branches is None else BranchScores(self.network.branches, dataset)
        collator = Collator(
            dataset, self.config.network.abundance, gene_names=self.network.gene_names, branches=branches
        )
        fraction = self.config.training.averaged_fraction
        return Inference(self.network, collator, fraction, pooled_value_cache=self.pooled_value_cache)

    def iterate_parts(self, dataset: RepertoireDataset) -> Iterator[OutputParts]:
        """Yield the outputs of each repertoire, (T,), with their parts."""
        reads_counts = any(branch.reads_counts for branch in self.network.branches or ())
        warn_of_counts_of_one(dataset, self.config.network.abundance, branches_read_counts=reads_counts)
        inference = self.make_inference(dataset)
        for position, outputs in enumerate(inference.iterate_outputs()):
            self.check_finite(outputs.numpy(), dataset[position].repertoire_id)
            yield OutputParts(outputs.numpy(), _compute_branch_parts(inference, position))

    def check_finite(self, numbers: NDArray[np.floating[Any]], repertoire_id: str) -> None:
        """Raise InputError if numbers that the network computed for a repertoire are NaN, or infinite in 32 bits.

        Branches compute contributions in 64 bits, but tables hold 32 bits.
        """
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(numbers.astype(np.float32)).all()
        if not is_finite:
            raise InputError(
                f"{self.name}: the network's weights give no finite numbers for {abbreviate(repertoire_id)}"
            )

    def check_scores(self, scores: SequenceScores) -> None:
        """Raise InputError if a score of a sequence, or an output of its repertoire, is infinite or NaN."""
        for numbers in (
            scores.head_logits,
            scores.head_weights,
            scores.contributions,
            scores.responses,
            scores.outputs,
        ):
            self.check_finite(numbers, scores.repertoire_id)

    def save(self, path: Path, *, update: int) -> None:
        """Write the weights, the description of the network, the calibration, and the number of updates."""
        described = {**describe_network(self.network), "calibration": describe_calibration(self.tasks)}
        save_tensors(path, self.network.state_dict(), {"update": update, **described})

    @classmethod
    def load(
        cls, path: Path, config: Config, tasks: Sequence[Task], *, device: torch.device, name: str = "the model"
    ) -> TrainedModel:
        """Read a model with this configuration and these tasks that `save` wrote.

        Raises
        ------
        InputError
            If the file is missing or damaged, or has the weights of another network.
        """
        build = partial(rebuild_network, config, tasks, where=str(path))
        try:
            tensors, state = load_tensors(path, lambda state, _: build(state, device="meta").state_dict())
            network = build(state, device=device)
        except RuntimeError as error:  # not enough memory
            raise InputError(f"{path}: the network cannot be made: {str(error).splitlines()[0]}") from error
        load_weights(network, tensors, str(path))
        return cls(restore_calibration(tasks, state, str(path)), network.eval(), config, name)


@torch.no_grad()
def _compute_branch_parts(inference: Inference, position: int) -> dict[str, NDArray[np.float32]]:
    """Return the part of a repertoire's outputs that comes through each branch, (T,), by name."""
    scores, branches = inference.take_branch_scores(position), inference.network.branches
    if scores is None or branches is None:
        return {}
    return dict(zip(branches.names, (scores[0] * branches.gains).cpu().numpy(), strict=True))


def describe_network(network: DeepRC) -> dict[str, Any]:
    """Return what `rebuild_network` needs besides configuration and tasks, as values for JSON."""
    described: dict[str, Any] = {}
    if network.gene_names is not None:
        described["genes"] = network.gene_names.to_mapping()
    if network.branches is not None:
        described["branches"] = describe_branches(network.branches)
    return described


def rebuild_network(
    config: Config, tasks: Sequence[Task], described: Mapping[str, Any], *, device: torch.device | str, where: str
) -> DeepRC:
    """Return a network whose weights have the right shapes, before `load_weights`.

    Parameters
    ----------
    config, tasks
        Configuration and tasks of the network.
    described
        Result of `describe_network`, read from a file.
    device
        Device of the network; on `meta` it has shapes but no numbers.
    where
        Name of the file; error messages begin with it.

    Raises
    ------
    InputError
        If the description does not fit.
    """
    gene_names = _get_gene_names(where, config, described)
    network = build_network(config, tasks, seed=0, device=torch.device(device), gene_names=gene_names)
    attach_described_branches(network, tasks, described.get("branches", {}), where)
    return network


def load_weights(network: DeepRC, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load weights from a file into a network; raise InputError if some of them would crash compiled code."""
    network.load_state_dict(tensors)
    if network.branches is not None:
        network.branches.check(where)


def _get_gene_names(path: str, config: Config, state: Mapping[str, Any]) -> GeneNames | None:
    """Return the names of the genes that a network knows; None if it reads no genes."""
    if not config.network.gene_units:
        return None
    if "genes" not in state:
        raise InputError(f"{path}: does not fit config.yaml: has no names of genes")
    names: GeneNames = validate(state["genes"], GeneNames, f"{path}: genes")
    for field, known in names.to_mapping().items():
        if len(set(known)) < len(known) or "" in known:
            raise InputError(f"{path}: genes: {field}: expected different names, found {abbreviate(known)}")
    return names


@dataclass(frozen=True)
class Ensemble(Model):
    """Models that predict the same targets together: their outputs before calibration are averaged.

    Attributes
    ----------
    tasks
        Tasks that are predicted. The mean and scale of numbers are the means over the members, and
        `average_calibrations` joins the calibrations of the members.
    models
        Members of the ensemble, at least one.
    """

    models: tuple[TrainedModel, ...]

    @classmethod
    def of(cls, models: Sequence[TrainedModel]) -> Ensemble:
        """Return the ensemble of models; their tasks must be equal except for scaling and calibration."""
        tasks = (
            replace(
                same[0],
                mean=fmean(task.mean for task in same),
                scale=fmean(task.scale for task in same),
                calibration=average_calibrations(same),
            )
            for same in zip(*(model.tasks for model in models), strict=True)
        )
        return cls(tuple(tasks), tuple(models))

    @property
    def members(self) -> tuple[TrainedModel, ...]:
        """Models that predict together."""
        return self.models
