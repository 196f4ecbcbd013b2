"""Patterns as tests write them: LDR[WY], `.` for any residue, [^CP] for any but C and P."""

import re

import numpy as np

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.interpretation.motifs.patterns import Masks


def pattern_of(text: str) -> Masks:
    tokens = re.findall(r"\[.*?\]|.", text)
    masks = [sum(1 << r for r, letter in enumerate(AMINO_ACIDS) if re.fullmatch(token, letter)) for token in tokens]
    return np.array(masks, np.uint32)
