"""What is known of a repertoire without reading a receptor: its size, its genes, its file, its row of the sheet.

Letters: B repertoires, G genes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.checks.profile import RepertoireProfile
from deeprc.checks.sheet import is_technical
from deeprc.datasets.matching import stems
from deeprc.datasets.metadata import Metadata

__all__ = ["Feature", "file_features", "sheet_features", "size_features", "usage_features"]

Code = Literal["label-from-size", "label-from-processing", "label-from-genes", "label-from-name", "label-from-column"]

_MISSING = "(missing)"
_FEW_VALUES = 6
_MIN_SHARE = 1e-3
_HALF_A_SEQUENCE = 0.5
_DATES = {
    "%Y-%m-%d": r"\d{4}-\d{2}-\d{2}",
    "%d.%m.%Y": r"\d{1,2}\.\d{1,2}\.\d{4}",
    "%m/%d/%Y": r"\d{1,2}/\d{1,2}/\d{4}",
}


@dataclass(frozen=True)
class Feature:
    """One property of each of B repertoires.

    Attributes
    ----------
    name
        In words.
    code
        What a label that it predicts is found as.
    of_each
        (B,) numbers (NaN where missing), (B,) object of text, or (B, G) numbers that are judged together.
    """

    name: str
    code: Code
    of_each: NDArray[np.float64] | NDArray[np.object_]
    column: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether it is categories."""
        return self.of_each.dtype == object


def size_features(profiles: Sequence[RepertoireProfile]) -> list[Feature]:
    """Return how large the repertoires are, and how much of their files was kept."""
    kept = np.array([each.kept for each in profiles], float)
    totals = np.array([each.total_count for each in profiles], float)
    rows = np.array([each.report.rows_read for each in profiles], float)
    dropped = np.array([sum(each.report.dropped.values()) for each in profiles], float)
    features = [
        Feature("number of sequences", "label-from-size", np.log(kept)),
        Feature("sum of counts", "label-from-size", np.log(totals)),
        Feature("share of dropped rows", "label-from-processing", dropped / rows),
    ]
    return features if (totals != kept).any() else [features[0], features[2]]


def usage_features(profiles: Sequence[RepertoireProfile]) -> Iterator[Feature]:
    """Return the usage of V and of J genes, as log-ratios to the repertoire's mean gene."""
    for column, name in (("v_call", "V-gene usage"), ("j_call", "J-gene usage")):
        usage = [each.usage.get(column, {}) for each in profiles]
        totals = [max(sum(counts.values()), 1) for counts in usage]
        share: dict[str, float] = {}
        for counts, total in zip(usage, totals, strict=True):
            for gene, n in counts.items():
                share[gene] = share.get(gene, 0.0) + n / total / len(profiles)
        genes = sorted(gene for gene, mean in share.items() if mean >= _MIN_SHARE)
        if len(genes) > 1:
            counts_of = np.array([[counts.get(gene, 0) for gene in genes] for counts in usage], float)  # (B, G)
            logs = np.log(counts_of + _HALF_A_SEQUENCE)
            yield Feature(name, "label-from-genes", logs - logs.mean(axis=1, keepdims=True))


def file_features(profiles: Sequence[RepertoireProfile]) -> list[Feature]:
    """Return what the files tell: format, columns, names, folders; the same partition only once."""
    reports = [each.report for each in profiles]
    texts: list[tuple[str, Code, Iterable[str]]] = [
        ("file format", "label-from-processing", (each.format for each in reports)),
        ("column of the counts", "label-from-processing", (_main(each.counts_from) for each in reports)),
        ("column of the junctions", "label-from-processing", (_main(each.sequences_from) for each in reports)),
        ("packing of the file", "label-from-processing", (each.path.suffix for each in profiles)),
        ("folder", "label-from-name", (each.path.parent.name for each in profiles)),
    ]
    names = [stems(each.path.name)[-1] for each in profiles]
    if len(set(names)) < len(names):  # a file holds several
        names = [each.repertoire_id for each in profiles]
    texts.append(("letters that the file's name begins with", "label-from-name", map(_letters, names)))
    parts = [re.split(r"[\W_]+", name) for name in names]
    texts += [
        (f"part {number + 1} of the file's name", "label-from-name", [part[number] for part in parts])
        for number in range(min(map(len, parts), default=0))
    ]
    return [Feature(name, code, np.array(list(values), object)) for name, code, values in texts]


def sheet_features(sheet: Metadata, rows: Sequence[int], left_out: Iterable[str]) -> list[Feature]:
    """Return the columns of the sheet that are no ids and no file names: numbers and dates in order, else categories.

    Where numbers are missing, that they are is a feature of its own.
    """
    features = []
    for column in map(str, sheet.table.columns):
        if column in (*left_out, sheet.id_column):
            continue
        values = sheet.table[column].iloc[list(rows)].reset_index(drop=True)
        if ["" if pd.isna(value) else value for value in values] == [sheet.files[row] for row in rows]:
            continue
        code: Code = "label-from-column"
        numbers = _numbers(values)
        what = f"column {column!r}{' (technical)' if is_technical(column) else ''}"
        if numbers is None or values.nunique() <= _FEW_VALUES:
            text = np.array([_MISSING if pd.isna(value) else str(value) for value in values], object)
            features.append(Feature(what, code, text, column))
            continue
        features.append(Feature(what, code, numbers, column))
        if values.isna().any():
            given = np.array([_MISSING if missing else "given" for missing in values.isna()], object)
            features.append(Feature(f"whether column {column!r} is filled", code, given, column))
    return features


def _numbers(values: pd.Series) -> NDArray[np.float64] | None:
    """Return numbers, or days since 1970 where all are dates in one format; else None."""
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy(np.float64)
    given = values.dropna().astype(str)
    for form, pattern in _DATES.items():
        if len(given) and given.str.fullmatch(pattern).all():
            days = pd.to_datetime(values, format=form, errors="coerce")
            return np.where(days.isna(), np.nan, (days - pd.Timestamp(0)) / pd.Timedelta(days=1))
    return None


def _letters(name: str) -> str:
    found = re.match(r"[^\W\d_]*", name)
    return found[0] if found else ""


def _main(sources: Mapping[str, int]) -> str:
    return max(sources, key=lambda name: sources[name], default="")
