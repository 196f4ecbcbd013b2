"""A cache of arrays that are computed from a container, in the folder `<container>.cache` beside it.

The name of an entry has a digest of the container's content, of the settings and of deeprc's version. So the entries of
an older container are never used for a newer one. The folder may be deleted at any time. An entry also names the inodes
and the times of change of its files, which nobody who sends a folder can choose. If they do not agree with the files,
the entry was written elsewhere, and is not read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.cache_folder import get_cache_folder, make_cache_folder, read_cached_json, write_cached_json
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.linked_container import LinkedContainer, StoredContainer
from deeprc.documents import to_plain
from deeprc.errors import InputError
from deeprc.files import FileStamp, check_regular_file
from deeprc.hidden_folders import temporary_folder
from deeprc.progress import open_step, track
from deeprc.versions import package_version

__all__ = ["Arrays", "digest_container", "digest_with_genes", "load_or_compute"]

Arrays = dict[str, NDArray[Any]]

_IN_MEMORY: WeakKeyDictionary[Any, dict[str, Arrays]] = WeakKeyDictionary()
_DIGESTS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_READING = Lock()
"""A lock that is held while files are opened.

Numpy parses their headers as Python, which fails in several threads at once.
The fault is in Python 3.11 and 3.12 (github.com/python/cpython/issues/106905)."""

_BLOCK_BYTES = 1 << 24  # number of bytes that are hashed at a time

_logger = logging.getLogger(__name__)


def load_or_compute(
    dataset: RepertoireDataset,
    name: str,
    settings: Mapping[str, Any],
    compute: Callable[[RepertoireDataset], Arrays],
) -> Arrays:
    """Return arrays that `compute` makes from all of a container's repertoires, or that are cached already.

    Arrays of a container on disk are memory-mapped and must not be written to. They are kept in memory if the
    container's folder cannot be written to, and for a cohort that is not on a disk.

    Parameters
    ----------
    dataset
        A view of the container; which repertoires it shows does not matter.
    name
        Name of the result, with which the names of its files begin.
    settings
        All settings on which the result depends, besides the container's content; JSON-able.
    compute
        Function that makes the arrays from a dataset of all repertoires. Its result must not depend on labels.
    """
    text = json.dumps([name, to_plain(settings)], sort_keys=True)
    results = _IN_MEMORY.setdefault(dataset.container, {})
    if text not in results:
        results[text] = _load_or_compute_on_disk(dataset, name, text, compute)
    return results[text]


def _load_or_compute_on_disk(
    dataset: RepertoireDataset, name: str, text: str, compute: Callable[[RepertoireDataset], Arrays]
) -> Arrays:
    """Return the arrays of an entry in the cache folder; if it is not there, compute and write it."""
    container = dataset.container
    if not isinstance(container, StoredContainer):  # a simulated cohort, or a table in memory
        return compute(dataset.whole())
    key_text = f"{package_version('deeprc')} {digest_container(container)} {text}"
    key = hashlib.blake2b(key_text.encode(), digest_size=12).hexdigest()
    entry = f"{name}-{key}"
    cached = _read_entry(container.path, entry)
    if cached is not None:
        return cached
    arrays = compute(dataset.whole())
    try:
        _write_entry(container.path, entry, arrays, text)
    except OSError as error:
        folder = get_cache_folder(container.path)
        _logger.warning("%s: results cannot be cached there (%s); they will be computed again", folder, error)
        return arrays
    return _read_entry(container.path, entry) or arrays


def _read_entry(path: Path, entry: str) -> Arrays | None:
    """Return an entry's arrays; None if there is none, or it is damaged or came from elsewhere."""
    folder = get_cache_folder(path) / entry
    try:
        stamps = read_cached_json(path, f"{entry}/settings.json")["arrays"]
        for name, stamp in stamps.items():
            check_regular_file(folder / f"{name}.npy")
            if FileStamp.of(folder / f"{name}.npy") != tuple(stamp):
                return None
        with _READING:
            return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in stamps}
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write_entry(path: Path, entry: str, arrays: Arrays, text: str) -> None:
    """Write an entry to a hidden folder and rename it; another process may have been faster."""
    folder = make_cache_folder(path) / entry
    with temporary_folder(folder) as hidden:
        temporary_path = hidden / "entry"  # made inside, because the hidden folders are for their owner only
        temporary_path.mkdir()
        for name, array in arrays.items():
            np.save(temporary_path / f"{name}.npy", array, allow_pickle=False)
        stamps = {name: FileStamp.of(temporary_path / f"{name}.npy") for name in arrays}
        content = {"what": json.loads(text), "arrays": stamps}
        (temporary_path / "settings.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
        if _read_entry(path, entry) is None:
            shutil.rmtree(folder, ignore_errors=True)  # it was damaged
            try:
                temporary_path.rename(folder)
            except OSError:
                if not folder.exists():
                    raise


def digest_container(container: StoredContainer) -> str:
    """Return a hash of a container's repertoires: sequences, counts, genes and ids, as hexadecimal text.

    The hash is kept in the cache's folder with the file's stamp, so that a container of many gigabytes is read only
    once for it.
    """
    if container not in _DIGESTS:
        stamp = {**container.stamp._asdict(), "deeprc": package_version("deeprc")}
        if isinstance(container, LinkedContainer):
            stamp["parts"] = container.part_stamps
        note = read_cached_json(container.path, "content.json")
        if not isinstance(note, dict) or {k: note.get(k) for k in stamp} != stamp:
            note = {**stamp, "digest": _hash_container(container)}
            _write_digest_note(container.path, note)
        _DIGESTS[container] = str(note["digest"])
    return _DIGESTS[container]


def digest_with_genes(dataset: RepertoireDataset) -> list[str]:
    """Return a hash of each repertoire's sequences, counts and genes, the genes by name; cached."""

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        digests = all_repertoires.map_repertoires(lambda repertoire: repertoire.digest_with_genes())
        return {"digests": np.array(list(track(digests, "hashing repertoires", len(all_repertoires))), "S32")}

    digests = load_or_compute(dataset, "digests", {"unknown genes": "left out"}, compute)["digests"]
    return [bytes(digest).decode() for digest in digests[dataset.repertoire_indices]]


def _hash_container(container: StoredContainer) -> str:
    """Return the hash that `digest_container` keeps."""
    content = hashlib.blake2b("\n".join(map(str, container.repertoire_ids)).encode(), digest_size=16)
    for vocabulary in container.gene_names.values():
        content.update("\n".join(vocabulary).encode())
    parts = [part.store.sequences for part in container.parts]
    n_bytes = sum(part.residues.nbytes + part.offsets.nbytes + part.counts.nbytes for part in parts)
    with open_step("hashing the container", n_bytes) as step:

        def add(values: NDArray[Any], change: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray) -> None:
            for start in range(0, len(values), size := _BLOCK_BYTES // values.dtype.itemsize):
                block = values[start : start + size]
                content.update(np.ascontiguousarray(change(block)).view(np.uint8).data)
                step.advance(block.nbytes)

        for sequences in parts:
            add(sequences.residues)
        n_residues = 0
        add(np.zeros(1, np.int64))
        for sequences in parts:
            add(sequences.offsets[1:], partial(np.add, n_residues))
            n_residues += len(sequences.residues)
        for sequences in parts:
            add(sequences.counts)
        add(container.repertoire_offsets)
        for name in container.gene_names:
            for part, sequences in enumerate(parts):
                add(sequences.genes[name].codes, partial(container.map_to_joint_codes, part, name))
    return content.hexdigest()


def _write_digest_note(path: Path, note: Mapping[str, Any]) -> None:
    """Write the digest of a container into its cache folder; if this is not possible, it is computed again later."""
    try:
        write_cached_json(path, "content.json", note)
    except (OSError, InputError) as error:
        _logger.debug("%s: its digest cannot be kept: %s", path, error)
