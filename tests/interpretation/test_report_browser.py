"""A report in a browser: it opens from the disk without a network, sorts, filters, prints, and can be used by all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.report import write_report
from deeprc.runs.run import Run

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

sync_api = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("the browser test needs chromium", allow_module_level=True)

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TABLE = "#sequences-1"
Page = Any


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def path(trained: Run, motif_cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("browser") / "report.html"
    write_report(trained, motif_cohort, target, top=40)
    return target


class Opened:
    """The report in a window, with everything that went wrong there."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 800}, **settings)
        self.context.set_offline(True)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda message: self._hear(message))
        self.page.on("request", lambda request: self._ask(request.url))
        self.page.goto(path.as_uri())

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _ask(self, url: str) -> None:
        if not url.startswith("file:"):
            self.problems.append(f"asked for {url}")


@pytest.fixture
def opened(browser: Any, path: Path) -> Iterator[Opened]:
    window = Opened(browser, path)
    yield window
    assert window.problems == []
    window.context.close()


@pytest.fixture
def page(opened: Opened) -> Page:
    return opened.page


def values(page: Page, column: int) -> list[str]:
    """Return what a column of the table of sequences shows, in the rows that are visible."""
    found: list[str] = page.eval_on_selector_all(
        f"{TABLE} tbody tr", f"rows => rows.filter(r => r.offsetHeight).map(r => r.cells[{column}].textContent)"
    )
    return found


def sorts(page: Page) -> list[str | None]:
    found: list[str | None] = page.eval_on_selector_all(
        f"{TABLE} thead th", "cells => cells.map(c => c.getAttribute('aria-sort'))"
    )
    return found


def heading(page: Page, name: str) -> int:
    """Return the place of the column with this heading."""
    names = page.eval_on_selector_all(f"{TABLE} thead th", "cells => cells.map(c => c.textContent)")
    return int(names.index(name))


def test_sorts_by_pointer_and_keyboard(page: Page) -> None:
    contribution = heading(page, "Contribution")
    assert sorts(page)[contribution] == "descending"
    numbers = [float(value) for value in values(page, contribution)]
    assert numbers == sorted(numbers, reverse=True)
    button = page.locator(f"{TABLE} thead button", has_text="Contribution")
    button.click()
    assert sorts(page)[contribution] == "ascending"
    assert [float(value) for value in values(page, contribution)] == sorted(numbers)

    first = heading(page, "Sequence")
    page.locator(f"{TABLE} thead button").first.focus()
    page.keyboard.press("Enter")
    assert [place for place, order in enumerate(sorts(page)) if order] == [first]
    assert sorts(page)[first] == "ascending"
    sequences = values(page, first)
    assert sequences == sorted(sequences)
    assert len(sequences) == 40
    page.keyboard.press("Space")
    assert sorts(page)[first] == "descending"
    assert values(page, first) == sorted(sequences, reverse=True)
    assert "sorted by Sequence, descending" in page.inner_text(f"{TABLE} [role=status]")

    page.keyboard.press("Tab")  # the next heading
    page.keyboard.press("Enter")
    assert sorts(page)[contribution] == "descending"


def test_numbers_sort_as_numbers_and_missing_values_last(page: Page) -> None:
    count = heading(page, "Count")
    button = page.locator(f"{TABLE} thead button", has_text="Count")
    button.click()
    numbers = [int(value.replace(",", "")) for value in values(page, count)]
    assert numbers == sorted(numbers, reverse=True)
    page.evaluate(f"delete document.querySelector('{TABLE} tbody tr').cells[{count}].dataset.value")
    for _ in range(2):
        button.click()
        assert (
            page.evaluate(f"document.querySelector('{TABLE} tbody tr:last-child').cells[{count}].dataset.value") is None
        )


def test_the_search_box_keeps_the_rows_that_match(page: Page) -> None:
    search = page.get_by_label("Search sequences, genes, repertoires").first
    status = page.locator(f"{TABLE} [role=status]")
    assert status.inner_text() == "40 rows"
    with_motif = [value for value in values(page, 0) if "WWHW" in value]
    search.fill("wwhw")
    assert values(page, 0) == with_motif
    assert status.inner_text() == ("40 rows" if len(with_motif) == 40 else f"{len(with_motif)} of 40 rows")
    search.fill("")
    gene, repertoire = heading(page, "V gene"), heading(page, "Repertoire")
    both = list(zip(values(page, gene), values(page, repertoire), strict=True))
    one = both[0]
    search.fill(f"{one[1].upper()}  {one[0]}")  # each word, in any column
    expected = [pair for pair in both if one[1] in pair[1] and one[0] in pair[0]]
    assert list(zip(values(page, gene), values(page, repertoire), strict=True)) == expected
    search.fill("no such thing")
    assert values(page, 0) == []
    assert status.inner_text() == "0 of 40 rows"
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open], .raw)").count() == 0
    page.emulate_media(media="print")
    assert len(values(page, 0)) == 40  # in print, nothing is missing
    assert not search.is_visible()
    assert page.evaluate(f"document.querySelector('{TABLE} .scroll').scrollHeight") <= page.evaluate(
        f"document.querySelector('{TABLE} .scroll').clientHeight"
    )
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_saves_the_whole_table(page: Page) -> None:
    with page.expect_download() as download:
        page.locator(f"{TABLE} a.download").click()
    assert download.value.suggested_filename == "sequences-1-case.tsv"
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 41
    assert lines[0].split("\t")[:3] == ["repertoire_id", "sequence_id", "junction_aa"]


