"""Links among the Markdown files of the repository lead to files and headings that exist.

`sphinx-build -W` finds the broken links of the site. README, CONTRIBUTING and others are no pages of it. The site also
links types of other packages, and it describes all public names.
"""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

import deeprc

ROOT = Path(__file__).parents[1]
PAGES = sorted(page for folder in (".", "docs", "benchmarks", "packaging") for page in (ROOT / folder).glob("*.md"))


def broken_links(page: Path) -> list[str]:
    text = without_code(page.read_text(encoding="utf-8"))
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]
    return [link for link in links if not leads_somewhere(page, link)]


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings as GitHub and myst-parser make them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken_links(page) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# The `first` step: files\n\n```sh\n# no heading\n```\n")
    page = tmp_path / "page.md"
    good = "[a](other.md) [b](other.md#the-first-step-files) [c](https://example.org/#x) [d](#here)"
    page.write_text(f"# Here\n\n{good}\n[e](none.md) [f](other.md#no-heading) [g](#there)\n")
    assert broken_links(page) == ["none.md", "other.md#no-heading", "#there"]


def test_step_by_step_list_names_functions_of_their_files() -> None:
    """Each line of the list in architecture.md has a function or a class, its file, and what it does."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## One training, step by step")[1].split("\n## ")[0]
    steps = re.findall(r"^ {4,}(\w+)(?:\.(\w+))?(?:\(\.\.\.\))? +(\w+(?:/\w+)*\.py)", section, re.MULTILINE)
    assert len(steps) > 10
    for name, method, path in steps:
        file = ROOT / ("." if path.startswith("datasets/") else "deeprc") / path
        code = file.read_text(encoding="utf-8")
        assert re.search(rf"^(def|class) {name}\b", code, re.MULTILINE), (name, path)
        assert not method or re.search(rf"^    def {method}\b", code, re.MULTILINE), (method, path)


@pytest.mark.parametrize("inventory", sorted((ROOT / "docs" / "inventories").iterdir()), ids=lambda path: path.stem)
def test_types_of_other_packages_exist_and_are_linked(inventory: Path) -> None:
    first, *_ = lines = inventory.read_text().splitlines()
    assert first == "# Sphinx inventory version 1"
    names = [line.split()[0] for line in lines[3:]]
    assert names == sorted(names)
    assert all(pkgutil.resolve_name(name) for name in names)
    assert f'"{inventory.stem}": "https://' in (ROOT / "docs" / "conf.py").read_text()


def test_the_page_of_the_python_interface_describes_every_public_name() -> None:
    described = re.findall(r"^\.\. auto\w+:: deeprc\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert set(described) == set(deeprc.__all__) - {"__version__"}


def test_every_experiment_is_listed_under_a_topic() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    index = text.partition("## By topic")[2].partition("\n## ")[0]
    entries = {anchor for anchor in anchors(ROOT / "docs" / "experiments.md") if re.match(r"\d{4}-\d\d-\d\d", anchor)}
    assert len(entries) > 90
    assert set(re.findall(r"\(#([^)]+)\)", index)) == entries
