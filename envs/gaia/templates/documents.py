"""Questions about documents: json, docx, html, md and pdf files."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from fractions import Fraction

from aworld_gym.types import PlanStep
from envs.gaia.ledgers import Records, draw_ledger, draw_records
from envs.gaia.operators import (
    added,
    average,
    best,
    days_between,
    fact,
    missing,
    ranked,
    rounded,
    shared,
    weighted,
    where,
)
from envs.gaia.render import Bullets, Content, Doc, Sheet
from envs.gaia.sources import (
    EVENTS,
    document_file,
    json_file,
    letter,
    listed_names,
    read_letter,
    sheet_rows,
    table_read,
    workbook,
)
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term, joined, require


@template("json-average", level=1)
def json_average(draft: Draft) -> Question:
    """The mean of a field over a selection of records."""
    records = draw_records(draft, draft.rng.randrange(12, 19))
    ledger = records.ledger
    rows = where(draft, json_file(draft, records), ledger.group, draft.pick(ledger.groups))
    return draft.ask(average(draft, rows, draft.pick(ledger.measures).label))


@template("docx-rank", level=1)
def docx_rank(draft: Draft) -> Question:
    """The k-th row of a table in a document."""
    records = draw_records(draft, draft.rng.randrange(9, 18))
    ledger = records.ledger
    rows = document_file(draft, records, "docx")
    measure = draft.pick(ledger.measures).label
    ask = draft.pick((ledger.key, "Reference", next(m.label for m in ledger.measures if m.label != measure)))
    high = draft.rng.random() < 0.5
    return draft.ask(ranked(draft, rows, measure, draft.rng.randrange(1, 5), ask, high=high))


@template("html-shared", level=1)
def html_shared(draft: Draft) -> Question:
    """The only name that stands on two lists of a page."""
    table = draft.table()
    names = [row["name"] for row in draft.some(table.rows, draft.rng.randrange(15, 24))]
    common, half = names[0], len(names) // 2
    lists = [draft.some([common, *part], len(part) + 1) for part in (names[1:half], names[half:])]
    one, other = draft.some(("spring", "summer", "autumn", "winter", "reserve"), 2)
    blocks = (
        f"The {table.plural} of the {one} list:",
        Bullets(tuple(lists[0])),
        f"The {table.plural} of the {other} list:",
        Bullets(tuple(lists[1])),
    )
    file = _attach(draft, ("lists", "selection", "round"), "html", Doc("Lists", blocks))
    listed = listed_names(PlanStep("read_document", {"path": file}, (common,)), "", file)
    phrase = f"the {one} list and the {other} list in {file}"
    return draft.ask(shared(draft, lists[0], lists[1], table.name, phrase, listed))


@dataclass(frozen=True)
class _Weights:
    """Amounts that multiply a column of the atlas."""

    table: str
    column: str
    label: str
    low: int
    high: int
    phrase: str
    """With the place ``{file}``."""


_WEIGHTS = (
    _Weights(
        "element",
        "price",
        "Kilograms",
        3,
        90,
        "the total price in crowns of the kilograms listed in {file}, at the atlas' prices per kilogram",
    ),
    _Weights(
        "airport",
        "passengers",
        "Years",
        2,
        15,
        "the number of passengers in all the years listed in {file} together, by the atlas' passengers per year",
    ),
    _Weights(
        "country",
        "area_km2",
        "Seeds",
        2,
        40,
        "the number of seeds that the countries in {file} need in total, where every square kilometre takes the seeds "
        "listed",
    ),
    _Weights(
        "town",
        "population",
        "Ration",
        2,
        30,
        "the total weight in kilograms of the rations in {file}, which every inhabitant of a town gets",
    ),
    _Weights(
        "firm",
        "employees",
        "Bonus",
        40,
        900,
        "the total in crowns of the bonuses in {file}, which every employee of a firm gets",
    ),
    _Weights(
        "ship",
        "tonnage",
        "Trips",
        2,
        25,
        "the tons carried on all the trips listed in {file}, where each trip of a ship carries its tonnage",
    ),
)


@template("docx-web-weighted", level=2)
def docx_web_weighted(draft: Draft) -> Question:
    """Amounts in a document times numbers in the atlas, added up."""
    chosen = draft.pick([one for one in _WEIGHTS if one.table in draft.world.tables])
    table = draft.table(chosen.table)
    column = table.column(chosen.column)
    names = [row["name"] for row in draft.some(table.rows, 3)]
    amounts = draft.rng.sample(range(chosen.low, chosen.high), 3)
    sheet = Sheet((table.name.capitalize(), chosen.label), tuple(zip(names, amounts, strict=True)))
    ending = draft.pick(("docx", "md", "txt"))
    file = _attach(draft, ("plan", "order", "request"), ending, Doc("Plan", ("As agreed:", sheet)))
    shows = tuple(str(cell) for row in sheet.rows for cell in row)
    listed = listed_names(PlanStep("read_document", {"path": file}, shows), "", file)
    terms = [fact(Term("text", name, name), table, column) for name in names]
    return draft.ask(weighted(amounts, terms, chosen.phrase.format(file=file), listed))


@template("pdf-web-days", level=2)
def pdf_web_days(draft: Draft) -> Question:
    """Days between a date in the atlas and one in a letter."""
    table = draft.table()
    column = table.of_kind("date")[0]
    row = draft.pick(table.rows)
    first = datetime.date.fromisoformat(row[column.name]).toordinal() + 30
    last = datetime.date(2024, 12, 31).toordinal()
    require(first < last, "an entity too young")
    date = datetime.date.fromordinal(draft.rng.randint(first, last)).isoformat()
    sent = letter(draft, row["name"], draft.pick(EVENTS), date)
    file = _attach(draft, ("letter", "report", "notice"), "pdf", sent.doc)
    read = read_letter(file, sent)
    entity = Term("text", row["name"], f"the {table.name} that {file} is about", (read,), frozenset({file}))
    held = Term("date", date, f"the {sent.event} that {file} reports", (read,), frozenset({file}))
    return draft.ask(days_between(draft, fact(entity, table, column), held))


@template("pdf-web-best", level=2)
def pdf_web_best(draft: Draft) -> Question:
    """The first or last by the atlas of the entities in a document, and another fact about it."""
    table = draft.table()
    names = [row["name"] for row in draft.some(table.rows, 3)]
    word = draft.say("Stop", "Item", "Place")
    items = Bullets(tuple(f"{word} {i}: {name}" for i, name in enumerate(names, 1)))
    blocks = (f"These {table.plural} are under discussion:", items)
    file = _attach(draft, ("itinerary", "shortlist", "agenda"), "pdf", Doc("For the committee", blocks))
    read = PlanStep("read_document", {"path": file}, tuple(names))
    among = listed_names(read, f"the {table.plural} listed in {file}", file)
    by = draft.pick(table.of_kind("int"))
    ask = draft.pick([column for column in table.of_kind("text", "person", "int", "date") if column != by])
    return draft.ask(fact(best(draft, names, table, by, among), table, ask))


@template("docx-xlsx-refund", level=2)
def docx_xlsx_refund(draft: Draft) -> Question:
    """A rule in a document applied to both sheets of a workbook."""
    ledger = draw_ledger(draft)
    parts = [draw_records(draft, draft.rng.randrange(12, 22), ledger=ledger) for _ in range(2)]
    names = draft.pick((("First half", "Second half"), ("Old", "New"), ("Domestic", "Foreign")))
    book = workbook(draft, f"{parts[0].stem(draft)}.xlsx", [(n, p.sheet()) for n, p in zip(names, parts, strict=True)])
    group, measure = draft.pick(ledger.groups), draft.pick(ledger.measures).label
    now, before = draft.rng.sample(range(3, 60), 2)
    rules = (
        f"Refunds are paid for {ledger.plural} whose {ledger.group.lower()} is {group}, and for no others.",
        f"The refund is {now} percent of the {measure.lower()}. Until last year it was {before} percent.",
        f"{ledger.plural.capitalize()} on both sheets of the workbook count.",
    )
    file = _attach(draft, ("rules", "policy", "terms"), "docx", Doc("Refunds", (Bullets(rules),)))
    steps = [PlanStep("read_document", {"path": file}, (group, f"{now} percent"))]
    values: list[int] = []
    for name, part in zip(names, parts, strict=True):
        rows = where(draft, sheet_rows(draft, part, book, name), ledger.group, group, least=2)
        steps += rows.seen(rows.rows, measure)
        values += [int(row[measure]) for row in rows.rows]
    phrase = draft.say(
        f"the total refund on the {ledger.plural} in {book} by the rules in {file}",
        f"the sum that is refunded, by the rules in {file}, for the {ledger.plural} in {book}",
    )
    term = Term("int", sum(values), phrase, tuple(steps), frozenset({file, book}))
    return draft.ask(rounded(term, Fraction(sum(values) * now, 100), 2, f"({added(values)}) * {now} / 100"))


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
    parts = [
        Records(ledger, kept[:third]),
        Records(ledger, kept[third : 2 * third]),
        Records(ledger, kept[2 * third :]),
    ]
    roster = Doc(f"{table.plural.capitalize()} expected", (Bullets(tuple(draft.some(expected, len(expected)))),))
    file = _attach(draft, ("roster", "expected", "register"), draft.pick(("md", "txt", "html")), roster)
    steps = [PlanStep("read_document", {"path": file}, tuple(expected))]
    names = []
    for part, ending in zip(parts, draft.some(("csv", "tsv", "csv"), 3), strict=True):
        name = draft.attach(f"{part.stem(draft)}.{ending}", part.sheet())
        read = table_read(name, len(part.rows))
        steps.append(replace(read, shows=tuple(str(row[ledger.key]) for row in part.rows)))
        names.append(name)
    said = draft.say("which are listed in {0} but in none of {1}", "that stand in {0} but not in {1}")
    phrase = f"the {table.plural} {said.format(file, joined(names) if 'none' in said else joined(names, 'or'))}"
    listed = Term("names", (), phrase, tuple(steps), frozenset({file, *names}))
    return draft.ask(missing(expected, [str(row[ledger.key]) for row in kept], listed))


def _attach(draft: Draft, stems: tuple[str, ...], ending: str, content: Content) -> str:
    return draft.attach(f"{draft.pick(stems)}_{draft.rng.randrange(10, 100)}.{ending}", content)
