"""The transformer layers take the place of torch's: same outputs, same gradients, same masks."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from deeprc.hopfield.transformer import HopfieldDecoderLayer, HopfieldEncoderLayer

SETTINGS = list(itertools.product([False, True], [False, True], [True, False], ["relu", nn.functional.gelu]))


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def causal(n: int) -> Tensor:
    return torch.triu(torch.ones(n, n, dtype=torch.bool), 1)


def make(kind: Any, *, batch_first: bool, norm_first: bool, bias: bool, activation: Any, dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    layer = kind(
        12, 4, 20, dropout, activation, batch_first=batch_first, norm_first=norm_first, bias=bias, layer_norm_eps=1e-4
    )
    with torch.no_grad():
        for parameter in layer.parameters():  # no bias is 0, no scale 1
            parameter.add_(0.2 * torch.randn_like(parameter))
    return layer


def weights_of(layer: nn.Module) -> dict[str, Tensor]:
    """The gradients of all weights by torch's names."""
    gradients = {name: parameter.grad for name, parameter in layer.named_parameters() if parameter.grad is not None}
    for attention in ("self_attn", "multihead_attn"):
        for kind in ("weight", "bias"):
            parts = [f"{attention}.map_{part}.linear.{kind}" for part in ("states", "stored", "values")]
            if parts[0] in gradients:
                gradients[f"{attention}.in_proj_{kind}"] = torch.cat([gradients.pop(part) for part in parts])
            if f"{attention}.output.{kind}" in gradients:
                gradients[f"{attention}.out_proj.{kind}"] = gradients.pop(f"{attention}.output.{kind}")
    return gradients


def agree(own: nn.Module, other: nn.Module, inputs: list[Tensor], **masks: Any) -> None:
    results = []
    for layer in (own, other):
        arguments = [x.clone().requires_grad_() for x in inputs]
        layer.zero_grad()
        result = layer(*arguments, **masks)
        (result * draw(9, *result.shape)).mean().backward()
        results.append((result, [x.grad for x in arguments], weights_of(layer)))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-6, rtol=0)
    for found, expected in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert results[0][2].keys() == results[1][2].keys()
    for name, gradient in results[1][2].items():
        torch.testing.assert_close(results[0][2][name], gradient, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("batch_first", "norm_first", "bias", "activation"), SETTINGS)
def test_an_encoder_layer_is_torchs(batch_first: bool, norm_first: bool, bias: bool, activation: Any) -> None:
    torchs = make(
        nn.TransformerEncoderLayer, batch_first=batch_first, norm_first=norm_first, bias=bias, activation=activation
    )
    own = HopfieldEncoderLayer.from_torch(torchs)
    src = draw(1, 3, 5, 12) if batch_first else draw(1, 5, 3, 12)
    padding = torch.arange(5) >= torch.tensor([[5], [3], [4]])
    agree(own, torchs, [src])
    agree(own, torchs, [src], src_mask=causal(5), is_causal=True)
    agree(own, torchs, [src], src_mask=causal(5), src_key_padding_mask=padding)
    agree(own, torchs, [src], src_mask=draw(2, 12, 5, 5))
    agree(own, torchs, [src[0] if batch_first else src[:, 0]])


@pytest.mark.parametrize(("batch_first", "norm_first", "bias", "activation"), SETTINGS)
def test_a_decoder_layer_is_torchs(batch_first: bool, norm_first: bool, bias: bool, activation: Any) -> None:
    torchs = make(
        nn.TransformerDecoderLayer, batch_first=batch_first, norm_first=norm_first, bias=bias, activation=activation
    )
    own = HopfieldDecoderLayer.from_torch(torchs)
    tgt, memory = draw(1, 3, 5, 12), draw(2, 3, 7, 12)
    if not batch_first:
        tgt, memory = tgt.transpose(0, 1), memory.transpose(0, 1)
    padding = torch.arange(7) >= torch.tensor([[7], [3], [4]])
    agree(own, torchs, [tgt, memory])
    agree(own, torchs, [tgt, memory], tgt_mask=causal(5), tgt_is_causal=True, memory_key_padding_mask=padding)
    agree(own, torchs, [tgt, memory], memory_mask=draw(3, 5, 7), tgt_key_padding_mask=padding[:, 2:])


