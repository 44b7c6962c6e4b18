"""Makers: each makes a term of one kind from one kind of evidence, with the files that hold it.

Templates are compositions of operators over makers. There is a registry for each kind of term:

* :data:`NUMBERS`: ``make(draft, box) -> Term`` of kind ``int``;
* :data:`ENTITIES`: ``make(draft, table, box) -> Term``, an entity of that table;
* :data:`CODES`: ``make(draft, box) -> Term`` of kind ``code``;
* :data:`DATES`: ``make(draft, box) -> Term`` of kind ``date``, between 2005 and 2024.

A maker that is asked to put its files into a box (an archive, a mail) does so. Those of the atlas have no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aworld_gym.types import PlanStep
from envs.gaia.carriers import CARRIERS, PROGRAMS, carriers, carry
from envs.gaia.ledgers import LEDGERS, Ledger, Records, draw_records
from envs.gaia.operators import (
    called,
    coded,
    count,
    fact,
    linked,
    named,
    ranked,
    spread,
    top_group,
    total,
    where,
)
from envs.gaia.programs import Sequence
from envs.gaia.render import Text
from envs.gaia.sources import (
    PITCHES,
    PROSE,
    chart,
    dated_letter,
    hiding,
    merging,
    tabulated,
    tiles,
    tones,
)
from envs.gaia.sources_documents import random_code, random_date
from envs.gaia.terms import Box, Draft, Term, require
from envs.gaia.wording import HIGH, LOW
from envs.gaia.world import Table


@dataclass(frozen=True)
class Maker:
    """One way to a term of one kind."""

    name: str
    tool: str
    """The kind of tool that its evidence needs (a value of :data:`envs.gaia.levels.TOOL_KINDS`)."""
    make: Callable[..., Term]


def choose(draft: Draft, registry: Mapping[str, Maker], *tools: str, but: Iterable[str] = ()) -> Maker:
    """One of a registry's makers: of these kinds of tools (any where none is given), none of ``but`` by name."""
    return draft.pick([m for m in registry.values() if (not tools or m.tool in tools) and m.name not in but])


def _registry(*makers: Maker) -> Mapping[str, Maker]:
    found = {maker.name: maker for maker in makers}
    if len(found) != len(makers):
        raise ValueError("two makers of one name")
    return MappingProxyType(found)


# --- records -------------------------------------------------------------------------------------------------------


def ledger_of(draft: Draft, table: Table) -> Ledger:
    """A ledger about a table's entities; Reject where there is none."""
    return draft.pick([ledger for ledger in LEDGERS if ledger.table == table.name])


def measure(draft: Draft, records: Records) -> str:
    """The label of one of the columns of numbers."""
    return draft.pick(records.ledger.measures).label


# --- numbers -------------------------------------------------------------------------------------------------------


def _carried_number(carrier: str) -> Callable[..., Term]:
    def make(draft: Draft, box: Box | None = None, *, low: int = 101, high: int = 9_900) -> Term:
        return carry(draft, carrier, "number", draft.rng.randrange(low, high), box)

    return make


def _tiles(draft: Draft, box: Box | None = None) -> Term:
    picture = tiles(draft, box)
    return picture.number(draft, draft.pick(list(picture.counts)))


