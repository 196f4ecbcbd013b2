"""Configuration of Sphinx, which makes the documentation site from this folder: `sphinx-build -W docs site`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.util.inspect import TypeAliasForwardRef

from deeprc.versions import package_version

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))
from notebook_pages import notebook_to_markdown  # noqa: E402 (a module beside this file)

project = "deeprc"
author = project_copyright = "the deeprc authors"
release = package_version("deeprc")
html_title = f"deeprc {release}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}  # notebooks become Markdown in `_adapt_links`
exclude_patterns = ["experiments.md"]  # a log for developers of deeprc, with links into the code
smartquotes = False  # otherwise the two hyphens of --option become a dash
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_theme = "furo"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#175e86", "color-brand-content": "#175e86"},
    "dark_css_variables": {"color-brand-primary": "#7cc4ee", "color-brand-content": "#7cc4ee"},
}
pygments_dark_style = "github-dark"
copybutton_prompt_text = "$ "

myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]

napoleon_google_docstring = False
napoleon_preprocess_types = False
napoleon_attr_annotations = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_type_aliases = {"ArrayLike": "numpy.typing.ArrayLike"}  # otherwise all the types that it stands for
TypeAliasForwardRef.__repr__ = lambda self: self.name  # type: ignore[method-assign]  # Sphinx 9.0 shows the class in a union
# `sphinx-build -n` warns of a type without a link. Left out are types of deeprc that no page describes. autodoc does
# not know the module of those that are imported for mypy only.
nitpick_ignore_regex = [("py:class", r"deeprc\..*|Dynamics|HopfieldOptions|Normalisation|Values")]

# The types of other packages are links. Each inventory lists those that occur here, so that the site is built offline.
intersphinx_mapping = {
    name: (url, f"inventories/{name}.inv")
    for name, url in {
        "python": "https://docs.python.org/3/",
        "numpy": "https://numpy.org/doc/stable/",
        "pandas": "https://pandas.pydata.org/docs/",
        "sklearn": "https://scikit-learn.org/stable/",
        "torch": "https://docs.pytorch.org/docs/stable/",
    }.items()
}

_PAGES = {"../README.md": "index.md", "../SECURITY.md": "security.md", "../CHANGELOG.md": "changelog.md"}
_COPIES = {"security": "SECURITY.md", "changelog": "CHANGELOG.md"}
_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


def _to_site(match: re.Match[str]) -> str:
    """Return a link out of this folder as a link to a page of the site, or as text if the site has no such page."""
    text, target, anchor = match[1], match[2], match[3] or ""
    if target in _PAGES:
        return f"[{text}]({_PAGES[target]}{anchor})"
    return f"{text} (`{target.removeprefix('../')}`)" if "`" not in text else text


def _adapt_links(app: Any, page: str, source: list[str]) -> None:
    """Change the links of a page out of this folder, which are right in the repository, but not on the site.

    A notebook is converted to Markdown, and pages that stand for a file of the repository get its text.
    """
    if page in _COPIES:
        source[0] = (ROOT / _COPIES[page]).read_text(encoding="utf-8").replace("](docs/", "](")
    if app.env.doc2path(page, base=False).suffix == ".ipynb":
        source[0] = notebook_to_markdown(source[0])
        return
    source[0] = _LINK.sub(_to_site, source[0]).replace("](experiments.md", "](about-experiments.md")


def _show_code(*arguments: Any) -> None:
    """Replace `x` in a docstring by ``x``, because in reStructuredText the first is a reference and the second code."""
    lines: list[str] = arguments[-1]
    for i, line in enumerate(lines):
        lines[i] = re.sub(r"(?<!`)`([^`\n]+)`(?!`|_)", r"``\1``", line)


_RESULT = "result"  # stands for a type until napoleon is done


def _mark_descriptions(*arguments: Any) -> None:
    """Keep napoleon from taking a description for a type: types are annotations in deeprc, not parts of docstrings."""
    what: str = arguments[1]
    lines: list[str] = arguments[-1]
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # a comment; otherwise what precedes a colon in the first line is the type
    for start, line in enumerate(lines):
        if line == "Returns" and lines[start + 1].startswith("---"):
            heads = (i for i in range(start + 3, len(lines)) if lines[i].startswith("---"))
            end = next(heads, len(lines) + 1) - 1
            if not any(each.startswith(" ") for each in lines[start + 2 : end]):  # scikit-learn's have a type
                lines[start + 2 : end] = [_RESULT, *(f"    {each}" for each in lines[start + 2 : end])]
            return


def _remove_marks(*arguments: Any) -> None:
    """Remove what `_mark_descriptions` has put in the place of a type."""
    lines: list[str] = arguments[-1]
    lines[:] = [line for line in lines if line != f":rtype: {_RESULT}"]


def _show_addresses(*arguments: Any) -> None:
    """Show the address of a scheduler in an option's help as code; it would become a link that leads nowhere."""
    lines: list[str] = arguments[-1]
    for i, line in enumerate(lines):
        lines[i] = re.sub(r"tcp://[\w:]+\w", r"``\g<0>``", line)


def setup(app: Any) -> None:
    """Connect the functions of this file to Sphinx."""
    app.connect("sphinx-click-process-options", _show_addresses)
    app.connect("source-read", _adapt_links)
    app.connect("autodoc-process-docstring", _show_code, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", _mark_descriptions, priority=100)
    app.connect("autodoc-process-docstring", _remove_marks, priority=900)
