"""Sources of rows: they put drawn records into files of every kind, and give what operators work on.

Pictures and recordings are in :mod:`envs.gaia.sources_media`, prose in :mod:`envs.gaia.sources_documents`; both are
handed on here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aworld_gym.types import PlanStep
from envs.gaia.ledgers import Records
from envs.gaia.render import Book, Content, Data, Database, Doc, Lines, Sheet
from envs.gaia.sources_documents import (
    EVENTS,
    Letter,
    dated_letter,
    letter,
    mail_box,
    name_list,
    read_letter,
    stated,
    statements,
    stating,
)
from envs.gaia.sources_media import PITCHES, TILE_COLOURS, Chart, Tiles, Tones, chart, tiles, tones
from envs.gaia.terms import Box, Draft, File, Rows

TABLES = ("csv", "tsv")
"""Endings of files that ``read_table`` reads and that hold one table."""
PROSE = ("docx", "pdf", "html", "md", "txt")
"""Endings of documents that may have a table among other text."""


def tabulated(draft: Draft, records: Records, ending: str, box: Box | None = None, *, stem: str = "") -> Rows:
    """The records as the one table of a file.

    Args:
        draft: the draft.
        records: what the table says.
        ending: one of :data:`TABLES`, :data:`PROSE`, ``json``, ``jsonl``, ``xml``, ``xlsx`` or ``sqlite``.
        box: what the file is put into.
        stem: the file's name without its ending; by default one that fits the records.
    """
    stem = stem or records.stem(draft)
    if ending == "xlsx":
        sheet = draft.pick(("Data", "Records", "Register", "List"))
        file = draft.put(f"{stem}.xlsx", Book(((sheet, records.sheet()),)), box)
        return sheet_rows(draft, records, file, sheet)
    if ending == "sqlite":
        return database(draft, records, box, stem=stem)
    file = draft.put(f"{stem}.{ending}", _content(draft, records, ending), box)
    step = table_read(file.path, len(records.rows)) if ending in TABLES else read_document(file)
    return rows_of(records, draft.phrase("in_file", file=file.ref), step, file)


def _content(draft: Draft, records: Records, ending: str) -> Content:
    plural = records.ledger.plural
    if ending in (*TABLES, "xml"):
        return records.sheet()
    if ending == "json":
        return Data({"about": f"{plural}, as reported", plural: [dict(row) for row in records.rows]})
    if ending == "jsonl":
        return Lines(tuple(dict(row) for row in records.rows))
    blocks = (
        draft.say(f"This note lists {plural} that were reported to us.", f"Below are the {plural} on record."),
        records.sheet(),
        draft.say("Please report errors to the office.", "Checked by the office.", "Further details are kept on file."),
    )
    return Doc(plural.capitalize(), blocks)


def database(draft: Draft, records: Records, box: Box | None = None, *, stem: str = "") -> Rows:
    """The records as one of the tables of a database; the others are about the same entities."""
    ledger = records.ledger
    name = ledger.plural.replace(" ", "_")
    notes = [str(row[ledger.key]) for row in records.rows]
    checks = Sheet(
        ("Number", ledger.key, "Checked"),
        tuple((i, key, draft.pick(("yes", "no", "partly"))) for i, key in enumerate(dict.fromkeys(notes), 1)),
    )
    tables = ((name, records.sheet()), ("checks", checks))
    file = draft.put(f"{stem or records.stem(draft)}.sqlite", Database(tuple(draft.some(tables, len(tables)))), box)
    schema = PlanStep("query_sqlite", {"path": file.path, "sql": "SELECT name, sql FROM sqlite_master"}, (name,))
    place = draft.phrase("in_table", table=name, file=file.ref)
    return replace(rows_of(records, place, schema, file), table=name)


def sheet_rows(draft: Draft, records: Records, book: File, sheet: str) -> Rows:
    """The records on a sheet of the workbook ``book``."""
    place = draft.phrase("on_sheet", sheet=sheet, file=book.ref)
    return rows_of(records, place, PlanStep("read_table", {"path": book.path, "sheet": sheet}), book)


def hiding(draft: Draft, records: Records, *, visible: bool, box: Box | None = None) -> Rows:
    """The visible (or the hidden) records of a sheet of a workbook that hides some of its rows."""
    count = len(records.rows)
    hidden = tuple(sorted(draft.some(range(count), draft.rng.randrange(count // 3, 2 * count // 3))))
    sheet = draft.pick(("Data", "Records", "Register", "List"))
    shown = replace(records.sheet(), hidden_rows=hidden)
    file = draft.put(f"{records.stem(draft)}.xlsx", Book(((sheet, shown),)), box)
    rows = sheet_rows(draft, records, file, sheet)
    kept = tuple(row for i, row in enumerate(records.rows) if (i in hidden) != visible)
    return replace(rows, rows=kept, which="visible" if visible else "hidden")


def merging(draft: Draft, records: Records, box: Box | None = None) -> Rows:
    """The records on a sheet, sorted by group, whose cells are merged where they are the same."""
    label = records.ledger.group
    order = {value: i for i, value in enumerate(draft.some(records.ledger.groups, len(records.ledger.groups)))}
    records = replace(records, rows=tuple(sorted(records.rows, key=lambda row: order[str(row[label])])))
    sheet = draft.pick(("Data", "Records", "Register", "List"))
    merged = replace(records.sheet(), merged=(label,))
    file = draft.put(f"{records.stem(draft)}.xlsx", Book(((sheet, merged),)), box)
    return sheet_rows(draft, records, file, sheet)


def scoring(draft: Draft, records: Records, label: str, box: Box | None = None) -> Rows:
    """The records on a sheet with one more column, ``label``, which formulas give; a column that they use is hidden."""
    header = list(records.rows[0])
    one, other = draft.some([measure.label for measure in records.ledger.measures], 2)
    factor = draft.rng.randrange(2, 9)
    rows = tuple({**row, label: int(row[one]) + factor * int(row[other])} for row in records.rows)
    first, second = (f"{'ABCDEFGH'[header.index(name)]}{{row}}" for name in (one, other))
    sheet = draft.pick(("Data", "Records", "Register", "List"))
    shown = Sheet(
        (*header, label),
        tuple(tuple(row.values()) for row in rows),
        hidden_columns=(other,),
        formulas={label: f"={first}+{factor}*{second}"},
    )
    file = draft.put(f"{records.stem(draft)}.xlsx", Book(((sheet, shown),)), box)
    return sheet_rows(draft, replace(records, rows=rows), file, sheet)


def together(draft: Draft, parts: Sequence[Rows], file: File, sheets: Sequence[str]) -> Rows:
    """The rows of two sheets of one workbook as one."""
    one, other = parts
    place = draft.phrase("together", sheet=sheets[0], sheet2=sheets[1], file=file.ref)
    return replace(one, rows=one.rows + other.rows, place=place, parts=(one, other))


def table_read(path: str, rows: int) -> PlanStep:
    """Reading a whole table of ``rows`` rows (the tool shows 50 unless told)."""
    return PlanStep("read_table", {"path": path} if rows <= 50 else {"path": path, "rows": rows})


def read_document(file: File, *shows: str) -> PlanStep:
    """Reading a document."""
    return PlanStep("read_document", {"path": file.path}, shows)


def rows_of(records: Records, place: str, read: PlanStep, file: File) -> Rows:
    """All of the records, as what operators work on; ``read`` shows them, and they stand in ``file``."""
    ledger = records.ledger
    return Rows(
        ledger.key,
        ledger.noun,
        ledger.plural,
        place,
        records.rows,
        read,
        before=file.before,
        needs=file.needs,
        date=ledger.date,
    )


__all__ = ["EVENTS", "PITCHES", "PROSE", "TABLES", "TILE_COLOURS", "Chart", "Letter", "Tiles", "Tones", "chart"]
__all__ += ["database", "dated_letter", "hiding", "letter", "mail_box", "merging", "name_list"]
__all__ += [
    "read_document",
    "read_letter",
    "rows_of",
    "scoring",
    "sheet_rows",
    "stated",
    "statements",
    "stating",
    "table_read",
]
__all__ += ["tabulated", "tiles", "together", "tones"]
