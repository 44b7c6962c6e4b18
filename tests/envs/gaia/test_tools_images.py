"""Images: what is shown, what is measured, and pictures made to hurt."""

import io
import random
import struct
import time
import zlib

import pytest
from gaia_tools import served
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from envs.gaia import render as files
from envs.gaia.tools.base import ToolFault
from envs.gaia.tools.images import MAX_SIDE, codes_of, load
from envs.gaia.tools.lettering import find_lettering
from envs.gaia.tools.pixels import describe, find_bars, find_grid

COLOURS = {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0), "black": (0, 0, 0)}


def grid(cells, size=24, *, border=0, line="black", margin=0):
    """A picture of cells, with lines of ``border`` pixels between (and around) them."""
    rows, columns = len(cells), len(cells[0])
    step = size + border
    image = Image.new("RGB", (columns * step + border + 2 * margin, rows * step + border + 2 * margin), line)
    draw = ImageDraw.Draw(image)
    for y, row in enumerate(cells):
        for x, colour in enumerate(row):
            left, top = margin + border + x * step, margin + border + y * step
            draw.rectangle((left, top, left + size - 1, top + size - 1), fill=COLOURS[colour])
    return image


def bars(heights, *, width=30, gap=20, axis=False):
    floor = 20 + max(h for _, h in heights)
    image = Image.new("RGB", (gap + (width + gap) * len(heights), floor + 20), "white")
    draw = ImageDraw.Draw(image)
    for i, (colour, height) in enumerate(heights):
        left = gap + i * (width + gap)
        draw.rectangle((left, floor - height, left + width - 1, floor - 1), fill=COLOURS[colour])
    if axis:
        draw.line((0, floor, image.width, floor), fill="black")
    return image


def png(image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


async def test_an_image_is_shown_as_an_image(tmp_path):
    (tmp_path / "a.png").write_bytes(png(grid([["red", "blue"], ["blue", "red"]])))
    async with served(tmp_path) as session:
        result = await session("view_image", path="a.png")
    assert result.text == "a.png: 48x48"
    (shown,) = result.images
    assert Image.open(io.BytesIO(shown)).getpixel((0, 0)) == (255, 0, 0)


async def test_a_large_image_is_scaled_down(tmp_path):
    Image.new("RGB", (3000, 1500), "red").save(tmp_path / "a.png")
    async with served(tmp_path) as session:
        result = await session("view_image", path="a.png")
    assert result.text == f"a.png: 3000x1500, shown at {MAX_SIDE}x{MAX_SIDE // 2}"
    assert Image.open(io.BytesIO(result.images[0])).size == (MAX_SIDE, MAX_SIDE // 2)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_every_format_is_read(kind):
    out = io.BytesIO()
    Image.new("RGB", (8, 6), "red").save(out, kind)
    image = load(out, "x")
    assert image.size == (8, 6) and image.mode == "RGB"


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "I;16", "F"])
def test_every_mode_is_read(mode):
    image = Image.new("L", (4, 4), 255).convert("RGB").convert(mode) if mode not in ("I;16", "F", "LA") else None
    image = image or Image.new(mode, (4, 4))
    out = io.BytesIO()
    image.save(out, "JPEG" if mode == "CMYK" else "PNG") if mode != "F" else Image.new("L", (4, 4)).save(out, "PNG")
    assert load(out, "x").mode == "RGB"


def test_transparency_is_white():
    out = io.BytesIO()
    Image.new("RGBA", (2, 2), (255, 0, 0, 0)).save(out, "PNG")
    assert load(out, "x").getpixel((0, 0)) == (255, 255, 255)


async def test_facts_of_a_grid(tmp_path):
    cells = [["red", "blue", "red"], ["green", "green", "blue"]]
    (tmp_path / "a.png").write_bytes(png(grid(cells)))
    async with served(tmp_path) as session:
        assert await session.ok("describe_image", path="a.png") == (
            "size: 72 x 48 px\n"
            "colours, in pixels: #0000ff 1,152 (blue), #008000 1,152 (green), #ff0000 1,152 (red)\n"
            "grid: 3 columns x 2 rows of cells, 24 x 24 px each\n"
            "cells by colour: red 2, blue 2, green 2\n"
            "row 1: red blue red\nrow 2: green green blue"
        )


