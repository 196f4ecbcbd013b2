"""Motifs of attended sequences: planted ones are found first, and nothing in random sequences."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from deeprc.config import Config
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.attributions import Attributions
from deeprc.interpretation.motifs import (
    AttendedMotif,
    MotifOptions,
    candidates,
    find_all_motifs,
    find_motifs,
    tabulate_motifs,
    write_meme,
)
from deeprc.interpretation.motifs.attended_motif import Source
from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.interpretation.motifs.kernels import find_best_windows, propose_kernel_pattern
from deeprc.interpretation.motifs.matrices import Windows
from deeprc.interpretation.motifs.patterns import LONGEST, format_pattern
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.nn.encoders import ConvolutionEncoder
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training.model import Ensemble, TrainedModel
from tests.conftest import random_sequences, write_cohort

TASK = Task("status", "status", "binary", ("healthy", "case"))
N = 300


def a_model(task: Task = TASK, **network: object) -> TrainedModel:
    torch.manual_seed(0)
    made = DeepRC(n_outputs=task.n_outputs, n_kernels=8, key_units=8, **network)  # type: ignore[arg-type]
    return TrainedModel((task,), made.eval(), Config())


def planted(motifs: list[str], tmp_path: Path, seed: int = 0) -> tuple[RepertoireDataset, Attributions]:
    """Give a cohort whose cases have the motifs in a tenth of their sequences, and attributions of these."""
    rng = np.random.default_rng(seed)
    repertoires, rows, spans = [], [], []
    for number in range(10):
        sequences = random_sequences(rng, 600, 9, 14)
        for at in range(0, 600, 10) if number % 2 else ():
            motif = motifs[at // 10 % len(motifs)] if motifs else ""
            made = "".join(letter if letter != "." else rng.choice(list(AMINO_ACIDS)) for letter in motif)
            first = int(rng.integers(1, 5))
            sequences[at] = sequences[at][:first] + made + sequences[at][first + len(made) :]
            rows.append((f"rep.{number}", at + 1, sequences[at]))
            spans.append((first, first + len(motif)))
        repertoires.append(sequences)
    labels = np.array(["healthy", "case"])[np.arange(10) % 2]
    metadata = pd.DataFrame({"status": labels, "age": np.arange(10.0), "grade": [*"aab" * 3, None]})
    dataset = write_cohort(tmp_path / "cohort.h5", repertoires, metadata)
    table = pd.DataFrame(rows, columns=["repertoire_id", "sequence_id", "junction_aa"])
    lengths = table["junction_aa"].str.len().to_numpy()
    residues = rng.normal(scale=0.2, size=(N, lengths.max()))
    for row, (first, stop) in enumerate(spans):
        residues[row, first:stop] += 1.0
    residues[np.arange(lengths.max()) >= lengths[:, None]] = np.nan
    index = SequenceIndex.of(dataset, table)
    return dataset, Attributions(index, 0, residues, rng.random((N, 8)), np.nansum(residues, axis=1))


@pytest.fixture(scope="module")
def found_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[AttendedMotif]]:
    """A function that finds the motifs of a cohort with these motifs, once."""

    @cache
    def find(*motifs: str, **options: int) -> list[AttendedMotif]:
        folder = tmp_path_factory.mktemp("planted")
        return find_motifs(a_model(), *planted(list(motifs), folder), background=4000, **options)

    return find


def test_a_planted_motif_is_found_first_and_once(found_in: Callable[..., list[AttendedMotif]]) -> None:
    motifs = found_in("LDRW")
    assert [motif.pattern for motif in motifs] == ["LDRW"]
    motif = motifs[0]
    assert "windows" in motif.source
    assert motif.n_attended == motif.n_attended_with == N
    assert motif.n_background_with <= 1
    assert motif.enrichment_log10_p < motif.enrichment_log10_p_adjusted < -200
    assert np.isnan(motif.p_donors)
    assert np.isnan(motif.q_donors)
    core = slice(motif.start, motif.start + 4)
    assert "".join(AMINO_ACIDS[r] for r in motif.frequencies[core].argmax(axis=1)) == "LDRW"
    assert (motif.information[core].sum(axis=1) > 3).all()
    np.testing.assert_allclose(motif.frequencies.sum(axis=1), 1.0)


@pytest.mark.slow
def test_two_motifs_and_one_with_a_gap(found_in: Callable[..., list[AttendedMotif]]) -> None:
    assert {motif.pattern for motif in found_in("LDRW", "PEK")[:2]} == {"LDRW", "PEK"}
    gapped = found_in("LD..RW")
    assert [motif.pattern for motif in gapped] == ["LD..RW"]
    assert [motif.pattern for motif in found_in("LDRW", "PEK", max_motifs=1)] == ["LDRW"]


@pytest.mark.slow
def test_a_motif_with_substitutions_is_one_motif(found_in: Callable[..., list[AttendedMotif]]) -> None:
    motifs = found_in("LDRW", "LDRY", "LDRW", "L.RW")
    assert re.fullmatch("L[D.]R(?:W|\\[WY\\])", motifs[0].pattern)
    assert all(motif.n_attended_with < motifs[0].n_attended_with for motif in motifs[1:])


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_found_in_random_sequences(tmp_path: Path, seed: int) -> None:
    assert find_motifs(a_model(), *planted([], tmp_path, seed), background=4000) == []


@pytest.mark.parametrize(
    ("n_with", "others_with", "is_named"),
    [(10, 2, True), (10, 3, False), (5, 2, False), (6, 2, True)],  # odds ratios 54.6, 33, 3 and 4.5
)
def test_a_motif_has_an_odds_ratio_of_four_and_is_in_a_quarter_of_others_at_most(
    n_with: int, others_with: int, is_named: bool
) -> None:
    sequences = ["CWWF"] * n_with + ["CAAF"] * (10 - n_with) + ["CWWF"] * others_with + ["CAAF"] * (8 - others_with)
    samples = ComparedSequences.of(sequences[:10], sequences[10:])
    masks = np.full(2, 1 << AMINO_ACIDS.index("W"), np.uint32)
    assert candidates._is_specific(samples, masks) == is_named


@pytest.mark.slow
def test_carriers_are_those_of_a_regular_expression(tmp_path: Path) -> None:
    dataset, attributions = planted(["LD..RW"], tmp_path)
    motif = find_motifs(a_model(), dataset, attributions)[0]
    counts = np.array([sum(bool(re.search(motif.pattern, s)) for s in rep.sequences.decode()) for rep in dataset])
    expected = pd.DataFrame(
        {
            "class": ["healthy", "case"],
            "n_repertoires": 5,
            "n_repertoires_with": [int((counts[::2] > 0).sum()), 5],
            "n_sequences": 3000,
            "n_sequences_with": [int(counts[::2].sum()), int(counts[1::2].sum())],
            "mean_share": [counts[::2].mean() / 600, counts[1::2].mean() / 600],
        }
    )
    pd.testing.assert_frame_equal(motif.carriers, expected)


@pytest.mark.slow
def test_donors_that_the_model_has_not_seen_are_tested(tmp_path: Path) -> None:
    """Repertoires 2 to 9 are held out, 3 is of a donor of training, and 6 and 8 are of one donor."""
    dataset, attributions = planted(["LDRW", "PEK"], tmp_path)
    dataset.container.metadata = dataset.metadata.assign(donor=[*"abcadefgfh"])
    is_held_out = np.arange(10) >= 2
    found = find_motifs(a_model(), dataset, attributions, background=4000, is_held_out=is_held_out)
    assert {motif.pattern for motif in found[:2]} == {"LDRW", "PEK"}
    for motif in found:
        rates = [np.mean([bool(re.search(motif.pattern, s)) for s in rep.sequences.decode()]) for rep in dataset]
        healthy, case = [rates[2], rates[4], (rates[6] + rates[8]) / 2], [rates[5], rates[7], rates[9]]
        assert motif.donors["class"].tolist() == ["healthy", "case"]
        assert motif.donors["n_donors"].tolist() == [3, 3]
        np.testing.assert_allclose(motif.donors["mean_rate"], [np.mean(healthy), np.mean(case)])
        assert motif.donors["n_donors_with"].tolist() == [sum(np.array(part) > 0) for part in (healthy, case)]
    assert found[0].p_donors == found[1].p_donors == pytest.approx(1 / 20)  # 3 of 6 in the best order
    down = find_motifs(a_model(), dataset, attributions, background=4000, is_held_out=is_held_out, sign=-1)
    assert down[0].p_donors == 1.0
    options = MotifOptions(background=4000, is_held_out=is_held_out)
    both = find_all_motifs(a_model(), dataset, [attributions] * 2, [1, -1], options)
    p_values = np.array([motif.p_donors for own in both for motif in own])
    expected = stats.false_discovery_control(p_values)
    np.testing.assert_allclose([motif.q_donors for own in both for motif in own], expected)


@pytest.mark.slow
def test_numbers_and_several_classes_are_tested(tmp_path: Path) -> None:
    dataset, attributions = planted(["LDRW"], tmp_path)
    is_held_out = np.ones(10, bool)
    rates = [np.mean(["LDRW" in s for s in rep.sequences.decode()]) for rep in dataset]
    motif = find_motifs(
        a_model(Task("age", "age", "regression")), dataset, attributions, background=4000, is_held_out=is_held_out
    )[0]
    assert motif.p_donors == pytest.approx(stats.spearmanr(rates, np.arange(10), alternative="greater").pvalue)
    model = a_model(Task("grade", "grade", "multiclass", ("a", "b")))
    motif = find_motifs(model, dataset, replace(attributions, output=1), background=4000, is_held_out=is_held_out)[0]
    own, other = np.array(rates)[[2, 5, 8]], np.array(rates)[[0, 1, 3, 4, 6, 7]]
    every = stats.PermutationMethod(n_resamples=np.inf)
    expected = stats.mannwhitneyu(own, other, alternative="greater", method=every).pvalue
    assert motif.p_donors == pytest.approx(expected)


@pytest.mark.slow
def test_a_motif_that_makes_sequences_longer_is_found(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    """The longest sequences all carry it, so a background of these lengths alone would be carriers, too."""
    dataset = cohort_factory(100, 100, seed=4)
    rows = [
        (repertoire.repertoire_id, at + 1, junction)
        for repertoire in dataset
        for at, junction in enumerate(repertoire.sequences.decode())
        if "WWHW" in junction and len(junction) > 20
    ][:60]
    table = pd.DataFrame(rows, columns=["repertoire_id", "sequence_id", "junction_aa"])
    residues = np.full((60, 23), np.nan)
    for row, junction in enumerate(table["junction_aa"]):
        residues[row, : len(junction)] = 0.01
        residues[row, junction.index("WWHW") : junction.index("WWHW") + 4] = 1.0
    index = SequenceIndex.of(dataset, table)
    attributions = Attributions(index, 0, residues, np.zeros((60, 8)), np.nansum(residues, axis=1))
    assert [motif.pattern for motif in find_motifs(a_model(), dataset, attributions)] == ["WWHW"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "classes", "numbers"),
    [
        (Task("age", "age", "regression"), ["all"], [10]),
        (Task("grade", "grade", "multiclass", ("a", "b")), ["a", "b"], [6, 3]),
        (Task("grade=b", "grade", "binary", ("a", "c", "b")), ["not b", "b"], [6, 3]),
    ],
)
def test_carriers_by_the_kind_of_target(tmp_path: Path, task: Task, classes: list[str], numbers: list[int]) -> None:
    motif = find_motifs(a_model(task), *planted(["LDRW"], tmp_path), background=1000)[0]
    assert motif.carriers["class"].tolist() == classes
    assert motif.carriers["n_repertoires"].tolist() == numbers


@pytest.mark.slow
def test_the_order_of_the_rows_does_not_matter(found_in: Callable[..., list[AttendedMotif]], tmp_path: Path) -> None:
    dataset, attributions = planted(["LDRW", "PEK"], tmp_path)
    order = np.random.default_rng(1).permutation(np.repeat(np.arange(N), 2))  # and each of them twice
    parts = (getattr(attributions, name)[order] for name in ("residues", "kernels", "change"))
    shuffled = Attributions(attributions.index.take(order), 0, *parts)
    one = found_in("LDRW", "PEK")
    other = find_motifs(a_model(), dataset, shuffled, background=4000)
    pd.testing.assert_frame_equal(tabulate_motifs(one), tabulate_motifs(other))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.counts, b.counts)


@pytest.mark.slow
def test_attributions_count_in_the_direction_of_the_change(tmp_path: Path) -> None:
    dataset, attributions = planted(["LDRW"], tmp_path)
    turned = Attributions(attributions.index, 0, -attributions.residues, -attributions.kernels, -attributions.change)
    one, other = (find_motifs(a_model(), dataset, some, background=1000) for some in (attributions, turned))
    pd.testing.assert_frame_equal(tabulate_motifs(one), tabulate_motifs(other))


def test_kernels_alone_find_the_motif(tmp_path: Path) -> None:
    dataset, attributions = planted(["LDRW"], tmp_path)
    model = a_model()
    embedding = model.network.embedding
    assert isinstance(embedding, ConvolutionEncoder)
    with torch.no_grad():
        for position, letter in enumerate("LDRW", 2):
            embedding.weight[3, AMINO_ACIDS.index(letter), position] += 9.0
    kernels = np.zeros((N, 8))
    kernels[:, 3] = 1.0
    nowhere = replace(attributions, residues=np.where(np.isnan(attributions.residues), np.nan, -1e-9), kernels=kernels)
    motifs = find_motifs(model, dataset, nowhere, background=4000)
    assert [(motif.pattern, motif.source) for motif in motifs] == [("LDRW", "kernel 4")]
    starts = find_best_windows(model.make_inference(dataset), attributions.index, np.array([3]))[:, 0]
    at = attributions.index.frame(dataset)["junction_aa"].str.find("LDRW").to_numpy()
    assert (starts[at >= 2] == at[at >= 2] - 2).mean() > 0.99


def test_seeds_are_no_longer_than_p_values_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = []

    def search(*_: object, span: int, max_patterns: int) -> list[object]:
        spans.append(span)
        return []

    monkeypatch.setattr(candidates, "search_windows", search)
    monkeypatch.setattr(candidates, "search_kernels", lambda *_: [])
    dataset, attributions = planted(["LDRW"], tmp_path)
    for kernel_size in (5, 20):
        assert find_motifs(a_model(kernel_size=kernel_size), dataset, attributions, background=100) == []
    assert spans == [5, LONGEST]


def test_the_first_pattern_of_a_wide_kernel_is_no_longer_than_p_values_allow() -> None:
    """L at the first of 71 positions has more information than the last of LDR, and is too far away."""
    rng = np.random.default_rng(0)
    rest = random_sequences(rng, 300, 67, 67)
    attended = [f"{'L' if row % 50 else 'A'}{rest[row]}LD{'R' if row % 10 else 'A'}" for row in range(300)]
    samples = ComparedSequences.of(attended, random_sequences(rng, 300, 71, 71))
    windows = Windows(np.arange(300), np.zeros(300, np.int64), np.ones(300))
    masks = propose_kernel_pattern(samples, windows, 71)
    assert format_pattern(masks).endswith("LDR")
    assert len(masks) <= LONGEST


def test_kernels_without_attribution_are_left_out(tmp_path: Path) -> None:
    dataset, attributions = planted(["LDRW"], tmp_path)
    none = replace(attributions, kernels=np.zeros((N, 8)))
    assert [motif.source for motif in find_motifs(a_model(), dataset, none, background=1000)] == ["windows"]


def test_an_lstm_has_no_kernels(tmp_path: Path) -> None:
    motifs = find_motifs(a_model(embedding="lstm"), *planted(["LDRW"], tmp_path), background=1000)
    assert [(motif.pattern, motif.source) for motif in motifs] == [("LDRW", "windows")]


def test_the_table_has_columns_for_each_class(found_in: Callable[..., list[AttendedMotif]]) -> None:
    table = tabulate_motifs(found_in("LDRW"))
    assert table["rank"].tolist() == [1]
    assert table["pattern"].tolist() == ["LDRW"]
    assert {"n_repertoires:case", "n_sequences_with:healthy", "mean_share:case"} <= set(table)
    assert table["mean_share:case"][0] > 0.09 > table["mean_share:healthy"][0]
    assert tabulate_motifs([]).columns[:5].tolist() == ["rank", "pattern", "p_donors", "q_donors", "source"]
    assert len(tabulate_motifs([])) == 0


def test_a_meme_file_says_what_the_motifs_are(found_in: Callable[..., list[AttendedMotif]], tmp_path: Path) -> None:
    motifs = found_in("LDRW", "PEK")
    write_meme(tmp_path / "motifs.meme", motifs)
    text = (tmp_path / "motifs.meme").read_text()
    assert text.startswith(f"MEME version 5\n\nALPHABET= {AMINO_ACIDS}\n")
    background = re.search(r"Background letter frequencies\n(.*)\n", text)
    assert background is not None
    assert sum(map(float, background[1].split()[1::2])) == pytest.approx(1.0, abs=1e-4)
    blocks = re.findall(
        r"MOTIF (\d+) (\S+)\nletter-probability matrix: alength= 20 w= (\d+) nsites= (\d+) E= (\S+)\n((?:[\d. ]+\n)+)",
        text,
    )
    assert [block[:2] for block in blocks] == [(str(i), motif.pattern) for i, motif in enumerate(motifs, 1)]
    for (_, _, width, sites, e, rows), motif in zip(blocks, motifs, strict=True):
        matrix = np.array([line.split() for line in rows.splitlines()], float)
        np.testing.assert_allclose(matrix, motif.frequencies, atol=1e-6)
        assert (int(width), int(sites)) == (len(matrix), motif.n_attended_with)
        assert float(e) == pytest.approx(10**motif.enrichment_log10_p_adjusted, rel=0.01)


def test_no_sequences_no_motifs(tmp_path: Path) -> None:
    dataset, attributions = planted(["LDRW"], tmp_path)
    nobody = attributions.index.take(np.zeros(0, np.int64))
    nothing = Attributions(nobody, 0, np.zeros((0, 0)), np.zeros((0, 8)), np.zeros(0))
    assert find_motifs(a_model(), dataset, nothing) == []


@pytest.mark.slow
def test_all_directions_together_are_each_alone(tmp_path: Path) -> None:
    dataset, attributions = planted(["LDRW", "PEK"], tmp_path)
    half = np.arange(0, N, 2)
    parts = (getattr(attributions, name)[half] for name in ("residues", "kernels", "change"))
    some = Attributions(attributions.index.take(half), 0, *parts)
    together = find_all_motifs(a_model(), dataset, [attributions, some], [1, 1], MotifOptions(background=1000))
    for own, found in zip((attributions, some), together, strict=True):
        alone = find_motifs(a_model(), dataset, own, background=1000)
        pd.testing.assert_frame_equal(tabulate_motifs(found), tabulate_motifs(alone))


@pytest.mark.slow
def test_kernels_of_several_models_are_told_apart(tmp_path: Path) -> None:
    dataset, attributions = planted(["LDRW"], tmp_path)
    models = [a_model(), a_model()]
    embedding = models[1].network.embedding
    assert isinstance(embedding, ConvolutionEncoder)
    with torch.no_grad():
        for position, letter in enumerate("LDRW", 2):
            embedding.weight[3, AMINO_ACIDS.index(letter), position] += 9.0
    kernels = np.zeros((N, 16))
    kernels[:, 11] = 1.0  # the fourth of the second model
    found = find_motifs(Ensemble.of(models), dataset, replace(attributions, kernels=kernels), background=1000)
    assert [(motif.pattern, motif.source) for motif in found] == [("LDRW", "windows, kernel 4 of model 2")]
    assert found[0].sources == (Source(), Source(4, 2))
    assert found[0].n_models == 1
    several = replace(found[0], sources=(Source(), Source(4, 2), Source(5, 2), Source(1, 3)))
    assert several.n_models == 2


def test_numbers_below_one_are_refused(tmp_path: Path) -> None:
    dataset, attributions = planted(["LDRW"], tmp_path)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: find_motifs(a_model(), dataset, attributions, max_motifs=0), "max_motifs: expected at least 1"),
        (lambda: find_motifs(a_model(), dataset, attributions, background=0), "background: expected at least 1"),
    ]
    for call, message in wrong:
        with pytest.raises(InputError, match=message):
            call()
