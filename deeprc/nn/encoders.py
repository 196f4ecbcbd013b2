"""Sequence encoders, which are h1 of the network: they compute the values of a sequence from its residues.

Letters: N sequences, n chosen values, L positions, K kernel width, D values of a sequence (kernels or LSTM units).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deeprc.errors import InputError
from deeprc.nn.features import N_AMINO_ACIDS, N_FEATURES
from deeprc.nn.motif_convolution import Implementation, Precision, motif_convolution, round_weight
from deeprc.nn.motif_convolution.reference import make_dense_features
from deeprc.nn.sequences import SequenceBatch

__all__ = ["ConvolutionEncoder", "EncoderSettings", "LstmEncoder", "SequenceEncoder"]

# Pre-activations of a kernel that starts from a motif. A whole match has +3, where SELU is linear. A match that lacks
# one residue has 3 - 6 = -3, where SELU is almost flat. So the kernel separates whole matches from all others.
_RESIDUE_GAIN = 6.0  # amount that each matching residue adds
_MATCH_ACTIVATION = 3.0  # pre-activation of a whole match
_NO_MATCH = -60.0  # pre-activation of a sequence without any residue of the motif


@dataclass(frozen=True)
class EncoderSettings:
    """Settings of an encoder; each encoder reads those that it needs.

    Attributes
    ----------
    out_features
        Number of values of a sequence, D: `n_kernels` of the configuration.
    kernel_size, gain
        Kernel width, K, and standard deviation of the initial weights in units of LeCun's 1 / sqrt(fan-in).
    implementation, precision
        Implementation and precision of the motif convolution, see `motif_convolution`.
    frozen
        Whether weights that `SequenceEncoder.load_weights` takes over stay as they are in training.
    """

    out_features: int
    kernel_size: int = 9
    gain: float = 1.0
    implementation: Implementation = "auto"
    precision: Precision = "float32"
    frozen: bool = False


class SequenceEncoder(nn.Module):
    """Base class of all encoders. A subclass must define `encode`; other methods make it faster or explainable.

    Attributes
    ----------
    out_features
        Number of values of a sequence, D.
    span
        Number of residues that one value reads; None if a value may read the whole sequence.
    starts_from_motifs
        Whether the encoder defines `start_from_motifs`.
    has_fixed_work
        Whether batches of one shape run the same sequence of CUDA kernels, so that an update can be recorded as a CUDA
        graph.
    """

    span: int | None = None
    starts_from_motifs = False
    has_fixed_work = False

    def __init__(self, out_features: int) -> None:
        super().__init__()
        self.out_features = out_features

    def encode(self, linear: Tensor, lengths: Tensor) -> Tensor:
        """Return the sequence values, (N, D), from the result of `linear_part`, (N, L, ...), and the lengths, (N,)."""
        raise NotImplementedError

    def linear_part(self, features: Tensor) -> Tensor:
        """Return the features of all positions, (N, L, 23), after those first steps of the encoder that are linear.

        Integrated gradients follow a straight line between two results of this function. So the linear steps need not
        be computed again along the line.
        """
        return features

    def forward(self, sequences: SequenceBatch) -> Tensor:
        """Return the sequence values, (N, D)."""
        if sequences.n_sequences == 0:
            return torch.zeros((0, self.out_features), device=sequences.device)
        features = make_dense_features(sequences)  # (N, L, 23)
        return self.encode(self.linear_part(features), sequences.lengths)

    def load_weights(self, path: Path) -> None:  # noqa: ARG002  # for encoders that can
        """Take over weights that were trained before, from the file that the setting `embedding_weights` names.

        Raises
        ------
        InputError
            If the file is not one of this encoder, or the encoder cannot take over weights.
        """
        raise InputError(
            "embedding_weights: expected null, because this encoder (`embedding`) cannot take over weights"
        )

    def fused_weights(self) -> tuple[Tensor, Tensor] | None:
        """Return kernels (D, 23, K) and biases (D,) if the compiled pass of `attend_cpu` may replace this encoder.

        This pass computes the SELU of the highest window of each kernel. An encoder that computes anything else returns
        None.
        """
        return None

    def start_from_motifs(
        self, motifs: Sequence[Sequence[int]], scale: float, *, shares: Sequence[Mapping[int, Sequence[float]]] = ()
    ) -> tuple[float, float]:
        """Change the weights in place so that the first values match motifs.

        Parameters
        ----------
        motifs
            At most D motifs, each a list of amino-acid indices; -1 stands for any residue.
        scale
            Typical factor of the one-hot features.
        shares
            For each motif and some of its positions with any residue: how much of a whole match a match with each of
            the 20 residues is, from 0 to 1. Shares of several positions are multiplied. Elsewhere all residues are
            whole matches. It is given only if some motif has such positions. A value with shares is linear in them
            but may be different from those that are returned.

        Returns
        -------
        The value of a sequence with the motif, and of a sequence without any residue of it.
        """
        raise NotImplementedError

    def best_windows(self, sequences: SequenceBatch, features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where in each sequence the window begins that decides each of the chosen values, (N, n), from 0.

        `features` are the indices of the chosen values among the D values of a sequence, (n,).

        An encoder whose `span` is not None must define this method. A window may reach beyond the end of its sequence.
        """
        raise NotImplementedError


