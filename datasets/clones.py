"""Which repertoires of a cohort carry each clone, and how many clones each has.

A clone is a sequence, or a sequence with its genes; wherever it occurs, it is the same clone.

Letters: B repertoires, n sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from deeprc import ranks
from deeprc.available_memory import count_available_bytes
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.clone_groups import AT_ONCE, Clones, SequencesInParts, group_clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.distinct import count_distinct_in_all
from deeprc.datasets.linked_container import LinkedContainer, LinkedSequences, SequenceContainer, StoredContainer
from deeprc.datasets.parts import OneStore
from deeprc.datasets.sequence_hash import hash_rows
from deeprc.datasets.sequences import GENE_FIELDS, SequenceArrays, Sequences
from deeprc.datasets.simulation.dataset import VirtualContainer, VirtualSequences
from deeprc.errors import InputError

__all__ = ["count_distinct_clones", "find_shared_clones", "hash_sequences", "list_gene_fields", "take_sequences"]

_MOST_AT_ONCE = 1 << 28  # number of sequences whose hashes take 2 GB


def list_gene_fields(dataset: RepertoireDataset) -> list[str]:
    """Return those of `v_call` and `j_call` that the dataset's sequences have."""
    if isinstance(dataset.container, SequenceContainer):
        return list(dataset.container.gene_names)
    return list(dataset[0].genes) if len(dataset) else []  # a simulated cohort: each repertoire is made alone


def find_shared_clones(dataset: RepertoireDataset, fields: Sequence[str] = ()) -> Clones:
    """Find the clones that at least two repertoires of the container carry.

    All repertoires of the container are searched, not only those of `dataset`; the result is cached. Ranks do not share
    this work, because equal sequences meet in sorted pieces of all hashes. It takes about 0.4 GB of memory, and 40
    bytes per shared clone and 8 per carrier, besides the container's pages, which the system may drop at any time. A
    container of one file that is larger than the available memory would be read from the disk once for every 33 million
    sequences. So there, up to 2 GB, but at most a quarter of the available memory, hold hashes, 8 bytes for each
    sequence, to read it fewer times. The sequences of a simulated cohort, which is on no disk, are made twice, and
    those with equal hashes once more. All its hashes are in memory, 8 bytes each; with genes, all its sequences are.

    Parameters
    ----------
    dataset
        A view of the container.
    fields
        Genes that belong to a clone, besides its sequence: `v_call`, `j_call`; see `list_gene_fields`. An unknown gene,
        "", is a gene of its own.

    Raises
    ------
    InputError
        If the container lacks one of the fields.
    """
    found = _check_fields(dataset, fields)
    return Clones(**load_or_compute(dataset, "clones", {"fields": found}, partial(_find_all_shared, fields=found)))


def count_distinct_clones(dataset: RepertoireDataset, fields: Sequence[str] = ()) -> NDArray[np.int64]:
    """Return the number of different clones of each repertoire, (B,), shared or not; see `find_shared_clones`."""
    found = _check_fields(dataset, fields)
    arrays = load_or_compute(
        dataset, "distinct-clones", {"fields": found}, partial(count_distinct_in_all, fields=found)
    )
    return np.asarray(arrays["counts"][dataset.rows])


def _check_fields(dataset: RepertoireDataset, fields: Sequence[str]) -> list[str]:
    known = list_gene_fields(dataset)
    for name in fields if len(dataset) else ():
        if name not in known:
            raise InputError(f"{dataset.container.path}: has no {name}")
    return [name for name in GENE_FIELDS if name in fields]


def take_sequences(dataset: RepertoireDataset, rows: NDArray[np.int64], fields: Sequence[str] = ()) -> Sequences:
    """Return some sequences of a container with these genes, each with a count of 1.

    Parameters
    ----------
    dataset
        A view of the container, or of a cohort that is on no disk; which repertoires it shows does not matter.
    rows
        Indices of the sequences among all sequences of the container, (n,), in any order.
    fields
        Genes to keep.
    """
    assert isinstance(dataset.container, SequenceContainer | VirtualContainer)
    found = dataset.container.take(rows)
    genes = {name: calls for name, calls in found.genes.items() if name in fields}
    return Sequences.counted_once(found.residues, found.offsets).with_genes(genes)


def hash_sequences(
    dataset: RepertoireDataset, rows: NDArray[np.int64], fields: Sequence[str] = ()
) -> NDArray[np.uint64]:
    """Return hashes of the residues, and of the genes in `fields`, of some sequences of a container, (n,).

    Hashes of residues alone give an arbitrary, but stable order; genes are hashed by their codes in the container.
    """
    container = dataset.container
    if isinstance(container, OneStore):
        return np.asarray(hash_rows(container.sequences.arrays(fields), rows))
    found = take_sequences(dataset, rows, fields)
    return np.asarray(hash_rows(found.arrays(fields), np.arange(len(found))))


def _find_all_shared(whole: RepertoireDataset, fields: list[str]) -> Arrays:
    """Return the arrays of `Clones`."""
    container = whole.container
    sequences: SequenceArrays | SequencesInParts
    at_once = AT_ONCE
    if isinstance(container, LinkedContainer):
        sequences = LinkedSequences(container, fields)
    elif isinstance(container, OneStore):
        sequences, at_once = container.sequences.arrays(fields), _choose_at_once(container, fields)
    elif isinstance(container, VirtualContainer) and not fields:
        sequences, at_once = VirtualSequences(container), max(AT_ONCE, int(container.repertoire_offsets[-1]))
    else:  # genes have different codes in each repertoire that is made
        sequences = Sequences.concatenate([repertoire.sequences for repertoire in whole]).arrays(fields)
    return vars(group_clones(sequences, np.asarray(whole.container.repertoire_offsets), at_once=at_once))


def _choose_at_once(container: OneStore, fields: Sequence[str]) -> int:
    """Return the number of sequences whose hashes are in memory at once, see `find_shared_clones`.

    Ranks may have the same memory, so each takes its share of it.
    """
    available = count_available_bytes() if isinstance(container, StoredContainer) else None
    sequences = container.sequences
    size = sequences.residues.nbytes + (8 + 2 * len(fields)) * len(sequences)  # offsets, and codes of 16 bits
    if available is None or size <= available:
        return AT_ONCE
    return max(AT_ONCE, min(_MOST_AT_ONCE, available // 4 // 8 // ranks.count()))  # a quarter, 8 bytes for each
