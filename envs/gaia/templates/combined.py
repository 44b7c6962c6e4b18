"""Level 2: numbers, dates and selections that take two or three kinds of evidence."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import replace

from envs.gaia.carriers import carry, what_of
from envs.gaia.ledgers import Records, draw_ledger, draw_records
from envs.gaia.makers import NUMBERS, choose, measure
from envs.gaia.operators import (
    MARGIN,
    bounded,
    days_between,
    fact,
    missing,
    named,
    percent,
    plus,
    referenced,
    since,
    times,
    total,
    where_term,
)
from envs.gaia.render import Book, Bullets, Doc, Sheet
from envs.gaia.sources import (
    TILE_COLOURS,
    database,
    dated_letter,
    hiding,
    read_document,
    sheet_rows,
    stated,
    statements,
    table_read,
    tabulated,
    tiles,
    together,
)
from envs.gaia.sources_documents import random_date
from envs.gaia.templates import template
from envs.gaia.templates.media import arithmetic
from envs.gaia.terms import Draft, Question, Rows, Term, require


@template("png-csv-bill", level=2)
def png_csv_bill(draft: Draft) -> Question:
    """A picture's tiles, a price list and a fee in three files."""
    picture = tiles(draft)
    prices = dict(zip(TILE_COLOURS, draft.rng.sample(range(3, 90), len(TILE_COLOURS)), strict=True))
    order = draft.some(TILE_COLOURS, len(TILE_COLOURS))
    price_list = draft.put(
        f"{draft.say('prices', 'price_list', 'tariff')}_{draft.rng.randrange(10, 100)}.csv",
        Sheet(("Colour", "Price"), tuple((colour, prices[colour]) for colour in order)),
    )
    read = table_read(price_list.path, len(prices))
    steps = (
        picture.described(*picture.counts),
        replace(read, shows=tuple(f"{colour},{prices[colour]}" for colour in picture.counts)),
    )
    value = sum(prices[colour] * count for colour, count in picture.counts.items())
    expression = " + ".join(f"{count} * {prices[colour]}" for colour, count in picture.counts.items())
    said = draft.phrase("bill", file=picture.file.ref, file2=price_list.ref)
    bill = Term("int", value, said, steps, picture.file.needs | price_list.needs, expression)
    return draft.ask(plus(draft, bill, NUMBERS["stated"].make(draft)))


@template("docx-xlsx-refund", level=2)
def docx_xlsx_refund(draft: Draft) -> Question:
    """A rate and a category in a document, applied to two sheets of a workbook."""
    ledger = draw_ledger(draft)
    parts = [draw_records(draft, draft.rng.randrange(12, 22), ledger=ledger) for _ in range(2)]
    names = draft.pick((("First", "Second"), ("Old", "New"), ("Domestic", "Foreign")))
    sheets = tuple((name, part.sheet()) for name, part in zip(names, parts, strict=True))
    book = draft.put(f"{parts[0].stem(draft)}.xlsx", Book(sheets))
    group, rate = draft.pick(ledger.groups), draft.rng.randrange(3, 60)
    quantity = draft.pick(("refund rate", "discount rate", "interest rate"))
    said = {quantity: (str(rate), "percent"), "chosen category": (group, "")}
    stem = f"{draft.pick(('rules', 'policy', 'terms'))}_{draft.rng.randrange(10, 100)}"
    file = draft.put(f"{stem}.docx", Doc("Rules", (Bullets(statements(draft, said)),)))
    rows = [sheet_rows(draft, part, book, name) for part, name in zip(parts, names, strict=True)]
    both = together(draft, rows, book, names)
    chosen = where_term(draft, both, ledger.group, stated(draft, file, "word", group, "chosen category"), least=4)
    share = stated(draft, file, "rate", rate, quantity)
    return draft.ask(percent(draft, share, total(draft, chosen, draft.pick(ledger.measures).label)))


@template("md-csv-missing", level=2)
def md_csv_missing(draft: Draft) -> Question:
    """The names of a list that are in none of three tables."""
    ledger = draw_ledger(draft)
    table = draft.table(ledger.table)
    records = draw_records(draft, draft.rng.randrange(14, 20), ledger=ledger)
    lost = draft.rng.randrange(2, 4)
    expected = [str(row[ledger.key]) for row in records.rows]
    kept = records.rows[lost:]
    third = len(kept) // 3
    parts = [Records(ledger, rows) for rows in (kept[:third], kept[third : 2 * third], kept[2 * third :])]
    roster = Doc(f"{table.plural.capitalize()} expected", (Bullets(tuple(draft.some(expected, len(expected)))),))
    stem = f"{draft.pick(('roster', 'expected', 'register'))}_{draft.rng.randrange(10, 100)}"
    file = draft.put(f"{stem}.{draft.pick(('md', 'txt', 'html'))}", roster)
    steps, needs, refs = [read_document(file, *expected)], file.needs, []
    for part, ending in zip(parts, draft.some(("csv", "tsv", "csv"), 3), strict=True):
        listed = draft.put(f"{part.stem(draft)}.{ending}", part.sheet())
        read = table_read(listed.path, len(part.rows))
        steps.append(replace(read, shows=tuple(str(row[ledger.key]) for row in part.rows)))
        refs.append(listed.ref)
        needs |= listed.needs
    where_listed = Term("names", (), file.ref, tuple(steps), needs)
    found = [str(row[ledger.key]) for row in kept]
    return draft.ask(missing(draft, expected, found, table.plural, refs, where_listed))


