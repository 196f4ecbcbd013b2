"""Clones that more donors carry than the probability of their junction explains, and clones with the most donors.

Most clones that a few repertoires share are shared by chance, because their junctions are probable. If the junction of
a shared clone is improbable, something else made the repertoires alike, such as an antigen that their donors met
(Pogorelyy et al. 2018, eLife 7:e33050). No label is used here. So such clones can be tested for an association with a
label alone, with much weaker p-values, than among all shared clones.

A donor counts once, also one with repertoires of both labels, which are two units of `CountedUnits`: otherwise nearly
every clone that a donor has at two times would be among these clones.

Letters: M clones of a container, B training repertoires.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import pdtrc

from deeprc.arrays import Floats, Integers, find_first_occurrences
from deeprc.baselines.carrier_counts import MIN_CARRIERS, CountedUnits, count_clone_carriers, run_over_clones
from deeprc.branches.junction_model import JunctionModel, compute_log_probabilities
from deeprc.datasets.clones.grouping import CloneCarriers, SharedClones
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["OversharedClones", "compute_clone_probabilities", "find_frequent_clones", "find_overshared_clones"]

_MAX_P_VALUE = 1e-8
"""Largest probability of so many donors by chance.

It is far below what the number of clones asks for, because the model of junctions is coarse: of the clones that it
calls improbable, many are only badly modelled."""

_MIN_FREQUENT_CARRIERS = 3
_MAX_FREQUENT = (20_000, 2_000)  # largest numbers of frequent clones


class OversharedClones(NamedTuple):
    """The clones that more donors carry than chance explains.

    Attributes
    ----------
    all
        These clones.
    without_any_carrier
        Those that would be among them without any one of their donors. The choice of these clones does not depend on
        whether a donor is held out. So a held-out repertoire has as many of them as a new repertoire has of `all`.
    """

    all: CloneCarriers
    without_any_carrier: CloneCarriers


def compute_clone_probabilities(clones: SharedClones, dataset: RepertoireDataset) -> Floats:
    """Return the probability of the junction of each clone among the sequences of a dataset, (M,)."""
    n_times = np.bincount(dataset.repertoire_indices, minlength=len(dataset.container.repertoire_ids)).astype(np.int32)
    n_copies = np.zeros(0, np.int64)
    if len(clones):
        n_copies = np.add.reduceat(n_times[clones.carriers], clones.offsets[:-1], dtype=np.int64)
    model = JunctionModel.fit(dataset)
    return np.exp(compute_log_probabilities(model, dataset, clones.representative, n_copies))


def find_overshared_clones(
    clones: SharedClones, probabilities: Floats, dataset: RepertoireDataset, groups: Integers | None
) -> OversharedClones:
    """Find the clones that more donors carry than the probabilities of their junctions explain.

    Parameters
    ----------
    clones, probabilities
        Shared clones of the container, and the probability of each junction, (M,).
    dataset
        The B training repertoires.
    groups
        Donor of each of them as an index, (B,); None if every repertoire is from a different donor.
    """
    donors = _count_donors(dataset, groups)
    n_sequences = int(dataset.n_sequences[find_first_occurrences(dataset.repertoire_indices)].sum())

    def find(start: int, stop: int) -> tuple[Integers, Integers]:
        indices, _, n_donors = count_clone_carriers(clones, start, stop, donors)
        expected = n_sequences * probabilities[indices]
        chance, chance_without_one = pdtrc(n_donors - 1, expected), pdtrc(n_donors - 2, expected)
        is_left = (chance_without_one < _MAX_P_VALUE) & (n_donors > MIN_CARRIERS)
        return indices[chance < _MAX_P_VALUE], indices[is_left]

    blocks = [(np.zeros(0, np.int64),) * 2, *run_over_clones(find, len(clones))]
    of_all, without_any_carrier = (np.concatenate([block[column] for block in blocks]) for column in range(2))
    return OversharedClones(clones.select(of_all), clones.select(without_any_carrier))


def find_frequent_clones(
    clones: SharedClones, dataset: RepertoireDataset, groups: Integers | None
) -> tuple[OversharedClones, OversharedClones]:
    """Find the clones with the most donors: at most 20,000 of them, and at most 2,000.

    Each of these sets has all clones of at least m donors. m is the smallest number, from 3 on, for which the set is
    small enough. If donors share few clones by chance, most of these clones are public, as overshared ones are, also
    where the model of junctions does not hold. The parameters are those of `find_overshared_clones`.
    """
    donors = _count_donors(dataset, groups)

    def count(start: int, stop: int) -> tuple[Integers, Integers]:
        indices, _, n_donors = count_clone_carriers(clones, start, stop, donors)
        is_kept = n_donors >= _MIN_FREQUENT_CARRIERS
        return indices[is_kept], n_donors[is_kept]

    blocks = [(np.zeros(0, np.int64),) * 2, *run_over_clones(count, len(clones))]
    indices, n_donors = (np.concatenate([block[column] for block in blocks]) for column in range(2))
    n_of_at_least = np.bincount(n_donors, minlength=_MIN_FREQUENT_CARRIERS + 1)[::-1].cumsum()[::-1]  # by m

    def select(max_clones: int) -> OversharedClones:
        n_too_large = int((n_of_at_least[_MIN_FREQUENT_CARRIERS:] > max_clones).sum())
        least = _MIN_FREQUENT_CARRIERS + n_too_large
        return OversharedClones(clones.select(indices[n_donors >= least]), clones.select(indices[n_donors > least]))

    more, fewer = _MAX_FREQUENT
    return select(more), select(fewer)


def _count_donors(dataset: RepertoireDataset, groups: Integers | None) -> CountedUnits:
    """Return units that are donors: those of the `groups`, or else repertoires."""
    return CountedUnits.of(dataset, np.zeros(len(dataset)), dataset.repertoire_indices if groups is None else groups)
