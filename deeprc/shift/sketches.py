"""Recognise a training repertoire by its junctions: under another name, subsampled, or read by another program.

A sketch holds the smallest hashes of a repertoire's junctions, which are a random sample of them. Genes and counts are
not hashed, because they depend on the program that read the sequences.

Letters: T training repertoires, B new repertoires, H hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from deeprc.checks.overlaps import MIN_SHARED, compute_median_overlap, iterate_overlap_blocks
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import check_format, validate
from deeprc.errors import InputError
from deeprc.shift.measurements import MAX_SKETCH, measure_repertoires
from deeprc.training.checkpoint import load_tensors, save_tensors

__all__ = ["SKETCHES_FILE", "Copy", "Sketches", "read_sketches", "write_sketches"]

SKETCHES_FILE = "sketches.safetensors"
"""The name of the file in a run directory."""

_FORMAT, _VERSION = "deeprc-sketches", 1
_MAX_HASHES, _MIN_SKETCH = 1 << 18, 128  # largest number in all sketches of a run, about 2 MB; smallest in one
_MIN_OVERLAP, _MIN_ODDS_RATIO = 0.1, 10.0  # the same limits as in `deeprc check`
_MAX_COMPARED = 2000  # number of repertoires whose pairs give the typical overlap


@dataclass(frozen=True)
class Copy:
    """A training repertoire that shares far more junctions with a new one than chance explains.

    Attributes
    ----------
    repertoire_id
        Id of the training repertoire.
    overlap
        Share of the smaller one's junctions that the other one also has.
    typical_overlap
        Overlap of the median pair of training repertoires, or of the new one with the median training repertoire: the
        larger.
    """

    repertoire_id: str
    overlap: float
    typical_overlap: float


@dataclass(frozen=True)
class Sketches:
    """Hashes of junctions of T training repertoires.

    Attributes
    ----------
    repertoire_ids
        Ids of the training repertoires.
    hashes
        Smallest hashes of each repertoire, uint64, sorted.
    is_sampled
        Whether each repertoire has more hashes than these.
    typical_overlap
        Overlap of the median pair of repertoires.
    """

    repertoire_ids: tuple[str, ...]
    hashes: tuple[NDArray[np.uint64], ...]
    is_sampled: tuple[bool, ...]
    typical_overlap: float

    @classmethod
    def of(cls, dataset: RepertoireDataset) -> Sketches:
        """Return the sketches of training repertoires."""
        measured = measure_repertoires(dataset)
        size = min(MAX_SKETCH, max(_MIN_SKETCH, _MAX_HASHES // max(len(dataset), 1)))
        hashes = [sketch[:size] for sketch in measured.sketches]
        is_sampled = [
            cut or len(sketch) > size for sketch, cut in zip(measured.sketches, measured.is_sampled, strict=True)
        ]
        chosen = np.linspace(0, len(dataset) - 1, min(len(dataset), _MAX_COMPARED)).astype(int).tolist()
        blocks = iterate_overlap_blocks([hashes[i] for i in chosen], [is_sampled[i] for i in chosen])
        ids = tuple(map(str, dataset.repertoire_ids))
        return cls(ids, tuple(hashes), tuple(is_sampled), compute_median_overlap(blocks, len(chosen)))

    def find_copies(self, dataset: RepertoireDataset) -> list[Copy | None]:
        """Return for each new repertoire the training repertoire with which it shares far more than chance explains.

        The overlap must be above 10% and have at least 10 junctions. Its odds must be ten times those of two usual
        overlaps: the median of all pairs of training repertoires, and the median of the new repertoire with each
        training repertoire.
        """
        n = len(self.hashes)
        measured = measure_repertoires(dataset)
        sketches = [*self.hashes, *measured.sketches]  # those of training come first
        overlaps = np.zeros((len(dataset), n))  # (B, T)
        for block in iterate_overlap_blocks(sketches, [*self.is_sampled, *measured.is_sampled]):
            is_mixed = (block.first < n) & (block.second >= n)  # pairs of a training and a new repertoire
            counts = is_mixed & (block.shared >= MIN_SHARED)
            overlaps[block.second[counts] - n, block.first[counts]] = block.overlap[counts]
        return [self._find_copy(row) for row in overlaps]

    def _find_copy(self, overlaps: NDArray[np.float64]) -> Copy | None:
        """Return which training repertoire is copied, by the overlaps with each of them, (T,); None if none is."""
        most = int(np.argmax(overlaps))
        overlap, typical = float(overlaps[most]), max(self.typical_overlap, float(np.median(overlaps)))
        has_high_odds = overlap * (1 - typical) > _MIN_ODDS_RATIO * typical * (1 - overlap)
        if overlap <= _MIN_OVERLAP or not has_high_odds:
            return None
        return Copy(self.repertoire_ids[most], overlap, typical)


def write_sketches(folder: Path, sketches: Sketches) -> None:
    """Write `sketches.safetensors` into a run directory."""
    hashes = np.concatenate([*sketches.hashes, np.zeros(0, np.uint64)])
    tensors = {
        "hashes": torch.from_numpy(hashes.view(np.int64)),
        "offsets": torch.from_numpy(compute_offsets(np.array([len(sketch) for sketch in sketches.hashes], np.int64))),
    }
    state = {
        "format": _FORMAT,
        "version": _VERSION,
        "repertoire_ids": list(sketches.repertoire_ids),
        "is_sampled": list(sketches.is_sampled),
        "usual": sketches.typical_overlap,
    }
    save_tensors(folder / SKETCHES_FILE, tensors, state)


@dataclass(frozen=True)
class _State:
    """The state that the file holds beside the tensors."""

    format: str
    version: int
    repertoire_ids: list[str]
    is_sampled: list[bool]
    usual: float


def read_sketches(folder: Path) -> Sketches | None:
    """Read `sketches.safetensors` of a run directory; None where it does not exist.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    file = folder / SKETCHES_FILE
    if not file.exists():
        return None
    tensors, content = load_tensors(file)
    state: _State = validate(content, _State, f"{file}: state")
    check_format((state.format, state.version), _FORMAT, _VERSION, str(file))
    n = len(state.repertoire_ids)
    are_named = set(tensors) == {"hashes", "offsets"}
    are_flat = all(tensor.dtype == torch.int64 and tensor.ndim == 1 for tensor in tensors.values())
    have_sizes = are_named and are_flat and len(tensors["offsets"]) - 1 == len(state.is_sampled) == n
    if not (have_sizes and n > 0 and 0 <= state.usual <= 1):
        raise InputError(f"{file}: expected hashes and offsets of {n} repertoires, and at least one repertoire")
    hashes = _split_by_repertoire(tensors, file)
    if any(is_cut and len(sketch) == 0 for sketch, is_cut in zip(hashes, state.is_sampled, strict=True)):
        raise InputError(f"{file}: is_sampled: expected at least one hash of each repertoire that is sampled")
    return Sketches(tuple(state.repertoire_ids), hashes, tuple(state.is_sampled), state.usual)


def _split_by_repertoire(tensors: dict[str, torch.Tensor], file: Path) -> tuple[NDArray[np.uint64], ...]:
    """Return the hashes of each repertoire; they must be sorted and different."""
    hashes, offsets = tensors["hashes"].numpy().view(np.uint64), tensors["offsets"].numpy()
    if offsets[0] != 0 or offsets[-1] != len(hashes) or (np.diff(offsets) < 0).any():
        raise InputError(f"{file}: offsets: expected rising positions of hashes")
    parts: Sequence[NDArray[np.uint64]] = np.split(hashes, offsets[1:-1])
    if any((sketch[1:] <= sketch[:-1]).any() for sketch in parts):
        raise InputError(f"{file}: hashes: expected different hashes in rising order")
    return tuple(parts)
