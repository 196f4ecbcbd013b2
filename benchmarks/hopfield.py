"""`HopfieldPooling` over many stored patterns, beside a plain softmax of matrix products and `nn.MultiheadAttention`.

All three have the same weights and give the same results, which is checked. The plain way maps every stored pattern by
W_K and W_V, takes the softmax of β Q Kᵀ and multiplies with V, in torch's operations. Sets of unequal sizes are padded
for the other two.
"""

from __future__ import annotations

import click
import torch
from common import alternate, copy_bandwidth, report, seconds_option
from torch import Tensor, nn

from deeprc.device import resolve_device
from deeprc.hopfield import HopfieldPooling

SHARES = {"one set": (1.0,), "four sets": (0.5, 0.25, 0.15, 0.1)}


@click.command()
@click.option("--device", default="auto", help="auto, cpu, cuda ...")
@click.option("--keys", default=300_000, help="Stored patterns in all.")
@click.option("--dim", default=64, help="Of the stored patterns, and of all heads together.")
@click.option("--heads", multiple=True, default=(1, 8), help="May be given several times.")
@seconds_option
def main(device: str, keys: int, dim: int, heads: tuple[int, ...], seconds: float) -> None:
    """Measure pooling with one query per head, forward, and forward and backward."""
    where = resolve_device(device)
    rows = []
    for name, shares in SHARES.items():
        sizes = [round(share * keys) for share in shares]
        stored = torch.randn(sum(sizes), dim, device=where, requires_grad=True)  # as from an embedding
        offsets = torch.tensor([0, *sizes], device=where).cumsum(0)
        padded = nn.utils.rnn.pad_sequence(list(stored.split(sizes)), batch_first=True)
        padding = torch.arange(max(sizes), device=where) >= torch.tensor(sizes, device=where)[:, None]
        mask = padding if len(sizes) > 1 else None
        for n_heads in heads:
            pooling = HopfieldPooling(dim, n_heads=n_heads, normalisation="none").to(where)
            attention = nn.MultiheadAttention(dim, n_heads, batch_first=True, device=where)
            queries = _copy(pooling, attention, len(sizes))
            ways = {
                "ours": lambda pooling=pooling, stored=stored, offsets=offsets: pooling(stored, offsets=offsets),
                "softmax_matmul": lambda pooling=pooling, padded=padded, mask=mask: _plain(pooling, padded, mask),
                "multihead_attention": lambda attention=attention, queries=queries, padded=padded, mask=mask: attention(
                    queries, padded, padded, key_padding_mask=mask, need_weights=False
                )[0],
            }
            results = [way().detach() for way in ways.values()]
            for result in results[1:]:
                torch.testing.assert_close(result, results[0], atol=1e-4, rtol=1e-3)
            for passes in ("forward", "forward + backward"):
                measured = alternate(
                    {way: _passes(function, passes) for way, function in ways.items()}, where, seconds=seconds
                )
                ours = measured["ours"]
                rows.append(
                    {
                        "sets": name,
                        "heads": n_heads,
                        "passes": passes,
                        **{f"{way}_ms": 1e3 * value for way, value in measured.items()},
                        "ratio_softmax_matmul": measured["softmax_matmul"] / ours,
                        "ratio_multihead_attention": measured["multihead_attention"] / ours,
                    }
                )
    report("hopfield", rows, where, copy_gb_per_s=copy_bandwidth(where) / 1e9)


def _copy(pooling: HopfieldPooling, attention: nn.MultiheadAttention, n_sets: int) -> Tensor:
    """Give attention the weights of the pooling; return what it has to be asked, (n_sets, 1, dim)."""
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


def _plain(pooling: HopfieldPooling, padded: Tensor, mask: Tensor | None) -> Tensor:
    assert pooling.map_values is not None
    key, value = pooling.map_stored(padded), pooling.map_values(padded)  # (B, H, N, d)
    logits = pooling.scaled_queries() @ key.mT  # (B, H, 1, N)
    if mask is not None:
        logits = logits.masked_fill(mask[:, None, None], -torch.inf)
    pooled = torch.softmax(logits, dim=-1) @ value  # (B, H, 1, d)
    return pooling.output(pooled.transpose(1, 2).flatten(2))


def _passes(function: object, passes: str) -> object:
    if passes == "forward":

        def forward() -> None:
            with torch.no_grad():
                function()

        return forward
    return lambda: function().square().sum().backward()


if __name__ == "__main__":
    main()
