"""An independent solver agrees with every answer, and fails where anything that a question needs is missing."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import gaia_findings
import gaia_grammar
import gaia_media
import gaia_places
import gaia_readers
import gaia_solver
import pytest
from gaia_evidence import UNSOLVED, answer_of
from gaia_grammar import ATTRIBUTES, Reader
from gaia_solver import Solver

from aworld_gym.types import Task
from envs.gaia import wording
from envs.gaia.render import Bars, Beeps, Dtmf, Lettering, Morse, Qr, render
from envs.gaia.splits import SPLITS
from envs.gaia.tasks import GaiaTasks
from envs.gaia.templates import templates
from envs.gaia.world import TRAINING_FLAVOURS, pages

EVERY = [(one.name, flavour) for one in templates().values() for flavour in TRAINING_FLAVOURS]
PER_TEMPLATE_AND_WORLD = 2


def task_of(template: str, flavour: str, number: int) -> Task:
    split = templates()[template].split
    return GaiaTasks(split).get(f"gaia/{split}/{flavour}/{template}/{number:06d}")


def test_the_solver_shares_nothing_with_the_generator_or_the_tools() -> None:
    """Not a line of the project, and none of the libraries that the tools read files with."""
    for module in (gaia_solver, gaia_places, gaia_findings, gaia_grammar, gaia_readers, gaia_media):
        imported = set(re.findall(r"^\s*(?:import|from) (\w+)", Path(module.__file__).read_text(), re.M))
        tools = {"envs", "aworld_gym", "openpyxl", "docx", "pptx", "pypdf", "zxingcpp", "lxml", "defusedxml"}
        assert imported and not imported & tools


def test_more_than_two_hundred_tasks_of_every_split_are_solved() -> None:
    assert len(EVERY) * PER_TEMPLATE_AND_WORLD > 200
    assert {templates()[name].split for name, _ in EVERY} == set(SPLITS)


@pytest.mark.parametrize(("template", "flavour"), EVERY)
def test_the_solver_agrees(template: str, flavour: str, tmp_path: Path) -> None:
    source = GaiaTasks(templates()[template].split)
    for number in range(PER_TEMPLATE_AND_WORLD):
        task = task_of(template, flavour, 700_000 + number)
        (folder := tmp_path / str(number)).mkdir()
        found = answer_of(task, folder)
        assert found == task.answer["text"], task.prompt
        verdict = source.score(task, found)
        assert verdict is not None and verdict.value == 1.0


@pytest.mark.parametrize(("template", "flavour"), EVERY)
def test_a_question_can_be_read_in_one_way(template: str, flavour: str, tmp_path: Path) -> None:
    for number in range(3):
        task = task_of(template, flavour, 600_000 + number)
        assert set(Solver(task.prompt, tmp_path, pages(task.public["corpus"])).readings()) == {1}, task.prompt


@pytest.mark.parametrize(("template", "flavour"), [pair for pair in EVERY if templates()[pair[0]].level > 1])
def test_nothing_that_is_needed_may_be_missing(template: str, flavour: str, tmp_path: Path) -> None:
    task = task_of(template, flavour, 42)
    assert len(task.metadata["needs"]) >= 2
    for number, need in enumerate(task.metadata["needs"]):
        (folder := tmp_path / str(number)).mkdir()
        try:
            found = answer_of(task, folder, without=need)
        except UNSOLVED:
            continue
        assert found != task.answer["text"], f"{need} is not needed for {task.prompt!r}"


def test_all_needs_are_named() -> None:
    """What a plan reads is among the task's needs, or a decoy among its files."""
    for template, flavour in EVERY:
        task = task_of(template, flavour, 43)
        needs = {need.split("!")[0] for need in task.metadata["needs"]}
        assert {name for name in needs if "://" not in name} <= set(task.metadata["files"])
        read = {step.arguments["url"] for step in task.plan if step.tool == "open_page"}
        assert needs >= read


# --- the solver's grammar and that of the questions ------------------------------------------------------------------

NAMES = (
    "Quiet Heron",
    "Oranmouth",
    "Man and woman holding hands",
    "Foo International Airport",
    "Guinea",
    "Guinea-Bissau",
)
ROLES = ("the candidate", "the day in question", "the base figure", "the token")
WORDS = {
    "int": ("412", "7"),
    "decimal": ("0.3048", "2"),
    "measure": ("load", "work time", "passenger count"),
    "label": ("cargo", "department"),
    "key": ("ship", "country"),
    "value": ('"salt"', '"Main hall"'),
    "noun": ("voyage", "ship", "station"),
    "plural": ("voyages", "weather stations"),
    "name": NAMES,
    "attribute": tuple(ATTRIBUTES),
    "ordinal": wording.ORDINALS,
    "superlative": (*wording.HIGH, *wording.LOW),
    "colour": ("red", "blue"),
    "pitch": ("high", "middle", "low"),
    "what": ("number", "code", "word", "name", "date"),
    "quantity": ("delivery fee", "topic agreed on", "winner of the draw", "insured sum"),
    "event": ("visit", "audit"),
    "order": ("first", "earliest", "last", "latest"),
    "list": ("spring", "reserve"),
    "label_of_bar": ('"Quiet Heron"',),
    "sheet": ("North", "2019"),
    "table": ("voyages", "weather_stations"),
    "cell": ("B7",),
    "year": ("2019",),
    "unit": ("whole metres", "degrees Rankine", "metres per foot"),
    "filename": ("a.csv", "log-3_2.xlsx", "mail_12.eml"),
    "document": ("delivery tariff", "price circular"),
    "role": ROLES,
}
SMALL = {"number": "literal", "date": "stated", "text": "qr", "entity": "named", "row": "referenced", "rows": "all"} | {
    "place": "in_file",
    "entities": "listed",
    "names": "missing",
    "file": "file",
}


