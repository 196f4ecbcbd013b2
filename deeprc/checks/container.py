"""Check the repertoires of a container, which is read once.

Profiles do not depend on labels. They are kept in the cache beside the container, so another check takes
a second or two.

Letters: B repertoires, N sequences of one repertoire, R their residues, G gene names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.checks.examination import CohortCheck, examine
from deeprc.checks.findings import Finding
from deeprc.checks.profile import (
    N_LOCI,
    RESIDUE_HASHES,
    Fingerprints,
    RepertoireProfile,
    compute_gene_factors,
    find_chain_codes,
    is_contradicting,
)
from deeprc.checks.sheet import SheetDonors, find_targets
from deeprc.compilation import njit
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.genes import LOCI, find_mouse_genes, normalise_gene
from deeprc.datasets.linked_container import SequenceContainer
from deeprc.datasets.metadata import Metadata, find_file_column
from deeprc.datasets.random_numbers import mix_words
from deeprc.datasets.report import RepertoireReport
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.progress import track
from deeprc.tasks import Task

__all__ = ["check_dataset", "hash_repertoire", "profile_container"]

_UNCHECKED = ("locus", "genes")  # keys of a report: locus may be None, genes are not in containers
_VERSION = 1  # of the profiles in the cache beside the container; raise it if a profile gets another content
_NO_CODES = np.zeros(0, np.uint16)
_NO_HASHES = np.zeros(0, np.uint64)


def check_dataset(
    dataset: RepertoireDataset,
    *,
    tasks: Sequence[Task] | None = None,
    targets: Sequence[str] = (),
    group_by: str | None = None,
) -> CohortCheck:
    """List every suspicion about the repertoires of a dataset, as `check_cohort` does for files.

    How many rows preprocessing dropped is read from the report in the container, if it has one.

    Parameters
    ----------
    dataset
        Some or all repertoires of a container.
    tasks
        The targets as tasks; None: they are parsed from `targets`.
    targets, group_by
        See `check_cohort`.

    Raises
    ------
    InputError
        If a target or the column does not exist.
    """
    sheet = _make_sheet(dataset)
    donors = SheetDonors(sheet, group_by)
    earlier_findings: list[Finding] = []
    if tasks is None:
        tasks, earlier_findings = find_targets(sheet, targets, donors)
    return examine(
        profile_container(dataset), sheet, tasks, donors, allow_empty=True, earlier_findings=earlier_findings
    )


def _make_sheet(dataset: RepertoireDataset) -> Metadata:
    """Return the metadata of a container as a sheet."""
    table, ids = dataset.metadata, tuple(map(str, dataset.repertoire_ids))
    columns = list(map(str, table.columns))
    id_column = next((name for name in columns if tuple(table[name].map(str)) == ids), "")
    file_column = find_file_column(columns)
    files = (
        [""] * len(ids)
        if file_column is None
        else [value if isinstance(value, str) else "" for value in table[file_column]]
    )
    return Metadata(Path(dataset.container.path), id_column, ids, table, tuple(files))


def profile_container(dataset: RepertoireDataset) -> list[RepertoireProfile]:
    """Return the profiles of a dataset's repertoires, (B,); the cache keeps those of the whole container."""
    arrays = load_or_compute(dataset, "profiles", {"version": _VERSION}, _make_profile_arrays)
    entries = dataset.container.preprocessing.get("repertoires")
    known = {
        str(entry.get("repertoire_id")): entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping)
    }
    genes = _GeneNames.of({field: tuple(arrays[f"{field}_names"].tolist()) for field in GENE_FIELDS})
    profiles = []
    for row, name in zip(dataset.repertoire_indices.tolist(), map(str, dataset.repertoire_ids), strict=True):
        report = _restore_report(name, int(arrays["kept"][row]), known.get(name))
        profiles.append(_make_profile(arrays, row, report, genes))
    return profiles


@dataclass(frozen=True)
class _GeneNames:
    """All gene names of a container by field, and those among them that are not recognised, or only mice have."""

    by_field: Mapping[str, tuple[str, ...]]
    unrecognised: Set[str]
    of_mice: Set[str]

    @classmethod
    def of(cls, by_field: Mapping[str, tuple[str, ...]]) -> _GeneNames:
        """Return the names by field, after each was looked up."""
        names = {name for vocabulary in by_field.values() for name in vocabulary}
        unrecognised = {name for name in names if normalise_gene(name).level == "unrecognised"}
        return cls(by_field, unrecognised, set(find_mouse_genes(tuple(unrecognised))))


