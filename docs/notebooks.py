# SPDX-License-Identifier: Apache-2.0
"""Bring the notebooks of examples/ into the documentation, whichever are there."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path

_ORDER = ("logistic", "hierarchies", "pmf", "lda")


def collect(source: Path, docs: Path) -> None:
    """Copy notebooks to ``docs/examples`` and make a card with a picture for each.

    The picture is that of the cell tagged ``gallery``, or else the first one of the notebook; the
    text is the title and the first paragraph. Files are written only where they change, so that a
    second build has nothing to do.
    """
    pages, pictures = docs / "examples", docs / "gallery"
    pages.mkdir(exist_ok=True)
    found = sorted(source.glob("*.ipynb"), key=_rank)
    for stale in set(pages.glob("*.ipynb")) - {pages / notebook.name for notebook in found}:
        stale.unlink()
    cards = []
    for notebook in found:
        page = pages / notebook.name
        if not page.exists() or page.read_bytes() != notebook.read_bytes():
            shutil.copyfile(notebook, page)
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        title, summary = _opening(cells, notebook.stem)
        picture = _picture(cells)
        if picture is not None:
            _write(pictures / f"{notebook.stem}.png", picture)
        cards.append(_card(title, summary, f"examples/{notebook.name}", picture and notebook.stem))
    _write(pictures / "cards.md", "\n".join(cards).encode())


def _rank(notebook: Path) -> tuple[int, str]:
    stem = notebook.stem
    return (_ORDER.index(stem) if stem in _ORDER else len(_ORDER), stem)


def _opening(cells: list[dict], stem: str) -> tuple[str, str]:
    """Title and first paragraph of the notebook's first text cell."""
    text = next(("".join(c["source"]) for c in cells if c["cell_type"] == "markdown"), "")
    title = re.search(r"^# +(.+)$", text, flags=re.MULTILINE)
    paragraphs = [p for p in re.split(r"\n\s*\n", text) if p.strip() and not p.startswith("#")]
    return (title.group(1).strip() if title else stem), (paragraphs[0] if paragraphs else "")


def _picture(cells: list[dict]) -> bytes | None:
    tagged = [c for c in cells if "gallery" in c.get("metadata", {}).get("tags", [])]
    for cell in (*tagged, *cells):
        for output in cell.get("outputs", []):
            image = output.get("data", {}).get("image/png")
            if image:
                return base64.b64decode("".join(image))
    return None


def _card(title: str, summary: str, page: str, picture: str | None) -> str:
    lines = [f"## [{title}]({page})", "", summary, ""]
    if picture:
        lines += [f"[![{title}](gallery/{picture}.png)]({page})", ""]
    return "\n".join(lines)


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    if not file.exists() or file.read_bytes() != content:
        file.write_bytes(content)