class ConvolutionEncoder(SequenceEncoder):
    """The paper's h1: a 1D convolution, SELU and the maximum over positions.

    SELU is increasing, so the maximum is taken first and SELU applied to (N, D).
    """

    starts_from_motifs = True
    has_fixed_work = True

    def __init__(self, settings: EncoderSettings) -> None:
        D, K = settings.out_features, settings.kernel_size
        super().__init__(D)
        self.span = K
        self.weight = nn.Parameter(torch.empty(D, N_FEATURES, K))
        self.bias = nn.Parameter(torch.zeros(D))
        self.implementation: Implementation = settings.implementation
        self.precision: Precision = settings.precision
        nn.init.normal_(self.weight, std=settings.gain * (N_FEATURES * K) ** -0.5)

    def forward(self, sequences: SequenceBatch) -> Tensor:
        """Return the sequence values, (N, D) float32."""
        maximum = motif_convolution(
            sequences, self.weight, self.bias, implementation=self.implementation, precision=self.precision
        )
        return functional.selu(maximum, inplace=True)

    def linear_part(self, features: Tensor) -> Tensor:
        """Return the pre-activations of every window, (N, L, D)."""
        weight = round_weight(self.weight, self.precision)
        D, _, K = weight.shape
        windows = functional.pad(features, (0, 0, 0, K - 1)).unfold(1, K, 1)  # (N, L, 23, K)
        return windows.flatten(2) @ weight.reshape(D, -1).T + self.bias  # (N, L, 23 * K) @ (23 * K, D)

    def encode(self, linear: Tensor, lengths: Tensor) -> Tensor:
        """Return the SELU of the highest window of each kernel, (N, D)."""
        beyond_end = torch.arange(linear.shape[1], device=lengths.device) >= lengths[:, None]  # (N, L)
        return functional.selu(linear.masked_fill(beyond_end[:, :, None], -torch.inf).max(dim=1).values)

    def fused_weights(self) -> tuple[Tensor, Tensor] | None:
        """Return kernels and biases if they have 32 bits and the implementation is not `reference`; else None."""
        if self.implementation == "reference" or self.weight.dtype != torch.float32:
            return None
        return round_weight(self.weight, self.precision), self.bias

    @torch.no_grad()
    def start_from_motifs(
        self, motifs: Sequence[Sequence[int]], scale: float, *, shares: Sequence[Mapping[int, Sequence[float]]] = ()
    ) -> tuple[float, float]:
        """Let each of the first kernels match a motif; see `SequenceEncoder.start_from_motifs`.

        A match has a pre-activation of about 3. A match without one residue has -3, where SELU is almost flat. A motif
        with shares has 0 and -6 instead: below 0, SELU is an exponential function, so a match with residues at several
        gaps is the product of their shares.
        """
        activations = torch.tensor([_MATCH_ACTIVATION, _NO_MATCH], dtype=torch.float64)
        match_value, mismatch_value = functional.selu(activations).tolist()
        for kernel, motif in enumerate(motifs):
            if shares:
                self.weight[kernel] = 0  # random weights, also those of positions, would blur the shares
            gap_shares = shares[kernel] if shares else {}
            fixed = [(offset, letter) for offset, letter in enumerate(motif) if letter >= 0]
            for offset, letter in fixed:
                self.weight[kernel, :N_AMINO_ACIDS, offset] = 0
                self.weight[kernel, letter, offset] = _RESIDUE_GAIN / scale
            self.bias[kernel] = (0 if gap_shares else _MATCH_ACTIVATION) - _RESIDUE_GAIN * len(fixed)
            for offset, letter_shares in gap_shares.items():
                logarithms = torch.tensor(letter_shares, dtype=torch.float64).log().clamp(min=-_RESIDUE_GAIN)
                self.weight[kernel, :N_AMINO_ACIDS, offset] = (logarithms / scale).to(self.weight)
        return match_value, mismatch_value

    @torch.no_grad()
    def best_windows(self, sequences: SequenceBatch, features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of each kernel's highest activation in each sequence, (N, n), from 0."""
        weight, bias = round_weight(self.weight[features], self.precision).cpu(), self.bias[features].cpu()
        dense = make_dense_features(sequences)  # (N, L, 23)
        padded = functional.pad(dense.transpose(1, 2), (0, weight.shape[2] - 1))
        activations = functional.conv1d(padded, weight, bias)  # (N, n, L)
        beyond = torch.arange(activations.shape[2]) >= sequences.lengths[:, None]  # (N, L)
        starts: NDArray[np.int64] = activations.masked_fill(beyond[:, None], -torch.inf).argmax(dim=2).numpy()
        return starts


class LstmEncoder(SequenceEncoder):
    """The alternative to h1 that the paper names: the last hidden state of an LSTM over the 23 features."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__(settings.out_features)
        self.lstm = nn.LSTM(N_FEATURES, settings.out_features, batch_first=True)

    def encode(self, linear: Tensor, lengths: Tensor) -> Tensor:
        """Return the last hidden state, (N, D)."""
        packed = nn.utils.rnn.pack_padded_sequence(linear, lengths.cpu(), batch_first=True, enforce_sorted=False)
        hidden: Tensor = self.lstm(packed)[1][0]
        return hidden[0]  # (1, N, D) -> (N, D)
