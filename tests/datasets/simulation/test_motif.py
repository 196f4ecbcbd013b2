import pytest

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.simulation.motif import GAP, WILDCARD, Motif
from deeprc.errors import InputError


def forms(motif: Motif) -> dict[str, float]:
    """Return the variants as text, Z a wildcard and - a gap, with their probabilities."""
    letters = {**dict(enumerate(AMINO_ACIDS)), WILDCARD: "Z", GAP: "-"}
    found = {"".join(letters[code] for code in each.codes): each.probability for each in motif.variants}
    assert len(found) == len(motif.variants)
    return found


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("SFEN", {"SFEN": 1}),
        ("SF(d)EN", {"SFEN": 0.5, "SEN": 0.5}),
        ("SFZN", {"SFZN": 1}),
        ("SF(d)ZN", {"SFZN": 0.5, "SZN": 0.5}),
        ("SZZN", {"SZZN": 1}),
        ("SZ(d)ZN", {"SZZN": 0.5, "SZN": 0.5}),
        ("S(d)E(d)", {"SE": 1 / 3, "S": 1 / 3, "E": 1 / 3}),  # never nothing
    ],
)
def test_the_forms_of_a_motif(pattern: str, expected: dict[str, float]) -> None:
    assert forms(Motif(pattern)) == pytest.approx(expected, abs=1e-15)


def test_the_lengths_of_a_gap() -> None:
    assert forms(Motif("GL-N")) == pytest.approx({"GLN": 1 / 3, "GL-N": 1 / 3, "GL--N": 1 / 3})
    assert forms(Motif("GL-N", gap_lengths=(0, 1, 1, 3))) == {"GLN": 0.25, "GL-N": 0.5, "GL---N": 0.25}


def test_gaps_and_deletions_multiply() -> None:
    expected = {"GLN": 0.35, "GL-N": 0.35, "GN": 0.15, "G-N": 0.15}
    assert forms(Motif("GL(d)-N", deletion_probability=0.3, gap_lengths=(0, 1))) == pytest.approx(expected)


@pytest.mark.parametrize(("probability", "expected"), [(0.0, {"SFEN": 1}), (1.0, {"SEN": 1})])
def test_a_deletion_that_never_or_always_happens(probability: float, expected: dict[str, float]) -> None:
    assert forms(Motif("SF(d)EN", deletion_probability=probability)) == expected


def test_the_same_form_of_different_places_stays_apart() -> None:
    """S and the other S are altered with different probabilities."""
    motif = Motif("S(d)S(d)E")
    assert [(each.codes, each.positions, each.probability) for each in motif.variants] == [
        ((15, 15, 3), (0, 1, 2), 0.25),
        ((15, 3), (0, 2), 0.25),
        ((15, 3), (1, 2), 0.25),
        ((3,), (2,), 0.25),
    ]


def test_places_count_the_patterns_positions() -> None:
    places = {"".join(map(str, each.positions)) for each in Motif("GL(d)-N").variants}
    assert places == {"013", "0123", "01223", "03", "023", "0223"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": ""}, "motif '': expected amino acids"),
        ({"pattern": "SFXN"}, "motif 'SFXN': expected amino acids"),
        ({"pattern": "sfen"}, "motif 'sfen': expected amino acids"),
        ({"pattern": "S(d"}, r"motif 'S\(d': expected amino acids"),
        ({"pattern": "(d)S"}, r"motif '\(d\)S': expected amino acids"),
        ({"pattern": "-(d)S"}, "expected amino acids"),
        ({"pattern": "S FEN"}, "expected amino acids"),
        ({"pattern": "SFÉN"}, "expected amino acids"),
        ({"pattern": "LDR", "substitutions": (0.5, 0.5)}, "expected 3 substitutions, one per position, found 2"),
        ({"pattern": "GL-N", "substitutions": (0.6, 0, 0)}, "expected 4 substitutions"),
        (
            {"pattern": "LDR", "substitutions": (0.5, 0.4, 0.2)},
            "expected substitutions of at least 0 that sum to at most 1",
        ),
        (
            {"pattern": "LDR", "substitutions": (0.5, -0.1, 0.2)},
            "expected substitutions of at least 0 that sum to at most 1",
        ),
        ({"pattern": "LDR", "noise": 1.5}, "noise: expected 0 to 1, found 1.5"),
        ({"pattern": "LDR", "noise": float("nan")}, "noise: expected 0 to 1, found nan"),
        ({"pattern": "LDR", "alteration_rate": -0.1}, "alteration_rate: expected 0 to 1, found -0.1"),
        ({"pattern": "L(d)R", "deletion_probability": 2}, "deletion_probability: expected 0 to 1, found 2"),
        ({"pattern": "LDR", "weight": 0}, "expected a weight above 0"),
        ({"pattern": "L-R", "gap_lengths": ()}, "gap_lengths of 0 to 32"),
        ({"pattern": "L-R", "gap_lengths": (-1,)}, "gap_lengths of 0 to 32"),
        ({"pattern": "L-R", "gap_lengths": (33,)}, "gap_lengths of 0 to 32"),
        ({"pattern": "-", "gap_lengths": (0,)}, "expected 1 to 32 positions"),
        ({"pattern": "A(d)", "deletion_probability": 1.0}, "expected 1 to 32 positions"),
        ({"pattern": "L-R", "gap_lengths": (31,)}, "expected 1 to 32 positions"),
        ({"pattern": "A" * 33}, "expected 1 to 32 positions"),
    ],
)
def test_an_invalid_motif_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        Motif(**options)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("options", [{"weight": float("nan")}, {"substitutions": (float("nan"), 0, 0)}])
def test_not_a_number_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="motif 'LDR'"):
        Motif("LDR", **options)  # type: ignore[arg-type]


def test_the_longest_motif_that_is_allowed() -> None:
    assert forms(Motif("A" * 32)) == {"A" * 32: 1}
    assert forms(Motif("L-R", gap_lengths=(30,))) == {"L" + "-" * 30 + "R": 1}


@pytest.mark.parametrize(("pattern", "substitutions"), [("SZN", (0, 1, 0)), ("GL-N", (0, 0, 0.5, 0))])
def test_wildcards_and_gaps_cannot_be_altered(pattern: str, substitutions: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="a wildcard or a gap cannot be altered; expected 0 there"):
        Motif(pattern, substitutions=substitutions)
