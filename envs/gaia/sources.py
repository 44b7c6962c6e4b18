"""Sources: they put drawn records, pictures and letters into files, and give what operators work on."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from aworld_gym.types import PlanStep
from envs.gaia.ledgers import Records
from envs.gaia.render import Book, Bullets, Data, Doc, Grid, Sheet
from envs.gaia.terms import Draft, Rows, Term

# --- tables ----------------------------------------------------------------------------------------------------


def table_file(draft: Draft, records: Records, ending: str) -> Rows:
    """The records in a csv or tsv file of their own."""
    name = draft.attach(f"{records.stem(draft)}.{ending}", records.sheet())
    return rows_of(records, _listed(draft, name), table_read(name, len(records.rows)), name)


def json_file(draft: Draft, records: Records) -> Rows:
    """The records in a json file: an object with a title and a list of objects."""
    name = f"{records.stem(draft)}.json"
    value = {
        "about": f"{records.ledger.plural}, as reported",
        records.ledger.plural: [dict(row) for row in records.rows],
    }
    draft.attach(name, Data(value))
    return rows_of(records, _listed(draft, name), PlanStep("read_document", {"path": name}), name)


def document_file(draft: Draft, records: Records, ending: str) -> Rows:
    """The records as a table in a document (docx, pdf, html, md or txt), with some prose around it."""
    plural = records.ledger.plural
    blocks = (
        draft.say(f"This note lists {plural} that were reported to us.", f"Below are the {plural} on record."),
        records.sheet(),
        draft.say("Please report errors to the office.", "Checked by the office.", "Further details are kept on file."),
    )
    name = draft.attach(f"{records.stem(draft)}.{ending}", Doc(plural.capitalize(), blocks))
    return rows_of(records, _listed(draft, name), PlanStep("read_document", {"path": name}), name)


def sheet_rows(draft: Draft, records: Records, book: str, sheet: str) -> Rows:
    """The records on a sheet of the workbook ``book``, which is attached with :func:`workbook`."""
    place = draft.say(f"on sheet {sheet} of {book}", f"listed on sheet {sheet} of {book}")
    return rows_of(records, place, PlanStep("read_table", {"path": book, "sheet": sheet}), book)


def workbook(draft: Draft, name: str, sheets: Sequence[tuple[str, Sheet]]) -> str:
    """Attach a workbook with these sheets."""
    return draft.attach(name, Book(tuple(sheets)))


def table_read(path: str, rows: int) -> PlanStep:
    """Reading a whole table of ``rows`` rows (the tool shows 50 unless told)."""
    return PlanStep("read_table", {"path": path} if rows <= 50 else {"path": path, "rows": rows})


def _listed(draft: Draft, name: str) -> str:
    return draft.say(f"in {name}", f"listed in {name}")


def rows_of(records: Records, place: str, read: PlanStep, file: str) -> Rows:
    """All of the records, as what operators work on; ``read`` shows them, and they stand in the attached ``file``."""
    ledger = records.ledger
    return Rows(ledger.key, ledger.noun, ledger.plural, place, records.rows, read, needs=frozenset({file}))


# --- pictures --------------------------------------------------------------------------------------------------

TILE_COLOURS = ("red", "green", "blue", "yellow", "orange", "purple")


@dataclass(frozen=True)
class Tiles:
    """An attached picture of coloured tiles."""

    file: str
    counts: dict[str, int]

    def described(self, *colours: str) -> PlanStep:
        """The description, which shows how many tiles of these colours there are."""
        shows = tuple(f"{colour} {self.counts[colour]}" for colour in colours)
        return PlanStep("describe_image", {"path": self.file}, shows)


def tiles(draft: Draft, stems: Sequence[str]) -> Tiles:
    """A picture of 6 to 12 by 6 to 12 tiles in four colours."""
    rng = draft.rng
    colours = draft.some(TILE_COLOURS, 4)
    width, height = rng.randrange(6, 13), rng.randrange(6, 13)
    cells = tuple(tuple(rng.choice(colours) for _ in range(width)) for _ in range(height))
    counts = {colour: sum(row.count(colour) for row in cells) for colour in colours}
    name = draft.attach(f"{draft.pick(stems)}.png", Grid(cells))
    return Tiles(name, counts)


# --- letters ---------------------------------------------------------------------------------------------------

EVENTS = ("inspection", "audit", "survey", "visit", "review")
_OPENINGS = ("Dear colleagues,", "To whom it may concern,", "Dear office,")
_CLOSINGS = ("With kind regards,", "Yours sincerely,", "Best wishes,")
_SMALL_TALK = (
    "The usual forms were filled in and no complaint was raised.",
    "Everyone was helpful, and the weather was kind to us.",
    "A longer report will follow when the samples are back.",
    "Expenses will be claimed separately.",
    "Please file this letter with the others.",
)


@dataclass(frozen=True)
class Letter:
    """A letter that reports one event at one entity; other dates in it mean other things."""

    entity: str
    event: str
    date: str
    doc: Doc


def letter(draft: Draft, entity: str, event: str, date: str) -> Letter:
    """A letter, not attached yet."""
    when = datetime.date.fromisoformat(date)
    written = when + datetime.timedelta(days=draft.rng.randrange(3, 40))
    due = written + datetime.timedelta(days=draft.rng.randrange(20, 90))
    blocks: tuple[str | Bullets | Sheet, ...] = (
        f"Written on {written.isoformat()}",
        f"Subject: {event} of {entity}",  # short enough to stand on one line, so that the name can be searched for
        draft.pick(_OPENINGS),
        draft.say(
            f"The {event} took place on {date}. {draft.pick(_SMALL_TALK)}",
            f"{draft.pick(_SMALL_TALK)} The {event} took place on {date}.",
        ),
        draft.say(
            f"An answer is expected by {due.isoformat()}.", f"The next letter will be sent on {due.isoformat()}."
        ),
        draft.pick(_CLOSINGS),
    )
    return Letter(entity, event, date, Doc(f"{event.capitalize()} report", blocks))


def read_letter(path: str, sent: Letter) -> PlanStep:
    """Reading a letter, which shows entity and date."""
    return PlanStep("read_document", {"path": path}, (sent.entity, sent.date))


# --- lists of names --------------------------------------------------------------------------------------------


def listed_names(step: PlanStep, phrase: str, *files: str) -> Term:
    """A place where names or numbers stand, as a term: what reads it, how it is called, which files it needs."""
    return Term("names", (), phrase, (step,), frozenset(files))
