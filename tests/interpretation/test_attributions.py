from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation import attributions
from deeprc.interpretation.attributions import Attributions, attribute
from deeprc.interpretation.explained_network import Of
from deeprc.interpretation.integrated_gradients import average_gradient
from deeprc.interpretation.residue_counts import residue_frequencies
from deeprc.nn.sampling import select_top_rows
from deeprc.runs.run import Run
from deeprc.training.model import TrainedModel
from tests.conftest import StepRecorder, write_cohort

SETTINGS: dict[str, list[str]] = {
    "linear": [],
    "abundance": ["standardise=false", "abundance=log1p", "kernel_size=4"],
    "two heads": ["n_heads=2", "n_output_layers=2", "output_units=8", "learn_beta=true"],
    "top fraction": ["top_fraction=0.3", "n_heads=2"],
    "lstm": ["embedding=lstm", "n_kernels=8"],
    "genes": ["gene_units=3", "n_heads=2"],
    "no key layers": ["n_key_layers=0", "key_units=16", "n_kernels=16"],
}
TARGETS = ("status=case", "grade:multiclass")
ONLY_A = np.eye(20)[0]


@pytest.fixture(scope="module")
def stirred(model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset) -> Callable[[str], TrainedModel]:
    """A function that trains a network with the settings of a name, once; the tests leave its weights as they are."""
    return cache(lambda name: model_factory(cohort, *SETTINGS[name], targets=TARGETS, stir=0.2))


def chosen(dataset: RepertoireDataset, rows: dict[int, list[int]]) -> pd.DataFrame:
    ids = [(dataset.repertoire_ids[position], row + 1) for position, of in rows.items() for row in of]
    return pd.DataFrame(ids, columns=["repertoire_id", "sequence_id"])


