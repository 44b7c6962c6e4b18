"""Carriers: they put a given value into one medium, and give it back as a term that only reading the medium finds out.

A carrier carries a number, a code, a word, a name or a date (the phrase says which): a QR code, Morse code, telephone
tones, lettering, a program's output, a spreadsheet's cell, a sentence in a document, a mail or a slide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aworld_gym.types import PlanStep
from envs.gaia.programs import Sequence
from envs.gaia.render import Book, Content, Dtmf, Lettering, Morse, Qr, Sheet, Text
from envs.gaia.sources_documents import KINDS, random_code, stating
from envs.gaia.terms import Box, Draft, Term, require

Put = Callable[[Draft, str, str, "Box | None"], Term]


@dataclass(frozen=True)
class Carrier:
    """One medium."""

    name: str
    tool: str
    """The kind of tool that reads it (a value of :data:`envs.gaia.levels.TOOL_KINDS`)."""
    holds: Callable[[str, str], bool]
    """Whether it can carry a value: ``holds(what, text)``; ``what`` is number, code, word, name or date."""
    put: Put
    """Makes the term: ``put(draft, what, text, box)``."""


def carry(draft: Draft, carrier: str, what: str, value: str | int, box: Box | None = None) -> Term:
    """``value`` in the medium of that name.

    Args:
        draft: the draft.
        carrier: a key of :data:`CARRIERS`.
        what: number, code, word, name or date.
        value: what is carried; an int where it is a number.
        box: what the file is put into.

    Raises:
        Reject: the medium cannot carry it.
    """
    chosen = CARRIERS[carrier]
    require(chosen.holds(what, str(value)), f"{carrier} cannot carry {value!r}")
    term = chosen.put(draft, what, str(value), box)
    return Term(term.kind, value, term.phrase, term.steps, term.needs)


def carriers(what: str, value: str | int, *, tools: frozenset[str] | None = None) -> tuple[str, ...]:
    """The names of the carriers that can carry a value, in a fixed order.

    Args:
        what: number, code, word, name or date.
        value: what is to be carried.
        tools: kinds of tools to choose among; all where None.
    """
    found = (one for one in CARRIERS.values() if one.holds(what, str(value)))
    return tuple(one.name for one in found if tools is None or one.tool in tools)


def what_of(value: str | int) -> str:
    """What a value of a column is carried as: a number, a word or a name."""
    return "number" if isinstance(value, int) else "name" if " " in value or value[:1].isupper() else "word"


# --- media ---------------------------------------------------------------------------------------------------------


def _file(production: str, tool: str, stems: tuple[str, ...], ending: str, content: Callable[[str], Content]) -> Put:
    """A medium that is one file, which one call shows."""

    def put(draft: Draft, what: str, value: str, box: Box | None) -> Term:
        file = draft.put(f"{draft.pick(stems)}_{draft.rng.randrange(10, 100)}.{ending}", content(value), box)
        phrase = draft.phrase(production, what=what, file=file.ref)
        steps = (*file.before, PlanStep(tool, {"path": file.path}, (value,)))
        return Term(KINDS[what], value, phrase, steps, file.needs)

    return put


def _printed(draft: Draft, what: str, value: str, box: Box | None) -> Term:
    """A program that picks the value from a list, by a sequence that has to be run."""
    sequence = Sequence(draft)
    table = draft.table()
    if what == "name":
        others = [row["name"] for row in draft.some(table.rows, draft.rng.randrange(7, 14)) if row["name"] != value]
    else:
        others = [random_code(draft) for _ in range(draft.rng.randrange(7, 14))]
    place = sum(sequence.values()) % (len(others) + 1)
    listed = "".join(f"    {text!r},\n" for text in (*others[:place], value, *others[place:]))
    source = f"names = [\n{listed}]\n\n\n{sequence.source}    kept.append(x)\nprint(names[sum(kept) % len(names)])\n"
    file = draft.put(f"{draft.pick(PROGRAMS)}_{draft.rng.randrange(10, 100)}.py", Text(source), box)
    phrase = draft.phrase("printed", what=what, file=file.ref)
    steps = (*file.before, PlanStep("run_python", {"path": file.path}, (value,)))
    return Term(KINDS[what], value, phrase, steps, file.needs)


def _cell(draft: Draft, what: str, value: str, box: Box | None) -> Term:
    """A cell of a sheet of values of one kind."""
    columns, count = "ABCDEF"[: draft.rng.randrange(3, 6)], draft.rng.randrange(6, 14)
    made = [[_like(draft, what, value) for _ in columns] for _ in range(count)]
    x, y = draft.rng.randrange(len(columns)), draft.rng.randrange(count)
    made[y][x] = value
    header = tuple(draft.some(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"), len(columns)))
    rows = tuple(tuple(int(v) if what == "number" else v for v in row) for row in made)
    sheets = draft.some(("Alpha", "Beta", "Gamma", "Delta"), 2)
    spare = Sheet(header, tuple(tuple(draft.some(row, len(row))) for row in rows[: count // 2]))
    pair = draft.some(((sheets[0], Sheet(header, rows)), (sheets[1], spare)), 2)
    file = draft.put(
        f"{draft.pick(('grid', 'plan', 'board'))}_{draft.rng.randrange(10, 100)}.xlsx", Book(tuple(pair)), box
    )
    cell = f"{columns[x]}{y + 2}"  # the header is the first row
    phrase = draft.phrase("spreadsheet_cell", what=what, cell=cell, sheet=sheets[0], file=file.ref)
    step = PlanStep("read_table", {"path": file.path, "sheet": sheets[0]}, (value,))
    return Term(KINDS[what], value, phrase, (*file.before, step), file.needs)


def _like(draft: Draft, what: str, value: str) -> str:
    if what == "number":
        return str(draft.rng.randrange(max(2, int(value) // 3), 3 * int(value) + 20))
    if what == "name":
        return str(draft.pick(draft.table().rows)["name"])
    return random_code(draft)


def _said(ending: str, *, notes: bool = False) -> Put:
    def put(draft: Draft, what: str, value: str, box: Box | None) -> Term:
        return stating(draft, what, value, ending, box, notes=notes)

    return put


def _any(what: str, value: str) -> bool:
    return len(value) <= 60


def _morse(what: str, value: str) -> bool:
    """Lower case is lost in Morse code, and words of a name run together."""
    return bool(re.fullmatch(r"[A-Z0-9-]{1,16}", value))


def _digits(what: str, value: str) -> bool:
    return what in ("number", "code") and bool(re.fullmatch(r"[0-9]{2,12}", value))


def _listed(what: str, value: str) -> bool:
    return what in ("name", "code")


def _tabled(what: str, value: str) -> bool:
    return what in ("name", "code", "number")


PROGRAMS = ("program", "sequence", "generator", "counter", "script")
_IMAGES = ("picture", "photo", "label", "sign")

CARRIERS: Mapping[str, Carrier] = MappingProxyType(
    {
        one.name: one
        for one in (
            Carrier("qr", "image", _any, _file("qr", "read_qr", ("code", "ticket", "sticker", "scan"), "png", Qr)),
            Carrier(
                "morse",
                "audio",
                _morse,
                _file("morse", "decode_audio", ("telegram", "radio", "wireless", "recording"), "wav", Morse),
            ),
            Carrier(
                "dialled",
                "audio",
                _digits,
                _file("dialled", "decode_audio", ("call", "phone", "keypad", "recording"), "wav", Dtmf),
            ),
            Carrier(
                "lettered",
                "image",
                _any,
                _file("lettered", "describe_image", _IMAGES, "png", lambda value: Lettering((value,))),
            ),
            Carrier("printed", "code", _listed, _printed),
            Carrier("spreadsheet_cell", "table", _tabled, _cell),
            Carrier("stated", "document", _any, _said("")),
            Carrier("mailed", "document", _any, _said("eml")),
            Carrier("slide", "document", _any, _said("pptx")),
            Carrier("noted", "document", _any, _said("pptx", notes=True)),
        )
    }
)
"""All carriers by name."""
