"""Small repertoires with given junctions and V genes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deeprc.datasets.dataset import RepertoireDataset
from tests.toys.repertoires import make_sequences, write_repertoires


def write_genes(
    path: Path, junctions: Sequence[Sequence[str]], genes: Sequence[Sequence[str]] | None
) -> RepertoireDataset:
    """Write repertoires with these V genes, or without any; every sequence was seen once."""
    repertoires = [
        make_sequences(own, v_call=None if genes is None else genes[number]) for number, own in enumerate(junctions)
    ]
    n = len(junctions)
    status, ids = ["ab"[number % 2] for number in range(n)], [f"rep.{number}" for number in range(n)]
    return write_repertoires(path, repertoires, {"status": status}, ids)
