"""Find the clones that repertoires of a container share; they are cached beside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.clones.grouping import DEFAULT_MAX_HASHES, SharedClones, group_clones
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["find_shared_clones"]


def find_shared_clones(dataset: RepertoireDataset, gene_fields: Sequence[str] = ()) -> SharedClones:
    """Find the clones that at least two repertoires of the container carry.

    All repertoires of the container are searched, not only those of `dataset`, and the result is cached. Several ranks
    do not share this work, because the hashes of all repertoires are sorted together.

    The search takes about 0.4 GB of memory, 40 bytes per shared clone and 8 bytes per carrier. If a container of one
    file is larger than the available memory, it is read once for every 33 million sequences. To read it fewer times,
    hashes are kept then: 8 bytes per sequence, at most 2 GB, and at most a quarter of the available memory. A simulated
    cohort has no file, so its sequences are made two or three times, and all hashes are in memory (with genes, all
    sequences).

    Parameters
    ----------
    dataset
        A view of the container.
    gene_fields
        Genes of the clone definition: those of `v_call` and `j_call` that belong to a clone, besides its sequence; see
        `RepertoireDataset.gene_fields`. An unknown gene, "", is a gene of its own.

    Raises
    ------
    InputError
        If the container lacks one of these genes.
    """
    checked = dataset.check_gene_fields(gene_fields)
    arrays = load_or_compute(dataset, "clones", {"fields": checked}, partial(_find_in_container, gene_fields=checked))
    return SharedClones(arrays["representative"], arrays["offsets"], arrays["repertoires"], arrays["private"])


def _find_in_container(dataset: RepertoireDataset, gene_fields: list[str]) -> Arrays:
    """Return the arrays of `SharedClones`, by their names in the cache."""
    container = dataset.container
    max_hashes = container.choose_max_hashes(gene_fields, DEFAULT_MAX_HASHES)
    clones = group_clones(
        container.arrays(gene_fields), np.asarray(container.repertoire_offsets), max_hashes=max_hashes
    )
    return {
        "representative": clones.representative,
        "offsets": clones.offsets,
        "repertoires": clones.carriers,
        "private": clones.n_private,
    }
