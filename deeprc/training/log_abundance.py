"""Checks for repertoires whose counts are all 1: the abundance scale log(count) multiplies their residues by 0."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError, describe_names
from deeprc.nn.features import AbundanceMode

__all__ = ["find_repertoires_with_counts_of_one", "replace_log_abundance", "warn_of_counts_of_one"]

_logger = logging.getLogger(__name__)


def find_repertoires_with_counts_of_one(dataset: RepertoireDataset) -> list[str]:
    """Return the ids of the repertoires that have sequences, but no count above 1."""
    return [repertoire.repertoire_id for repertoire in dataset if len(repertoire) and repertoire.counts.max() <= 1]


def replace_log_abundance(config: Config, datasets: Sequence[RepertoireDataset]) -> Config:
    """Return the configuration with `abundance=none` in place of `log` if no sequence has a count above 1.

    Parameters
    ----------
    config
        Configuration of network and training.
    datasets
        Training and validation repertoires.

    Raises
    ------
    InputError
        If the counts of only some repertoires are all 1: the network would recognise these repertoires by that, and not
        by their receptors.
    """
    if config.network.abundance != "log":
        return config
    counts_of_one = [name for dataset in datasets for name in find_repertoires_with_counts_of_one(dataset)]
    if not counts_of_one:
        return config
    if len(counts_of_one) < sum(int((dataset.n_sequences > 0).sum()) for dataset in datasets):
        raise InputError(
            "abundance=log hides every residue of repertoires whose counts are all 1: "
            f"{describe_names(counts_of_one, 'repertoire', 'repertoires')}; leave them out, or use abundance=log1p or "
            "abundance=none"
        )
    _logger.warning(
        "All counts are 1, and log(1) = 0 would remove every residue. So abundance=none is used instead of "
        "abundance=log."
    )
    return replace(config, network=replace(config.network, abundance="none"))


def warn_of_counts_of_one(dataset: RepertoireDataset, abundance: AbundanceMode, *, branches_read_counts: bool) -> None:
    """Warn of repertoires whose counts are all 1, if the model reads counts.

    Parameters
    ----------
    dataset
        The repertoires that are predicted.
    abundance
        How the network scales residues by counts; `log` removes all residues of these repertoires.
    branches_read_counts
        Whether a branch beside the attention reads counts.
    """
    if abundance != "log" and not branches_read_counts:
        return
    counts_of_one = find_repertoires_with_counts_of_one(dataset)
    if counts_of_one and branches_read_counts:
        _logger.warning(
            "Counts add nothing to the prediction of %s: they are all 1. But the model has learned from counts.",
            describe_names(counts_of_one, "repertoire", "repertoires"),
        )
    if counts_of_one and abundance == "log":
        _logger.warning(
            "The prediction does not depend on the sequences of %s: all their counts are 1, and abundance=log "
            "multiplies residues by log(1) = 0.",
            describe_names(counts_of_one, "repertoire", "repertoires"),
        )
