"""Compute features of repertoires that can be compared between cohorts, without sequences and without labels.

A share p is compared as 2 arcsin(sqrt(p)), whose sampling variance is 1/n for n sequences, whatever p is. A size is
compared by its logarithm.

Letters: B repertoires, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from deeprc.arrays import Floats
from deeprc.baselines.diversity import DIVERSITY_FEATURES, compute_diversity_table
from deeprc.checks.container import profile_container
from deeprc.checks.features import make_file_features
from deeprc.checks.profile import RepertoireProfile
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.genes import LOCI, normalise_gene
from deeprc.shift.measurements import POSITIONS, Measurements, measure_repertoires

__all__ = [
    "ASPECTS",
    "MIN_SD",
    "FeatureTable",
    "ShiftFeature",
    "compute_features",
    "convert_from_scale",
    "convert_to_scale",
    "learn_vocabulary",
    "list_features",
]

FeatureScale = Literal["share", "log", "number"]

ASPECTS = (
    *("chain", "V genes", "J genes", "junction lengths", "residues"),
    *("depth", "counts", "clonality", "dropped rows"),
)
"""Aspects of repertoires, to which the features belong. Earlier ones explain later ones, so reasons have this order."""

MIN_SD: Mapping[FeatureScale, float] = {"share": 0.02, "log": 0.05, "number": 0.05}
"""Standard deviation that is added to that of each feature, by its scale, so that tiny differences do not count."""

_GENE_ASPECTS = {"v_call": "V genes", "j_call": "J genes"}
_GENES = {"v_call": "V gene", "j_call": "J gene"}
_MEAN_LENGTH, _LENGTH_DEVIATION = "mean junction length", "standard deviation of junction lengths"
_LARGEST, _DROPPED = "share of the largest clone", "rows dropped when files were read"
_MIN_SHARE = 1e-3  # smallest share of a gene that is a feature, in the mean over training repertoires
_FILE_PROPERTIES = {
    "file format": "file format",
    "count column": "column of the counts",
    "junction column": "column of the junctions",
}  # names of features of files, and their names in `shift.json`


@dataclass(frozen=True)
class ShiftFeature:
    """A feature: its aspect, its name, and the scale on which it is compared."""

    aspect: str
    name: str
    scale: FeatureScale


@dataclass(frozen=True)
class FeatureTable:
    """The features of B repertoires.

    Attributes
    ----------
    features
        The F features.
    values
        Values of the features on their scales, (B, F); NaN if the value of a repertoire is unknown.
    sampling_variance
        Sampling variance of the values, (B, F), which they have because the sequences are a sample.
    file_properties
        Properties of the files that were read, texts (B,) by the property's name; empty if the container lacks them.
    examples
        Most frequent gene of a feature that counts several genes together, texts (B,) by the feature's name.
    """

    features: tuple[ShiftFeature, ...]
    values: Floats
    sampling_variance: Floats
    file_properties: Mapping[str, Sequence[str]] = field(default_factory=dict)
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)


def convert_to_scale(scale: FeatureScale, values: Floats) -> Floats:
    """Return shares, sizes or numbers on the scale on which they are compared."""
    if scale == "share":
        return np.asarray(2 * np.arcsin(np.sqrt(np.clip(values, 0, 1))))
    return np.log(np.maximum(values, 0.5)) if scale == "log" else np.asarray(values, np.float64)


def convert_from_scale(scale: FeatureScale, value: float) -> float:
    """Return the share, size or number of a scaled value: the inverse of `convert_to_scale`."""
    if scale == "share":
        return float(np.sin(np.clip(value, 0, np.pi) / 2) ** 2)
    return float(np.exp(value)) if scale == "log" else value


def learn_vocabulary(dataset: RepertoireDataset) -> dict[str, tuple[str, ...]]:
    """Return the names of the genes that are features, by field: those with a share of at least 0.1% in the mean."""
    profiles = [profile for profile in profile_container(dataset) if profile.kept]
    vocabulary = {}
    for column in _GENE_ASPECTS:
        shares: dict[str, float] = {}
        for profile in profiles:
            n_named = profile.count_named(column)
            for name, n in profile.usage.get(column, {}).items():
                if name:
                    shares[name] = shares.get(name, 0.0) + n / n_named / len(profiles)
        if shares:
            vocabulary[column] = tuple(sorted(name for name, share in shares.items() if share >= _MIN_SHARE))
    return vocabulary


def list_features(vocabulary: Mapping[str, Sequence[str]]) -> tuple[ShiftFeature, ...]:
    """Return the features that `compute_features` gives for a vocabulary.

    Raises
    ------
    KeyError
        If the vocabulary has another field than `v_call` and `j_call`.
    """
    genes = [
        ShiftFeature(_GENE_ASPECTS[column], name, "share")
        for column, names in vocabulary.items()
        for name in (*names, f"another {_GENES[column]}", f"no {_GENES[column]}")
    ]
    features = [
        *(ShiftFeature("chain", name, "share") for name in (LOCI if vocabulary else ())),
        *genes,
        *(ShiftFeature("junction lengths", name, "number") for name in (_MEAN_LENGTH, _LENGTH_DEVIATION)),
        *(ShiftFeature("residues", f"{position} is {aa}", "share") for position in POSITIONS for aa in AMINO_ACIDS),
        ShiftFeature("depth", "depth", "log"),
        ShiftFeature("counts", "mean count", "log"),
        *(ShiftFeature("clonality", name, "share") for name in ("clonality", _LARGEST)),
        ShiftFeature("dropped rows", _DROPPED, "share"),
    ]
    return tuple(sorted(features, key=lambda feature: ASPECTS.index(feature.aspect)))


def compute_features(dataset: RepertoireDataset, vocabulary: Mapping[str, Sequence[str]]) -> FeatureTable:
    """Return the features of repertoires; genes are those of `learn_vocabulary` for the training repertoires."""
    profiles, measured = profile_container(dataset), measure_repertoires(dataset)
    tables = [
        *(_compute_gene_features(profiles, field, names) for field, names in vocabulary.items()),
        *([_compute_chain_features(profiles, next(iter(vocabulary)))] if vocabulary else []),
        *_compute_length_features(measured),
        *_compute_residue_features(measured),
        *_compute_size_features(dataset, profiles),
    ]
    order = sorted(tables, key=lambda table: ASPECTS.index(table.features[0].aspect))
    file_properties = {
        _FILE_PROPERTIES[feature.name]: feature.by_repertoire.tolist()
        for feature in make_file_features(profiles)
        if feature.name in _FILE_PROPERTIES
    }
    are_files_known = any(profile.report.format for profile in profiles)
    return FeatureTable(
        tuple(feature for table in order for feature in table.features),
        np.hstack([table.values for table in order]),
        np.hstack([table.sampling_variance for table in order]),
        file_properties if are_files_known else {},
        {name: texts for table in order for name, texts in table.examples.items()},
    )


def _make_share_features(aspect: str, names: Iterable[str], counts: Floats, n: Floats) -> FeatureTable:
    """Return shares as features: counts, (B, F), divided by the number n that was counted, (B, 1) or (B, F)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(n > 0, convert_to_scale("share", counts / n), np.nan)
        sampling_variance = np.where(n > 0, 1 / n, np.nan) + np.zeros_like(values)
    return FeatureTable(tuple(ShiftFeature(aspect, name, "share") for name in names), values, sampling_variance)


