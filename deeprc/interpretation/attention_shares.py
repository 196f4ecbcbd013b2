"""The attention on a cohort, of which each worker computes that on some of the repertoires."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from typing import Any

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.attention import RepertoireAttention, iterate_attention
from deeprc.interpretation.ranking import Ranking
from deeprc.jobs import Workers
from deeprc.runs.ensemble import RunEnsemble
from deeprc.runs.shares import CohortShare, compute_in_shares

__all__ = ["iterate_attention_of_workers"]


def iterate_attention_of_workers(
    predictor: RunEnsemble,
    dataset: RepertoireDataset,
    workers: Workers,
    *,
    device: str = "auto",
    top: int | None = None,
    ranking: Ranking | None = None,
) -> Iterator[RepertoireAttention]:
    """Yield what `iterate_attention` yields, computed by workers.

    Parameters
    ----------
    predictor
        The runs.
    dataset
        Repertoires of a container.
    workers, device
        Where it is computed, and on what device; see `deeprc.runs.shares.compute_in_shares`.
    top, ranking
        As those of `iterate_attention`.

    Raises
    ------
    InputError
        See `deeprc.runs.shares.compute_in_shares`.
    """
    compute = partial(_compute_attention_fields, top=top, ranking=ranking)
    computed = compute_in_shares(compute, predictor, dataset, workers, device=device)
    for repertoire, found in zip(dataset, computed, strict=True):
        yield RepertoireAttention(repertoire, *found)


def _compute_attention_fields(share: CohortShare, *, top: int | None, ranking: Ranking | None) -> list[tuple[Any, ...]]:
    """Return all fields but the repertoire, which would be sent with its container."""
    predictor, dataset = share.load()
    names = [field.name for field in fields(RepertoireAttention)[1:]]
    found = iterate_attention(predictor.model, dataset, top=top, ranking=ranking)
    return [tuple(getattr(each, name) for name in names) for each in found]
