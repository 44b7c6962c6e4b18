"""Level 1 on documents: tables, lists and statements in prose, mails and slides."""

from __future__ import annotations

from envs.gaia.ledgers import draw_records
from envs.gaia.makers import NUMBERS, measure
from envs.gaia.operators import average, shared, spread
from envs.gaia.render import Bullets, Doc
from envs.gaia.sources import read_document, tabulated
from envs.gaia.templates import template
from envs.gaia.templates.media import arithmetic
from envs.gaia.templates.tables import any_rank, of_group
from envs.gaia.terms import Draft, Question, Term


@template("json-average", level=1)
def json_average(draft: Draft) -> Question:
    """The mean of a field over a selection of records."""
    records = draw_records(draft, draft.rng.randrange(12, 19))
    rows = of_group(draft, records, tabulated(draft, records, "json"))
    return draft.ask(average(draft, rows, measure(draft, records)))


@template("jsonl-spread", level=1)
def jsonl_spread(draft: Draft) -> Question:
    """Largest minus smallest value of a field over a selection of records."""
    records = draw_records(draft, draft.rng.randrange(12, 22))
    rows = of_group(draft, records, tabulated(draft, records, "jsonl"))
    return draft.ask(spread(draft, rows, measure(draft, records)))


@template("xml-average", level=1)
def xml_average(draft: Draft) -> Question:
    """The mean of an element over a selection of records."""
    records = draw_records(draft, draft.rng.randrange(10, 17))
    rows = of_group(draft, records, tabulated(draft, records, "xml"))
    return draft.ask(average(draft, rows, measure(draft, records)))


@template("docx-rank", level=1)
def docx_rank(draft: Draft) -> Question:
    """The k-th row of a table in a document."""
    records = draw_records(draft, draft.rng.randrange(22, 33))
    ending = draft.pick(("docx", "pdf", "html"))
    return draft.ask(any_rank(draft, records, tabulated(draft, records, ending)))


@template("html-shared", level=1)
def html_shared(draft: Draft) -> Question:
    """The only name that stands on two lists of a page."""
    table = draft.table()
    names = [row["name"] for row in draft.some(table.rows, min(draft.rng.randrange(34, 48), len(table.rows)))]
    common, half = names[0], len(names) // 2
    lists = [draft.some([common, *part], len(part) + 1) for part in (names[1:half], names[half:])]
    titles = draft.some(("spring", "summer", "autumn", "winter", "reserve"), 2)
    blocks: list[str | Bullets] = []
    for title, items in zip(titles, lists, strict=True):
        blocks += [f"The {table.plural} of the {title} list:", Bullets(tuple(items))]
    stem = f"{draft.pick(('lists', 'selection', 'round'))}_{draft.rng.randrange(10, 100)}"
    file = draft.put(f"{stem}.html", Doc("Lists", tuple(blocks)))
    listed = Term("names", (), file.ref, (read_document(file, common),), file.needs)
    return draft.ask(shared(draft, lists[0], lists[1], table.name, draft.some(titles, 2), listed))


@template("pptx-notes", level=1)
def pptx_notes(draft: Draft) -> Question:
    """Two numbers from speaker notes, whose slides say otherwise."""
    return draft.ask(arithmetic(draft, NUMBERS["noted"].make(draft), NUMBERS["noted"].make(draft)))


@template("eml-sum", level=1)
def eml_sum(draft: Draft) -> Question:
    """Two numbers from mails."""
    return draft.ask(arithmetic(draft, NUMBERS["mailed"].make(draft), NUMBERS["mailed"].make(draft)))
