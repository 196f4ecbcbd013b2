"""Read the immunoSEQ Analyzer's sample overview: one row per sample, with tags about the donor in `sample_tags`.

Tags stand between commas. Both spellings that the provider has used are read, and mixtures of them, of any study:

    41 Years, Cohort 01, Cytomegalovirus -, HLA-A*24, Inferred CMV -, Male
    Age:41 Years,Biological Sex:Male,Cohort:Cohort 01,HLA MHC class I:HLA-A*24,Virus Diseases:Cytomegalovirus -
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["add_tag_columns", "is_sample_overview", "normalise_column_name"]

_logger = logging.getLogger(__name__)

_TAG_COLUMNS = ("sampletags", "samplecatalogtags")
_FIRST = ("cohort", "cmv", "age", "sex", "race", "ethnicity", "species", "hla")  # columns that come before the others
_OTHER = "other_tags"
_KEYS = {
    "age": "age",
    "biological sex": "sex",
    "sex": "sex",
    "gender": "sex",
    "cohort": "cohort",
    "racial group": "race",
    "race": "race",
    "ethnic group": "ethnicity",
    "ethnicity": "ethnicity",
    "species": "species",
}
_BARE = {  # tags without a key that say by themselves what they are
    "Male": "sex",
    "Female": "sex",
    "Human": "species",
    "Mouse": "species",
    "Caucasian": "race",
    "Asian or Pacific Islander": "race",
    "Black or African American": "race",
    "Native American or Alaska Native": "race",
    "Unknown racial group": "race",
    "Hispanic or Latino": "ethnicity",
    "Non-Hispanic or Latino": "ethnicity",
    "Unknown ethnicity": "ethnicity",
}
_SPELLINGS = {value.lower(): value for value in _BARE}
_SEXES = {"m": "Male", "f": "Female"}
_CMV = {"cytomegalovirus", "human_cytomegalovirus", "hcmv"}
_MINUS = str.maketrans("\u2212\u2013\u2014", "---")

_ALLELE = re.compile(r"(?P<inferred>inferred\s+)?HLA-(?P<allele>[A-Z]+\d*\*\d[\w:]*|[A-Z]+\d+)", re.IGNORECASE)
_AGE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>years?|yrs?|months?)?", re.IGNORECASE)
_COHORT = re.compile(r"cohort\s+0*(?P<number>\d+)", re.IGNORECASE)
_STATUS = re.compile(r"(?P<name>(?:[^+]*[^+\s-])?)\s*(?P<sign>[+-]|\b(?:sero)?(?:positive|negative))", re.IGNORECASE)
_DISEASES = re.compile(
    r"disease|infection|virus|viral|serology", re.IGNORECASE
)  # keys whose values name what is tested


class _Tag(NamedTuple):
    """The column and the value of a tag ("" if unknown), and whether a sample has only one value in this column."""

    column: str
    value: str
    single: bool = False


def is_sample_overview(columns: Iterable[str]) -> bool:
    """Return whether a sheet is an immunoSEQ sample overview by its header: `sample_name` and `sample_tags`."""
    names = {normalise_column_name(name) for name in columns}
    return "samplename" in names and not names.isdisjoint(_TAG_COLUMNS)


def add_tag_columns(
    path: Path, columns: Mapping[str, Sequence[str]], row_numbers: Sequence[int]
) -> dict[str, list[str]]:
    """Return the columns of an overview, and new columns from its tags; the tags stay as they are.

    The new columns are:

    - `cohort`, `age` (years), `sex`, `race`, `ethnicity`;
    - a column of `+` and `-` for each tested state, such as `cmv`; `inferred_cmv` is predicted by a classifier;
    - `hla` and `inferred_hla` (alleles between commas), and `hla_<allele>` for each allele of `hla`;
    - a column for each other key, and `other_tags`.

    A column that the sheet has itself is not replaced.

    Parameters
    ----------
    path
        Path of the overview, for messages.
    columns
        Cells of each column of the overview, by its name.
    row_numbers
        Numbers of the rows as a spreadsheet counts them, for messages.

    Returns
    -------
    dict
        The sheet's columns as text, then the new ones; "" is missing. If a row's tags contradict each other (`cmv` both
        + and -), the value is missing, and one warning names all such rows.
    """
    tagged = [values for name, values in columns.items() if normalise_column_name(name) in _TAG_COLUMNS]
    rows = [[_parse_tag(tag) for cell in cells for tag in _split_tags(cell)] for cells in zip(*tagged, strict=True)]
    tagged_columns = {tag.column for row in rows for tag in row}
    ordered = [name for name in _FIRST if name in tagged_columns]
    ordered += sorted(tagged_columns.difference(_FIRST, [_OTHER])) + sorted(tagged_columns.intersection([_OTHER]))
    added = {name: [_join_values(name, row) for row in rows] for name in ordered}
    _warn_of_contradictions(path, rows, row_numbers)
    existing = {normalise_column_name(name) for name in columns}
    alleles = _make_allele_columns([[tag.value for tag in row if tag.column == "hla"] for row in rows])
    added = {
        name: values for name, values in {**added, **alleles}.items() if normalise_column_name(name) not in existing
    }
    if added:
        shown = [name for name in added if name not in alleles]
        shown += [f"hla_ALLELE ({len(alleles)} alleles)"] if alleles else []
        _logger.info("%s: an immunoSEQ sample overview; columns from its tags: %s", path, ", ".join(shown))
    return {**{name: list(values) for name, values in columns.items()}, **added}


def normalise_column_name(name: str) -> str:
    """Return a column's name in lower case, without blanks and separators: `Sample Tags` and `sample_tags` are one."""
    return re.sub(r"[\W_]", "", name.lower())


