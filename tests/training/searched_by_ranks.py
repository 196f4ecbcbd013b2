"""Searches that one process and several ranks make alike. `test_rank_calls.py` starts this file, once for each rank."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc import ranks
from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.fit import fit_branches
from deeprc.config import NetworkConfig
from deeprc.datasets import representations
from deeprc.datasets.clones.distinct import count_distinct_clones
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.errors import InputError
from deeprc.rank_calls import PackedFlags, compute_parts, count_parts
from deeprc.tasks import Task
from deeprc.training import kmer_correlations, kmer_occurrences
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.gap_weights import _count_letters, _Gap
from deeprc.training.kmer_occurrences import find_occurrences, find_sequences_with_kmer
from deeprc.training.kmer_sets import KmerSet, enumerate_spacings
from deeprc.training.kmer_summaries import summarise_spacings
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_search import MotifLimits, find_enriched_motifs

STATUS = Task("status", "status", "binary", ("healthy", "case"))
SITE = Task("site", "site", "multiclass", ("a", "b", "c"))
SPACINGS = [spacing for k in (2, 3, 4) for spacing in enumerate_spacings(k, 4)]
Found = dict[str, Any]


def digest(*arrays: NDArray[Any]) -> str:
    """Return a hash of arrays, so that a difference in the last digit is seen."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def find_motifs(dataset: RepertoireDataset) -> list[Any]:
    """Return the motifs of a binary and a multiclass target."""
    metadata = dataset.metadata
    site = metadata["site"].map(SITE.classes.index)
    labels = np.stack([(metadata["status"] == "case").to_numpy(float), site.to_numpy(float)], axis=1)
    limits = MotifLimits(6)
    motifs = find_enriched_motifs(
        LabelledRepertoires(dataset, labels), [STATUS, SITE], spacings=SPACINGS, limits=limits
    )
    return [[motif.pattern, motif.output, motif.correlation, motif.p_value] for motif in motifs]


def find_common_motifs(dataset: RepertoireDataset) -> list[Any]:
    """Return the motifs if all are too common to be compared, and if each pass counts one spacing."""
    before = kmer_occurrences._MAX_OCCURRENCES, kmer_correlations._choose_max_bytes
    kmer_occurrences._MAX_OCCURRENCES, kmer_correlations._choose_max_bytes = 10, lambda _: 1
    try:
        return find_motifs(dataset)
    finally:
        kmer_occurrences._MAX_OCCURRENCES, kmer_correlations._choose_max_bytes = before


def count(dataset: RepertoireDataset) -> Found:
    """Return what the passes over repertoires count."""
    weights, labels = np.ones(len(dataset)), np.arange(4.0 * len(dataset)).reshape(len(dataset), 2, 2) ** 2
    left_out = np.arange(dataset.n_sequences.sum()) % 7 == 0
    kept = summarise_spacings(dataset, SPACINGS, labels, weights, excluded=left_out, with_moments=True)
    summaries = sorted(kept, key=lambda each: each.spacing_index)
    kmers = KmerSet(SPACINGS, np.array([3, 3, 1, 4]), np.array([17, 4000, 44, 160]))
    occurrences = find_occurrences(dataset, kmers)
    order = np.lexsort((occurrences.kmer, occurrences.sequence))
    return {
        "moments": digest(*(array for each in summaries for array in (each.mean, each.variance))),
        "strongest": digest(*(array for each in summaries for kmers in each.by_output for array in kmers)),
        "occurrences": [[int(n) for n in array[order]] for array in list(vars(occurrences).values())[:3]],
        "carriers": np.flatnonzero(find_sequences_with_kmer(dataset, (0, 2), 44)).tolist(),
        "4-mers": digest(compute_kmer_frequencies(dataset)),
        "different clones": count_distinct_clones(dataset, ["v_call"]).tolist(),
    }


