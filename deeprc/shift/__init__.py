"""Measure how far new repertoires are from those that a model was trained with, and why; see docs/shift.md.

`measurements.py` reads the sequences, `feature_table.py` computes features that can be compared between cohorts,
`training_reference.py` learns from training repertoires what is usual, `reasons.py` says in words what is unusual, and
`sketches.py` recognises copies. `summary.py` has all that a run keeps.
"""
