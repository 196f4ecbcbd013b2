from collections import Counter
from collections.abc import Mapping

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from deeprc.datasets.alphabet import AMINO_ACIDS, decode_many, encode_many
from deeprc.datasets.random_numbers import derive_key
from deeprc.datasets.simulation.imgt import find_imgt_index
from deeprc.datasets.simulation.implanter import Implanter, Implants
from deeprc.datasets.simulation.motif import Motif
from deeprc.datasets.simulation.motif_signal import MotifSignal
from deeprc.errors import InputError

IMGT = {"107": 0.3, "109": 0.35, "114": 0.2}  # the paper's


def implanted(
    signals: MotifSignal | tuple[MotifSignal, ...],
    sequences: list[str],
    *,
    rows: np.ndarray | None = None,
    key: int = 1,
    carried: list[bool] | None = None,
) -> tuple[list[str], Implants]:
    signals = signals if isinstance(signals, tuple) else (signals,)
    residues, offsets = encode_many(sequences)
    residues = residues.copy()
    rows = np.arange(len(sequences)) if rows is None else rows
    carried = [True] * len(signals) if carried is None else carried
    found = Implanter(signals).implant(derive_key(key), rows, residues, np.diff(offsets), carried)
    return decode_many(residues, offsets), found


def outcomes(signal: MotifSignal, sequence: str, n: int = 20_000) -> Counter[str]:
    """Return how often a sequence becomes what, if it is always a witness."""
    texts, found = implanted(signal, [sequence] * n)
    assert (found.signal == 1).all()
    return Counter(texts)


def always(*motifs: Motif | str, **options: object) -> MotifSignal:
    options = {"position": "centre", **options}
    return MotifSignal(tuple(Motif(each) if isinstance(each, str) else each for each in motifs), 1.0, **options)  # type: ignore[arg-type]


def assert_distributed(found: Mapping[object, int], expected: Mapping[object, float]) -> None:
    """Assert that all that is expected occurs, nothing else does, and as often as expected."""
    assert found.keys() == expected.keys()
    assert sum(expected.values()) == pytest.approx(1, abs=1e-12)
    n = sum(found.values())
    if len(expected) > 1:
        observed = [found[each] for each in expected]
        assert stats.chisquare(observed, [n * share for share in expected.values()]).pvalue > 1e-6


def assert_share(successes: int, n: int, probability: float) -> None:
    assert stats.binomtest(successes, n, probability).pvalue > 1e-6


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [("AAAAAAAA", "AASFENAA"), ("AAAAAAA", "ASFENAA"), ("AAAAA", "SFENA"), ("AAAA", "SFEN")],
)
def test_the_centre_is_the_first_of_two_middle_positions(sequence: str, expected: str) -> None:
    assert outcomes(always("SFEN"), sequence, 10) == {expected: 10}


def test_a_deletion_makes_the_motif_shorter_half_of_the_time() -> None:
    assert_distributed(outcomes(always("SF(d)EN"), "A" * 8), {"AASFENAA": 0.5, "AASENAAA": 0.5})


def test_a_wildcard_is_each_of_the_20_amino_acids() -> None:
    expected = {f"SF{letter}N": 1 / 20 for letter in AMINO_ACIDS}
    assert_distributed(outcomes(always("SFZN"), "AAAA"), expected)


def test_two_wildcards_are_independent() -> None:
    expected = {f"S{a}{b}N": 1 / 400 for a in AMINO_ACIDS for b in AMINO_ACIDS}
    assert_distributed(outcomes(always("SZZN"), "AAAA", 40_000), expected)


def test_wildcards_and_deletions_together() -> None:
    # Of five residues, the four of SFZN begin at the first and the three of SZN at the second.
    expected = {f"SF{z}NA": 1 / 40 for z in AMINO_ACIDS} | {f"AS{z}NA": 1 / 40 for z in AMINO_ACIDS}
    assert_distributed(outcomes(always("SF(d)ZN"), "AAAAA"), expected)


def test_a_gap_keeps_the_backgrounds_residues() -> None:
    expected = {"CGLNHI": 1 / 3, "CGLFNI": 1 / 3, "GLEFNI": 1 / 3}
    assert_distributed(outcomes(always("GL-N"), "CDEFHI"), expected)


def test_the_right_position_is_altered_to_another_amino_acid() -> None:
    probabilities = (0.2, 0.5, 0.1)
    expected = {"LDR": 0.2}
    for place, probability in enumerate(probabilities):
        for letter in set(AMINO_ACIDS) - {"LDR"[place]}:
            expected["LDR"[:place] + letter + "LDR"[place + 1 :]] = probability / 19
    assert_distributed(outcomes(always(Motif("LDR", substitutions=probabilities)), "AAA", 40_000), expected)


