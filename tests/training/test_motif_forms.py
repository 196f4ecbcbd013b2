"""Forms of motifs with one position more or fewer, and which of them a search returns."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from deeprc.datasets.dataset import open_dataset
from deeprc.tasks import Task
from deeprc.training import motif_forms
from deeprc.training.discoveries import N_PERMUTATIONS
from deeprc.training.enrichment import EnrichedMotif, MotifLimits, enumerate_kmer_offsets, find_enriched_motifs
from deeprc.training.fold import Fold
from deeprc.training.motif_forms import find_forms, list_forms
from deeprc.training.search_targets import SearchTarget, iterate_targets
from tests.conftest import motif, random_sequences, write_cohort

TASKS = [Task("status", "status", "binary", ("healthy", "case"))]
PATTERNS = [each for k in (2, 3, 4) for each in enumerate_kmer_offsets(k, 5)]
N = 120


def pattern_of(letters: tuple[int, ...]) -> str:
    return EnrichedMotif(letters, 0, 0.0, 1.0).pattern


def write_with(path: Path, of_cases: dict[str, float], of_healthy: dict[str, float], *, seed: int = 0) -> list[list[str]]:
    """Write N repertoires of 400 sequences, every second a case; each text is put into so many of them on average."""
    rng = np.random.default_rng(seed)
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


def open_target(path: Path) -> tuple[Fold, SearchTarget]:
    dataset = open_dataset(path)
    fold = Fold(dataset, (dataset.metadata["status"] == "case").to_numpy(np.float64)[:, None])
    (target,) = iterate_targets(fold, TASKS, 2)
    return fold, target


def find_patterns(fold: Fold) -> list[str]:
    limits = MotifLimits(16, level=0.01)
    return [each.pattern for each in find_enriched_motifs(fold, TASKS, patterns=PATTERNS, limits=limits)]


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        ("SN", ["S.N"]),
        ("S.N", ["SN", "S..N"]),
        ("SFEN", ["SEN", "SFN", "S.FEN", "SF.EN", "SFE.N"]),
        ("SF.N", ["S.N", "SFN", "S.F.N", "SF..N"]),
    ],
)
def test_forms_lack_one_inner_position_or_have_one_more(whole: str, expected: list[str]) -> None:
    assert [pattern_of(form) for form in list_forms(motif(whole).letters)] == expected


def test_correlations_and_rates_equal_a_plain_computation(tmp_path: Path) -> None:
    """WHM is a form of WHWM and of WH.M, and YCF one of another motif, which is rarer in cases."""
    of_cases, of_healthy = {"WHWM": 6, "WHM": 6, "YYCF": 1}, {"WHWM": 1, "WHM": 2, "YYCF": 6, "YCF": 4}
    repertoires = write_with(tmp_path / "c.h5", of_cases, of_healthy)
    _, target = open_target(tmp_path / "c.h5")
    motifs = {motif("WHWM").letters: 0.8, motif("YYCF").letters: -0.8}
    explained = np.array(["WHWM" in each or "YYCF" in each for own in repertoires for each in own])
    found = find_forms(motifs, target, PATTERNS, explained, level=0.01, rng=np.random.default_rng(3))

    forms = [pattern_of(form) for letters in motifs for form in list_forms(letters)]
    frequencies = np.zeros((N, len(forms)))
    for own, row in zip(repertoires, frequencies, strict=True):
        free = [each for each in own if "WHWM" not in each and "YYCF" not in each]
        for f, form in enumerate(forms):
            row[f] = sum(len(re.findall(f"(?={form})", each)) for each in free) / len(free)
    n_free = np.array([sum("WHWM" not in each and "YYCF" not in each for each in own) for own in repertoires])
    labels = target.permute_labels(N_PERMUTATIONS, np.random.default_rng(3))[:, 0]
    weights = target.weigh(n_free)

    def correlate(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
        x, y = x - np.average(x, weights=weights), y - np.average(y, weights=weights)
        return float((weights * x) @ y / np.sqrt((weights * x) @ x * ((weights * y) @ y)))

    r = np.array([[correlate(column, y) for y in labels.T[:400]] for column in frequencies.T if column.any()])
    seen = [form for form, column in zip(forms, frequencies.T, strict=True) if column.any()]
    expected = {form: value for form, value in zip(seen, r[:, 0], strict=True) if form in ("WHM", "YCF")}
    assert {pattern_of(form.letters): form.correlation for form in found} == pytest.approx(expected)
    assert expected["WHM"] > 0.5
    assert expected["YCF"] < -0.5
    # no permutation is as strong, so the true labels alone are, among 2,001, for one form and for two
    assert np.abs(r[:, 1:]).max() < min(map(abs, expected.values()))
    assert [form.rate for form in found] == pytest.approx([1 / 2001 / 2] * 2)


def test_a_form_of_the_other_direction_is_none(tmp_path: Path) -> None:
    repertoires = write_with(tmp_path / "c.h5", {"WHWM": 8}, {"WHM": 8})
    _, target = open_target(tmp_path / "c.h5")
    explained = np.array(["WHWM" in each for own in repertoires for each in own])
    rng = np.random.default_rng(0)
    assert find_forms({motif("WHWM").letters: 0.8}, target, PATTERNS, explained, level=0.01, rng=rng) == []
    other = find_forms({motif("WHWM").letters: -0.8}, target, PATTERNS, explained, level=0.01, rng=rng)
    assert [pattern_of(form.letters) for form in other] == ["WHM"]


def test_forms_with_other_offsets_are_left_out(tmp_path: Path) -> None:
    repertoires = write_with(tmp_path / "c.h5", {"WHWM": 8, "WHM": 8}, {})
    _, target = open_target(tmp_path / "c.h5")
    explained = np.array(["WHWM" in each for own in repertoires for each in own])
    arguments = {motif("WHWM").letters: 0.8}, target
    rng = np.random.default_rng(0)
    assert find_forms(*arguments, [(0, 1), (0, 1, 2, 3)], explained, level=0.01, rng=rng) == []
    found = find_forms(*arguments, [(0, 1), (0, 1, 2)], explained, level=0.01, rng=rng)
    assert [pattern_of(form.letters) for form in found] == ["WHM"]


def test_without_association_there_is_no_form(tmp_path: Path) -> None:
    """At a level of 5%, two of 40 labels of nobody are expected to have one."""
    write_with(tmp_path / "c.h5", {}, {})
    fold, _ = open_target(tmp_path / "c.h5")
    rng, shown = np.random.default_rng(0), 0
    nobody = np.zeros(int(fold.dataset.n_sequences.sum()), np.bool_)
    for _ in range(40):
        permuted = Fold(fold.dataset, rng.permutation(fold.labels))
        (target,) = iterate_targets(permuted, TASKS, 2)
        motifs = {motif("WH.M").letters: 0.5, motif("WH.M").letters[::-1]: -0.5}
        shown += bool(find_forms(motifs, target, PATTERNS, nobody, level=0.05, rng=rng))
    assert shown <= 5


def test_a_weak_form_of_a_clear_motif_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the witnesses lack a residue, and few of these are in each repertoire."""
    write_with(tmp_path / "c.h5", {"SFEN": 5, "SEN": 0.4}, {})
    fold, _ = open_target(tmp_path / "c.h5")
    assert find_patterns(fold) == ["SFEN", "SEN"]
    monkeypatch.setattr(motif_forms, "list_forms", lambda letters: [])
    assert find_patterns(fold) == ["SFEN"]


def test_forms_take_no_place_of_other_motifs(tmp_path: Path) -> None:
    write_with(tmp_path / "c.h5", {"SFEN": 5, "SEN": 0.4}, {})
    fold, _ = open_target(tmp_path / "c.h5")
    limits = MotifLimits(1, level=0.01)
    found = find_enriched_motifs(fold, TASKS, patterns=PATTERNS, limits=limits)
    assert [each.pattern for each in found] == ["SFEN"]
