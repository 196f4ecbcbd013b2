"""`TransformerEncoder`: a transformer over the residues of a sequence as h1. `examples/transformer.py` trains it.

Letters: N sequences, L positions, R residues of all sequences end to end, H heads, W width of a pattern, D
values of a sequence.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional

from deeprc.errors import InputError
from deeprc.files import check_regular_file
from deeprc.hopfield.transformer import HopfieldEncoderLayer
from deeprc.nn.digest import digest_tensors
from deeprc.nn.encoders import EncoderSettings, SequenceEncoder
from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.nn.pattern_cache import get_shared_cache
from deeprc.nn.sequences import SequenceBatch

__all__ = ["TransformerEncoder"]

_BLOCK = 2048  # sequences that frozen layers read at a time


class TransformerEncoder(SequenceEncoder):
    """Transformer layers over residues; a sequence is represented by the maxima of linear maps over its positions.

    Layers that come from a file of weights stay as they are: training learns the linear maps alone. On the CPU the
    patterns of each sequence are then computed once, see `PatternCache`. Counts of sequences are not read.

    Attributes
    ----------
    width, n_layers, n_heads, n_positions
        W, the number of layers, H, and the number of positions from either end that have embeddings of their own.
    """

    width, n_layers, n_heads, n_positions = 64, 4, 4, 40

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__(settings.out_features)
        W, options = self.width, {"dropout": 0.0, "batch_first": True, "norm_first": True}
        self.embed = nn.Linear(N_AMINO_ACIDS, W)
        self.output = nn.Linear(W, N_AMINO_ACIDS)  # predicts masked residues while the layers are trained
        self.from_start, self.from_end = (nn.Embedding(self.n_positions, W) for _ in range(2))
        layers = (HopfieldEncoderLayer(W, self.n_heads, 2 * W, **options) for _ in range(self.n_layers))  # type: ignore[arg-type]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(W)
        self.frozen = settings.frozen
        self.requires_grad_(not self.frozen)
        self.project = nn.Linear(W, settings.out_features)

    def trained_weights(self) -> dict[str, Tensor]:
        """Return the weights that `load_weights` takes over: all but the linear maps to the D features."""
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("project.")}

    def load_weights(self, path: Path) -> None:
        """Take over the weights of trained layers from a safetensors file."""
        check_regular_file(path, expected="a safetensors file")
        expected = self.trained_weights()
        try:
            with safe_open(path, framework="pt") as file:
                shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  # no mapping
                if shapes != {name: list(tensor.shape) for name, tensor in expected.items()}:
                    raise InputError(f"{path}: expected the weights that `TransformerEncoder.trained_weights` returns")
                loaded = {name: file.get_tensor(name) for name in expected}
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: expected a safetensors file: {str(error).splitlines()[0]}") from error
        for name, tensor in loaded.items():
            if not tensor.is_floating_point() or not tensor.to(expected[name].dtype).isfinite().all():
                raise InputError(f"{path}: {name}: expected finite floating-point numbers")
        self.load_state_dict(loaded, strict=False)
        if not self._has_finite_patterns():
            raise InputError(f"{path}: the weights are too large: patterns of residues are not finite in 16 bits")

    @torch.no_grad()
    def _has_finite_patterns(self) -> bool:
        """Return whether the patterns of a sequence of all amino acids are finite in 16 bits."""
        one_hot = torch.eye(N_AMINO_ACIDS, device=self.embed.weight.device)[None]  # (1, L, 20)
        patterns = self.patterns(one_hot, torch.tensor([N_AMINO_ACIDS], device=one_hot.device))
        return bool(patterns.half().isfinite().all())

    def patterns(self, one_hot: Tensor, lengths: Tensor, weights: list[Tensor] | None = None) -> Tensor:
        """Return the last layer's patterns, (N, L, W), from residues (N, L, 20) and lengths (N,).

        The association weights of each layer, (N, H, L, L), are appended to `weights` if it is given.
        """
        from_start, last = torch.arange(one_hot.shape[1], device=lengths.device), self.n_positions - 1
        from_end = lengths[:, None] - 1 - from_start  # (N, L)
        x = self.embed(one_hot) + self.from_start(from_start.clamp(max=last)) + self.from_end(from_end.clamp(0, last))
        padding = from_end < 0
        for layer in self.layers:
            assert isinstance(layer, HopfieldEncoderLayer)
            if weights is not None:
                states = layer.get_submodule("norm1")(x)
                weights.append(layer.self_attn.association_weights(states, stored_padding_mask=padding))
            x = layer(x, src_key_padding_mask=padding)
        result: Tensor = self.norm(x)
        return result

    def encode(self, linear: Tensor, lengths: Tensor) -> Tensor:
        """Return the maxima over positions, (N, D), from the features, (N, L, 23)."""
        # The positional features sum to the scale, so dividing by their sum removes it.
        one_hot = linear[:, :, :N_AMINO_ACIDS] / linear[:, :, N_AMINO_ACIDS:].sum(2, keepdim=True).clamp(min=1e-6)
        beyond = torch.arange(linear.shape[1], device=lengths.device) >= lengths[:, None]  # (N, L)
        projected = self.project(self.patterns(one_hot, lengths)).masked_fill(beyond[:, :, None], -torch.inf)
        return functional.selu(projected.max(dim=1).values)

    def forward(self, sequences: SequenceBatch) -> Tensor:
        """Return the sequence values, (N, D)."""
        if not self.frozen or sequences.n_sequences == 0:
            return super().forward(sequences)
        if sequences.device.type == "cpu":
            cache = get_shared_cache(digest_tensors(self.trained_weights()), self.width)
            patterns = cache.find(sequences, self._compute_frozen_patterns)
        else:
            patterns = self._compute_frozen_patterns(sequences.compact()).half().float()
        lengths = sequences.lengths
        return functional.selu(torch.segment_reduce(self.project(patterns), "max", lengths=lengths, axis=0))  # (N, D)

    @torch.no_grad()
    def _compute_frozen_patterns(self, sequences: SequenceBatch) -> Tensor:
        """Return the patterns of all residues, (R, W), of sequences that lie end to end.

        Sequences of similar length are processed together, so that there is little padding.
        """
        result = self.embed.weight.new_empty((len(sequences.residues), self.width))
        for sequence_rows in sequences.lengths.argsort(stable=True).split(_BLOCK):
            starts, lengths = sequences.starts[sequence_rows], sequences.lengths[sequence_rows]
            is_residue = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]  # (n, L)
            residue_rows = starts.repeat_interleave(lengths) + _count_up(lengths)  # (r,), sequence by sequence
            one_hot = self.embed.weight.new_zeros((*is_residue.shape, N_AMINO_ACIDS))
            one_hot[is_residue] = functional.one_hot(sequences.residues[residue_rows].long(), N_AMINO_ACIDS).to(one_hot)
            result[residue_rows] = self.patterns(one_hot, lengths)[is_residue]
        return result


def _count_up(lengths: Tensor) -> Tensor:
    """Return 0, 1, ... for each length, end to end, (R,)."""
    ends = lengths.cumsum(0)
    return torch.arange(int(ends[-1]), device=lengths.device) - (ends - lengths).repeat_interleave(lengths)
