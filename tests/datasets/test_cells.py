"""Single cells: scirpy's reader and deeprc's give the same repertoires; what a model sees goes back to the cells."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import deeprc
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what scirpy and its dependencies warn of when they are imported
    scirpy = pytest.importorskip("scirpy")
    import anndata
    import awkward
    import mudata

pytestmark = pytest.mark.filterwarnings("ignore")  # likewise while they read

FORMATS = Path(os.environ.get("DEEPRC_REAL_DATA", "nowhere")) / "formats"
needs_files = pytest.mark.skipif(not FORMATS.is_dir(), reason="the real files are not here")
CONTIGS = "tenx/10x_vdj_nextgem_hs_pbmc3_t_filtered_contig_annotations.csv.gz"


def cells_of(chains: list[list[dict[str, Any]]], **obs: list[Any]) -> Any:
    """Return an AnnData in scirpy's layout."""
    table = pd.DataFrame(obs, index=[f"cell{place}" for place in range(len(chains))])
    return anndata.AnnData(obs=table, obsm={"airr": awkward.Array(chains)})


def chain(junction_aa: str, locus: str = "TRB", **fields: Any) -> dict[str, Any]:
    genes = {"v_call": f"{locus}V2*01", "j_call": f"{locus}J1-1"}
    return {"locus": locus, "junction_aa": junction_aa, "productive": True, "umi_count": 5, **genes, **fields}


@pytest.fixture
def adata() -> Any:
    chains = [
        [chain("CASSF"), chain("CAVF", "TRA")],
        [chain("CASSF"), chain("CAWWF")],
        [],
        [chain("CASSF")],
        [chain("CASKF", productive=False), chain("CASTF")],
        [chain("CASSF")],
    ]
    patients = ["a", "a", "a", "b", "b", None]
    return cells_of(chains, patient=patients, status=["ill"] * 3 + ["well"] * 2 + [None], n_genes=[*range(6)])


def sequences_of(dataset: RepertoireDataset) -> list[list[tuple[Any, ...]]]:
    """Return what is known of the sequences of each repertoire, without their places, sorted."""
    frames = [each.to_frame().drop(columns="sequence_id") for each in dataset]
    return [sorted(frame.itertuples(index=False, name=None)) for frame in frames]


@needs_files
def test_scirpy_reads_contigs_as_deeprc_does() -> None:
    adata = scirpy.io.read_10x_vdj(FORMATS / CONTIGS, filtered=False)
    donors = {name: f"p{place % 3}" for place, name in enumerate(adata.obs_names)}
    adata.obs["patient"] = pd.Categorical([donors[name] for name in adata.obs_names])
    table = pd.read_csv(FORMATS / CONTIGS)
    table = table.assign(patient=table["barcode"].map(donors))
    table = table[table["patient"].notna()]
    for locus, n in (("TRA", 1444), ("TRB", 1584)):
        found = deeprc.from_anndata(adata, donor="patient", chain=locus)
        options = deeprc.ReadingOptions(locus=locus)
        expected = deeprc.from_frame(table, repertoire="patient", options=options)
        assert sequences_of(found) == sequences_of(expected)
        assert found.n_sequences.sum() == n
        assert found.report.counts_from.keys() == {"(cells)"}


@needs_files
def test_scirpy_reads_airr_as_deeprc_does() -> None:
    files = [FORMATS / "airr" / f"scirpy_rearrangement_{name}.tsv" for name in ("tra", "trb", "ig")]
    adata = scirpy.io.read_airr(files)
    adata.obs["donor"] = "one"
    table = pd.concat([pd.read_csv(file, sep="\t") for file in files]).assign(donor="one")
    for locus in ("TRA", "TRB", "IGH"):
        options = deeprc.ReadingOptions(locus=locus)
        expected = deeprc.from_frame(table, repertoire="donor", options=options)
        assert sequences_of(deeprc.from_anndata(adata, donor="donor", chain=locus)) == sequences_of(expected)


