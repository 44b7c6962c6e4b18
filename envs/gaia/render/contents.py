"""What files say, as data: frozen dataclasses that :func:`envs.gaia.render.render` turns into bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from envs.gaia import signals

Cell = str | int | float

COLOURS: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "red": (255, 0, 0),
        "green": (0, 128, 0),
        "blue": (0, 0, 255),
        "yellow": (255, 255, 0),
        "orange": (255, 165, 0),
        "purple": (128, 0, 128),
        "black": (0, 0, 0),
        "white": (255, 255, 255),
    }
)
"""The colours that pictures use, by their CSS names and values."""
MAX_QR = 300
"""Characters of a QR code's text."""


# --- tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sheet:
    """One table: a header and rows of as many cells.

    The extras are for workbooks only: other files cannot hold them, and refuse to.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    hidden_rows: tuple[int, ...] = ()
    """Indexes into ``rows``."""
    hidden_columns: tuple[str, ...] = ()
    """Labels of the header."""
    merged: tuple[str, ...] = ()
    """Labels of columns; in each, equal cells that follow one another are written as one merged cell."""
    formulas: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Label -> formula such as ``"=B{row}*C{row}"``, for every row of that column. The cell of ``rows`` is the value
    that the file holds beside the formula, as a spreadsheet program leaves it there."""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.header) for row in self.rows):
            raise ValueError(f"every row of a sheet has {len(self.header)} cells, like its header")
        for row in self.hidden_rows:
            if not 0 <= row < len(self.rows):
                raise ValueError(f"hidden row {row} of a sheet whose rows run from 0 to {len(self.rows) - 1}")
        for label in (*self.hidden_columns, *self.merged, *self.formulas):
            if label not in self.header:
                raise ValueError(f"the sheet has no column {label!r}; it has {', '.join(self.header)}")
        if both := set(self.merged) & set(self.formulas):
            raise ValueError(f"merged cells hold no formulas: {', '.join(sorted(both))}")

    @property
    def plain(self) -> bool:
        """It has none of the extras."""
        return not (self.hidden_rows or self.hidden_columns or self.merged or self.formulas)


@dataclass(frozen=True)
class Book:
    """A workbook: named sheets in order."""

    sheets: tuple[tuple[str, Sheet], ...]
    hidden: tuple[str, ...] = ()
    """Names of sheets that are hidden; at least one stays visible."""

    def __post_init__(self) -> None:
        names = [name for name, _ in self.sheets]
        if unknown := set(self.hidden) - set(names):
            raise ValueError(f"the workbook has no sheet {min(unknown)!r} to hide; it has {', '.join(names)}")
        if set(names) == set(self.hidden):
            raise ValueError("a workbook needs a sheet that is visible")


@dataclass(frozen=True)
class Database:
    """An SQLite database: named tables in order. A column whose cells are all of one type has that type."""

    tables: tuple[tuple[str, Sheet], ...]


# --- documents -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bullets:
    """A list in a document."""

    items: tuple[str, ...]


Block = str | Bullets | Sheet
"""A paragraph, a list or a table."""


@dataclass(frozen=True)
class Doc:
    """A document: a title, then paragraphs (str), lists and tables."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Slide:
    """One slide; the notes are what its speaker sees."""

    title: str
    blocks: tuple[Block, ...]
    notes: str = ""


@dataclass(frozen=True)
class Slides:
    """A presentation: its title, which stands in the file's properties and not on a slide, and its slides in order."""

    title: str
    slides: tuple[Slide, ...]


@dataclass(frozen=True)
class Mail:
    """A mail with its attachments, which are (name, content)."""

    sender: str
    """Such as ``Mira Torandov <mira@example.org>``."""
    to: tuple[str, ...]
    subject: str
    date: str
    """ISO date, or date and time: ``2021-03-04T09:30``. In UTC."""
    body: tuple[Block, ...]
    attachments: tuple[tuple[str, Content], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.to, str):
            object.__setattr__(self, "to", (self.to,))
        for text in (self.sender, self.subject, self.date, *self.to):
            if "\n" in text or "\r" in text:
                raise ValueError(f"a mail's header is one line, got {text!r}")