def test_the_papers_alterations_leave_no_ldr_whole() -> None:
    found = outcomes(always(Motif("LDR", substitutions=(0.2, 0.6, 0.2))), "AAA")
    assert "LDR" not in found
    assert len(found) == 3 * 19


def test_only_a_share_of_the_witnesses_is_altered() -> None:
    motif = Motif("LDR", substitutions=(0.2, 0.6, 0.2), alteration_rate=0.25)
    assert_share(outcomes(always(motif), "AAA")["LDR"], 20_000, 0.75)
    assert outcomes(always(Motif("LDR", substitutions=(0, 1, 0), alteration_rate=0.0)), "AAA", 99) == {"LDR": 99}


def test_alterations_follow_the_pattern_through_gaps_and_deletions() -> None:
    motif = Motif("G(d)L-N", substitutions=(0, 0, 0, 1), gap_lengths=(0, 1))
    others = set(AMINO_ACIDS) - {"N"}
    expected: Counter[str] = Counter()  # GLAA is a form of two: of G L - x and of G L x A, where x is A
    for x in others:
        for text in (f"GLA{x}", f"GL{x}A", f"LA{x}A", f"AL{x}A"):
            expected[text] += 1 / 76  # type: ignore[assignment]
    assert_distributed(outcomes(always(motif), "AAAA"), expected)


def test_a_position_that_is_left_out_is_not_altered() -> None:
    motif = Motif("SF(d)E", substitutions=(0, 1, 0))
    others = set(AMINO_ACIDS) - {"F"}
    expected = {"SEA": 0.5} | {f"S{letter}E": 0.5 / 19 for letter in others}
    assert_distributed(outcomes(always(motif), "AAA"), expected)


def test_noise_keeps_each_residue_of_the_background_by_itself() -> None:
    expected = {}
    for kept in range(16):
        text = "".join("A" if kept >> place & 1 else letter for place, letter in enumerate("GSVF"))
        expected[text] = 0.1 ** kept.bit_count() * 0.9 ** (4 - kept.bit_count())
    assert_distributed(outcomes(always(Motif("GSVF", noise=0.1)), "AAAA", 100_000), expected)
    assert outcomes(always(Motif("GSVF", noise=1.0)), "AAAA", 99) == {"AAAA": 99}


def test_motifs_are_as_frequent_as_their_weights() -> None:
    signal = always(Motif("LDR", weight=1), Motif("CAS", weight=3), Motif("GL-N", weight=2, gap_lengths=(1,)))
    assert_distributed(outcomes(signal, "YYYY"), {"LDRY": 1 / 6, "CASY": 1 / 2, "GLYN": 1 / 3})


def test_the_truth_names_the_motif_and_its_place() -> None:
    signals = (
        MotifSignal((Motif("WWW"),), 0.3, name="a"),
        MotifSignal((Motif("CC"), Motif("HHHH")), 0.6, name="b"),
    )
    texts, found = implanted(signals, ["AAAAAAAA"] * 5000)
    for text, signal, motif, start in zip(texts, *found, strict=True):
        expected = ["WWW", "CC", "HHHH"][motif] if signal else ""
        assert signal == (0 if not expected else 1 if motif == 0 else 2)
        assert text == "A" * start + expected + "A" * (8 - start - len(expected))
    assert_distributed(Counter(found.signal.tolist()), {0: 0.1, 1: 0.3, 2: 0.6})
    assert_share(int((found.motif == 2).sum()), int((found.signal == 2).sum()), 0.5)


def test_motifs_anywhere_begin_at_all_positions_equally_often() -> None:
    expected = {"A" * start + "WHC" + "A" * (7 - start): 1 / 8 for start in range(8)}
    assert_distributed(outcomes(always("WHC", position="anywhere"), "A" * 10), expected)


def test_a_motif_as_long_as_the_sequence_begins_at_its_start() -> None:
    assert outcomes(always("WHC", position="anywhere"), "AAA", 99) == {"WHC": 99}


@pytest.mark.parametrize(
    ("length", "inside"),
    [
        (15, {"107": 3, "109": 5, "114": 10}),
        (12, {"107": 3, "109": 5, "114": 7}),
        (18, {"107": 3, "109": 5, "114": 13}),
    ],
)
def test_imgt_positions_are_as_frequent_as_their_probabilities(length: int, inside: dict[str, int]) -> None:
    assert {position: find_imgt_index(position, length) for position in IMGT} == inside
    texts, found = implanted(always("LDR", position="imgt", imgt_positions=IMGT), ["A" * length] * 20_000)
    assert all(text[start : start + 3] == "LDR" for text, start in zip(texts, found.start.tolist(), strict=True))
    others = set(range(1, length - 1 - 3 + 1)) - set(inside.values())
    expected = {index: IMGT[position] for position, index in inside.items()} | dict.fromkeys(others, 0.15 / len(others))
    assert_distributed(Counter(found.start.tolist()), expected)


