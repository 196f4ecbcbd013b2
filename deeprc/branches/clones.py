"""The branch `clones`: it stores clones that are associated with a label, and finds them in a repertoire.

In terms of Hopfield networks, the list of clones is a memory: the stored patterns are clones and the state patterns are
the sequences of a repertoire. A sequence with m mismatches retrieves a clone of the same length and genes with the
weight exp(-beta * m). If beta is high, only the clone itself is retrieved; if it is lower, near neighbours count, too.
Here the match of a clone is either exact (beta is infinite) or allows one substitution: all sequences with at most one
mismatch retrieve the clone (beta is 0 for these). A clone with a wildcard allows a substitution at one position only,
see `deeprc.datasets.clones.wildcards`. The members of a cluster allow one substitution each, and count together as one
clone, see `deeprc.datasets.clones.clusters`. A similar clone allows several substitutions, see
`deeprc.datasets.clones.similar`. An expanded clone is matched exactly, by expanded sequences only, see
`deeprc.datasets.clones.expanded`.

A repertoire has n different clones or, for expanded clones, n expanded sequences. Of these, k are retrieved. Both
numbers give the evidence for an output, see `clones_evidence`. The evidence with k = 0 is shared by all sequences. The
difference between the evidence and that with k = 0 is shared equally by the k clones, and the part of each clone by the
sequences that retrieve it. The evidence is a weighted sum over levels: on each level, only the clones with a p-value
below its threshold count.

Letters: N sequences of one repertoire, J clones, G memories, L levels of all memories, R residues, T outputs, n pairs
of a sequence and a clone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeprc.arrays import Floats, index_connected
from deeprc.branches.clones_check import check_stored_clones
from deeprc.branches.clones_description import (
    ClonesDescription,
    LevelDescription,
    MemoryDescription,
    check_kinds_of_evidence,
    check_numbers_of_clones,
    parse_clones_description,
)
from deeprc.branches.clones_evidence import N_PARAMETERS, EvidenceLevel, compute_evidence
from deeprc.branches.clones_memory import CLUSTER, EXPANDED, Memory, name_match
from deeprc.branches.genes import check_some_genes_known
from deeprc.branches.stored_clones_search import StoredClonesSearch
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.distinct import count_clones_of_repertoire, has_merged_clones
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.sequences import GENE_FIELDS, Sequences
from deeprc.nn.branches import Branch, to_array

__all__ = ["CloneBranch", "CloneHits"]

_CARRIERS = ("carriers_positive", "carriers_negative")


class CloneHits(NamedTuple):
    """n pairs of a sequence of one repertoire and a clone that it retrieves, in the order of the sequences.

    Attributes
    ----------
    rows
        Index of the sequence in its repertoire, (n,) int64.
    clones
        Index of the clone, which is also the index of its row in `CloneBranch.table`, (n,) int64.
    mismatches
        Number of substitutions between sequence and clone, (n,) int64.
    outputs
        Index of the output for which the clone is evidence, (n,) int64.
    evidence
        Amount that the pair adds to the score of this output, (n,).
    """

    rows: NDArray[np.int64]
    clones: NDArray[np.int64]
    mismatches: NDArray[np.int64]
    outputs: NDArray[np.int64]
    evidence: Floats


class _MemorySpan(NamedTuple):
    """One memory, the levels of its evidence, and the slice of its clones among those of all memories."""

    memory: MemoryDescription
    levels: Sequence[EvidenceLevel]
    start: int
    stop: int


class CloneBranch(Branch):
    """The branch `clones`; see the top of this module.

    Parameters
    ----------
    description
        Description of the memories.
    n_outputs
        Number of outputs, T.
    """

    name: ClassVar[str] = "clones"
    residues: torch.Tensor
    offsets: torch.Tensor
    v_call: torch.Tensor
    j_call: torch.Tensor
    is_ball: torch.Tensor  # match of each clone; saved models have this name
    carriers: torch.Tensor
    tests: torch.Tensor
    evidence: torch.Tensor

    def __init__(self, description: ClonesDescription, n_outputs: int) -> None:
        super().__init__()
        self._description, self.n_outputs = description, n_outputs
        self._search: StoredClonesSearch | None = None
        n = sum(memory.n_clones for memory in description.memories)
        shapes = {"residues": (description.n_residues,), "offsets": (n + 1,), "is_ball": (n,), "carriers": (n, 2)}
        for name, shape in {**shapes, **dict.fromkeys(GENE_FIELDS, (n,))}.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("tests", torch.zeros(n, 2, dtype=torch.float64))
        n_levels = sum(len(memory.levels) for memory in description.memories)
        self.register_buffer("evidence", torch.zeros(n_levels, N_PARAMETERS, dtype=torch.float64))

    @classmethod
    def of(cls, memories: Sequence[Memory], n_outputs: int, *, is_doubtful: bool = False) -> CloneBranch:
        """Return the branch with at least one memory for T outputs; see also `Branch.is_doubtful`.

        Raises
        ------
        InputError
            If there are more clones than a file of a model may have.
        """
        sequences = Sequences.concatenate([memory.clones.sequences for memory in memories])
        genes = sequences.genes  # all names of the container, to compare them with those of others
        described = tuple(
            MemoryDescription(
                memory.output,
                memory.direction,
                memory.kind,
                len(memory.clones),
                tuple(LevelDescription(level.threshold, level.weight) for level in memory.levels),
            )
            for memory in memories
        )
        vocabularies = {name: calls.vocabulary for name, calls in genes.items()}
        description = ClonesDescription(described, len(sequences.residues), vocabularies, is_doubtful)
        check_numbers_of_clones(description, "the branch `clones` (`clones: false` turns it off)")
        branch = cls(description, n_outputs)
        columns = {
            "residues": sequences.residues,
            "offsets": sequences.offsets,
            **{name: calls.codes for name, calls in genes.items()},
            "is_ball": np.concatenate([memory.matches for memory in memories]),
            "carriers": np.concatenate([memory.carriers for memory in memories]),
            "tests": np.concatenate([memory.tests for memory in memories]),
            "evidence": np.stack([level.parameters for memory in memories for level in memory.levels]),
        }
        for name, values in columns.items():
            buffer = getattr(branch, name)
            buffer.copy_(torch.from_numpy(np.ascontiguousarray(values)).to(buffer))
        return branch

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be chance that the stored clones predict left-out repertoires, see `Branch`."""
        return self._description.doubtful

    @property
    def clones(self) -> CloneSet:
        """The J clones of all memories, one memory after the other."""
        sequences = Sequences.counted_once(to_array(self.residues).astype(np.uint8), to_array(self.offsets))
        genes = self._description.genes
        calls = {name: Categorical(to_array(getattr(self, name)), genes[name]) for name in genes}
        return CloneSet(sequences.with_genes(calls))

    def _list_memory_spans(self) -> list[_MemorySpan]:
        """Return each memory with the levels of its evidence and the slice of its clones."""
        spans, start, rows = [], 0, iter(to_array(self.evidence))
        for memory in self._description.memories:
            levels = [EvidenceLevel(level.threshold, level.weight, next(rows)) for level in memory.levels]
            spans.append(_MemorySpan(memory, levels, start, start + memory.n_clones))
            start += memory.n_clones
        return spans

    def find_clones_in(self, repertoire: Repertoire) -> CloneHits:
        """Return the pairs of a sequence of a repertoire and a clone that it retrieves, with their evidence.

        Raises
        ------
        InputError
            If the repertoire's container lacks genes with which the clones were learned.
        """
        return self._match_stored_clones(repertoire)[0]

    def find_sequences_of_strongest(self, repertoires: Iterable[Repertoire]) -> Iterator[NDArray[np.int64]]:
        """Yield the indices of the sequences of each repertoire that retrieve a strong clone, (n,), in ascending order.

        Each memory is looked at alone. The weight of one of its clones is the sum of the weights of the levels on which
        it counts. The clone is strong if it has at least half of the largest weight of a clone of the same output and
        direction.

        Raises
        ------
        InputError
            If a repertoire's container lacks genes with which the clones were learned.
        """
        is_strong = self._mark_strongest()
        for repertoire in repertoires:
            pairs, _ = self._prepare_search(repertoire).find_in(repertoire)
            yield np.unique(pairs.rows[is_strong[pairs.clones]])

    def _mark_strongest(self) -> NDArray[np.bool_]:
        """Return whether each clone is strong, (J,), see `find_sequences_of_strongest`."""
        weights, p_values = np.zeros(len(self.carriers)), to_array(self.tests)[:, 0]
        largest: dict[tuple[int, str], float] = {}
        spans = self._list_memory_spans()
        for memory, levels, start, stop in spans:
            for level in levels:
                weights[start:stop] += level.weight * (p_values[start:stop] < level.threshold)
            key = memory.output, memory.direction
            largest[key] = max(largest.get(key, 0.0), float(weights[start:stop].max()))
        halves = [largest[span.memory.output, span.memory.direction] / 2 for span in spans]
        return weights >= np.repeat(halves, [span.stop - span.start for span in spans])

    def compute_contributions(self, repertoire: Repertoire) -> Floats:
        """Return the evidence of each sequence, (N, T): of its hits, and an equal share of the score without hits."""
        contributions = np.zeros((len(repertoire), self.n_outputs))
        if len(repertoire):
            hits, scores_without_hits = self._match_stored_clones(repertoire)
            contributions += scores_without_hits / len(repertoire)
            np.add.at(contributions, (hits.rows, hits.outputs), hits.evidence)
        return contributions

    def score(self, repertoire: Repertoire) -> Floats:
        """Return the scores of a repertoire, (T,), from its sequences that match stored clones."""
        if len(repertoire) == 0:
            return np.zeros(self.n_outputs)
        hits, scores_without_hits = self._match_stored_clones(repertoire)
        return scores_without_hits + np.bincount(hits.outputs, hits.evidence, minlength=self.n_outputs)

    def _join_hit_clusters(self, rows: NDArray[np.int64], clones: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the clone that stands for the cluster of each of n pairs of a sequence and a clone, (n,).

        It is the first one of the cluster that is in a pair, so a cluster has the smallest p-value of those that are
        joined. A clone without a cluster stands for itself. Clusters of one memory that a sequence connects are one
        cluster. If the sequence were in a training repertoire, they would be, so cross-fitted evidence counts them
        once, too.
        """
        joined, matches = clones.copy(), to_array(self.is_ball)[clones]
        members = np.flatnonzero(matches >= CLUSTER)
        if len(members) == 0:
            return joined
        stops = [span.stop for span in self._list_memory_spans()]
        memory = np.searchsorted(stops, clones[members], "right")
        cluster, sequence = (
            np.unique(np.stack([memory, values[members]]), axis=1, return_inverse=True)[1].ravel()
            for values in (matches, rows)
        )
        n_clusters = int(cluster.max()) + 1
        pairs = np.stack([cluster, n_clusters + sequence])
        group = index_connected(pairs, int(pairs.max()) + 1)[cluster]
        first_of_group = np.full(int(group.max()) + 1, len(self.carriers))
        np.minimum.at(first_of_group, group, clones[members])
        joined[members] = first_of_group[group]
        return joined

    def _prepare_search(self, repertoire: Repertoire) -> StoredClonesSearch:
        """Return the search for the clones in repertoires, after a check that this one has some of their genes."""
        sequences = repertoire.container.sequences
        for name, known in self._description.genes.items():
            if name in sequences.genes:
                check_some_genes_known(repertoire.container.path, name, known, sequences.genes[name].vocabulary)
        if self._search is None:
            self._search = StoredClonesSearch(self.clones, to_array(self.is_ball))
        return self._search

    def _match_stored_clones(self, repertoire: Repertoire) -> tuple[CloneHits, Floats]:
        """Return the hits, and the score that each output would have without hits, (T,)."""
        fields = list(self._description.genes)
        hashes = None if has_merged_clones(repertoire, fields) else np.empty(len(repertoire), np.uint64)
        (rows, clones, mismatches), n_expanded = self._prepare_search(repertoire).find_in(repertoire, hashes)
        n_different = count_clones_of_repertoire(repertoire, fields, hashes)
        n_clones = len(self.carriers)
        joined = self._join_hit_clusters(rows, clones)
        n_hits = np.bincount(joined, minlength=n_clones)  # of each cluster, or clone without one
        evidence, scores_without_hits = np.zeros(n_clones), np.zeros(self.n_outputs)
        outputs, p_values = np.zeros(n_clones, np.int64), to_array(self.tests)[:, 0]
        for memory, levels, start, stop in self._list_memory_spans():
            hit = start + np.flatnonzero(n_hits[start:stop])
            n = n_expanded if self.is_ball[start] == EXPANDED else n_different
            for level in levels:
                counted = hit[p_values[hit] < level.threshold]
                values = compute_evidence(memory.kind, level.parameters, [0, len(counted)], [n, n])
                without_hits, with_hits = memory.sign * level.weight * values
                scores_without_hits[memory.output] += without_hits
                evidence[counted] += (with_hits - without_hits) / max(len(counted), 1)
            outputs[start:stop] = memory.output
        shares = evidence[joined] / n_hits[joined]
        return CloneHits(rows, clones, mismatches, outputs[clones], shares), scores_without_hits

    def table(self, output_names: Sequence[str]) -> pd.DataFrame:
        """Return a table of the clones with their associations, by output, direction and memory, best first.

        Parameters
        ----------
        output_names
            Names of the T outputs.

        Returns
        -------
        pandas.DataFrame
            Columns `junction_aa`, `v_call` and `j_call` if genes are part of clones, `output`, `direction`, `match`
            (`exact`, `one substitution`, `any residue at position 7` and `cluster 2`, both from 1, `up to 3
            substitutions` or `expanded`), the number of
            carriers (`carriers_positive` and `carriers_negative` for classes, `carriers` for numbers), `p_value`, and
            `q_value` (Benjamini and Hochberg, over all tested clones of this kind). Carriers are donors if they are
            known, else training repertoires. With `one substitution`, carriers of any neighbour count, and the p-value
            is corrected for the choice of the match. With a wildcard, `junction_aa` is one of the junctions that match,
            and carriers of any of them count. A cluster has a row for each member, with the carriers and the p-value of
            the cluster.
        """
        frame = self.clones.to_frame()
        memories, carriers = self._description.memories, to_array(self.carriers)
        n_clones = [memory.n_clones for memory in memories]
        frame["output"] = np.repeat([output_names[memory.output] for memory in memories], n_clones).astype(object)
        frame["direction"] = np.repeat([memory.direction for memory in memories], n_clones).astype(object)
        frame["match"] = np.array([name_match(match) for match in to_array(self.is_ball).tolist()], dtype=object)
        is_numeric = np.repeat([memory.kind == "rate" for memory in memories], n_clones)
        for column, name in enumerate(_CARRIERS):
            if not is_numeric.all():
                frame[name] = pd.array(carriers[:, column], dtype="Int64")
                frame.loc[is_numeric, name] = pd.NA
        if is_numeric.any():
            frame["carriers"] = pd.array(carriers[:, 0], dtype="Int64")
            frame.loc[~is_numeric, "carriers"] = pd.NA
        frame["p_value"], frame["q_value"] = to_array(self.tests).T
        return frame

    def describe(self) -> dict[str, Any]:
        """Return the description of the stored clones as values for JSON; `from_description` reads it."""
        described = self._description
        genes = {name: list(vocabulary) for name, vocabulary in described.genes.items()}
        memories = [asdict(memory) for memory in described.memories]
        n_residues = described.n_residues
        return {"memories": memories, "n_residues": n_residues, "genes": genes, "doubtful": self.is_doubtful}

    @classmethod
    def from_description(cls, description: Any, n_outputs: int, where: str) -> CloneBranch:
        """Return a branch with empty buffers from a result of `describe`; raise InputError if it is not one."""
        return cls(parse_clones_description(description, n_outputs, where), n_outputs)

    def check_targets(self, is_numeric: Sequence[bool], where: str) -> None:
        """Raise InputError if clones are evidence for classes, but their output is a number, or the reverse."""
        check_kinds_of_evidence(self._description, is_numeric, where)

    def check(self, where: str) -> None:
        """Raise InputError if the buffers, read from a file, have numbers that would crash or stop compiled code."""
        check_stored_clones({name: to_array(buffer) for name, buffer in self.named_buffers()}, self._description, where)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._search = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_search": None}
