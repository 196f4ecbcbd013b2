"""Learn what is usual among training repertoires, and measure how far other repertoires are from it.

Each feature is compared with its mean over the training repertoires, in standard deviations that include the
differences between repertoires and the sampling. An aspect, such as the V genes, gives its largest deviation and, if it
has many features, their root mean square. Each of these statistics is divided by its 95% quantile among training
repertoires, and the largest is the distance of a repertoire. Each training repertoire is measured in the same way
against the others, without those of its own donor. The distance that 5% of them exceed is the threshold.

Letters: B repertoires, F features, A statistics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from deeprc.arrays import Floats
from deeprc.documents import check_format, read_json, validate
from deeprc.errors import InputError
from deeprc.files import write_text
from deeprc.shift.feature_table import ASPECTS, MIN_SD, FeatureTable, ShiftFeature, list_features

__all__ = [
    "MIN_DONORS",
    "REFERENCE_FILE",
    "SHARE_BEYOND",
    "Deviations",
    "Reference",
    "read_reference",
    "write_reference",
]

REFERENCE_FILE = "shift.json"
"""The name of the file in a run directory."""

SHARE_BEYOND = 0.05
"""The share of training repertoires that are beyond the threshold, each measured against those of other donors."""

MIN_DONORS = 8
"""Smallest number of donors that can say what is usual."""

_FORMAT, _VERSION = "deeprc-shift", 1
_MIN_FOR_RMS = 9  # smallest number of features of an aspect that has a root mean square
_MIN_FOR_QUANTILE = 39  # number of donors; with fewer, the threshold is a limit of a log-normal distribution
_USUAL = (2.5, 97.5)  # percentiles that are called usual
_MIN_LIMIT = 1.0  # smallest limit of a statistic, in standard deviations
_LARGEST = 1e9  # largest number in a file
_UNKNOWN_VARIANCE = 1e9  # variance of a feature that no training repertoire has, so that it does not count
_SMALLEST = 1e-3  # smallest distance whose logarithm is taken


@dataclass(frozen=True)
class Deviations:
    """The deviations of B repertoires from the training repertoires.

    Attributes
    ----------
    z
        Deviation of each feature in standard deviations, (B, F); NaN if the feature is unknown.
    by_aspect
        Largest statistic of each aspect divided by its limit, (B,), by the name of the aspect.
    distance
        Distance of each repertoire: the largest of these, (B,).
    """

    z: Floats
    by_aspect: Mapping[str, Floats]
    distance: Floats


@dataclass(frozen=True)
class Reference:
    """A summary of the training repertoires: means, variances and limits of features; no sequence, label or id.

    Attributes
    ----------
    vocabulary
        Names of the genes that are features, by field.
    features, mean, variance_between, variance_of_mean, low, high
        The F features; and of each its mean, its variance between repertoires, the variance of its mean, and the limits
        of the middle 95% of the repertoires.
    limits
        95% quantile of each statistic, by its name.
    distances
        Distances of the training repertoires, sorted. Each is measured without the repertoires of its donor, and
        without its own part in the limits.
    threshold
        Distance that 5% of training repertoires exceed.
    n_donors
        Number of donors, or of repertoires if donors are not known.
    file_properties
        Values of the properties of the files that were read, by the property's name.
    """

    vocabulary: dict[str, tuple[str, ...]]
    features: tuple[ShiftFeature, ...]
    mean: tuple[float, ...]
    variance_between: tuple[float, ...]
    variance_of_mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    limits: dict[str, float]
    distances: tuple[float, ...]
    threshold: float = field(metadata={"low": 1e-9, "high": 1e9})
    n_donors: int = field(metadata={"low": MIN_DONORS, "high": 2**31})
    file_properties: dict[str, tuple[str, ...]]

    @classmethod
    def of(
        cls, table: FeatureTable, vocabulary: Mapping[str, Sequence[str]], donors: NDArray[np.int64] | None = None
    ) -> Reference | None:
        """Return the reference of B training repertoires; None if they have fewer than `MIN_DONORS` donors.

        `vocabulary` has the names of the V and J genes whose shares are features of the table. `donors` is the index of
        each repertoire's donor, (B,); None: each repertoire has its own donor.
        """
        donor_of = np.arange(len(table)) if donors is None else np.unique(donors, return_inverse=True)[1]
        n_donors = len(np.unique(donor_of))
        if n_donors < MIN_DONORS:
            return None
        sums = _Sums.of(table)
        statistics = _compute_statistics(_compute_deviations_from_others(table, donor_of, sums), table.features)
        limits = {
            name: max(float(np.quantile(values, 1 - SHARE_BEYOND)), _MIN_LIMIT) for name, values in statistics.items()
        }
        relative_statistics = [values / _compute_limits_of_others(values) for values in statistics.values()]
        distances = np.sort(np.max(relative_statistics, axis=0))
        moments = sums.compute_moments()
        low, high = _compute_usual_range(table.values)
        return cls(
            {name: tuple(genes) for name, genes in vocabulary.items()},
            table.features,
            mean=tuple(moments.mean.tolist()),
            variance_between=tuple(moments.variance_between.tolist()),
            variance_of_mean=tuple(moments.variance_of_mean.tolist()),
            low=tuple(low.tolist()),
            high=tuple(high.tolist()),
            limits=limits,
            distances=tuple(distances.tolist()),
            threshold=compute_threshold(distances, n_donors),
            n_donors=n_donors,
            file_properties={name: tuple(sorted(set(texts))) for name, texts in table.file_properties.items()},
        )

    def compute_deviations(self, table: FeatureTable) -> Deviations:
        """Return the deviations of repertoires, whose features were computed with the vocabulary of this reference."""
        assert table.features == self.features
        moments = _Moments(np.array(self.mean), np.array(self.variance_between), np.array(self.variance_of_mean))
        z = _compute_deviations(table.values, table.sampling_variance, moments, self.features)
        statistics = _compute_statistics(z, self.features)
        by_aspect: dict[str, Floats] = {}
        for name, values in statistics.items():
            aspect, ratio = name.partition(":")[0], values / self.limits[name]
            by_aspect[aspect] = np.maximum(by_aspect.get(aspect, ratio), ratio)
        return Deviations(z, by_aspect, np.max(list(by_aspect.values()), axis=0))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `shift.json`."""
        content = {_NAMES_IN_FILE.get(name, name): value for name, value in asdict(self).items()}
        return {"format": _FORMAT, "version": _VERSION, **content}


