"""The table of the features of the branch `composition`, by how much each moves the outputs over a cohort.

The branch is linear. So if a feature is one standard deviation higher, and the others stay the same, an output changes
by the gain of the branch times the weight of the feature times this standard deviation: the effect of the feature.
(Small repertoires are moved less, by the factor n / (n + m) of `deeprc.branches.composition`.)

The weights of k-mers with fewer than 4 residues are part of the weights of the 4-mers that begin with them. The
frequency of such a k-mer is the sum of those of its 4-mers. So its effect is the sum over its 4-mers of weight times
frequency, regressed on its frequency over the repertoires, times the standard deviation of its frequency. For a single
4-mer, this is the effect above.

Letters: B repertoires, T outputs, F features of one kind, M k-mers, G genes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.gene_usage import compute_centred_log_ratios, list_genes
from deeprc.branches.abundances import compute_abundance_table, name_abundance_features
from deeprc.branches.composition import K
from deeprc.branches.expansion import EXPANSION_K, compute_expansion_table, compute_gene_expansion_table
from deeprc.branches.frequencies import RepertoireFrequencies
from deeprc.branches.gene_pairs import compute_gene_pairs
from deeprc.branches.genes import check_some_genes_known
from deeprc.branches.linear_function import Kind
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import list_kmers
from deeprc.outputs import list_output_names
from deeprc.progress import track
from deeprc.runs.feature_effects import (
    COLUMNS,
    FeatureEffects,
    WeightedBranch,
    add_members,
    average_groups,
    compute_effects,
    compute_effects_of_outputs,
    list_weighted_branches,
    measure_known,
)
from deeprc.runs.residue_effects import measure_residues
from deeprc.training.model import Model, check_model

__all__ = ["list_distinct_features", "make_composition_table"]

_N_LETTERS = len(AMINO_ACIDS)


def make_composition_table(model: Model, dataset: RepertoireDataset, *, top: int | None = 20) -> pd.DataFrame:
    """Return the features of the branch `composition` that move the outputs of a model most over a cohort.

    Parameters
    ----------
    model
        A trained model, or an ensemble, whose effects are the means of its members in common units: `run.model` of a
        run, or `classifier.model_` of a fitted `DeepRCClassifier`.
    dataset
        The cohort; repertoires without sequences are ignored.
    top
        Number of features of each output, direction and kind; None: all that have an effect. The k-mers of each
        length count as a kind.

    Returns
    -------
    One row per feature and output, in the order of the outputs, and by falling size of the effect. It is empty if the
    model has no such branch, or if no feature with a weight differs between the repertoires. The columns are

    - output: name of the output, as in `clones.tsv`;
    - direction: `up` if the output is higher where the feature is higher, else `down`;
    - kind: `k-mers`, `genes`, `gene pairs`, `residues`, `counts`, `k-mers weighted by counts`, or `genes weighted by
      counts`;
    - feature: the k-mer, the gene, two genes (`TRBV7-2 with TRBJ1-1`), or which feature of the counts it is; for
      residues `junction length`, the residue and its IMGT position (`L at 108`), or these in one V gene (`L at 108 in
      TRBV7-2`);
    - effect: change of the output, in units of contributions, if the feature is one standard deviation of these
      repertoires higher, and the features of which it is no sum stay the same;
    - mean_positive, mean_negative: mean of the feature over the repertoires of the output's class, and over those of
      other classes; NaN if there are none. For a number, over those of these repertoires whose number is above their
      median, and over the others. Repertoires without known counts or genes are left out where these are needed. The
      feature is, by its kind,

      - the number of occurrences of the k-mer in a sequence, on average over the sequences (or over clonal families, if
        a branch counts each once). A k-mer of fewer than 4 residues is counted as the beginning of 4-mers, so not
        where fewer than 4 residues are left;
      - the share of the gene among the sequences (or clonal families) whose gene is known;
      - the share of the two genes among all sequences (or clonal families). The effect is that of this share minus the
        product of the shares of both genes;
      - the share of all counts, or the number of clones divided by the number of counts;
      - the number of occurrences of the k-mer or gene in a sequence times the expansion score of the sequence, on
        average over the sequences. These k-mers have at most 3 residues;
      - the length of a junction, or the number of times that the residue is at this position, on average over the
        sequences (or clonal families); in a V gene, over those with this gene, in repertoires that have it. The effect
        is that of the feature minus what is expected from the genes of the sequences, see `deeprc.branches.residues`.

    Raises
    ------
    InputError
        If the model needs genes that the cohort lacks.
    """
    check_model(model)
    dataset = dataset[np.flatnonzero(dataset.n_sequences)]
    members = list_weighted_branches(model)
    groups = _divide_repertoires(model, dataset)
    tables: list[pd.DataFrame] = []
    if members and len(dataset):
        _check_genes(members, dataset)
        measures = (
            _measure_kmers,
            _measure_kmer_expansion,
            _measure_abundances,
            _measure_genes,
            _measure_gene_expansion,
            measure_residues,
            _measure_gene_pairs,
        )
        effects = [effect for measure in measures for effect in measure(members, dataset, groups)]
        names = list_output_names(model.tasks)
        tables = [effect.list_top(output, name, top) for effect in effects for output, name in enumerate(names)]
    tables = [effects for effects in tables if len(effects)]
    if not tables:
        return pd.DataFrame(columns=list(COLUMNS))
    table = pd.concat(tables, ignore_index=True)
    order = {name: index for index, name in enumerate(list_output_names(model.tasks))}
    keys = pd.DataFrame({"output": table["output"].map(order), "size": -table["effect"].abs()})
    return table.loc[keys.sort_values(["output", "size"], kind="stable").index].reset_index(drop=True)


def _check_genes(members: Sequence[WeightedBranch], dataset: RepertoireDataset) -> None:
    """Raise InputError if the container lacks genes that a branch needs, or names them in another way."""
    for member in members:
        for field, names in member.branch.genes.items():
            if names:
                check_some_genes_known(dataset.container.path, field, names, list_genes(dataset.whole(), field))


def _divide_repertoires(model: Model, dataset: RepertoireDataset) -> NDArray[np.bool_]:
    """Return which repertoires are of the class of each output, and which of others, (2, T, B); see the table."""
    groups: list[tuple[NDArray[np.bool_], NDArray[np.bool_]]] = []
    for task, labels in zip(model.tasks, model.encode_labels(dataset).T, strict=True):
        is_known = ~np.isnan(labels)
        if task.kind == "regression":
            median = float(np.median(labels[is_known])) if is_known.any() else 0.0
            groups.append((labels > median, labels <= median))
        elif task.kind == "binary":
            groups.append((labels == 1, labels == 0))
        else:
            groups += [(labels == c, is_known & (labels != c)) for c in range(len(task.classes))]
    return np.stack([np.stack(pair) for pair in groups], axis=1)


def _measure_kmers(
    members: Sequence[WeightedBranch], dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of the k-mers of each length; the branches that count families are measured last."""
    of_sequences = [member for member in members if not member.branch.counts_families]
    of_families = [member for member in members if member.branch.counts_families]
    measured = [list(_measure_frequent_kmers(alike, dataset, groups)) for alike in (of_sequences, of_families) if alike]
    for of_one_length in zip(*filter(None, measured), strict=True):
        yield from add_members(of_one_length)


