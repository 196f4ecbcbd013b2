"""Motifs that the sequences used by a trained network share, as patterns and position weight matrices.

`find.py` joins the steps: `background.py` draws sequences to compare with, `seeds.py` and `search.py` find patterns of
residues with high attribution, `kernels.py` patterns of the kernels, `matrices.py` aligns their windows, `clusters.py`
joins similar patterns, `enrichment.py` compares with the background, `carriers.py` counts carriers in the cohort, and
`donor_tests.py` tests whether a motif is associated with the class. `patterns.py` and `matching.py` define a pattern,
`attended_motif.py` a motif.
"""

from deeprc.interpretation.motifs.attended_motif import AttendedMotif, motif_table, write_meme
from deeprc.interpretation.motifs.find import find_all_motifs, find_motifs

__all__ = ["AttendedMotif", "find_all_motifs", "find_motifs", "motif_table", "write_meme"]
