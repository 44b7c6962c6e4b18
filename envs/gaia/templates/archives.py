"""Level 2: evidence inside archives and mails."""

from __future__ import annotations

from dataclasses import replace

from aworld_gym.types import PlanStep
from envs.gaia.carriers import carry, what_of
from envs.gaia.ledgers import draw_ledger, draw_records
from envs.gaia.makers import NUMBERS, choose, measure
from envs.gaia.operators import fact, total, where, where_term
from envs.gaia.render import Doc
from envs.gaia.sources import (
    EVENTS,
    letter,
    mail_box,
    read_document,
    read_letter,
    rows_of,
    stated,
    statements,
    table_read,
    tabulated,
)
from envs.gaia.templates import template
from envs.gaia.templates.media import arithmetic
from envs.gaia.terms import Box, Draft, Question, Rows, Term

_STEMS = ("bundle", "delivery", "archive", "backup")


def zip_box(draft: Draft, within: Box | None = None) -> Box:
    """An archive."""
    stem = draft.pick(_STEMS if within is None else ("tables", "data", "figures", "material"))
    return Box(draft, f"{stem}_{draft.rng.randrange(10, 100)}.zip", within=within)


@template("zip-final", level=2)
def zip_final(draft: Draft) -> Question:
    """A note in an archive says which table of the archive within counts; then a total over a selection."""
    ledger = draw_ledger(draft)
    names = draft.some(("draft", "copy", "revised", "old", "checked"), 3)
    base = draft.pick(ledger.stems)
    parts = [draw_records(draft, draft.rng.randrange(18, 34), ledger=ledger) for _ in names]
    chosen = draft.rng.randrange(len(names))
    outer = zip_box(draft)
    titles = [f"{base}_{name}.csv" for name in names]
    said = (
        f"Only {titles[chosen]} has the final figures.",
        f"The file {titles[chosen - 1]} was withdrawn in March.",
        draft.say("All tables are in the archive within.", "Please unpack the other archive as well."),
    )
    stem, ending = draft.say("note", "readme", "message"), draft.pick(("txt", "md", "docx"))
    note = outer.put(f"{stem}.{ending}", Doc("Please read", tuple(draft.some(said, 3))))
    inner = zip_box(draft, outer)
    files = [inner.put(title, part.sheet()) for title, part in zip(titles, parts, strict=True)]
    final = files[chosen]
    ref = draft.phrase("final", file=inner.file.ref, file2=note.ref)
    read = table_read(final.path, len(parts[chosen].rows))
    rows = rows_of(parts[chosen], draft.phrase("in_file", file=ref), read, final)
    rows = _after(rows, (*note.before, read_document(note, said[0]), *final.before), note.needs)
    rows = where(draft, rows, ledger.group, draft.pick(ledger.groups))
    return draft.ask(total(draft, rows, draft.pick(ledger.measures).label))


@template("zip-letters-web", level=2)
def zip_letters_web(draft: Draft) -> Question:
    """Which of the letters in an archive reports the first or last event, and a fact about its entity."""
    table, event = draft.table(), draft.pick(EVENTS)
    year = draft.rng.randrange(2005, 2024)
    dates = [f"{year}-{month:02d}-{draft.rng.randrange(1, 29):02d}" for month in draft.some(range(1, 13), 3)]
    letters = [
        letter(draft, row["name"], event, date) for row, date in zip(draft.some(table.rows, 3), dates, strict=True)
    ]
    box = Box(draft, f"{draft.pick(('letters', 'post', 'correspondence'))}_{draft.rng.randrange(10, 100)}.zip")
    files = [box.put(f"letter_{i}.{draft.pick(('docx', 'txt', 'md'))}", sent.doc) for i, sent in enumerate(letters, 1)]
    last = draft.rng.random() < 0.5
    chosen = max(letters, key=lambda sent: sent.date) if last else min(letters, key=lambda sent: sent.date)
    unpack = [step for file in files for step in file.before]
    reads = [read_letter(file.path, sent) for file, sent in zip(files, letters, strict=True)]
    order = draft.say("last", "latest") if last else draft.say("first", "earliest")
    said = draft.phrase("event_order", noun=table.name, order=order, event=event, file=box.file.ref)
    found = Term("text", chosen.entity, said, (*unpack, *reads), frozenset(file.need for file in files))
    return draft.ask(fact(draft, found, table, draft.asked(table)))


@template("mail-attachment", level=2)
def mail_attachment(draft: Draft) -> Question:
    """A mail says what to look for in the table that is attached to it."""
    records = draw_records(draft, draft.rng.randrange(24, 40))
    group = draft.pick(records.ledger.groups)
    box = mail_box(draft, statements(draft, {"chosen category": (group, "")}))
    rows = tabulated(draft, records, draft.pick(("csv", "tsv", "xlsx")), box)
    wanted = stated(draft, box.file, "word", group, "chosen category")
    rows = where_term(draft, rows, records.ledger.group, wanted)
    return draft.ask(total(draft, rows, measure(draft, records)))


@template("mail-media", level=2)
def mail_media(draft: Draft) -> Question:
    """A number that a mail states, one from a picture or recording attached to it, and one from an archive there."""
    number = draft.rng.randrange(101, 9_900)
    quantity, unit = draft.pick((("deposit", "crowns"), ("storage limit", "kilograms"), ("target", "")))
    box = mail_box(draft, statements(draft, {quantity: (str(number), unit)}))
    said = stated(draft, box.file, "number", number, quantity)
    media = choose(draft, NUMBERS, "image", "audio").make(draft, box)
    return draft.ask(arithmetic(draft, media, said))


@template("zip-nested-media", level=2)
def zip_nested_media(draft: Draft) -> Question:
    """A recording or a picture in an archive, and a table in the archive within."""
    outer = zip_box(draft)
    media = choose(draft, NUMBERS, "image", "audio").make(draft, outer)
    inner = zip_box(draft, outer)
    table = choose(draft, NUMBERS, "table").make(draft, inner)
    return draft.ask(arithmetic(draft, media, table))


@template("zip-code-sqlite", level=2)
def zip_code_sqlite(draft: Draft) -> Question:
    """An archive with a database and the picture or recording of a category's rows' bound."""
    records = draw_records(draft, draft.rng.randrange(40, 120))
    box = zip_box(draft)
    group = draft.pick(records.ledger.groups)
    rows = tabulated(draft, records, "sqlite", box)
    word = carry(draft, draft.pick(("qr", "lettered")), what_of(group), group, box)
    rows = where_term(draft, rows, records.ledger.group, word)
    return draft.ask(total(draft, rows, measure(draft, records)))


def _after(rows: Rows, before: tuple[PlanStep, ...], needs: frozenset[str]) -> Rows:
    """The rows with other calls before their reading, and more needs."""
    return replace(rows, before=before, needs=rows.needs | needs)
