"""Transformer layers whose attention is a `Hopfield` layer: `HopfieldEncoderLayer` and `HopfieldDecoderLayer`.

They can replace `torch.nn.TransformerEncoderLayer` and `TransformerDecoderLayer` (paper lines 7434-7444). They have the
same arguments in the same order, the same masks, and the same submodules but the attention. They can be used in
`torch.nn.TransformerEncoder` (with `enable_nested_tensor=False`) and `torch.nn.TransformerDecoder`. With the same
weights and no option of the Hopfield layer, they compute the same as the layers of torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from deeprc.hopfield.layers import Hopfield

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from deeprc.hopfield.association import Updates
    from deeprc.hopfield.maps import Normalisation

    class SameWeights(Updates, total=False):
        """Options of a `Hopfield` layer that torch's attention does not have and that do not change its weights."""

        normalisation: Normalisation

    class AttentionOptions(SameWeights, total=False):
        """Options of a `Hopfield` layer that torch's attention does not have."""

        key_dim: int | None
        value_dim: int | None


__all__ = ["HopfieldDecoderLayer", "HopfieldEncoderLayer", "copy_attention"]

Activation = str | Callable[[Tensor], Tensor]


class _TransformerLayer(nn.Module):
    """Base of encoder and decoder layers: their submodules, with the names of torch, and the residual blocks.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype
        As in torch.
    options
        Options of the `Hopfield` layers: `key_dim`, `value_dim`, `beta`, `learn_beta`, `max_updates`, `tolerance`, and
        `normalisation`. The last is `none` by default, because there are normalisations between the blocks.
    """

    _ATTENTIONS: tuple[str, ...]
    self_attn: Hopfield

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        super().__init__()
        chosen: AttentionOptions = {"normalisation": "none", **options}
        for name in self._ATTENTIONS:
            layer = Hopfield(d_model, n_heads=nhead, dropout=dropout, batch_first=batch_first, bias=bias, **chosen)
            self.add_module(name, layer)
        self.linear1 = nn.Linear(d_model, dim_feedforward, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(dim_feedforward, d_model, bias=bias)
        for block in range(1, len(self._ATTENTIONS) + 2):
            self.add_module(f"norm{block}", nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias))
            self.add_module(f"dropout{block}", nn.Dropout(dropout))
        self.norm_first = norm_first
        self.activation = _find_activation(activation)
        self.to(device=device, dtype=dtype)

    @classmethod
    def from_torch(
        cls, layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer, **options: Unpack[SameWeights]
    ) -> Self:
        """Return a layer with the weights of a layer of torch. It computes the same unless an option is given.

        Raises
        ------
        ValueError
            If `key_dim` or `value_dim` is given: the weights would not fit.
        """
        if {"key_dim", "value_dim"} & options.keys():
            raise ValueError("key_dim, value_dim: torch's weights have dimensions of their own; expected neither")
        hopfield_layer = cls(
            layer.linear1.in_features,
            layer.self_attn.num_heads,
            layer.linear1.out_features,
            layer.dropout.p,
            copy.deepcopy(layer.activation),  # a copy, because it may be a module with weights
            layer.norm1.eps,
            layer.self_attn.batch_first,
            layer.norm_first,
            layer.linear1.bias is not None,
            layer.linear1.weight.device,
            layer.linear1.weight.dtype,
            **options,
        )
        for name, module in layer.named_children():
            part = hopfield_layer.get_submodule(name)
            if isinstance(part, Hopfield):
                copy_attention(layer.get_submodule(name), part)
            else:
                part.load_state_dict(module.state_dict())
        hopfield_layer.train(layer.training)
        return hopfield_layer

    def _add_residual(self, block: int, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Add the result of a branch to x, with dropout; normalise the input of the branch, or the sum."""
        norm, dropout = self.get_submodule(f"norm{block}"), self.get_submodule(f"dropout{block}")
        if self.norm_first:
            result: Tensor = x + dropout(branch(norm(x)))
        else:
            result = norm(x + dropout(branch(x)))
        return result

    def _feed_forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return result


class HopfieldEncoderLayer(_TransformerLayer):
    """Self-association and a feed-forward network, with the parameters of `torch.nn.TransformerEncoderLayer`.

    Options of its `Hopfield` layer may be added: `key_dim`, `value_dim`, `beta`, `learn_beta`, `max_updates`,
    `tolerance`, `normalisation`.
    """

    _ATTENTIONS = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return new patterns in the shape of `src`; see `torch.nn.TransformerEncoderLayer.forward`."""
        _check_causal_hint(is_causal, src_mask, "src_mask")
        masks = {"association_mask": src_mask, "stored_padding_mask": src_key_padding_mask}
        x = self._add_residual(1, src, lambda x: self.self_attn(x, **masks))
        return self._add_residual(2, x, self._feed_forward)


class HopfieldDecoderLayer(_TransformerLayer):
    """Self-association, association with the results of the encoder, and a feed-forward network.

    The parameters are those of `torch.nn.TransformerDecoderLayer`. Options of both `Hopfield` layers may be added, as
    in `HopfieldEncoderLayer`.
    """

    _ATTENTIONS = ("self_attn", "multihead_attn")
    multihead_attn: Hopfield

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return new patterns in the shape of `tgt`; see `torch.nn.TransformerDecoderLayer.forward`."""
        _check_causal_hint(tgt_is_causal, tgt_mask, "tgt_mask")
        _check_causal_hint(memory_is_causal, memory_mask, "memory_mask")
        masks = {"association_mask": tgt_mask, "stored_padding_mask": tgt_key_padding_mask}
        encoded = {"association_mask": memory_mask, "stored_padding_mask": memory_key_padding_mask}
        x = self._add_residual(1, tgt, lambda x: self.self_attn(x, **masks))
        x = self._add_residual(2, x, lambda x: self.multihead_attn(x, memory, **encoded))
        return self._add_residual(3, x, self._feed_forward)


def copy_attention(attention: nn.Module, layer: Hopfield) -> None:
    """Copy the weights of torch's attention into a layer that has the same maps.

    Raises
    ------
    ValueError
        If the attention adds vectors to its keys (`add_bias_kv`, `add_zero_attn`): `Hopfield` cannot do this.
    """
    assert isinstance(attention, nn.MultiheadAttention)
    if attention.bias_k is not None or attention.add_zero_attn:
        raise ValueError(
            "attention: expected one without add_bias_kv and add_zero_attn, which a Hopfield layer does not have"
        )
    if "in_proj_weight" in dict(attention.named_parameters()):
        weights = attention.in_proj_weight.chunk(3)
    else:
        weights = (attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight)
    biases = (None,) * 3 if attention.in_proj_bias is None else attention.in_proj_bias.chunk(3)
    targets = (layer.map_states, layer.map_stored, layer.map_values)
    for target, weight, bias in zip(targets, weights, biases, strict=True):
        assert target is not None
        assert target.linear is not None
        target.linear.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
    layer.output.load_state_dict(attention.out_proj.state_dict())


def _find_activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    functions: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "gelu": functional.gelu}
    if activation not in functions:
        raise ValueError(f"activation: expected relu, gelu or a function, found {activation!r}")
    return functions[activation]


def _check_causal_hint(is_causal: bool, mask: Tensor | None, name: str) -> None:
    if is_causal and mask is None:
        raise ValueError(f"{name}: expected a mask with the hint that it is causal, found None")
