"""Questions about archives."""

from __future__ import annotations

from dataclasses import replace

from aworld_gym.types import PlanStep
from envs.gaia.ledgers import draw_ledger, draw_records
from envs.gaia.operators import fact, total, where
from envs.gaia.render import Archive, Doc
from envs.gaia.sources import EVENTS, letter, read_letter, rows_of
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term, require

_STEMS = ("bundle", "delivery", "archive", "backup")


@template("zip-final", level=2)
def zip_final(draft: Draft) -> Question:
    """A note in an archive says which table of the archive within counts; then a total over a selection."""
    ledger = draw_ledger(draft)
    names = draft.some(("draft", "copy", "revised", "old", "checked"), 3)
    base = draft.pick(ledger.stems)
    parts = [draw_records(draft, draft.rng.randrange(18, 34), ledger=ledger) for _ in names]
    chosen = draft.rng.randrange(len(names))
    files = [f"{base}_{name}.csv" for name in names]
    stem, inner = f"{draft.pick(_STEMS)}_{draft.rng.randrange(10, 100)}", draft.say("tables", "data", "figures")
    note, ending = draft.say("note", "readme", "message"), draft.pick(("txt", "md", "docx"))
    said = (
        f"Only {files[chosen]} has the final figures.",
        f"The file {files[chosen - 1]} was withdrawn in March.",
        draft.say(f"All tables are in {inner}.zip.", f"Please unpack {inner}.zip as well."),
    )
    content = Archive(
        (
            (f"{note}.{ending}", Doc("Please read", tuple(draft.some(said, 3)))),
            (f"{inner}.zip", Archive(tuple(zip(files, (part.sheet() for part in parts), strict=True)))),
        )
    )
    archive = draft.attach(f"{stem}.zip", content)
    before = (
        PlanStep("unpack_archive", {"path": archive}, (f"{stem}/{note}.{ending}", f"{stem}/{inner}.zip")),
        PlanStep("read_document", {"path": f"{stem}/{note}.{ending}"}, (said[0],)),
        PlanStep("unpack_archive", {"path": f"{stem}/{inner}.zip"}, (f"{stem}/{inner}/{files[chosen]}",)),
    )
    place = draft.say(f"in the final table of {archive}", f"in that table inside {archive} which its note calls final")
    read = PlanStep("read_table", {"path": f"{stem}/{inner}/{files[chosen]}"})
    needs = frozenset({f"{archive}!{note}.{ending}", f"{archive}!{inner}.zip!{files[chosen]}"})
    rows = replace(rows_of(parts[chosen], place, read, archive), before=before, needs=needs)
    rows = where(draft, rows, ledger.group, draft.pick(ledger.groups))
    return draft.ask(total(draft, rows, draft.pick(ledger.measures).label))


@template("zip-letters-web", level=2)
def zip_letters_web(draft: Draft) -> Question:
    """Which of the letters in an archive reports the first or last event, and a fact about its entity."""
    table, event = draft.table(), draft.pick(EVENTS)
    entities = draft.some(table.rows, 3)
    year = draft.rng.randrange(2005, 2024)
    dates = sorted(f"{year}-{month:02d}-{draft.rng.randrange(1, 29):02d}" for month in draft.some(range(1, 13), 3))
    draft.rng.shuffle(dates)
    letters = [letter(draft, row["name"], event, date) for row, date in zip(entities, dates, strict=True)]
    endings = [draft.pick(("docx", "txt", "md")) for _ in letters]
    files = [f"letter_{i}.{ending}" for i, ending in enumerate(endings, 1)]
    stem = f"{draft.pick(('letters', 'mail', 'post'))}_{draft.rng.randrange(10, 100)}"
    content = Archive(tuple((file, sent.doc) for file, sent in zip(files, letters, strict=True)))
    archive = draft.attach(f"{stem}.zip", content)
    last = draft.rng.random() < 0.5
    chosen = max(letters, key=lambda sent: sent.date) if last else min(letters, key=lambda sent: sent.date)
    require(len(set(dates)) == len(dates), "two events on one day")
    steps = (
        PlanStep("unpack_archive", {"path": archive}, tuple(f"{stem}/{file}" for file in files)),
        *(read_letter(f"{stem}/{file}", sent) for file, sent in zip(files, letters, strict=True)),
    )
    order = draft.say("last", "latest") if last else draft.say("first", "earliest")
    phrase = f"the {table.name} that had the {order} {event} by the letters in {archive}"
    found = Term("text", chosen.entity, phrase, steps, frozenset(f"{archive}!{file}" for file in files))
    return draft.ask(fact(found, table, draft.pick(table.of_kind("text", "person", "int", "date"))))
