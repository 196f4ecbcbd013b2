"""The genetic code, against a table that is written in another way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeprc.datasets.codons import translate
from deeprc.datasets.raw_texts import RawTexts

CODE = {
    "A": "GCT GCC GCA GCG",
    "C": "TGT TGC",
    "D": "GAT GAC",
    "E": "GAA GAG",
    "F": "TTT TTC",
    "G": "GGT GGC GGA GGG",
    "H": "CAT CAC",
    "I": "ATT ATC ATA",
    "K": "AAA AAG",
    "L": "TTA TTG CTT CTC CTA CTG",
    "M": "ATG",
    "N": "AAT AAC",
    "P": "CCT CCC CCA CCG",
    "Q": "CAA CAG",
    "R": "CGT CGC CGA CGG AGA AGG",
    "S": "TCT TCC TCA TCG AGT AGC",
    "T": "ACT ACC ACA ACG",
    "V": "GTT GTC GTA GTG",
    "W": "TGG",
    "Y": "TAT TAC",
    "*": "TAA TAG TGA",
}
AMINO_ACID = {codon: letter for letter, codons in CODE.items() for codon in codons.split()}


def translated(*sequences):
    letters = np.frombuffer("".join(sequences).encode("latin-1"), np.uint8)
    offsets = np.cumsum([0, *map(len, sequences)])
    result = translate(RawTexts(letters, offsets))
    assert result.offsets[0] == 0
    assert result.offsets[-1] == len(result.letters)
    return [result.get_bytes(row).decode() for row in range(len(result))]


def slowly(sequence):
    codons = [sequence[at : at + 3] for at in range(0, len(sequence) - len(sequence) % 3, 3)]
    return "".join(AMINO_ACID.get(codon.upper().replace("U", "T"), "X") for codon in codons) + "_" * (
        len(sequence) % 3 > 0
    )


def test_all_64_codons():
    assert len(AMINO_ACID) == 64
    assert translated(*AMINO_ACID) == list(AMINO_ACID.values())
    assert translated("".join(AMINO_ACID)) == ["".join(AMINO_ACID.values())]


def test_a_junction():
    assert translated("TGTGCCAGCAGCTTAGGGGAAAACATTCAGTACTTC") == ["CASSLGENIQYF"]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("tgtgccTGG", "CAW"),
        ("UGUgccugg", "CAW"),
        ("TGTNCCTGA", "CX*"),
        ("TG-GCC...", "XAX"),
        ("TGTGC", "C_"),
        ("TGTG", "C_"),
        ("TG", "_"),
        ("T", "_"),
        ("", ""),
        ("\xe9GT", "X"),
    ],
)
def test_incomplete_or_ambiguous_codons_are_marked(sequence, expected):
    assert translated(sequence) == [expected]
    assert translated("TGT", sequence, "TTC") == ["C", expected, "F"]


def test_no_sequences_are_translated_to_none():
    result = translate(RawTexts(np.empty(0, np.uint8), np.zeros(1, np.int64)))
    assert len(result.letters) == 0
    assert result.offsets.tolist() == [0]


@given(st.lists(st.text("ACGTUNacgtun-", max_size=20), max_size=12))
def test_one_after_the_other_is_the_same(sequences):
    assert translated(*sequences) == [slowly(sequence) for sequence in sequences]
