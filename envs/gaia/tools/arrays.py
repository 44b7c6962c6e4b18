"""Small things about arrays that readers of pictures and of sound share."""

from __future__ import annotations

from typing import Any

import numpy as np

Codes = np.ndarray[Any, np.dtype[np.uint32]]
"""Colours as 0xRRGGBB, one per pixel (height x width)."""
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def runs(flags: Flags) -> list[tuple[int, int]]:
    """Stretches of True as (first, one past the last)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
