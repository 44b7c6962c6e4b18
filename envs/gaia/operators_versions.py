"""Versions of one document that contradict each other, and the rules that say which one counts.

Each operator attaches all versions and gives the one that counts as a :class:`Version`, a kind of
:class:`~envs.gaia.terms.File`, so that whatever reads files works on it. A version is found by its title, not by its
name: names of versions tell nothing. The calls read the other versions too, as a careful person does; only the one
that counts is needed.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aworld_gym.types import PlanStep
from envs.gaia.render import Bullets, Content, Doc, Sheet
from envs.gaia.terms import Draft, File, Term, require

Body = Sequence[str | Bullets | Sheet]
"""What one version says."""


@dataclass(frozen=True)
class Version(File):
    """The version of a document that counts."""

    rule: frozenset[str] = frozenset()
    """What must be known to tell that it is this one: needs of a date or of an entity."""

    @property
    def needs(self) -> frozenset[str]:
        """The file, and what tells that it counts."""
        return super().needs | self.rule


DOCUMENTS = (
    "delivery tariff",
    "duty roster",
    "supply plan",
    "price circular",
    "standing order",
    "service contract",
    "site protocol",
    "budget statement",
)
"""Titles of documents of which there are versions; no other file of a task has one of them as its title."""
_ENDINGS = ("txt", "md", "html", "txt", "md", "docx")
_FIRST_DAY, _LAST_DAY = datetime.date(2008, 1, 1).toordinal(), datetime.date(2025, 12, 31).toordinal()


def latest_signed(draft: Draft, title: str, bodies: Sequence[Body]) -> Version:
    """The latest signed one of several versions; later ones are no more than drafts, or were withdrawn.

    Any place in time is as likely as any other: who does not read what is signed can only guess.

    Args:
        draft: the draft.
        title: what all versions are called, in lower case.
        bodies: what each says, that of the one that counts first; three or more.
    """
    require(len(bodies) >= 3, "too few versions")
    days = sorted(draft.some(range(_FIRST_DAY, _LAST_DAY), len(bodies)), reverse=True)
    later = draft.rng.randrange(len(bodies))
    states = [draft.pick(("draft", "withdrawn")) for _ in range(later)] + ["signed"]
    states += [draft.pick(("signed", "signed", "draft", "withdrawn")) for _ in days[later + 1 :]]
    lines = [
        (f"Dated: {datetime.date.fromordinal(day).isoformat()}", f"Status: {state}")
        for day, state in zip(days, states, strict=True)
    ]
    lines.insert(0, lines.pop(later))
    return _attached(draft, title, lines, bodies, draft.phrase("latest_signed", document=title))


def in_force(draft: Draft, title: str, bodies: Sequence[Body], date: Term) -> Version:
    """The version in force on a day, among older ones and later ones.

    Any place in time is as likely as any other: who does not know the day can only guess.

    Args:
        draft: the draft.
        title: what all versions are called, in lower case.
        bodies: what each says, that of the one that counts first; three or more.
        date: the day.
    """
    require(len(bodies) >= 3, "too few versions")
    day = datetime.date.fromisoformat(date.value).toordinal()
    starts = [day - draft.rng.randrange(5, 400)]
    later = draft.rng.randrange(len(bodies))
    for number in range(len(bodies) - 1):
        starts.append(
            max(*starts, day) + draft.rng.randrange(5, 400)
            if number < later
            else min(starts) - draft.rng.randrange(40, 500)
        )
    lines = [(f"In force from: {datetime.date.fromordinal(start).isoformat()}",) for start in starts]
    found = _attached(draft, title, lines, bodies, draft.phrase("in_force", document=title, date=date.phrase))
    return replace(found, before=(*date.steps, *found.before), rule=date.needs)


def issued_by(draft: Draft, title: str, bodies: Sequence[Body], issuer: Term, others: Sequence[str]) -> Version:
    """The version that an entity issued, whoever that is.

    Args:
        draft: the draft.
        title: what all versions are called, in lower case.
        bodies: what each says, that of the one that counts first; two or more.
        issuer: the entity.
        others: who issued the other versions; as many as those.
    """
    require(len({issuer.value, *others}) == len(bodies), "two versions by one issuer")
    lines = [(f"Issued by: {name}",) for name in (issuer.value, *others)]
    found = _attached(draft, title, lines, bodies, draft.phrase("issued_by", document=title, entity=issuer.phrase))
    return replace(found, before=(*issuer.steps, *found.before), rule=issuer.needs)


def _attached(draft: Draft, title: str, lines: Sequence[tuple[str, ...]], bodies: Sequence[Body], said: str) -> Version:
    """Attach the versions in an order and under names that tell nothing; gives the first of them."""
    stem = draft.pick((title, title.split()[-1])).replace(" ", "_")
    style = draft.pick((("a", "b", "c", "d", "e"), ("1", "2", "3", "4", "5"), ("v1", "v2", "v3", "v4", "v5")))
    marks = draft.some(style[: len(bodies)], len(bodies))
    ending = draft.pick(_ENDINGS)
    files, reads = [], []
    for mark, line, body in zip(marks, lines, bodies, strict=True):
        content: Content = Doc(title.capitalize(), (*draft.some(line, len(line)), *body))
        file = draft.put(f"{stem}_{mark}.{ending}", content)
        files.append(file)
        reads.append(PlanStep("read_document", {"path": file.path}, line))
    order = sorted(range(len(files)), key=lambda i: files[i].path)
    chosen = files[0]
    return Version(said, chosen.path, chosen.need, tuple(reads[i] for i in order))