def _make_numeric_feature(
    aspect: str, name: str, scale: FeatureScale, values: Floats, sampling_variance: Floats | None = None
) -> FeatureTable:
    """Return one number of each repertoire, (B,), as a feature; its sampling variance is on the same scale."""
    scaled = convert_to_scale(scale, values)[:, None]
    given = np.zeros_like(scaled) if sampling_variance is None else sampling_variance[:, None]
    return FeatureTable((ShiftFeature(aspect, name, scale),), scaled, np.where(np.isnan(scaled), np.nan, given))


def _compute_gene_features(profiles: Sequence[RepertoireProfile], field: str, names: Sequence[str]) -> FeatureTable:
    """Return the shares of the named genes of a field, of all other genes, and of sequences without a gene."""
    aspect, gene = _GENE_ASPECTS[field], _GENES[field]
    usages = [profile.usage.get(field, {}) for profile in profiles]
    n_named = np.array([[profile.count_named(field)] for profile in profiles], float)
    kept = np.array([[profile.kept] for profile in profiles], float)
    counts = np.array([[usage.get(name, 0) for name in names] for usage in usages], float)
    counts = np.hstack([counts, n_named - counts.sum(axis=1, keepdims=True)])
    named = _make_share_features(aspect, [*names, f"another {gene}"], counts, n_named)
    unnamed = _make_share_features(aspect, [f"no {gene}"], kept - n_named, kept)
    known_names = {"", *names}
    return FeatureTable(
        (*named.features, *unnamed.features),
        np.hstack([named.values, unnamed.values]),
        np.hstack([named.sampling_variance, unnamed.sampling_variance]),
        examples={f"another {gene}": [_find_most_frequent_other(usage, known_names) for usage in usages]},
    )


