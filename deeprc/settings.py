"""Descriptions of all settings of a configuration, for `deeprc config`, `deeprc train --help` and the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from deeprc.config import SECTIONS

__all__ = ["SettingDescription", "format_setting", "list_settings"]

_SHOWN_LIMIT = 1_000
"""Upper limits above this one only catch mistakes; `deeprc config` does not show them."""


@dataclass(frozen=True)
class SettingDescription:
    """Description of one setting of a configuration.

    Attributes
    ----------
    section, name
        Section and key of the setting in a YAML file.
    meaning
        Explanation of the setting in one line.
    kind
        Description of the allowed values.
    default
        Value in the preset `deeprc`.
    null
        Word for None in YAML: null or all.
    """

    section: str
    name: str
    meaning: str
    kind: str
    default: Any
    null: str

    def text(self, value: Any) -> str:
        """Return a value in the form of YAML and of `key=value`."""
        return self.null if value is None else format_setting(value)


def list_settings() -> list[SettingDescription]:
    """Return all settings of a configuration; those of the network come first."""
    hints = {name: hint for section in SECTIONS.values() for name, hint in get_type_hints(section).items()}
    return [
        SettingDescription(
            name,
            f.name,
            f.metadata["meaning"],
            _describe_kind(hints[f.name], f.metadata),
            f.default,
            f.metadata.get("none") or "null",
        )
        for name, section in SECTIONS.items()
        for f in fields(section)
    ]


def format_setting(value: Any) -> str:
    """Return the value of a setting in the form of YAML and of `key=value`."""
    dumped: str = yaml.safe_dump(value)
    return dumped.removesuffix("\n").removesuffix("\n...")


def _describe_kind(hint: Any, limits: Mapping[str, Any]) -> str:
    """Return a description of the values that a field allows, for example "whole number of at least 1, or all"."""
    if hint is str or get_origin(hint) is Literal:
        choices = limits["names"]() if hint is str else get_args(hint)
        return " or ".join(choices) if len(choices) == 2 else ", ".join(choices)
    kinds = set(get_args(hint)) or {hint}
    if bool in kinds:
        return "true or false"
    if str in kinds:
        return "path of a file, or null"
    text = "whole number" if int in kinds else "number"
    low, high = limits["low"], limits["high"]
    if high < _SHOWN_LIMIT:
        text += f" above 0, at most {high:g}" if 0 < low < 1e-6 else f" from {low:g} to {high:g}"
    else:
        text += " above 0" if 0 < low < 1e-6 else f" of at least {low:g}"
    return text + (f", or {limits['none'] or 'null'}" if type(None) in kinds else "")