_NAMES_IN_FILE = {
    "mean": "centre",
    "variance_between": "spread",
    "variance_of_mean": "error",
    "threshold": "level",
    "file_properties": "read_by",
}
"""Names in `shift.json` of the attributes of `Reference` that are called otherwise there."""


@dataclass(frozen=True)
class _StoredReference:
    """The content of `shift.json`; see `Reference` and `_NAMES_IN_FILE`."""

    vocabulary: dict[str, tuple[str, ...]]
    features: tuple[ShiftFeature, ...]
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    error: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    limits: dict[str, float]
    distances: tuple[float, ...]
    level: float = field(metadata={"low": 1e-9, "high": 1e9})
    n_donors: int = field(metadata={"low": MIN_DONORS, "high": 2**31})
    read_by: dict[str, tuple[str, ...]]

    def to_reference(self) -> Reference:
        return Reference(
            **{field.name: getattr(self, _NAMES_IN_FILE.get(field.name, field.name)) for field in fields(Reference)}
        )


class _Moments(NamedTuple):
    """The mean of each feature, the variance between repertoires, and the variance of the mean, (F,) each."""

    mean: Floats
    variance_between: Floats
    variance_of_mean: Floats


@dataclass(frozen=True)
class _Sums:
    """Sums over repertoires, (F,) each: their number, values minus `origin`, squares of these, sampling variances."""

    n: Floats
    values: Floats
    squares: Floats
    sampling_variance: Floats
    origin: Floats

    @classmethod
    def of(cls, table: FeatureTable) -> _Sums:
        with np.errstate(invalid="ignore"):
            is_known = ~np.isnan(table.values)
        n = is_known.sum(axis=0).astype(float)
        origin = np.where(is_known, table.values, 0).sum(axis=0) / np.maximum(n, 1)
        return cls(n, *_sum_moments(table.values, table.sampling_variance, origin), origin)

    def without(self, table: FeatureTable, rows: NDArray[np.bool_]) -> _Sums:
        """Return the sums without some repertoires, `rows` (B,)."""
        left_out = table.values[rows]
        values, squares, variances = _sum_moments(left_out, table.sampling_variance[rows], self.origin)
        n = self.n - (~np.isnan(left_out)).sum(axis=0)
        return _Sums(n, self.values - values, self.squares - squares, self.sampling_variance - variances, self.origin)

    def compute_moments(self) -> _Moments:
        """Return the moments of the features among these repertoires."""
        n = np.maximum(self.n, 1)
        mean = self.values / n
        total = np.maximum(self.squares / n - mean**2, 0) * n / np.maximum(n - 1, 1)
        sampling_variance = self.sampling_variance / n
        variance_between = np.where(self.n > 0, np.maximum(total - sampling_variance, 0), _UNKNOWN_VARIANCE)
        return _Moments(self.origin + mean, variance_between, (variance_between + sampling_variance) / n)