def _bar(draft: Draft, box: Box | None = None) -> Term:
    labels = draft.some(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat"), 5) if draft.rng.random() < 0.5 else ()
    picture = chart(draft, labels, box)
    return picture.number(draft, draft.pick(list(picture.heights)))


def _tones(draft: Draft, box: Box | None = None) -> Term:
    return tones(draft, box).number(draft, draft.pick(PITCHES))


def printed_number(draft: Draft, box: Box | None = None) -> Term:
    """What a program prints: a sum of some of the values of its sequence."""
    sequence = Sequence(draft)
    residue, kept = draft.rng.randrange(3), draft.rng.randrange(3, 9)
    value = sum([x for x in sequence.values() if x % 3 == residue][-kept:])
    source = f"{sequence.source}    if x % 3 == {residue}:\n        kept.append(x)\nprint(sum(kept[-{kept}:]))\n"
    file = draft.put(f"{draft.pick(PROGRAMS)}_{draft.rng.randrange(10, 100)}.py", Text(source), box)
    steps = (*file.before, PlanStep("run_python", {"path": file.path}, (str(value),)))
    return Term("int", value, draft.phrase("printed", what="number", file=file.ref), steps, file.needs)


def _of_table(ending: str, low: int, high: int) -> Callable[..., Term]:
    """A number from the records in one file: a total, a spread, a count or a cell of a ranked record."""

    def make(draft: Draft, box: Box | None = None) -> Term:
        records = draw_records(draft, draft.rng.randrange(low, high))
        rows = tabulated(draft, records, ending or draft.pick(PROSE), box)
        label = measure(draft, records)
        way = draft.rng.randrange(7)
        if way < 2:
            other = next(m.label for m in records.ledger.measures if m.label != label)
            return ranked(draft, rows, label, draft.rng.randrange(1, 5), other, high=draft.rng.random() < 0.5)
        rows = where(draft, rows, records.ledger.group, draft.pick(records.ledger.groups))
        if way == 6 and rows.table:  # elsewhere nothing shows the count
            return count(draft, rows)
        return total(draft, rows, label) if way < 4 else spread(draft, rows, label)

    return make


def _hidden(draft: Draft, box: Box | None = None) -> Term:
    records = draw_records(draft, draft.rng.randrange(16, 30))
    return total(draft, hiding(draft, records, visible=draft.rng.random() < 0.7, box=box), measure(draft, records))


def _merged(draft: Draft, box: Box | None = None) -> Term:
    records = draw_records(draft, draft.rng.randrange(16, 30))
    rows = where(draft, merging(draft, records, box), records.ledger.group, draft.pick(records.ledger.groups))
    return total(draft, rows, measure(draft, records))


def _atlas_number(draft: Draft, box: Box | None = None) -> Term:
    table = draft.table_with("int")
    return fact(draft, named(table, draft.pick(table.rows)), table, draft.pick(table.of_kind("int")))


def _linked_number(draft: Draft, box: Box | None = None) -> Term:
    table = draft.table_with("ref")
    ref = draft.pick(table.of_kind("ref"))
    target = draft.world.tables[ref.to]
    entity = linked(draft, named(table, draft.pick(table.rows)), table, ref)
    return fact(draft, entity, target, draft.pick(target.of_kind("int")))


NUMBERS = _registry(
    Maker("tiles", "image", _tiles),
    Maker("bar", "image", _bar),
    Maker("qr", "image", _carried_number("qr")),
    Maker("lettered", "image", _carried_number("lettered")),
    Maker("tones", "audio", _tones),
    Maker("dialled", "audio", _carried_number("dialled")),
    Maker("morse", "audio", _carried_number("morse")),
    Maker("stated", "document", _carried_number("stated")),
    Maker("mailed", "document", _carried_number("mailed")),
    Maker("slide", "document", _carried_number("slide")),
    Maker("noted", "document", _carried_number("noted")),
    Maker("document", "document", _of_table("", 9, 18)),
    Maker("json", "document", _of_table("json", 10, 18)),
    Maker("jsonl", "document", _of_table("jsonl", 10, 18)),
    Maker("xml", "document", _of_table("xml", 9, 15)),
    Maker("printed", "code", printed_number),
    Maker("csv", "table", _of_table("csv", 24, 46)),
    Maker("tsv", "table", _of_table("tsv", 24, 46)),
    Maker("xlsx", "table", _of_table("xlsx", 20, 40)),
    Maker("spreadsheet_cell", "table", _carried_number("spreadsheet_cell")),
    Maker("hidden", "table", _hidden),
    Maker("merged", "table", _merged),
    Maker("database", "database", _of_table("sqlite", 60, 200)),
    Maker("atlas", "web", _atlas_number),
    Maker("linked", "web", _linked_number),
)


# --- entities ------------------------------------------------------------------------------------------------------


def _by_name(carrier: str) -> Callable[..., Term]:
    def make(draft: Draft, table: Table, box: Box | None = None) -> Term:
        return called(draft, table, carry(draft, carrier, "name", draft.pick(table.rows)["name"], box))

    return make


def _by_code(carrier: str) -> Callable[..., Term]:
    def make(draft: Draft, table: Table, box: Box | None = None) -> Term:
        column = draft.pick(table.of_kind("code"))
        value = draft.pick(table.rows)[column.name]
        require(sum(row[column.name] == value for row in table.rows) == 1, "a code of several")
        require(len(value) > 2, "a code that many pages have by chance")
        return coded(draft, table, column, carry(draft, carrier, "code", value, box))

    return make


def _subject(draft: Draft, table: Table, box: Box | None = None) -> Term:
    return dated_letter(draft, table, draft.pick(table.rows)["name"], random_date(draft), box=box)[0]


def _top_bar(draft: Draft, table: Table, box: Box | None = None) -> Term:
    names = [row["name"] for row in draft.some([row for row in table.rows if len(row["name"]) <= 18], 4)]
    high = draft.rng.random() < 0.5
    picture = chart(draft, names, box)
    name = picture.labels[picture.extreme(high)]
    words = (*HIGH, "tallest") if high else (*LOW, "shortest")
    said = draft.phrase("labelled_top_bar", noun=table.name, superlative=draft.pick(words), file=picture.file.ref)
    step = picture.described(*picture.heights)
    shown = PlanStep(step.tool, step.arguments, (*step.shows, name))
    return Term("text", name, said, (*picture.file.before, shown), picture.file.needs)


def _ranked_in(ending: str, low: int, high: int) -> Callable[..., Term]:
    def make(draft: Draft, table: Table, box: Box | None = None) -> Term:
        ledger = ledger_of(draft, table)
        records = draw_records(draft, draft.rng.randrange(low, high), ledger=ledger)
        rows = tabulated(draft, records, ending or draft.pick(PROSE), box)
        return ranked(
            draft, rows, measure(draft, records), draft.rng.randrange(1, 5), ledger.key, high=draft.rng.random() < 0.5
        )

    return make


def _top_group_in(ending: str, low: int, high: int) -> Callable[..., Term]:
    def make(draft: Draft, table: Table, box: Box | None = None) -> Term:
        ledger = ledger_of(draft, table)
        number, entities = draft.rng.randrange(low, high), draft.rng.randrange(6, 11)
        records = draw_records(draft, number, ledger=ledger, entities=entities)
        return top_group(draft, tabulated(draft, records, ending, box), measure(draft, records))

    return make


ENTITIES = _registry(
    *(Maker(name, CARRIERS[name].tool, _by_name(name)) for name in ("qr", "lettered", "printed")),
    *(Maker(name, CARRIERS[name].tool, _by_name(name)) for name in ("spreadsheet_cell", "stated", "mailed", "noted")),
    *(Maker(f"{name}_code", CARRIERS[name].tool, _by_code(name)) for name in ("qr", "morse", "lettered", "stated")),
    Maker("subject", "document", _subject),
    Maker("top_bar", "image", _top_bar),
    Maker("document", "document", _ranked_in("", 9, 16)),
    Maker("json", "document", _ranked_in("json", 10, 18)),
    Maker("xml", "document", _ranked_in("xml", 9, 15)),
    Maker("csv", "table", _ranked_in("csv", 20, 40)),
    Maker("xlsx", "table", _ranked_in("xlsx", 20, 40)),
    Maker("database", "database", _ranked_in("sqlite", 40, 90)),
    Maker("top_group", "database", _top_group_in("sqlite", 60, 200)),
    Maker("top_group_csv", "code", _top_group_in("csv", 40, 80)),
)


# --- codes and dates -----------------------------------------------------------------------------------------------


def _carried_code(carrier: str) -> Callable[..., Term]:
    def make(draft: Draft, box: Box | None = None) -> Term:
        return carry(draft, carrier, "code", random_code(draft), box)

    return make


def _carried_date(carrier: str) -> Callable[..., Term]:
    def make(draft: Draft, box: Box | None = None) -> Term:
        return carry(draft, carrier, "date", random_date(draft), box)

    return make


def _event_date(draft: Draft, box: Box | None = None) -> Term:
    table = draft.table()
    return dated_letter(draft, table, draft.pick(table.rows)["name"], random_date(draft), box=box)[1]


def _row_date(ending: str, low: int, high: int) -> Callable[..., Term]:
    def make(draft: Draft, box: Box | None = None) -> Term:
        records = draw_records(draft, draft.rng.randrange(low, high))
        rows = tabulated(draft, records, ending, box)
        return ranked(
            draft,
            rows,
            measure(draft, records),
            draft.rng.randrange(1, 5),
            records.ledger.date,
            high=draft.rng.random() < 0.5,
        )

    return make


CODES = _registry(*(Maker(name, CARRIERS[name].tool, _carried_code(name)) for name in carriers("code", "AB123C")))
DATES = _registry(
    *(Maker(name, CARRIERS[name].tool, _carried_date(name)) for name in carriers("date", "2019-03-04")),
    Maker("event", "document", _event_date),
    Maker("csv", "table", _row_date("csv", 20, 40)),
    Maker("xlsx", "table", _row_date("xlsx", 20, 40)),
    Maker("database", "database", _row_date("sqlite", 40, 90)),
)


def all_makers() -> dict[str, Mapping[str, Maker]]:
    """The registries by the kind of their terms."""
    return {"number": NUMBERS, "entity": ENTITIES, "code": CODES, "date": DATES}
