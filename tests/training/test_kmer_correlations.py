import numpy as np
import pytest

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import count_kmers
from deeprc.training import kmer_correlations
from deeprc.training.kmer_correlations import correlations, frequencies, occurrences

PATTERNS = [(0, 1), (0, 2), (0, 1, 3)]


@pytest.mark.parametrize("places", [(0, 1), (0, 2)])
def test_correlations_are_those_of_the_frequencies(cohort: RepertoireDataset, places: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    target = rng.normal(size=(len(cohort), 2))
    frequencies = np.stack([count_kmers(r.residues, r.lengths, places) / len(r) for r in cohort])
    expected = np.corrcoef(frequencies.T, target.T)[: 20 ** len(places), -2:]
    centred = target - target.mean(axis=0)
    ((number, found),) = correlations(cohort, [places], centred / np.linalg.norm(centred, axis=0))
    assert number == 0
    np.testing.assert_allclose(found.T, np.nan_to_num(expected), atol=1e-5)


@pytest.mark.parametrize(
    ("block", "sequences", "memory"), [(128, 4_000_000, 400_000_000), (3, 4_000_000, 1), (128, 150, 10**6)]
)
def test_passes_and_blocks_change_nothing(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, block: int, sequences: int, memory: int
) -> None:
    for name, value in (("_BLOCK", block), ("_SEQUENCES", sequences), ("_MEMORY", memory)):
        monkeypatch.setattr(kmer_correlations, name, value)
    expected = [np.stack([count_kmers(r.residues, r.lengths, p) / len(r) for r in cohort]) for p in PATTERNS]
    seen = [np.zeros_like(each) for each in expected]
    for rows, number, counted in frequencies(cohort, PATTERNS):
        seen[number][rows] += counted
    for one, other in zip(seen, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    target = np.linspace(-1, 1, len(cohort))[:, None]
    found = dict(correlations(cohort, PATTERNS, target / np.linalg.norm(target)))
    assert sorted(found) == [0, 1, 2]
    for number, each in found.items():
        centred = expected[number] - expected[number].mean(axis=0)
        length = np.linalg.norm(centred, axis=0)
        r = centred.T @ target[:, 0] / np.linalg.norm(target) / np.where(length > 0, length, 1)
        np.testing.assert_allclose(each[0], r, atol=1e-5)


@pytest.mark.parametrize("block", [128, 3])
def test_occurrences_by_text(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(kmer_correlations, "_BLOCK", block)
    patterns = [(0, 1), (0, 2)]
    pattern, texts = np.array([1, 0, 0]), ["W.W", "WH", "HW"]
    code = np.array([AMINO_ACIDS.index(text[0]) * 20 + AMINO_ACIDS.index(text[-1]) for text in texts])
    found = occurrences(cohort, patterns, pattern, code)
    seen = sorted(zip(found.repertoire.tolist(), found.sequence.tolist(), found.which.tolist(), strict=True))
    expected, number = [], 0
    for b, repertoire in enumerate(cohort):
        for text in repertoire.sequences():
            expected += [
                (b, number, k)
                for k, motif in enumerate(texts)
                for at in range(len(text) - len(motif) + 1)
                if all(m in (".", letter) for m, letter in zip(motif, text[at:], strict=False))
            ]
            number += 1
    assert seen == sorted(expected)
    room = sum(k < 2 for _, _, k in expected)
    for most, n in ((room, 2), (room - 1, 1), (0, 1), (len(expected), 3)):
        assert occurrences(cohort, patterns, pattern, code, most=most).n == n
    assert len(occurrences(cohort, patterns, pattern, code, most=room).which) == room
