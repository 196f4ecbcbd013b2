"""The table `seeds.tsv` of a run: the motifs from which kernels started."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from deeprc.outputs import list_output_names
from deeprc.tasks import Task
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.gap_weights import describe_gaps

__all__ = ["make_start_motifs_table"]


def make_start_motifs_table(motifs: Sequence[EnrichedMotif], tasks: Sequence[Task]) -> pd.DataFrame:
    """Return the motifs from which kernels started, a row each.

    The columns are:

    - `kernel`: number of the kernel, from 1;
    - `motif`: the motif, with a point for any residue;
    - `output`: name of the output;
    - `correlation`: of the motif's frequency in a training repertoire with the label;
    - `p_value`: corrected for all motifs that were tested with it, see `EnrichedMotif`;
    - `best_residues`: the residues that count most at the gaps, see `describe_gaps`.
    """
    names = list_output_names(tasks)
    rows = [
        (k, motif.pattern, names[motif.output], motif.correlation, motif.p_value, describe_gaps(motif))
        for k, motif in enumerate(motifs, 1)
    ]
    return pd.DataFrame(rows, columns=["kernel", "motif", "output", "correlation", "p_value", "best_residues"])
