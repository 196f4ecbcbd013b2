"""Diffuse signals: what is preferred, by how much, and that nothing else changes."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets, decode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import Cohort, DiffuseSignal, GermlineBackground, IndependentBackground, Sizes
from deeprc.datasets.simulation.cohort import Stream
from deeprc.datasets.simulation.diffuse_signal import SequencePreference, choose_second_draws
from deeprc.datasets.simulation.recipe import cohort_from_mapping, cohort_to_mapping, load_recipe
from deeprc.errors import InputError

SIGNAL = DiffuseSignal(0.5, 0.3)
COHORT = Cohort(6, Sizes(300), GermlineBackground(), (SIGNAL,), seed=4)


def drawn_from(*sequences: str) -> Sequences:
    return Sequences.encode(sequences)


def receptors(table: Sequences) -> list[tuple[str, str]]:
    assert table.v_call is not None
    return list(zip(decode_many(table.residues, compute_offsets(table.lengths)), table.v_call.names(), strict=True))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_score_is_the_sum_of_its_kmers_weights_over_the_root_of_their_number(k: int) -> None:
    sequences = ["CASSLF", "A", "CA", "WWWWW", "CASSLGNYEQYF", "Y"]
    preference = SequencePreference(5, 2.0, k, 0.5)
    kmers = ["".join(letters) for letters in product(AMINO_ACIDS, repeat=k)]
    weight = dict(zip(kmers, preference._weights, strict=True))
    assert abs(np.mean(preference._weights)) < 5 / np.sqrt(len(kmers))
    for sequence, score in zip(sequences, preference.score_sequences(drawn_from(*sequences)), strict=True):
        found = [weight[sequence[i : i + k]] for i in range(len(sequence) - k + 1)]
        assert score == pytest.approx(2.0 * sum(found) / np.sqrt(max(len(found), 1)))


def test_genes_have_their_share_of_the_score() -> None:
    names = tuple(f"TRBV{i}" for i in range(2000))
    calls = Categorical(np.arange(2000, dtype=np.uint16), names)
    sequences = Sequences.encode(["CASSLF"] * 2000)
    one_gene = sequences.with_genes({"v_call": calls})
    for share in (0.0, 0.5, 1.0):
        assert SequencePreference(5, 2.0, 3, share).score_sequences(one_gene).var() == pytest.approx(
            4 * share, rel=0.15, abs=1e-12
        )
    shuffled = sequences.with_genes({"v_call": Categorical(calls.codes[::-1].copy(), names)})
    scores = [SequencePreference(5, 2.0, 3, 1.0).score_sequences(each) for each in (one_gene, shuffled)]
    assert np.array_equal(scores[0], scores[1][::-1])


def test_the_second_sequence_is_chosen_with_the_probability_of_its_higher_score() -> None:
    n = 20_000
    preference = SequencePreference(5, 1.5, 2, 0.0)
    first, second = (drawn_from(*[text] * n) for text in ("CASF", "CWYF"))
    advantage = preference.score_sequences(second)[0] - preference.score_sequences(first)[0]
    chosen = choose_second_draws(first, second, [preference], 9, np.arange(n))
    expected = 1 / (1 + np.exp(-advantage))
    assert len(chosen) / n == pytest.approx(expected, abs=5 * np.sqrt(expected * (1 - expected) / n))
    assert 0.05 < expected < 0.95
    assert abs(expected - 0.5) > 0.05


def test_positive_repertoires_have_higher_scores() -> None:
    cohort = replace(COHORT, signals=(DiffuseSignal(0.5),), n_repertoires=20, sizes=Sizes(2000))
    plain = replace(cohort, signals=())
    tables = []
    for index in range(20):
        table, _ = cohort.draw(index)
        if cohort.is_positive(index):
            tables.append(table)
        else:
            assert receptors(table) == receptors(plain.draw(index)[0])
    weights = SequencePreference(cohort._derive_key(Stream.DIFFUSE, 0), 1.0, 3, 0.5)
    of_plain = weights.score_sequences(plain.draw(0)[0])
    for table in tables:
        scores = weights.score_sequences(table)
        # E[f(y)] under the preference is E[f] + strength / 2 var(f) to the first order
        assert scores.mean() - of_plain.mean() == pytest.approx(0.25 * of_plain.var(), rel=0.35)


def test_every_repertoire_has_preferences_of_its_own() -> None:
    cohort = replace(COHORT, signals=(DiffuseSignal(0.0, 1.0),), sizes=Sizes(20_000))
    usage = []
    for index in range(6):
        table, truth = cohort.draw(index)
        assert not truth.signal.any()
        assert table.v_call is not None
        usage.append(np.bincount(table.v_call.codes, minlength=5) / 20_000)
    assert np.std(usage, axis=0).mean() > 10 * np.sqrt(0.16 / 20_000)


def test_any_rows_alone_and_cohorts_of_other_sizes_have_the_same_sequences() -> None:
    for index in range(4):
        whole = receptors(COHORT.draw(index)[0])
        rows = np.array([250, 7, 7, 0])
        assert receptors(COHORT.draw(index, rows)[0]) == [whole[row] for row in rows]
        assert COHORT.draw_lengths_and_counts(index)[0].tolist() == [len(junction) for junction, _ in whole]
    assert receptors(replace(COHORT, n_repertoires=2).draw(1)[0]) == receptors(COHORT.draw(1)[0])


def test_a_signal_of_no_strength_changes_nothing() -> None:
    none = replace(COHORT, signals=(DiffuseSignal(0.0),))
    plain = replace(COHORT, signals=())
    assert receptors(none.draw(1)[0]) == receptors(plain.draw(1)[0])


def test_a_background_without_genes() -> None:
    table, _ = replace(COHORT, background=IndependentBackground()).draw(0)
    assert table.v_call is None
    assert len(table.lengths) == 300


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": -1}, "strength: expected 0 to 10, found -1"),
        ({"repertoire_strength": 11}, "repertoire_strength: expected 0 to 10"),
        ({"k": 5}, "k: expected 1 to 4, found 5"),
        ({"gene_share": 2}, "gene_share: expected 0 to 1"),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SIGNAL, **options)


def test_recipes_with_diffuse_signals_are_read_back_from_their_mappings() -> None:
    for name in ("diffuse", "mixed"):
        cohort, mapping = load_recipe(name)
        assert cohort_from_mapping(mapping) == cohort
        assert cohort_to_mapping(cohort) == mapping
    cohort, _ = load_recipe("mixed")
    assert cohort.exclusive
    positive = [i for i in range(300) if cohort.is_positive(i)]
    carried = np.array([cohort.find_carried_signals(i) for i in positive])
    assert (carried.sum(axis=1) == 1).all()
    assert carried.mean(axis=0) == pytest.approx([1 / 3] * 3, abs=0.12)