async def test_facts_of_bars(tmp_path):
    (tmp_path / "a.png").write_bytes(png(bars([("red", 120), ("blue", 34), ("red", 77)])))
    async with served(tmp_path) as session:
        text = await session.ok("describe_image", path="a.png")
    assert text.splitlines()[2:] == [
        "bars, left to right (3):",
        "1. red: height 120 px, width 30 px",
        "2. blue: height 34 px, width 30 px",
        "3. red: height 77 px, width 30 px",
    ]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cells_of_any_grid_are_counted(data):
    columns, rows = data.draw(st.integers(3, 12)), data.draw(st.integers(3, 12))
    size, border = data.draw(st.integers(6, 24)), data.draw(st.sampled_from([0, 0, 1, 2, 3]))
    rng = random.Random(data.draw(st.integers(0, 10**6)))
    names = ["red", "green", "blue", "yellow"]
    # Latin-like: every line between neighbours is crossed by a change of colour somewhere, so cells are well defined
    cells = [[names[(x + y + rng.randrange(2)) % 4] for x in range(columns)] for y in range(rows)]
    cells[0] = [names[x % 2] for x in range(columns)]
    for y in range(rows):
        cells[y][0] = names[y % 2]
    found = find_grid(codes(grid(cells, size, border=border)))
    assert found is not None
    assert (found.width, found.height) == (size, size)
    value = {name: r << 16 | g << 8 | b for name, (r, g, b) in COLOURS.items()}
    assert found.cells.tolist() == [[value[c] for c in row] for row in cells]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["red", "green", "blue"]), st.integers(1, 200)), min_size=2, max_size=10),
    st.integers(3, 30),
    st.integers(1, 25),
    st.booleans(),
)
def test_any_bars_are_measured(heights, width, gap, axis):
    found = find_bars(codes(bars(heights, width=width, gap=gap, axis=axis)))
    assert [b.height for b in found] == [h for _, h in heights]
    assert {b.width for b in found} == {width}


def codes(image):
    import numpy as np

    pixels = np.asarray(image).astype(np.uint32)
    return pixels[:, :, 0] << 16 | pixels[:, :, 1] << 8 | pixels[:, :, 2]


def test_what_is_neither_grid_nor_bars_gets_boxes():
    image = Image.new("RGB", (100, 80), "white")
    ImageDraw.Draw(image).ellipse((10, 20, 40, 50), fill="red")
    assert "red lies within x 10 to 40, y 20 to 50" in describe(image)
    assert "grid" not in describe(image) and "bars" not in describe(image)


def test_touching_or_floating_bars_are_not_called_bars():
    image = bars([("red", 50), ("blue", 70)])
    ImageDraw.Draw(image).rectangle((75, 2, 80, 8), fill="black")
    assert not find_bars(codes(image))
    assert not find_bars(codes(Image.new("RGB", (50, 50), "white")))


def test_colours_near_a_named_one_and_near_one_another():
    image = grid([["red", "blue"], ["blue", "red"]])
    image.putpixel((0, 0), (250, 5, 5))
    text = describe(image)
    assert "#fa0505 1 (red-fa0505)" in text and "(red)" in text


def test_a_photograph_is_not_measured():
    noise = Image.effect_noise((200, 200), 80)
    image = Image.merge("RGB", (noise, noise.rotate(90), noise.rotate(180)))
    text = describe(image)
    assert "photograph" in text and len(text) < 700


def test_descriptions_stay_short():
    rng = random.Random(0)
    cells = [[rng.choice(list(COLOURS)) for _ in range(60)] for _ in range(60)]
    assert len(describe(grid(cells, 6))) < 1000


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def giant_png(width: int, height: int) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100_000)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(5000, 5000), (60000, 60000), (2**31 - 1, 1), (1, 2**31 - 1)])
@pytest.mark.parametrize("tool", ["view_image", "describe_image", "read_qr"])
async def test_giant_images_are_refused_at_once(tmp_path, size, tool):
    (tmp_path / "a.png").write_bytes(giant_png(*size))
    start = time.process_time()
    async with served(tmp_path) as session:
        assert "pixels; at most" in await session.refused(tool, path="a.png")
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        b"\x89PNG\r\n\x1a\n",
        giant_png(100, 100)[:60],
        b"GIF89a",
        b"\xff\xd8\xff",
        b"<svg/>",
        b"%!PS-Adobe",
    ],
)
def test_what_is_no_image_says_so(data):
    with pytest.raises(ToolFault, match="is not a PNG|is a broken image"):
        load(io.BytesIO(data), "a.png")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 10**6))
def test_any_drawn_picture_is_described(width, height, seed):
    rng = random.Random(seed)
    image = Image.new("RGB", (width, height), rng.choice(list(COLOURS)))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.randrange(5)):
        a, b = (
            sorted((rng.randrange(width), rng.randrange(width))),
            sorted((rng.randrange(height), rng.randrange(height))),
        )
        draw.rectangle((a[0], b[0], a[1], b[1]), fill=rng.choice(list(COLOURS)))
    assert describe(image).startswith(f"size: {width} x {height} px")


def drawn(content) -> Image.Image:
    return load(io.BytesIO(files.render("a.png", content)), "a.png")


LINES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(lambda line: line.rstrip(" "))


@settings(max_examples=100, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=6).filter(any))
def test_any_lettering_is_read(lines):
    found = describe(drawn(files.Lettering(tuple(lines)))).split("\n")
    assert found[2:] == [f"lettering, line by line ({len(lines)}):", *lines]


