"""Estimate how many repertoires are needed: learning curves, a test of the whole pipeline, and planned studies."""

from deeprc.power.curve import LearningCurve
from deeprc.power.learning_curve import PowerOptions, measure_learning_curve
from deeprc.power.planning import PlannedStudy, SearchRule, SimulatedStudy, simulate_study

__all__ = [
    "LearningCurve",
    "PlannedStudy",
    "PowerOptions",
    "SearchRule",
    "SimulatedStudy",
    "measure_learning_curve",
    "simulate_study",
]