def productions(symbol: str) -> dict[str, tuple[str, ...]]:
    carried = wording.GRAMMAR["carried"] if symbol in ("number", "date", "text") else {}
    return {name: tuple(ways) for name, ways in {**wording.GRAMMAR[symbol], **carried}.items()}


def written(rng: random.Random, symbol: str, depth: int, production: str | None = None) -> str:
    """A random phrase of the questions' grammar."""
    if symbol == "filters":
        names = [rng.choice(("has", "in_year"))] if depth > 0 and rng.random() < 0.5 else []
        if names and rng.random() < 0.5:
            names.append(rng.choice(("has_text", "after", "before", "above", "below")))
        return "".join(" and "[4 * (not i) :] + written(rng, "filter", depth - 1, name) for i, name in enumerate(names))
    if symbol in ("roles", "files"):
        count = rng.randrange(2, 4)
        parts = rng.sample(ROLES, count) if symbol == "roles" else [written(rng, "file", 0) for _ in range(count)]
        return wording.joined(parts)
    if symbol in WORDS:
        return rng.choice(WORDS[symbol])
    known = productions(symbol)
    production = production or (rng.choice(list(known)) if depth > 0 else SMALL[symbol])
    way = rng.choice(known[production])
    if production == "these":
        return way.format(plural=rng.choice(WORDS["plural"]), name=wording.joined(rng.sample(NAMES, 3)))
    return re.sub(r"\{(\w+?)\d?\}", lambda slot: written(rng, slot[1], depth - 1), way)


PRODUCTIONS = [
    (symbol, name) for symbol in ("number", "date", "text", "entity", "names") for name in productions(symbol)
]


@pytest.mark.parametrize(("symbol", "production"), PRODUCTIONS)
def test_the_solver_reads_every_phrase(symbol: str, production: str) -> None:
    """Its grammar, written a second time, has each paraphrase, and reads it in one way."""
    rng = random.Random(f"{symbol} {production}")
    for _ in range(30):
        phrase = written(rng, symbol, rng.randrange(3), production)
        assert len(Reader(phrase, NAMES, ROLES).readings()) == 1, phrase


def test_every_slot_of_the_grammar_has_examples_here() -> None:
    assert set(wording.TERMINALS) - {"roles"} == set(WORDS)


# --- the solver's own readers ----------------------------------------------------------------------------------------

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def some(rng: random.Random, letters: str, longest: int) -> str:
    return "".join(rng.choice(letters) for _ in range(rng.randrange(1, longest + 1)))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_drawn_and_played_is_read_by_other_means(seed: int) -> None:
    """Pictures and recordings, which the tools read with other libraries and in other ways."""
    rng = random.Random(seed)
    for letters in (LETTERS, "0123456789", LETTERS + "abcdef $-:/."):
        text = some(rng, letters, 200)
        assert gaia_media.qr(render("a.png", Qr(text))) == text
    words = " ".join(some(rng, LETTERS, 6) for _ in range(3))
    assert gaia_media.morse(render("a.wav", Morse(words, rng.randrange(10, 26)))) == words
    digits = some(rng, "0123456789*#", 12)
    assert gaia_media.dialled(render("a.wav", Dtmf(digits))) == digits
    notes = tuple((rng.choice(("high", "middle", "low")), rng.randrange(1, 9)) for _ in range(3))
    played = gaia_media.tones(render("a.wav", Beeps(notes)))
    assert played == Counter({pitch: sum(n for p, n in notes if p == pitch) for pitch in dict(notes)})
    lines = tuple(some(rng, LETTERS + "abcxyz,.-:;()/", 30) for _ in range(3))
    assert gaia_media.lettering(render("a.png", Lettering(lines))) == list(lines)
    colours = rng.sample(list(gaia_media.COLOURS.values()), 4)
    heights, labels = [rng.randrange(20, 300) for _ in colours], tuple(some(rng, LETTERS + "gjpqy", 9) for _ in colours)
    bars = tuple(zip(colours, heights, strict=True))
    assert gaia_media.bars(render("a.png", Bars(bars, labels))) == list(zip(colours, heights, labels, strict=True))
    assert [bar[:2] for bar in gaia_media.bars(render("a.png", Bars(bars)))] == list(bars)
