"""What all tables and figures of one direction need to know: the direction, its colours, and its index on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeprc.drawing import CLASS_COLOURS
from deeprc.interpretation.directions import Direction

__all__ = ["DirectionContext"]


@dataclass(frozen=True)
class DirectionContext:
    """A direction of an output on a page.

    Attributes
    ----------
    direction
        Direction of an output.
    index
        Index of the direction among those of the page, from 1.
    label_heading
        Heading of the column with the labels of repertoires: "Class", or the name of the predicted number.
    label_of
        Label of each repertoire as text, by its id; "" if not known.
    colour_of_class
        Index of the colour of each class of the target, see `index_classes`.
    members
        Name of each model, "" if there is only one, and its number of kernels.
    logo_height
        Height of the axis of each logo, in bits.
    """

    direction: Direction
    index: int
    label_heading: str
    label_of: Mapping[str, str]
    colour_of_class: Mapping[str, int]
    members: Sequence[tuple[str, int]]
    logo_height: float

    @property
    def colour_index(self) -> int:
        """Index of the colour of the direction's class, below the number of colours."""
        return self.colour_of_class[self.direction.label] % len(CLASS_COLOURS)
