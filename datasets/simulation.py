"""Simulated cohorts as repertoire files: TRB-like sequences, some of them with an implanted motif."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.errors import InputError

__all__ = ["MotifCohort", "write_motif_cohort"]

# Frequent germline ends of human TRB junctions; the residues between them are drawn at random.
_V_ENDS = {"TRBV5-1": "CASSL", "TRBV7-9": "CASSL", "TRBV20-1": "CSAR", "TRBV19": "CASSI", "TRBV28": "CASS"}
_J_ENDS = {
    "TRBJ1-1": "NTEAFF",
    "TRBJ1-2": "YGYTF",
    "TRBJ2-1": "NEQFF",
    "TRBJ2-3": "DTQYF",
    "TRBJ2-7": "YEQYF",
}
_LOOP_LENGTHS = (4, 9)  # shortest and longest


@dataclass(frozen=True)
class MotifCohort:
    """What to simulate.

    Attributes
    ----------
    n_repertoires
        Every other one is positive.
    n_sequences
        Of each repertoire.
    motif
        Amino acids implanted in positive repertoires, in place of random residues of the loop between the
        germline ends.
    witness_rate
        Probability that a sequence of a positive repertoire carries the motif.
    seed
        Of every random choice.
    """

    n_repertoires: int = 300
    n_sequences: int = 2000
    motif: str = "LDRW"
    witness_rate: float = 0.01
    seed: int = 0


def write_motif_cohort(folder: Path, cohort: MotifCohort) -> Path:
    """Write AIRR Rearrangement files and a metadata sheet into a new folder.

    Parameters
    ----------
    folder
        Is created; gets `metadata.tsv` and `repertoires/<repertoire_id>.tsv`.
    cohort
        What to simulate.

    Returns
    -------
    The path of the metadata sheet: `repertoire_id`, `filename`, `status` (positive or negative).

    Raises
    ------
    InputError
        If the motif is no amino-acid sequence, or longer than the shortest loop.
    """
    if not set(cohort.motif) <= set(AMINO_ACIDS) or not 1 <= len(cohort.motif) <= _LOOP_LENGTHS[0]:
        raise InputError(f"motif {cohort.motif!r}: expected 1 to {_LOOP_LENGTHS[0]} of the letters {AMINO_ACIDS}")
    rng = np.random.default_rng(cohort.seed)
    (folder / "repertoires").mkdir(parents=True)
    rows = []
    for number in range(cohort.n_repertoires):
        name, positive = f"sample_{number + 1:03d}", number % 2 == 1
        table = _repertoire(cohort, cohort.witness_rate if positive else 0.0, rng)
        table.insert(0, "sequence_id", [f"{name}.{i + 1}" for i in range(len(table))])
        table.to_csv(folder / "repertoires" / f"{name}.tsv", sep="\t", index=False)
        rows.append((name, f"{name}.tsv", "positive" if positive else "negative"))
    sheet = folder / "metadata.tsv"
    pd.DataFrame(rows, columns=["repertoire_id", "filename", "status"]).to_csv(sheet, sep="\t", index=False)
    return sheet


def _repertoire(cohort: MotifCohort, rate: float, rng: np.random.Generator) -> pd.DataFrame:
    n = cohort.n_sequences
    v_call, j_call = rng.choice(list(_V_ENDS), n), rng.choice(list(_J_ENDS), n)
    lengths = rng.integers(_LOOP_LENGTHS[0], _LOOP_LENGTHS[1] + 1, n)
    letters = "".join(rng.choice(list(AMINO_ACIDS), int(lengths.sum())))
    carries = rng.random(n) < rate
    junctions, start = [], 0
    for v, j, length, witness in zip(v_call, j_call, lengths.tolist(), carries, strict=True):
        loop = letters[start : start + length]
        start += length
        if witness:
            at = int(rng.integers(0, length - len(cohort.motif) + 1))
            loop = loop[:at] + cohort.motif + loop[at + len(cohort.motif) :]
        junctions.append(_V_ENDS[v] + loop + _J_ENDS[j])
    return pd.DataFrame(
        {
            "productive": "T",
            "locus": "TRB",
            "v_call": v_call,
            "j_call": j_call,
            "junction_aa": junctions,
            "duplicate_count": rng.geometric(0.6, n),
        }
    )
