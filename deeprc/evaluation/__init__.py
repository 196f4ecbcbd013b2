"""Evaluation of predictions: splits, metrics, confidence intervals, tests, and warnings about the results."""
