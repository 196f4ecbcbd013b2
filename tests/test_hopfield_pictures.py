"""docs/hopfield.md: its code prints what it says, its numbers are those of a run, and what it states is so."""

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from click.testing import CliRunner

pytestmark = pytest.mark.long

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "hopfield.md").read_text(encoding="utf-8")
PROSE = " ".join(re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL).split())
SAVED = json.loads((DOCS / "pictures" / "figures.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute as the script does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def pictures() -> Iterator[ModuleType]:
    """Import the script, which needs matplotlib only to draw."""
    sys.path.insert(0, str(DOCS))
    try:
        import hopfield_pictures

        yield hopfield_pictures
    finally:
        sys.path.remove(str(DOCS))
        for name in ("hopfield_pictures", "hopfield_examples"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def parts(pictures: ModuleType) -> dict[str, Any]:
    """Compute everything once; takes about two minutes."""
    return {name: compute() for name, (_, compute, _) in pictures.PARTS.items()}


def assert_same(found: Any, saved: Any, where: str) -> None:
    """Compare numbers wherever they are; six digits are saved, and the last ones may differ between processors."""
    if isinstance(saved, dict):
        assert found.keys() == saved.keys(), where
        for name in saved:
            assert_same(found[name], saved[name], f"{where}.{name}")
    elif isinstance(saved, list):
        assert len(found) == len(saved), where
        for number, pair in enumerate(zip(found, saved, strict=True)):
            assert_same(*pair, f"{where}.{number}")
    elif isinstance(saved, float):
        assert found == pytest.approx(saved, rel=1e-4, abs=1e-12), where
    else:
        assert found == saved, where


def test_a_run_gives_the_saved_numbers(parts: dict[str, Any]) -> None:
    assert_same({name: part.numbers for name, part in parts.items()}, SAVED, "figures.json")


def test_the_page_has_the_saved_numbers(pictures: ModuleType) -> None:
    for name in pictures.TABLES:
        assert f"<!-- table: {name} -->\n\n{pictures.table(name, SAVED)}\n\n" in PAGE, name
    assert PAGE.count("<!-- table: ") == len(pictures.TABLES)
    (seen_from, seen_to), (proven_from, proven_to) = (
        SAVED["fixed_points"][name] for name in ("clusters_seen", "clusters_proven")
    )
    assert f"from β = {seen_from:.1f} to {seen_to:.0f}, and proven from {proven_from:.0f} to {proven_to:.0f}" in PROSE
    assert f"In {SAVED['pooling']['found']:.0%} of the new positive bags the witness (red)" in PROSE
    assert f"they end in {SAVED['retrieval']['rows'][2]['fixed_points']} fixed points" in PROSE
    assert f"A half erased digit is {SAVED['retrieval']['rows'][0]['before']:.1f} away" in PROSE


def test_the_code_prints_what_stands_under_it() -> None:
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, flags=re.DOTALL)
    assert len(blocks) == PAGE.count("```python") > 8
    names: dict[str, Any] = {}
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(DOCS / "hopfield.md"), "exec"), names)
        assert printed.getvalue() == expected, code


def test_the_energy_never_rises_and_keeps_its_bounds(parts: dict[str, Any]) -> None:
    for curve in parts["energy"].data["curves"].values():
        assert (curve.diff(dim=0) < 1e-9).all()
        assert (curve >= 0).all()
        assert (curve <= parts["energy"].numbers["bound"]).all()
    large, small = parts["energy"].data["curves"].values()
    assert ((large[1] < 2).sum(), (large[3] < 2).sum()) == (4, 5)  # all but the grey picture at once
    assert len({round(energy, 3) for energy in small[-1].tolist()}) > 2


def test_corrupted_patterns_come_back_at_large_beta_only(parts: dict[str, Any]) -> None:
    erased, noisy, failing = parts["retrieval"].numbers["rows"]
    for row in (erased, noisy):
        assert row["before"] > 5
        assert row["once"] < 1e-3
        assert row["at_rest"] < 1e-9
        assert row["own_once"] == row["own"] == row["fixed_points"] == 24
    assert failing["at_rest"] > failing["once"] > 1
    assert failing["own"] < failing["own_once"]
    final = parts["retrieval"].data["blocks"][2][4]
    assert torch.cdist(final[[1, 2, 4, 6]], final[[1, 2, 4, 6]]).max() < 1e-3


def test_errors_are_below_the_bound(parts: dict[str, Any]) -> None:
    numbers, diameter = parts["bound"].numbers, parts["bound"].data["diameter"]
    for distance, observed, bound in zip(*(numbers[n] for n in ("distances", "observed", "bounds")), strict=True):
        assert observed <= bound
        if distance <= 0.1:
            assert bound < 1e-4
        if distance >= 0.5:
            assert bound > diameter
        if distance <= 4:
            assert observed < 0.1


