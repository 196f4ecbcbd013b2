"""Numbers for the figure of a cohort: sizes, lengths, genes and maps of its repertoires, with their classes.

In the maps, repertoires are points in a plane, near each other if they share clones or have similar k-mers.

Letters: B repertoires, L lengths.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA, KernelPCA

from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import compute_kmer_frequencies, count_genes
from deeprc.errors import InputError
from deeprc.interpretation.figures.classes import ALL_REPERTOIRES, choose_drawn_classes, index_drawn_classes
from deeprc.interpretation.figures.cohort import CohortNumbers
from deeprc.task_labels import encode_labels
from deeprc.tasks import parse_tasks

__all__ = ["compute_clone_overlaps", "compute_cohort_numbers", "map_by_clones", "map_by_kmers"]

_KMER = (0, 1, 2)
_MIN_REPERTOIRES = 3  # smallest number of repertoires for a map
_SMALL = 0.1  # fraction of the median size; the 3-mers of smaller repertoires are mostly noise


def compute_cohort_numbers(
    dataset: RepertoireDataset, target: str | None = None
) -> tuple[CohortNumbers, dict[str, int]]:
    """Return the numbers for the figure of a cohort, and the index of each class; see `draw_cohort_figure`.

    Parameters
    ----------
    dataset
        The cohort.
    target
        Text of the target that defines the classes, as for `deeprc train`; None puts all repertoires into one class.

    Raises
    ------
    InputError
        If the cohort has no sequences, or the target cannot be read, or no repertoire has a label for it.
    """
    if not dataset.n_sequences.any():
        raise InputError(f"{dataset.container.path}: has no sequences, so there is nothing to draw")
    classes, colour_of_class = _index_classes(dataset, target)
    points, variance = map_by_kmers(dataset)
    cohort_numbers = CohortNumbers(
        classes=classes,
        sizes=dataset.n_sequences,
        lengths=_compute_length_shares(dataset),
        genes={field: _compute_gene_shares(dataset, field) for field in dataset.gene_fields},
        by_clones=map_by_clones(dataset),
        by_kmers=points,
        variance=variance,
    )
    return cohort_numbers, colour_of_class


def _index_classes(dataset: RepertoireDataset, target: str | None) -> tuple[list[str], dict[str, int]]:
    """Return the class of each repertoire, and the index of each class in their order."""
    if target is None:
        return [ALL_REPERTOIRES] * len(dataset), {ALL_REPERTOIRES: 0}
    tasks = parse_tasks([target], dataset.metadata, source=str(dataset.container.path))
    known = encode_labels(tasks, dataset.metadata)[:, 0]
    if np.isnan(known).all():
        raise InputError(f"{dataset.container.path}: no repertoire has a label for {target}")
    ids = dataset.repertoire_ids.tolist()
    class_of_id = choose_drawn_classes(tasks[0], ids, known)
    classes = [class_of_id.get(str(repertoire_id), "") for repertoire_id in ids]
    colours = index_drawn_classes(tasks, tasks[0], known)
    return classes, {name: colours.get(name, 0) for name in dict.fromkeys(class_of_id.values())}


def _compute_length_shares(dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Return the share of sequences with each length in each repertoire, (B, L)."""
    counts = [np.bincount(repertoire.lengths) for repertoire in dataset]
    shares = np.zeros((len(counts), max(map(len, counts))))
    for row, n_by_length in zip(shares, counts, strict=True):
        row[: len(n_by_length)] = n_by_length / max(n_by_length.sum(), 1)
    return shares


def _compute_gene_shares(dataset: RepertoireDataset, field: str) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    counts, names = count_genes(dataset, field)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), names


def compute_clone_overlaps(dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Return the number of shared clones of each pair of repertoires over the geometric mean of their numbers, (B, B).

    A clone is a junction with its genes, if the container has them. A repertoire without sequences shares nothing.
    """
    clones_shared = find_shared_clones(dataset, dataset.gene_fields)
    n = len(clones_shared.n_private)
    clones = np.repeat(np.arange(len(clones_shared), dtype=np.int64), np.diff(clones_shared.offsets))
    is_carrier = csr_matrix((np.ones(len(clones)), (clones_shared.carriers, clones)), shape=(n, len(clones_shared)))
    carried = is_carrier[dataset.repertoire_indices]
    shared = np.asarray((carried @ carried.T).todense(), np.float64)
    sizes = np.maximum(shared.diagonal() + clones_shared.n_private[dataset.repertoire_indices], 1)
    np.fill_diagonal(shared, sizes)
    return np.asarray(shared / np.sqrt(np.outer(sizes, sizes)))


def map_by_clones(dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Return points by classical multidimensional scaling of shared clones, (B, 2).

    The distance of two repertoires is the negative logarithm of their overlap. If they share nothing, half the smallest
    overlap is used. Fewer than three repertoires are all at the origin.
    """
    overlaps = compute_clone_overlaps(dataset)
    if len(overlaps) < _MIN_REPERTOIRES or not (overlaps[~np.eye(len(overlaps), dtype=bool)] > 0).any():
        return np.zeros((len(overlaps), 2))
    distances = -np.log(np.maximum(overlaps, overlaps[overlaps > 0].min() / 2))
    points = KernelPCA(2, kernel="precomputed", eigen_solver="dense").fit_transform(-(distances**2) / 2)
    return _project_to_plane(points)


def map_by_kmers(dataset: RepertoireDataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points by the principal components of 3-mers, (B, 2), and their fractions of the variance, (2,).

    The square roots of the frequencies are compared (Hellinger's distance), so that frequent 3-mers do not dominate.
    Repertoires with less than a tenth of the median number of sequences have no influence on the axes. If there are
    fewer than three others, or these do not differ, all are at the origin.
    """
    frequencies = np.asarray(compute_kmer_frequencies(dataset, _KMER), np.float64)
    sizes = dataset.n_sequences
    is_large = sizes >= max(_SMALL * float(np.median(sizes)), 1) if len(sizes) else np.zeros(0, bool)
    roots = np.sqrt(frequencies / np.maximum(frequencies.sum(axis=1, keepdims=True), 1e-12))
    if is_large.sum() < _MIN_REPERTOIRES or not np.ptp(roots[is_large], axis=0).any():
        return np.zeros((len(frequencies), 2)), np.zeros(2)
    pca = PCA(2, svd_solver="full").fit(roots[is_large])
    return _project_to_plane(pca.transform(roots)), np.asarray(pca.explained_variance_ratio_)


def _project_to_plane(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points with exactly two coordinates, whose signs do not depend on the solver."""
    plane = np.zeros((len(points), 2))
    plane[:, : points.shape[1]] = points
    largest = np.abs(plane).argmax(axis=0)
    return np.asarray(plane * np.where(plane[largest, [0, 1]] < 0, -1.0, 1.0))
