"""Motifs that the sequences used by a trained network share, as patterns and position weight matrices.

`find.py` puts the steps together:

1. `candidates.py` finds the patterns. `background.py` draws sequences to compare with. `search.py` finds patterns of
   the residues that the network uses, and `kernels.py` those of the kernels, whose windows `matrices.py` aligns.
   `cluster_motifs` joins patterns that are alike, and `enrichment.py` compares with the background.
2. `carriers.py` counts the motifs in the cohort.
3. `donor_tests.py` tests whether a motif is associated with the class.

`patterns.py` and `matching.py` define a pattern, `attended_motif.py` a motif.
"""

from deeprc.interpretation.motifs.attended_motif import AttendedMotif, tabulate_motifs, write_meme
from deeprc.interpretation.motifs.find import MotifOptions, find_all_motifs, find_motifs

__all__ = ["AttendedMotif", "MotifOptions", "find_all_motifs", "find_motifs", "tabulate_motifs", "write_meme"]