def test_the_three_kinds_of_fixed_points(parts: dict[str, Any]) -> None:
    together, clusters, single = parts["fixed_points"].numbers["rows"]
    assert [row["fixed_points"] for row in (together, clusters, single)] == [1, 3, 12]
    assert (together["smallest_k"], together["largest_k"]) == (11, 11)
    assert (clusters["smallest_k"], clusters["largest_k"]) == (3, 5)
    assert (single["smallest_k"], single["largest_k"]) == (1, 1)
    assert together["global_proven"] == 1
    assert clusters["clusters_proven"] == 3
    assert single["patterns_proven"] == 12
    medians = parts["fixed_points"].data["curve"].median(dim=1).values
    assert (medians.diff() <= 0).all()
    for _, path, rest in parts["fixed_points"].data["fields"]:  # wherever they start, they come to these points
        assert torch.cdist(path[-1], rest).amin(dim=1).max() < 0.05


def test_more_is_stored_than_is_proven(parts: dict[str, Any]) -> None:
    numbers = parts["capacity"].numbers
    assert [round(row["c"], 4) for row in numbers["rows"][:2]] == [3.1546, 1.3719]
    assert all(row["stored_of_1000"] == 1 for row in numbers["rows"])
    halves = {}
    for d, curve in numbers["curves"].items():
        assert all(proven <= observed for observed, proven in curve)
        halves[d] = [sum(share > 0.5 for share in shares) for shares in zip(*curve, strict=True)]
    for smaller, larger in (("16", "24"), ("24", "32")):  # each size is twice the one before
        assert halves[larger][1] >= halves[smaller][1] + 2


def test_the_witness_is_found(parts: dict[str, Any]) -> None:
    assert parts["pooling"].numbers["found"] > 0.9
    assert parts["pooling"].numbers["accuracy"] > 0.9


def test_classifiers_have_the_accuracies_that_the_page_states(parts: dict[str, Any]) -> None:
    rows = {row["method"]: row for row in parts["classifier"].numbers["rows"]}
    assert all(len(own) == 15 for scores in parts["classifier"].data["scores"].values() for own in scores.values())
    svm, distance = rows["SVM, RBF kernel"], rows["HopfieldLayer, distance"]
    for data in ("wine", "breast cancer"):
        means = {method: row[data][0] for method, row in rows.items()}
        assert means["SVM, RBF kernel"] == max(means.values())
        best = max(mean for method, mean in means.items() if method.startswith("HopfieldLayer"))
        assert best > svm[data][0] - svm[data][1]
        assert distance[data][0] >= means["1 nearest neighbour"]
        for learned in ("targets", "projection"):
            assert 0 < means[f"HopfieldLayer, learned {learned}"] - distance[data][0] < 0.025
    assert round(rows["HopfieldLayer, learned projection"]["wine"][0], 3) == round(svm["wine"][0], 3)
    assert rows["HopfieldLayer, normalised inputs"]["breast cancer"][0] < distance["breast cancer"][0] - 0.05
    gains = [rows["HopfieldLayer, learned prototypes"][d][0] - distance[d][0] for d in ("wine", "breast cancer")]
    assert [round(gain, 2) for gain in gains] == [-0.01, 0.01]


def test_heads_of_all_four_classes(parts: dict[str, Any]) -> None:
    assert [row["operating_class"] for row in parts["heads"].numbers["rows"]] == ["I", "II", "III", "IV"]


def test_pictures_are_the_same_each_time(pictures: ModuleType, parts: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, (suffix, _, draw) in pictures.PARTS.items():
        drawings = [tmp_path / f"{name}-{number}.{suffix}" for number in (1, 2)]
        for drawing in drawings:
            pictures.write_part(draw, parts[name], drawing)
        assert drawings[0].read_bytes() == drawings[1].read_bytes()


def test_the_page_shows_every_picture(pictures: ModuleType) -> None:
    names = {f"{name}.{suffix}" for name, (suffix, _, _) in pictures.PARTS.items()}
    assert set(re.findall(r"!\[[^]]+\]\(pictures/([^)]+)\)", PAGE)) == names
    assert {path.name for path in (DOCS / "pictures").iterdir()} == names | {"figures.json"}
    assert sum(path.stat().st_size for path in (DOCS / "pictures").iterdir()) < 500_000


def test_without_matplotlib_the_script_says_so(pictures: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(pictures.main)
    assert result.exit_code == 2
    assert result.output == "Error: the pictures need matplotlib: pip install 'deeprc[plots]'\n"