def _split_tags(cell: str) -> list[str]:
    return [tag for tag in (text.strip() for text in cell.translate(_MINUS).split(",")) if tag.strip("-")]


def _parse_tag(tag: str) -> _Tag:
    """Return the column to which a tag belongs, and its value."""
    key, colon, value = (part.strip() for part in tag.partition(":"))
    bare = _ALLELE.fullmatch(tag) or not colon or not key  # HLA-A*02:01 has a colon of its own
    placed = _parse_bare_tag(tag) if bare else _parse_keyed_tag(key, value, tag)
    return placed if placed.column else _Tag(_OTHER, tag)


def _parse_bare_tag(tag: str) -> _Tag:
    """Return the column and the value of a tag without a key, as older overviews have it."""
    if allele := _ALLELE.fullmatch(tag):
        return _Tag("inferred_hla" if allele["inferred"] else "hla", allele["allele"])
    if (age := _AGE.fullmatch(tag)) and (age["unit"] or "").lower().startswith("y"):  # months may be a time point
        return _Tag("age", _parse_age(age), single=True)
    if cohort := _COHORT.fullmatch(tag):
        return _Tag("cohort", cohort["number"])
    if value := _SPELLINGS.get(tag.lower()):
        return _Tag(_BARE[value], _drop_unknown(value), single=_BARE[value] == "sex")
    if (status := _STATUS.fullmatch(tag)) and status["name"]:
        return _Tag(_name_status_column(status["name"]), _parse_sign(status), single=True)
    return _Tag(_OTHER, tag)


def _parse_keyed_tag(key: str, value: str, tag: str) -> _Tag:
    """Return the column and the value of a tag `Key:Value`, as newer overviews have it."""
    column = _KEYS.get(key.lower())
    if column == "age":
        age = _AGE.fullmatch(value)
        return _Tag("age", _parse_age(age), single=True) if age or not _drop_unknown(value) else _Tag(_OTHER, tag)
    if column == "sex":
        return _Tag("sex", _SEXES.get(value.lower(), _drop_unknown(_normalise_spelling(value))), single=True)
    if column == "cohort":
        cohort = _COHORT.fullmatch(value)
        return _Tag("cohort", cohort["number"] if cohort else _drop_unknown(value))
    if column is not None:
        return _Tag(column, _drop_unknown(_normalise_spelling(value)))
    if re.search(r"\bhla\b", key, re.IGNORECASE):
        allele = _ALLELE.fullmatch(value)
        inferred = "inferred" in key.lower()
        return _Tag("inferred_hla" if inferred else "hla", allele["allele"] if allele else _drop_unknown(value))
    status = _STATUS.fullmatch(value)
    return _parse_status_tag(key, status) if status else _Tag(_convert_to_snake_case(key), _drop_unknown(value))


