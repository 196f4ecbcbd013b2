"""Figures as SVG elements for an HTML page, with its colours and font, and with unique ids."""

from __future__ import annotations

import hashlib
import io
import re
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING

from deeprc.drawing import GRID, INK, MUTED, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["render_svg"]

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_DROPPED = {"metadata", "style", "title", "desc"}
_THEME = {
    INK: "currentColor",
    MUTED: f"var(--figure-muted, {MUTED})",
    GRID: f"var(--figure-grid, {GRID})",
    "#ffffff": "var(--figure-background, #ffffff)",
}
_COLOUR = re.compile("|".join(_THEME), re.IGNORECASE)
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FONT = re.compile(r"(?:[a-z-]+ )*(?:(?P<weight>\d+) )?(?P<size>[\d.]+px) (?P<family>.*)")
_LONG = re.compile(r"-?\d+\.\d{3,}")
_NUMBERS = {"d", "x", "y", "width", "height", "transform", "points"}  # these numbers are rounded to 0.01 points
_INCH = 72.0  # units of the SVG writer per inch


@require_matplotlib
def render_svg(figure: Figure, *, name: str, description: str) -> str:
    """Return a figure as one `<svg>` element for an HTML page; equal figures give the same text.

    The background is transparent, and black becomes the text colour of the page (`currentColor`). The CSS variables
    `--figure-muted`, `--figure-grid` and `--figure-background` set the other colours that are not data. Text is text in
    the font of the page. The figure is as wide as it was drawn, or as the page allows.

    Parameters
    ----------
    figure
        A figure of this package.
    name
        Short name, different from that of every other figure on the page. All ids begin with it (letters that an id
        cannot have become "-"), and it is the accessible name of the picture.
    description
        Description of the picture for screen readers.

    Raises
    ------
    InputError
        If matplotlib is not installed.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight", transparent=True)
    root = ElementTree.fromstring(buffer.getvalue())
    prefix = _make_id_prefix(name)
    used = _find_references(root)
    body = "".join(_serialise_element(child, prefix, used) for child in root)
    box = root.attrib["viewBox"]
    width = float(box.split()[2]) / _INCH
    title_id, description_id = f"{prefix}-title", f"{prefix}-description"
    # stroke-linejoin and -linecap replace the style sheet of the SVG writer, which would apply to the whole page
    style = f"width: 100%; max-width: {width:.2f}in; height: auto; fill: currentColor"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img"'
        f' aria-labelledby="{title_id} {description_id}" style="{style}; stroke-linejoin: round; stroke-linecap: butt">'
        f'<title id="{title_id}">{_escape_text(name)}</title>'
        f'<desc id="{description_id}">{_escape_text(description)}</desc>{body}</svg>'
    )


def _make_id_prefix(name: str) -> str:
    """Return the beginning of ids for a name; it differs even if names differ only in letters that ids cannot have."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    if plain != name or not plain[:1].isalpha():
        plain = f"{plain.strip('-')}-{hashlib.blake2b(name.encode(), digest_size=3).hexdigest()}"
    return plain if plain[:1].isalpha() else f"figure-{plain.lstrip('-')}"


def _find_references(root: ElementTree.Element) -> set[str]:
    """Return the ids to which an element refers; other ids only name parts of matplotlib."""
    used: set[str] = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            if key in (_HREF, "href"):
                used.add(value.removeprefix("#"))
            used.update(_REFERENCE.findall(value))
    return used


def _serialise_element(element: ElementTree.Element, prefix: str, used: set[str]) -> str:
    """Return an element as text, without namespaces, with new ids and the colours of the page."""
    tag = element.tag.removeprefix(_SVG)
    if tag in _DROPPED:
        return ""
    attributes = _serialise_attributes(element, prefix, used)
    content = "".join(_serialise_element(child, prefix, used) for child in element)
    inner = _escape_text((element.text or "").strip()) if tag in ("text", "tspan") else ""
    if not (content or inner or attributes) or (tag in ("g", "defs") and not content):
        return ""
    if tag == "g" and not attributes:
        return content
    start = f"<{tag}{attributes}"
    return f"{start}>{inner}{content}</{tag}>" if content or inner else f"{start}/>"


def _serialise_attributes(element: ElementTree.Element, prefix: str, used: set[str]) -> str:
    """Return the attributes of an element as text, without ids to which nothing refers, and without namespaces."""
    attributes = []
    for key, value in element.attrib.items():
        if (key == "id" and value not in used) or (key.startswith("{") and key != _HREF):
            continue
        if key == "id":
            value = f"{prefix}-{value}"
        elif key in (_HREF, "href"):
            key = "href"
            value = f"#{prefix}-{value.removeprefix('#')}" if value.startswith("#") else value
        elif key == "style":
            value = _apply_page_theme(value)
        elif key in _NUMBERS and "scale" not in value and "matrix" not in value:
            value = _LONG.sub(lambda match: f"{float(match.group()):.2f}".rstrip("0").rstrip("."), value)
        value = _REFERENCE.sub(rf"url(#{prefix}-\1)", value)
        attributes.append(f' {key}="{_escape_text(value)}"')
    return "".join(attributes)


def _apply_page_theme(style: str) -> str:
    """Replace the colours and font of a figure by those of the page; a monospaced font stays monospaced."""
    kept = []
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":  # before matplotlib 3.11: weight, size, families
            match = _FONT.fullmatch(value)
            assert match is not None
            kept.append(
                f"font-size: {match['size']}" + (f"; font-weight: {match['weight']}" if match["weight"] else "")
            )
            key, value = "font-family", match["family"]
        if key != "font-family":
            kept.append(f"{key}: {_COLOUR.sub(lambda colour: _THEME[colour.group().lower()], value)}")
        elif "mono" in value.lower().split(",")[0]:
            kept.append("font-family: monospace")
    return "; ".join(kept)


def _escape_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
