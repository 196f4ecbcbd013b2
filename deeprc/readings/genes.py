"""A check that a container names genes like the repertoires to which a reading was fitted."""

from __future__ import annotations

from collections.abc import Collection

from deeprc.documents import abbreviate
from deeprc.errors import InputError

__all__ = ["check_some_genes_known"]


def check_some_genes_known(source: object, field: str, known: Collection[str], found: Collection[str]) -> None:
    """Raise InputError if a container's genes have other names than all that a reading knows.

    Parameters
    ----------
    source
        The container's path.
    field
        `v_call` or `j_call`.
    known, found
        The names that the reading knows, and those of the container; "" is an unknown gene.
    """
    known, found = sorted(set(known) - {""}), sorted(set(found) - {""})
    if known and not set(known) & set(found):
        example = abbreviate(found[0]) if found else "none"
        expected = f"expected genes named as in training, such as {known[0]!r}"
        raise InputError(f"{source}: {field}: {expected}, found {example}")
