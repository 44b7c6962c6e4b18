"""Facts about pixels in words: what a model without eyes needs to count cells and read bars."""

from __future__ import annotations

import numpy as np
from PIL.Image import Image


def describe(image: Image) -> str:
    """Size and colours of an RGB image."""
    pixels = np.asarray(image)
    flat = pixels.reshape(-1, 3).astype(np.uint32)
    codes, counts = np.unique(flat[:, 0] << 16 | flat[:, 1] << 8 | flat[:, 2], return_counts=True)
    order = np.argsort(-counts.astype(np.int64), kind="stable")[:8]
    colours = ", ".join(f"#{codes[i]:06x} {counts[i]:,}" for i in order)
    return f"size: {image.width}x{image.height}\ncolours (pixels): {colours}"
