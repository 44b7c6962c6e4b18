"""Sources of prose: letters, statements in documents, mails and slides, lists of names."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from aworld_gym.types import PlanStep
from envs.gaia.render import Bullets, Content, Doc, Mail, Sheet, Slide, Slides
from envs.gaia.terms import Box, Draft, File, Kind, Term
from envs.gaia.world import Table

# --- letters -------------------------------------------------------------------------------------------------------

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


def dated_letter(
    draft: Draft, table: Table, name: str, date: str, ending: str = "", box: Box | None = None
) -> tuple[Term, Term]:
    """A letter about an entity, attached: the entity that it is about, and the date of what it reports."""
    sent = letter(draft, name, draft.pick(EVENTS), date)
    stem = f"{draft.pick(('letter', 'report', 'notice'))}_{draft.rng.randrange(10, 100)}"
    file = draft.put(f"{stem}.{ending or draft.pick(('pdf', 'docx', 'txt', 'md'))}", sent.doc, box)
    steps = (*file.before, read_letter(file.path, sent))
    about = draft.phrase("subject", noun=table.name, file=file.ref)
    held = draft.phrase("event_date", event=sent.event, file=file.ref)
    return Term("text", name, about, steps, file.needs), Term("date", date, held, steps, file.needs)


# --- statements ----------------------------------------------------------------------------------------------------

QUANTITIES: Mapping[str, Sequence[tuple[str, str]]] = MappingProxyType(
    {
        "number": (
            ("delivery fee", "crowns"),
            ("deposit", "crowns"),
            ("insured sum", "crowns"),
            ("storage limit", "kilograms"),
            ("minimum order", "pieces"),
            ("guest count", ""),
            ("target", ""),
            ("reserve", "crowns"),
        ),
        "code": (("access code", ""), ("reference code", ""), ("order code", ""), ("locker code", "")),
        "word": (("key word", ""), ("chosen category", ""), ("topic agreed on", "")),
        "name": (("first choice", ""), ("final choice", ""), ("nominee", ""), ("winner of the draw", "")),
        "date": (("closing date", ""), ("review date", ""), ("delivery date", "")),
        "rate": (("refund rate", "percent"), ("discount rate", "percent"), ("interest rate", "percent")),
    }
)
"""What documents state, by what it is: (quantity, unit)."""
KINDS: Mapping[str, Kind] = MappingProxyType(
    {"number": "int", "rate": "int", "code": "code", "word": "text", "name": "text", "date": "date"}
)
"""What is carried or stated -> kind of the term."""


def random_code(draft: Draft) -> str:
    """A code that nobody guesses and that every medium can carry, such as ``QX7401K``."""
    letters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
    start, end = (draft.pick(letters) + draft.pick(letters) for _ in range(2))
    return f"{start}{draft.rng.randrange(100, 1000)}{end[: draft.rng.randrange(1, 3)]}"


def random_date(draft: Draft) -> str:
    """A day between 2005 and 2024."""
    first = datetime.date(2005, 1, 1).toordinal()
    return datetime.date.fromordinal(first + draft.rng.randrange(20 * 365)).isoformat()


def statements(draft: Draft, said: Mapping[str, tuple[str, str]], *, more: int = 3) -> tuple[str, ...]:
    """Sentences that state quantities, in random order.

    Args:
        draft: the draft.
        said: quantity -> (value, unit).
        more: how many other quantities are stated too.
    """
    stated = dict(said)
    others = [(what, *one) for what, ones in QUANTITIES.items() for one in ones if one[0] not in stated]
    for what, quantity, unit in draft.some(others, more):
        stated[quantity] = (_other_value(draft, what), unit)
    sentences = [f"The {name} is {value}{unit and ' '}{unit}." for name, (value, unit) in stated.items()]
    return tuple(draft.some(sentences, len(sentences)))


def _other_value(draft: Draft, what: str) -> str:
    if what == "number":
        return str(draft.rng.randrange(20, 9000))
    if what == "rate":
        return str(draft.rng.randrange(3, 60))
    if what == "word":
        return draft.pick(("spring", "transport", "glass", "music", "travel", "harbours"))
    if what == "name":
        return str(draft.pick(draft.table().rows)["name"])
    return random_code(draft) if what == "code" else random_date(draft)


_TITLES = ("Conditions", "Notes", "Agreement", "Arrangements", "Memo", "Summary")
_STEMS = ("conditions", "notes", "agreement", "arrangements", "memo", "summary")


def stating(
    draft: Draft,
    what: str,
    value: str | int,
    ending: str = "",
    box: Box | None = None,
    *,
    notes: bool = False,
    quantity: str = "",
) -> Term:
    """A value as a document states it.

    Args:
        draft: the draft.
        what: a key of :data:`QUANTITIES`.
        value: what is stated.
        ending: ``txt``, ``md``, ``html``, ``docx``, ``pdf``, ``pptx`` or ``eml``; a random document by default.
        box: what the file is put into.
        notes: whether it stands in the speaker notes (of a pptx); the slide itself states another value.
        quantity: what the value is called; by default a random one of its kind.
    """
    quantity, unit = draft.pick([one for one in QUANTITIES[what] if quantity in ("", one[0])])
    ending = "pptx" if notes else ending or draft.pick(("txt", "md", "html", "docx", "pdf"))
    said = {quantity: (str(value), unit)}
    if notes:
        other = {quantity: (_other_value(draft, what), unit)}
        content: Content = _slides(draft, statements(draft, other), statements(draft, said, more=1))
    else:
        content = _document(draft, ending, statements(draft, said))
    file = draft.put(f"{draft.pick(_STEMS)}_{draft.rng.randrange(10, 100)}.{ending}", content, box)
    return stated(draft, file, what, value, quantity, notes=notes)


def stated(draft: Draft, file: File, what: str, value: str | int, quantity: str, *, notes: bool = False) -> Term:
    """A value that a file states."""
    phrase = draft.phrase("noted" if notes else "stated", quantity=quantity, file=file.ref)
    unit = next(unit for ones in QUANTITIES.values() for name, unit in ones if name == quantity)
    step = PlanStep("read_document", {"path": file.path}, (f"{quantity} is {value}{unit and ' '}{unit}",))
    return Term(KINDS[what], value, phrase, (*file.before, step), file.needs)


def _document(draft: Draft, ending: str, sentences: Sequence[str]) -> Content:
    title = draft.pick(_TITLES)
    if ending == "eml":
        return _mail(draft, title, sentences, ())
    if ending == "pptx":
        return _slides(draft, sentences, ("Please keep to the time.",))
    if draft.rng.random() < 0.5:
        return Doc(title, (draft.pick(_SMALL_TALK), Bullets(tuple(sentences))))
    return Doc(title, (*sentences[:2], draft.pick(_SMALL_TALK), *sentences[2:]))


def _slides(draft: Draft, sentences: Sequence[str], notes: Sequence[str]) -> Slides:
    half = len(sentences) // 2
    spare = draft.pick(_SMALL_TALK)
    parts = [(tuple(sentences[:half]), ""), (tuple(sentences[half:]), ""), ((spare,), "")]
    spoken = draft.rng.randrange(len(parts))
    parts[spoken] = (parts[spoken][0], " ".join(notes))
    title = draft.pick(_TITLES)
    return Slides(
        title, tuple(Slide(f"{title} {i}", (Bullets(said),), note) for i, (said, note) in enumerate(parts, 1))
    )


_SENDERS = ("office", "archive", "registry", "secretary", "desk")


def _mail(draft: Draft, subject: str, sentences: Sequence[str], attachments: tuple[tuple[str, Content], ...]) -> Mail:
    one, other = draft.some(_SENDERS, 2)
    date = f"{random_date(draft)}T{draft.rng.randrange(7, 19):02d}:{draft.rng.randrange(60):02d}"
    return Mail(f"{one}@example.org", (f"{other}@example.org",), subject, date, tuple(sentences), attachments)


def mail_box(draft: Draft, sentences: Sequence[str], within: Box | None = None) -> Box:
    """A mail that says these sentences, to which files can be attached."""
    text = (draft.pick(_OPENINGS), *sentences, draft.pick(_CLOSINGS))
    blank = _mail(draft, draft.pick(_TITLES), text, ())

    def make(members: tuple[tuple[str, Content], ...]) -> Mail:
        return Mail(blank.sender, blank.to, blank.subject, blank.date, blank.body, members)

    return Box(draft, f"{draft.pick(('mail', 'message', 'inbox'))}_{draft.rng.randrange(10, 100)}.eml", make, within)


# --- lists of names ------------------------------------------------------------------------------------------------


def name_list(draft: Draft, table: Table, names: Sequence[str], ending: str, box: Box | None = None) -> Term:
    """Entities that a document lists, one a line: its value is their names."""
    word = draft.say("Stop", "Item", "Place")
    items = Bullets(tuple(f"{word} {i}: {name}" for i, name in enumerate(names, 1)))
    blocks = (f"These {table.plural} are under discussion:", items)
    stem = f"{draft.pick(('itinerary', 'shortlist', 'agenda'))}_{draft.rng.randrange(10, 100)}"
    file = draft.put(f"{stem}.{ending}", Doc("For the committee", blocks), box)
    read = PlanStep("read_document", {"path": file.path}, tuple(names))
    said = draft.phrase("listed", plural=table.plural, file=file.ref)
    return Term("names", tuple(names), said, (*file.before, read), file.needs)