@dataclass(frozen=True)
class Data:
    """A JSON value."""

    value: Any


@dataclass(frozen=True)
class Lines:
    """JSON values, one a line."""

    values: Sequence[Any]


@dataclass(frozen=True)
class Text:
    """A text file as it is."""

    text: str


# --- pictures ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """A picture of coloured square cells, without gaps or borders. Rows of colour names."""

    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Bars:
    """A bar chart on white: (colour, height in pixels), from left to right, with a label under each where given."""

    bars: tuple[tuple[str, int], ...]
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.labels and len(self.labels) != len(self.bars):
            raise ValueError(f"{len(self.bars)} bars have as many labels or none, got {len(self.labels)}")
        for label in self.labels:
            _check_lettering(label)


@dataclass(frozen=True)
class Lettering:
    """Lines of printable ASCII text, drawn black on white in one fixed bitmap font."""

    lines: tuple[str, ...]

    def __post_init__(self) -> None:
        if not any(self.lines):
            raise ValueError("lettering needs a line with text")
        for line in self.lines:
            _check_lettering(line)


@dataclass(frozen=True)
class Qr:
    """A QR code of ASCII text, at most :data:`MAX_QR` characters."""

    text: str

    def __post_init__(self) -> None:
        if not (self.text.isascii() and 1 <= len(self.text) <= MAX_QR):
            raise ValueError(f"a QR code holds 1 to {MAX_QR} characters of ASCII text, got {len(self.text)}")


def _check_lettering(line: str) -> None:
    if not re.fullmatch(r"[ -~]*", line) or line != line.rstrip(" "):
        raise ValueError(f"lettering is printable ASCII text without spaces at a line's end, got {line!r}")


# --- sound -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Morse:
    """Text in Morse code: letters, digits, some marks, and single spaces between words."""

    text: str
    wpm: int = 20
    """Words a minute (of ``PARIS``), 10 to 25: within these bounds a lone dot is shorter than any dash."""

    def __post_init__(self) -> None:
        words = self.text.upper().split(" ")
        if not all(words) or set(self.text.upper()) - set(signals.MORSE) - {" "}:
            known = "".join(signals.MORSE)
            raise ValueError(f"Morse text is words of {known}, single spaces between them; got {self.text!r}")
        if not signals.SLOWEST_WPM <= self.wpm <= signals.FASTEST_WPM:
            raise ValueError(f"wpm is {signals.SLOWEST_WPM} to {signals.FASTEST_WPM}, got {self.wpm}")


@dataclass(frozen=True)
class Dtmf:
    """Digits as a telephone's keys sound: ``0-9``, ``A-D``, ``*`` and ``#``."""

    digits: str

    def __post_init__(self) -> None:
        if not self.digits or set(self.digits) - set(signals.DTMF):
            raise ValueError(f"DTMF digits are of {''.join(signals.DTMF)}, got {self.digits!r}")


@dataclass(frozen=True)
class Beeps:
    """Tones to be counted: groups of (pitch, count), such as ``(("high", 5), ("low", 3))``, a longer pause between."""

    notes: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        for pitch, count in self.notes:
            if pitch not in signals.PITCHES or count < 1:
                raise ValueError(f"a group is one of {tuple(signals.PITCHES)} and a count from 1, got {(pitch, count)}")
        if not self.notes:
            raise ValueError("counted tones need a group")


# --- archives ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Archive:
    """A zip archive: (name, content) in order, nested as deep as wanted."""

    members: tuple[tuple[str, Content], ...]


Content = (
    Sheet
    | Book
    | Database
    | Doc
    | Slides
    | Mail
    | Data
    | Lines
    | Text
    | Grid
    | Bars
    | Lettering
    | Qr
    | Morse
    | Dtmf
    | Beeps
    | Archive
)