def test_a_sequence_counts_its_cells(adata: Any, caplog: pytest.LogCaptureFixture) -> None:
    found = deeprc.from_anndata(adata, donor="patient", chain="TRB")
    assert [each.sequences.decode() for each in found] == [["CASSF", "CAWWF"], ["CASSF", "CASTF"]]
    assert [each.counts.tolist() for each in found] == [[2, 1], [1, 1]]
    assert found[0].genes["v_call"].names().tolist() == ["TRBV2", "TRBV2"]
    assert found.metadata.to_dict("list") == {"patient": ["a", "b"], "status": ["ill", "well"]}
    assert "1 of 6 cells have no donor (obs['patient']): left out" in caplog.text
    sheet = pd.DataFrame({"patient": ["b", "a"], "age": [3, 4]})
    assert deeprc.from_anndata(adata, donor="patient", chain="TRB", metadata=sheet).metadata["age"].tolist() == [3, 4]


def test_names_of_cells_may_repeat(adata: Any) -> None:
    adata.obs_names = ["cell"] * 6
    assert deeprc.from_anndata(adata, donor="patient", chain="TRB")[0].counts.tolist() == [2, 1]


def test_a_multimodal_object_lends_its_columns(adata: Any) -> None:
    expected = deeprc.from_anndata(adata, donor="patient", chain="TRB")
    patients = adata.obs.pop("patient")
    together = mudata.MuData({"airr": adata})
    together.obs["patient"] = patients
    found = deeprc.from_anndata(together, donor="patient", chain="TRB")
    assert sequences_of(found) == sequences_of(expected)
    with pytest.raises(InputError, match="expected a modality 'airr' in the MuData, found gex"):
        deeprc.from_anndata(mudata.MuData({"gex": anndata.AnnData(np.ones((2, 2)))}), donor="patient")


def test_from_anndata_refuses_unusable_cells(adata: Any) -> None:
    with pytest.raises(InputError, match="obs has no column 'donor' for `donor`; columns: patient, status, n_genes"):
        deeprc.from_anndata(adata, donor="donor")
    with pytest.raises(InputError, match="`donor`: expected the name of a column of obs, found list"):
        deeprc.from_anndata(adata, donor=["patient"])  # type: ignore[arg-type]
    twice = adata.copy()
    twice.obs = pd.concat([adata.obs, adata.obs[["patient"]]], axis=1)
    with pytest.raises(InputError, match=r"^obs has 2 columns 'patient' for `donor`; expected one$"):
        deeprc.from_anndata(twice, donor="patient")
    with pytest.raises(InputError, match=r"several chains, TRA .* and TRB .*; choose one with `locus`"):
        deeprc.from_anndata(adata, donor="patient")
    with pytest.raises(InputError, match=r"AnnData: expected scirpy's obsm\[\"airr\"\]"):
        deeprc.from_anndata(anndata.AnnData(np.ones((2, 2))), donor="patient")
    with pytest.raises(InputError, match="no field junction_aa, cdr3_aa or junction; it has locus"):
        deeprc.from_anndata(cells_of([[{"locus": "TRB"}]], patient=["a"]), donor="patient")
    with pytest.raises(InputError, match=r"AnnData: cell 'cell0', column 'productive': expected .*; found 'maybe'"):
        deeprc.from_anndata(cells_of([[chain("CASSF", productive="maybe")]], patient=["a"]), donor="patient")


@pytest.fixture(scope="module")
def classifier() -> deeprc.DeepRCClassifier:
    cohort = deeprc.from_frame(
        {"repertoire_id": [*map(str, range(12))] * 2, "junction_aa": ["CASSF", "CAWWF", "CASTF"] * 8}
    )
    settings = {"n_updates": 3, "n_kernels": 4, "kernel_size": 3, "n_sequences": 5}
    return deeprc.DeepRCClassifier(overrides=settings, device="cpu").fit(cohort, np.arange(12) % 2)


