"""Splits, metrics and results: the one harness for every method."""
