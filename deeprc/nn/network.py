"""The DeepRC network, from residues to outputs (paper lines 8470-8715).

Letters: N sequences of all repertoires, B repertoires, K kernel width, D = d_v kernels (or LSTM units), d_k key
units, H heads, T outputs, Q branches, G units of a gene's embedding, S = D + 2 G values of a sequence.

    residues --h1--> values (N, S) --h2--> keys (N, d_k) --HopfieldPooling--> pooled (B, H, S) --o--> outputs (B, T)

If the network reads no genes, like that of the paper, G is 0. Otherwise, the embeddings of the V and the J gene follow
the D numbers of h1. Branches of the whole repertoire, if the network has any, add to the outputs; see
`deeprc.nn.branches`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from deeprc.encoders import find_encoder
from deeprc.hopfield import HopfieldPooling
from deeprc.hopfield.segments import segment_attention
from deeprc.nn import attend_cpu
from deeprc.nn.batch import RepertoireBatch
from deeprc.nn.branches import Branch, Branches
from deeprc.nn.digest import digest_tensors
from deeprc.nn.encoders import EncoderSettings, SequenceEncoder
from deeprc.nn.genes import GeneEmbedding, GeneNames
from deeprc.nn.motif_convolution import Implementation, Precision
from deeprc.nn.sampling import select_top_rows
from deeprc.nn.sequences import SequenceBatch
from deeprc.nn.standardisation import RunningStandardisation
from deeprc.nn.unattended import UnattendedSequences, summarise_unattended

__all__ = ["DeepRC", "Unattended", "choose_chunk_size"]

Unattended = Literal["dropped", "constant"]


class DeepRC(nn.Module):
    """The network that classifies repertoires by attention over their sequences.

    Parameters
    ----------
    n_outputs
        Number of outputs of all tasks together, T.
    embedding
        Name of the sequence encoder: `convolution` (as in the paper), `lstm`, `transformer`, or a registered one, see
        `deeprc.encoders`.
    frozen_embedding
        Whether the encoder gets weights that were trained before and stay as they are, see `EncoderSettings.frozen`.
    n_kernels, kernel_size, convolution_gain
        Settings of the encoder, see `EncoderSettings`: `n_kernels` is D.
    gene_units, gene_names
        Number of units of a gene's embedding, G, and the V and J genes that the network knows; see `GeneEmbedding`.
        With G = 0 the network reads no genes.
    n_key_layers, key_units
        Number of SELU layers of the key network h2, and number of units of each layer, d_k. Without layers the values
        are the keys, so `key_units` must be S = `n_kernels` + 2 `gene_units`.
    n_heads, beta, learn_beta
        Number of heads, H, inverse temperature of the attention, and whether it is learned; see `HopfieldPooling`.
    standardise
        Whether the pooled values of a repertoire are scaled to mean 0 and variance 1 before o; see
        `RunningStandardisation`.
    n_output_layers, output_units
        Number of layers of the output network o, and number of units of each layer but the last. The last layer is
        linear, the others are SELU layers.
    implementation, precision
        Implementation and precision of the motif convolution, see `motif_convolution`.
    """

    def __init__(
        self,
        *,
        n_outputs: int = 1,
        embedding: str = "convolution",
        frozen_embedding: bool = False,
        n_kernels: int = 32,
        kernel_size: int = 9,
        convolution_gain: float = 1.0,
        gene_units: int = 0,
        gene_names: GeneNames | None = None,
        n_key_layers: int = 2,
        key_units: int = 32,
        n_heads: int = 1,
        beta: float | None = None,
        learn_beta: bool = False,
        standardise: bool = False,
        n_output_layers: int = 1,
        output_units: int = 32,
        implementation: Implementation = "auto",
        precision: Precision = "float32",
    ) -> None:
        super().__init__()
        self.n_values = n_kernels + 2 * gene_units
        if n_key_layers == 0 and key_units != self.n_values:
            expected = f"expected n_kernels + 2 gene_units, {self.n_values}"
            raise ValueError(f"key_units: without key layers the values are the keys: {expected}")
        if gene_units > 0 and gene_names is None:
            raise ValueError("gene_names: expected the names of the genes, because gene_units is not 0")
        settings = EncoderSettings(
            n_kernels, kernel_size, convolution_gain, implementation, precision, frozen_embedding
        )
        # The encoder, h1. The name `embedding` is the prefix of its keys in saved weights, so it stays.
        self.embedding: SequenceEncoder = find_encoder(embedding)(settings)
        self.gene_embedding: GeneEmbedding | None = None
        if gene_units > 0 and gene_names is not None:
            self.gene_embedding = GeneEmbedding(gene_names, n_units=gene_units)
        self.key_network = _make_selu_layers(self.n_values, [key_units] * n_key_layers)
        self.pooling = HopfieldPooling(  # h2 is its map into the associative space
            key_units,
            self.n_values,
            n_heads=n_heads,
            project_stored=False,
            values="raw",
            project_output=False,
            normalisation="none",
            beta=beta,
            learn_beta=learn_beta,
        )
        hidden = [output_units] * (n_output_layers - 1)
        self.output_network = _make_output_network(n_heads * self.n_values, hidden, n_outputs, standardise=standardise)
        self.n_outputs = n_outputs
        self.branches: Branches | None = None

    def forward(
        self,
        batch: RepertoireBatch,
        *,
        top_fraction: float = 1.0,
        top_number: int | None = None,
        unattended: Unattended = "dropped",
        logit_noise: float = 0.0,
        generators: Sequence[torch.Generator] = (),
    ) -> Tensor:
        """Return the outputs of every repertoire before their activation, (B, T).

        Parameters
        ----------
        batch
            The sequences of B repertoires.
        top_fraction, top_number
            Fraction and largest number of the sequences of each repertoire that attention-based subsampling keeps. All
            logits are computed without gradients, and gradients flow only through the kept ones, which have the
            highest attention.
        unattended
            Treatment of the other sequences. `dropped` leaves them out of the softmax, as in the paper. `constant`
            keeps them in the softmax without gradients, so that the outputs are those of all sequences; this needs
            memory for N S numbers.
        logit_noise
            Standard deviation of normal noise that is added to the attention logits, as a regulariser.
        generators
            Random generator of each repertoire's noise, on the device of the batch.

        Raises
        ------
        ValueError
            If there is noise and the number of generators is not that of the repertoires.
        """
        if logit_noise and len(generators) != len(batch.offsets) - 1:
            raise ValueError(
                f"generators: expected one per repertoire, {len(batch.offsets) - 1}, found {len(generators)}"
            )
        unattended_summary = None
        if top_fraction < 1 or top_number is not None:
            batch, unattended_summary = self._select_attended(batch, top_fraction, top_number, unattended)
        values, logits = self.attend(batch)
        if logit_noise:
            logits = logits + logit_noise * _draw_noise(logits, batch.offsets, generators)
        pooled = segment_attention(logits, values, batch.offsets)  # (B, H, S)
        if unattended_summary is not None:
            pooled = unattended_summary.add_to(pooled, logits, batch.offsets)
        return self.compute_outputs(pooled, batch.branch_scores)

    def attend(self, batch: RepertoireBatch) -> tuple[Tensor, Tensor]:
        """Return the sequence values, (N, S), and the attention logits, (N, H)."""
        if (weights := self._collect_fused_weights(batch.sequences)) is not None:
            return attend_cpu.attend(batch.sequences, self.embed_genes(batch), weights)
        values: Tensor = self.embedding(batch.sequences)
        if self.gene_embedding is not None:
            values = torch.cat([values, self.embed_genes(batch)], dim=1)
        return values, self.key_network(values) @ self._scale_queries().T  # (N, d_k) @ (d_k, H)

    def embed_genes(self, batch: RepertoireBatch) -> Tensor:
        """Return the embeddings of the V and J genes, (N, 2 G), the last part of the sequence values.

        Raises
        ------
        ValueError
            If the network reads genes and the batch has none.
        """
        if self.gene_embedding is None:
            return batch.sequences.residue_scale.new_empty((batch.sequences.n_sequences, 0))
        if batch.genes is None:
            raise ValueError("the network reads genes: expected batches of a Collator that was given its gene_names")
        embedded: Tensor = self.gene_embedding(batch.genes)
        return embedded

    def compute_outputs(self, pooled: Tensor, branch_scores: Tensor | None) -> Tensor:
        """Return the outputs, (B, T), from the pooled values, (B, H, S), and the scores of the branches, (B, Q, T).

        Raises
        ------
        ValueError
            If the network has branches and there are no scores.
        """
        outputs: Tensor = self.output_network(pooled.flatten(1))  # (B, H * S) -> (B, T)
        if self.branches is None:
            return outputs
        if branch_scores is None:
            raise ValueError("the network has branches: expected batches of a Collator that was given their scores")
        added: Tensor = self.branches(branch_scores)
        return outputs + added

    @torch.no_grad()
    def _select_attended(
        self, batch: RepertoireBatch, fraction: float, max_rows: int | None, unattended: Unattended
    ) -> tuple[RepertoireBatch, UnattendedSequences | None]:
        """Return the sequences that attention keeps, and a summary of the others if they stay in the softmax."""
        if unattended == "dropped":
            rows, kept_offsets = select_top_rows(self.compute_logits(batch), batch.offsets, fraction, max_rows)
            return batch.take(rows, kept_offsets), None
        values, logits = self.attend(batch)
        rows, kept_offsets = select_top_rows(logits, batch.offsets, fraction, max_rows)
        unattended_summary = summarise_unattended(values, logits, batch.offsets, rows, kept_offsets)
        return batch.take(rows, kept_offsets), unattended_summary

    @torch.no_grad()
    def compute_logits(self, batch: RepertoireBatch) -> Tensor:
        """Return the attention logits without gradients, (N, H), without keeping the N S values in memory."""
        weights = self._collect_fused_weights(batch.sequences)
        if weights is not None and self.gene_embedding is None:
            return attend_cpu.compute_logits(batch.sequences, self.embed_genes(batch), weights)

        def compute_chunk(chunk: RepertoireBatch) -> Tensor:
            if weights is None:
                return self.attend(chunk)[1]
            return attend_cpu.compute_logits(chunk.sequences, self.embed_genes(chunk), weights)

        parts = [compute_chunk(chunk) for chunk in batch.iterate_chunks(choose_chunk_size(batch.sequences.device))]
        return torch.cat(parts) if parts else self.pooling.queries.new_zeros((0, len(self.pooling.queries)))

    def _collect_fused_weights(self, sequences: SequenceBatch) -> attend_cpu.NetworkWeights | None:
        """Return the weights for the compiled pass of `attend_cpu`; None if torch's operations must compute instead.

        The compiled pass needs the CPU, scales without gradients, an encoder that is a motif convolution, and no hooks.
        """
        scales = (sequences.residue_scale, sequences.position_scale)
        if sequences.device.type != "cpu" or any(scale.requires_grad for scale in scales):
            return None
        modules = (self.embedding, self.key_network, *self.key_network)
        if any(module._forward_hooks or module._forward_pre_hooks for module in modules):
            return None  # a hook reads the result of an operation, which the compiled pass does not return
        kernels = self.embedding.fused_weights()
        if kernels is None:
            return None
        layers = [(layer.weight, layer.bias) for layer in self.key_network if isinstance(layer, nn.Linear)]
        return attend_cpu.NetworkWeights(*kernels, self._scale_queries(), layers)

    def _scale_queries(self) -> Tensor:
        """Return the queries times beta, (H, d_k)."""
        return self.pooling.scaled_queries()[:, 0]  # (H, 1, d_k) -> (H, d_k)

    def attach_branches(self, branches: Sequence[Branch], identities: Sequence[str] = ()) -> None:
        """Add the scores of branches to the outputs, with gains of 1; an empty list of branches changes nothing.

        Parameters
        ----------
        branches
            The branches.
        identities
            Identities of the repertoires from which the branches learned; see `Branches`.
        """
        if branches:
            self.branches = Branches(branches, self.n_outputs, identities).to(self.pooling.queries.device)

    @property
    def gene_names(self) -> GeneNames | None:
        """Genes that the network knows, for `Collator`; None if it reads no genes."""
        return None if self.gene_embedding is None else self.gene_embedding.names

    @property
    def linear_output(self) -> nn.Linear | None:
        """The output layer, if it is the only one."""
        first, *later = [layer for layer in self.output_network if isinstance(layer, nn.Linear)]
        return None if later else first

    def digest_pooling_weights(self) -> str:
        """Return a digest, as hexadecimal text, of the weights on which pooled values depend.

        These are all weights but those of the output network and of the branches.
        """
        left_out = ("output_network.", "branches.")
        return digest_tensors(
            {name: tensor for name, tensor in self.state_dict().items() if not name.startswith(left_out)}
        )


def _make_output_network(n_pooled: int, hidden_units: list[int], n_outputs: int, *, standardise: bool) -> nn.Sequential:
    """Return the output network o: standardisation of the pooled values if wanted, SELU layers, and a linear layer.

    The index of each layer is in the names of its saved weights. A new layer before it would change these names.
    """
    return nn.Sequential(
        *([RunningStandardisation(n_pooled)] if standardise else []),
        *_make_selu_layers(n_pooled, hidden_units),
        _make_lecun_linear(hidden_units[-1] if hidden_units else n_pooled, n_outputs),
    )


def choose_chunk_size(device: torch.device) -> int:
    """Return the number of sequences that are computed at a time on a device."""
    return 65_536 if device.type == "cpu" else 131_072


def _draw_noise(logits: Tensor, offsets: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """Return normal noise for the logits, (N, H); each repertoire, see `offsets`, has its own generator."""
    noise = torch.zeros_like(logits)
    for generator, (first, stop) in zip(generators, pairwise(offsets.tolist()), strict=True):
        noise[first:stop].normal_(generator=generator)
    return noise


def _make_lecun_linear(in_features: int, out_features: int) -> nn.Linear:
    """Return a linear layer whose initial weights have variance 1 / fan-in, as self-normalising SELU layers need."""
    layer = nn.Linear(in_features, out_features)
    nn.init.normal_(layer.weight, std=in_features**-0.5)
    nn.init.zeros_(layer.bias)
    return layer


def _make_selu_layers(in_features: int, units: list[int]) -> nn.Sequential:
    """Return SELU layers, one for each number of units."""
    layers: list[nn.Module] = []
    for size in units:
        layers += [_make_lecun_linear(in_features, size), nn.SELU(inplace=True)]
        in_features = size
    return nn.Sequential(*layers)
