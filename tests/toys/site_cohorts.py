"""Cohorts whose site goes with the label: a kit of some sites makes one V gene frequent, sick donors have another."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import Sequences
from tests.toys.shift_cohorts import write_repertoires

_V_GENES = ("", *(f"TRBV{number}" for number in range(1, 7)))
_N_SEQUENCES = 300


def draw_sites(path: Path, n: int, *, signal: float, seed: int = 0) -> RepertoireDataset:
    """Write n donors of four sites, every other one sick: 85% of the sick are at sites 2 and 3, 15% of the well.

    The kit of sites 2 and 3 makes TRBV1 frequent. `signal` is the factor of TRBV2 in sick donors.
    """
    rng = np.random.default_rng(seed)
    sick = np.arange(n) % 2 == 1
    has_kit = np.where(rng.permutation(n) < 0.85 * n, sick, ~sick)
    site = 2 * has_kit + rng.integers(0, 2, n)
    of_kit = np.where(has_kit, rng.uniform(0.1, 0.6, n), rng.uniform(0.02, 0.15, n))
    drawn = {
        f"r{i}": _draw(rng, float(share), signal if is_sick else 1.0)
        for i, (share, is_sick) in enumerate(zip(of_kit, sick, strict=True))
    }
    columns = {"status": np.where(sick, "sick", "well"), "site": [f"site {number}" for number in site]}
    return write_repertoires(path, drawn, **columns)


def share_of_signal(dataset: RepertoireDataset) -> np.ndarray:
    """Return the share of TRBV2 among the sequences without TRBV1, (B,): what the true signal is."""
    codes = [repertoire.genes["v_call"].codes for repertoire in dataset]
    return np.array([float((each == 2).sum() / (each != 1).sum()) for each in codes])


def _draw(rng: np.random.Generator, of_kit: float, signal: float) -> Sequences:
    usage = rng.dirichlet(np.full(6, 40.0))
    usage[0], usage[1] = of_kit, usage[1] * signal
    residues, offsets = encode_many(["CASSLGQETQYF"] * _N_SEQUENCES)
    codes = 1 + rng.choice(6, _N_SEQUENCES, p=usage / usage.sum())
    counts = np.ones(_N_SEQUENCES, np.uint32)
    return Sequences(residues, offsets, counts, v_call=Categorical(codes.astype(np.uint16), _V_GENES))
