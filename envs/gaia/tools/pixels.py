"""Facts about pixels in words: what a model without eyes needs to count cells and to read bars.

Made for drawn pictures (few flat colours). A photograph gets its size and its commonest colours, no more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL.Image import Image

from envs.gaia.tools import lettering
from envs.gaia.tools.arrays import Codes, runs

MAX_COLOURS = 8
"""Colours that are listed."""
MAX_CELLS = 4096
MAX_ROWS_SHOWN = 40
"""Rows of a grid that are written out, where it has no more cells than ``MAX_WRITTEN``."""
MAX_WRITTEN = 400
MAX_BARS = 60
_DRAWN = 256
"""Distinct colours up to which a picture is taken to be drawn."""

_NAMED = {
    "black": 0x000000,
    "white": 0xFFFFFF,
    "gray": 0x808080,
    "silver": 0xC0C0C0,
    "red": 0xFF0000,
    "maroon": 0x800000,
    "brown": 0xA52A2A,
    "orange": 0xFFA500,
    "gold": 0xFFD700,
    "yellow": 0xFFFF00,
    "olive": 0x808000,
    "lime": 0x00FF00,
    "green": 0x008000,
    "teal": 0x008080,
    "cyan": 0x00FFFF,
    "skyblue": 0x87CEEB,
    "blue": 0x0000FF,
    "navy": 0x000080,
    "indigo": 0x4B0082,
    "purple": 0x800080,
    "violet": 0xEE82EE,
    "magenta": 0xFF00FF,
    "pink": 0xFFC0CB,
    "tan": 0xD2B48C,
}
"""CSS colours that people name."""


@dataclass(frozen=True)
class Grid:
    """A picture of equal cells, each of one colour."""

    cells: Codes
    """Colour of each cell (rows x columns)."""
    width: int
    height: int
    """Of a cell, in pixels."""


@dataclass(frozen=True)
class Bar:
    """A filled upright rectangle on the common base line; all in pixels."""

    colour: int
    left: int
    width: int
    height: int


def describe(image: Image) -> str:
    """Size, colours, and the grid or bars of an RGB image, as lines of text."""
    pixels = np.asarray(image)
    codes: Codes = pixels[:, :, 0].astype(np.uint32)
    for channel in (1, 2):  # in place: a photograph's worth of pixels is a lot to copy
        codes <<= 8
        codes |= pixels[:, :, channel]
    del pixels
    values, counts = np.unique(codes, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    name = _names([int(values[i]) for i in order[:_DRAWN]])
    listed = ", ".join(f"#{values[i]:06x} {counts[i]:,} ({name[int(values[i])]})" for i in order[:MAX_COLOURS])
    more = f" and {len(values) - MAX_COLOURS} more colours" if len(values) > MAX_COLOURS else ""
    out = [f"size: {image.width} x {image.height} px", f"colours, in pixels: {listed}{more}"]
    if len(values) > _DRAWN:
        return "\n".join([*out, "many colours: probably a photograph; no shapes are measured"])
    if lines := lettering.find_lettering(codes):
        out += [f"lettering, line by line ({len(lines)}):", *lines]
    elif (found := labelled_bars(codes)) or (found := [(bar, "") for bar in find_bars(codes)]):
        out.append(f"bars, left to right ({len(found)}):")
        for i, (bar, label) in enumerate(found, 1):
            under = f", labelled {label}" if label else ""
            out.append(f"{i}. {name[bar.colour]}: height {bar.height} px, width {bar.width} px{under}")
    elif grid := find_grid(codes):
        out += _grid_lines(grid, name)
    else:
        out += [_box(codes, int(values[i]), name) for i in order[:MAX_COLOURS]]
    return "\n".join(out)


def find_bars(codes: Codes) -> list[Bar]:
    """The bars of a simple chart, from left to right; empty where the picture is none.

    Bars are at least two filled rectangles on one base line, apart from one another, on a background that fills the
    corners. Straight lines across the whole picture (axes, grid lines) are looked through.
    """
    background = codes[0, 0]
    if any(codes[y, x] != background for y, x in ((0, -1), (-1, 0), (-1, -1))):
        return []
    ink = codes != background
    ink[(codes == codes[:, :1]).all(axis=1), :] = False
    ink[:, (codes == codes[:1, :]).all(axis=0)] = False
    bars, bottoms = [], set()
    for left, right in runs(ink.any(axis=0)):
        rows = np.flatnonzero(ink[:, left])
        top, bottom = int(rows[0]), int(rows[-1])
        block = codes[top : bottom + 1, left:right]
        shape = ink[:, left:right]
        if (block != block[0, 0]).any() or shape.sum() != block.size:
            return []
        bars.append(Bar(int(block[0, 0]), left, right - left, bottom - top + 1))
        bottoms.add(bottom)
    return bars if 2 <= len(bars) <= MAX_BARS and len(bottoms) == 1 else []


def labelled_bars(codes: Codes) -> list[tuple[Bar, str]]:
    """The bars of a chart that has lettering below them, with their labels; empty where the picture is none."""
    parts = lettering.label_strip(codes)
    bars = find_bars(parts[0]) if parts else []
    if parts is None or not bars:
        return []
    labels = lettering.labels_below(parts[1], [bar.left for bar in bars])
    return list(zip(bars, labels, strict=True)) if labels else []


def find_grid(codes: Codes) -> Grid | None:
    """The grid of cells that the picture is, with or without lines between them; None where it is none."""
    return _ruled(codes) or _tiled(codes)


def _ruled(codes: Codes) -> Grid | None:
    """Cells between straight lines of one colour."""
    row_lines = (codes == codes[:, :1]).all(axis=1)
    column_lines = (codes == codes[:1, :]).all(axis=0)
    rows, columns = runs(~row_lines), runs(~column_lines)
    if min(len(rows), len(columns)) < 2 or len(rows) * len(columns) > MAX_CELLS:
        return None
    heights, widths = {b - a for a, b in rows}, {b - a for a, b in columns}
    if max(heights) - min(heights) > 1 or max(widths) - min(widths) > 1 or min(*heights, *widths) < 3:
        return None
    cells = np.zeros((len(rows), len(columns)), np.uint32)
    for y, (top, bottom) in enumerate(rows):
        for x, (left, right) in enumerate(columns):
            values, counts = np.unique(codes[top:bottom, left:right], return_counts=True)
            if counts.max() < 0.9 * counts.sum():
                return None
            cells[y, x] = values[counts.argmax()]
    return Grid(cells, max(widths), max(heights))


def _tiled(codes: Codes) -> Grid | None:
    """Cells that touch and fill the picture: colours change at multiples of the cell's size only."""
    height, width = codes.shape
    across = np.flatnonzero((codes[:, 1:] != codes[:, :-1]).any(axis=0)) + 1
    down = np.flatnonzero((codes[1:] != codes[:-1]).any(axis=1)) + 1
    if not len(across) or not len(down):
        return None
    w, h = math.gcd(width, *map(int, across)), math.gcd(height, *map(int, down))
    if min(w, h) < 4 or (width // w) * (height // h) > MAX_CELLS:
        return None
    return Grid(codes[::h, ::w], w, h)


def _grid_lines(grid: Grid, name: dict[int, str]) -> list[str]:
    rows, columns = grid.cells.shape
    counts = Counter(int(code) for code in grid.cells.flat)
    by_colour = ", ".join(f"{name[code]} {count}" for code, count in counts.most_common())
    out = [
        f"grid: {columns} columns x {rows} rows of cells, {grid.width} x {grid.height} px each",
        f"cells by colour: {by_colour}",
    ]
    if rows <= MAX_ROWS_SHOWN and rows * columns <= MAX_WRITTEN:
        out += [f"row {y}: {' '.join(name[int(c)] for c in row)}" for y, row in enumerate(grid.cells, 1)]
    return out


def _box(codes: Codes, colour: int, name: dict[int, str]) -> str:
    rows, columns = np.nonzero(codes == colour)
    return f"{name[colour]} lies within x {columns.min()} to {columns.max()}, y {rows.min()} to {rows.max()}"


def _names(colours: Sequence[int]) -> dict[int, str]:
    """A name for each colour: a plain one where it is that colour, or the only one near it; else with its code."""
    nearest = {code: min(_NAMED, key=lambda n: _distance(code, _NAMED[n])) for code in colours}
    taken = Counter(nearest.values())
    return {
        code: name if _NAMED[name] == code or taken[name] == 1 else f"{name}-{code:06x}"
        for code, name in nearest.items()
    }


def _distance(a: int, b: int) -> int:
    return sum(((a >> shift & 255) - (b >> shift & 255)) ** 2 for shift in (0, 8, 16))
