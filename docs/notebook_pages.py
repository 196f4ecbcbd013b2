"""Conversion of notebooks to pages of the site: cells and stored outputs in Markdown, without running anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

__all__ = ["notebook_to_markdown"]

_FENCE = "`" * 12  # longer than any fence in an output


def notebook_to_markdown(text: str) -> str:
    """Return the text of a notebook as Markdown, with its code and stored outputs."""
    parts: list[str] = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(_fenced("python", source))
            parts += [part for output in cell["outputs"] for part in _outputs(output)]
    return "\n\n".join(parts) + "\n"


def _outputs(output: Mapping[str, Any]) -> Iterator[str]:
    """Yield the richest form of an output that the site can show."""
    data = output.get("data", {})
    if "text/html" in data:
        html = "".join(data["text/html"])
        yield _fenced("{raw} html", f'<div class="notebook-output">{html}</div>')
    elif "image/png" in data:
        picture = "".join(data["image/png"]).strip()
        yield _fenced("{raw} html", f'<img alt="{escape(_plain(data))}" src="data:image/png;base64,{picture}"/>')
    else:
        yield _fenced("text", "".join(output.get("text", "")) or _plain(data))


def _plain(data: Mapping[str, Any]) -> str:
    return "".join(data.get("text/plain", ""))


def _fenced(kind: str, content: str) -> str:
    return f"{_FENCE}{kind}\n{content}\n{_FENCE}"