def _sum_moments(values: Floats, sampling_variance: Floats, origin: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the sums of values minus `origin`, of their squares and of sampling variances, (F,) each."""
    is_known = ~np.isnan(values)
    centred = np.where(is_known, values - origin, 0)
    return centred.sum(axis=0), (centred**2).sum(axis=0), np.where(is_known, sampling_variance, 0).sum(axis=0)


def _compute_deviations(
    values: Floats, sampling_variance: Floats, moments: _Moments, features: Sequence[ShiftFeature]
) -> Floats:
    """Return the deviations of repertoires from the means, in standard deviations of a new repertoire, (B, F)."""
    mean, variance_between, variance_of_mean = moments
    min_sds = np.array([MIN_SD[feature.scale] for feature in features])
    return np.asarray((values - mean) / np.sqrt(variance_between + variance_of_mean + sampling_variance + min_sds**2))


def _compute_deviations_from_others(table: FeatureTable, donor_of: NDArray[np.int64], sums: _Sums) -> Floats:
    """Return the deviations of repertoires from those of all other donors, (B, F).

    `donor_of` is the index of each repertoire's donor, (B,), and `sums` are those of all repertoires.
    """
    z = np.empty_like(table.values)
    for donor in range(int(donor_of.max()) + 1):
        rows = donor_of == donor
        moments = sums.without(table, rows).compute_moments()
        z[rows] = _compute_deviations(table.values[rows], table.sampling_variance[rows], moments, table.features)
    return z


def _compute_statistics(z: Floats, features: Sequence[ShiftFeature]) -> dict[str, Floats]:
    """Return the statistics of each aspect, (B,), by their names, such as "V genes:max"."""
    values: dict[str, Floats] = {}
    deviation = np.nan_to_num(np.abs(z))  # an unknown feature does not count
    for aspect in ASPECTS:
        columns = np.flatnonzero([feature.aspect == aspect for feature in features])
        if len(columns):
            values[f"{aspect}:max"] = deviation[:, columns].max(axis=1)
        if len(columns) >= _MIN_FOR_RMS:
            values[f"{aspect}:rms"] = np.sqrt((deviation[:, columns] ** 2).mean(axis=1))
    return values


def _compute_limits_of_others(values: Floats) -> Floats:
    """Return for each value of a statistic the limit that the other values give, (B,): their quantile, interpolated."""
    ordered, rank = np.sort(values), np.argsort(np.argsort(values, kind="stable"), kind="stable")
    n_others = len(values) - 1
    position = (1 - SHARE_BEYOND) * (n_others - 1)  # of the quantile among the others in order
    below = int(position)
    above = min(below + 1, n_others - 1)
    # without a value, those of higher rank move down by one
    value_below, value_above = (ordered[index + (rank <= index)] for index in (below, above))
    limits: Floats = np.maximum(value_below + (position - below) * (value_above - value_below), _MIN_LIMIT)
    return limits


def _compute_usual_range(values: Floats) -> tuple[Floats, Floats]:
    """Return the limits of the middle 95% of each feature, (F,); 0 for a feature that no repertoire has."""
    filled = np.where(np.isnan(values).all(axis=0), 0.0, values)
    low, high = np.nanpercentile(filled, _USUAL, axis=0)
    return low, high


def compute_threshold(distances: Floats, n_donors: int) -> float:
    """Return the distance that another repertoire exceeds with a probability of 5%.

    From 39 donors on, it is a quantile of the distances: the one that one more of n exchangeable values exceeds with at
    most this probability. With fewer donors, it is the prediction limit of a log-normal distribution.
    """
    n = len(distances)
    if n_donors >= _MIN_FOR_QUANTILE:
        return float(np.sort(distances)[min(int(np.ceil((n + 1) * (1 - SHARE_BEYOND))), n) - 1])
    logs = np.log(np.maximum(distances, _SMALLEST))
    t = stats.t.ppf(1 - SHARE_BEYOND, n_donors - 1)
    return float(np.exp(logs.mean() + t * logs.std(ddof=1) * np.sqrt(1 + 1 / n_donors)))


def write_reference(folder: Path, reference: Reference) -> None:
    """Write `shift.json` into a run directory."""
    write_text(folder / REFERENCE_FILE, json.dumps(reference.to_dict()) + "\n")


def read_reference(folder: Path) -> Reference | None:
    """Read `shift.json` of a run directory; None where it does not exist, as in runs of earlier versions.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    file = folder / REFERENCE_FILE
    if not file.exists():
        return None
    content = validate(read_json(file), dict[str, Any], str(file))
    check_format((content.pop("format", None), content.pop("version", None)), _FORMAT, _VERSION, str(file))
    stored: _StoredReference = validate(content, _StoredReference, str(file))
    reference = stored.to_reference()
    _check_reference(reference, file)
    return reference


def _check_reference(reference: Reference, file: Path) -> None:
    """Refuse a reference whose parts do not fit together."""
    if set(reference.vocabulary) - {"v_call", "j_call"} or reference.features != list_features(reference.vocabulary):
        raise InputError(f"{file}: its features do not agree with its gene vocabulary")
    n = len(reference.features)
    variances = (reference.variance_between, reference.variance_of_mean)
    columns = (reference.mean, *variances, reference.low, reference.high)
    if any(len(column) != n for column in columns):
        raise InputError(f"{file}: expected {n} means, variances and limits, one for each feature")
    if min(map(min, variances)) < 0 or max(max(map(abs, column)) for column in columns) > _LARGEST:
        raise InputError(f"{file}: expected variances of at least 0, and no number beyond {_LARGEST:g}")
    names = set(_compute_statistics(np.zeros((1, n)), reference.features))
    if set(reference.limits) != names or not all(
        _MIN_LIMIT <= limit <= _LARGEST for limit in reference.limits.values()
    ):
        raise InputError(
            f"{file}: limits: expected numbers from {_MIN_LIMIT:g} to {_LARGEST:g} of {', '.join(sorted(names))}"
        )
