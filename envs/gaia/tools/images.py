"""``view_image``, ``describe_image`` and ``read_qr``: an image for models that see, facts for those that do not."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Annotated, BinaryIO

from pydantic import Field

from envs.gaia.tools.base import ImageBlock, Reply, ToolContext, ToolDef, ToolFault, clip, quoted

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 12_500_000
"""Pixels of an image: those of a camera's photograph, which take some 300 MB to count."""
MAX_SIDE = 1024
"""Pixels of the longer side of an image that is shown; larger ones are scaled down."""
MAX_QR_SIDE = 2000
"""Pixels of the longer side of an image that is searched for QR codes; larger ones are scaled down."""
MAX_QR_CODES, MAX_QR_TEXT = 20, 4300
"""Codes that are read, and characters of each; the largest code has 4,296."""
MAX_QR_RESULT = 8000
"""Characters of several codes together."""
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")


def tools(context: ToolContext) -> list[ToolDef]:
    """The image tools."""

    def view_image(path: Annotated[str, Field(description="png, jpg, gif, bmp or webp.")]) -> Reply:
        with context.workspace.open(path) as file:
            image = load(file, path)
        size = f"{image.width}x{image.height}"
        if max(image.size) > MAX_SIDE:
            image.thumbnail((MAX_SIDE, MAX_SIDE))
            size += f", shown at {image.width}x{image.height}"
        out = io.BytesIO()
        image.save(out, "PNG")
        return [f"{path}: {size}", ImageBlock(out.getvalue())]

    def describe_image(path: str) -> str:
        from envs.gaia.tools.pixels import describe  # numpy and Pillow only where an image is looked at

        with context.workspace.open(path) as file:
            return describe(load(file, path))

    def read_qr(path: str) -> str:
        with context.workspace.open(path) as file:
            return codes_of(load(file, path), path)

    return [
        ToolDef(view_image, "Look at an image."),
        ToolDef(
            describe_image,
            "Pixel facts of an image as text: size, colours with counts, cells of a colour grid, heights and labels "
            "of bars, plain lettering.",
        ),
        ToolDef(read_qr, "Read the text of the QR codes in an image."),
    ]


def codes_of(image: Image, path: str) -> str:
    """The text of the QR code in an RGB image; of several, each on a line of its own after its number.

    Raises:
        ToolFault: there is none that can be read.
    """
    import zxingcpp

    size = f"{image.width}x{image.height}"
    if max(image.size) > MAX_QR_SIDE:
        image = image.copy()
        image.thumbnail((MAX_QR_SIDE, MAX_QR_SIDE))
    found = zxingcpp.read_barcodes(
        image.convert("L"), formats=zxingcpp.BarcodeFormat.QRCode, text_mode=zxingcpp.TextMode.Plain
    )
    texts = [clip(one.text, MAX_QR_TEXT) for one in found if one.valid][:MAX_QR_CODES]
    if not texts:
        raise ToolFault(f"no QR code can be read in {quoted(path)} ({size} px)")
    if len(texts) == 1:
        return texts[0]
    return clip("\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)), MAX_QR_RESULT)


def load(file: BinaryIO, path: str) -> Image:
    """The image in ``file`` as RGB, transparent parts on white.

    Raises:
        ToolFault: no image, broken, or too many pixels.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        image: Image.Image = _opened(file)
        if image.width * image.height > MAX_PIXELS:
            raise ToolFault(f"{quoted(path)} has {image.width}x{image.height} pixels; at most {MAX_PIXELS:,} are taken")
        image.load()
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return image if image.mode == "RGB" else image.convert("RGB")
    except ToolFault:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):  # of a frame that is larger than its image
        raise ToolFault(f"{quoted(path)} has too many pixels; at most {MAX_PIXELS:,} are taken") from None
    except UnidentifiedImageError:
        raise ToolFault(f"{quoted(path)} is not a {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]} image") from None
    except Exception as error:  # Pillow raises nearly anything for a broken file; its texts may name descriptors
        raise ToolFault(f"{quoted(path)} is a broken image ({type(error).__name__})") from None


def _opened(file: BinaryIO) -> Image:
    """As ``Image.open``, which would warn of many pixels; our own bound comes next, and is lower.

    A warning cannot be silenced for one call: Python's filters of warnings are the whole process's, and
    ``warnings.catch_warnings`` in several threads at once leaves them changed for good.

    Raises:
        UnidentifiedImageError: it is none of the formats.
    """
    from PIL import Image, UnidentifiedImageError

    Image.preinit()
    file.seek(0)
    start = file.read(16)
    for name in _FORMATS:
        if name not in Image.OPEN:
            Image.init()
        make, accepts = Image.OPEN[name]
        if accepts is not None and accepts(start) is True:
            file.seek(0)
            try:
                return make(file, "")
            except (SyntaxError, IndexError, TypeError, struct.error) as error:
                raise UnidentifiedImageError from error
    raise UnidentifiedImageError
