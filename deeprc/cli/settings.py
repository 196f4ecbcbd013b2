"""Settings of network and training as text, for `deeprc config` and for the help of commands that train."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby

import click

from deeprc.config import Config
from deeprc.settings import SettingDescription, list_settings

__all__ = ["SettingsCommand", "format_settings", "format_settings_yaml"]

_WIDTH = 100
_TITLES = {"network": "Settings of the network", "training": "Settings of the training"}
_FIRST_SETTINGS = (
    "KEY=VALUE changes a setting. Most users need none of these. Try first: n_updates, n_sequences, gene_units, "
    "composition, clones."
)


class SettingsCommand(click.Command):
    """A command whose help also lists the settings of network and training."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the settings below the options."""
        formatter.write_paragraph()
        formatter.write_text(_FIRST_SETTINGS)
        for title, rows in _iterate_help_sections():
            with formatter.section(title):
                formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write_text("`deeprc config` shows the allowed values, and the other configurations.")


def _iterate_help_sections() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the title of each section, and its settings with default and meaning."""
    for section, group in _group_by_section():
        yield (
            f"{_TITLES[section]} (KEY=VALUE; here with the defaults)",
            [(f"{setting.name}={setting.text(setting.default)}", setting.meaning) for setting in group],
        )


def format_settings(config: Config) -> str:
    """Return all settings as text: value, default if it differs, allowed values, and meaning."""
    lines = []
    for section, group in _group_by_section():
        lines += [_TITLES[section], ""]
        for setting in group:
            value, default = setting.text(config.value(setting.name)), setting.text(setting.default)
            default_text = f" [default: {default}]" if value != default else ""
            lines.append(f"  {setting.name}={value}{default_text} ({setting.kind})")
            lines += textwrap.wrap(setting.meaning, _WIDTH, initial_indent="      ", subsequent_indent="      ")
        lines.append("")
    return "\n".join(lines)


def format_settings_yaml(config: Config) -> str:
    """Return the text of a YAML file for `--config` with all settings, each below a comment with its meaning."""
    lines = ["# For `deeprc train --config FILE`. A setting that is left out has its default."]
    for section, group in _group_by_section():
        lines += ["", f"{section}:"]
        for setting in group:
            comment = f"{setting.meaning} ({setting.kind})"
            lines += textwrap.wrap(comment, _WIDTH, initial_indent="  # ", subsequent_indent="  # ")
            lines.append(f"  {setting.name}: {setting.text(config.value(setting.name))}")
    return "\n".join(lines) + "\n"


def _group_by_section() -> Iterator[tuple[str, list[SettingDescription]]]:
    for section, group in groupby(list_settings(), key=lambda setting: setting.section):
        yield section, list(group)
