"""Pictures of exact pixels: tiles, bars, lettering and QR codes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from envs.gaia import glyphs
from envs.gaia.render.contents import COLOURS, Bars, Grid, Lettering, Qr

CELL_PX = 24
"""Width and height of a grid's cell, in pixels."""
BAR_PX = 30
"""Width of a chart's bar, in pixels."""
BAR_GAP_PX = 20
"""Between two bars, and around all of them; with labels, at least."""
MODULE_PX, QUIET_MODULES = 6, 4
"""Of a QR code: pixels of a module, and modules of the white border (ISO/IEC 18004 asks for four)."""


def grid(content: Grid) -> bytes:
    """Square cells, :data:`CELL_PX` wide, without gaps or borders."""
    cells = np.array([[COLOURS[colour] for colour in row] for row in content.cells], np.uint8)
    return _png(cells.repeat(CELL_PX, 0).repeat(CELL_PX, 1))


def bars(content: Bars) -> bytes:
    """Bars on a common base line, with labels below where there are any."""
    room = max(map(len, content.labels), default=0) * glyphs.WIDTH * glyphs.LETTER_PX
    pitch = max(BAR_PX, room) + BAR_GAP_PX
    floor = BAR_GAP_PX + max(height for _, height in content.bars)
    below = 2 * glyphs.LABEL_GAP_PX + glyphs.HEIGHT * glyphs.LETTER_PX if content.labels else BAR_GAP_PX
    pixels = np.full((floor + below, BAR_GAP_PX + pitch * len(content.bars), 3), 255, np.uint8)
    for i, (colour, height) in enumerate(content.bars):
        left = BAR_GAP_PX + i * pitch
        pixels[floor - height : floor, left : left + BAR_PX] = COLOURS[colour]
        if content.labels:
            ink = _scaled(glyphs.written(content.labels[i]), glyphs.LETTER_PX)
            pixels[floor + glyphs.LABEL_GAP_PX :, left:][: ink.shape[0], : ink.shape[1]][ink] = 0
    return _png(pixels)


def lettering(content: Lettering) -> bytes:
    """Lines of text, black on white, :data:`~envs.gaia.glyphs.LETTER_PX` pixels for one of the font."""
    pitch = glyphs.HEIGHT + glyphs.LINE_GAP
    width = glyphs.WIDTH * max(map(len, content.lines))
    ink = np.zeros((pitch * len(content.lines) - glyphs.LINE_GAP, width), bool)
    for i, line in enumerate(content.lines):
        shape = glyphs.written(line)
        ink[i * pitch : i * pitch + glyphs.HEIGHT, : shape.shape[1]] = shape
    return _black(_scaled(np.pad(ink, glyphs.MARGIN), glyphs.LETTER_PX))


def qr(content: Qr) -> bytes:
    """A QR code of error correction level M."""
    import segno

    code = segno.make_qr(content.text, error="m", boost_error=False)
    ink = np.array([list(row) for row in code.matrix], bool)
    return _black(_scaled(np.pad(ink, QUIET_MODULES), MODULE_PX))


def _scaled(ink: glyphs.Ink, times: int) -> glyphs.Ink:
    return ink.repeat(times, 0).repeat(times, 1)


def _black(ink: glyphs.Ink) -> bytes:
    return _png(np.where(ink, 0, 255).astype(np.uint8)[:, :, None].repeat(3, 2))


def _png(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """A PNG of red, green and blue (height x width x 3)."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()
