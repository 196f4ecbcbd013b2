"""Join several containers into one: `deeprc join` as a function. Each part may be made on another machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd

from deeprc.datasets.cleaning import Cleaning
from deeprc.datasets.container import Container
from deeprc.datasets.container_header import refuse_other_file
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.linked_container import open_parts
from deeprc.datasets.linked_writer import write_linked
from deeprc.datasets.provenance import check_values
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.datasets.sheet_values import has_large_integers
from deeprc.documents import CONTROL_CHARACTERS, abbreviate
from deeprc.errors import InputError, join_names
from deeprc.files import FileStamp, name_write_errors

__all__ = ["Joining", "join"]

_logger = logging.getLogger(__name__)
_MAX_SHOWN_LETTERS, _MAX_SHOWN_CHAINS = 60, 8
_OPTIONS = tuple(field.name for field in fields(Cleaning))


@dataclass(frozen=True)
class Joining:
    """The result of joining containers.

    Attributes
    ----------
    path
        The container that holds all repertoires.
    n_parts
        Number of the containers that were joined.
    n_repertoires
        Number of all repertoires.
    linked
        Whether the container names the others, whose sequences it needs.
    """

    path: Path
    n_parts: int
    n_repertoires: int
    linked: bool = False

    def to_text(self) -> str:
        """Return the result as text."""
        kept = "; it reads these containers where they are: keep them" if self.linked else ""
        return f"{self.n_repertoires:,} repertoires of {self.n_parts:,} containers\nWrote {self.path}{kept}"


def join(
    containers: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str], *, link: bool = False
) -> Joining:
    """Write one container with the repertoires of several, container after container.

    Sequences are copied some at a time, so memory does not grow with the cohort; or they stay where they are, and the
    new container names the others. If only some containers have a metadata column or genes, the others' values are
    missing or unknown, with a warning. Witnesses are kept if all containers have the same simulated signals.

    Parameters
    ----------
    containers
        Two or more containers of the same chain that were preprocessed with the same options.
    output
        Path of the container to write; another container there is replaced, unless it is one of those to join.
    link
        Whether to write a small container that names the others, by their paths from its folder, sizes and checksums.
        They must lie in this folder or below it, and stay there unchanged. Every result is that of the copy.

    Raises
    ------
    InputError
        If a container cannot be used or does not belong to those before; nothing is written or changed then.
    """
    paths, target = [Path(path) for path in containers], Path(output)
    _check_paths(paths, target)
    parts = open_parts(paths, str(target))
    _check_parts_fit(parts)
    metadata = _join_metadata(parts)
    recipe = _find_common_recipe(parts)
    _warn_of_unknown_genes(parts)
    names = ", ".join(map(_get_part_name, parts))
    source, preprocessing = f"{len(parts)} containers: {names}", _join_reports(parts)
    if link:
        write_linked(target, parts, metadata, source=source, preprocessing=preprocessing, simulation=recipe)
        return Joining(target, len(parts), len(metadata), linked=True)
    with name_write_errors(target), ContainerWriter(target) as writer:
        for part in parts:
            for row, name in enumerate(part.repertoire_ids):
                start, stop = part.repertoire_offsets[row : row + 2].tolist()
                sequences = part.sequences.slice(start, stop)
                writer.append(str(name), sequences if recipe is not None else replace(sequences, witness=None))
            if FileStamp.of(part.path) != part.stamp:
                raise InputError(f"{part.path}: was changed while it was read; try again")
        writer.finish(metadata, source=source, preprocessing=preprocessing, simulation=recipe)
    return Joining(target, len(parts), len(metadata))


def _get_part_name(part: Container) -> str:
    """Return the name of a part's file as text that a container can hold: a name may be any bytes."""
    return CONTROL_CHARACTERS.sub("?", part.path.name).encode(errors="replace").decode()


def _check_paths(paths: Sequence[Path], target: Path) -> None:
    """Raise InputError unless at least two different containers are given, and the target is a different file."""
    if len(paths) < 2:
        raise InputError(f"expected at least two containers, found {len(paths)}")
    real_paths = [Path(os.path.realpath(path)) for path in paths]
    for position, real_path in enumerate(real_paths):
        if real_path in real_paths[:position]:
            raise InputError(f"{paths[position]}: is given twice")
    if Path(os.path.realpath(target)) in real_paths:
        raise InputError(f"{target}: is one of the containers to join; choose another `output`")
    refuse_other_file(target)


def _check_parts_fit(parts: Sequence[Container]) -> None:
    """Raise InputError if an id repeats, or if the parts have different chains or were cleaned differently."""
    owner: dict[str, Path] = {}
    for part in parts:
        for name in part.repertoire_ids:
            if name in owner:
                raise InputError(f"{part.path}: repertoire {str(name)!r} is also in {owner[name]}")
            owner[name] = part.path
    with_chains = [(part, chains) for part in parts if (chains := _read_chains(part.preprocessing))]
    for part, chains in with_chains:
        if chains != with_chains[0][1]:
            expected, found = (
                join_names([*map(_format_value, sorted(names))], _MAX_SHOWN_CHAINS)
                for names in (with_chains[0][1], chains)
            )
            raise InputError(
                f"{part.path}: expected sequences of {expected}, as in {with_chains[0][0].path}, found {found}"
            )
    first, *others = [part for part in parts if part.preprocessing] or [parts[0]]
    for part in others:
        for option in _OPTIONS:
            first_value, part_value = (container.preprocessing.get(option) for container in (first, part))
            if option != "locus" and first_value != part_value:
                raise InputError(
                    f"{part.path}: was preprocessed with {option}={_format_value(part_value)}, {first.path} with "
                    f"{_format_value(first_value)}; "
                    "run `deeprc preprocess` again"
                )