def test_another_position_is_drawn_if_an_imgt_position_is_missing_or_has_no_room() -> None:
    """In 10 residues 109 is missing; LDRW does not fit behind 114, index 6 or later."""
    assert find_imgt_index("109", 10) is None
    assert find_imgt_index("114", 10) == 5
    _, found = implanted(always("LDRW", position="imgt", imgt_positions=IMGT), ["A" * 10] * 20_000)
    # starts 1 to 5 have room; 107 is at 3, 114 at 5: the others share 0.35 + 0.15
    expected = {3: 0.3, 5: 0.2} | dict.fromkeys([1, 2, 4], 0.5 / 3)
    assert_distributed(Counter(found.start.tolist()), expected)
    _, found = implanted(always("LDRWW", position="imgt", imgt_positions=IMGT), ["A" * 10] * 20_000)
    assert_distributed(Counter(found.start.tolist()), {3: 0.3} | dict.fromkeys([1, 2, 4], 0.7 / 3))


def test_all_starts_are_equally_likely_if_every_start_is_a_listed_position() -> None:
    """In 5 residues LDR fits behind 104 only, at 105."""
    signal = always("LDR", position="imgt", imgt_positions={"105": 0.2})
    assert outcomes(signal, "ACCCA", 999) == {"ALDRA": 999}
    signal = always("LD", position="imgt", imgt_positions={"105": 0.2, "106": 0.4})
    assert_distributed(outcomes(signal, "ACCCA"), {"ALDCA": 0.2 + 0.2, "ACLDA": 0.4 + 0.2})


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**32))
@settings(deadline=None, max_examples=25)
def test_imgt_leaves_the_conserved_ends(length: int, size: int, key: int) -> None:
    signal = always("W" * size, position="imgt", imgt_positions={"105": 0.2, "117": 0.3, "112.1": 0.2})
    texts, found = implanted(signal, ["A" * length] * 20, key=key)
    if size > length - 2:
        assert not found.signal.any()
        assert texts == ["A" * length] * 20
    for text, start in zip(texts, found.start.tolist(), strict=True):
        assert text[0] == text[-1] == "A"
        assert size > length - 2 or text == "A" * start + "W" * size + "A" * (length - start - size)


@pytest.mark.parametrize("position", ["anywhere", "centre"])
def test_a_motif_that_is_too_long_is_not_implanted(position: str) -> None:
    texts, found = implanted(always("WWWW", position=position), ["AAA", "AAAA", "A", "AAAAA"] * 50)
    assert found.signal.reshape(-1, 4).tolist() == [[0, 1, 0, 1]] * 50
    assert texts[::4] == ["AAA"] * 50
    assert texts[2::4] == ["A"] * 50


def test_only_the_shorter_form_is_implanted_if_the_longer_one_does_not_fit() -> None:
    texts, found = implanted(always("SF(d)E"), ["AA"] * 20_000)
    assert_distributed(Counter(texts), {"AA": 0.5, "SE": 0.5})
    assert [text == "SE" for text in texts] == (found.signal == 1).tolist()


@pytest.mark.parametrize("rate", [0.0001, 0.01, 0.5, 0.999])
def test_the_number_of_witnesses_is_binomial(rate: float) -> None:
    signal = MotifSignal((Motif("W"),), rate)
    implanter, residues, lengths = Implanter([signal]), np.zeros(20_000, np.uint8), np.ones(20_000, np.int64)
    counts = [
        int(implanter.implant(derive_key(0, number), np.arange(20_000), residues.copy(), lengths, [True]).signal.sum())
        for number in range(50)
    ]
    assert_share(sum(counts), 50 * 20_000, rate)
    spread = np.var(counts, ddof=1) / (20_000 * rate * (1 - rate)) * 49
    assert 1e-6 < stats.chi2.cdf(spread, 49) < 1 - 1e-6


def test_rates_of_0_and_1_are_exact() -> None:
    assert not implanted(MotifSignal((Motif("W"),), 0.0), ["AA"] * 20_000)[1].signal.any()
    assert implanted(MotifSignal((Motif("W"),), 1.0), ["AA"] * 20_000)[1].signal.all()


