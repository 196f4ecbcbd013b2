"""Variants of motifs (one position more or fewer, or another residue), and which of them a search returns."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from deeprc.config import load_config
from deeprc.datasets.dataset import open_dataset
from deeprc.tasks import Task
from deeprc.training import kmer_occurrences, motif_variants
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.kmer_sets import KmerSet, enumerate_spacings
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_search import MotifLimits, find_enriched_motifs
from deeprc.training.motif_start import find_start_variants
from deeprc.training.motif_variants import (
    find_all_variants,
    find_variants,
    list_length_variants,
    list_substitutions,
)
from deeprc.training.permutation_tests import N_DISCOVERY_PERMUTATIONS
from deeprc.training.search_outputs import SearchOutputs, iterate_search_outputs
from tests.conftest import motif, random_sequences, write_cohort

TASKS = [Task("status", "status", "binary", ("healthy", "case"))]
SPACINGS = [spacing for k in (2, 3, 4) for spacing in enumerate_spacings(k, 5)]
N = 120
BY_LENGTH = list_length_variants


def pattern_of(letters: tuple[int, ...]) -> str:
    return EnrichedMotif(letters, 0, 0.0, 1.0).pattern


def with_correlation(pattern: str, correlation: float) -> EnrichedMotif:
    return replace(motif(pattern), correlation=correlation)


def write_with(path: Path, of_cases: dict[str, float], of_healthy: dict[str, float]) -> list[list[str]]:
    """Write N repertoires of 400 sequences, every second a case; each text is put into so many of them on average."""
    rng = np.random.default_rng(0)
    repertoires = []
    for b in range(N):
        sequences = random_sequences(rng, 400)
        at = 0
        for text, mean in (of_cases if b % 2 else of_healthy).items():
            for _ in range(rng.poisson(mean)):
                sequences[at] = sequences[at][:2] + text + sequences[at][2:]
                at += 1
        repertoires.append(sequences)
    status = ["case" if b % 2 else "healthy" for b in range(N)]
    write_cohort(path, repertoires, pd.DataFrame({"status": status}))
    return repertoires


def open_search_output(path: Path) -> tuple[LabelledRepertoires, SearchOutputs]:
    dataset = open_dataset(path)
    labelled = LabelledRepertoires(dataset, (dataset.metadata["status"] == "case").to_numpy(np.float64)[:, None])
    (search_output,) = iterate_search_outputs(labelled, TASKS, 2)
    return labelled, search_output


def find_patterns(labelled: LabelledRepertoires) -> list[str]:
    limits = MotifLimits(16, level=0.01)
    return [each.pattern for each in find_enriched_motifs(labelled, TASKS, spacings=SPACINGS, limits=limits)]


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        ("SN", ["S.N"]),
        ("S.N", ["SN", "S..N"]),
        ("SFEN", ["SEN", "SFN", "S.FEN", "SF.EN", "SFE.N"]),
        ("SF.N", ["S.N", "SFN", "S.F.N", "SF..N"]),
    ],
)
def test_variants_lack_one_inner_position_or_have_one_more(whole: str, expected: list[str]) -> None:
    assert [pattern_of(variant) for variant in list_length_variants(motif(whole).letters)] == expected


def test_substitutions_replace_one_fixed_residue_of_at_least_three() -> None:
    variants = [pattern_of(variant) for variant in list_substitutions(motif("SF.N").letters)]
    assert variants[:3] == ["AF.N", "CF.N", "DF.N"]
    assert len(set(variants)) == 3 * 19
    assert all(sum(x != y for x, y in zip(variant, "SF.N", strict=True)) == 1 for variant in variants)
    assert all(variant[2] == "." for variant in variants)
    assert list_substitutions(motif("S..N").letters) == []


@pytest.mark.slow
def test_correlations_and_rates_equal_a_plain_computation(tmp_path: Path) -> None:
    """WHM is a variant of WHWM, and YCF one of another motif, which is rarer in cases."""
    of_cases, of_healthy = {"WHWM": 6, "WHM": 6, "YYCF": 1}, {"WHWM": 1, "WHM": 2, "YYCF": 6, "YCF": 4}
    repertoires = write_with(tmp_path / "c.h5", of_cases, of_healthy)
    labelled, search_output = open_search_output(tmp_path / "c.h5")
    motifs = [with_correlation("WHWM", 0.8), with_correlation("YYCF", -0.8)]
    has_motif = np.array(["WHWM" in each or "YYCF" in each for own in repertoires for each in own])
    found = find_variants(
        motifs, search_output, SPACINGS, has_motif, BY_LENGTH, level=0.01, rng=np.random.default_rng(3)
    )

    variants = [pattern_of(variant) for each in motifs for variant in list_length_variants(each.letters)]
    frequencies = np.zeros((N, len(variants)))
    for own, row in zip(repertoires, frequencies, strict=True):
        free = [each for each in own if "WHWM" not in each and "YYCF" not in each]
        for f, variant in enumerate(variants):
            row[f] = sum(len(re.findall(f"(?={variant})", each)) for each in free) / len(free)
    n_free = np.array([sum("WHWM" not in each and "YYCF" not in each for each in own) for own in repertoires])
    weights = search_output.compute_weights(n_free)

    def correlate(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
        x, y = x - np.average(x, weights=weights), y - np.average(y, weights=weights)
        return float((weights * x) @ y / np.sqrt((weights * x) @ x * ((weights * y) @ y)))

    expected = {
        variant: correlate(frequencies[:, variants.index(variant)], labelled.labels[:, 0]) for variant in ("WHM", "YCF")
    }
    assert {pattern_of(variant.letters): variant.correlation for variant in found} == pytest.approx(expected)
    assert expected["WHM"] > 0.5
    assert expected["YCF"] < -0.5
    # with labels of nobody no variant of 120 repertoires is as strong, so the true labels alone are, for two variants
    assert [variant.p_value for variant in found] == pytest.approx([1 / (1 + N_DISCOVERY_PERMUTATIONS) / 2] * 2)


@pytest.mark.slow
def test_only_variants_in_the_direction_of_their_motif_share_a_rate(tmp_path: Path) -> None:
    """A variant of the other direction, however strong, does not make another one more certain."""
    repertoires = write_with(tmp_path / "c.h5", {"WHWM": 6, "WHM": 5, "YYCF": 6}, {"YCF": 5})
    _, search_output = open_search_output(tmp_path / "c.h5")
    has_motif = np.array(["WHWM" in each or "YYCF" in each for own in repertoires for each in own])
    rng = np.random.default_rng(0)
    motifs = [with_correlation("WHWM", 0.8), with_correlation("YYCF", 0.8)]
    found = find_variants(motifs, search_output, SPACINGS, has_motif, BY_LENGTH, level=0.01, rng=rng)
    assert [(pattern_of(variant.letters), variant.p_value) for variant in found] == [("WHM", pytest.approx(1 / 2001))]


@pytest.mark.slow
def test_a_variant_of_the_other_direction_is_none(tmp_path: Path) -> None:
    repertoires = write_with(tmp_path / "c.h5", {"WHWM": 8}, {"WHM": 8})
    _, search_output = open_search_output(tmp_path / "c.h5")
    has_motif = np.array(["WHWM" in each for own in repertoires for each in own])
    rng = np.random.default_rng(0)
    assert (
        find_variants(
            [with_correlation("WHWM", 0.8)],
            search_output,
            SPACINGS,
            has_motif,
            list_length_variants,
            level=0.01,
            rng=rng,
        )
        == []
    )
    other = find_variants(
        [with_correlation("WHWM", -0.8)], search_output, SPACINGS, has_motif, BY_LENGTH, level=0.01, rng=rng
    )
    assert [pattern_of(variant.letters) for variant in other] == ["WHM"]


@pytest.mark.slow
def test_variants_with_other_offsets_are_left_out(tmp_path: Path) -> None:
    repertoires = write_with(tmp_path / "c.h5", {"WHWM": 8, "WHM": 8}, {})
    _, search_output = open_search_output(tmp_path / "c.h5")
    has_motif = np.array(["WHWM" in each for own in repertoires for each in own])
    arguments = [with_correlation("WHWM", 0.8)], search_output
    rng = np.random.default_rng(0)
    assert find_variants(*arguments, [(0, 1), (0, 1, 2, 3)], has_motif, BY_LENGTH, level=0.01, rng=rng) == []
    found = find_variants(*arguments, [(0, 1), (0, 1, 2)], has_motif, BY_LENGTH, level=0.01, rng=rng)
    assert [pattern_of(variant.letters) for variant in found] == ["WHM"]


@pytest.mark.long
def test_without_association_there_is_no_variant(tmp_path: Path) -> None:
    """In half of 40 permutations of the labels, the strongest variant has the direction; at 5%, two show one."""
    write_with(tmp_path / "c.h5", {"WHM": 3}, {"WHM": 3})
    labelled, search_output = open_search_output(tmp_path / "c.h5")
    nobody = np.zeros(int(labelled.dataset.n_sequences.sum()), np.bool_)
    kmers = KmerSet(SPACINGS, np.array([SPACINGS.index((0, 1, 2))]), np.array([motif("WHM").code]))
    counts = motif_variants._count_free(labelled.dataset, kmers, nobody)
    assert counts.sum() > 2 * N  # so there is something to find
    rng, shown = np.random.default_rng(0), 0
    for _ in range(40):
        (search_output,) = iterate_search_outputs(
            LabelledRepertoires(labelled.dataset, rng.permutation(labelled.labels)), TASKS, 2
        )
        shown += bool(
            find_variants(
                [with_correlation("WH.M", 0.5)],
                search_output,
                SPACINGS,
                nobody,
                list_length_variants,
                level=0.05,
                rng=rng,
            )
        )
    assert shown <= 5


@pytest.mark.long
def test_labels_of_donors_are_permuted_between_donors(tmp_path: Path) -> None:
    """A variant that some donors have looks associated if a donor's repertoires count as different donors."""
    repertoires = write_with(tmp_path / "c.h5", {}, {})
    rng = np.random.default_rng(1)
    own = rng.poisson(4, 24)  # of each donor
    for b, sequences in enumerate(repertoires):
        for at in range(own[b // 5]):
            sequences[at] = sequences[at][:2] + "WHM" + sequences[at][2:]
    write_cohort(tmp_path / "d.h5", repertoires, pd.DataFrame({"status": ["case", "healthy"] * (N // 2)}))
    dataset = open_dataset(tmp_path / "d.h5")
    nobody, shown = np.zeros(int(dataset.n_sequences.sum()), np.bool_), {True: 0, False: 0}
    for known in shown:
        for seed in range(40):
            labels = np.repeat(np.random.default_rng(seed).permutation(24) % 2, 5).astype(np.float64)[:, None]
            groups = np.repeat(np.arange(24), 5) if known else None
            (search_output,) = iterate_search_outputs(LabelledRepertoires(dataset, labels, groups), TASKS, 2)
            motifs = [with_correlation("WH.M", 0.5)]
            shown[known] += bool(find_variants(motifs, search_output, SPACINGS, nobody, BY_LENGTH, level=0.05, rng=rng))
    assert shown[True] <= 3
    assert shown[False] >= 5


@pytest.mark.slow
def test_variants_that_fill_the_memory_are_counted_in_several_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WHM and WM are in 1,000 sequences; one of them fits at a time. With room for less, they are left out."""
    repertoires = write_with(tmp_path / "c.h5", {"WHWM": 5, "WHM": 8}, {"WHM": 4})
    _, search_output = open_search_output(tmp_path / "c.h5")
    has_motif = np.array(["WHWM" in each for own in repertoires for each in own])
    motifs = [with_correlation("WHWM", 0.8)]

    def find() -> list[EnrichedMotif]:
        return find_variants(
            motifs, search_output, SPACINGS, has_motif, BY_LENGTH, level=0.01, rng=np.random.default_rng(0)
        )

    every = find()
    assert [pattern_of(variant.letters) for variant in every] == ["WHM"]
    monkeypatch.setattr(kmer_occurrences, "_MAX_OCCURRENCES", 1000)
    assert find() == every
    monkeypatch.setattr(kmer_occurrences, "_MAX_OCCURRENCES", 300)
    assert find() == []


@pytest.mark.slow
def test_motifs_of_the_other_direction_make_no_variant_more_frequent(tmp_path: Path) -> None:
    """Half of the sequences of healthy repertoires have a motif; among the others, WHM is as frequent as in cases."""
    repertoires = write_with(tmp_path / "c.h5", {"WHM": 20}, {"WHM": 20})
    _, search_output = open_search_output(tmp_path / "c.h5")
    rng = np.random.default_rng(0)
    has_motif = np.concatenate([rng.random(len(own)) < (0.5 if b % 2 == 0 else 0) for b, own in enumerate(repertoires)])
    arguments = [with_correlation("WHWM", 0.8)], search_output, SPACINGS, has_motif, BY_LENGTH
    assert find_variants(*arguments, level=0.01, rng=rng) == []


def test_without_other_sequences_there_is_no_variant(tmp_path: Path) -> None:
    write_with(tmp_path / "c.h5", {"WHWM": 5}, {})
    _, search_output = open_search_output(tmp_path / "c.h5")
    has_motif = np.ones(int(search_output.dataset.n_sequences.sum()), np.bool_)
    arguments = [with_correlation("WHWM", 0.8)], search_output, SPACINGS, has_motif
    assert find_variants(*arguments, BY_LENGTH, level=0.01, rng=np.random.default_rng(0)) == []


@pytest.mark.slow
def test_a_weak_variant_of_a_clear_motif_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One witness in fourteen lacks a residue, which makes 0.4 in a repertoire of 400."""
    write_with(tmp_path / "c.h5", {"SFEN": 5, "SEN": 0.4}, {})
    labelled, _ = open_search_output(tmp_path / "c.h5")
    assert find_patterns(labelled) == ["SFEN", "SEN"]
    monkeypatch.setattr(motif_variants, "list_length_variants", lambda letters: [])
    assert find_patterns(labelled) == ["SFEN"]


@pytest.mark.long
def test_variants_follow_the_motifs_of_all_outputs(tmp_path: Path) -> None:
    """The variant SEN of the first target comes after the motif of the second, and is left out if there is no place."""
    repertoires = write_with(tmp_path / "c.h5", {"SFEN": 5, "SEN": 0.4}, {})
    for sequences in repertoires[: N // 2]:
        for at in range(50, 55):
            sequences[at] = sequences[at][:2] + "WHWM" + sequences[at][2:]
    write_cohort(tmp_path / "d.h5", repertoires, pd.DataFrame({"status": ["healthy", "case"] * (N // 2)}))
    labels = np.stack([np.arange(N) % 2, np.arange(N) < N // 2], axis=1).astype(np.float64)
    tasks = [*TASKS, Task("sex", "sex", "binary", ("f", "m"))]
    labelled = LabelledRepertoires(open_dataset(tmp_path / "d.h5"), labels)
    for room, expected in ((3, [("SFEN", 0), ("WHWM", 1), ("SEN", 0)]), (2, [("SFEN", 0), ("WHWM", 1)])):
        found = find_enriched_motifs(labelled, tasks, spacings=SPACINGS, limits=MotifLimits(room, level=0.01))
        assert sorted((each.pattern, each.output) for each in found) == sorted(expected)
        assert room == 2 or found[2].pattern == "SEN"
        assert all(each.p_value <= 0.01 for each in found)


@pytest.mark.slow
def test_substitutions_are_found_step_by_step(tmp_path: Path) -> None:
    """SWDN is two substitutions away from SFEN, and one from SFDN; MCHY is as frequent and no variant."""
    repertoires = write_with(tmp_path / "c.h5", {"SFEN": 5, "SFDN": 0.5, "SWDN": 0.5, "MCHY": 0.5}, {})
    _, search_output = open_search_output(tmp_path / "c.h5")
    has_motif = np.array(["SFEN" in each for own in repertoires for each in own])
    arguments = [with_correlation("SFEN", 0.8)], search_output, SPACINGS, has_motif
    found = find_all_variants(*arguments, max_variants=9, level=0.01, rng=np.random.default_rng(0))
    assert [each.pattern for each in found] == ["SFDN", "SWDN"]
    assert all(0.3 < each.correlation < 0.7 and 1 / 2001 <= each.p_value <= 0.01 for each in found)


@pytest.mark.slow
def test_variants_are_at_most_as_many_as_asked_for(tmp_path: Path) -> None:
    repertoires = write_with(tmp_path / "c.h5", {"SFEN": 5, "SEN": 4, "SFDN": 3, "SFAN": 2}, {})
    _, search_output = open_search_output(tmp_path / "c.h5")
    has_motif = np.array(["SFEN" in each for own in repertoires for each in own])
    before = has_motif.copy()

    def find(n: int) -> list[str]:
        arguments = [with_correlation("SFEN", 0.8)], search_output, SPACINGS, has_motif
        rng = np.random.default_rng(0)
        return [each.pattern for each in find_all_variants(*arguments, max_variants=n, level=0.01, rng=rng)]

    assert find(9) == ["SEN", "SFDN", "SFAN"]
    assert [find(n) for n in (0, 1, 2)] == [[], ["SEN"], ["SEN", "SFDN"]]
    assert (has_motif == before).all()


@pytest.mark.slow
def test_substitutions_that_do_not_fit_into_one_pass_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SFDN and SFTN occur 180 times each, all other substitutions together 200 times; SFDN comes first."""
    repertoires = write_with(tmp_path / "c.h5", {"SFEN": 5, "SFDN": 3, "SFTN": 3}, {})
    _, search_output = open_search_output(tmp_path / "c.h5")
    has_motif = np.array(["SFEN" in each for own in repertoires for each in own])
    arguments = [with_correlation("SFEN", 0.8)], search_output, SPACINGS, has_motif, list_substitutions

    def find() -> set[str]:
        rng = np.random.default_rng(0)
        return {each.pattern for each in find_variants(*arguments, level=0.01, rng=rng, one_pass=True)}

    assert find() == {"SFDN", "SFTN"}
    monkeypatch.setattr(kmer_occurrences, "_MAX_OCCURRENCES", 450)
    assert find() == {"SFDN"}


@pytest.mark.slow
def test_a_confirmed_motif_brings_its_variants(tmp_path: Path) -> None:
    write_with(tmp_path / "c.h5", {"SFEN": 5, "SEN": 3, "SFDN": 2}, {})
    labelled, _ = open_search_output(tmp_path / "c.h5")
    confirmed = [motif("SFEN", p_value=0.2)]

    def find(n_kernels: int) -> list[EnrichedMotif]:
        config = load_config("deeprc", {"network.n_kernels": n_kernels, "training.seeded_start": 0.5})
        return find_start_variants(config, TASKS, labelled, confirmed, seed=0)

    assert [each.pattern for each in find(32)] == ["SEN", "SFDN"]
    assert all(each.p_value <= 0.01 and each.output == 0 for each in find(32))
    assert [[each.pattern for each in find(n)] for n in (4, 2)] == [["SEN"], []]
    assert find_start_variants(load_config("deeprc", {}), TASKS, labelled, [], seed=0) == []


@pytest.mark.slow
def test_variants_of_two_confirmed_motifs_are_different(tmp_path: Path) -> None:
    """SFDN is the motif of one target and a variant of that of the other; both lead to SFAN."""
    write_with(tmp_path / "c.h5", {"SFEN": 5, "SFDN": 4, "SFAN": 3}, {})
    dataset = open_dataset(tmp_path / "c.h5")
    labels = (dataset.metadata["status"] == "case").to_numpy(np.float64)
    tasks = [*TASKS, Task("again", "again", "binary", ("no", "yes"))]
    confirmed = [motif("SFEN", p_value=0.2), motif("SFDN", output=1, p_value=0.2)]
    labelled = LabelledRepertoires(dataset, np.stack([labels, labels], axis=1))
    found = find_start_variants(load_config("deeprc", {}), tasks, labelled, confirmed, seed=0)
    assert [each.pattern for each in found] == ["SFAN"]
