"""V and J genes as inputs of the network: the names of known genes and their embeddings.

Letters: N sequences, G units of one gene's embedding, M names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation.simulated_dataset import SimulatedDataset
from deeprc.errors import InputError

__all__ = ["GeneEmbedding", "GeneNames", "check_genes"]

_N_SAMPLED = 1000  # number of sequences of a simulated repertoire whose genes are read


@dataclass(frozen=True)
class GeneNames:
    """Names of the V and J genes that a network knows, sorted, as the vocabulary of a container has them.

    The index of a gene begins at 1; 0 is a gene that is missing or was not in training.
    """

    v_call: tuple[str, ...]
    j_call: tuple[str, ...]

    @classmethod
    def of(cls, dataset: RepertoireDataset) -> GeneNames:
        """Return the names that occur in these repertoires; other repertoires of their container do not count.

        One repertoire is read at a time; of a simulated repertoire, only the first 1,000 sequences are read.

        Raises
        ------
        InputError
            If the sequences have neither V nor J genes.
        """
        check_genes(dataset)
        v_names: set[str] = set()
        j_names: set[str] = set()
        for v_call, j_call in _iterate_calls(dataset):
            v_names.update(_collect_names(v_call))
            j_names.update(_collect_names(j_call))
        return cls(tuple(sorted(v_names - {""})), tuple(sorted(j_names - {""})))

    def to_mapping(self) -> dict[str, list[str]]:
        """Return the names by field, as values for JSON."""
        return {"v_call": list(self.v_call), "j_call": list(self.j_call)}

    def index_names(self, vocabulary: Sequence[str], field: str) -> NDArray[np.int64]:
        """Return the index of each name, (M,), among the names of a field, `v_call` or `j_call`."""
        index = {name: i for i, name in enumerate(self.to_mapping()[field], 1)}
        return np.array([index.get(name, 0) for name in vocabulary], np.int64)

    def index_calls(self, v_call: Categorical | None, j_call: Categorical | None, n: int) -> NDArray[np.int64]:
        """Return the indices of the V and J genes of n sequences, (n, 2); 0 if a column is missing."""
        indices = np.zeros((n, 2), np.int64)
        for column, (field, calls) in enumerate((("v_call", v_call), ("j_call", j_call))):
            if calls is not None:
                indices[:, column] = self.index_names(calls.vocabulary, field)[calls.codes]
        return indices


class GeneEmbedding(nn.Module):
    """Learned embeddings of V and J genes, G numbers each.

    They start as normal random numbers with variance 1, like outputs of SELU layers. The embedding of an unknown gene
    starts at 0, the mean of the others, and changes only if training has sequences without a gene.

    Parameters
    ----------
    names
        Genes that the network knows.
    n_units
        Number of units of one gene's embedding, G.
    """

    def __init__(self, names: GeneNames, *, n_units: int) -> None:
        super().__init__()
        self.names = names
        self.v_weight = nn.Parameter(_initialise_embedding(len(names.v_call), n_units))
        self.j_weight = nn.Parameter(_initialise_embedding(len(names.j_call), n_units))
        self.out_features = 2 * n_units

    def forward(self, genes: Tensor) -> Tensor:
        """Return the embeddings of V and J joined, (N, 2 G), from the indices of the genes, (N, 2) int64."""
        columns = zip((self.v_weight, self.j_weight), genes.unbind(1), strict=True)
        return torch.cat([weight.index_select(0, index) for weight, index in columns], dim=1)


def check_genes(dataset: RepertoireDataset) -> None:
    """Raise InputError if the sequences have neither V nor J genes."""
    if len(dataset) and not dataset.gene_fields:
        raise InputError(
            f"gene_units: {dataset.container.path} has no v_call and no j_call; expected sequences with genes, "
            "or gene_units=0"
        )


def _initialise_embedding(n_names: int, n_units: int) -> Tensor:
    weight = torch.randn(n_names + 1, n_units)
    weight[0] = 0
    return weight


def _iterate_calls(dataset: RepertoireDataset) -> Iterator[tuple[Categorical | None, Categorical | None]]:
    """Yield the V and the J genes of each repertoire."""
    for index in dataset.repertoire_indices.tolist():
        if isinstance(dataset, SimulatedDataset):
            table, _ = dataset.cohort.draw(index, np.arange(min(_N_SAMPLED, dataset.cohort.size(index))))
            yield table.v_call, table.j_call
        else:
            container = dataset.sequence_container
            part = container.parts[container.find_part(index)]
            bounds = container.repertoire_offsets[index : index + 2] - part.first_sequence
            sequence_rows = slice(*bounds.tolist())
            genes = {name: calls.take(sequence_rows) for name, calls in part.store.sequences.genes.items()}
            yield genes.get("v_call"), genes.get("j_call")


def _collect_names(calls: Categorical | None) -> list[str]:
    return [] if calls is None else list(calls.drop_unused().vocabulary)
