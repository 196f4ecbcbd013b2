"""Whether a branch says something about the labels that another branch does not say.

Signals overlap. If cases use a V gene more, or have other residues, they also share more clones of this kind. Then the
branch `clones` seems to predict the label, but it repeats with much noise what the branch `composition` says.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import numpy as np

from deeprc.branches.cohort import FittedBranch, TrainingCohort
from deeprc.branches.donors import count_standard_errors
from deeprc.branches.slopes import fit_slopes

__all__ = ["adds_to"]

_MIN_STANDARD_ERRORS = 2.0
"""Number of standard errors by which a further branch must lower the mean loss, see docs/experiments.md, 2026-11-30.

One is not enough: held-out folds share clones, so the losses of different repertoires depend on each other."""


def adds_to(used: FittedBranch, further: FittedBranch, cohort: TrainingCohort) -> bool:
    """Return whether a further branch clearly lowers the mean loss of an output, if the other branch is used already.

    The losses are those of regressions of the labels on the cross-fitted scores of one branch and of both.

    Parameters
    ----------
    used, further
        The branches, fitted to the cohort.
    cohort
        The B repertoires.
    """
    for output, target in enumerate(cohort.list_output_targets()):
        if len(np.unique(target.values)) < 2:
            continue
        scores = np.stack([used.scores[target.rows, output], further.scores[target.rows, output]], axis=1)
        alone = fit_slopes(scores[:, :1], target.values, is_number=target.is_number)
        both = fit_slopes(scores, target.values, is_number=target.is_number)
        groups = None if cohort.groups is None else cohort.groups[target.rows]
        evidence = count_standard_errors(alone.losses - both.losses, groups)
        if both.slopes[1] > 0 and evidence > _MIN_STANDARD_ERRORS:
            return True
    return False
