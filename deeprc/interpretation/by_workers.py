"""The attention on a cohort and its survey, computed by workers, each of which reads some of the repertoires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from deeprc.interpretation.attention import RepertoireAttention, iterate_attention
from deeprc.interpretation.ranking import Ranking
from deeprc.interpretation.survey import Survey
from deeprc.interpretation.survey_collector import SurveyCollector, SurveyPlan
from deeprc.runs.shares import CohortShare, DividedCohort

__all__ = ["iterate_attention_of_workers", "survey_by_workers"]


def iterate_attention_of_workers(
    cohort: DividedCohort, *, top: int | None = None, ranking: Ranking | None = None
) -> Iterator[RepertoireAttention]:
    """Yield what `iterate_attention` yields with `top` and `ranking`, computed by workers.

    Raises
    ------
    InputError
        See `DividedCohort.iterate_shares`.
    """
    computed = cohort.compute_in_shares(partial(_compute_attention_fields, top=top, ranking=ranking))
    for repertoire, values in zip(cohort.dataset, computed, strict=True):
        yield RepertoireAttention(repertoire, *values)


def _compute_attention_fields(share: CohortShare, *, top: int | None, ranking: Ranking | None) -> list[tuple[Any, ...]]:
    """Return all fields but the repertoire, which would be sent with its container."""
    predictor, dataset = share.load()
    names = [field.name for field in fields(RepertoireAttention)[1:]]
    results = iterate_attention(predictor.model, dataset, top=top, ranking=ranking)
    return [tuple(getattr(result, name) for name in names) for result in results]


def survey_by_workers(
    cohort: DividedCohort, *, top: int = 1000, parts: Sequence[str] | None = None, witnesses_among: Sequence[int] = ()
) -> Survey:
    """Return what `survey_cohort` returns with `top`, `parts` and `witnesses_among`, computed by workers.

    Raises
    ------
    InputError
        See `DividedCohort.iterate_shares`.
    """
    model, dataset = cohort.predictor.model, cohort.dataset
    plan = SurveyPlan.of(model, dataset, top, witnesses_among)
    rows = frozenset(dataset.repertoire_indices[list(witnesses_among)].tolist())
    collector, start = SurveyCollector(plan), 0
    collect = partial(_survey_share, plan=plan, witness_indices=rows, has_parts=parts is not None)
    for share, collected in cohort.iterate_shares(collect):
        collector.join(collected, start, parts)
        start += len(share.repertoire_indices)
    return Survey.of(collector, plan, model)


def _survey_share(
    share: CohortShare, *, plan: SurveyPlan, witness_indices: frozenset[int], has_parts: bool
) -> SurveyCollector:
    """Return what is collected of a share; the parts of the split are filled in later."""
    predictor, dataset = share.load()
    collector = SurveyCollector(plan)
    for position, attention in enumerate(iterate_attention(predictor.model, dataset)):
        has_witnesses = share.repertoire_indices[position] in witness_indices
        collector.add(attention, position, part="" if has_parts else None, has_witnesses=has_witnesses)
    return collector
