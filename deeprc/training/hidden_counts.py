"""Checks for repertoires that the abundance scale log(count) hides: all their counts are 1, and log(1) is 0."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.plan import list_names
from deeprc.errors import InputError
from deeprc.nn.features import AbundanceMode

__all__ = ["find_hidden_repertoires", "make_residues_visible", "warn_of_hidden"]

_logger = logging.getLogger(__name__)


def find_hidden_repertoires(dataset: RepertoireDataset) -> list[str]:
    """Return the ids of the repertoires that have sequences, but no count above 1."""
    return [each.repertoire_id for each in dataset if len(each) and each.counts.max() <= 1]


def make_residues_visible(config: Config, datasets: Sequence[RepertoireDataset]) -> Config:
    """Return the configuration with an abundance scale that does not hide training and validation repertoires.

    If no sequence has a count above 1, `abundance=none` replaces `log`, with a warning.

    Raises
    ------
    InputError
        If `log` hides only some repertoires: the network would recognise them by this, and not by their receptors.
    """
    if config.network.abundance != "log":
        return config
    hidden = [name for dataset in datasets for name in find_hidden_repertoires(dataset)]
    if not hidden:
        return config
    if len(hidden) < sum(int((dataset.n_sequences > 0).sum()) for dataset in datasets):
        raise InputError(
            "abundance=log hides every residue of repertoires whose counts are all 1: "
            f"{list_names(hidden, 'repertoire', 'repertoires')}; leave them out, or use abundance=log1p or "
            "abundance=none"
        )
    _logger.warning("no sequence has a count above 1: abundance=none in the place of log, which hides those")
    return replace(config, network=replace(config.network, abundance="none"))


def warn_of_hidden(dataset: RepertoireDataset, abundance: AbundanceMode) -> None:
    """Warn of repertoires whose prediction cannot depend on their receptors, because `log` hides them."""
    hidden = find_hidden_repertoires(dataset) if abundance == "log" else []
    if hidden:
        _logger.warning(
            "the counts are all 1 and abundance=log hides the residues: the prediction says nothing of %s",
            list_names(hidden, "repertoire", "repertoires"),
        )
