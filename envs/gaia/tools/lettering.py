"""Lettering in drawn pictures, read pixel by pixel: lines of text, and the labels under a chart's bars.

Reads what is drawn in the one bitmap font of :mod:`envs.gaia.glyphs`; it is no recognition of other fonts.
"""

from __future__ import annotations

from collections.abc import Sequence

from envs.gaia import glyphs
from envs.gaia.tools.arrays import Codes

MAX_SCALE = 8
"""Pixels of the picture for one of the font, at most."""


def find_lettering(codes: Codes) -> list[str]:
    """The lines of a picture that is nothing but black lettering; empty where it is not."""
    paper = codes[0, 0]
    ink = codes == 0
    if paper == 0 or not ((codes == paper) | ink).all() or not ink.any():
        return []
    for scale in range(MAX_SCALE, 0, -1):
        if (small := _shrunk(ink, scale)) is not None and (lines := _lines(small)):
            return lines
    return []


def labels_below(codes: Codes, lefts: Sequence[int]) -> list[str]:
    """The label under each bar of a chart: black text that begins where the bar does.

    Args:
        codes: the strip of the picture that :func:`label_strip` gives.
        lefts: the left edge of each bar, in pixels.

    Returns:
        As many labels, an empty one where there is none; nothing at all where something is no lettering.
    """
    small = _shrunk(codes == 0, glyphs.LETTER_PX, lefts[0] % glyphs.LETTER_PX)
    if small is None:
        return []
    labels = []
    first = lefts[0] // glyphs.LETTER_PX
    for left, right in zip(lefts, [*lefts[1:], codes.shape[1]], strict=True):
        start = left // glyphs.LETTER_PX
        room = (right - left) // glyphs.LETTER_PX // glyphs.WIDTH * glyphs.WIDTH
        text = glyphs.read(small[:, start : start + room]) if start >= first else None
        if text is None:
            return []
        labels.append(text)
    return labels


def label_strip(codes: Codes) -> tuple[Codes, Codes] | None:
    """A chart and the strip of its labels; None where the picture has no room for both, or no paper between them."""
    height = glyphs.HEIGHT * glyphs.LETTER_PX
    end = codes.shape[0] - glyphs.LABEL_GAP_PX
    top = end - height
    if top - glyphs.LABEL_GAP_PX < 1:
        return None
    gaps = (codes[end:], codes[top - glyphs.LABEL_GAP_PX : top])
    if any((gap != codes[0, 0]).any() for gap in gaps) or not (codes[top:end] == 0).any():
        return None
    return codes[:top], codes[top:end]


def _lines(ink: glyphs.Ink) -> list[str]:
    """The lines of lettering, one pixel of the font for one of ``ink``; empty where the layout is another."""
    pitch = glyphs.HEIGHT + glyphs.LINE_GAP
    body = ink[glyphs.MARGIN : -glyphs.MARGIN, glyphs.MARGIN : -glyphs.MARGIN]
    height, width = body.shape
    if min(height, width) < 1 or width % glyphs.WIDTH or (height + glyphs.LINE_GAP) % pitch:
        return []
    if body.sum() != ink.sum():  # something stands in the margin
        return []
    lines = []
    for top in range(0, height, pitch):
        text = glyphs.read(body[top : top + glyphs.HEIGHT])
        if text is None or body[top + glyphs.HEIGHT : top + pitch].any():
            return []
        lines.append(text)
    return lines


def _shrunk(ink: glyphs.Ink, scale: int, offset: int = 0) -> glyphs.Ink | None:
    """One pixel for each block of ``scale`` by ``scale``; None where blocks are not of one colour."""
    ink = ink[:, offset:]
    height, width = (length // scale * scale for length in ink.shape)
    if min(height, width) < 1 or ink[height:].any() or ink[:, width:].any():
        return None
    blocks = ink[:height, :width]
    small = blocks[::scale, ::scale]
    return small if (small.repeat(scale, 0).repeat(scale, 1) == blocks).all() else None
