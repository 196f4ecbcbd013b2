"""Find the clones that repertoires of a container share; they are cached beside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.clones.grouping import AT_ONCE, SharedClones, group_clones
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["find_shared_clones"]


def find_shared_clones(dataset: RepertoireDataset, fields: Sequence[str] = ()) -> SharedClones:
    """Find the clones that at least two repertoires of the container carry.

    All repertoires of the container are searched, not only those of `dataset`; the result is cached. Ranks do not share
    this work, because equal sequences meet in sorted ranges of all hashes. It takes about 0.4 GB of memory, and 40
    bytes per shared clone and 8 per carrier, besides the container's pages, which the system may drop at any time. A
    container of one file that is larger than the available memory would be read from the disk once for every 33 million
    sequences. So there, up to 2 GB, but at most a quarter of the available memory, hold hashes, 8 bytes for each
    sequence, to read it fewer times. The sequences of a simulated cohort, which has no file, are made twice, and those
    with equal hashes once more. All its hashes are in memory, 8 bytes each; with genes, all its sequences are.

    Parameters
    ----------
    dataset
        A view of the container.
    fields
        Genes of the clone definition: those of `v_call` and `j_call` that belong to a clone, besides its sequence; see
        `RepertoireDataset.gene_fields`. An unknown gene, "", is a gene of its own.

    Raises
    ------
    InputError
        If the container lacks one of the fields.
    """
    checked = dataset.check_gene_fields(fields)
    arrays = load_or_compute(dataset, "clones", {"fields": checked}, partial(_find_in_container, fields=checked))
    return SharedClones(arrays["representative"], arrays["offsets"], arrays["repertoires"], arrays["private"])


def _find_in_container(dataset: RepertoireDataset, fields: list[str]) -> Arrays:
    """Return the arrays of `SharedClones`, by their names in the cache."""
    container = dataset.container
    at_once = container.choose_hashes_at_once(fields, AT_ONCE)
    clones = group_clones(container.arrays(fields), np.asarray(container.repertoire_offsets), at_once=at_once)
    return {
        "representative": clones.representative,
        "offsets": clones.offsets,
        "repertoires": clones.carriers,
        "private": clones.n_private,
    }
