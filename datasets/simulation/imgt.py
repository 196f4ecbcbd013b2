"""IMGT numbering of junctions (Lefranc et al. 2003): which residue stands at which position of the CDR3.

Position 104 is the conserved C, 118 the conserved F or W; between them lies the CDR3. A CDR3 of 13 residues has the
positions 105 to 117. A shorter one lacks positions in the middle: first 111, then 112, 110, 113 and so on. A longer one
has more positions there: first 112.1, then 111.1, 112.2, 111.2 and so on. So the first (n + 1) // 2 of n residues are
numbered upwards from 105, and the others downwards from 117.
"""

from __future__ import annotations

__all__ = ["find_imgt_index", "list_imgt_positions"]

_FIRST, _LAST_FROM_FRONT, _FIRST_FROM_BACK, _LAST = 104, 111, 112, 118


def list_imgt_positions(length: int) -> list[str]:
    """Return the position of each residue of a junction, conserved ones included: 104, 105, ..., 118.

    Raises
    ------
    ValueError
        If the junction has less than its 2 conserved residues.
    """
    if length < 2:
        raise ValueError(f"a junction has at least 2 residues, found {length}")
    n = length - 2
    front, back = (n + 1) // 2, n // 2
    n_front = _LAST_FROM_FRONT - _FIRST  # one less than the room from the back
    before = [str(_FIRST + 1 + i) for i in range(min(front, n_front))]
    before += [f"{_LAST_FROM_FRONT}.{i + 1}" for i in range(front - n_front)]
    after = [f"{_FIRST_FROM_BACK}.{i}" for i in range(back - n_front + 1, 0, -1)]
    after += [str(_LAST - i) for i in range(min(back, n_front - 1), 0, -1)]
    return [str(_FIRST), *before, *after, str(_LAST)]


def find_imgt_index(position: str, length: int) -> int | None:
    """Return the index, from 0, of a position (text: "107", "111.1") in a junction; None if the junction lacks it."""
    positions = list_imgt_positions(length)
    return positions.index(position) if position in positions else None