def test_cells_have_the_attention_of_their_sequences(adata: Any, classifier: deeprc.DeepRCClassifier) -> None:
    dataset = deeprc.from_anndata(adata, donor="patient", chain="TRB")
    names = deeprc.annotate_cells(adata, classifier, donor="patient", chain="TRB")
    assert names == ["deeprc_attention_weight", "deeprc_attention_rank", "deeprc_contribution"]
    a, b = (deeprc.attention_table(classifier.model_, dataset, place).set_index("junction_aa") for place in (0, 1))
    best = a["attention_weight"].idxmax()
    expected = [*a.loc[["CASSF", best], "contribution"], np.nan, *b.loc[["CASSF", "CASTF"], "contribution"], np.nan]
    np.testing.assert_allclose(adata.obs["deeprc_contribution"], expected, rtol=1e-6)
    assert adata.obs["deeprc_attention_weight"].notna().tolist() == [True, True, False, True, True, False]
    assert adata.obs["n_genes"].tolist() == [*range(6)]


@pytest.mark.parametrize("merge", ["genes", "junction", "none"])
def test_cells_are_annotated_however_sequences_are_merged(
    adata: Any, classifier: deeprc.DeepRCClassifier, merge: Any
) -> None:
    chains = adata.obsm["airr"].to_list()
    chains[3] = [chain("CASSF", v_call="TRBV7-9*01"), chain("CASSF")]
    adata.obsm["airr"] = awkward.Array(chains)
    options = deeprc.ReadingOptions(merge=merge, locus="TRB")
    dataset = deeprc.from_anndata(adata, donor="patient", options=options)
    deeprc.annotate_cells(adata, classifier, donor="patient", options=options)
    a, b = (deeprc.attention_table(classifier.model_, dataset, place) for place in (0, 1))
    assert len(b) == {"genes": 3, "junction": 2, "none": 3}[merge]
    of_b = b.drop_duplicates("junction_aa").set_index("junction_aa")["attention_weight"]
    expected = [a["attention_weight"][a["junction_aa"] == "CASSF"].iloc[0], of_b["CASSF"], of_b["CASTF"]]
    np.testing.assert_allclose(adata.obs["deeprc_attention_weight"].iloc[[0, 3, 4]], expected, rtol=1e-6)
    assert adata.obs["deeprc_contribution"].notna().tolist() == [True, True, False, True, True, False]


def test_cells_whose_cdr3s_alone_are_known_are_annotated(classifier: deeprc.DeepRCClassifier) -> None:
    fields = {"locus": "TRB", "productive": True, "v_call": "TRBV2*01", "j_call": "TRBJ1-1"}
    cells = cells_of([[{"cdr3_aa": "ASS", **fields}], [{"cdr3_aa": "AWW", **fields}]], patient=["a", "a"])
    dataset = deeprc.from_anndata(cells, donor="patient")
    assert dataset[0].sequences.decode() == ["CASSF", "CAWWF"]
    deeprc.annotate_cells(cells, classifier, donor="patient")
    expected = deeprc.attention_table(classifier.model_, dataset, 0).set_index("junction_aa")["contribution"]
    np.testing.assert_allclose(cells.obs["deeprc_contribution"], expected[["CASSF", "CAWWF"]], rtol=1e-6)


def test_donors_without_the_chain_are_left_out(
    classifier: deeprc.DeepRCClassifier, caplog: pytest.LogCaptureFixture
) -> None:
    chains = [[chain("CASSF")], [chain("CAVF", "TRA")], []]
    cells = cells_of(chains, patient=["a", "b", "c"])
    deeprc.annotate_cells(cells, classifier, donor="patient", chain="TRB")
    assert cells.obs["deeprc_attention_weight"].notna().tolist() == [True, False, False]
    assert "no sequence for 1 row: c" in caplog.text
    assert "none of the 1 rows of repertoire 'b' is kept" in caplog.text


def test_columns_of_odd_types_are_no_metadata(adata: Any) -> None:
    adata.obs["bin"] = pd.cut(adata.obs["n_genes"], 2)
    adata.obs["pair"] = [np.zeros((2, 2))] * 6
    found = deeprc.from_anndata(adata, donor="patient", chain="TRB")
    assert found.metadata.columns.tolist() == ["patient", "status"]
