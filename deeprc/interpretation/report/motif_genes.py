"""Genes of the carriers of a motif, because a motif may be only a piece of a gene."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.interpretation.motifs import AttendedMotif
from deeprc.interpretation.report.page import Cell

__all__ = ["CommonGene", "find_common_genes", "make_gene_cell", "make_gene_sentence"]

_MOST, _TIMES = 0.5, 3  # share of the carriers, and ratio to all sequences, from which a gene stands out


@dataclass(frozen=True)
class CommonGene:
    """The most common gene of the carriers of a motif.

    Attributes
    ----------
    name
        Name of the gene.
    share
        Share of the carriers that have it.
    share_of_all
        Share of all sequences that have it, as a mean over repertoires.
    """

    name: str
    share: float
    share_of_all: float

    @property
    def stands_out(self) -> bool:
        """Whether more than half of the carriers have it, and it is at least 3 times as frequent as among all."""
        return self.share > _MOST and self.share >= _TIMES * self.share_of_all


def find_common_genes(motif: AttendedMotif, top: pd.DataFrame, genes: pd.DataFrame) -> list[CommonGene]:
    """Return the most common V gene and J gene, as far as known, of the attended sequences that carry a motif.

    Parameters
    ----------
    motif
        Motif whose carriers are used.
    top
        Table of the attended sequences, best first: junction_aa, and v_call and j_call if they are known. Equal
        junctions count once, with the genes of the first.
    genes
        Table with field, name and all; see `deeprc.interpretation.survey.Survey`.
    """
    pattern = re.compile(motif.pattern)
    junctions = top["junction_aa"].drop_duplicates()
    carriers = top.loc[junctions.index[[pattern.search(junction) is not None for junction in junctions]]]
    common_genes = []
    for field in GENE_FIELDS:
        if field not in top or genes.empty:
            continue
        names = carriers[field].fillna("")
        counts = names[names != ""].value_counts()
        if counts.empty:
            continue
        name = min(counts.index[counts == counts.max()])
        share_of_all = genes.loc[(genes["field"] == field) & (genes["name"] == name), "all"].sum()
        common_genes.append(CommonGene(str(name), float(counts.max() / len(carriers)), float(share_of_all)))
    return common_genes


def make_gene_cell(genes: Sequence[CommonGene]) -> Cell:
    """Return the genes as a cell of a table: TRBJ2-6 in 98% (2% of all)."""
    parts = [
        (f"{gene.name} in {_format_share(gene.share)}", f"({_format_share(gene.share_of_all)} of all)")
        for gene in genes
    ]
    line = Markup('<span class="line">{}</span> <span class="line">{}</span>')
    shown = Markup(",<br>").join(line.format(*part) for part in parts)
    return Cell(shown, ", ".join(" ".join(part) for part in parts))


def make_gene_sentence(genes: Sequence[CommonGene], n: int) -> str:
    """Return a text about the genes that stand out among n carriers, to put after a sentence; "" if none does."""
    return "".join(
        f" {_format_share(gene.share)} of the {n:,} use {gene.name}, "
        f"but only {_format_share(gene.share_of_all)} of all sequences do: the motif may "
        "be a piece of that gene."
        for gene in genes
        if gene.stands_out
    )


def _format_share(share: float) -> str:
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.995 <= share < 1:
        return ">99%"
    return f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}"
