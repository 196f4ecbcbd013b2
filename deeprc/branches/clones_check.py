"""Checks of the arrays of stored clones that were read from a file, because compiled code trusts them.

Letters: J clones, G memories.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.branches.clones_description import ClonesDescription
from deeprc.branches.clones_memory import CLUSTER, EXPANDED, MAX_SIMILAR, RESIDUES_PER_MISMATCH
from deeprc.datasets.alphabet import AMINO_ACIDS, MAX_LENGTH
from deeprc.datasets.clones.neighbours import SUBSTITUTIONS, WILDCARD
from deeprc.datasets.sequence_hash import hash_rows
from deeprc.datasets.sequences import GENE_FIELDS, SequenceArrays
from deeprc.errors import InputError

__all__ = ["check_stored_clones"]

_MAX_LOG_RATE = 100.0


def check_stored_clones(arrays: Mapping[str, NDArray[Any]], description: ClonesDescription, where: str) -> None:
    """Raise InputError if arrays have numbers that would crash compiled code, or with which it would hardly end.

    Parameters
    ----------
    arrays
        Buffers of `CloneBranch` by name, of the shapes that the description says.
    description
        Description of the memories.
    where
        Name of the file; error messages begin with it.
    """
    offsets, residues, matches = arrays["offsets"], arrays["residues"], arrays["is_ball"]
    lengths = np.diff(offsets)
    if offsets[0] != 0 or offsets[-1] != len(residues) or lengths.min() < 1 or lengths.max() > MAX_LENGTH:
        raise InputError(
            f"{where}: offsets: expected to rise from 0 to {len(residues)} by at most {MAX_LENGTH} residues a clone"
        )
    _check_range(f"{where}: residues", residues, len(AMINO_ACIDS) - 1)
    for name in GENE_FIELDS:
        _check_range(f"{where}: {name}", arrays[name], max(0, len(description.genes.get(name, ())) - 1))
    _check_range(f"{where}: is_ball", matches, CLUSTER + len(matches) - 1)
    is_wildcard = (matches >= WILDCARD) & (matches < SUBSTITUTIONS)
    has_substitutions = (matches >= SUBSTITUTIONS) & (matches < EXPANDED)
    is_wrong = (matches > EXPANDED) & (matches < CLUSTER)
    is_wrong |= is_wildcard & (matches - WILDCARD >= lengths)
    is_wrong |= has_substitutions & (matches - SUBSTITUTIONS > lengths // min(RESIDUES_PER_MISMATCH))
    if is_wrong.any():
        raise InputError(
            f"{where}: is_ball: expected wildcards within the clones, and substitutions of up to a quarter of them"
        )
    memories = _number_memories(description)
    if (n_similar := int(np.bincount(memories[has_substitutions]).max(initial=0))) > MAX_SIMILAR:
        expected = f"expected at most {MAX_SIMILAR:,} similar clones in a memory"
        raise InputError(f"{where}: is_ball: {expected}, found {n_similar:,}")
    _check_range(f"{where}: carriers", arrays["carriers"], np.iinfo(np.int64).max)
    _check_range(f"{where}: tests", arrays["tests"], 1)
    kinds = [memory.kind for memory in description.memories for _ in memory.levels]
    for kind, parameters in zip(kinds, arrays["evidence"], strict=True):
        is_refused = parameters.min() <= 0 if kind == "odds" else abs(parameters[2]) > _MAX_LOG_RATE
        if not np.isfinite(parameters).all() or is_refused:
            raise InputError(f"{where}: evidence: expected finite numbers, above 0 if the target has classes")
    _check_different(arrays, description, where)


def _number_memories(description: ClonesDescription) -> NDArray[np.int64]:
    """Return the index of the memory of each clone, (J,)."""
    return np.repeat(np.arange(len(description.memories)), [memory.n_clones for memory in description.memories])


def _check_range(where: str, values: NDArray[Any], largest: int) -> None:
    if not (values.min() >= 0 and values.max() <= largest):
        raise InputError(f"{where}: expected numbers from 0 to {largest}, found {values.min()} to {values.max()}")


def _check_different(arrays: Mapping[str, NDArray[Any]], description: ClonesDescription, where: str) -> None:
    """Raise InputError if a memory has a clone twice with the same match.

    The search would need a time that grows with the square of the number of equal clones.
    """
    codes = [arrays[name] if name in description.genes else np.zeros(0) for name in GENE_FIELDS]
    genes = [of_field.astype(np.uint16) for of_field in codes]
    clones = SequenceArrays(arrays["residues"].astype(np.uint8), arrays["offsets"], *genes)
    hashes = hash_rows(clones, np.arange(len(arrays["is_ball"])))
    keys = np.stack([hashes.view(np.int64), arrays["is_ball"], _number_memories(description)])
    keys = keys[:, np.lexsort(keys)]
    if (keys[:, 1:] == keys[:, :-1]).all(axis=0).any():
        raise InputError(f"{where}: expected different clones in a memory, found one twice")
