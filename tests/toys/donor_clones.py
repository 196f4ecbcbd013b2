"""A cohort of donors with two repertoires each, in which a clone goes with a class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.datasets.dataset import RepertoireDataset
from tests.conftest import random_sequences
from tests.toys.clone_cohorts import Clone, write_repertoires

N_DONORS = 40
SIGNAL: Clone = ("CASSWWHWF", "TRBV7-9", "TRBJ2-1")
NEIGHBOUR: Clone = ("CASSWYHWF", "TRBV7-2", "TRBJ2-7")  # one substitution, another gene of the family
STRANGER: Clone = ("CASSWYHWF", "TRBV9", "TRBJ2-1")  # one substitution, another family
TWIN: Clone = ("CASSWWHWF", "TRBV7-9", "TRBJ1-1")  # another J gene
COMMON: Clone = ("CASSAAAAF", "TRBV9", "TRBJ2-1")


def private(rng: np.random.Generator, n: int = 5) -> list[Clone]:
    return [(junction, "TRBV1", "TRBJ1-1") for junction in random_sequences(rng, n)]


def write_donor_cohort(path: Path) -> RepertoireDataset:
    """Write two repertoires of each of 40 donors: 15 of the 20 ill ones and 1 healthy carry a clone, in one or both.

    Of the five ill donors without it, four carry a neighbour; 20 donors carry a common clone. A donor without a label,
    one without sequences, and one with repertoires of both classes come last.
    """
    rng = np.random.default_rng(0)
    repertoires: list[list[Clone]] = []
    for donor in range(N_DONORS):
        both = [private(rng), private(rng)]
        carries = donor < 15 or donor == 20
        if carries:
            both[donor % 2].append(SIGNAL)
            if donor % 3 == 0:
                both[1 - donor % 2].append(SIGNAL)
        if 15 <= donor < 19:
            both[0].append(NEIGHBOUR)
        if donor in (21, 22, 23):
            both[0] += [STRANGER, TWIN]
        if donor % 2:
            both[1].append(COMMON)
        repertoires += both
    repertoires += [[*private(rng), SIGNAL], [], [], [*private(rng), SIGNAL], private(rng)]
    status = ["ill"] * 40 + ["healthy"] * 40 + [None, "healthy", "healthy", "ill", "healthy"]
    subject = [*np.repeat(np.arange(N_DONORS), 2), 40, 41, 41, 42, 42]
    sex = ["f" if donor % 4 < 2 else "m" for donor in subject]
    sheet = pd.DataFrame({"status": status, "subject": [f"s{each}" for each in subject], "sex": sex})
    return write_repertoires(path, repertoires, metadata=sheet)
