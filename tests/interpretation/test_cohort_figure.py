"""The figure of a cohort before any training: its numbers, and what it draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.cohort_numbers import (
    compute_clone_overlaps,
    compute_cohort_numbers,
    map_by_clones,
    map_by_kmers,
)
from tests.toys.repertoires import make_sequences, write_repertoires

pytest.importorskip("matplotlib")

REPERTOIRES = {
    "a": ["CASSF", "CASSLF", "CATTTF"],
    "b": ["CASSF", "CASSLF", "CAWWWF"],
    "c": ["CASSF", "CGGGGGF"],
    "d": [],
}


@pytest.fixture
def cohort(tmp_path: Path) -> RepertoireDataset:
    """Three repertoires that share clones, and one without sequences."""
    repertoires = [make_sequences(texts, v_call=["TRBV9"] * len(texts)) for texts in REPERTOIRES.values()]
    status = ["ill", "ill", "well", "well"]
    return write_repertoires(tmp_path / "cohort.h5", repertoires, {"status": status}, list(REPERTOIRES))


def test_an_overlap_is_the_shared_clones_over_the_mean_size(cohort: RepertoireDataset) -> None:
    ab, ac = 2 / 3, 1 / np.sqrt(6)
    expected = [[1, ab, ac, 0], [ab, 1, ac, 0], [ac, ac, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(compute_clone_overlaps(cohort), expected)
    np.testing.assert_allclose(compute_clone_overlaps(cohort[[2, 0]]), [[1, ac], [ac, 1]])


def test_repertoires_that_share_clones_are_near(cohort: RepertoireDataset) -> None:
    points = map_by_clones(cohort[:3])
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    np.testing.assert_allclose(distances[0, 1], -np.log(2 / 3))  # three points lie in a plane
    np.testing.assert_allclose(distances[0, 2], np.log(6) / 2)
    assert not map_by_clones(cohort[[0, 2]]).any()


def test_small_repertoires_do_not_decide_about_the_axes(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    cohort = cohort_factory(12, 40, seed=1)
    points, variance = map_by_kmers(cohort)
    assert points.shape == (12, 2)
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-6)
    assert 1 > variance[0] > variance[1] > 0
    assert not map_by_kmers(cohort[:2])[0].any()


def test_repertoires_that_do_not_differ_in_3_mers_are_at_the_origin(tmp_path: Path) -> None:
    """Such as sequences of one or two residues, which have no 3-mer."""
    repertoires = [make_sequences(["CF", "C"])] * 4
    cohort = write_repertoires(tmp_path / "short.h5", repertoires, {"status": ["ill", "ill", "well", "well"]})
    points, variance = map_by_kmers(cohort)
    np.testing.assert_array_equal(points, np.zeros((4, 2)))
    np.testing.assert_array_equal(variance, [0, 0])


def test_lengths_and_genes_are_shares_of_each_repertoire(cohort: RepertoireDataset) -> None:
    found, places = compute_cohort_numbers(cohort, "status=ill")
    assert found.classes == ["ill", "ill", "well", "well"]
    assert list(places) == ["well", "ill"]
    np.testing.assert_allclose(found.lengths[0, [5, 6]], [1 / 3, 2 / 3])
    assert not found.lengths[3].any()
    shares, names = found.genes["v_call"]
    assert names == ("TRBV9",)
    np.testing.assert_array_equal(shares[:, 0], [1, 1, 1, 0])
    every, one = compute_cohort_numbers(cohort)
    assert set(every.classes) == set(one) == {"all repertoires"}


def test_a_cohort_without_labels_or_sequences_is_refused(cohort: RepertoireDataset) -> None:
    with pytest.raises(InputError, match="status2"):
        compute_cohort_numbers(cohort, "status2")
    with pytest.raises(InputError, match="has no sequences, so there is nothing to draw"):
        compute_cohort_numbers(cohort[3:])


def test_repertoires_of_one_size_are_drawn(cohort: RepertoireDataset) -> None:
    """matplotlib warns if it chooses the limits of an axis by itself, as all values are equal."""
    from deeprc.interpretation.figures.cohort import draw_cohort_figure

    found, places = compute_cohort_numbers(cohort, "status=ill")
    figure = draw_cohort_figure(replace(found, sizes=np.full(4, 100)), places)
    assert figure.axes[0].get_ylim() == pytest.approx((80, 125))


def test_texts_of_long_names_do_not_overlap(cohort: RepertoireDataset) -> None:
    from deeprc.interpretation.figures.cohort import draw_cohort_figure

    found, _ = compute_cohort_numbers(cohort, "status=ill")
    classes = [f"systemic lupus erythematosus, biopsy number {number}" for number in range(4)]
    figure = draw_cohort_figure(replace(found, classes=classes), dict(zip(classes, range(4), strict=True)))
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert len({text.get_text() for text in legend.get_texts()}) == 4
    ticks = figure.axes[0].get_xticklabels()
    assert [tick.get_text() for tick in ticks] == [f"syst…er {number}" for number in range(4)]
    for texts in (ticks, legend.get_texts()):
        boxes = [text.get_window_extent() for text in texts]
        assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    labels = [axis.xaxis.label.get_window_extent() for axis in figure.axes]
    assert not any(legend.get_window_extent().overlaps(label) for label in labels)


def test_long_names_of_classes_are_cut(cohort: RepertoireDataset) -> None:
    """To lay out a text of thousands of letters takes more than a minute."""
    from matplotlib.text import Text

    from deeprc.interpretation.figures.cohort import draw_cohort_figure

    found, _ = compute_cohort_numbers(cohort, "status=ill")
    long = "x" * 30_000
    figure = draw_cohort_figure(replace(found, classes=[long, long, "well", "well"]), {long: 0, "well": 1})
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert "x" * 20 + "…" + "x" * 19 + ": 2" in texts
    assert max(map(len, texts)) < 100


def test_the_legend_explains_points_without_a_label(cohort: RepertoireDataset) -> None:
    from deeprc.interpretation.figures.cohort import draw_cohort_figure

    found, places = compute_cohort_numbers(cohort, "status=ill")
    for classes, expected in (
        (found.classes, ["well: 2", "ill: 2"]),
        (["ill", "", "well", ""], ["well: 1", "ill: 1", "no label: 2 (only in the maps)"]),
    ):
        (legend,) = draw_cohort_figure(replace(found, classes=classes), places).legends
        assert [text.get_text() for text in legend.get_texts()] == expected
