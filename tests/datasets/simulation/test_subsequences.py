"""The recipes `subsequences-*`: five groups of positive repertoires, each with two short motifs of its own."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from deeprc.datasets.simulation import LstmBackground, MotifSignal, Sizes, find_imgt_index, load_recipe
from deeprc.datasets.simulation.cohort import Cohort

RATES = [0.0002, 0.0008, 0.004]
GROUPS = [
    ("GI.V.", "N.Q.S"),
    (".K.R.V", "Y.K.T."),
    ("VF..QE", "V.N.QH"),
    ("LQ.V", "R.LC"),
    ("TIKA", "YSFE"),
]
"""The challenge's example set; a dot is any residue, which must be there."""


def load(rate: float, *overrides: str) -> Cohort:
    return load_recipe(f"subsequences-{rate}", overrides)[0]


@pytest.mark.parametrize("rate", RATES)
def test_sizes_rates_and_motifs_are_the_challenges(rate: float) -> None:
    cohort = load(rate)
    assert (cohort.n_repertoires, cohort.sizes, cohort.label_noise) == (800, Sizes(25_000), 0)
    assert cohort.background == LstmBackground()
    assert sum(cohort.is_positive(index) for index in range(800)) == 400
    motifs = []
    for signal in cohort.signals:
        assert isinstance(signal, MotifSignal)
        assert (signal.witness_rate, signal.prevalence, signal.status) == (rate, 0.2, "positive")
        assert all(motif.gap_lengths == (1,) for motif in signal.motifs if "-" in motif.pattern)
        motifs.append(tuple(motif.pattern.replace("-", ".") for motif in signal.motifs))
    assert motifs == GROUPS


@pytest.mark.slow
def test_every_positive_repertoire_is_of_one_group() -> None:
    sheet = load(0.0008).metadata()
    carried = sheet[[f"carries_group_{number}" for number in range(1, 6)]].to_numpy()
    positive = (sheet["status"] == "positive").to_numpy()
    assert (carried.sum(axis=1) == positive).all()
    for column in range(5):
        assert stats.binomtest(int(carried[:, column].sum()), 400, 0.2).pvalue > 1e-6


@pytest.mark.slow
def test_a_witness_holds_a_motif_of_its_group_between_the_conserved_ends() -> None:
    cohort = load(0.004, "n_repertoires=60", "sizes.mean=3000", "background={kind: germline}")
    background = load(0.004, "n_repertoires=60", "sizes.mean=3000", "background={kind: germline}", "signals=[]")
    numbers: Counter[str] = Counter()
    n_looked_at = off_imgt = 0
    for index in range(60):
        table, truth = cohort.draw(index)
        own = cohort.find_carried_signals(index)
        before, after = background.draw(index)[0].decode(), table.decode()
        for row in np.flatnonzero(truth.signal):
            assert own[truth.signal[row] - 1]
            pattern = GROUPS[truth.signal[row] - 1][truth.motif[row] % 2]
            start, size = int(truth.start[row]), len(pattern)
            assert re.fullmatch(pattern, after[row][start : start + size])
            assert 1 <= start <= len(after[row]) - 1 - size  # the first and the last residue are never changed
            expected = [b if p == "." else p for b, p in zip(before[row][start : start + size], pattern, strict=True)]
            assert after[row] == before[row][:start] + "".join(expected) + before[row][start + size :]
            off_imgt += start not in {find_imgt_index(name, len(after[row])) for name in ("107", "108", "109", "110")}
            numbers[pattern] += 1
        n_looked_at += len(table) * any(own)
        assert [a for a, s in zip(after, truth.signal, strict=True) if not s] == [
            b for b, s in zip(before, truth.signal, strict=True) if not s
        ]
    assert stats.binomtest(sum(numbers.values()), n_looked_at, 0.004).pvalue > 1e-6
    assert stats.binomtest(numbers["TIKA"], numbers["TIKA"] + numbers["YSFE"], 0.5).pvalue > 1e-6
    assert off_imgt < 0.02 * sum(numbers.values())  # where the motif does not fit behind its position


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "witnesses"), [(0.0002, 5), (0.0008, 20), (0.004, 100)])
def test_a_positive_repertoire_has_as_many_witnesses_as_published(rate: float, witnesses: int) -> None:
    cohort = load(rate, "background={kind: germline}")
    positive = [index for index in range(20) if cohort.is_positive(index)]
    found = sum(int((cohort.draw(index)[1].signal > 0).sum()) for index in positive)
    assert stats.poisson(10 * witnesses).cdf(found) == pytest.approx(0.5, abs=0.5 - 1e-6)