def _measure_frequent_kmers(
    members: Sequence[WeightedBranch], dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of the k-mers of each length in branches that all count each family once, or none does."""
    weights = np.asarray(sum(member.weigh("kmers") for member in members))
    if weights.any():
        frequencies = RepertoireFrequencies(dataset, of_families=members[0].branch.counts_families)

        def read_kmers(start: int, stop: int) -> Floats:
            """Return some columns, because all together may be many gigabytes."""
            return frequencies.get_kmers(np.arange(start, stop)).astype(np.float64)

        yield from _measure_nested("kmers", K, read_kmers, weights, groups)


def _measure_kmer_expansion(
    members: Sequence[WeightedBranch], dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of the k-mers of expanded clones, if the models use them and counts are known."""
    weights = np.asarray(sum(member.weigh("expansion") for member in members))
    if not weights.any():
        return
    table = compute_expansion_table(dataset)
    is_known = ~np.isnan(table[:, 0])
    if is_known.any():
        known = table[is_known].astype(np.float64)

        def read_expansion(start: int, stop: int) -> Floats:
            return known[:, start:stop]

        yield from _measure_nested("expansion", EXPANSION_K, read_expansion, weights, groups[..., is_known])


def _measure_nested(
    kind: Kind, k: int, read: Callable[[int, int], Floats], weights: Floats, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of the k-mers of each length, shortest first.

    Parameters
    ----------
    kind, k
        Kind of the features, and number of residues of the longest k-mers.
    read
        Function that returns the frequencies of the longest k-mers from an index to another, (B, n).
    weights
        Weights of the longest k-mers, (T, M).
    groups
        Groups of repertoires, see `_divide_repertoires`.
    """
    lengths = range(k, 0, -1)
    effects = {length: np.zeros((len(weights), _N_LETTERS**length)) for length in lengths}
    means = {length: np.zeros((2, *effects[length].shape)) for length in lengths}
    width = weights.shape[1] // _N_LETTERS  # number of k-mers that begin with one residue
    for first in track(range(_N_LETTERS), "weighing k-mers", _N_LETTERS):
        block = slice(first * width, (first + 1) * width)
        features = read(block.start, block.stop)
        nested = list(_sum_last_residues(features))  # the features of each length
        for length, frequencies in zip(lengths, nested, strict=True):
            means[length][..., _find_block(first, frequencies)] = average_groups(frequencies, groups)
        for output, factors in enumerate(weights[:, block]):
            parts_by_length = _sum_last_residues(features * factors)
            for length, frequencies, parts in zip(lengths, nested, parts_by_length, strict=True):
                effects[length][output, _find_block(first, frequencies)] = compute_effects(frequencies, parts)
    for length in reversed(lengths):
        yield FeatureEffects(kind, list_kmers(length), effects[length], means[length])


def _find_block(first: int, frequencies: Floats) -> slice:
    """Return the columns of the k-mers with this first residue, among all k-mers that are as long, from theirs."""
    width = frequencies.shape[1]
    return slice(first * width, (first + 1) * width)


def _sum_last_residues(columns: Floats) -> Iterator[Floats]:
    """Yield columns of k-mers with one first residue, (B, n), then their sums for each shorter length, to (B, 1)."""
    yield columns
    while columns.shape[1] > 1:
        columns = columns.reshape(len(columns), -1, _N_LETTERS).sum(axis=2)  # (B, n) -> (B, n / 20)
        yield columns


def _measure_abundances(
    members: Sequence[WeightedBranch], dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of how diverse the counts are, if the models use them and counts are known."""
    member_effects: list[FeatureEffects] = []
    for member in members:
        weights, depth = member.weigh("abundances"), member.branch.richness_depth
        if weights.any():
            table, names = compute_abundance_table(dataset, depth), name_abundance_features(depth)
            member_effects += measure_known("abundances", names, weights, table, np.exp(table), groups)
    yield from add_members(member_effects)


def _measure_genes(
    members: Sequence[WeightedBranch], dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of the genes. Log-ratios depend on all genes of a branch, so each branch is measured alone.

    Branches that count each family once are the last, whose means `add_members` keeps.
    """
    member_effects: list[FeatureEffects] = []
    for member in sorted(members, key=lambda member: member.branch.counts_families):
        frequencies = RepertoireFrequencies(dataset, of_families=member.branch.counts_families)
        weights, start = member.weigh("genes"), 0
        for field, names in member.branch.genes.items():
            field_weights, start = weights[:, start : start + len(names)], start + len(names)
            if field_weights.any():
                counts = frequencies.count_genes(field, names)
                features = compute_centred_log_ratios(counts)
                effects = compute_effects_of_outputs(features, field_weights)
                n_known = frequencies.count_genes(field, list_genes(dataset, field)).sum(axis=1)
                is_known = n_known > 0
                shares = counts[is_known] / n_known[is_known, None]
                member_effects.append(
                    FeatureEffects("genes", names, effects, average_groups(shares, groups[..., is_known]))
                )
    yield from add_members(member_effects)


def _measure_gene_pairs(
    members: Sequence[WeightedBranch], dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of the pairs of genes. The branches that count each family once are the last, as for genes."""
    member_effects: list[FeatureEffects] = []
    for member in sorted(members, key=lambda member: member.branch.counts_families):
        weights, genes = member.weigh("gene_pairs"), member.branch.genes
        if weights.any():
            frequencies = RepertoireFrequencies(dataset, of_families=member.branch.counts_families)
            counts = frequencies.count_placed_residues(genes).pairs
            effects = compute_effects_of_outputs(compute_gene_pairs(counts), weights)
            shares = (counts / counts.sum(axis=(1, 2), keepdims=True)).reshape(len(counts), -1)
            v_genes, j_genes = [*genes["v_call"], "other V genes"], [*genes["j_call"], "other J genes"]
            names = [f"{v} with {j}" for v in v_genes for j in j_genes]
            member_effects.append(FeatureEffects("gene_pairs", names, effects, average_groups(shares, groups)))
    yield from add_members(member_effects)


def _measure_gene_expansion(
    members: Sequence[WeightedBranch], dataset: RepertoireDataset, groups: NDArray[np.bool_]
) -> Iterator[FeatureEffects]:
    """Yield the effects of the genes of expanded clones, if the models use them and counts and genes are known."""
    member_effects: list[FeatureEffects] = []
    for member in members:
        weights = member.weigh("gene_expansion")
        if weights.any():
            names = [name for names in member.branch.genes.values() for name in names]
            table = compute_gene_expansion_table(dataset, member.branch.genes)
            member_effects += measure_known("gene_expansion", names, weights, table, table, groups)
    yield from add_members(member_effects)


def list_distinct_features(table: pd.DataFrame, n: int) -> list[str]:
    """Return the names of the n features with the largest effects, without k-mers that overlap a larger one.

    Two k-mers overlap if one contains the other, or if they have two neighbouring residues in common: LDR and DRW.
    Such k-mers often occur in the same sequences, so they say the same.
    """
    chosen: list[str] = []
    chosen_kmers: list[str] = []
    for row in table.loc[table["effect"].abs().sort_values(ascending=False, kind="stable").index].itertuples():
        if str(row.kind).startswith("k-mers"):
            if any(_overlap(str(row.feature), kmer) for kmer in chosen_kmers):
                continue
            chosen_kmers.append(str(row.feature))
        chosen.append(str(row.feature))
        if len(chosen) == n:
            break
    return chosen


def _overlap(first: str, second: str) -> bool:
    pairs = ({kmer[i : i + 2] for i in range(len(kmer) - 1)} for kmer in (first, second))
    return first in second or second in first or bool(set.intersection(*pairs))
