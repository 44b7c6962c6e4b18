"""The bitmap font of lettering in pictures: which pixels make which character.

It is the font that Pillow has inside (six by eleven pixels, every character alike wide), so that neither drawing
nor reading depends on fonts of the machine. Shared by :mod:`envs.gaia.render` and the tools that read pictures.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

WIDTH, HEIGHT = 6, 11
"""Pixels of a character."""
LETTER_PX = 2
"""Pixels of a picture, across and down, for one of the font."""
LINE_GAP, MARGIN = 4, 8
"""Between lines of lettering, and around them, in pixels of the font."""
LABEL_GAP_PX = 20
"""Between a chart's base line and its labels, and below them, in pixels of the picture."""
CHARACTERS = "".join(map(chr, range(32, 127)))
"""Printable ASCII."""

Ink = np.ndarray[Any, np.dtype[np.bool_]]
"""True where a picture is inked (height x width)."""


@functools.cache
def shapes() -> Mapping[str, Ink]:
    """The pixels of each character, :data:`HEIGHT` x :data:`WIDTH`."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default_imagefont()
    drawn = {}
    for character in CHARACTERS:
        image = Image.new("1", (WIDTH, HEIGHT))
        ImageDraw.Draw(image).text((0, 0), character, fill=1, font=font)
        drawn[character] = np.asarray(image, bool)
    return MappingProxyType(drawn)


@functools.cache
def characters() -> Mapping[bytes, str]:
    """What :func:`key` gives for each character -> the character."""
    return MappingProxyType({key(shape): character for character, shape in shapes().items()})


def key(cell: Ink) -> bytes:
    """A character's pixels as something to look up."""
    return np.packbits(cell).tobytes()


def written(text: str) -> Ink:
    """One line of text, :data:`HEIGHT` x (:data:`WIDTH` times its length)."""
    known = shapes()
    return np.concatenate([np.zeros((HEIGHT, 0), bool), *(known[character] for character in text)], axis=1)


def read(ink: Ink) -> str | None:
    """The text of one line of character cells, spaces at its end left out; None where a cell is no character."""
    known = characters()
    cells = [known.get(key(ink[:, left : left + WIDTH])) for left in range(0, ink.shape[1], WIDTH)]
    return None if None in cells else "".join(filter(None, cells)).rstrip(" ")
