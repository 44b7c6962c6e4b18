"""How the independent solver sees and hears: tiles, bars, lettering, QR codes and tones, from pixels and samples.

It shares nothing with what draws and plays them, nor with the tools; the QR reader follows ISO/IEC 18004 for pictures
without a fault (it takes no use of the error correction), the codes are those of ITU-R M.1677-1 and ITU-T Q.23.
"""

from __future__ import annotations

import io
import itertools
import wave
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageFont

COLOURS = {
    (255, 0, 0): "red",
    (0, 128, 0): "green",
    (0, 0, 255): "blue",
    (255, 255, 0): "yellow",
    (255, 165, 0): "orange",
    (128, 0, 128): "purple",
}
WHITE, BLACK = (255, 255, 255), (0, 0, 0)


def _picture(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


# --- tiles and bars --------------------------------------------------------------------------------------------------


def tiles(data: bytes) -> Counter[str]:
    """Tiles of each colour, looking at the middle of each 24-pixel tile."""
    image = _picture(data)
    assert image.width % 24 == 0 == image.height % 24
    middles = [(x, y) for y in range(12, image.height, 24) for x in range(12, image.width, 24)]
    return Counter(COLOURS[image.getpixel(middle)] for middle in middles)


def bars(data: bytes) -> list[tuple[str, int, str]]:
    """(colour, height, label) of each bar, from left to right; the label is empty where nothing stands below."""
    image = _picture(data)
    pixels = np.asarray(image)
    coloured = np.zeros(pixels.shape[:2], bool)
    for colour in COLOURS:
        coloured |= (pixels == colour).all(axis=2)
    found: list[tuple[str, int, str]] = []
    filled = coloured.any(axis=0)
    edges = [x for x in range(1, image.width) if filled[x] and not filled[x - 1]]
    assert len(edges) > 1, "no bars"
    floor = int(np.flatnonzero(coloured[:, edges[0]])[-1]) + 1
    below = image.crop((0, floor, image.width, image.height))
    for left, right in zip(edges, [*edges[1:], image.width], strict=True):
        rows = np.flatnonzero(coloured[:, left])
        assert rows[-1] + 1 == floor and len(rows) == floor - rows[0]
        strip = below.crop((left, 0, right, below.height))
        text = letters(strip) if strip.getcolors() != [(strip.width * strip.height, WHITE)] else ""
        found.append((COLOURS[image.getpixel((left, int(rows[0])))], len(rows), text))
    return found


# --- lettering -------------------------------------------------------------------------------------------------------


@cache
def _glyphs() -> dict[bytes, str]:
    """The pixels of each printable character in Pillow's own bitmap font, six by eleven, by their bytes."""
    font = ImageFont.load_default_imagefont()
    found = {}
    for code in range(33, 127):
        mask = font.getmask(chr(code), "1")
        pixels = Image.frombytes("L", mask.size, bytes(255 if value else 0 for value in mask))
        cell = Image.new("L", (6, 11))
        cell.paste(pixels, (0, 0))
        found[cell.tobytes()] = chr(code)
    return found


def letters(image: Image.Image) -> str:
    """The one line of black text on white in a picture, whose left edge is where the first character begins."""
    (line,) = lettering(image)
    return line


def lettering(picture: bytes | Image.Image) -> list[str]:
    """The lines of black text on white, two pixels of the picture for one of the font."""
    image = picture if isinstance(picture, Image.Image) else _picture(picture)
    ink = np.asarray(image.convert("L")) < 128
    assert ink.any(), "no text"
    if not isinstance(picture, Image.Image):  # the margin, of 8 pixels of the font
        ink = ink[16:-16, 16:-16]
    small = ink[::2, ::2]
    if isinstance(picture, Image.Image):  # no margin is known above: the first row of cells that reads
        return [next(text for top in range(small.shape[0]) if (text := _line(small[top : top + 11])))]
    return [_line(small[top : top + 11]) or "" for top in range(0, small.shape[0], 15)]


def _line(ink: np.ndarray) -> str | None:
    """The characters side by side in eleven rows; None where they are not all characters."""
    if ink.shape[0] < 11:
        return None
    known, out = _glyphs(), ""
    for left in range(0, ink.shape[1] - 5, 6):
        cell = ink[:, left : left + 6]
        if not cell.any():
            out += " "
            continue
        character = known.get((cell * np.uint8(255)).tobytes())
        if character is None:
            return None
        out += character
    return out.rstrip() or None


# --- QR codes --------------------------------------------------------------------------------------------------------

_ECC_PER_BLOCK = {  # codewords of error correction in a block, by version from 1 on
    "L": (7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22),
    "M": (10, 16, 26, 18, 24, 16, 18, 22, 22, 26, 30, 22, 22, 24, 24),
    "Q": (13, 22, 18, 26, 18, 24, 18, 22, 20, 24, 28, 26, 24, 20, 30),
    "H": (17, 28, 22, 16, 22, 28, 26, 26, 24, 28, 24, 28, 22, 24, 24),
}
_BLOCKS = {
    "L": (1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6),
    "M": (1, 1, 1, 2, 2, 4, 4, 4, 5, 5, 5, 8, 9, 9, 10),
    "Q": (1, 1, 2, 2, 4, 4, 6, 6, 8, 8, 8, 10, 12, 16, 12),
    "H": (1, 1, 2, 4, 4, 4, 5, 6, 8, 8, 11, 11, 16, 16, 18),
}
_MASKS = (
    lambda y, x: (y + x) % 2 == 0,
    lambda y, x: y % 2 == 0,
    lambda y, x: x % 3 == 0,
    lambda y, x: (y + x) % 3 == 0,
    lambda y, x: (y // 2 + x // 3) % 2 == 0,
    lambda y, x: y * x % 2 + y * x % 3 == 0,
    lambda y, x: (y * x % 2 + y * x % 3) % 2 == 0,
    lambda y, x: ((y + x) % 2 + y * x % 3) % 2 == 0,
)
_ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"


def qr(data: bytes) -> str:
    """The text of a QR code of version 1 to 15, drawn without a fault."""
    modules = _modules(np.asarray(_picture(data).convert("L")) < 128)
    size = len(modules)
    version = (size - 17) // 4
    assert size == 17 + 4 * version and 1 <= version <= 15, "no QR code"
    around = [modules[8, x] for x in (0, 1, 2, 3, 4, 5, 7, 8)] + [modules[y, 8] for y in (7, 5, 4, 3, 2, 1, 0)]
    form = int("".join(str(int(bit)) for bit in around), 2) ^ 0x5412
    level, mask = "MLHQ"[form >> 13], _MASKS[form >> 10 & 7]
    free = _data_places(size, version)
    bits = [int(modules[y, x]) ^ mask(y, x) for y, x in _path(size) if free[y, x]]
    words = [int("".join(map(str, bits[i : i + 8])), 2) for i in range(0, len(bits) - 7, 8)]
    return _decoded(_in_order(words, _BLOCKS[level][version - 1], _ECC_PER_BLOCK[level][version - 1]), version)


def _modules(ink: np.ndarray) -> np.ndarray:
    """One value a module; the first row of the code begins with a run of seven dark ones."""
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    assert len(rows), "no QR code"
    code = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    run = int(np.argmin(code[0]))
    assert run % 7 == 0 and run, "no QR code"
    return code[run // 14 :: run // 7, run // 14 :: run // 7]


def _data_places(size: int, version: int) -> np.ndarray:
    free = np.ones((size, size), bool)
    free[:9, :9] = free[:9, -8:] = free[-8:, :9] = False  # finders, separators, format
    free[6, :] = free[:, 6] = False  # timing
    if version >= 7:
        free[:6, -11:-8] = free[-11:-8, :6] = False
    count = version // 7 + 2 if version > 1 else 0
    centres = [6]
    if count:
        step = (version * 4 + count * 2 + 1) // (count * 2 - 2) * 2
        centres += sorted(size - 7 - i * step for i in range(count - 1))
    last = centres[-1]
    for y, x in itertools.product(centres if count else (), repeat=2):
        if (y, x) not in ((6, 6), (6, last), (last, 6)):
            free[y - 2 : y + 3, x - 2 : x + 3] = False
    return free


def _path(size: int) -> Iterator[tuple[int, int]]:
    """Up and down in columns two modules wide, from the right; the timing column is skipped."""
    upward = True
    for right in [x for x in range(size - 1, 6, -2)] + [5, 3, 1]:
        for y in range(size - 1, -1, -1) if upward else range(size):
            yield from ((y, right), (y, right - 1))
        upward = not upward


def _in_order(words: list[int], blocks: int, ecc: int) -> list[int]:
    """The data codewords, block after block: they come one of each block at a time, the longer blocks last."""
    data = len(words) - blocks * ecc
    short, longer = divmod(data, blocks)
    parts: list[list[int]] = [[] for _ in range(blocks)]
    sizes = [short] * (blocks - longer) + [short + 1] * longer
    stream = iter(words)
    for i in range(short + 1):
        for part, length in zip(parts, sizes, strict=True):
            if i < length:
                part.append(next(stream))
    return [word for part in parts for word in part]


def _decoded(words: list[int], version: int) -> str:
    bits = "".join(f"{word:08b}" for word in words)
    at, out = 0, ""

    def take(count: int) -> int:
        nonlocal at
        at += count
        return int(bits[at - count : at], 2)

    large = version >= 10
    while len(bits) - at >= 4 and (mode := take(4)):
        if mode == 4:
            out += bytes(take(8) for _ in range(take(16 if large else 8))).decode("latin-1")
        elif mode == 2:
            count = take(11 if large else 9)
            for _ in range(count // 2):
                pair = take(11)
                out += _ALPHANUMERIC[pair // 45] + _ALPHANUMERIC[pair % 45]
            out += _ALPHANUMERIC[take(6)] if count % 2 else ""
        elif mode == 1:
            count = take(12 if large else 10)
            out += "".join(f"{take(10):03d}" for _ in range(count // 3))
            rest = count % 3
            out += f"{take((0, 4, 7)[rest]):0{rest}d}" if rest else ""
        else:
            raise ValueError(f"mode {mode} of a QR code is not read")
    return out


# --- sound -----------------------------------------------------------------------------------------------------------

_MORSE = dict(
    zip(
        ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --.. "
        "----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----. .-.-.- --..-- ..--.. -..-. -...- -....-".split(),
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,?/=-",
        strict=True,
    )
)
_KEYS = {
    (low, high): key
    for low, row in zip((697, 770, 852, 941), ("123A", "456B", "789C", "*0#D"), strict=True)
    for high, key in zip((1209, 1336, 1477, 1633), row, strict=True)
}
_PITCHES = {400: "low", 800: "middle", 1600: "high"}


def _sounds(data: bytes) -> list[tuple[bool, int, np.ndarray]]:
    """Stretches of sound and of silence: (sound, samples, the samples). A zero crossing is no silence."""
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 8000)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(float)
    loud = np.convolve(np.abs(samples), np.ones(9), "same") > 900  # of nine samples in a row, one is not quiet
    edges = [0, *(np.flatnonzero(loud[1:] != loud[:-1]) + 1), len(loud)]
    found = [(bool(loud[a]), int(b - a), samples[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
    assert any(sound for sound, _, _ in found), "silence"
    return found


def _strongest(samples: np.ndarray, frequencies: Any) -> int:
    """The frequency of those with the most energy (Goertzel's sum, written out)."""
    at = np.arange(len(samples)) / 8000
    return max(frequencies, key=lambda hertz: abs(np.sum(samples * np.exp(-2j * np.pi * hertz * at))))


def morse(data: bytes) -> str:
    """Letters and spaces. What is short is told from what is long by the shortest stretch of sound."""
    stretches = _sounds(data)[1:-1]
    dot = min(length for sound, length, _ in stretches if sound)
    pauses = [length for sound, length, _ in stretches if not sound]
    dot = min([dot, *pauses])
    out, mark = "", ""
    for sound, length, _ in stretches:
        if sound:
            mark += "." if length < 2 * dot else "-"
        elif length > 2 * dot:
            out, mark = out + _MORSE[mark] + (" " if length > 5 * dot else ""), ""
    return out + _MORSE[mark]


def dialled(data: bytes) -> str:
    """The keys of a telephone."""
    return "".join(
        _KEYS[_strongest(samples, (697, 770, 852, 941)), _strongest(samples, (1209, 1336, 1477, 1633))]
        for sound, _, samples in _sounds(data)
        if sound
    )


def tones(data: bytes) -> Counter[str]:
    """How many tones there are of each pitch."""
    return Counter(_PITCHES[_strongest(samples, _PITCHES)] for sound, _, samples in _sounds(data) if sound)
