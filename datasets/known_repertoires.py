"""Repertoires that are recognised by their content: sequences, counts and genes, whatever their ids are.

Real repertoires hardly ever have the same sequences and counts but other genes, unless the genes of one sample were
assigned anew, or are missing. Cohorts with equal sequences exist, though: simulated ones, and very small repertoires.

Letters: B repertoires, K known repertoires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from deeprc.datasets.dataset import Repertoire, RepertoireDataset

__all__ = ["KnownRepertoires", "identify_repertoire", "identify_repertoires", "make_content_keys"]

_SEPARATOR = "/"


class KnownRepertoires:
    """Repertoires that are recognised by their content.

    Parameters
    ----------
    identities
        Different identities of K repertoires, see `identify_repertoires`. Those of an older version have no genes.
    """

    def __init__(self, identities: Sequence[str]) -> None:
        self._identities = tuple(identities)
        self._variants: dict[str, list[int]] = {}  # indices of repertoires, by the digest of sequences and counts
        for index, identity in enumerate(self._identities):
            self._variants.setdefault(_drop_genes(identity), []).append(index)

    def find(self, identity: str, *, with_other_genes: bool = False) -> int | None:
        """Return the index of the known repertoire with the same content as an identity; None if there is none.

        A repertoire is also known without genes, if only one known repertoire has its sequences and counts.

        Parameters
        ----------
        identity
            Identity of the repertoire.
        with_other_genes
            Whether it is then also known with other genes, because they were probably assigned anew. Choose this if it
            is worse to take a known repertoire for a new one than the reverse.
        """
        matches = []
        for index in self._variants.get(_drop_genes(identity), ()):
            stored = self._identities[index]
            if stored == identity:
                return index
            if with_other_genes or not (_has_genes(stored) and _has_genes(identity)):
                matches.append(index)
        return matches[0] if len(matches) == 1 else None


def identify_repertoire(repertoire: Repertoire) -> str:
    """Return the identity of a repertoire: a text that all repertoires of the same content share.

    It is the digest of sequences and counts, followed by one that includes the genes if any gene is known.
    """
    has_genes = any(
        calls.vocabulary[code] for calls in repertoire.genes.values() for code in calls.count_occurrences().nonzero()[0]
    )
    return repertoire.digest() + (_SEPARATOR + repertoire.digest_with_genes() if has_genes else "")


def identify_repertoires(dataset: RepertoireDataset) -> list[str]:
    """Return the identity of each repertoire, (B,), see `identify_repertoire`."""
    return list(dataset.map_repertoires(identify_repertoire))


def make_content_keys(dataset: RepertoireDataset) -> list[str]:
    """Return a key for each repertoire, (B,) text: repertoires of the dataset have one key if they have one content.

    It is the digest of sequences and counts, or the identity if another repertoire differs from it by genes alone.
    """
    digests = list(dataset.map_repertoires(Repertoire.digest))
    occurrences = Counter(digests)
    identities = [
        identify_repertoire(dataset[row]) if occurrences[digest] > 1 else digest for row, digest in enumerate(digests)
    ]
    n_variants = Counter(_drop_genes(identity) for identity in set(identities))
    return [
        identity if n_variants[digest] > 1 else digest for digest, identity in zip(digests, identities, strict=True)
    ]


def _drop_genes(identity: str) -> str:
    return identity.partition(_SEPARATOR)[0]


def _has_genes(identity: str) -> bool:
    return _SEPARATOR in identity
