"""Questions about pictures: coloured tiles and bar charts."""

from __future__ import annotations

from aworld_gym.types import PlanStep
from envs.gaia.operators import calculation, fact
from envs.gaia.render import Bars, Doc, Sheet
from envs.gaia.sources import TILE_COLOURS, tiles
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term

_STEMS = ("tiles", "floor", "mosaic", "quilt", "pattern")


@template("png-price", level=1)
def png_price(draft: Draft) -> Question:
    """Counts of two colours in a picture, times the prices in the question."""
    picture = tiles(draft, _STEMS)
    one, other = draft.some(list(picture.counts), 2)
    a, b = draft.rng.sample(range(3, 60), 2)
    value = a * picture.counts[one] + b * picture.counts[other]
    prices = f"{a} crowns for each {one} and {b} crowns for each {other} tile"
    phrase = draft.say(
        f"the total price of all {one} and {other} tiles in {picture.file}, at {prices}",
        f"the cost of the {one} and {other} tiles in {picture.file} together, at {prices}",
    )
    bill = calculation(f"{a} * {picture.counts[one]} + {b} * {picture.counts[other]}", value)
    return draft.ask(Term("int", value, phrase, (picture.described(one, other), bill), frozenset({picture.file})))


@template("png-csv-bill", level=2)
def png_csv_bill(draft: Draft) -> Question:
    """A picture's tiles, a price list and a delivery fee in three files."""
    picture = tiles(draft, _STEMS)
    prices = dict(zip(TILE_COLOURS, draft.rng.sample(range(3, 90), len(TILE_COLOURS)), strict=True))
    fee, free = draft.rng.randrange(20, 400), draft.rng.randrange(4, 30)
    order = draft.some(TILE_COLOURS, len(TILE_COLOURS))
    price_list = draft.attach(
        f"{draft.say('prices', 'price_list', 'tariff')}.csv",
        Sheet(("Colour", "Price"), tuple((c, prices[c]) for c in order)),
    )
    text = (
        f"The delivery fee is {fee} crowns for every order.",
        f"There are {free} samples in the box, which are free of charge.",
    )
    terms = draft.attach(
        f"{draft.say('delivery', 'conditions', 'terms')}.docx", Doc("Delivery", tuple(draft.some(text, 2)))
    )
    value = fee + sum(prices[colour] * count for colour, count in picture.counts.items())
    expression = " + ".join(f"{count} * {prices[colour]}" for colour, count in picture.counts.items())
    steps = (
        picture.described(*picture.counts),
        PlanStep("read_table", {"path": price_list}, tuple(f"{colour},{prices[colour]}" for colour in picture.counts)),
        PlanStep("read_document", {"path": terms}, (f"fee is {fee} crowns",)),
        calculation(f"{expression} + {fee}", value),
    )
    phrase = draft.say(
        f"the bill in crowns for all tiles in {picture.file} at the prices in {price_list} with the fee in {terms}",
        f"the total price in crowns of the tiles in {picture.file} by {price_list}, the fee in {terms} included",
    )
    return draft.ask(Term("int", value, phrase, steps, frozenset({picture.file, price_list, terms})))


@template("chart-csv-web", level=2)
def chart_csv_web(draft: Draft) -> Question:
    """The highest or lowest bar of a chart, what its colour stands for, and a fact about that."""
    table = draft.table()
    colours = draft.some(TILE_COLOURS, draft.rng.randrange(4, 7))
    heights = [20 + 14 * step for step in draft.rng.sample(range(18), len(colours))]
    chart = draft.attach(
        f"{draft.say('chart', 'figure', 'bars')}_{draft.rng.randrange(10, 100)}.png",
        Bars(tuple(zip(colours, heights, strict=True))),
    )
    names = {colour: row["name"] for colour, row in zip(colours, draft.some(table.rows, len(colours)), strict=True)}
    legend = draft.attach(
        f"{draft.say('legend', 'key', 'colours')}.csv",
        Sheet(
            ("Colour", table.name.capitalize()),
            tuple((colour, names[colour]) for colour in draft.some(colours, len(colours))),
        ),
    )
    high = draft.rng.random() < 0.5
    chosen = colours[heights.index(max(heights) if high else min(heights))]
    shows = tuple(f"{colour}: height {height} px" for colour, height in zip(colours, heights, strict=True))
    steps = (
        PlanStep("describe_image", {"path": chart}, shows),
        PlanStep("read_table", {"path": legend}, (f"{chosen},{names[chosen]}",)),
    )
    superlative = draft.say("highest", "tallest") if high else draft.say("lowest", "shortest")
    phrase = f"the {table.name} that has the {superlative} bar in {chart}, whose colours {legend} explains"
    found = Term("text", names[chosen], phrase, steps, frozenset({chart, legend}))
    return draft.ask(fact(found, table, draft.pick(table.of_kind("text", "person", "int", "date"))))
