"""Level 2: an entity that some evidence points to, and facts about it from the atlas."""

from __future__ import annotations

from dataclasses import replace

from envs.gaia.carriers import carry
from envs.gaia.ledgers import Records, draw_records
from envs.gaia.makers import ENTITIES, measure
from envs.gaia.operators import (
    best,
    called,
    fact,
    followed,
    gap,
    in_year,
    linked,
    top_group,
    top_product,
    weighted,
)
from envs.gaia.render import Book, Doc, Sheet
from envs.gaia.sources import chart, name_list, read_document, sheet_rows, table_read, tabulated
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term
from envs.gaia.wording import HIGH, LOW
from envs.gaia.world import Table


@template("csv-top-web", level=2)
def csv_top_web(draft: Draft) -> Question:
    """The entity with the highest total in a table, then a fact about it from the atlas."""
    records = draw_records(draft, draft.rng.randrange(40, 81), entities=draft.rng.randrange(6, 11))
    rows = tabulated(draft, records, draft.pick(("csv", "tsv")))
    if draft.rng.random() < 0.5:
        rows = in_year(draft, rows)
    return draft.ask(
        any_fact(draft, top_group(draft, rows, measure(draft, records)), draft.table(records.ledger.table))
    )


@template("sqlite-top-web", level=2)
def sqlite_top_web(draft: Draft) -> Question:
    """The entity with the highest total in a database, then a fact about it from the atlas."""
    table = draft.table()
    return draft.ask(any_fact(draft, ENTITIES["top_group"].make(draft, table), table))


@template("xlsx-join-web", level=2)
def xlsx_join_web(draft: Draft) -> Question:
    """Two sheets joined by their key, the entity with the highest product, then a fact from the atlas."""
    records = draw_records(draft, draft.rng.randrange(8, 14))
    ledger = records.ledger
    first, second = draft.some([measure.label for measure in ledger.measures], 2)
    shuffled = Records(ledger, tuple(draft.some(records.rows, len(records.rows))))
    spare = Records(ledger, tuple(draft.some(records.rows, 5)))
    names = draft.some(("Alpha", "Beta", "Gamma", "Delta"), 2)
    sheets = (
        (names[0], records.sheet((ledger.key, ledger.date, first))),
        ("Notes", spare.sheet(("Reference", ledger.group))),
        (names[1], shuffled.sheet((ledger.key, second))),
    )
    book = draft.put(f"{draft.pick(ledger.stems)}_{draft.rng.randrange(10, 100)}.xlsx", Book(sheets))
    left, right = sheet_rows(draft, records, book, names[0]), sheet_rows(draft, shuffled, book, names[1])
    place = draft.phrase("joined", sheet=names[0], sheet2=names[1], file=book.ref)
    found = top_product(draft, left, right, first, second, place)
    return draft.ask(any_fact(draft, found, draft.table(ledger.table)))


@template("chart-csv-web", level=2)
def chart_csv_web(draft: Draft) -> Question:
    """The highest or lowest bar of a chart, what its colour stands for, and a fact about that."""
    table = draft.table()
    picture = chart(draft)
    colours = list(picture.heights)
    names = {colour: row["name"] for colour, row in zip(colours, draft.some(table.rows, len(colours)), strict=True)}
    legend = draft.put(
        f"{draft.say('legend', 'key', 'colours')}_{draft.rng.randrange(10, 100)}.csv",
        Sheet(
            ("Colour", table.name.capitalize()),
            tuple((colour, names[colour]) for colour in draft.some(colours, len(colours))),
        ),
    )
    high = draft.rng.random() < 0.5
    chosen = picture.extreme(high)
    read = replace(table_read(legend.path, len(colours)), shows=(f"{chosen},{names[chosen]}",))
    words = (*HIGH, "tallest") if high else (*LOW, "shortest")
    said = draft.phrase(
        "legend_bar", noun=table.name, file=legend.ref, superlative=draft.pick(words), file2=picture.file.ref
    )
    needs = picture.file.needs | legend.needs
    found = Term("text", names[chosen], said, (picture.described(*colours), read), needs)
    return draft.ask(any_fact(draft, found, table))


