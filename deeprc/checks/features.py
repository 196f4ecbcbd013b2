"""The properties of a repertoire that need no receptor sequence: size, gene usage, file, row of the sheet.

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

from deeprc.baselines.gene_usage import compute_centred_log_ratios
from deeprc.checks.profile import RepertoireProfile
from deeprc.checks.sheet import SheetDonors, is_technical
from deeprc.datasets.categories import is_category
from deeprc.datasets.matching import list_stems
from deeprc.datasets.metadata import Metadata
from deeprc.evaluation.donors import DonorColumn

__all__ = ["Feature", "make_file_features", "make_sheet_features", "make_size_features", "make_usage_features"]

Code = Literal["label-from-size", "label-from-processing", "label-from-genes", "label-from-name", "label-from-column"]

_MISSING = "(missing)"
_MIN_SHARE = 1e-3  # smallest share of a gene that is used, in the mean over repertoires
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
        The name of the property, in words.
    code
        The code of the finding if the property predicts a label.
    by_repertoire
        The value of each repertoire: numbers (B,), NaN where missing; texts (B,) of dtype object; or several numbers
        that are tested together (B, G).
    column
        The column of the sheet that holds the property, if any.
    """

    name: str
    code: Code
    by_repertoire: NDArray[np.float64] | NDArray[np.object_]
    column: str | None = None

    @property
    def is_categorical(self) -> bool:
        """Whether the values are categories."""
        return self.by_repertoire.dtype == object


def make_size_features(profiles: Sequence[RepertoireProfile]) -> list[Feature]:
    """Return the sizes of the repertoires, and the share of rows that were dropped."""
    kept = np.array([profile.kept for profile in profiles], float)
    totals = np.array([profile.total_count for profile in profiles], float)
    rows = np.array([profile.report.rows_of_chain for profile in profiles], float)
    dropped = np.array([profile.report.dropped_of_chain for profile in profiles], float)
    features = [
        Feature("number of sequences", "label-from-size", np.log(kept)),
        Feature("sum of counts", "label-from-size", np.log(totals)),
        Feature("share of dropped rows", "label-from-processing", dropped / rows),
    ]
    return features if (totals != kept).any() else [features[0], features[2]]


def make_usage_features(profiles: Sequence[RepertoireProfile]) -> Iterator[Feature]:
    """Yield the usage of V genes and of J genes, as log-ratios to the mean over genes, (B, G)."""
    for column, name in (("v_call", "V gene usage"), ("j_call", "J gene usage")):
        usage = [profile.usage.get(column, {}) for profile in profiles]
        totals = [max(sum(counts.values()), 1) for counts in usage]
        share: dict[str, float] = {}
        for counts, total in zip(usage, totals, strict=True):
            for gene, n in counts.items():
                share[gene] = share.get(gene, 0.0) + n / total / len(profiles)
        genes = sorted(gene for gene, mean in share.items() if mean >= _MIN_SHARE)
        if len(genes) > 1:
            counts_of = np.array([[counts.get(gene, 0) for gene in genes] for counts in usage], float)  # (B, G)
            yield Feature(name, "label-from-genes", compute_centred_log_ratios(counts_of))


def make_file_features(profiles: Sequence[RepertoireProfile]) -> list[Feature]:
    """Return the format, columns, endings, names and folders of the files."""
    reports = [profile.report for profile in profiles]
    texts: list[tuple[str, Code, Iterable[str]]] = [
        ("file format", "label-from-processing", (report.format for report in reports)),
        ("count column", "label-from-processing", (_find_main_source(report.counts_from) for report in reports)),
        (
            "junction column",
            "label-from-processing",
            (_find_main_source(report.sequences_from) for report in reports),
        ),
        ("ending of the file name", "label-from-processing", (profile.path.suffix for profile in profiles)),
        ("folder", "label-from-name", (profile.path.parent.name for profile in profiles)),
    ]
    names = [list_stems(profile.path.name)[-1] for profile in profiles]
    if len(set(names)) < len(names):  # a file holds several repertoires
        names = [profile.repertoire_id for profile in profiles]
    texts.append(("beginning of the file name", "label-from-name", map(_extract_leading_letters, names)))
    parts = [re.split(r"[\W_]+", name) for name in names]
    texts += [
        (f"part {index + 1} of the file name", "label-from-name", [part[index] for part in parts])
        for index in range(min(map(len, parts), default=0))
    ]
    return [Feature(name, code, np.array(list(values), object)) for name, code, values in texts]


def make_sheet_features(sheet: Metadata, rows: Sequence[int], donors: SheetDonors) -> list[Feature]:
    """Return the columns of the sheet except ids, donors and file names.

    Measurements and dates are numbers, the others texts. If numbers of a column are missing, a feature says which.
    """
    features, donor_of = [], DonorColumn.choose(sheet.table, donors.column).index_if_known()
    for column in map(str, sheet.table.columns):
        if column in (*donors.columns, sheet.id_column):
            continue
        values = sheet.table[column].iloc[list(rows)].reset_index(drop=True)
        if ["" if pd.isna(value) else value for value in values] == [sheet.files[row] for row in rows]:
            continue
        code: Code = "label-from-column"
        numbers = _parse_numbers(values)
        name = f"column {column!r}{' (technical)' if is_technical(column) else ''}"
        if numbers is None or is_category(pd.Series(_parse_numbers(sheet.table[column])), donor_of):
            text = np.array([_MISSING if pd.isna(value) else str(value) for value in values], object)
            features.append(Feature(name, code, text, column))
            continue
        features.append(Feature(name, code, numbers, column))
        if values.isna().any():
            given = np.array([_MISSING if missing else "given" for missing in values.isna()], object)
            features.append(Feature(f"whether column {column!r} has a value", code, given, column))
    return features


def _parse_numbers(values: pd.Series) -> NDArray[np.float64] | None:
    """Return the numbers of a column, or days since 1970 if all its values are dates in one format; else None."""
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy(np.float64)
    given = values.dropna().astype(str)
    for form, pattern in _DATES.items():
        if len(given) and given.str.fullmatch(pattern).all():
            dates = pd.to_datetime(values, format=form, errors="coerce").to_numpy("datetime64[s]")  # of any year
            return np.asarray((dates - np.datetime64(0, "s")) / np.timedelta64(1, "D"))
    return None


def _extract_leading_letters(name: str) -> str:
    match = re.match(r"[^\W\d_]*", name)
    return match[0] if match else ""


def _find_main_source(sources: Mapping[str, int]) -> str:
    return max(sources, key=lambda name: sources[name], default="")