def _find_most_frequent_other(usage: Mapping[str, int], known_names: Set[str]) -> str:
    """Return the most frequent gene that is not known, of equally frequent ones the first by name; "" if none is."""
    others = sorted(set(usage) - known_names)
    return max(others, key=lambda name: usage[name], default="")


def _compute_chain_features(profiles: Sequence[RepertoireProfile], field: str) -> FeatureTable:
    """Return the shares of the chains, by the names of the genes of a field."""
    counts = np.zeros((len(profiles), len(LOCI)))
    for row, profile in enumerate(profiles):
        for name, n in profile.usage.get(field, {}).items():
            locus = normalise_gene(name).locus
            if locus:
                counts[row, LOCI.index(locus)] += n
    return _make_share_features("chain", LOCI, counts, counts.sum(axis=1, keepdims=True))


def _compute_length_features(measured: Measurements) -> list[FeatureTable]:
    """Return the mean and the standard deviation of junction lengths, each as a table of one feature."""
    n, sums, squares = measured.length_sums.T.astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = sums / n
        variance = np.maximum(squares / n - mean**2, 0)
        deviation = np.where(n > 1, np.sqrt(variance), np.nan)
        variance_of_mean, variance_of_deviation = variance / n, variance / (2 * np.maximum(n - 1, 1))
    return [
        _make_numeric_feature("junction lengths", _MEAN_LENGTH, "number", mean, variance_of_mean),
        _make_numeric_feature("junction lengths", _LENGTH_DEVIATION, "number", deviation, variance_of_deviation),
    ]


def _compute_residue_features(measured: Measurements) -> list[FeatureTable]:
    """Return the shares of the residues at each position, one table for each position."""
    counts = measured.residues.astype(float)  # (B, P, 20)
    totals = counts.sum(axis=2)  # (B, P)
    n = np.minimum(totals, measured.length_sums[:, :1])  # residues of one sequence are no independent sample
    tables = []
    for p, position in enumerate(POSITIONS):
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = counts[:, p] / totals[:, p, None]
        names = [f"{position} is {letter}" for letter in AMINO_ACIDS]
        tables.append(_make_share_features("residues", names, shares * n[:, p, None], n[:, p, None]))
    return tables


def _compute_size_features(dataset: RepertoireDataset, profiles: Sequence[RepertoireProfile]) -> list[FeatureTable]:
    """Return features of the size of repertoires, of their counts, and of the rows that were dropped from them."""

    def collect(value: Callable[[RepertoireProfile], float]) -> Floats:
        return np.array([value(profile) for profile in profiles], float)

    kept, total = collect(lambda profile: profile.kept), collect(lambda profile: profile.total_count)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_count = total / kept
    diversity = compute_diversity_table(dataset, 1)
    clonality, share_of_largest, log_hill_2 = (
        np.where(kept > 1, diversity[:, DIVERSITY_FEATURES.index(name)], np.nan)
        for name in ("clonality", "share_of_largest", "log_hill_2")
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        relative_variance = np.maximum(np.exp(-log_hill_2) - 1 / kept, 0)  # squared coefficient of variation, by n
    # A file may hold other chains or not: such rows say nothing about the repertoire of this chain.
    read = collect(lambda profile: profile.report.rows_of_chain)[:, None]
    dropped = collect(lambda profile: profile.report.dropped_of_chain)[:, None]
    is_known = np.array([[bool(profile.report.format)] for profile in profiles])
    return [
        _make_numeric_feature("depth", "depth", "log", kept),
        _make_numeric_feature("counts", "mean count", "log", mean_count, np.nan_to_num(relative_variance)),
        _make_numeric_feature("clonality", "clonality", "share", clonality),
        _make_numeric_feature("clonality", _LARGEST, "share", share_of_largest),
        _make_share_features("dropped rows", [_DROPPED], dropped, np.where(is_known, read, 0)),
    ]