async def test_lettering_of_the_workspace(tmp_path):
    (tmp_path / "a.png").write_bytes(files.render("a.png", files.Lettering(("Room 12, door B", "0O 1lI| .,:;'`"))))
    async with served(tmp_path) as session:
        assert (await session.ok("describe_image", path="a.png")).endswith("(2):\nRoom 12, door B\n0O 1lI| .,:;'`")


@pytest.mark.parametrize("scale", [1, 2, 3, 5])
def test_lettering_of_other_sizes_is_read(scale):
    image = drawn(files.Lettering(("Ab 7", "", "x")))
    small = image.resize((image.width // 2, image.height // 2), Image.Resampling.NEAREST)
    sized = small.resize((small.width * scale, small.height * scale), Image.Resampling.NEAREST)
    assert find_lettering(codes(sized)) == ["Ab 7", "", "x"]


def test_what_is_no_lettering_is_not_read():
    image = drawn(files.Lettering(("Ab 7",)))
    for x, y, colour in ((0, 0, "black"), (3, 3, "black"), (50, 20, "black"), (60, 21, "red")):
        spoilt = image.copy()
        spoilt.putpixel((x, y), {"black": (0, 0, 0), "red": (255, 0, 0)}[colour])
        assert "lettering" not in describe(spoilt)
    assert not find_lettering(codes(Image.new("RGB", (80, 60), "white")))
    assert not find_lettering(codes(Image.new("RGB", (80, 60), "black")))


LABELS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=10)
HEIGHTS = st.tuples(st.sampled_from(["red", "green", "blue", "black"]), st.integers(1, 150))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(HEIGHTS, LABELS | st.just("")), min_size=2, max_size=8), st.booleans())
def test_any_chart_is_measured_with_its_labels(bars, labelled):
    labels = tuple(label for _, label in bars) if labelled else ()
    heights = tuple(bar for bar, _ in bars)
    lines = describe(drawn(files.Bars(heights, labels))).splitlines()
    assert lines[2] == f"bars, left to right ({len(bars)}):"
    for i, (line, (colour, height)) in enumerate(zip(lines[3:], heights, strict=True), 1):
        label = f", labelled {labels[i - 1]}" if labels and labels[i - 1] else ""
        assert line == f"{i}. {colour}: height {height} px, width 30 px{label}"


TEXTS = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=300)


@settings(max_examples=80, deadline=None)
@given(TEXTS | st.text(st.sampled_from("0123456789"), min_size=1, max_size=300) | st.sampled_from(["A", "x" * 300]))
def test_a_code_of_any_text_is_read(text):
    assert codes_of(drawn(files.Qr(text)), "a.png") == text


async def test_codes_of_the_workspace(tmp_path):
    one, two = (drawn(files.Qr(text)) for text in ("first code", "the second"))
    both = Image.new("RGB", (one.width + two.width, max(one.height, two.height)), "white")
    both.paste(one, (0, 0)), both.paste(two, (one.width, 0))
    (tmp_path / "a.png").write_bytes(files.render("a.png", files.Qr("https://example.org/?q=1")))
    both.save(tmp_path / "both.png")
    both.rotate(90, expand=True).resize((both.height * 5, both.width * 5)).save(tmp_path / "large.png")
    (tmp_path / "none.png").write_bytes(png(grid([["red", "blue"], ["blue", "red"]])))
    (tmp_path / "b.txt").write_text("x")
    async with served(tmp_path) as session:
        assert await session.ok("read_qr", path="a.png") == "https://example.org/?q=1"
        for name in ("both.png", "large.png"):
            lines = (await session.ok("read_qr", path=name)).splitlines()
            assert [line[:3] for line in lines] == ["1. ", "2. "]
            assert {line[3:] for line in lines} == {"first code", "the second"}
        assert "no QR code can be read in 'none.png' (48x48 px)" in await session.refused("read_qr", path="none.png")
        assert "is not a PNG" in await session.refused("read_qr", path="b.txt")


def test_a_spoilt_code_is_mended_or_refused_never_misread():
    text = "The answer is 42"
    rng = random.Random(5)
    image = drawn(files.Qr(text))
    for modules in (2, 6, 20, 60, 200):
        spoilt = image.copy()
        draw = ImageDraw.Draw(spoilt)
        for _ in range(modules):
            x, y = (rng.randrange(4, image.width // 6 - 4) * 6 for _ in range(2))
            draw.rectangle((x, y, x + 5, y + 5), fill=rng.choice(["black", "white"]))
        try:
            assert codes_of(spoilt, "a.png") == text
        except ToolFault:
            assert modules > 2


@pytest.mark.parametrize("size", [(3500, 3500), (12_000_000, 1), (1, 12_000_000)])
def test_a_large_picture_without_a_code_is_searched_in_time(size):
    noise = Image.effect_noise(size, 90).convert("RGB")
    start = time.process_time()
    with pytest.raises(ToolFault, match="no QR code"):
        codes_of(noise, "a.png")
    assert time.process_time() - start < 3
