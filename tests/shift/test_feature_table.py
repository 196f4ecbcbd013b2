"""Features of repertoires, and what is known of the files that they were read from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import deeprc
from deeprc.checks.container import profile_container
from deeprc.checks.features import make_size_features
from deeprc.datasets.dataset import open_dataset
from deeprc.shift.feature_table import compute_features, convert_to_scale


def test_properties_of_files_have_the_names_of_shift_json(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    sheet = ["repertoire_id\tfilename"]
    for name in ("a", "b"):
        rows = "junction_aa\tduplicate_count\nCASSLGTDTQYF\t3\nCASSPGQGYEQYF\t1\n"
        (tmp_path / "files" / f"{name}.tsv").write_text(rows)
        sheet.append(f"{name}\t{name}.tsv")
    (tmp_path / "sheet.tsv").write_text("\n".join(sheet) + "\n")
    deeprc.preprocess(tmp_path / "files", tmp_path / "sheet.tsv", tmp_path / "cohort.h5")
    properties = compute_features(open_dataset(tmp_path / "cohort.h5"), {}).file_properties
    assert set(properties) == {"file format", "column of the counts", "column of the junctions"}
    assert properties["column of the counts"] == ["duplicate_count"] * 2
    assert properties["column of the junctions"] == ["junction_aa"] * 2


def test_rows_of_other_chains_are_no_dropped_rows(tmp_path: Path) -> None:
    header = "sample_id\tlocus\tjunction_aa\tproductive\n"
    beta = "{0}\tTRB\tCASSLGTDTQYF\tT\n{0}\tTRB\tCASSPGQGYEQYF\tT\n{0}\tTRB\tCASSPGQYEQYF\tF\n"
    alpha = "a\tTRA\tCAVDTGRRALTF\tT\n" * 7 + "a\tTRA\tCAVDTGRRALTF\tF\n" * 5 + "a\tTRA\t\tT\n" * 3
    (tmp_path / "both.tsv").write_text(header + beta.format("a") + alpha + beta.format("b"))
    (tmp_path / "sheet.tsv").write_text("sample_id\na\nb\n")
    options = deeprc.ReadingOptions(locus="TRB")
    deeprc.preprocess(tmp_path / "both.tsv", tmp_path / "sheet.tsv", tmp_path / "cohort.h5", options=options)
    found = compute_features(open_dataset(tmp_path / "cohort.h5"), {})
    (column,) = (i for i, feature in enumerate(found.features) if feature.aspect == "dropped rows")
    np.testing.assert_allclose(found.values[:, column], convert_to_scale("share", np.array([1 / 3, 1 / 3])))
    np.testing.assert_allclose(found.sampling_variance[:, column], [1 / 3, 1 / 3])
    features = make_size_features(profile_container(open_dataset(tmp_path / "cohort.h5")))
    (share,) = (feature for feature in features if feature.name == "share of dropped rows")
    np.testing.assert_allclose(share.by_repertoire, [1 / 3, 1 / 3])
