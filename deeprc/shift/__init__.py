"""How far new repertoires are from those that a model was trained with, and why; docs/shift.md says how to read it.

`measurements.py` reads the sequences, `description.py` makes comparable features of them, `reference.py` learns from
training repertoires what is usual, `reasons.py` says in words what is not, and `sketches.py` recognises copies.
`summary.py` has all that a run keeps.
"""
