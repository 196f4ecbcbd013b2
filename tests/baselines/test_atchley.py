"""The published table, typed a second time by factor and in the order of the amino acids' full names."""

from __future__ import annotations

import numpy as np
import pytest

from deeprc.baselines.atchley import ATCHLEY_FACTORS
from deeprc.datasets.alphabet import AMINO_ACIDS

# Table 2 of Atchley et al. 2005, in thousandths; alanine, arginine, asparagine, aspartate, cysteine, glutamate,
# glutamine, glycine, histidine, isoleucine, leucine, lysine, methionine, phenylalanine, proline, serine, threonine,
# tryptophan, tyrosine, valine.
BY_NAME = "ARNDCEQGHILKMFPSTWYV"
BY_FACTOR = """
  -591  1538   945  1050 -1343  1357   931  -384   336 -1239 -1019  1831  -663 -1006   189  -228   -32  -595   260 -1337
 -1302   -55   828   302   465 -1453  -179  1652  -417  -547  -987  -561 -1524  -590  2081  1399   326     9   830  -279
  -733  1502  1299 -3656  -862  1477 -3005  1330 -1673  2131 -1505   533  2219  1891 -1628 -4760  2213   672  3097  -544
  1570   440  -169  -259 -1020   113  -503  1045 -1474   393  1266  -277 -1005  -397   421   670   908 -2128  -838  1242
  -146  2897   933 -3242  -255  -837 -1853  2064   -78   816  -912  1648  1212   412 -1392 -2647  1313  -184  1512 -1262
"""


def test_the_table_is_the_published_one() -> None:
    typed = np.array([[int(text) for text in line.split()] for line in BY_FACTOR.strip().splitlines()])
    rows = [AMINO_ACIDS.index(letter) for letter in BY_NAME]
    np.testing.assert_array_equal(np.rint(1000 * ATCHLEY_FACTORS[rows].T), typed)


def test_each_factor_sums_to_0_over_the_amino_acids() -> None:
    """Factor scores are centred: one wrong digit anywhere would show."""
    assert ATCHLEY_FACTORS.shape == (20, 5)
    np.testing.assert_allclose(ATCHLEY_FACTORS.sum(axis=0), 0, atol=2.1e-3)  # twenty roundings to thousandths
    # I, II and IV have about unit variance; III and V, correlated by 0.83, have more, as published.
    np.testing.assert_allclose(ATCHLEY_FACTORS.std(axis=0, ddof=1), [1.004, 1.004, 2.183, 0.988, 1.601], atol=5e-4)
    assert np.corrcoef(ATCHLEY_FACTORS.T)[2, 4] == pytest.approx(0.83, abs=0.005)


def test_the_factors_say_what_they_are_named_after() -> None:
    by_letter = dict(zip(AMINO_ACIDS, ATCHLEY_FACTORS, strict=True))
    polar = sorted(AMINO_ACIDS, key=lambda letter: by_letter[letter][0])
    assert set(polar[:4]) == set("CVIL")
    assert set(polar[-4:]) == set("KRED")
    assert max(AMINO_ACIDS, key=lambda letter: by_letter[letter][1]) == "P"  # breaks helices
    assert max(AMINO_ACIDS, key=lambda letter: by_letter[letter][4]) == "R"  # positive charge
    assert min(AMINO_ACIDS, key=lambda letter: by_letter[letter][4]) == "D"  # negative charge


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        ATCHLEY_FACTORS[0, 0] = 0
