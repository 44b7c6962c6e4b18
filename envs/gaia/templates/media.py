"""Level 1 on pictures, recordings and programs."""

from __future__ import annotations

from envs.gaia.carriers import carry
from envs.gaia.makers import NUMBERS, printed_number
from envs.gaia.operators import gap, literal, plus, times
from envs.gaia.sources import PITCHES, chart, tiles, tones
from envs.gaia.sources_documents import random_code
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term


@template("png-price", level=1)
def png_price(draft: Draft) -> Question:
    """Counts of two colours in a picture, times prices in the question."""
    picture = tiles(draft)
    one, other = (picture.number(draft, colour) for colour in draft.some(list(picture.counts), 2))
    return draft.ask(priced(draft, one, other))


@template("wav-tones", level=1)
def wav_tones(draft: Draft) -> Question:
    """Counts of two pitches in a recording, times prices in the question."""
    recording = tones(draft)
    one, other = (recording.number(draft, pitch) for pitch in draft.some(PITCHES, 2))
    return draft.ask(priced(draft, one, other))


@template("chart-heights", level=1)
def chart_heights(draft: Draft) -> Question:
    """The heights of two bars of a chart, one of them weighed."""
    labels = draft.some(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat"), 5) if draft.rng.random() < 0.5 else ()
    picture = chart(draft, labels)
    one, other = (picture.number(draft, colour) for colour in draft.some(list(picture.heights), 2))
    return draft.ask(gap(draft, times(draft, literal(draft.rng.randrange(2, 10)), one), other))


@template("qr-sum", level=1)
def qr_sum(draft: Draft) -> Question:
    """Numbers in two QR codes."""
    return draft.ask(arithmetic(draft, NUMBERS["qr"].make(draft), NUMBERS["qr"].make(draft)))


@template("lettered-sum", level=1)
def lettered_sum(draft: Draft) -> Question:
    """Numbers written in two pictures."""
    return draft.ask(arithmetic(draft, NUMBERS["lettered"].make(draft), NUMBERS["lettered"].make(draft)))


@template("wav-dialled", level=1)
def wav_dialled(draft: Draft) -> Question:
    """Numbers dialled in two recordings."""
    return draft.ask(arithmetic(draft, NUMBERS["dialled"].make(draft), NUMBERS["dialled"].make(draft)))


@template("wav-morse", level=1)
def wav_morse(draft: Draft) -> Question:
    """A code in Morse code, or a calculation with two numbers in it."""
    if draft.rng.random() < 0.4:
        return draft.ask(carry(draft, "morse", "code", random_code(draft)))
    return draft.ask(arithmetic(draft, NUMBERS["morse"].make(draft), NUMBERS["morse"].make(draft)))


@template("py-output", level=1)
def py_output(draft: Draft) -> Question:
    """What a program prints, or a calculation with what two programs print."""
    printed = printed_number(draft)
    if draft.rng.random() < 0.5:
        printed = draft.pick((gap, plus))(draft, printed, printed_number(draft))
    return draft.ask(printed)


def arithmetic(draft: Draft, a: Term, b: Term) -> Term:
    """The difference, the sum or the product of two numbers."""
    return draft.pick((gap, plus, times))(draft, a, b)


def priced(draft: Draft, a: Term, b: Term) -> Term:
    """Each of two counts times a price in the question, added up."""
    one, other = draft.rng.sample(range(3, 60), 2)
    return plus(draft, times(draft, literal(one), a), times(draft, literal(other), b))
