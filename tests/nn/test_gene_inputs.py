"""V and J genes as inputs: the names that are known, the batches that carry them, the network that reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from deeprc.config import load_config
from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import Cohort, GermlineBackground, IndependentBackground, SimulatedDataset, Sizes
from deeprc.datasets.simulation.write import write_container
from deeprc.errors import InputError
from deeprc.nn import Collator, DeepRC, GeneNames
from deeprc.nn.batch import RepertoireBatch, choose_cache_device
from deeprc.nn.inference import Inference
from deeprc.nn.motif_convolution import motif_convolution
from deeprc.nn.sequence_sources import DeviceSource, MappedSource
from deeprc.nn.sequence_tensors import DrawnRows
from deeprc.training.batches import permute_residues, shuffle_negatives
from tests.conftest import random_sequences
from tests.toys.repertoires import make_sequences, write_repertoires

V_GENES = ("TRBV5-1", "", "TRBV20-1", "TRBV6-2,TRBV6-3")
J_GENES = ("TRBJ1-1", "TRBJ2-7")
CPU = torch.device("cpu")


def write(path: Path, *, v: tuple[str, ...] | None = V_GENES, j: tuple[str, ...] | None = J_GENES) -> RepertoireDataset:
    """Write 5 repertoires whose sequences have the genes of these vocabularies, by name the same in any order."""
    rng = np.random.default_rng(0)
    with ContainerWriter(path) as writer:
        for number in range(5):
            residues, offsets = encode_many(random_sequences(rng, 40))
            calls: dict[str, Categorical | None] = {}
            for field, own, names in (("v_call", V_GENES, v), ("j_call", J_GENES, j)):
                drawn = rng.integers(0, len(own), 40)
                if names is not None:
                    codes = np.array([names.index(own[i]) for i in drawn], np.uint16)
                    calls[field] = Categorical(codes, names)
            writer.append(f"rep.{number}", Sequences(residues, offsets, np.ones(40, np.uint32), **calls))
        writer.finish(pd.DataFrame({"status": list("ababa")}), source="a test")
    return open_dataset(path)


@pytest.fixture(scope="module")
def genes(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return write(tmp_path_factory.mktemp("genes") / "genes.h5")


def network_of(names: GeneNames, **shape: object) -> DeepRC:
    torch.manual_seed(0)
    settings: dict[str, object] = {"n_kernels": 8, "kernel_size": 5, "n_heads": 2, "gene_units": 3, **shape}
    network = DeepRC(gene_names=names, **settings).eval()  # type: ignore[arg-type]
    for parameter in network.parameters():  # biases start as zero, and so does an unknown gene
        parameter.data += 0.1 * torch.randn_like(parameter)
    return network


def test_the_names_are_those_that_occur(genes: RepertoireDataset) -> None:
    names = GeneNames.of(genes)
    assert names == GeneNames(("TRBV20-1", "TRBV5-1", "TRBV6-2,TRBV6-3"), J_GENES)
    assert names.index_names(("", "TRBV5-1", "TRBV9", "TRBV20-1"), "v_call").tolist() == [0, 2, 0, 1]
    assert names.to_mapping() == {"v_call": list(names.v_call), "j_call": list(J_GENES)}


def test_a_name_of_other_repertoires_is_not_known(genes: RepertoireDataset, tmp_path: Path) -> None:
    repertoires = [make_sequences(["CASSF", "CASF"], v_call=[gene] * 2) for gene in ("TRBV9", "TRBV2", "TRBV30")]
    cohort = write_repertoires(tmp_path / "c.h5", repertoires, {"status": list("aba")})
    assert GeneNames.of(cohort[[2, 0]]) == GeneNames(("TRBV30", "TRBV9"), ())
    assert GeneNames.of(cohort[:0]) == GeneNames((), ())
    assert Collator(cohort, "none", gene_names=GeneNames.of(cohort[[2, 0]])).take(1, slice(None)).genes.tolist() == [
        [0, 0],
        [0, 0],
    ]


def test_a_cohort_without_genes_cannot_be_used(tmp_path: Path, genes: RepertoireDataset) -> None:
    without = write(tmp_path / "none.h5", v=None, j=None)
    message = r"gene_units: .*none.h5 has no v_call and no j_call; expected sequences with genes, or gene_units=0"
    with pytest.raises(InputError, match=message):
        GeneNames.of(without)
    with pytest.raises(InputError, match=message):
        Collator(without, "none", gene_names=GeneNames.of(genes))
    assert GeneNames.of(write(tmp_path / "v.h5", j=None)).j_call == ()


def dense_outputs(network: DeepRC, dataset: RepertoireDataset, position: int) -> Tensor:
    """Compute the outputs of one repertoire by one operation after another, genes looked up by their text."""
    batch = Collator(dataset, "none").take(position, slice(None))
    embedding = network.embedding
    maximum = motif_convolution(batch.sequences, embedding.weight, embedding.bias, implementation="reference")
    table = dataset[position].to_frame()
    names, genes = network.gene_names, network.gene_embedding
    parts = [torch.nn.functional.selu(maximum)]
    for field, known, weight in (
        ("v_call", names.v_call, genes.v_weight),
        ("j_call", names.j_call, genes.j_weight),
    ):
        texts = table[field] if field in table else [""] * len(table)
        parts.append(torch.stack([weight[known.index(name) + 1 if name in known else 0] for name in texts]))
    z = torch.cat(parts, dim=1)
    keys = z
    for layer in network.key_network:
        keys = torch.nn.functional.selu(keys @ layer.weight.T + layer.bias) if hasattr(layer, "weight") else keys
    beta = keys.shape[1] ** -0.5
    pooled = [torch.softmax(beta * keys @ query[0], 0) @ z for query in network.pooling.queries]
    return network.output_network(torch.cat(pooled)[None])[0]


@pytest.mark.parametrize("shape", [{}, {"n_kernels": 40, "gene_units": 20}, {"n_key_layers": 0, "key_units": 14}])
def test_forward_equals_its_formula(genes: RepertoireDataset, shape: dict[str, object]) -> None:
    network = network_of(GeneNames.of(genes[:3]), **shape)
    collator = Collator(genes, "none", gene_names=network.gene_names)
    outputs = network(collator.sample(np.arange(5), 1000, np.random.default_rng(0)))
    expected = torch.stack([dense_outputs(network, genes, i) for i in range(5)])
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    streamed = Inference(network, collator).compute_outputs()
    torch.testing.assert_close(streamed, expected.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"n_kernels": 32, "gene_units": 16},
        {"n_kernels": 30, "gene_units": 20, "n_key_layers": 3, "key_units": 50},
        {"n_key_layers": 0, "key_units": 14},
    ],
)
def test_one_pass_equals_the_operations(genes: RepertoireDataset, shape: dict[str, object]) -> None:
    network = network_of(GeneNames.of(genes), **shape)
    batch = Collator(genes, "none", gene_names=network.gene_names).sample(np.arange(5), 30, np.random.default_rng(0))
    assert network._collect_fused_weights(batch.sequences) is not None
    results, directions = [], None
    for in_one_pass in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not in_one_pass:
                patch.setattr(network, "_collect_fused_weights", lambda _: None)
            outputs = network.attend(batch)
            logits = network.compute_logits(batch)
        torch.testing.assert_close(logits, outputs[1].detach(), atol=1e-6, rtol=1e-6)
        directions = directions or [torch.randn(output.shape) for output in outputs]
        total = sum((output * direction).sum() for output, direction in zip(outputs, directions, strict=True))
        own = [p for name, p in network.named_parameters() if not name.startswith("output_network")]
        results.append((*(each.detach() for each in outputs), *torch.autograd.grad(total, own)))  # type: ignore[arg-type]
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=5e-4, rtol=1e-4)


def test_scoring_in_chunks_is_scoring(genes: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(GeneNames.of(genes))
    collator = Collator(genes, "none", gene_names=network.gene_names)
    whole = Inference(network, collator).compute_logits(1)
    monkeypatch.setattr("deeprc.nn.network.choose_chunk_size", lambda _: 7)
    assert torch.equal(network.compute_logits(collator.take(1, slice(None))), whole)
    assert torch.equal(Inference(network, collator, chunk=9).compute_logits(1), whole)


def test_a_prediction_depends_neither_on_its_batch_nor_on_the_vocabulary(
    genes: RepertoireDataset, tmp_path: Path
) -> None:
    network = network_of(GeneNames.of(genes[:2]))
    expected = Inference(network, Collator(genes, "none", gene_names=network.gene_names)).compute_outputs()
    among = network(
        Collator(genes, "none", gene_names=network.gene_names).sample(
            np.array([1, 4, 2]), 1000, np.random.default_rng(0)
        )
    )
    torch.testing.assert_close(among.detach(), expected[[1, 4, 2]], atol=1e-6, rtol=1e-5)
    other = write(tmp_path / "other.h5", v=("TRBV6-2,TRBV6-3", "TRBV1", "", "TRBV20-1", "TRBV5-1"), j=J_GENES[::-1])
    assert other.container.sequences.v_call.vocabulary != genes.container.sequences.v_call.vocabulary
    again = Inference(network, Collator(other, "none", gene_names=network.gene_names)).compute_outputs()
    assert torch.equal(again, expected)


def test_genes_change_a_prediction_and_unknown_ones_are_alike(genes: RepertoireDataset) -> None:
    network = network_of(GeneNames(("TRBV5-1",), ("TRBJ2-7",)))
    batch = Collator(genes, "none", gene_names=network.gene_names).take(0, slice(None))
    texts = genes[0].to_frame()[["v_call", "j_call"]].to_numpy().tolist()
    known = [[int(v == "TRBV5-1"), int(j == "TRBJ2-7")] for v, j in texts]
    assert batch.genes.tolist() == known
    assert not torch.equal(network(batch), network(replace(batch, genes=torch.zeros_like(batch.genes))))


def test_the_embedding_of_an_unknown_gene_starts_at_0_and_others_have_variance_1() -> None:
    torch.manual_seed(0)
    network = DeepRC(gene_units=50, gene_names=GeneNames(tuple(map(str, range(400))), ("a",)))
    weight = network.gene_embedding.v_weight.detach()
    assert weight.shape == (401, 50)
    assert not weight[0].any()
    assert float(weight[1:].std()) == pytest.approx(1, abs=0.02)


def test_missing_gene_names_batches_without_genes_and_wrong_key_units_are_refused(genes: RepertoireDataset) -> None:
    with pytest.raises(ValueError, match="gene_names: expected the names of the genes"):
        DeepRC(gene_units=2)
    with pytest.raises(ValueError, match="the network reads genes: expected batches of a Collator that was given"):
        network_of(GeneNames.of(genes))(Collator(genes, "none").take(0, slice(None)))
    with pytest.raises(InputError, match=r"key_units: expected n_kernels \+ 2 gene_units, 48, where n_key_layers is 0"):
        load_config("deeprc", ["gene_units=8", "n_key_layers=0"])


def test_gene_names_change_nothing_if_gene_units_is_0(genes: RepertoireDataset) -> None:
    networks = []
    for names in (None, GeneNames.of(genes)):
        torch.manual_seed(3)
        networks.append(DeepRC(n_kernels=8, gene_names=names))
    assert networks[0].state_dict().keys() == networks[1].state_dict().keys()
    batch = Collator(genes, "none").take(0, slice(None))
    assert batch.genes is None
    assert torch.equal(networks[0](batch), networks[1](batch))


def test_batches_carry_genes_wherever_they_go(genes: RepertoireDataset) -> None:
    collator = Collator(genes[[3, 1, 0]], "none", gene_names=GeneNames.of(genes))
    batch = collator.sample(np.array([2, 0, 1]), 20, np.random.default_rng(0))

    def pairs(one: RepertoireBatch) -> list[tuple[str, list[int]]]:
        """Tell the sequences by their residues, which are different, with their genes."""
        assert one.genes is not None
        residues, starts, lengths, *_ = one.sequences
        rows = zip(starts, lengths, one.genes, strict=True)
        return [(str(residues[start : start + length].tolist()), row.tolist()) for start, length, row in rows]

    every = dict(pairs(collator.sample(np.arange(3), 1000, np.random.default_rng(0))))
    names = GeneNames.of(genes)
    for position, repertoire in enumerate(genes[[3, 1, 0]]):
        table = repertoire.to_frame()
        expected = [names.index_names(table[f].tolist(), f).tolist() for f in ("v_call", "j_call")]
        assert collator.take(position, slice(None)).genes.T.tolist() == expected
    assert all(every[text] == number for text, number in pairs(batch))
    assert pairs(replace(batch, sequences=batch.sequences.compact())) == pairs(batch)
    assert pairs(batch.to(CPU)) == pairs(batch)
    assert [pair for part in batch.iterate_chunks(7) for pair in pairs(part)] == pairs(batch)
    assert pairs(batch.take(torch.tensor([5, 1]), torch.tensor([0, 2]))) == [pairs(batch)[5], pairs(batch)[1]]
    shuffled = shuffle_negatives(batch, np.array([True, False, True]), np.random.default_rng(0))
    assert pairs(shuffled) != pairs(batch)
    assert sorted(pairs(shuffled)) == sorted(pairs(batch))
    assert torch.equal(permute_residues(batch, 0.5, np.random.default_rng(0)).genes, batch.genes)


def test_the_source_for_devices_gives_the_same_batch(genes: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    names, inverse_stds = GeneNames.of(genes), torch.rand(5)
    rows, segments = torch.tensor([0, 3, 57, 199]), torch.tensor([0, 0, 1, 4])
    offsets = torch.tensor([0, 2, 3, 3, 3, 4])
    mapped = MappedSource(genes, "none", names, np.zeros(5, np.int64))
    expected, expected_genes = mapped.look_up(DrawnRows(torch.arange(5), rows, segments, offsets), inverse_stds)
    source = DeviceSource(genes, "none", names, CPU)
    monkeypatch.setattr(source, "_columns", replace(source._columns, max_length=24))
    beyond = torch.cat([rows, torch.tensor([10_000])])  # fills a batch
    drawn = DrawnRows(torch.arange(5), beyond, torch.cat([segments, segments[:1]]), offsets)
    found, found_genes = source.look_up(drawn, inverse_stds)
    assert torch.equal(found_genes[:4], expected_genes)
    assert found_genes.shape == (5, 2)
    for name in ("starts", "lengths", "residue_scale", "position_scale"):
        assert torch.equal(getattr(found, name)[:4], getattr(expected, name))


def test_genes_count_in_what_is_copied_to_a_device(genes: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    container, device = genes.container, torch.device("cuda")
    stored = container.sequences
    size = stored.residues.nbytes + stored.offsets.nbytes + stored.counts.nbytes
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2 * size, 0))
    assert choose_cache_device(genes, "auto", device) == device
    assert choose_cache_device(genes, "auto", device, with_genes=True) == CPU


def test_simulated_cohorts_have_the_genes_of_their_containers(tmp_path: Path) -> None:
    cohort = Cohort(6, Sizes(60), GermlineBackground(), seed=1)
    write_container(cohort, tmp_path / "cohort.h5")
    virtual, written = SimulatedDataset(cohort), open_dataset(tmp_path / "cohort.h5")
    names = GeneNames.of(virtual[:3])
    assert names == GeneNames.of(written[:3])
    assert names.v_call
    assert names.j_call
    collators = [Collator(dataset, "none", gene_names=names) for dataset in (virtual, written)]
    made, read = (collator.sample(np.array([5, 0]), 30, np.random.default_rng(1)) for collator in collators)
    assert torch.equal(made.genes, read.genes)
    assert made.genes.any()
    message = "gene_units: cohort has no v_call and no j_call"
    with pytest.raises(InputError, match=message):
        GeneNames.of(SimulatedDataset(Cohort(6, Sizes(60), IndependentBackground())))
