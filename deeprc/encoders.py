"""Registry of sequence encoders: the names that `embedding=NAME` accepts.

Another package adds an encoder by an entry point of the group `deeprc.encoders`; a program adds one by
`register_encoder`. A name in a configuration file can only select an installed or registered encoder: it never causes
another import. torch is imported when an encoder is built.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deeprc.nn.encoders import EncoderSettings, SequenceEncoder

    EncoderFactory = Callable[[EncoderSettings], SequenceEncoder]

__all__ = ["HOW_TO_ADD", "find_encoder", "list_encoders", "may_have_weights", "register_encoder"]

HOW_TO_ADD = "to use another encoder, install its package, or call deeprc.encoders.register_encoder in Python first"
"""What to do if an encoder is unknown, for messages."""

_GROUP = "deeprc.encoders"
_FACTORIES: dict[str, str | EncoderFactory] = {
    "convolution": "deeprc.nn.encoders:ConvolutionEncoder",
    "lstm": "deeprc.nn.encoders:LstmEncoder",
    "transformer": "deeprc.nn.transformer:TransformerEncoder",
}
_WITHOUT_WEIGHTS = ("convolution", "lstm")


def register_encoder(name: str, factory: EncoderFactory) -> None:
    """Make an encoder available as `embedding=NAME` in this process.

    Parameters
    ----------
    name
        Name of the encoder. It is written into the configuration of every run that uses it. Such a run can be loaded
        only where the name is registered.
    factory
        A subclass of `deeprc.nn.SequenceEncoder`, or a function that builds an encoder from its settings.

    Raises
    ------
    ValueError
        If another encoder already has this name.
    """
    if name in list_encoders() and _FACTORIES.get(name) is not factory:
        raise ValueError(f"an encoder {name!r} is registered already")
    _FACTORIES[name] = factory


def list_encoders() -> list[str]:
    """Return the names of all encoders, those of this package first."""
    return list(dict.fromkeys([*_FACTORIES, *_list_installed()]))


@functools.cache
def _list_installed() -> tuple[str, ...]:
    """Return the names of the encoders of other packages that were installed when this process first asked.

    Finding them takes longer than reading a configuration.
    """
    return tuple(sorted(entry_points(group=_GROUP).names))


def may_have_weights(name: str) -> bool:
    """Return whether the setting `embedding_weights` is possible with an encoder.

    This is known of the encoders of this package. Another one is asked when the network is built, by its method
    `load_weights`.
    """
    return name not in _WITHOUT_WEIGHTS


def find_encoder(name: str) -> EncoderFactory:
    """Return the class or function that builds the encoder with a name.

    Raises
    ------
    ValueError
        If there is no encoder with this name.
    """
    factory = _FACTORIES.get(name)
    if factory is None:
        entries = [*entry_points(group=_GROUP, name=name)]
        if not entries:
            names = ", ".join(list_encoders())
            raise ValueError(f"embedding: expected one of {names}, found {name!r} ({HOW_TO_ADD})")
        factory = entries[0].load()
    encoder_factory: EncoderFactory = resolve_name(factory) if isinstance(factory, str) else factory
    return encoder_factory
