"""Presentations."""

from __future__ import annotations

import functools
import io
from typing import Any

from envs.gaia.render.contents import Bullets, Slide, Slides
from envs.gaia.render.documents import table_rows
from envs.gaia.render.packing import WRITTEN, saved

_LAYOUT = "Title and Content"
_LEFT, _TOP, _WIDTH, _ROW = 457_200, 1_600_200, 8_229_600, 370_840
"""Where a table stands, in English metric units (914,400 an inch)."""


def pptx(content: Slides) -> bytes:
    """A presentation; paragraphs and list items stand in the body, and a table below it."""
    import pptx as library

    presentation = library.Presentation(io.BytesIO(_empty()))
    presentation.core_properties.title = content.title
    for slide in content.slides:
        _add(presentation, slide)
    return saved(presentation.save)


@functools.cache
def _empty() -> bytes:
    """The library's empty presentation with the one layout that slides here have: half the time to write."""
    import pptx as library

    presentation = library.Presentation()
    for layout in list(presentation.slide_layouts):
        if layout.name != _LAYOUT:
            presentation.slide_layouts.remove(layout)
    for relation in list(presentation.part.rels.values()):
        if relation.reltype.endswith("/printerSettings"):
            presentation.part.rels.pop(relation.rId)
    package = presentation.part.package
    for relation in list(package.iter_rels()):
        if relation.reltype.endswith("/thumbnail"):
            package.drop_rel(relation.rId)
    properties = presentation.core_properties
    properties.created = properties.modified = WRITTEN.replace(tzinfo=None)
    properties.last_modified_by = properties.title = ""
    out = io.BytesIO()
    presentation.save(out)
    return out.getvalue()


def _add(presentation: Any, slide: Slide) -> None:
    page = presentation.slides.add_slide(presentation.slide_layouts[0])
    page.shapes.title.text = slide.title
    lines: list[str] = []
    tables = []
    for block in slide.blocks:
        if isinstance(block, str):
            lines.append(block)
        elif isinstance(block, Bullets):
            lines += block.items
        else:
            tables.append(table_rows(block))
    page.placeholders[1].text = "\n".join(lines)
    top = _TOP + _ROW * len(lines)
    for rows in tables:
        shape = page.shapes.add_table(len(rows), len(rows[0]), _LEFT, top, _WIDTH, _ROW * len(rows))
        for y, row in enumerate(rows):
            for x, text in enumerate(row):
                shape.table.cell(y, x).text = text
        top += _ROW * (len(rows) + 1)
    if slide.notes:
        page.notes_slide.notes_text_frame.text = slide.notes
