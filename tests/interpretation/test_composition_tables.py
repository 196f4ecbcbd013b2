"""What a report says of the features of composition."""

from __future__ import annotations

import base64
import importlib.util
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.branches.composition import CompositionBranch
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.report import write_report
from deeprc.interpretation.report.composition_tables import make_composition_tables
from deeprc.runs.composition_table import make_composition_table
from deeprc.runs.run import Run
from deeprc.training.model import Ensemble
from tests.runs.test_composition_table import AGE, AT, SHEET, SITE, STATUS, V_GENES, gene_branch, make_model, write
from tests.toys.repertoires import make_sequences, write_repertoires
from tests.toys.toy_branches import Composition, with_branches

needs_figures = pytest.mark.skipif(importlib.util.find_spec("logomaker") is None, reason="logomaker is missing")
MINUS = "\N{MINUS SIGN}"


@pytest.fixture
def cohort(tmp_path: Path) -> RepertoireDataset:
    """Four repertoires with genes and counts."""
    repertoires = [["CASS"] * 8, ["CASS"] * 6 + ["WWWW"] * 2, ["WWWW"] * 8, ["WWWW"] * 8]
    counts = [[9, *[1] * 7], [1, 9, *[1] * 6], [2, *[1] * 7], [1, 1, 1, 2, *[1] * 4]]
    return write(tmp_path / "c.h5", repertoires, SHEET, v=V_GENES, counts=counts)


def test_each_kind_has_a_table(cohort: RepertoireDataset) -> None:
    branch = gene_branch(["A", "B"], [2.0, -2.0], reads_abundances=True, reads_expansion=True, reads_residues=True)
    branch.get_buffer("residue_weights")[0] = torch.linspace(0, 1, 280)
    branch.kmer_weights[0, AT["CASS"]] = 1.0
    branch.get_buffer("abundance_weights")[0, 0] = 1.0
    branch.get_buffer("expansion_weights")[0] = 1.0
    branch.get_buffer("v_call_expansion_weights")[0, 0] = -1.0
    model = make_model((STATUS,), branch)
    tables = make_composition_tables(model, cohort)
    assert [table.name for table in tables] == [
        "composition-genes", "composition-k-mers", "composition-residues-at-imgt-positions",
        "composition-diversity-of-the-counts",
        "composition-genes-of-expanded-clones", "composition-k-mers-of-expanded-clones",
    ]  # fmt: skip
    genes = tables[0]
    assert [column.label for column in genes.columns] == ["Gene", "Evidence for", "Effect", "Mean: ill", "Mean: well"]
    effect = make_composition_table(model, cohort).set_index(["kind", "feature"]).loc[("genes", "A"), "effect"]
    assert [[row[0].value, *(cell.text for cell in row[1:])] for row in genes.rows] == [
        ["A", "ill", f"+{effect:.3f}", "73.21%", "37.50%"],
        ["B", "well", f"{MINUS}{effect:.3f}", "26.79%", "62.50%"],
    ]
    assert [(row[0].value, row[1].text) for row in tables[1].rows] == [
        (name, "ill") for name in ("C", "CA", "CAS", "CASS")
    ]
    assert [cell.text for cell in tables[1].rows[0][3:]] == ["875.00", "0.00"]  # in 1,000 sequences
    assert {row[0].text: row[3].text for row in tables[2].rows}["S at 117 in A"] == "1.000"
    assert tables[3].rows[0][0].text == "share of the counts of the most abundant half"
    assert tables[3].rows[0][3].text.endswith("%")


def test_several_classes_and_numbers_name_their_groups(cohort: RepertoireDataset) -> None:
    branch = CompositionBranch(4)
    branch.kmer_weights[[0, 3], AT["CASS"]] = torch.tensor([1.0, -1.0])
    (table,) = make_composition_tables(make_model((SITE, AGE), branch), cohort)
    assert [column.label for column in table.columns[3:]] == [
        "Mean: of the class, or higher half",
        "Mean: others, or lower half",
    ]
    assert {row[1].text for row in table.rows} == {"site: gut", "age: lower"}
    branch = CompositionBranch(1)
    branch.kmer_weights[0, AT["CASS"]] = 1.0
    (table,) = make_composition_tables(make_model((AGE,), branch), cohort)
    assert [column.label for column in table.columns[3:]] == ["Mean: higher half", "Mean: lower half"]
    assert table.rows[0][1].text == "age: higher"


def test_few_k_mers_of_each_length_are_shown_and_more_can_be_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    repertoires = [["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 12)) for _ in range(50)] for _ in range(4)]
    dataset = write(tmp_path / "k.h5", repertoires, SHEET)
    branch = CompositionBranch(1)
    branch.kmer_weights.copy_(torch.randn(branch.kmer_weights.shape, generator=torch.Generator().manual_seed(0)))
    (table,) = make_composition_tables(make_model((STATUS,), branch), dataset)
    shown = pd.Series([len(str(row[0].value)) for row in table.rows])
    assert shown.value_counts().to_dict() == {1: 10, 2: 10, 3: 10, 4: 10}
    sizes = [abs(float(row[2].value or 0)) for row in table.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert table.download is not None
    text = base64.b64decode(table.download.address.partition("base64,")[2]).decode()
    saved = pd.read_csv(io.StringIO(text), sep="\t", keep_default_na=False)  # NA is a 2-mer
    assert saved.groupby(saved["feature"].str.len()).size()[[3, 4]].tolist() == [400, 400]
    assert table.caption.startswith(f"k-mers: 40 of {len(saved):,}, largest effect first")


def test_a_model_that_reads_no_features_has_no_table(cohort: RepertoireDataset) -> None:
    for branches in ([], [Composition("A", [1.0])], [CompositionBranch(1)]):
        assert make_composition_tables(make_model((STATUS,), *branches), cohort) == []


def test_a_note_says_where_each_family_counts_once(tmp_path: Path) -> None:
    """The k-mers are counted in all sequences, because only the other branch, which has no genes, reads k-mers."""
    texts = [["CASS", "CASS"]] * 3 + [["CASS", "WWWW"]]
    repertoires = [
        make_sequences(own, v_call=["A", "AB"[number % 2]], j_call=["J", "J"]) for number, own in enumerate(texts)
    ]
    dataset = write_repertoires(tmp_path / "f.h5", repertoires, SHEET)
    of_families, of_sequences = gene_branch(["A", "B"], [2.0, -2.0], counts_families=True), CompositionBranch(1)
    of_sequences.kmer_weights[0, AT["CASS"]] = 1.0
    models = [make_model((STATUS,), branch) for branch in (of_families, of_sequences)]
    genes, kmers = make_composition_tables(Ensemble.of(models), dataset)
    assert genes.columns[3].note == "mean share of the sequences with a known gene; each clonal family counts once"
    assert kmers.columns[3].note == "mean number in 1,000 sequences"


@pytest.mark.slow
@needs_figures
@pytest.mark.usefixtures("no_figures")
def test_the_page_says_what_the_composition_reads(
    trained: Run, motif_cohort: RepertoireDataset, tmp_path: Path
) -> None:
    branch = gene_branch(["TRBV1", "TRBV2"], [3.0, -3.0])
    run = replace(trained, model=with_branches(trained.model, branch))
    write_report(run, motif_cohort, tmp_path / "report.html", top=30)
    page = (tmp_path / "report.html").read_text()
    assert "<h3>What the composition reads</h3>" in page
    assert 'id="composition-genes"' in page
    assert 'download="composition-genes.tsv"' in page
    assert 'id="composition-k-mers"' not in page
