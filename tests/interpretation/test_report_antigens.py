"""A report with known antigens: beside the sequences, by organism, and in the command that makes it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import deeprc
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.drawing import CLASS_COLOURS
from deeprc.errors import InputError
from deeprc.interpretation.directions import list_directions
from deeprc.interpretation.figures.classes import index_classes
from deeprc.interpretation.report.antigens import annotate_survey, make_antigen_sections
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.interpretation.survey import Survey, TopSequences, survey_cohort
from deeprc.runs.run import Run
from deeprc.tasks import Task

pytest.importorskip("logomaker")


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_the_page_names_the_antigens_of_matching_sequences(
    cohort_factory: Callable[..., RepertoireDataset], run_factory: Callable[..., Run], tmp_path: Path
) -> None:
    cohort = cohort_factory(20, 40, seed=3)
    run = run_factory(cohort, "n_updates=5", stir=0.1)
    found = survey_cohort(run.model, cohort, top=30)
    chosen = found.top[found.directions[0].name].table["junction_aa"].drop_duplicates().tolist()[:3]
    database = tmp_path / "invented.tsv"
    entries = [f"{junction}\tinvented <virus>\tGILGFVFTL\n" for junction in chosen]
    database.write_text("junction_aa\tantigen_organism\tepitope\n" + "".join(entries))
    page = run.report(cohort, output=tmp_path / "report.html", top=30).path.read_text()
    assert "Known antigen" not in page
    shown = deeprc.report(run, cohort, output=tmp_path / "report.html", top=30, databases=[database], host=None)
    page = shown.path.read_text()
    assert page.count("invented &lt;virus&gt;, GILGFVFTL (exact)</td>") >= 3
    assert "<h2>Known antigens?</h2>" in page
    assert "3 of 30 sequences match an entry" in page
    assert 'id="antigens-1"' in page
    assert "Known antigens for" in page
    assert "<virus>" not in page
    assert f"--database {database} --host any" in page


def test_colours_begin_again_after_the_last() -> None:
    task = Task("site", "site", "multiclass", tuple("ABCDEFG"))
    directions = list_directions([task])
    table = pd.DataFrame({"junction_aa": ["CASSF"], "specificity_match": [""]})
    survey = SimpleNamespace(
        directions=directions, top={each.name: SimpleNamespace(table=table) for each in directions}
    )
    organisms = {each.name: pd.DataFrame({"antigen_organism": []}) for each in directions}
    sections = make_antigen_sections(cast(Survey, survey), organisms, index_classes([task]))
    assert [section.colour_index for section in sections] == [0, 1, 2, 3, 4, 5, 0]
    assert len(CLASS_COLOURS) == 6


def test_a_direction_without_sequences() -> None:
    """In a cohort of one class, no sequence may contribute to the other class."""
    directions = list_directions([Task("status", "status", "binary", ("healthy", "case"))])
    none: Any = None
    nothing = TopSequences(pd.DataFrame(), SequenceIndex(np.zeros(0, np.int64), np.zeros(0, np.int64)))
    top = {direction.name: nothing for direction in directions}
    survey = Survey(none, none, none, none, none, directions, top, top, {}, [])
    survey, organisms = annotate_survey(survey, pd.DataFrame({"cdr3_aa": ["ASS"]}), none)
    sections = make_antigen_sections(survey, organisms, {"status": {"healthy": 0, "case": 1}})
    assert [section.summary for section in sections] == ["No sequence contributes to it."] * 2
    assert [(section.figures, section.table) for section in sections] == [([], None)] * 2


def test_only_runs_are_compared_with_databases(tmp_path: Path) -> None:
    (tmp_path / "benchmark.yaml").write_text("format: deeprc-benchmark\n")
    with pytest.raises(InputError, match="`database` is only for the report of a run; leave it out"):
        deeprc.report(tmp_path, output=tmp_path / "a.html", databases=["b.tsv"])
