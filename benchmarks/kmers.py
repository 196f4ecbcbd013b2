"""Time of the k-mer methods: counts, kernels between repertoires, and many values of the SVM's C.

python benchmarks/kmers.py [--sequences 2000000] [--repertoires 785]

Each is compared with the usual way in one run. The counts of 4-mers are compared with scikit-learn's CountVectorizer,
on the first `--vectorizer-sequences` of the same simulated sequences, which it gets as text; the Gram matrix with one
numpy expression per pair, on `--loop-repertoires` of the same repertoires; and the path of an SVM with fits of
scikit-learn's SVC for some of the same values. Ratios are those of the times per sequence, pair or value.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from common import report
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.svm import SVC
from torch import device

from deeprc.baselines.kernels import KERNELS, compute_cross_kernel
from deeprc.baselines.svm import score_path
from deeprc.datasets.alphabet import compute_offsets, decode_many
from deeprc.datasets.kmers import count_kmers
from deeprc.datasets.simulation import GermlineBackground

_KEY = 12345
_SIZE = 300_000  # number of sequences that are drawn at a time
_TRIED = 20  # number of values of C that are fitted one by one


@click.command()
@click.option("--sequences", default=2_000_000)
@click.option("--vectorizer-sequences", default=500_000)
@click.option("--repertoires", default=785, help="Number of repertoires of the Gram matrix.")
@click.option("--loop-repertoires", default=20)
@click.option("--trained", default=500, help="Number of repertoires that the SVM learns from; at most all but 20.")
@click.option("--values", default=1000, help="Number of values of C.")
def main(
    sequences: int, vectorizer_sequences: int, repertoires: int, loop_repertoires: int, trained: int, values: int
) -> None:
    """Measure the times and their ratios."""
    rows = [_time_counting(sequences, min(sequences, vectorizer_sequences))]
    representations = _draw_representations(repertoires)
    for kind in KERNELS:
        kernel, row = _time_gram(representations, kind, min(repertoires, loop_repertoires))
        rows += [row, _time_svm_path(kernel, kind, min(trained, repertoires - 20), values)]
    report("kmers", rows, device("cpu"))


def _time(function: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def _make_row(what: str, unit: str, ours: tuple[float, int], usual: tuple[float, int]) -> dict[str, Any]:
    """Return a row of the table from pairs of seconds and number of units."""
    per_s, usual_per_s = (number / seconds for seconds, number in (ours, usual))
    return {
        "what": what,
        "unit": unit,
        "seconds": ours[0],
        "units": ours[1],
        "per_s": per_s,
        "usual_seconds": usual[0],
        "usual_units": usual[1],
        "ratio": per_s / usual_per_s,
    }


def _time_counting(n: int, n_usual: int) -> dict[str, Any]:
    drawn = [GermlineBackground().draw(_KEY, np.arange(i, min(i + _SIZE, n))) for i in range(0, n, _SIZE)]
    residues = np.concatenate([part.residues for part in drawn])
    lengths = np.concatenate([part.lengths for part in drawn])
    offsets = compute_offsets(lengths)
    texts = decode_many(residues[: offsets[n_usual]], offsets[: n_usual + 1])
    count_kmers(residues[: offsets[1]], lengths[:1])  # compiles
    seconds, counts = _time(lambda: count_kmers(residues, lengths))
    vectorizer = CountVectorizer(analyzer="char", ngram_range=(4, 4), lowercase=False)
    usual_seconds, table = _time(lambda: vectorizer.fit_transform(texts))
    assert table.sum() == count_kmers(residues[: offsets[n_usual]], lengths[:n_usual]).sum() <= counts.sum()
    return _make_row("4-mers", "sequence", (seconds, n), (usual_seconds, n_usual))


def _draw_representations(n: int) -> NDArray[np.float32]:
    """Return random counts of 4-mers, (n, 160000): a few are frequent and many rare; a repertoire has 40% of them."""
    rng = np.random.default_rng(0)
    mean = rng.gamma(0.3, 8.0, 20**4)
    rows = np.empty((n, 20**4), np.float32)
    for row in rows:
        row[:] = rng.poisson(mean * rng.gamma(4, 1 / 4)) / rng.integers(50_000, 300_000)
    return rows


def _time_gram(rows: NDArray[np.float32], kind: str, n_usual: int) -> tuple[NDArray[np.float64], dict[str, Any]]:
    compute_cross_kernel(rows[:2], rows[:2], kind)  # compiles
    few = rows[:n_usual]
    seconds, kernel = _time(lambda: compute_cross_kernel(rows, rows, kind))
    usual_seconds, expected = _time(lambda: _compute_by_loop(few, kind))
    np.testing.assert_allclose(kernel[:n_usual, :n_usual], expected, rtol=1e-5)
    pairs = [n * (n + 1) // 2 for n in (len(rows), n_usual)]
    return kernel, _make_row(f"Gram matrix, {kind}", "pair", (seconds, pairs[0]), (usual_seconds, pairs[1]))


def _compute_by_loop(rows: NDArray[np.float32], kind: str) -> NDArray[np.float64]:
    if kind == "jaccard":
        rows = (rows > 0).astype(np.float32)
    kernel = np.ones((len(rows), len(rows)))
    for i, a in enumerate(rows):
        for j, b in enumerate(rows[: i + 1]):
            kernel[i, j] = kernel[j, i] = np.minimum(a, b).sum() / np.maximum(a, b).sum()
    return kernel


def _time_svm_path(kernel: NDArray[np.float64], kind: str, n: int, n_values: int) -> dict[str, Any]:
    """Return a row with the time of our SVM path, and of scikit-learn's SVC for a few of the values."""
    rng = np.random.default_rng(0)
    positive, costs = rng.random(len(kernel)) < 0.4, 10 ** rng.uniform(-6, 6, n_values)
    positive[:2] = True, False
    train, new = kernel[:n, :n], kernel[n:, :n]
    seconds, scores = _time(lambda: score_path(train, positive[:n], new, costs))
    tried = costs[:_TRIED]
    machines = (SVC(kernel="precomputed", C=cost, tol=1e-8) for cost in tried)
    usual_seconds, expected = _time(lambda: [m.fit(train, positive[:n]).decision_function(new) for m in machines])
    np.testing.assert_allclose(scores[: len(tried)], expected, atol=1e-5)
    return _make_row(f"SVM, {kind}, {n} repertoires", "value of C", (seconds, n_values), (usual_seconds, len(tried)))


if __name__ == "__main__":
    main()
