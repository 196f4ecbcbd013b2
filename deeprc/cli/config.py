"""The command `deeprc config`: settings of network and training."""

from __future__ import annotations

import click

__all__ = ["config"]


@click.command()
@click.argument("name", default="deeprc", metavar="[NAME]")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the settings as a YAML file for `deeprc train --config`.")
def config(name: str, overrides: tuple[str, ...], as_yaml: bool) -> None:
    """List the settings of network and training with their values, defaults, allowed values and meaning.

    NAME is a configuration that comes with deeprc (cmv, deeprc, paper) or a YAML file; without NAME the default
    configuration is shown. KEY=VALUE changes a setting, as in `deeprc train`.

    \b
    Examples:
      deeprc config paper
      deeprc config paper n_updates=5000 --yaml > mine.yaml
      deeprc train cohort.h5 --target 'CMV=+' --output runs/cmv --config mine.yaml
    """
    from deeprc.cli.settings import format_settings, format_settings_yaml
    from deeprc.config import list_presets, load_config

    if "=" in name:  # NAME was left out
        name, overrides = "deeprc", (name, *overrides)
    settings = load_config(name, overrides)
    if as_yaml:
        click.echo(format_settings_yaml(settings), nl=False)
        return
    click.echo(format_settings(settings))
    click.echo(f"Configurations that come with deeprc: {', '.join(list_presets())} (deeprc config NAME)")