def close(found: Attributions, expected: Attributions, rows: list[int]) -> None:
    """The rows of `expected` are those of `found`; a NaN is equal to a NaN."""
    width = found.residues.shape[1]
    np.testing.assert_allclose(found.residues, expected.residues[rows, :width], rtol=1e-5, atol=1e-9)
    assert np.isnan(expected.residues[rows, width:]).all()
    np.testing.assert_allclose(found.kernels, expected.kernels[rows], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(found.change, expected.change[rows], rtol=1e-5, atol=1e-9)


def asked_of_the_network(model: TrainedModel, dataset: RepertoireDataset, position: int, row: int) -> torch.Tensor:
    """Return the outputs of a repertoire less those with only A in the place of one kept sequence, (T,) float64."""
    kept = np.flatnonzero(kept_of(model, dataset, position))
    batch = model.make_inference(dataset).collator.take(position, kept)
    own = batch.sequences.compact()
    own = own._replace(residue_scale=own.residue_scale.double(), position_scale=own.position_scale.double())
    at = int(np.flatnonzero(kept == row)[0])
    residues = own.residues.clone()
    residues[int(own.starts[at]) : int(own.starts[at] + own.lengths[at])] = AMINO_ACIDS.index("A")
    network = deepcopy(model.network).double()
    with torch.no_grad():
        changed = replace(batch, sequences=own._replace(residues=residues))
        difference: torch.Tensor = network(replace(batch, sequences=own)) - network(changed)
    return difference[0]


def kept_of(model: TrainedModel, dataset: RepertoireDataset, position: int) -> NDArray[np.bool_]:
    logits = torch.from_numpy(model.score_sequences(dataset, position).head_logits)
    kept = np.zeros(len(logits), np.bool_)
    fraction = model.config.training.top_fraction
    kept[select_top_rows(logits, torch.tensor([0, len(logits)]), fraction)[0].numpy()] = True
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_the_change_is_that_of_the_networks_output(
    name: str, stirred: Callable[[str], TrainedModel], cohort: RepertoireDataset
) -> None:
    """With a background of one amino acid the baseline is a sequence: the network itself is asked for its output."""
    model = stirred(name)
    rows = {position: np.flatnonzero(kept_of(model, cohort, position))[[0, 5, -1]].tolist() for position in (1, 4)}
    found = attribute(model, cohort, chosen(cohort, rows), output=2, of="output", background=ONLY_A)
    expected = [asked_of_the_network(model, cohort, position, row)[2] for position, of in rows.items() for row in of]
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found.change, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_change_of_a_contribution_is_that_of_the_tables(
    model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset, tmp_path: Path
) -> None:
    """Of a linear output: the contribution in the repertoire, less that of the baseline in the sequence's place."""
    model = model_factory(cohort, "n_heads=2", "top_fraction=1", stir=0.2)
    sequences = cohort[1].sequences.decode()[:20]
    row = max(range(20), key=lambda i: model.score_sequences(cohort, 1).weight[i])
    others = [*sequences[:row], "A" * len(sequences[row]), *sequences[row + 1 :]]
    metadata = pd.DataFrame({"status": ["case"]})
    with_it, without = (
        write_cohort(tmp_path / f"{i}.h5", [repertoire], metadata) for i, repertoire in enumerate((sequences, others))
    )
    found = attribute(model, with_it, chosen(with_it, {0: [row]}), background=ONLY_A)
    expected, baseline = (model.score_sequences(one, 0).contributions[row] for one in (with_it, without))
    np.testing.assert_allclose(found.change, expected - baseline, rtol=1e-4, atol=1e-7)
    assert abs(found.convergence_delta[0]) < 0.02 * abs(found.change[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "of"),
    [
        *((name, "contribution") for name in SETTINGS),
        ("two heads", "output"),
        ("lstm", "output"),
        *(
            pytest.param(name, "output", marks=pytest.mark.long)
            for name in SETTINGS
            if name not in ("two heads", "lstm")
        ),
    ],
)
def test_residues_and_kernels_sum_to_the_change(
    name: str, of: Of, stirred: Callable[[str], TrainedModel], cohort: RepertoireDataset
) -> None:
    model = stirred(name)
    rows = {position: np.flatnonzero(kept_of(model, cohort, position))[:10] for position in (0, 3)}
    sequences = chosen(cohort, {position: of.tolist() for position, of in rows.items()})
    found, fine = (attribute(model, cohort, sequences, output=1, of=of, steps=steps) for steps in (16, 256))
    size = np.abs(found.change).mean()
    assert found.residues.shape[0] == found.kernels.shape[0] == len(found) == 20
    np.testing.assert_array_equal(found.change, fine.change)
    np.testing.assert_allclose(found.convergence_delta, found.change - np.nansum(found.residues, axis=1), atol=1e-15)
    assert np.abs(fine.convergence_delta).mean() < 0.01 * size
    assert np.abs(fine.change - fine.kernels.sum(axis=1)).mean() < 0.01 * size
    assert np.abs(found.convergence_delta).mean() < 0.2 * size


@pytest.mark.slow
def test_residues_and_kernels_of_a_trained_network_sum_to_the_change(
    trained: Run, motif_cohort: RepertoireDataset
) -> None:
    sequences = chosen(motif_cohort, {position: list(range(0, 60, 10)) for position in range(1, 21, 2)})
    found = attribute(trained.model, motif_cohort, sequences)
    assert np.abs(found.change).max() > 0.01
    assert np.abs(found.convergence_delta).sum() < 0.01 * np.abs(found.change).sum()
    assert np.abs(found.change - found.kernels.sum(axis=1)).sum() < 0.01 * np.abs(found.change).sum()


def test_one_kernel_of_one_residue_by_hand(
    model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    """One kernel of one residue that sees W, a uniform attention, a linear output.

    The representation is SELU of the largest W feature: all of the change belongs to the first W of a sequence. In a
    sequence without W all positions fall alike, and the first is the maximum.
    """
    model = model_factory(cohort, "n_kernels=1", "kernel_size=1", "standardise=false")
    network, f, weight, slope = model.network, 0.1, 2.0, -3.0
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.embedding.weight[0, AMINO_ACIDS.index("W"), 0] = weight
        network.output_network[-1].weight.fill_(slope)
    background = np.full(20, (1 - f) / 19)
    background[AMINO_ACIDS.index("W")] = f
    sequences = cohort[1].sequences.decode()
    rows = [0, 10, next(i for i, sequence in enumerate(sequences) if "W" not in sequence)]
    found = attribute(model, cohort, chosen(cohort, {1: rows}), background=background)
    unit = (
        slope * 1.0507009873554805 * weight * model.make_inference(cohort).collator.get_inverse_std(1) / len(cohort[1])
    )
    expected = np.zeros((3, max(len(sequences[row]) for row in rows)))
    for i, row in enumerate(rows):
        expected[i, max(sequences[row].find("W"), 0)] = unit * (1 - f if "W" in sequences[row] else -f)
        expected[i, len(sequences[row]) :] = np.nan
    np.testing.assert_allclose(found.residues, expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.change, np.nansum(expected, axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.kernels[:, 0], found.change, rtol=1e-6)


def test_kernels_of_uniform_attention_and_a_linear_output(
    model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    """By hand: a kernel's value is its slope times the difference of the representations, over N."""
    model = model_factory(cohort, "n_kernels=6", "standardise=false", stir=0.2)
    with torch.no_grad():
        model.network.pooling.queries.zero_()
        batch = model.make_inference(cohort).collator.take(3, np.array([2, 8]))
        sequences = batch.sequences.compact()
        only_a = sequences._replace(residues=torch.zeros_like(sequences.residues))
        baseline = replace(batch, sequences=only_a)
        difference = (model.network.attend(batch)[0] - model.network.attend(baseline)[0]).double()
        expected = difference * model.network.output_network[-1].weight.double() / len(cohort[3])
    found = attribute(model, cohort, chosen(cohort, {3: [2, 8]}), background=ONLY_A, steps=2)
    np.testing.assert_allclose(found.kernels, expected.numpy(), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(("name", "of"), [("two heads", "contribution"), ("two heads", "output"), ("lstm", "output")])
def test_attributions_of_a_sequence_do_not_depend_on_the_others(
    name: str,
    of: Of,
    stirred: Callable[[str], TrainedModel],
    cohort: RepertoireDataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither other rows, nor their order, nor a row's repetition, nor the size of pieces matters."""
    model = stirred(name)
    sequences = chosen(cohort, {2: [0, 7, 30], 9: [4, 5], 0: [1]})
    whole = attribute(model, cohort, sequences, of=of, steps=2)
    rows = [5, 1, 4, 1, 0]
    frame = sequences.iloc[rows].assign(junction_aa="others are not looked at")
    close(attribute(model, cohort, frame, of=of, steps=2), whole, rows)
    close(attribute(model, cohort, sequences.iloc[[4]], of=of, steps=2), whole, [4])
    monkeypatch.setattr(attributions, "_AT_A_TIME", 1)
    close(attribute(model, cohort, sequences, of=of, steps=2), whole, list(range(6)))


def test_a_dataset_may_be_a_part(trained: Run, motif_cohort: RepertoireDataset) -> None:
    sequences = chosen(motif_cohort, {5: [3], 2: [1]})
    background = residue_frequencies(motif_cohort)
    whole = attribute(trained.model, motif_cohort, sequences)
    close(attribute(trained.model, motif_cohort[[5, 1, 2]], sequences, background=background), whole, [0, 1])


@pytest.mark.slow
@pytest.mark.parametrize("gap", [20.0, 1000.0])
def test_one_sequence_with_all_the_attention(
    gap: float, model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    """The others' sums are not what is left of a difference, so a sequence that takes all leaves them as they are."""
    model = model_factory(cohort, "n_kernels=4", "n_heads=2", stir=0.2)
    with torch.no_grad():
        model.network.pooling.queries.mul_(gap / np.ptp(model.score_sequences(cohort, 1).head_logits))
    top = int(np.argmax(model.score_sequences(cohort, 1).head_weights[:, 0]))
    sequences = chosen(cohort, {1: [top, 0, 1], 2: [0]})
    found = attribute(model, cohort, sequences, of="output", background=ONLY_A)
    close(attribute(model, cohort, sequences[:1], of="output", background=ONLY_A), found, [0])
    assert np.isfinite(found.kernels).all()
    expected = [asked_of_the_network(model, cohort, 1, row)[0] for row in (top, 0, 1)]
    np.testing.assert_allclose(found.change[:3], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
def test_beside_one_sequence_all_others_vanish(
    sign: int, model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    """The weights of the others are 0 in float64 beside it, but not beside the residues that replace it."""
    model = model_factory(cohort, "n_kernels=4", stir=0.2)
    with torch.no_grad():
        logits = np.sort(sign * model.score_sequences(cohort, 1).head_logits[:, 0])
        model.network.pooling.queries.mul_(sign * 1500 / (logits[-1] - logits[-2]))
    top = int(np.argmax(model.score_sequences(cohort, 1).head_logits[:, 0]))
    others = [row for row in (0, 1) if row != top]
    for rows in ([top], [top, *others]):
        found = attribute(model, cohort, chosen(cohort, {1: rows}), of="output", background=ONLY_A)
        expected = [asked_of_the_network(model, cohort, 1, row)[0] for row in rows]
        np.testing.assert_allclose(found.change, expected, rtol=1e-3, atol=1e-6)


def test_the_only_sequence_of_a_repertoire(
    model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset, tmp_path: Path
) -> None:
    model = model_factory(cohort, "seeded_start=0", stir=0.2)
    metadata = pd.DataFrame({"status": ["case", "healthy"]})
    lonely = write_cohort(tmp_path / "lonely.h5", [["CASSLDRWF"], ["CASSF", "CAF"]], metadata)
    found = attribute(model, lonely, chosen(lonely, {0: [0]}), of="output", background=ONLY_A)
    np.testing.assert_allclose(found.change, asked_of_the_network(model, lonely, 0, 0), rtol=1e-4, atol=1e-6)
    assert abs(found.convergence_delta[0]) < 0.02 * abs(found.change[0])


def test_beyond_the_end_there_is_nothing(trained: Run, motif_cohort: RepertoireDataset) -> None:
    sequences = chosen(motif_cohort, {1: [0, 1, 2], 8: [4]})
    found = attribute(trained.model, motif_cohort, sequences)
    lengths = np.concatenate([motif_cohort[1].lengths[:3], motif_cohort[8].lengths[[4]]])
    assert found.residues.shape == (4, lengths.max())
    np.testing.assert_array_equal(np.isnan(found.residues), np.arange(lengths.max()) >= lengths[:, None])


def test_the_planted_motif_gets_most(trained: Run, motif_cohort: RepertoireDataset) -> None:
    """WWHW stands at the residues 2 to 5 of every tenth sequence of a positive repertoire."""
    sequences = chosen(motif_cohort, {position: list(range(0, 90, 10)) for position in range(1, 41, 2)})
    found = attribute(trained.model, motif_cohort, sequences)
    of_motif = found.residues[:, 2:6].sum(axis=1)
    assert of_motif.sum() > 0.7 * found.change.sum() > 0
    seen = found.change > np.median(found.change)
    assert of_motif[seen].sum() > 0.8 * found.change[seen].sum()
    assert (of_motif[seen] > 0.5 * found.change[seen]).mean() > 0.9
    by_place = np.nanmean(np.abs(found.residues), axis=0)
    elsewhere = np.delete(by_place[:20], [2, 3, 4, 5])
    assert by_place[2:6].min() > elsewhere.max()
    assert by_place[2:6].mean() > 2 * elsewhere.mean()


@pytest.mark.slow
def test_sequences_outside_the_top_fraction_have_zero_attributions(
    model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    model = model_factory(cohort, "top_fraction=0.3", "n_heads=2", stir=0.2)
    scored = kept_of(model, cohort, 1)
    found = attribute(model, cohort, chosen(cohort, {1: list(range(len(scored)))}))
    beyond = np.arange(found.residues.shape[1]) >= cohort[1].lengths[:, None]
    np.testing.assert_array_equal(np.isnan(found.residues), beyond)
    np.testing.assert_array_equal(np.nansum(np.abs(found.residues), axis=1) > 0, scored)
    np.testing.assert_array_equal(np.abs(found.kernels).sum(axis=1) > 0, scored)
    np.testing.assert_array_equal(found.change != 0, scored)
    none = attribute(model, cohort, chosen(cohort, {1: np.flatnonzero(~scored)[:2].tolist()}))
    assert none.change.tolist() == [0.0, 0.0]


def test_hidden_residues_add_nothing(model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset) -> None:
    """The abundance log(count) hides the residues of a sequence that was seen once."""
    model = model_factory(cohort, "abundance=log", stir=0.2)
    counts = cohort[0].counts
    once, twice = int(np.flatnonzero(counts == 1)[0]), int(np.flatnonzero(counts == 2)[0])
    found = attribute(model, cohort, chosen(cohort, {0: [once, twice]}))
    assert found.change[0] == np.nansum(np.abs(found.residues[0])) == 0
    assert found.change[1] != 0


def test_no_sequences_have_empty_attributions(trained: Run, motif_cohort: RepertoireDataset) -> None:
    found = attribute(trained.model, motif_cohort, chosen(motif_cohort, {}))
    assert found.residues.shape == (0, 0)
    assert found.kernels.shape == (0, 16)
    assert found.change.shape == found.convergence_delta.shape == (0,)


def test_the_network_stays_as_it_is(trained: Run, motif_cohort: RepertoireDataset) -> None:
    before = {name: tensor.clone() for name, tensor in trained.model.network.state_dict().items()}
    attribute(trained.model, motif_cohort, chosen(motif_cohort, {1: [0]}), steps=2)
    assert all(torch.equal(before[name], tensor) for name, tensor in trained.model.network.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in trained.model.network.parameters())
    assert not trained.model.network.training


def test_progress_counts_different_sequences(
    trained: Run, motif_cohort: RepertoireDataset, recorder: StepRecorder
) -> None:
    attribute(trained.model, motif_cohort, chosen(motif_cohort, {7: [0, 0, 3], 2: [5]}), steps=2)
    assert [done for what, name, done in recorder.told if (what, name) == ("show", "attributions of residues")] == [
        1,
        3,
    ]


def test_residue_frequencies_count_each_letter_of_all_sequences(cohort: RepertoireDataset) -> None:
    text = "".join("".join(repertoire.sequences.decode()) for repertoire in cohort[3:6])
    expected = [text.count(letter) / len(text) for letter in AMINO_ACIDS]
    np.testing.assert_allclose(residue_frequencies(cohort[3:6]), expected, rtol=1e-12)
    assert residue_frequencies(cohort[:0]).tolist() == [0.05] * 20


@pytest.mark.parametrize(
    ("repertoire_id", "sequence_id", "message"),
    [
        ("nobody", 1, r"cohort.h5: no repertoire 'nobody'; row 2 of the sequences names it"),
        ("rep.1", 0, r"sequences, row 2: sequence_id: .* from 1 to .*, the size of 'rep.1', found 0"),
        ("rep.1", 10_000, r"row 2: .* found 10000"),
        ("rep.1", 1.5, r"row 2: .* found 1.5"),
        ("rep.1", None, r"row 2: sequence_id"),
        ("rep.1", "first", r"row 2: .* found first"),
    ],
)
def test_sequences_that_are_not_there(
    repertoire_id: str, sequence_id: object, message: str, trained: Run, motif_cohort: RepertoireDataset
) -> None:
    sequences = pd.DataFrame({"repertoire_id": ["rep.0", repertoire_id], "sequence_id": [1, sequence_id]})
    with pytest.raises(InputError, match=message):
        attribute(trained.model, motif_cohort, sequences)


def test_the_mean_gradient_of_a_cubic_is_exact_with_two_points() -> None:
    start, end, factor = (torch.tensor(rows, dtype=torch.float64) for rows in ([[1.0, -2.0]], [[3.0, 0.5]], [2.0]))
    found = average_gradient(
        lambda x, factor: factor * (x**3).sum(dim=1), start, end, (factor,), steps=2
    )  # the mean of 3 x^2 along the line is (end^3 - start^3) / (end - start)
    np.testing.assert_allclose(found, 2 * (end**3 - start**3) / (end - start), rtol=1e-14)


def test_attribute_refuses_bad_arguments(trained: Run, motif_cohort: RepertoireDataset) -> None:
    sequences = chosen(motif_cohort, {0: [0]})
    with pytest.raises(InputError, match="expected the columns repertoire_id and sequence_id, sequence_id is missing"):
        attribute(trained.model, motif_cohort, sequences[["repertoire_id"]])
    with pytest.raises(InputError, match="output: expected 0 to 0, found 1"):
        attribute(trained.model, motif_cohort, sequences, output=1)
    with pytest.raises(InputError, match="of: expected contribution or output, found 'weight'"):
        attribute(trained.model, motif_cohort, sequences, of="weight")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="steps: expected at least 1, found 0"):
        attribute(trained.model, motif_cohort, sequences, steps=0)
    for background in (np.ones(20), np.full(19, 1 / 19), np.full(20, np.nan), np.eye(20)[0] * 2 - np.eye(20)[1]):
        with pytest.raises(InputError, match="background: expected 20 frequencies that sum to 1"):
            attribute(trained.model, motif_cohort, sequences, background=background)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["two heads", "top fraction", "lstm"])
def test_cuda_and_the_cpu_agree(
    name: str, model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    model = model_factory(cohort, *SETTINGS[name], stir=0.2)
    sequences = chosen(cohort, {2: [0, 7, 30], 9: [4, 5]})
    on_cpu = attribute(model, cohort, sequences)
    on_cuda = attribute(replace(model, network=model.network.cuda()), cohort, sequences)
    for name in ("residues", "kernels", "change"):
        np.testing.assert_allclose(getattr(on_cuda, name), getattr(on_cpu, name), rtol=1e-3, atol=1e-6)