def fit(dataset: RepertoireDataset) -> Found:
    """Return the branches, as hashes of their numbers and of their scores."""
    labels = (dataset.metadata["status"] == "case").to_numpy(float)[:, None]
    fitted = fit_branches(NetworkConfig(), TrainingCohort(dataset, labels, [STATUS]))
    return {
        each.branch.name: [digest(*(buffer.numpy() for buffer in each.branch.buffers())), digest(each.scores)]
        for each in fitted
    }


def count_gaps(dataset: RepertoireDataset) -> list[Any]:
    """Return what is counted at the gaps of motifs, two of which are of one output."""
    motifs = [
        EnrichedMotif(letters, output, 0.5, 0.01) for letters, output in (((0, -1, 1), 0), ((0, 1), 0), ((2, -1, 3), 1))
    ]
    counts, n_excluded = _count_letters(dataset, motifs, [_Gap(0, 1), _Gap(2, 1)])
    return [digest(counts, n_excluded), int(counts.sum()), int(n_excluded.sum())]


def search_all(dataset: RepertoireDataset) -> Found:
    """Make all searches."""
    return {
        "motifs": find_motifs(dataset),
        "common motifs": find_common_motifs(dataset),
        "counts": count(dataset),
        "counts of two": count(dataset[:2]),
        "gaps": count_gaps(dataset),
        "branches": fit(dataset),
    }


def name_process(flags: PackedFlags) -> tuple[int, list[bool], int]:
    """Return the process that computes a part, what it was given, and into how many parts it could divide its work."""
    return os.getpid(), flags.flags.tolist(), count_parts()


def fail_on_some(index: int) -> int:
    """Raise an error on all ranks but the first."""
    if index > 0:
        raise InputError(f"part {index} is damaged")
    return index


class UnreadableByMain:
    """A part of the work that rank 0 cannot read, as if it had no memory for it."""

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return read_unless_main, ()


def read_unless_main() -> object:
    """Return a part; raise an error on rank 0."""
    if ranks.is_main():
        raise MemoryError("no room on rank 0")
    return None


class Unsendable:
    """A result that cannot be sent, as if there were no memory for it."""

    def __reduce__(self) -> str:
        raise MemoryError("no room for the result")


def return_unsendable(index: int) -> object:
    """Return what cannot be sent on the last rank."""
    return Unsendable() if index == ranks.count_ranks() - 1 else index


def catch_error(call: Callable[[], object]) -> str:
    """Return the message of a call's error, after which the ranks still answer the next call."""
    try:
        ranks.compute_once(call)
    except (InputError, MemoryError) as error:
        return str(error)
    return "no error"


def is_same(parts: Sequence[object]) -> list[bool]:
    """Return whether the dataset of each part shows the container that its rank has open."""
    return compute_parts(shows_open_container, parts)


def shows_open_container(dataset: RepertoireDataset) -> bool:
    """Return whether a dataset shows the container that this rank has open."""
    return dataset.container is open_by_this_rank[0]


open_by_this_rank: list[object] = []


def main(container: str, output: str) -> None:
    """Search as a rank; rank 0 writes what was found. Ranks divide the k-mers of repertoires of any size."""
    representations._MIN_DIVIDED = 0
    dataset = open_dataset(container)
    shared = open_by_this_rank[:] = [dataset.container]
    with ranks.join_ranks():
        n = ranks.count_ranks()
        found = ranks.compute_once(lambda: search_all(dataset), shared=shared)
        flags = [PackedFlags(np.arange(11) == n) for n in range(n)]
        found["processes"] = ranks.compute_once(lambda: compute_parts(name_process, flags))
        found["is open"] = ranks.compute_once(lambda: is_same([dataset[:1]] * n), shared=shared)
        calls = [
            lambda: compute_parts(fail_on_some, range(n)),
            lambda: compute_parts(type, [UnreadableByMain() for _ in range(n)]),
            lambda: compute_parts(return_unsendable, range(n)),
        ]
        found["errors"] = ranks.gather([[catch_error(call) for call in calls]])
        if ranks.is_main():
            Path(output).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
