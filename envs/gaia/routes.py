"""Routes: a table of two-way links between places, and the length of the shortest way from one place to another."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from aworld_gym.types import PlanStep
from envs.gaia.render import Sheet
from envs.gaia.terms import Box, Draft, File, Term, require
from envs.gaia.world import Table

PLACES = ("town", "station", "museum", "airport", "country")
"""Tables whose entities are places."""

Link = tuple[str, str, int]


@dataclass(frozen=True)
class Links:
    """A csv file of links: from, to, length."""

    file: File
    table: Table
    links: tuple[Link, ...]

    @property
    def places(self) -> tuple[str, ...]:
        """All places, each once."""
        return tuple(dict.fromkeys(place for one, other, _ in self.links for place in (one, other)))


def links(draft: Draft, box: Box | None = None) -> Links:
    """A file of links between 9 to 13 places: a ring, so that all are connected, and some chords."""
    table = draft.pick([table for table in draft.world.tables.values() if table.name in PLACES])
    names = [row["name"] for row in draft.some(table.rows, draft.rng.randrange(9, 14))]
    pairs = list(zip(names, names[1:] + names[:1], strict=True))
    chords = [(one, other) for i, one in enumerate(names) for other in names[i + 2 :] if (other, one) not in pairs]
    pairs += draft.some(chords, len(names) // 2)
    lengths = draft.rng.sample(range(20, 400), len(pairs))
    made = [(*draft.some(pair, 2), length) for pair, length in zip(pairs, lengths, strict=True)]
    rows = tuple((one, other, length) for one, other, length in draft.some(made, len(made)))
    stem = f"{draft.pick(('links', 'connections', 'network', 'lines'))}_{draft.rng.randrange(10, 100)}"
    file = draft.put(f"{stem}.csv", Sheet(("From", "To", "Length"), rows), box)
    return Links(file, table, rows)


def route(draft: Draft, network: Links, start: Term, end: Term, *, by_program: bool = False) -> Term:
    """The length of the shortest route between two of the places; Reject where it has fewer than three links.

    Args:
        draft: the draft.
        network: the links.
        start: where it begins, an entity.
        end: where it ends, another one.
        by_program: look at the file with a program too, rather than with the tool for tables.
    """
    start, end = start.settled(), end.settled()
    length, stops = shortest(network.links, start.value, end.value)
    require(stops >= 3, "a route that is plain to see")
    path = network.file.path
    first = network.links[0]
    shown = (f"{first[0]},{first[1]},{first[2]}",)
    look = (
        PlanStep("run_python", {"code": f"print(open({path!r}).read())\n"}, shown)
        if by_program
        else PlanStep("read_table", {"path": path}, shown)
    )
    code = (
        "import csv, heapq\n"
        "ways = {}\n"
        f"for row in csv.DictReader(open({path!r}, newline='')):\n"
        "    ways.setdefault(row['From'], []).append((row['To'], int(row['Length'])))\n"
        "    ways.setdefault(row['To'], []).append((row['From'], int(row['Length'])))\n"
        f"left, seen = [(0, {start.value!r})], set()\n"
        f"while left[0][1] != {end.value!r}:\n"
        "    length, place = heapq.heappop(left)\n"
        "    if place not in seen:\n"
        "        seen.add(place)\n"
        "        for other, more in ways[place]:\n"
        "            heapq.heappush(left, (length + more, other))\n"
        "print(left[0][0])\n"
    )
    steps = (
        *start.steps,
        *end.steps,
        *network.file.before,
        look,
        PlanStep("run_python", {"code": code}, (str(length),)),
    )
    said = draft.phrase("route", entity=start.phrase, entity2=end.phrase, file=network.file.ref)
    return Term("int", length, said, steps, start.needs | end.needs | network.file.needs)


def shortest(known: Sequence[Link], start: str, end: str) -> tuple[int, int]:
    """Length and number of links of the shortest way (of those, one of the fewest links)."""
    ways: dict[str, list[tuple[str, int]]] = {}
    for one, other, length in known:
        ways.setdefault(one, []).append((other, length))
        ways.setdefault(other, []).append((one, length))
    left: list[tuple[int, int, str]] = [(0, 0, start)]
    seen: set[str] = set()
    while left[0][2] != end:
        length, count, place = heapq.heappop(left)
        if place not in seen:
            seen.add(place)
            for other, more in ways[place]:
                heapq.heappush(left, (length + more, count + 1, other))
    return left[0][0], left[0][1]
