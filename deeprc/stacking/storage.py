"""Convert the members of a stack to arrays and JSON values, and back.

The classes of members are those of `deeprc.benchmarking.registry`: a file names a method, never code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.benchmarking.import_paths import import_estimator_class
from deeprc.benchmarking.registry import METHODS
from deeprc.documents import validate
from deeprc.stacking.members import Member

__all__ = ["list_allowed_members", "restore_members", "store_members"]

_EXCLUDED_METHODS = ("stack", "sheet-columns")


def list_allowed_members() -> list[str]:
    """Return the names of the methods that a stack may have.

    Methods that know what was simulated are left out, and so is `sheet-columns`, because a column of the sheet may
    contain the label.
    """
    return [name for name, entry in METHODS.items() if entry.kind != "truth" and name not in _EXCLUDED_METHODS]


def store_members(members: Sequence[Member]) -> tuple[dict[str, NDArray[Any]], list[dict[str, Any]]]:
    """Return arrays and JSON values of fitted members.

    The arrays are those of all models, `model.MEMBER.MODEL.NAME`, and the units of each member, `units.MEMBER`.
    """
    arrays: dict[str, NDArray[Any]] = {}
    stored = []
    for m, member in enumerate(members):
        models = []
        for i, model in enumerate(member.models):
            model_arrays, values = model._state()
            arrays |= {f"{_make_prefix(m, i)}{name}": array for name, array in model_arrays.items()}
            parameters = model.get_params(deep=False)
            if "device" in parameters:  # the machine that loads it may have another device
                parameters["device"] = "auto"
            models.append({"parameters": parameters, "values": values})
        arrays[f"units.{m}"] = np.array([member.centre, member.scale])
        stored.append({"name": member.name, "models": models})
    return arrays, stored


def restore_members(arrays: Mapping[str, NDArray[Any]], stored: object) -> list[Member]:
    """Return the members from the arrays and values of `store_members`.

    Raises
    ------
    ValueError, LookupError, TypeError
        If they are damaged, or one is not a method of deeprc.
    """
    members = []
    for m, stored_member in enumerate(validate(stored, list[dict[str, Any]], "members")):
        name = validate(stored_member.get("name"), str, "members: name")
        if name not in list_allowed_members():
            raise ValueError(f"members: expected methods of deeprc, found {name!r}")
        models = []
        for i, stored_model in enumerate(
            validate(stored_member.get("models"), list[dict[str, Any]], f"{name}: models")
        ):
            prefix = _make_prefix(m, i)
            model_arrays = {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}
            parameters = validate(stored_model.get("parameters"), dict[str, Any], f"{name}: parameters")
            values = validate(stored_model.get("values"), dict[str, dict[str, Any]], f"{name}: values")
            model = import_estimator_class(METHODS[name].estimator)(**parameters)
            model._restore(model_arrays, values)
            models.append(model)
        if not models:
            raise ValueError(f"{name}: expected at least one model, found none")
        centre, scale = arrays[f"units.{m}"].tolist()
        if not (np.isfinite(centre) and scale > 0):
            raise ValueError(f"{name}: expected a finite centre and a scale above 0, found {centre} and {scale}")
        members.append(Member(name, models, centre, scale))
    return members


def _make_prefix(member: int, model: int) -> str:
    return f"model.{member}.{model}."
