"""Description of stored clones in the file of a model: everything except the arrays.

Letters: R residues, T outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deeprc.branches.clones_evidence import EvidenceDirection, EvidenceKind, choose_evidence_sign
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.documents import abbreviate, validate
from deeprc.errors import InputError

__all__ = [
    "ClonesDescription",
    "LevelDescription",
    "MemoryDescription",
    "check_kinds_of_evidence",
    "check_numbers_of_clones",
    "parse_clones_description",
]

_MAX_GENES = 1 << 16  # as in a container
_MAX_CLONES, _MAX_RESIDUES = 4_000_000, 1 << 27
_MAX_MEMORIES, _MAX_LEVELS = 20, 100  # of each output and direction; of each memory
_ABOVE_ALL = 2.0  # a threshold that all p-values are below


@dataclass(frozen=True)
class LevelDescription:
    """Threshold and weight of one level of evidence, see `EvidenceLevel`."""

    threshold: float = field(default=_ABOVE_ALL, metadata={"low": 0.0, "high": _ABOVE_ALL})
    weight: float = field(default=1.0, metadata={"low": 0.0, "high": 1.0})


@dataclass(frozen=True)
class MemoryDescription:
    """Description of one memory, without its arrays.

    Attributes
    ----------
    output, direction, kind
        Output, direction and kind of evidence, see `Memory`.
    n_clones
        Number of clones of the memory.
    levels
        Levels of the evidence. Models of earlier versions do not say them: all their clones count alike.
    """

    output: int = field(metadata={"low": 0})
    direction: EvidenceDirection
    kind: EvidenceKind
    n_clones: int = field(metadata={"low": 1, "high": _MAX_CLONES})
    levels: tuple[LevelDescription, ...] = (LevelDescription(),)

    @property
    def sign(self) -> float:
        """Factor of the evidence in the score of the output, 1 or -1."""
        return choose_evidence_sign(self.kind, self.direction)


@dataclass(frozen=True)
class ClonesDescription:
    """Description of the branch `clones`, without its arrays.

    Attributes
    ----------
    memories
        Descriptions of the memories, in their order.
    n_residues
        Number of residues of all clones, R.
    genes
        Vocabulary of each gene field that is part of a clone, by field.
    doubtful
        Whether the evidence for the branch is weak, see `Branch.is_doubtful`; models of earlier versions do not say it.
    """

    memories: tuple[MemoryDescription, ...]
    n_residues: int = field(metadata={"low": 1, "high": _MAX_RESIDUES})
    genes: dict[str, tuple[str, ...]]
    doubtful: bool = False


def parse_clones_description(description: Any, n_outputs: int, where: str) -> ClonesDescription:
    """Return the description of a branch for T outputs from a value of a file; error messages begin with `where`.

    Raises
    ------
    InputError
        If the value is not one that `CloneBranch.describe` returns.
    """
    described: ClonesDescription = validate(description, ClonesDescription, where)
    if not described.memories:
        raise InputError(f"{where}: memories: expected at least one")
    check_numbers_of_clones(described, where)
    n_memories = max(Counter((memory.output, memory.direction) for memory in described.memories).values())
    if n_memories > _MAX_MEMORIES:
        expected = f"expected at most {_MAX_MEMORIES} for each output and direction"
        raise InputError(f"{where}: memories: {expected}, found {n_memories}")
    for memory in described.memories:
        if memory.output >= n_outputs:
            raise InputError(f"{where}: memories: output: expected one below {n_outputs}, found {memory.output}")
        if not 1 <= len(memory.levels) <= _MAX_LEVELS:
            raise InputError(f"{where}: memories: levels: expected 1 to {_MAX_LEVELS}, found {len(memory.levels)}")
    for name, vocabulary in described.genes.items():
        if name not in GENE_FIELDS:
            raise InputError(f"{where}: genes: expected some of {', '.join(GENE_FIELDS)}, found {name[:60]!r}")
        if not vocabulary or len(set(vocabulary)) < len(vocabulary):
            raise InputError(f"{where}: genes: {name}: expected different names, found {abbreviate(list(vocabulary))}")
        if len(vocabulary) > _MAX_GENES:
            raise InputError(f"{where}: genes: {name}: expected at most {_MAX_GENES:,}, found {len(vocabulary):,}")
    return described


def check_kinds_of_evidence(described: ClonesDescription, is_numeric: Sequence[bool], where: str) -> None:
    """Raise InputError if the evidence of a memory does not fit its output, (T,), which is a number or a class."""
    for memory in described.memories:
        expected, output = ("rate", "a number") if is_numeric[memory.output] else ("odds", "a class")
        if memory.kind != expected:
            found = f"expected {expected}, because output {memory.output} is {output}, found {memory.kind}"
            raise InputError(f"{where}: memories: kind: {found}")


def check_numbers_of_clones(described: ClonesDescription, where: str) -> None:
    """Raise InputError if a branch has more clones, or residues of all clones, than one may have."""
    n_clones = sum(memory.n_clones for memory in described.memories)
    if n_clones > _MAX_CLONES:
        raise InputError(f"{where}: memories: expected at most {_MAX_CLONES:,} clones, found {n_clones:,}")
    if described.n_residues > _MAX_RESIDUES:
        raise InputError(f"{where}: n_residues: expected at most {_MAX_RESIDUES:,}, found {described.n_residues:,}")