def test_signals_add_up_and_those_not_carried_do_not_count() -> None:
    signals = tuple(
        MotifSignal((Motif(letter),), rate, name=letter) for letter, rate in (("W", 0.2), ("H", 0.3), ("C", 0.4))
    )
    for carried in ([True] * 3, [True, False, True], [False, True, False], [False] * 3):
        texts, found = implanted(signals, ["A"] * 20_000, carried=carried)
        rates = [each.witness_rate * here for each, here in zip(signals, carried, strict=True)]
        expected = {"AWHC"[place]: rate for place, rate in enumerate([1 - sum(rates), *rates]) if rate}
        assert_distributed(Counter(texts), expected)
        assert ["AWHC"[number] for number in found.signal] == texts


def test_witnesses_of_one_repertoire_say_nothing_about_another() -> None:
    signal = MotifSignal((Motif("W"),), 0.3)
    first, second = (implanted(signal, ["AA"] * 20_000, key=key)[1].signal for key in (1, 2))
    assert_share(int((first & second).sum()), 20_000, 0.09)
    assert_share(int((first[1:] & first[:-1])[::2].sum()), 10_000, 0.09)


SEQUENCES = ["CASSF", "CASSLGTDTQYF", "CW", "CASSIRSSYEQYF", "CASSPGQGAYEQYFAAAF"] * 40
BUSY = (
    MotifSignal((Motif("SF(d)ZN"), Motif("GL-N", noise=0.2)), 0.4, "imgt", IMGT, name="a"),
    MotifSignal((Motif("LDR", substitutions=(0.2, 0.6, 0.2)),), 0.3, name="b"),
)


def test_residues_outside_the_motif_stay() -> None:
    texts, found = implanted(BUSY, SEQUENCES)
    assert 0 < (found.signal == 0).sum() < len(texts)
    for before, after, signal, start in zip(SEQUENCES, texts, found.signal, found.start.tolist(), strict=True):
        if signal == 0:
            assert after == before
        changed = [place for place, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert all(start <= place < start + 5 for place in changed)


@pytest.mark.slow
@given(st.permutations(range(200)), st.integers(0, 200))
@settings(deadline=None, max_examples=15)
def test_any_rows_alone_are_those_of_the_whole_repertoire(order: list[int], n: int) -> None:
    texts, found = implanted(BUSY, SEQUENCES)
    rows = np.array(order[:n], np.int64)
    some, some_found = implanted(BUSY, [SEQUENCES[row] for row in rows], rows=rows)
    assert some == [texts[row] for row in rows]
    for column, other in zip(found, some_found, strict=True):
        assert column[rows].tolist() == other.tolist()


def test_the_number_of_threads_does_not_change_the_result() -> None:
    before = numba.get_num_threads()
    try:
        results = []
        for n in (1, numba.config.NUMBA_NUM_THREADS):
            numba.set_num_threads(n)
            results.append(implanted(BUSY, SEQUENCES * 20))
    finally:
        numba.set_num_threads(before)
    assert results[0][0] == results[1][0]
    assert all((a == b).all() for a, b in zip(results[0][1], results[1][1], strict=True))


def test_without_sequences_or_signals_nothing_is_implanted() -> None:
    texts, found = implanted(BUSY, [])
    assert texts == []
    assert [len(column) for column in found] == [0, 0, 0]
    texts, found = implanted((), ["AAA"])
    assert texts == ["AAA"]
    assert found.signal.tolist() == [0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"motifs": ()}, "signal 'signal': expected at least one motif"),
        ({"witness_rate": 1.5}, "signal 'signal': witness_rate: expected 0 to 1, found 1.5"),
        ({"witness_rate": float("nan")}, "witness_rate: expected 0 to 1, found nan"),
        ({"prevalence": -1, "name": "x"}, "signal 'x': prevalence: expected 0 to 1, found -1"),
        ({"position": "imgt"}, "imgt_positions are needed with `position: imgt`, and only there"),
        ({"imgt_positions": {"107": 1.0}}, "imgt_positions are needed with `position: imgt`"),
        ({"position": "imgt", "imgt_positions": {"104": 0.5}}, "positions of the CDR3, 105 to 117.*found '104': 0.5"),
        ({"position": "imgt", "imgt_positions": {"118": 0.5}}, "found '118': 0.5"),
        ({"position": "imgt", "imgt_positions": {"107": 1.5}}, "found '107': 1.5"),
        ({"position": "imgt", "imgt_positions": {"107": 0.7, "108": 0.7}}, "expected at most 1 in total"),
    ],
)
def test_invalid_signals_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MotifSignal(**{"motifs": (Motif("LDR"),), "witness_rate": 0.1, **options})  # type: ignore[arg-type]
