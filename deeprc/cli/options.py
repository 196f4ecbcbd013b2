"""Options that several commands have."""

from __future__ import annotations

import click

__all__ = ["config_option", "device_option", "sketches_option", "training_device_option"]

config_option = click.option(
    "--config",
    default="deeprc",
    show_default=True,
    help="The name of a configuration, or a YAML file; see `deeprc config`.",
)
device_option = click.option(
    "--device", default="auto", show_default=True, help="Where to compute: auto, cpu, cuda, cuda:1, ..."
)
training_device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Where to compute: auto (CUDA if there is a GPU), cpu, cuda, cuda:1, ...",
)
sketches_option = click.option(
    "--no-sketches",
    is_flag=True,
    help="Do not keep hashes of junctions in the run. They recognise copies of training repertoires in other cohorts.",
)