def test_dropout_draws_in_training_only() -> None:
    torchs = make(
        nn.TransformerEncoderLayer, batch_first=True, norm_first=False, bias=True, activation="relu", dropout=0.5
    )
    own = HopfieldEncoderLayer.from_torch(torchs)
    src = draw(1, 2, 5, 12)
    assert own.training
    assert not torch.equal(own(src), own(src))
    torchs.eval()
    own = HopfieldEncoderLayer.from_torch(torchs)
    assert not own.training
    torch.testing.assert_close(own(src), torchs(src), atol=1e-6, rtol=0)


def test_they_stand_in_torchs_encoder_and_decoder() -> None:
    options: dict[str, Any] = {"batch_first": True, "norm_first": False, "bias": True, "activation": "relu"}
    encoder_layer = make(nn.TransformerEncoderLayer, **options)
    decoder_layer = make(nn.TransformerDecoderLayer, **options)
    src, tgt = draw(1, 2, 6, 12), draw(2, 2, 4, 12)
    padding = torch.arange(6) >= torch.tensor([[6], [4]])
    expected = nn.TransformerEncoder(encoder_layer, 2, enable_nested_tensor=False)(src, src_key_padding_mask=padding)
    own = HopfieldEncoderLayer.from_torch(encoder_layer)
    found = nn.TransformerEncoder(own, 2, enable_nested_tensor=False)(src, src_key_padding_mask=padding)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    decoded = nn.TransformerDecoder(HopfieldDecoderLayer.from_torch(decoder_layer), 2)(tgt, found, tgt_mask=causal(4))
    torch.testing.assert_close(
        decoded, nn.TransformerDecoder(decoder_layer, 2)(tgt, expected, tgt_mask=causal(4)), atol=1e-6, rtol=0
    )


def test_options_of_the_hopfield_layer_change_it() -> None:
    torchs = make(nn.TransformerEncoderLayer, batch_first=True, norm_first=False, bias=True, activation="relu")
    src = draw(1, 2, 5, 12)
    plain = HopfieldEncoderLayer.from_torch(torchs)(src)
    for options in ({"beta": 5.0}, {"max_updates": 3}, {"normalisation": "projected"}):
        changed = HopfieldEncoderLayer.from_torch(torchs, **options)  # type: ignore[arg-type]
        assert (changed(src) - plain).abs().max() > 1e-3
    wide = HopfieldEncoderLayer(12, 4, key_dim=7, value_dim=2, learn_beta=True, batch_first=True, dtype=torch.float64)
    assert wide(src.double()).shape == src.shape
    assert wide.self_attn.association.beta.dtype == torch.float64


def test_an_activation_with_weights_is_copied() -> None:
    torchs = nn.TransformerEncoderLayer(12, 4, activation=nn.PReLU())
    own = HopfieldEncoderLayer.from_torch(torchs)
    assert own.activation is not torchs.activation
    assert {"activation.weight"} <= dict(own.named_parameters()).keys()
    with pytest.raises(ValueError, match="key_dim, value_dim: torch's weights have dimensions of their own"):
        HopfieldEncoderLayer.from_torch(torchs, key_dim=3)  # type: ignore[call-arg]


def test_wrong_use_is_named() -> None:
    with pytest.raises(ValueError, match="activation: expected relu, gelu or a function, found 'tanh'"):
        HopfieldEncoderLayer(12, 4, activation="tanh")
    layer = HopfieldDecoderLayer(12, 4)
    with pytest.raises(ValueError, match="memory_mask: expected a mask with the hint"):
        layer(draw(0, 3, 12), draw(1, 5, 12), memory_is_causal=True)


@pytest.mark.slow
def test_state_dicts_go_round_and_layers_compile() -> None:
    first, second = HopfieldDecoderLayer(12, 4, dropout=0.0), HopfieldDecoderLayer(12, 4, dropout=0.0)
    second.load_state_dict(first.state_dict())
    inputs = (draw(0, 5, 2, 12), draw(1, 3, 2, 12))
    assert torch.equal(first(*inputs), second(*inputs))
    compiled = torch.compile(first, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), second(*inputs))