def _parse_status_tag(key: str, status: re.Match[str]) -> _Tag:
    """Return the column and the value of a tag `Key:Value` whose value ends in a sign."""
    key_column, value_column = _name_status_column(key), _name_status_column(status["name"])
    if value_column and _DISEASES.search(key) and "inferred" not in key.lower():
        # Virus Diseases:Cytomegalovirus -
        return _Tag(value_column, _parse_sign(status), single=True)
    if key_column.startswith(value_column):
        # CMV:+, CMV status:CMV +, Inferred CMV status (cross-validation): Inferred CMV -
        return _Tag(key_column, _parse_sign(status), single=True)
    # Cell type:CD4+
    return _Tag(_convert_to_snake_case(key), status[0])


def _normalise_spelling(value: str) -> str:
    """Return a value in the provider's most frequent spelling: `male` and `Male` are one class."""
    return _SPELLINGS.get(value.lower(), value)


def _drop_unknown(value: str) -> str:
    return "" if value.lower().startswith("unknown") else value


def _parse_sign(status: re.Match[str]) -> str:
    return "+" if status["sign"].lower().endswith(("+", "positive")) else "-"


def _parse_age(age: re.Match[str] | None) -> str:
    if age is None:
        return ""
    months = (age["unit"] or "").lower().startswith("month")
    return f"{float(age['number']) / (12 if months else 1):g}"


def _convert_to_snake_case(name: str) -> str:
    return re.sub(r"\W+", "_", name.lower()).strip("_")


def _name_status_column(name: str) -> str:
    """Return the column of a tested state: `Cytomegalovirus` and `CMV status` are `cmv`."""
    column = _convert_to_snake_case(re.sub(r"\b(?:sero)?status\b", " ", name, flags=re.IGNORECASE))
    inferred = "inferred_" if column.startswith("inferred_") else ""
    state = column.removeprefix(inferred)
    return inferred + ("cmv" if state in _CMV else state)


def _list_values(column: str, row: Iterable[_Tag]) -> list[str]:
    """Return a row's different values of a column, in their order."""
    return list(dict.fromkeys(tag.value for tag in row if tag.column == column and tag.value))


def _has_contradictions(column: str, row: Sequence[_Tag]) -> bool:
    single = any(tag.single for tag in row if tag.column == column)
    return single and len(_list_values(column, row)) > 1


def _join_values(column: str, row: Sequence[_Tag]) -> str:
    return "" if _has_contradictions(column, row) else ", ".join(_list_values(column, row))


def _warn_of_contradictions(path: Path, rows: Sequence[Sequence[_Tag]], row_numbers: Sequence[int]) -> None:
    """Log a warning for samples with two different values in a column that allows one."""
    contradictions = [
        f"row {number} ({column}: {', '.join(_list_values(column, row))})"
        for number, row in zip(row_numbers, rows, strict=True)
        for column in dict.fromkeys(tag.column for tag in row)
        if _has_contradictions(column, row)
    ]
    if contradictions:
        more = f" and {len(contradictions) - 10} more" if len(contradictions) > 10 else ""
        _logger.warning(
            "%s: tags that contradict each other count as missing: %s%s", path, "; ".join(contradictions[:10]), more
        )


def _make_allele_columns(typed: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Return, for every allele, whether each donor carries it: 1, 0, or "" if the donor's gene was not typed."""
    alleles = sorted({allele for row in typed for allele in row if allele})
    return {f"hla_{allele}": [_carries_allele(allele, row) for row in typed] for allele in alleles}


def _carries_allele(allele: str, typed: Sequence[str]) -> str:
    """Return whether a donor carries an allele; A*02:01 is also an A*02, and an A*02 may be an A*02:01."""
    if any(name == allele or name.startswith(f"{allele}:") for name in typed):
        return "1"
    may_be = any(allele.startswith(f"{name}:") for name in typed)
    return "0" if not may_be and _get_gene(allele) in map(_get_gene, typed) else ""


def _get_gene(allele: str) -> str:
    return allele.partition("*")[0] if "*" in allele else allele.rstrip("0123456789")
