"""What the pages are made of: cells, coloured sequences, and the file."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.errors import InputError
from deeprc.evaluation.comparison import MethodInfo
from deeprc.interpretation.report.page import (
    Cell,
    check_report_output,
    make_interval_cell,
    make_number_cell,
    make_p_cell,
    render,
)
from deeprc.interpretation.report.page_figures import make_curves_figures
from deeprc.interpretation.report.sequences import shade_residues


def test_residues_are_shaded_by_their_share_of_the_strongest() -> None:
    html = shade_residues("CAWF", np.array([1.0, -0.5, 0.2, 0.1, np.nan]))
    assert html == (
        '<span class="residues"><span class="f3" title="+1">C</span><span class="a2" title="-0.5">A</span>'
        '<span class="f1" title="+0.2">W</span><span title="+0.1">F</span></span>'
    )
    assert shade_residues("CF", np.zeros(2)).count("class=") == 1
    assert shade_residues("<>", None) == '<span class="residues">&lt;&gt;</span>'


def test_missing_numbers_are_dashes() -> None:
    assert make_number_cell(float("nan")) == Cell("\N{EN DASH}", None)
    assert make_number_cell(-0.5, ".1f") == Cell("\N{MINUS SIGN}0.5", -0.5)


def test_intervals_are_sorted_by_their_lower_limit() -> None:
    assert make_interval_cell((-0.25, 0.75)) == Cell("\N{MINUS SIGN}0.250 to 0.750", -0.25)
    assert make_interval_cell([1234.5, 2000.0], ",.3g") == Cell("1.23e+03 to 2e+03", 1234.5)
    assert make_interval_cell(None) == make_interval_cell((float("nan"), float("nan"))) == make_number_cell(None)


def test_small_p_values_show_their_power_of_ten() -> None:
    found = [make_p_cell(p_value) for p_value in (0.5, 0.02, 0.001, 3.2e-7, 0.0)]
    assert [cell.text for cell in found] == ["0.50", "0.020", "0.001", "3e\N{MINUS SIGN}07", "<0.001"]
    assert [cell.value for cell in found] == [0.5, 0.02, 0.001, 3.2e-7, 0.0]
    assert make_p_cell(float("nan")) == make_number_cell(None)


def test_only_reports_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text('<html><head><meta name="generator" content="deeprc 2.0"></head></html>')
    check_report_output(tmp_path / "report.html")
    check_report_output(tmp_path / "new.html")
    (tmp_path / "mine.html").write_text("<html></html>")
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe\x00")
    for name in ("mine.html", "data.bin"):
        with pytest.raises(InputError, match="exists and is not a report of deeprc; choose another `output`"):
            check_report_output(tmp_path / name)
    with pytest.raises(InputError, match="browsers do not open packed files"):
        check_report_output(tmp_path / "new.html.gz")
    with pytest.raises(InputError, match="is a folder"):
        check_report_output(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        check_report_output(tmp_path / "no" / "report.html")


def test_undefined_names_are_errors() -> None:
    with pytest.raises(Exception, match="undefined"):
        render("report.html.j2", title="x")


def test_only_predictions_without_curves_have_no_picture() -> None:
    pytest.importorskip("matplotlib")
    alike = pd.DataFrame({"method": "no curve", "fold": 0, "repertoire_id": ["a", "b"], "label": [1, 1]})
    alike = alike.assign(score=[0.0, 1.0], probability=0.5)
    assert make_curves_figures(alike, [MethodInfo("no curve", "A")]) == []
    with pytest.raises(InputError, match="these methods are not in the list: no curve"):
        make_curves_figures(alike, [MethodInfo("b", "B")])
