"""The probability that V(D)J recombination makes a clone, by the models of righor: the extra `vdj`.

A clone that recombination makes often is public without any antigen. One that it makes seldom, and that many donors of
a class carry, was selected.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from deeprc.compilation import open_threads
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.datasets.simulation.recombination import load_model
from deeprc.progress import track

__all__ = ["compute_generation_probabilities"]

_CHAINS = ("trb", "tra", "igh")
_LOCUS = re.compile("(TR[AB]|IGH)[VJ]")


def compute_generation_probabilities(clones: pd.DataFrame) -> pd.Series | None:
    """Return the probability of each clone among productive human rearrangements, by the index of the table.

    If its V or J gene is known, it is the probability of the junction with this gene. The result is None without
    righor, if no gene says which chain it is, or if the chain has no model.

    Parameters
    ----------
    clones
        Table with the columns `junction_aa`, and `v_call` and `j_call` if they are known.
    """
    chain = _find_chain(clones)
    if importlib.util.find_spec("righor") is None or chain is None:
        return None
    model = load_model("human", chain)
    genes = [clones[name] if name in clones else pd.Series("", clones.index) for name in GENE_FIELDS]
    rows = list(zip(clones["junction_aa"], *genes, strict=True))
    with open_threads() as threads:
        probabilities = threads.map(partial(_compute_probability, model), rows)
        values = list(track(probabilities, "generation probabilities of clones", len(rows)))
    return pd.Series(values, clones.index, dtype=float)


def _find_chain(clones: pd.DataFrame) -> str | None:
    """Return the chain of most genes; None if there is no model of it."""
    names = pd.concat([clones[name] for name in GENE_FIELDS if name in clones] or [pd.Series([], dtype=str)])
    loci = names.astype(str).str.extract(_LOCUS.pattern)[0].str.lower().value_counts()
    return next((str(locus) for locus in loci.index if locus in _CHAINS), None)


def _compute_probability(model: Any, clone: Sequence[str]) -> float:
    """Return the probability of one clone."""
    import righor

    junction, v_call, j_call = clone
    v_genes, j_genes = _find_alleles(model.v_segments, v_call), _find_alleles(model.j_segments, j_call)
    result = model.pgen((righor.AminoAcid.from_string(junction), v_genes, j_genes))
    return float(result.likelihood) / float(model.get_norm_productive())


def _find_alleles(segments: Sequence[Any], call: str) -> list[Any]:
    """Return the alleles of a gene, a family or a tie; all alleles if the gene is unknown."""
    names = [name for name in str(call).split(",") if name]
    alleles = [segment for segment in segments if any(_is_allele_of(segment.name, name) for name in names)]
    return alleles or list(segments)


def _is_allele_of(allele: str, name: str) -> bool:
    return allele.startswith((f"{name}*", f"{name}-")) or allele == name
