"""Columns of the table of clones: odds ratios with intervals, tests over strata, and generation probabilities.

A clone that V(D)J recombination makes often is public without any antigen. One that it makes seldom, and that many
donors of a class carry, was selected.

Letters: n rows, K strata, C classes.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats.contingency import odds_ratio

from deeprc.arrays import Floats, Integers
from deeprc.associations.donors_by_class import DonorsByClass
from deeprc.associations.stratified_tests import compute_stratified_p_values
from deeprc.baselines.association_tests import adjust_by_benjamini_hochberg
from deeprc.baselines.carrier_counts import MIN_CARRIERS
from deeprc.compilation import open_threads
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.datasets.simulation.recombination import load_model
from deeprc.progress import track

__all__ = [
    "CarrierCounts",
    "compute_generation_probabilities",
    "compute_odds_ratios",
    "compute_p_values",
    "compute_stratified_odds_ratios",
    "make_carrier_columns",
    "run_neighbour_tests",
]

_CHAINS = ("trb", "tra", "igh")
_LOCUS = re.compile("(TR[AB]|IGH)[VJ]")


class CarrierCounts:
    """Number of carriers of the clone of each row, and of donors, by stratum: of the row's class, and of all classes.

    Parameters
    ----------
    donors
        Donors that are counted, in each of their classes.
    carriers
        Number of carriers of the clone of each row, by stratum and class, (n, K, C).
    codes
        The index of the class of each row, (n,).
    excluded
        Number of donors that are not counted, (n, K, C); None: all are counted.
    """

    def __init__(
        self, donors: DonorsByClass, carriers: Integers, codes: Integers, excluded: Integers | None = None
    ) -> None:
        totals = donors.count_by_stratum() - (0 if excluded is None else excluded)
        totals = np.broadcast_to(totals, carriers.shape)
        rows = np.arange(len(codes))
        self.class_carriers, self.all_carriers = carriers[rows, :, codes], carriers.sum(axis=2)  # (n, K) each
        self.class_sizes, self.sizes = totals[rows, :, codes], totals.sum(axis=2)  # (n, K) each


def make_carrier_columns(names: Sequence[str], carriers: Integers, prefix: str) -> dict[str, Integers]:
    """Return one column for each class from the numbers of carriers, (n, K, C)."""
    return {f"{prefix}:{name}": carriers[:, :, code].sum(axis=1) for code, name in enumerate(names)}


def compute_odds_ratios(counts: CarrierCounts) -> Floats:
    """Return the odds ratio and its 95% interval, (n, 3), without strata.

    It is the conditional maximum likelihood estimate. The interval is exact: it holds the ratios that neither one-sided
    Fisher's test rejects at 2.5%.
    """
    a, n = counts.class_carriers.sum(axis=1), counts.all_carriers.sum(axis=1)
    n_class, n_all = counts.class_sizes.sum(axis=1), counts.sizes.sum(axis=1)
    tables, inverse = np.unique(np.stack([a, n - a, n_class - a, n_all - n_class - n + a], axis=1), axis=0,
                                return_inverse=True)  # fmt: skip
    values = np.empty((len(tables), 3))
    for row, table in enumerate(tables):
        estimate = odds_ratio(table.reshape(2, 2), kind="conditional")
        values[row] = estimate.statistic, *estimate.confidence_interval(0.95)
    return values[inverse.ravel()]


def compute_stratified_odds_ratios(counts: CarrierCounts) -> Floats:
    """Return the odds ratio of Mantel and Haenszel over strata, (n,); NaN if no stratum has both classes."""
    a, n, n_class, n_all = counts.class_carriers, counts.all_carriers, counts.class_sizes, counts.sizes
    weights = 1.0 / np.maximum(n_all, 1)
    upper = (a * (n_all - n_class - n + a) * weights).sum(axis=1)
    lower = ((n - a) * (n_class - a) * weights).sum(axis=1)
    ratios = np.full(len(a), np.nan)
    np.divide(upper, lower, out=ratios, where=lower > 0)
    ratios[(lower == 0) & (upper > 0)] = np.inf
    return ratios


def compute_p_values(counts: CarrierCounts) -> Floats:
    """Return the one-sided exact p-values over strata, (n,)."""
    columns = counts.class_carriers.sum(axis=1), counts.all_carriers, counts.class_sizes, counts.sizes
    return compute_stratified_p_values(*(np.ascontiguousarray(column, np.int64) for column in columns))


def run_neighbour_tests(counts: CarrierCounts) -> tuple[Floats, Floats]:
    """Return p-values and q-values of neighbours, (n,) each; NaN if fewer than two donors carry a neighbour."""
    p_values, q_values = np.full((2, len(counts.all_carriers)), np.nan)
    is_tested = counts.all_carriers.sum(axis=1) >= MIN_CARRIERS
    p_values[is_tested] = compute_p_values(counts)[is_tested]
    q_values[is_tested] = adjust_by_benjamini_hochberg(p_values[is_tested], int(is_tested.sum()))
    return p_values, q_values


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
