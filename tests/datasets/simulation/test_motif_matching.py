import re

import numpy as np
import pytest
from scipy import stats

from deeprc.datasets.alphabet import AMINO_ACIDS, encode_many
from deeprc.datasets.simulation import Cohort, IndependentBackground, MotifSignal, SimulatedDataset, Sizes, match_motifs
from deeprc.datasets.simulation.motif import Motif

# Motifs and all that a person would look for who knows them: deletions are no part of it, nor are alterations.
SOUGHT = {
    "SFEN": ([Motif("SFEN")], ["SFEN"]),
    "SF(d)EN": ([Motif("SF(d)EN")], ["SFEN"]),
    "SFZN": ([Motif("SFZN")], ["SF.N"]),
    "SF(d)ZN": ([Motif("SF(d)ZN")], ["SF.N"]),
    "SZZN": ([Motif("SZZN")], ["S..N"]),
    "SZ(d)ZN": ([Motif("SZ(d)ZN")], ["S..N"]),
    "GSAF": ([Motif("GSAF", noise=0.1)], ["GSAF"]),
    "LDR": ([Motif("LDR", substitutions=(0.2, 0.6, 0.2))], ["LDR"]),
    "three": ([Motif("LDR"), Motif("CAS"), Motif("GL-N")], ["LDR", "CAS", "GLN", "GL.N", "GL..N"]),
    "GL-N": ([Motif("GL-N", gap_lengths=(2, 4))], ["GL..N", "GL....N"]),
    "G(d)L-N": ([Motif("G(d)L-N")], ["GLN", "GL.N", "GL..N"]),
}


def sequences(n: int, letters: str, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list(letters), rng.integers(0, 16))) for _ in range(n)]


def overlap(forms: list[str], text: str) -> int:
    """Slide each form over the sequence and count the letters that agree."""
    return max(
        (
            sum(letter == text[start + i] for i, letter in enumerate(form))
            for form in forms
            for start in range(len(text) - len(form) + 1)
        ),
        default=0,
    )


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", SOUGHT)
def test_matches_equal_those_of_a_plain_search(name: str, inside: bool) -> None:
    motifs, forms = SOUGHT[name]
    letters = "".join(sorted(set("".join(forms)) - {"."})) + "Y"
    texts = sequences(2000 if len(letters) < 7 else 6000, letters) + sequences(200, AMINO_ACIDS, 1)
    residues, offsets = encode_many(texts)
    found = match_motifs(motifs, residues, np.diff(offsets), inside=inside)
    seen = [text[1:-1] for text in texts] if inside else texts
    whole = [re.search("|".join(forms), text) is not None for text in seen]
    assert 10 < sum(whole) < len(texts) / 2
    assert found.whole.tolist() == whole
    assert found.overlap.tolist() == [overlap(forms, text) for text in seen]


def test_matches_and_overlaps_by_hand() -> None:
    residues, offsets = encode_many(["CSFENC", "SFE", "CSFWN", "AAAA", "", "NEFS"])
    found = match_motifs([Motif("SFEN")], residues, np.diff(offsets))
    assert found.whole.tolist() == [True, False, False, False, False, False]
    assert found.overlap.tolist() == [4, 0, 3, 0, 0, 0]  # at NEFS no letter is at its place


def test_sequences_do_not_run_into_each_other() -> None:
    residues, offsets = encode_many(["CSF", "ENC"])
    assert not match_motifs([Motif("SFEN")], residues, np.diff(offsets)).whole.any()


def found_and_witnesses(pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Return which sequences hold a motif and which are witnesses, where the background has none of its letters."""
    signal = MotifSignal((Motif(pattern),), 0.05)
    weights = {"A": 32_768, "S": 16_384, "F": 16_384}
    dataset = SimulatedDataset(Cohort(6, Sizes(2000), IndependentBackground(14.5, 1.8, weights), (signal,)))
    found, witness = [], []
    for repertoire in dataset:
        assert repertoire.witness is not None
        assert repertoire.witness.any() == (repertoire.metadata["status"] == "positive")
        matches = match_motifs(signal.motifs, repertoire.residues, repertoire.lengths)
        assert not matches.overlap[repertoire.witness == 0].any()
        found.append(matches.whole)
        witness.append(repertoire.witness == 1)
    return np.concatenate(found), np.concatenate(witness)


@pytest.mark.parametrize("pattern", ["WHWC", "WZWH", "WZZH", "WH-C"])
def test_matches_are_the_witnesses_if_the_background_lacks_the_residues(pattern: str) -> None:
    found, witness = found_and_witnesses(pattern)
    assert stats.binomtest(int(witness.sum()), 6000, 0.05).pvalue > 1e-6
    assert found.tolist() == witness.tolist()


@pytest.mark.parametrize("pattern", ["WH(d)WC", "WH(d)ZC"])
def test_half_of_the_witnesses_lack_a_position_and_are_not_found(pattern: str) -> None:
    found, witness = found_and_witnesses(pattern)
    assert not (found & ~witness).any()
    assert stats.binomtest(int(found.sum()), int(witness.sum()), 0.5).pvalue > 1e-6