def _format_value(value: Any) -> str:
    """Return a value of a report for a message; it may be anything, since the container may come from anyone."""
    text = str(value)
    return text if len(text) <= _MAX_SHOWN_LETTERS and text.isprintable() else abbreviate(value)


def _read_chains(report: Mapping[str, Any]) -> set[str]:
    """Return the chains of a container's sequences, as far as its report knows them."""
    if isinstance(locus := report.get("locus"), str):
        return {locus}
    loci = report.get("loci")
    return {str(name) for name, n in loci.items() if name and n} if isinstance(loci, dict) else set()


def _join_metadata(parts: Sequence[Container]) -> pd.DataFrame:
    """Return the metadata of all parts, with all columns that one of them has."""
    names = list(dict.fromkeys(str(name) for part in parts for name in part.metadata.columns))
    for part in parts:
        missing = [name for name in names if name not in part.metadata]
        if missing:
            columns = f"metadata column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
            _logger.warning("%s: has no %s: the values of its repertoires are missing", part.path, columns)
    return pd.DataFrame({name: _join_column(name, parts) for name in names})


def _join_column(name: str, parts: Sequence[Container]) -> pd.Series:
    """Return a column of all parts together; it must have one type in all parts that have any value."""
    columns = [part.metadata.get(name, pd.Series([None] * len(part.metadata), dtype=object)) for part in parts]
    kinds = [
        None if values.isna().all() else "numbers" if pd.api.types.is_numeric_dtype(values) else "text"
        for values in columns
    ]
    filled = [position for position, kind in enumerate(kinds) if kind is not None]
    for position in filled:
        if kinds[position] != (expected := kinds[filled[0]]):
            raise InputError(
                f"{parts[position].path}: metadata column {name!r}: expected {expected}, as in "
                f"{parts[filled[0]].path}, found {kinds[position]}"
            )
    values = [value for column in columns for value in column]
    if filled and kinds[filled[0]] == "text":
        return pd.Series([None if pd.isna(value) else value for value in values], dtype=object)
    if all(column.dtype.kind in "iu" for column in columns):
        return pd.concat([*columns], ignore_index=True)
    if any(map(has_large_integers, columns)):
        return pd.Series([None if pd.isna(value) else _format_number(value) for value in values], dtype=object)
    return pd.Series([float("nan") if pd.isna(value) else value for value in values], dtype=float)


def _format_number(value: float) -> str:
    """Return a number as text; a whole one as an integer, since missing values alone can have made it a float."""
    return str(int(value) if value == value // 1 else value)


def _find_common_recipe(parts: Sequence[Container]) -> dict[str, Any] | None:
    """Return the recipe of the first part if all parts were simulated with the same signals; otherwise None."""
    recipe = parts[0].simulation
    same = [
        part.simulation is not None and part.simulation["signals"] == (recipe or {}).get("signals") for part in parts
    ]
    return recipe if all(same) else None


def _warn_of_unknown_genes(parts: Sequence[Container]) -> None:
    for field in GENE_FIELDS:
        if any(field in part.sequences.genes for part in parts):
            for part in parts:
                if field not in part.sequences.genes:
                    _logger.warning("%s: has no %s: its genes are unknown", part.path, field)


def _join_reports(parts: Sequence[Container]) -> dict[str, Any]:
    """Return the report of preprocessing of all parts together, if each part has one, and the list of the parts."""
    joined = [
        {"container": _get_part_name(part), "n_repertoires": len(part.repertoire_ids), "source": part.source}
        for part in parts
    ]
    reports = [part.preprocessing for part in parts]
    if not all("rows_read" in report for report in reports):
        return {"joined": joined}
    counted = [{name: value for name, value in report.items() if name not in _OPTIONS} for report in reports]
    options = {name: reports[0].get(name) for name in _OPTIONS}
    if any(report.get("locus") != options["locus"] for report in reports):
        options["locus"] = None
    total = reduce(_add_values, counted)
    try:
        check_values(total, "preprocessing")
    except ValueError as error:
        raise InputError(f"the sums of the containers' numbers are too large: {error}") from error
    return {**options, **total, "joined": [*total.get("joined", []), *joined]}


def _add_values(first: Any, second: Any) -> Any:
    """Add two values of reports: numbers are added, lists are joined, and mappings are added name by name."""
    if isinstance(first, dict) and isinstance(second, dict):
        both = {name: _add_values(first[name], second[name]) for name in first if name in second}
        return {**first, **second, **both}
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    return first + second if isinstance(first, int) and isinstance(second, int) else second
