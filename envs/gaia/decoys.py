"""Files that a task does not need: another version of one that it does need, and files about something else.

A decoy looks like its original and says something else: names, dates, numbers and codes in it are replaced by others
of their kind. The prompt lists decoys among the attachments like any file; since the question names the file that
counts, nothing depends on them.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from envs.gaia.ledgers import draw_records
from envs.gaia.render import Bullets, Content, Data, Doc, Grid
from envs.gaia.sources import EVENTS, letter
from envs.gaia.terms import Box, Draft
from envs.gaia.world import World, world

_MARKS = ("old", "copy", "draft", "v1", "v2", "backup", "b", "new")
_LEFT_ALONE = frozenset({"date", "header", "hidden", "hidden_columns", "hidden_rows", "merged", "sender", "to", "wpm"})
"""Fields of contents that say how something is written, or whose form is checked."""
_PARTS = frozenset({"attachments", "members", "sheets", "tables"})
"""Fields that hold (name, content) pairs, whose names stay."""
_LONGEST_NAME = 6
"""Words of the longest name of an entity that is looked for in prose."""


def look_alike(draft: Draft, name: str) -> str:
    """Attach a file whose name is close to that of the attached file ``name``, with other facts in the same form.

    Where nothing in that file can be changed, an unrelated one is attached.
    """
    stem, _, ending = name.rpartition(".")
    names = [f"{stem}_{mark}" for mark in _MARKS]
    match = re.fullmatch(r"(.*?)(\d+)", stem)
    if match and draft.rng.random() < 0.6:  # another year, another number
        names = [
            f"{match[1]}{int(match[2]) + shift:0{len(match[2])}d}" for shift in (-2, -1, 1, 2) if int(match[2]) > 2
        ]
    free = [other for other in (f"{one}.{ending}" for one in names) if other not in draft.files]
    content = altered(draft, draft.files[name])
    if content == draft.files[name]:  # such as a picture of a word that is no name
        return unrelated(draft)
    return draft.attach(draft.pick(free), content)


def unrelated(draft: Draft, box: Box | None = None) -> str:
    """Attach a file that has nothing to do with the question, or put it into a box; gives its path."""
    number = draft.rng.randrange(10, 100)
    kind = draft.rng.randrange(4)
    if kind == 0:
        records = draw_records(draft, draft.rng.randrange(6, 14))
        return draft.put(f"{records.stem(draft)}.{draft.pick(('csv', 'tsv'))}", records.sheet(), box).path
    table = draft.table()
    names = [row["name"] for row in draft.some(table.rows, 5)]
    if kind == 1:
        year = draft.rng.randrange(2005, 2024)
        date = datetime.date(year, 1, 1) + datetime.timedelta(days=draft.rng.randrange(365))
        sent = letter(draft, names[0], draft.pick(EVENTS), date.isoformat())
        return draft.put(f"{draft.pick(('correspondence', 'reply', 'memo'))}_{number}.txt", sent.doc, box).path
    if kind == 2:
        blocks = (f"These {table.plural} have paid their dues:", Bullets(tuple(names)))
        return draft.put(f"{draft.pick(('dues', 'members', 'contacts'))}_{number}.md", Doc("Dues", blocks), box).path
    value = {"newsletter": number, "readers": [{"name": name, "copies": draft.rng.randrange(1, 40)} for name in names]}
    return draft.put(f"{draft.pick(('newsletter', 'mailing', 'subscribers'))}_{number}.json", Data(value), box).path


def altered(draft: Draft, content: Content) -> Content:
    """A content of the same form with other names, dates, numbers and codes, as far as it has some."""
    changed: Content = _altered(draft, content, {})
    return changed


def _altered(draft: Draft, value: Any, swaps: dict[str, str]) -> Any:
    """``swaps`` keeps what has been replaced by what, so that one name stays one name within a file."""
    if isinstance(value, Grid):
        colours = sorted({cell for row in value.cells for cell in row})
        found = Grid(tuple(tuple(draft.pick(colours) for _ in row) for row in value.cells))
        if found == value and len(colours) > 1:  # a small one may be drawn again by chance
            (first, *others), *rows = found.cells
            return Grid(((draft.pick([colour for colour in colours if colour != first]), *others), *rows))
        return found
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            old = getattr(value, field.name)
            if field.name in _PARTS:
                changes[field.name] = tuple((name, _altered(draft, part, swaps)) for name, part in old)
            elif field.name == "formulas":  # what they give would no longer be what stands beside them
                changes[field.name] = {}
            elif field.name not in _LEFT_ALONE:
                changes[field.name] = _altered(draft, old, swaps)
        return dataclasses.replace(value, **changes)
    if isinstance(value, tuple | list):
        return type(value)(_altered(draft, item, swaps) for item in value)
    if isinstance(value, Mapping):
        return {key: _altered(draft, item, swaps) for key, item in value.items()}
    if isinstance(value, str):
        return _altered_text(draft, value, swaps)
    if isinstance(value, int) and not isinstance(value, bool):
        return _other(draft, value, max(1, abs(value) // 2), abs(value) + abs(value) // 2 + 3)
    return value


def _other(draft: Draft, value: int, low: int, high: int) -> int:
    """Another number between two bounds, both included, with the sign of ``value``."""
    found = draft.rng.randrange(low, high)
    found += low <= abs(value) <= found
    return -found if value < 0 else found


def _altered_text(draft: Draft, text: str, swaps: dict[str, str]) -> str:
    def date(day: str) -> str:
        moved = datetime.date.fromisoformat(day) - datetime.timedelta(days=draft.rng.randrange(20, 700))
        return moved.isoformat()

    def number(match: re.Match[str]) -> str:
        if match[0][0] == "0":
            return match[0]
        low = 10 ** (len(match[0]) - 1)
        return str(_other(draft, int(match[0]), low, 10 * low - 1))

    parts = re.split(r"(\b\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])\b)", _renamed(draft, text, swaps))
    return "".join(date(part) if i % 2 else re.sub(r"\d{2,}", number, part) for i, part in enumerate(parts))


def _renamed(draft: Draft, text: str, swaps: dict[str, str]) -> str:
    """Every entity's or person's name replaced by another of its kind."""
    pools = _pools(draft.world)
    out, end = [], 0
    words = list(re.finditer(r"[^\s,;:.()\"<>]+", text))
    i = 0
    while i < len(words):
        for count in range(min(_LONGEST_NAME, len(words) - i), 0, -1):
            start, stop = words[i].start(), words[i + count - 1].end()
            found = text[start:stop]
            if found in pools:
                if found not in swaps:
                    swaps[found] = draft.pick([name for name in pools[found] if name != found])
                out += [text[end:start], swaps[found]]
                end, i = stop, i + count - 1
                break
        i += 1
    return "".join([*out, text[end:]])


def _pools(where: World) -> Mapping[str, tuple[str, ...]]:
    """Name or nickname -> all of its kind."""
    return _pools_of(where.flavour, where.seed)


@lru_cache(maxsize=64)
def _pools_of(flavour: str, seed: int) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    where = world(flavour, seed)
    for table in where.tables.values():
        for column in ("name", *(c.name for c in table.of_kind("person"))):
            pool = tuple(row[column] for row in table.rows)
            found |= dict.fromkeys(pool, pool)
    nicknames = tuple(where.aliases.values())
    found |= dict.fromkeys(nicknames, nicknames)
    return found
