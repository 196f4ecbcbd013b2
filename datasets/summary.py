"""Summarise a container as a JSON-able dictionary and as text, which `deeprc info` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.categories import is_category
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.linked_container import LinkedContainer, SequenceContainer
from deeprc.datasets.report import describe_counts, format_table
from deeprc.datasets.sequences import Sequences

__all__ = ["render_summary", "summarise"]

_CHUNK = 1 << 20
_LARGE = 1e300  # sums of larger numbers may exceed the largest float
_MAX_CLASSES = 12  # a column with more different texts has no classes
_EXAMPLES = 3  # of the texts of a column without classes


def summarise(dataset: RepertoireDataset) -> dict[str, Any]:
    """Describe a dataset: repertoires, sequences, lengths, counts, genes, metadata, and what was dropped.

    The per-sequence datasets are read in chunks, so memory does not grow with the cohort. `preprocessing` is
    about the whole container, the rest about the given view of it.
    """
    container = dataset.container
    parts = [str(store.path) for store in container.stores] if isinstance(container, LinkedContainer) else []
    return {
        "path": str(container.path),
        "created_by": container.created_by,
        "source": container.source,
        "parts": parts if len(parts) > 1 else [],
        "repertoires": len(dataset),
        "sequences": _summarise_sequences(dataset.n_sequences),
        "lengths": _summarise_lengths(dataset),
        "counts": _summarise_counts(dataset),
        "v_call": _summarise_genes(dataset, "v_call"),
        "j_call": _summarise_genes(dataset, "j_call"),
        "witnesses": _count_witnesses(dataset),
        "metadata": {str(name): _summarise_column(values) for name, values in dataset.metadata.items()},
        "preprocessing": {name: value for name, value in container.preprocessing.items() if name != "repertoires"},
        "simulation": container.simulation,
    }


def render_summary(summary: Mapping[str, Any]) -> str:
    """Return the result of `summarise` as text."""
    sequences, lengths, counts = summary["sequences"], summary["lengths"], summary["counts"]
    per = ", ".join(f"{name} {sequences[name]:,.1f}".removesuffix(".0") for name in ("min", "median", "max"))
    rows = [
        ["container", summary["path"]],
        ["created by", f"{_shorten_text(summary['created_by'])} from {_shorten_text(summary['source'], 500)}"],
        *([["parts", f"{len(summary['parts']):,} containers, read in place"]] if summary["parts"] else []),
        ["repertoires", f"{summary['repertoires']:,}"],
        ["sequences", f"{sequences['total']:,} (per repertoire: {per})"],
        ["lengths", f"{lengths['min']} to {lengths['max']}, mean {lengths['mean']:.1f}"],
        ["counts", f"total {counts['total']:,}, max {counts['max']:,}, {counts['singletons']:.1%} are 1"],
    ]
    for name in ("v_call", "j_call"):
        genes = summary[name]
        rows.append([name, f"{genes['genes']} names, known for {genes['known']:.1%}" if genes else "none"])
    if summary["witnesses"] is not None:
        rows.append(["witnesses", f"{summary['witnesses']:,}"])
    lines = [format_table(rows), "", "metadata"]
    lines.append(
        format_table(
            [["  " + _shorten_text(name), *_describe_column(column)] for name, column in summary["metadata"].items()]
        )
    )
    if summary["simulation"] is not None:
        return "\n".join([*lines, "", *_describe_simulation(summary["simulation"])])
    return "\n".join([*lines, "", *_describe_preprocessing(summary["preprocessing"])])


def _shorten_text(text: str, max_letters: int = 60) -> str:
    return text if len(text) <= max_letters else f"{text[:max_letters]}..."


def _iterate_chunks(dataset: RepertoireDataset) -> Iterator[tuple[Sequences, slice]]:
    """Yield the store of each repertoire, and ranges of its sequences of at most `_CHUNK`."""
    for repertoire in dataset:
        for start in range(repertoire.start, repertoire.stop, _CHUNK):
            yield repertoire.container.sequences, slice(start, min(start + _CHUNK, repertoire.stop))


def _summarise_sequences(n_sequences: NDArray[np.int64]) -> dict[str, Any]:
    if not len(n_sequences):
        return {"total": 0, "min": 0, "median": 0.0, "max": 0}
    return {
        "total": int(n_sequences.sum()),
        "min": int(n_sequences.min()),
        "median": float(np.median(n_sequences)),
        "max": int(n_sequences.max()),
    }


def _summarise_lengths(dataset: RepertoireDataset) -> dict[str, Any]:
    n, total, lowest, highest = 0, 0, None, 0
    for sequences, rows in _iterate_chunks(dataset):
        lengths = np.diff(sequences.offsets[rows.start : rows.stop + 1])
        n, total = n + len(lengths), total + int(lengths.sum())
        lowest = int(lengths.min()) if lowest is None else min(lowest, int(lengths.min()))
        highest = max(highest, int(lengths.max()))
    return {"min": lowest or 0, "mean": total / n if n else 0.0, "max": highest}


def _summarise_counts(dataset: RepertoireDataset) -> dict[str, Any]:
    n, total, singletons, highest = 0, 0, 0, 0
    for sequences, rows in _iterate_chunks(dataset):
        counts = sequences.counts[rows]
        n, total = n + len(counts), total + int(counts.sum(dtype=np.uint64))
        singletons, highest = singletons + int(np.sum(counts == 1)), max(highest, int(counts.max()))
    return {"total": total, "singletons": singletons / n if n else 0.0, "max": highest}


def _summarise_genes(dataset: RepertoireDataset, field: str) -> dict[str, Any] | None:
    container = dataset.container
    if isinstance(container, SequenceContainer) and field not in container.gene_names:
        return None
    seen: Counter[str] = Counter()
    for sequences, rows in _iterate_chunks(dataset):
        if field not in sequences.genes:  # of a simulated cohort
            return None
        calls = sequences.genes[field]
        seen.update(dict(zip(calls.vocabulary, calls.take(rows).count_occurrences().tolist(), strict=True)))
    n_known = sum(n for name, n in seen.items() if name)
    return {"genes": sum(bool(name) and n > 0 for name, n in seen.items()), "known": n_known / max(seen.total(), 1)}


def _count_witnesses(dataset: RepertoireDataset) -> int | None:
    if not dataset.container.has_witness:
        return None
    return sum(int(np.count_nonzero(repertoire.witness)) for repertoire in dataset if repertoire.witness is not None)


def _summarise_column(values: pd.Series) -> dict[str, Any]:
    """Describe a metadata column: its classes, the range of its numbers, or examples of its texts.

    Texts are classes if there are few different ones, and some repeat (names of samples do not). Numbers are classes if
    they are categories, see `is_category`.
    """
    given = values.dropna()
    numeric = pd.api.types.is_numeric_dtype(values)
    kind = "text" if not numeric else "integer" if pd.api.types.is_integer_dtype(values) else "number"
    column: dict[str, Any] = {
        "type": kind,
        "missing": len(values) - len(given),
        "distinct": int(given.nunique()),
    }
    if is_category(values) if numeric else _are_classes(given, column["distinct"]):
        classes = given.value_counts()
        order = sorted(classes.index, key=lambda value: (-classes[value], value))
        column["classes"] = {}
        for value in order:
            name = f"{value:.12g}" if kind == "number" else str(value)
            column["classes"][name] = column["classes"].get(name, 0) + int(classes[value])
    elif numeric:
        column |= _summarise_numbers(given)
    else:
        column["examples"] = [str(text) for text in given.unique()[:_EXAMPLES]]
    return column


def _are_classes(texts: pd.Series[Any], distinct: int) -> bool:
    return distinct <= _EXAMPLES or distinct <= min(_MAX_CLASSES, len(texts) - 1)


def _summarise_numbers(given: pd.Series) -> dict[str, Any]:
    """Return the range and the mean of the finite numbers, and how many others there are; JSON has no infinity."""
    finite = given[np.isfinite(given)]
    summary: dict[str, Any] = {}
    if len(finite):
        numbers = finite.to_numpy(np.float64)
        mean = float((numbers / len(numbers)).sum() if np.abs(numbers).max() > _LARGE else numbers.mean())
        summary = {"min": finite.min().item(), "mean": mean, "max": finite.max().item()}
    return summary | ({"infinite": len(given) - len(finite)} if len(finite) < len(given) else {})


def _describe_column(column: Mapping[str, Any]) -> list[str]:
    others = [f"{column[name]:,} {name}" for name in ("infinite", "missing") if column.get(name)]
    if "classes" in column:
        values = ", ".join(f"{_shorten_text(name)}: {n:,}" for name, n in column["classes"].items())
    elif "min" in column:
        values = f"{column['min']:g} to {column['max']:g}, mean {column['mean']:.4g}"
    else:
        texts = [_shorten_text(text) for text in column["examples"]]
        values = (
            f"{column['distinct']:,} different values ({', '.join(texts)} and {column['distinct'] - len(texts):,} more)"
        )
    return [column["type"], values, ", ".join(others)]


def _describe_simulation(recipe: Mapping[str, Any]) -> list[str]:
    """Return lines that say which motifs were implanted into which background; the JSON output has the whole recipe."""
    lines = ["simulation", f"  background  {recipe['background']['kind']}", f"  seed        {recipe['seed']}"]
    return lines + [f"  {_shorten_text(signal['name']):<11} {_describe_signal(signal)}" for signal in recipe["signals"]]


def _describe_signal(signal: Mapping[str, Any]) -> str:
    kind = signal.get("kind", "motifs")
    if kind == "carriers":
        return f"clones in the repertoires that {_shorten_text(signal['path'], 500)} names"
    where = f"{signal['status']} repertoires"
    if kind == "clones":
        n, burden, other = signal["n_clones"], signal["burden"], signal["other_burden"]
        return f"on average {burden:g} of {n:,} clones in {where}, {other:g} in others"
    if kind == "diffuse":
        return f"preference for {signal['k']}-mers and genes in {where}, strength {signal['strength']:g}"
    motifs = ", ".join(motif["pattern"] for motif in signal["motifs"])
    return f"{_shorten_text(motifs, 500)} in {100 * signal['witness_rate']:g}% of the sequences of {where}"


def _describe_preprocessing(report: Mapping[str, Any]) -> list[str]:
    """Return lines about the rows that were read, kept, merged and dropped, and what was left out."""
    if "rows_read" not in report:
        return ["preprocessing: nothing recorded"]
    dropped = {reason: n for reason, n in report["dropped"].items() if n}
    lines = ["preprocessing"]
    rows: list[list[str | int]] = [["  rows read", report["rows_read"]], ["  kept", report["kept"]]]
    if report.get("merged"):
        rows.append(["  merged with another row", report["merged"]])
    rows += [[f"  dropped: {_shorten_text(reason)}", n] for reason, n in dropped.items()]
    lines += [
        format_table(rows),
        *(
            "  " + line
            for line in describe_counts(
                report["counts_from"],
                report["counts_rounded"],
                report.get("counts_capped", 0),
                are_merged=report.get("merged", 0) > 0,
            )
        ),
    ]
    unknown = report.get("repertoires_without_row", {}).values()
    for n, one, many in (
        (len(report["rows_without_file"]), "row without a file", "rows without a file"),
        (len(report["files_without_row"]), "file without a row", "files without a row"),
        (len(report.get("skipped_files", {})), "file that could not be read", "files that could not be read"),
        (sum(map(len, unknown)), "repertoire of a file without a row", "repertoires of files without a row"),
    ):
        if n:
            lines.append(f"  left out: {n} {one if n == 1 else many}")
    return lines
