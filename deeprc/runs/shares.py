"""Compute what runs say about repertoires in several workers: processes of this machine, or a Dask cluster.

The repertoires of a container are divided into shares, and each worker reads one share at a time.

A repertoire's outputs and attention do not depend on the other repertoires of its share.
Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.cache import digest_container
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.linked_container import StoredContainer
from deeprc.errors import InputError
from deeprc.jobs import Workers, get_result, run_jobs
from deeprc.nn.digest import digest_tensors
from deeprc.progress import open_step
from deeprc.runs.ensemble import RunEnsemble, load_ensemble

__all__ = ["CohortShare", "DividedCohort"]

_Result = TypeVar("_Result")

_MAX_SEQUENCES = 4_000_000
"""Largest number of sequences of a share. It takes seconds to read so many, much longer than to open the runs."""

_MIN_SHARES = 16
"""Smallest number of shares, so that small cohorts also use several workers."""


@dataclass(frozen=True)
class CohortShare:
    """Some repertoires of a cohort, which one worker reads.

    Attributes
    ----------
    runs
        Run directories or packed runs, which predict together.
    cohort
        The container.
    device
        Device on which the worker computes: `auto`, `cpu`, `cuda` ...
    repertoire_indices, ids
        Indices of the repertoires in the container, and their ids.
    checksum
        The checksum of the container, see `_get_checksum`.
    weight_digests
        Digests of the weights of the runs, see `_digest_weights`.
    """

    runs: tuple[Path, ...]
    cohort: Path
    device: str
    repertoire_indices: tuple[int, ...]
    ids: tuple[str, ...]
    checksum: str
    weight_digests: tuple[str, ...]

    @property
    def name(self) -> str:
        """Ids of the first and the last repertoire, for messages."""
        return self.ids[0] if len(self.ids) == 1 else f"{self.ids[0]} to {self.ids[-1]}"

    def load(self) -> tuple[RunEnsemble, RepertoireDataset]:
        """Open the runs, and the repertoires of this share.

        Raises
        ------
        InputError
            If they cannot be used, or the worker finds another container or run at a path.
        """
        cohort = open_dataset(self.cohort)
        assert isinstance(cohort.container, StoredContainer)
        if (checksum := _get_checksum(cohort.container)) != self.checksum:
            raise InputError(
                f"{self.cohort}: the worker finds a different container there: expected the checksum {self.checksum}, "
                f"found {checksum}"
            )
        indices = list(self.repertoire_indices)
        if max(indices) >= len(cohort) or tuple(cohort[indices].repertoire_ids) != self.ids:
            raise InputError(f"{self.cohort}: the worker finds a different container there, with other repertoires")
        predictor = load_ensemble(self.runs, device=self.device)
        for path, expected, found in zip(self.runs, self.weight_digests, _digest_weights(predictor), strict=True):
            if found != expected:
                raise InputError(
                    f"{path}: the worker finds a different run there: expected weights {expected}, found {found}"
                )
        return predictor, cohort[indices]


@dataclass(frozen=True)
class DividedCohort:
    """A cohort of which each worker reads a share of the repertoires, with the models of runs.

    Attributes
    ----------
    predictor
        The runs.
    dataset
        The repertoires.
    workers
        Where the shares are computed.
    device
        Device on which the workers compute.
    """

    predictor: RunEnsemble
    dataset: RepertoireDataset
    workers: Workers
    device: str = "auto"

    def iterate_shares(
        self, compute: Callable[[CohortShare], _Result]
    ) -> Generator[tuple[CohortShare, _Result], None, None]:
        """Yield the shares, in the order of the dataset, and what workers compute for each.

        `compute` is a function of a module, or a partial of one.

        Raises
        ------
        InputError
            If a share fails, the message names its repertoires; or if the workers are lost, see `run_jobs`.
        """
        container = self.dataset.container
        assert isinstance(container, StoredContainer)
        runs = tuple(run.source.absolute() for run in self.predictor.runs)
        weight_digests, checksum = _digest_weights(self.predictor), _get_checksum(container)
        shares = [
            CohortShare(
                runs,
                container.path,
                self.device,
                tuple(part.repertoire_indices.tolist()),
                tuple(part.repertoire_ids),
                checksum,
                weight_digests,
            )
            for part in _divide_into_shares(self.dataset)
        ]
        with (
            open_step("repertoires on other workers", len(self.dataset)) as step,
            closing(run_jobs(compute, shares, self.workers, in_order=True)) as ended,
        ):
            for share, future in ended:
                yield share, get_result(future, share.name)
                step.advance(len(share.repertoire_indices))

    def compute_in_shares(self, compute: Callable[[CohortShare], Sequence[_Result]]) -> Iterator[_Result]:
        """Yield what workers compute for each repertoire, in the order of the dataset.

        `compute` returns one result for each repertoire of a share. The errors are those of `iterate_shares`.
        """
        with closing(self.iterate_shares(compute)) as shares:
            for _, results in shares:
                yield from results

    def compute_outputs(self) -> Tensor:
        """Return what `predictor.model.compute_outputs` returns, (B, T), computed by workers."""
        outputs = [*self.compute_in_shares(_compute_outputs)]
        return torch.from_numpy(np.stack(outputs)) if outputs else self.predictor.model.compute_outputs(self.dataset)


def _divide_into_shares(dataset: RepertoireDataset) -> Iterator[RepertoireDataset]:
    """Yield successive repertoires as shares with about the same number of sequences."""
    sizes = dataset.n_sequences.tolist()
    size = min(_MAX_SEQUENCES, max(1, math.ceil(sum(sizes) / _MIN_SHARES)))
    start = n_sequences = 0
    for stop, n in enumerate(sizes, start=1):
        n_sequences += n
        if n_sequences >= size or stop == len(sizes):
            yield dataset[start:stop]
            start, n_sequences = stop, 0


def _get_checksum(container: StoredContainer) -> str:
    """Return the checksum of a container; for version 1, which has none, the digest of its repertoires."""
    return digest_container(container) if container.checksum is None else container.checksum


def _digest_weights(predictor: RunEnsemble) -> tuple[str, ...]:
    """Return a digest of the weights of each run, 16 digits: equal on all devices."""
    return tuple(digest_tensors(run.model.network.state_dict())[:16] for run in predictor.runs)


def _compute_outputs(share: CohortShare) -> list[NDArray[np.float32]]:
    predictor, dataset = share.load()
    return list(predictor.model.compute_outputs(dataset).cpu().numpy())
