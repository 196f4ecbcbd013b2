"""Names and numbers of the branch `composition` that do not depend on its arrays, and its description in a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.documents import abbreviate, validate
from deeprc.errors import InputError

__all__ = ["GENE_BUFFERS", "NOISE_SEQUENCES", "CompositionDescription", "parse_composition_description"]

NOISE_SEQUENCES = 1000
"""Number of sequences, m, at which the score of a repertoire is halved."""

_MAX_NAMES = 20_000  # largest number of genes of a field; IMGT has a few hundred names
_MAX_RESIDUE_WEIGHTS = 1 << 27  # of all outputs: a gigabyte with what is expected of the genes


class _GeneBuffers(NamedTuple):
    """The names of the buffers of one field of genes."""

    weights: str
    centre: str
    expansion_weights: str
    residues: str


GENE_BUFFERS = {
    field: _GeneBuffers(*(f"{field}_{name}" for name in ("weights", "centre", "expansion_weights", "residues")))
    for field in GENE_FIELDS
}


@dataclass(frozen=True)
class CompositionDescription:
    """Genes with weights, other features with weights, and doubt; see `CompositionBranch`."""

    v_call: tuple[str, ...]
    j_call: tuple[str, ...]
    abundances: bool = False  # models of earlier versions do not say it
    richness_depth: int = 0
    expansion: bool = False
    residues: bool = False
    gene_pairs: bool = False
    families: bool = False
    doubtful: bool = False


def parse_composition_description(
    description: Any, where: str, *, residue_weights_per_gene: int
) -> CompositionDescription:
    """Return a valid description.

    Parameters
    ----------
    description
        Result of `CompositionBranch.describe`, read from a file.
    where
        File and key of the description; error messages begin with them.
    residue_weights_per_gene
        Number of weights of residues of all outputs that each V gene has, if the branch reads residues.

    Raises
    ------
    InputError
        If a value is missing, of a wrong type or out of range.
    """
    valid: CompositionDescription = validate(description, CompositionDescription, where)
    for field, names in (("v_call", valid.v_call), ("j_call", valid.j_call)):
        if len(names) > _MAX_NAMES:
            raise InputError(f"{where}: {field}: expected at most {_MAX_NAMES:,} names, found {len(names):,}")
        if len(set(names)) < len(names) or "" in names:
            raise InputError(f"{where}: {field}: expected different names, found {abbreviate(list(names))}")
    largest = _MAX_RESIDUE_WEIGHTS // residue_weights_per_gene
    if valid.residues and len(valid.v_call) + len(valid.j_call) > largest:
        n = len(valid.v_call) + len(valid.j_call)
        raise InputError(f"{where}: expected at most {largest:,} genes, found {n:,}")
    if valid.richness_depth < 0:
        raise InputError(f"{where}: richness_depth: expected a number from 0, found {valid.richness_depth}")
    return valid
