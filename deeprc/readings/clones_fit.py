"""To be written."""

from __future__ import annotations

from deeprc.readings.cohort import FittedReading, TrainingCohort

__all__ = ["fit_clones"]


def fit_clones(cohort: TrainingCohort) -> FittedReading | None:
    """To be written."""
    return None