def _make_profile(arrays: Arrays, row: int, report: RepertoireReport, genes: _GeneNames) -> RepertoireProfile:
    """Return the profile of the repertoire at a row."""
    usage = {}
    for field in GENE_FIELDS:
        if genes.by_field[field]:
            codes, counts = (_get_segment(arrays, field, column, row).tolist() for column in ("codes", "counts"))
            usage[field] = {genes.by_field[field][code]: n for code, n in zip(codes, counts, strict=True)}
    unrecognised = {name: n for counts in usage.values() for name, n in counts.items() if name in genes.unrecognised}
    loci = arrays["loci"][row].reshape(N_LOCI, N_LOCI)
    v, j = (indices.astype(np.int8) for indices in np.nonzero(loci))
    sketch, top = (_get_segment(arrays, name, "hashes", row) for name in ("sketch", "top"))
    return RepertoireProfile(
        report,
        Path(report.file),
        total_count=int(arrays["total"][row]),
        largest_count=int(arrays["largest"][row]),
        usage=usage,
        unrecognised=unrecognised,
        of_mice={name: n for name, n in unrecognised.items() if name in genes.of_mice},
        contradicting=int(loci[v, j][is_contradicting(v, j, report)].sum()),
        fingerprints=Fingerprints(bytes(arrays["digest"][row]).decode(), sketch, bool(arrays["is_sampled"][row]), top),
    )


def _get_segment(arrays: Arrays, name: str, column: str, row: int) -> NDArray[Any]:
    """Return the values of the repertoire at a row in a ragged column; see `_make_profile_arrays`."""
    start, stop = arrays[f"{name}_offsets"][row : row + 2].tolist()
    return np.asarray(arrays[f"{name}_{column}"][start:stop])


def _restore_report(name: str, kept: int, entry: Mapping[str, Any] | None) -> RepertoireReport:
    """Return the report of a repertoire in the container, or one from its sequences alone if there is no sound one."""
    alone = RepertoireReport.without_file(name, kept)
    usual = alone.to_dict()
    if entry is None or not _is_sound(entry, usual, kept):
        return alone
    return RepertoireReport.from_dict({**usual, **{key: entry[key] for key in usual if key in entry}, "genes": {}})


def _is_sound(entry: Mapping[str, Any], usual: Mapping[str, Any], kept: int) -> bool:
    """Return whether an entry has values of the usual types, known chains, and numbers that fit together."""
    if any(not isinstance(entry.get(key), type(value)) for key, value in usual.items() if key not in _UNCHECKED):
        return False
    if any(locus not in (None, "", *LOCI) for locus in (entry.get("locus"), *entry["loci"])):
        return False
    counts = [entry["merged"]]
    for key in ("dropped", "counts_from", "sequences_from", "loci"):
        counts += entry[key].values()
    if any(not isinstance(n, int) or n < 0 for n in counts):
        return False
    return bool(entry["kept"] == kept and entry["rows_read"] == kept + entry["merged"] + sum(entry["dropped"].values()))


def _make_profile_arrays(all_repertoires: RepertoireDataset) -> Arrays:
    """Return the profiles of all repertoires as arrays; ragged columns lie end to end."""
    names = {field: _collect_gene_names(all_repertoires, field) for field in GENE_FIELDS}
    profiled = all_repertoires.map_repertoires(partial(_profile_repertoire, names=names))
    parts = list(track(profiled, "checking repertoires", len(all_repertoires)))
    arrays: Arrays = {f"{field}_names": np.array(names[field], "U") for field in GENE_FIELDS}
    for name in ("kept", "total", "largest", "is_sampled"):
        arrays[name] = np.array([part[name] for part in parts], np.int64)
    arrays["digest"] = np.array([part["digest"] for part in parts], "S64")
    arrays["loci"] = np.array([part["loci"] for part in parts], np.int64).reshape(len(parts), N_LOCI**2)
    ragged = {"sketch": ("hashes",), "top": ("hashes",), **dict.fromkeys(GENE_FIELDS, ("codes", "counts"))}
    for name, columns in ragged.items():
        arrays[f"{name}_offsets"] = compute_offsets(np.array([len(part[name][0]) for part in parts], np.int64))
        for index, column in enumerate(columns):
            dtype = np.uint64 if column == "hashes" else np.int64
            pieces = [np.asarray(part[name][index], dtype) for part in parts]
            arrays[f"{name}_{column}"] = np.concatenate([*pieces, np.zeros(0, dtype)])
    return arrays


