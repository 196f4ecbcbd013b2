"""From a trained network to the motif that was implanted."""

from __future__ import annotations

import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.attributions import attribute
from deeprc.interpretation.motifs import AttendedMotif, find_motifs
from deeprc.interpretation.survey import survey_cohort
from deeprc.runs.run import Run


@pytest.fixture(scope="module")
def motifs(trained: Run, motif_cohort: RepertoireDataset) -> list[AttendedMotif]:
    top = survey_cohort(trained.model, motif_cohort, top=300).top["case"]
    attributions = attribute(trained.model, motif_cohort, top.index, steps=16)
    return find_motifs(trained.model, motif_cohort, attributions, background=5000)


@pytest.mark.slow
def test_the_first_motif_is_the_implanted_one(motifs: list[AttendedMotif]) -> None:
    first = motifs[0]
    assert first.pattern == "WWHW"
    letters = "ACDEFGHIKLMNPQRSTVWY"
    tallest = [letters[i] for i in first.information[first.start : first.start + 4].argmax(axis=1)]
    assert "".join(tallest) == "WWHW"
    assert first.n_attended_with > 0.8 * first.n_attended
    assert first.enrichment_log10_p_adjusted < -50


def test_its_carriers_are_in_the_class_it_was_implanted_in(
    motifs: list[AttendedMotif], motif_cohort: RepertoireDataset
) -> None:
    carriers = motifs[0].carriers.set_index("class")
    with_it = {"case": 0, "healthy": 0}
    sequences = {"case": 0, "healthy": 0}
    for repertoire in motif_cohort:
        count = sum("WWHW" in sequence for sequence in repertoire.sequences.decode())
        with_it[repertoire.metadata["status"]] += count > 0
        sequences[repertoire.metadata["status"]] += count
    assert carriers["n_repertoires_with"].to_dict() == with_it
    assert carriers["n_sequences_with"].to_dict() == sequences
    assert with_it["case"] == 50