@template("pdf-web-best", level=2)
def pdf_web_best(draft: Draft) -> Question:
    """The first or last by the atlas of the entities in a document, and another fact about it."""
    table = draft.table_with("int")
    names = [row["name"] for row in draft.some(table.rows, 3)]
    by = draft.pick(table.of_kind("int"))
    found = best(draft, table, by, name_list(draft, table, names, draft.pick(("pdf", "docx", "html"))))
    return draft.ask(fact(draft, found, table, draft.asked(table, by)))


@template("docx-web-weighted", level=2)
def docx_web_weighted(draft: Draft) -> Question:
    """Amounts in a document times numbers in the atlas, added up."""
    table = draft.table_with("int")
    column = draft.pick(table.of_kind("int"))
    label = draft.pick(("Quantity", "Weight factor", "Units"))
    names = [row["name"] for row in draft.some(table.rows, 3)]
    amounts = draft.rng.sample(range(2, 60), 3)
    sheet = Sheet((table.name.capitalize(), label), tuple(zip(names, amounts, strict=True)))
    stem = f"{draft.pick(('plan', 'order', 'request'))}_{draft.rng.randrange(10, 100)}"
    file = draft.put(f"{stem}.{draft.pick(('docx', 'md', 'txt'))}", Doc("Plan", ("As agreed:", sheet)))
    read = read_document(file, *(str(cell) for row in sheet.rows for cell in row))
    said = draft.phrase("listed", plural=table.plural, file=file.ref)
    among = Term("names", tuple(names), said, (read,), file.needs)
    return draft.ask(weighted(draft, table, column, label, amounts, among))


@template("py-web", level=2)
def py_web(draft: Draft) -> Question:
    """A program picks an entity; the atlas leads from it to another, and to a fact."""
    table = draft.table_with("ref")
    printed = called(draft, table, carry(draft, "printed", "name", draft.pick(table.rows)["name"]))
    ref = draft.pick(table.of_kind("ref"))
    target = draft.table(ref.to)
    return draft.ask(fact(draft, linked(draft, printed, table, ref), target, draft.asked(target)))


@template("qr-morse-web", level=2)
def qr_morse_web(draft: Draft) -> Question:
    """How far a number of the entity of one code is from that of another: a QR code, and Morse code."""
    table = draft.table_with("int", "code")
    column = draft.pick(table.of_kind("int"))
    one, other = (fact(draft, ENTITIES[n].make(draft, table), table, column) for n in ("qr_code", "morse_code"))
    return draft.ask(gap(draft, *draft.some((one, other), 2)))


@template("lettered-code-web", level=2)
def lettered_code_web(draft: Draft) -> Question:
    """A code written in a picture; from its entity to another by a link, and a fact about that."""
    table = draft.table_with("ref", "code")
    found = ENTITIES["lettered_code"].make(draft, table)
    ref = draft.pick(table.of_kind("ref"))
    target = draft.table(ref.to)
    return draft.ask(followed(draft, found, table, ref, target, draft.asked(target)))


@template("chart-mail-web", level=2)
def chart_mail_web(draft: Draft) -> Question:
    """How far a number of the entity above the highest bar is from that of the entity that a mail names."""
    table = draft.table_with("int")
    column = draft.pick(table.of_kind("int"))
    one, other = (fact(draft, ENTITIES[n].make(draft, table), table, column) for n in ("top_bar", "mailed"))
    return draft.ask(gap(draft, *draft.some((one, other), 2)))


@template("xml-rank-web", level=2)
def xml_rank_web(draft: Draft) -> Question:
    """The entity of the k-th record of an XML file; from it to another by a link, and a fact about that."""
    table = draft.table_with("ref")
    ref = draft.pick(table.of_kind("ref"))
    target = draft.table(ref.to)
    found = ENTITIES[draft.pick(("xml", "json"))].make(draft, table)
    return draft.ask(fact(draft, linked(draft, found, table, ref), target, draft.asked(target)))


def any_fact(draft: Draft, entity: Term, table: Table) -> Term:
    """A fact about an entity that is worth asking for."""
    return fact(draft, entity, table, draft.asked(table))
