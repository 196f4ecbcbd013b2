"""The survey of a cohort, of which each worker surveys some of the repertoires."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.attention import iterate_attention
from deeprc.interpretation.survey import Survey
from deeprc.interpretation.survey_collector import SurveyCollector, SurveyPlan
from deeprc.jobs import Workers
from deeprc.runs.ensemble import RunEnsemble
from deeprc.runs.shares import CohortShare, iterate_shares

__all__ = ["survey_by_workers"]


def survey_by_workers(
    predictor: RunEnsemble,
    dataset: RepertoireDataset,
    workers: Workers,
    *,
    device: str = "auto",
    top: int = 1000,
    parts: Sequence[str] | None = None,
    witnesses_among: Sequence[int] = (),
) -> Survey:
    """Return what `survey_cohort` returns, computed by workers.

    Parameters
    ----------
    predictor
        The runs.
    dataset
        Repertoires of a container.
    workers, device
        Where it is computed, and on what device; see `deeprc.runs.shares.iterate_shares`.
    top, parts, witnesses_among
        As those of `survey_cohort`.

    Raises
    ------
    InputError
        See `deeprc.runs.shares.iterate_shares`.
    """
    plan = SurveyPlan.of(predictor.model, dataset, top, witnesses_among)
    rows = frozenset(dataset.repertoire_indices[list(witnesses_among)].tolist())
    collector, start = SurveyCollector(plan), 0
    collect = partial(_survey_share, plan=plan, witness_indices=rows, has_parts=parts is not None)
    for share, collected in iterate_shares(collect, predictor, dataset, workers, device=device):
        collector.join(collected, start, parts)
        start += len(share.repertoire_indices)
    return Survey.of(collector, plan, predictor.model)


def _survey_share(
    share: CohortShare, *, plan: SurveyPlan, witness_indices: frozenset[int], has_parts: bool
) -> SurveyCollector:
    """Return what is collected of a share; the parts of the split are filled in later."""
    predictor, dataset = share.load()
    collector = SurveyCollector(plan)
    for position, one in enumerate(iterate_attention(predictor.model, dataset)):
        has_witnesses = share.repertoire_indices[position] in witness_indices
        collector.add(one, position, part="" if has_parts else None, has_witnesses=has_witnesses)
    return collector
