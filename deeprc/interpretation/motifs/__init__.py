"""Motifs that the sequences used by a trained network share, as patterns and position weight matrices.

`find.py` puts the steps together. `candidates.py` finds the patterns: `background.py` draws what to compare with,
`initial_patterns.py` and `search.py` find patterns under the attribution, `kernels.py` those of the kernels,
`matrices.py` aligns their windows, `cluster_motifs` joins what is alike, `enrichment.py` compares with the background.
`carriers.py` counts over the cohort, `donor_tests.py` tests whether a motif is associated with the class; `patterns.py`
and `matching.py` define a pattern, `attended_motif.py` a motif.
"""

from deeprc.interpretation.motifs.attended_motif import AttendedMotif, tabulate_motifs, write_meme
from deeprc.interpretation.motifs.find import MotifOptions, find_all_motifs, find_motifs

__all__ = ["AttendedMotif", "MotifOptions", "find_all_motifs", "find_motifs", "tabulate_motifs", "write_meme"]