def _collect_gene_names(all_repertoires: RepertoireDataset, field: str) -> tuple[str, ...]:
    """Return all gene names of a field; in a simulated cohort each repertoire has a vocabulary of its own."""
    if isinstance(all_repertoires.container, SequenceContainer):
        return all_repertoires.container.gene_names.get(field, ())
    names: dict[str, None] = {}
    for repertoire in all_repertoires:
        calls = repertoire.container.sequences.genes.get(field)
        names |= dict.fromkeys(() if calls is None else calls.vocabulary)
    return tuple(names)


def _profile_repertoire(repertoire: Repertoire, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the fields of one repertoire's profile that need its sequences."""
    counts = np.asarray(repertoire.counts)
    fingerprints = Fingerprints.of(hash_repertoire(repertoire), counts)
    used: dict[str, Any] = {}
    loci = []
    for field in GENE_FIELDS:
        genes = repertoire.genes.get(field)
        if genes is None:
            used[field] = ([], [])
            loci.append(np.zeros(len(counts), np.int8))
            continue
        n_of = genes.count_occurrences()
        present = np.flatnonzero(n_of)
        used[field] = (_index_vocabulary(genes.vocabulary, names[field])[present], n_of[present])
        loci.append(find_chain_codes(genes.vocabulary)[genes.codes])
    return {
        "kept": len(counts),
        "total": counts.sum(dtype=np.int64),
        "largest": counts.max(initial=0),
        "is_sampled": fingerprints.is_sampled,
        "digest": fingerprints.digest.encode(),
        "sketch": (fingerprints.sketch,),
        "top": (fingerprints.top,),
        "loci": np.bincount(loci[0] * N_LOCI + loci[1], minlength=N_LOCI**2),
        **used,
    }


@lru_cache(maxsize=1 << 6)
def _index_vocabulary(vocabulary: tuple[str, ...], names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the index of each name of a vocabulary among all names, (G,)."""
    index_of = {name: index for index, name in enumerate(names)}
    return np.array([index_of[name] for name in vocabulary], np.int64)


def hash_repertoire(repertoire: Repertoire, *, gene_fields: Sequence[str] = GENE_FIELDS) -> NDArray[np.uint64]:
    """Return the hash of each sequence, (N,): what `hash_with_gene_names` returns, compiled for containers.

    Only the genes of `gene_fields` are hashed with the residues.
    """
    hashes = np.zeros(len(repertoire), np.uint64)
    terms: list[NDArray[Any]] = []
    for field in GENE_FIELDS:
        genes = repertoire.genes.get(field) if field in gene_fields else None
        if genes is None:
            terms += [_NO_HASHES, _NO_CODES]
        else:
            codes = np.ascontiguousarray(genes.codes)
            terms += [compute_gene_factors(field, genes.vocabulary), codes]
    residues = np.ascontiguousarray(repertoire.residues)
    _sum_hashes(residues, np.ascontiguousarray(repertoire.offsets), RESIDUE_HASHES, *terms, hashes)
    return mix_words(hashes)


@njit(nogil=True)
def _sum_hashes(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint64],
    v_hashes: NDArray[np.uint64],
    v_codes: NDArray[np.uint16],
    j_hashes: NDArray[np.uint64],
    j_codes: NDArray[np.uint16],
    hashes: NDArray[np.uint64],
) -> None:
    """Write the hash of each sequence: the sum of the hashes of its residues at their positions and of its genes."""
    for n in range(len(hashes)):
        total = np.uint64(0)
        start = offsets[n]
        for position in range(offsets[n + 1] - start):
            total += table[position, residues[start + position]]
        if len(v_hashes):
            total += v_hashes[v_codes[n]]
        if len(j_hashes):
            total += j_hashes[j_codes[n]]
        hashes[n] = total