@template("pdf-web-days", level=2)
def pdf_web_days(draft: Draft) -> Question:
    """Days between a date in the atlas and one in a letter."""
    table = draft.table_with("date")
    column = draft.pick(table.of_kind("date"))
    row = draft.pick(table.rows)
    first = datetime.date.fromisoformat(row[column.name]).toordinal() + 30
    last = datetime.date(2026, 10, 31).toordinal()
    require(first < last, "an entity too young")
    date = datetime.date.fromordinal(draft.rng.randint(first, last)).isoformat()
    about, held = dated_letter(draft, table, row["name"], date, draft.pick(("pdf", "docx")))
    return draft.ask(days_between(draft, fact(draft, about, table, column), held))


@template("qr-sqlite-days", level=2)
def qr_sqlite_days(draft: Draft) -> Question:
    """Days between a date in a QR code and the date of a record whose reference another picture shows."""
    records = draw_records(draft, draft.rng.randrange(40, 120))
    rows = database(draft, records)
    reference = carry(draft, "lettered", "code", str(draft.pick(records.rows)["Reference"]))
    dates = [
        referenced(draft, rows, reference, records.ledger.date),
        carry(draft, "qr", "date", random_date(draft)),
    ]
    return draft.ask(days_between(draft, *sorted(dates, key=lambda term: term.value)))


@template("audio-csv-document", level=2)
def audio_csv_document(draft: Draft) -> Question:
    """The rows above a number that is dialled, and a number from a document."""
    records = draw_records(draft, draft.rng.randrange(24, 46))
    label, other = draft.some([one.label for one in records.ledger.measures], 2)
    rows = _bounded_by(draft, tabulated(draft, records, draft.pick(("csv", "tsv"))), label, "dialled")
    return draft.ask(arithmetic(draft, total(draft, rows, other), NUMBERS[draft.pick(("stated", "noted"))].make(draft)))


@template("morse-sqlite-slides", level=2)
def morse_sqlite_slides(draft: Draft) -> Question:
    """The rows of a database below a number in Morse code, and a number from slides."""
    records = draw_records(draft, draft.rng.randrange(28, 60))
    label, other = draft.some([one.label for one in records.ledger.measures], 2)
    rows = _bounded_by(draft, database(draft, records), label, "morse", above=False)
    return draft.ask(arithmetic(draft, total(draft, rows, other), NUMBERS[draft.pick(("slide", "noted"))].make(draft)))


def _bounded_by(draft: Draft, rows: Rows, label: str, carrier: str, *, above: bool = True) -> Rows:
    """The rows with more (or less) than a number that a medium carries, which lies between two of them."""
    values = sorted(int(row[label]) for row in rows.rows)
    middle = itertools.pairwise(values[len(values) // 5 : -len(values) // 5])
    bound = draft.pick([(low + high) // 2 for low, high in middle if high - low > 5 * MARGIN * high])
    return bounded(draft, rows, label, carry(draft, carrier, "number", bound), above=above)


@template("qr-xlsx-mail", level=2)
def qr_xlsx_mail(draft: Draft) -> Question:
    """The visible rows of a sheet after a date in a QR code, and a number from a mail."""
    records = draw_records(draft, draft.rng.randrange(22, 40))
    rows = hiding(draft, records, visible=draft.rng.random() < 0.7)
    date = sorted(str(row[records.ledger.date]) for row in rows.rows)[draft.rng.randrange(3, len(rows.rows) - 3)]
    day = datetime.date.fromisoformat(date) + datetime.timedelta(days=1)
    bound = carry(draft, "qr", "date", day.isoformat())
    rows = since(draft, rows, bound, after=draft.rng.random() < 0.5)
    return draft.ask(arithmetic(draft, total(draft, rows, measure(draft, records)), NUMBERS["mailed"].make(draft)))


@template("word-rows-tones", level=2)
def word_rows_tones(draft: Draft) -> Question:
    """The rows of a group that a picture names, and the count of tones in a recording, multiplied."""
    records = draw_records(draft, draft.rng.randrange(24, 40))
    group = draft.pick(records.ledger.groups)
    source = draft.pick(("csv", "tsv", "xlsx"))
    word = carry(draft, draft.pick(("qr", "lettered")), what_of(group), group)
    rows = where_term(draft, tabulated(draft, records, source), records.ledger.group, word)
    return draft.ask(times(draft, NUMBERS["tones"].make(draft), total(draft, rows, measure(draft, records))))


@template("reference-sqlite-tiles", level=2)
def reference_sqlite_tiles(draft: Draft) -> Question:
    """A cell of the record whose reference a QR code holds, and a count of tiles."""
    records = draw_records(draft, draft.rng.randrange(40, 120))
    reference = carry(draft, draft.pick(("qr", "lettered")), "code", str(draft.pick(records.rows)["Reference"]))
    cell = referenced(draft, database(draft, records), reference, measure(draft, records))
    return draft.ask(arithmetic(draft, cell, NUMBERS["tiles"].make(draft)))


@template("three-media", level=2)
def three_media(draft: Draft) -> Question:
    """Three numbers of three kinds of evidence."""
    kinds = draft.some(("audio", "image", "document", "table", "code", "database"), 3)
    one, two, three = (choose(draft, NUMBERS, kind).make(draft) for kind in kinds)
    return draft.ask(arithmetic(draft, arithmetic(draft, one, two), three))


@template("web-three-media", level=2)
def web_three_media(draft: Draft) -> Question:
    """A number of the atlas and two numbers of two other kinds of evidence."""
    kinds = draft.some(("audio", "image", "document", "table", "code"), 2)
    one, two = (choose(draft, NUMBERS, kind).make(draft) for kind in kinds)
    table = draft.table_with("int")
    three = fact(draft, named(table, draft.pick(table.rows)), table, draft.pick(table.of_kind("int")))
    return draft.ask(arithmetic(draft, three, draft.pick((plus, times))(draft, one, two)))