def test_every_figure_is_drawn(page: Page) -> None:
    sizes = page.eval_on_selector_all(
        "figure svg",
        """pictures => pictures.map(svg => {
            const box = svg.getBoundingClientRect(), ink = svg.getBBox();
            return [box.width, box.height, ink.width, ink.height, svg.querySelectorAll("path, use, text").length];
        })""",
    )
    assert len(sizes) >= 9
    for width, height, ink_width, ink_height, parts in sizes:
        assert min(width, height) > 40
        assert min(ink_width, ink_height) > 30
        assert parts > 5
    missing = page.evaluate(
        """() => {
            const ids = Array.from(document.querySelectorAll("[id]"), (e) => e.id);
            const known = new Set(ids);
            const wanted = Array.from(document.querySelectorAll("use"), (e) => e.getAttribute("href").slice(1));
            for (const e of document.querySelectorAll("[aria-labelledby]"))
                wanted.push(...e.getAttribute("aria-labelledby").split(" "));
            for (const e of document.querySelectorAll("a[href^='#']")) wanted.push(e.getAttribute("href").slice(1));
            return [ids.filter((id, i) => ids.indexOf(id) !== i), wanted.filter((id) => !known.has(id))];
        }"""
    )
    assert missing == [[], []]


def test_names_roles_and_order(page: Page) -> None:
    """What a checker of accessibility asks for: names, landmarks, headings in order, a way to reach what scrolls."""
    assert page.evaluate("document.documentElement.lang") == "en"
    for landmark in ("header", "nav[aria-label]", "main", "footer"):
        assert page.locator(landmark).count() == 1
    levels = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for picture in page.locator("figure svg").all():
        assert picture.get_attribute("role") == "img"
        assert picture.locator("desc").count() == 1
    for region in page.locator(".scroll").all():
        assert region.get_attribute("tabindex") == "0"
        assert region.get_attribute("role") == "region"
    for table in page.locator("table").all():
        assert table.locator("caption").count() == 1
        assert table.locator("thead th:not([scope=col])").count() == 0
        assert table.locator("tbody tr > :first-child:not(th[scope=row])").count() == 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const parse = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return Array.from(canvas.getImageData(0, 0, 1, 1).data);
    };
    const luminance = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (element) => {
        for (let e = element; e; e = e.parentElement) {
            const colour = parse(getComputedStyle(e).backgroundColor);
            if (colour[3] === 255) return colour;
        }
        return [255, 255, 255, 255];
    };
    const found = [];
    const kinds = "p, li, dt, dd, a, th, td, button, caption, figcaption, summary, span, b, code, h1, h2, h3, strong";
    const all = document.querySelectorAll(kinds);
    for (const element of all) {
        const own = Array.from(element.childNodes).some((n) => n.nodeType === 3 && n.data.trim());
        if (!own || !element.getClientRects().length) continue;
        const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(ground(element))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) found.push([element.outerHTML.slice(0, 80), contrast]);
    }
    return [all.length, found];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_light_and_dark_mode(browser: Any, path: Path, scheme: str) -> None:
    opened = Opened(browser, path, color_scheme=scheme)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    shade = opened.page.evaluate(ground + ".match(/[0-9]+/g).map(Number)")
    assert (max(shade) < 60) if scheme == "dark" else (min(shade) > 230)
    n, poor = opened.page.evaluate(CONTRAST)
    assert n > 200
    assert poor == []
    opened.page.emulate_media(media="print")
    assert opened.page.evaluate(ground) == "rgb(255, 255, 255)"  # also of a dark page
    assert opened.problems == []
    opened.context.close()


def test_the_motif_table_is_whole_or_scrolls(opened: Opened) -> None:
    sizes = {}
    for width in (1400, 1000, 390):
        opened.page.set_viewport_size({"width": width, "height": 800})
        box = "e => [e.clientWidth, e.scrollWidth, getComputedStyle(e).overflowX]"
        sizes[width] = opened.page.eval_on_selector("#motifs-1 .scroll", box)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert sizes[1400][0] >= sizes[1400][1]
    assert all(overflow == "auto" for _, _, overflow in sizes.values())


@pytest.mark.parametrize("width", [1280, 400])
def test_fits_the_window(opened: Opened, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_reads_without_the_script(browser: Any, path: Path) -> None:
    opened = Opened(browser, path, java_script_enabled=False)
    assert opened.page.locator(f"{TABLE} tbody tr").count() == 40
    assert opened.page.locator(f"{TABLE} thead button").count() == 0
    assert not opened.page.locator(f"{TABLE} .search").is_visible()
    opened.context.close()
