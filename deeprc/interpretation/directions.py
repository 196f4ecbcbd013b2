"""Directions of outputs: up or down, towards a class or a higher or lower number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deeprc.errors import InputError
from deeprc.tasks import Task

__all__ = ["Direction", "find_direction", "list_directions"]


@dataclass(frozen=True)
class Direction:
    """A direction of an output, up or down.

    Attributes
    ----------
    name
        Unique name of the direction: its label, with the target if there are several.
    label
        Class that sequences of this direction contribute to, or "higher" or "lower" for a number.
    output
        Index of the output.
    sign
        1 for the direction in which sequences raise the output, -1 for that in which they lower it.
    target
        Name of the target.
    prefix
        The part of the name before the label: the target and a colon, or "" if there is only one target with classes.
    """

    name: str
    label: str
    output: int
    sign: int
    target: str
    prefix: str = ""


def list_directions(tasks: Sequence[Task]) -> list[Direction]:
    """Return the directions of the outputs of all targets, each with a unique name."""
    directions, output = [], 0
    columns = Counter(task.column for task in tasks)
    for task in tasks:
        if task.kind == "binary":
            labelled = [(task.positive, 0, 1), (task.negative, 0, -1)]
        elif task.kind == "multiclass":
            labelled = [(label, c, 1) for c, label in enumerate(task.classes)]
        else:
            labelled = [("higher", 0, 1), ("lower", 0, -1)]
        target = task.column if columns[task.column] == 1 else task.name
        prefix = f"{target}: " if len(tasks) > 1 or task.kind == "regression" else ""
        directions += [
            Direction(prefix + label, label, output + shift, sign, task.name, prefix) for label, shift, sign in labelled
        ]
        output += task.n_outputs
    return directions


def find_direction(tasks: Sequence[Task], name: str | None, *, target: str | None = None) -> Direction:
    """Return the direction with a name; None is the positive class, first class, or "higher", of the first target.

    Parameters
    ----------
    tasks
        All targets of the model.
    name
        The unique name of a direction, or its label if no other target has this label.
    target
        Name of the only target whose directions are meant; None: those of all targets.

    Raises
    ------
    InputError
        If there is no direction with this name, or several targets have the label.
    """
    directions = [direction for direction in list_directions(tasks) if target in (None, direction.target)]
    if name is None:
        return directions[0]
    chosen = [direction for direction in directions if name == direction.name] or [
        direction for direction in directions if name == direction.label
    ]
    if len(chosen) == 1:
        return chosen[0]
    expected = ", ".join(direction.name for direction in chosen or directions)
    if chosen:
        raise InputError(f"several targets have the class {name!r}: expected one of {expected}")
    target_phrase = "" if target is None else f" of the target {target!r}"
    raise InputError(f"no class {name!r}{target_phrase}: expected one of {expected}")
