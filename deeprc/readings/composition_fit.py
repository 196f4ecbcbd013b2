"""To be written."""

from __future__ import annotations

from deeprc.readings.cohort import FittedReading, TrainingCohort

__all__ = ["fit_composition"]


def fit_composition(cohort: TrainingCohort) -> FittedReading | None:
    """To be written."""
    return None
