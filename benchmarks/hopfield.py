"""Time of `HopfieldPooling` over many stored patterns, compared with plain operations and `nn.MultiheadAttention`.

All three have the same weights and give the same results, which is checked. The plain way maps every stored pattern by
W_K and W_V, takes the softmax of β Q Kᵀ and multiplies with V, with operations of torch. For the other two ways, sets
of unequal sizes are padded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import click
import torch
from common import alternate, measure_copy_bandwidth, report, seconds_option
from torch import Tensor, nn
from torch.nn import functional

from deeprc.device import resolve_device
from deeprc.hopfield import HopfieldPooling
from deeprc.hopfield.maps import Normalisation

SHARES = {"one set": (1.0,), "four sets": (0.5, 0.25, 0.15, 0.1)}


@click.command()
@click.option("--device", default="auto", help="auto, cpu, cuda ...")
@click.option("--keys", default=300_000, help="Number of all stored patterns.")
@click.option("--dim", default=64, help="Dimension of the stored patterns, and of all heads together.")
@click.option("--heads", multiple=True, default=(1, 8), help="Number of heads. The option may be given several times.")
@seconds_option
def main(device: str, keys: int, dim: int, heads: tuple[int, ...], seconds: float) -> None:
    """Time pooling with one query per head, forward, and forward and backward."""
    where = resolve_device(device)
    rows = []
    for name, shares in SHARES.items():
        sizes = [round(share * keys) for share in shares]
        stored = torch.randn(sum(sizes), dim, device=where, requires_grad=True)  # like embeddings
        offsets = torch.tensor([0, *sizes], device=where).cumsum(0)
        padded = nn.utils.rnn.pad_sequence(list(stored.detach().split(sizes)), batch_first=True).requires_grad_()
        padding = torch.arange(max(sizes), device=where) >= torch.tensor(sizes, device=where)[:, None]
        mask = padding if len(sizes) > 1 else None
        for n_heads, normalisation in itertools.product(heads, ("none", "inputs")):
            ways = _list_ways(stored, offsets, padded, mask, n_heads, normalisation)
            results = [way().detach() for way in ways.values()]
            for result in results[1:]:
                torch.testing.assert_close(result, results[0], atol=1e-4, rtol=1e-3)
            for passes in ("forward", "forward + backward"):
                timed = {way: _make_pass(function, passes) for way, function in ways.items()}
                measured = alternate(timed, where, seconds=seconds)
                ours = measured["ours"]
                rows.append(
                    {
                        "sets": name,
                        "heads": n_heads,
                        "normalisation": normalisation,
                        "passes": passes,
                        **{f"{way}_ms": 1e3 * value for way, value in measured.items()},
                        "ratio_softmax_matmul": measured["softmax_matmul"] / ours,
                        "ratio_multihead_attention": measured["multihead_attention"] / ours,
                    }
                )
    report("hopfield", rows, where, copy_gb_per_s=measure_copy_bandwidth(where) / 1e9)


def _list_ways(
    stored: Tensor, offsets: Tensor, padded: Tensor, mask: Tensor | None, n_heads: int, normalisation: Normalisation
) -> dict[str, Callable[[], Tensor]]:
    """Return functions that pool the same sets: `HopfieldPooling`, plain matrix products, torch's attention."""
    dim, where = stored.shape[1], stored.device
    pooling = HopfieldPooling(dim, n_heads=n_heads, normalisation=normalisation).to(where)
    attention = nn.MultiheadAttention(dim, n_heads, batch_first=True, device=where)
    queries = _copy_weights(pooling, attention, len(offsets) - 1)

    def attend() -> Tensor:
        patterns = functional.layer_norm(padded, (dim,)) if normalisation == "inputs" else padded
        return attention(queries, patterns, patterns, key_padding_mask=mask, need_weights=False)[0]

    return {
        "ours": lambda: pooling(stored, offsets=offsets),
        "softmax_matmul": lambda: _pool_plainly(pooling, padded, mask),
        "multihead_attention": attend,
    }


def _copy_weights(pooling: HopfieldPooling, attention: nn.MultiheadAttention, n_sets: int) -> Tensor:
    """Copy the weights of the pooling to the attention; return the queries for it, (n_sets, 1, dim)."""
    dim = attention.embed_dim
    assert pooling.map_values is not None
    maps = [pooling.map_stored.linear, pooling.map_values.linear]
    with torch.no_grad():
        attention.in_proj_weight[:dim] = torch.eye(dim)
        attention.in_proj_bias.zero_()
        for part, linear in enumerate(maps, start=1):
            assert linear is not None
            attention.in_proj_weight[part * dim : (part + 1) * dim] = linear.weight
        attention.out_proj.load_state_dict(pooling.output.state_dict())
    return pooling.queries.detach().view(1, 1, dim).expand(n_sets, 1, dim)


def _pool_plainly(pooling: HopfieldPooling, padded: Tensor, mask: Tensor | None) -> Tensor:
    assert pooling.map_values is not None
    patterns = pooling.map_stored.normalise(padded)
    key = pooling.map_stored.map_normalised(patterns)  # (B, H, N, d)
    value = pooling.map_values.map_normalised(patterns)
    logits = pooling.scaled_queries() @ key.mT  # (B, H, 1, N)
    if mask is not None:
        logits = logits.masked_fill(mask[:, None, None], -torch.inf)
    pooled = torch.softmax(logits, dim=-1) @ value  # (B, H, 1, d)
    return pooling.output(pooled.transpose(1, 2).flatten(2))


def _make_pass(function: Callable[[], Tensor], passes: str) -> Callable[[], object]:
    """Return a function that makes a forward pass, or a forward and a backward pass."""
    if passes == "forward":

        def forward() -> None:
            with torch.no_grad():
                function()

        return forward
    return lambda: function().square().sum().backward()


if __name__ == "__main__":
    main()
