"""Decoys have the form of a real file and say something else; they can be rendered like any file."""

from __future__ import annotations

import random
import re
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.gaia.decoys import altered, look_alike, unrelated
from envs.gaia.render import (
    Archive,
    Bars,
    Beeps,
    Book,
    Bullets,
    Content,
    Data,
    Database,
    Doc,
    Dtmf,
    Grid,
    Lettering,
    Lines,
    Mail,
    Morse,
    Qr,
    Sheet,
    Slide,
    Slides,
    Text,
    render,
)
from envs.gaia.splits import world_seeds
from envs.gaia.terms import Box, Draft
from envs.gaia.world import world

WHERE = world("synthetic", world_seeds("train")[0])
SHIP = WHERE.tables["ship"].rows[3]["name"]
MAYOR = WHERE.tables["town"].rows[0]["mayor"]
SHEET = Sheet(("Ship", "Reference", "Load"), ((SHIP, "V-4821", 731), ("Unknown Vessel", "none", 24)))

EXAMPLES: dict[str, Content] = {
    "log.csv": SHEET,
    "log.xml": SHEET,
    "book.xlsx": Book((("Data 2019", Sheet(SHEET.header, SHEET.rows, hidden_rows=(1,))), ("B", SHEET)), ("B",)),
    "base.sqlite": Database((("voyages", SHEET),)),
    "note.docx": Doc("Notes", (f"The {SHIP} sailed on 2019-04-07.", Bullets((MAYOR,)), SHEET)),
    "talk.pptx": Slides("Talk", (Slide("One", (f"The target is 5210 for {SHIP}.",), "The fee is 88 crowns."),)),
    "mail.eml": Mail(
        "office@example.org",
        ("desk@example.org",),
        "Memo",
        "2018-05-30T09:47",
        ("The closing date is 2021-03-04.",),
        (("log.csv", SHEET),),
    ),
    "data.json": Data({"ships": [{"name": SHIP, "load": 17}]}),
    "data.jsonl": Lines(({"name": SHIP, "load": 17},)),
    "run.py": Text("x = 4711\nfor i in range(120):\n    x = (37 * x + 11) % 997\nprint(x)\n"),
    "tiles.png": Grid((("red", "blue", "red"), ("green", "blue", "red"))),
    "chart.png": Bars((("red", 120), ("blue", 64)), ("Mon", "Tue")),
    "sign.png": Lettering((SHIP,)),
    "code.png": Qr("V-4821"),
    "radio.wav": Morse("WS4821"),
    "call.wav": Dtmf("48215"),
    "tones.wav": Beeps((("high", 5), ("low", 3))),
    "box.zip": Archive((("inner.zip", Archive((("code_17.png", Qr("V-4821")),))), ("log.csv", SHEET))),
}


def draft(seed: int = 0) -> Draft:
    return Draft(random.Random(seed), WHERE)


def test_every_kind_of_content_has_an_example() -> None:
    assert {type(content) for content in EXAMPLES.values()} == set(get_args(Content))


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_an_altered_content_has_the_same_form_and_says_something_else(name: str, seed: int) -> None:
    content = EXAMPLES[name]
    other = altered(draft(seed), content)
    assert type(other) is type(content)
    assert render(name, other) != render(name, content)
    assert not re.search(rf"{SHIP}|{MAYOR}|4821|2019-04-07|2021-03-04", repr(other))
    assert altered(draft(seed), content) == other  # decided by the draft alone


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    cells=st.integers(1, 3).flatmap(
        lambda width: st.lists(st.tuples(*[st.sampled_from(["red", "blue"])] * width), min_size=1, max_size=3)
    ),
)
def test_small_tiles_are_not_drawn_again_by_chance(seed: int, cells: list[tuple[str, ...]]) -> None:
    content = Grid(tuple(cells))
    colours = {cell for row in cells for cell in row}
    assert (altered(draft(seed), content) == content) == (len(colours) == 1)


def test_one_name_stays_one_name_within_a_file() -> None:
    found = altered(draft(4), Doc("Two", (f"First {SHIP}.", f"Then {SHIP} again.", f"By {MAYOR}.")))
    assert isinstance(found, Doc)
    first, then, by = (str(block) for block in found.blocks)
    name = first.removeprefix("First ").removesuffix(".")
    assert then == f"Then {name} again." and name in {row["name"] for row in WHERE.tables["ship"].rows} - {SHIP}
    assert by.removeprefix("By ").removesuffix(".") in {row["mayor"] for row in WHERE.tables["town"].rows}


@pytest.mark.parametrize("name", ["log.csv", "log_2019.csv", "log-7.csv"])
def test_a_look_alike_has_a_name_close_by(name: str) -> None:
    for seed in range(30):
        one = draft(seed)
        one.attach(name, SHEET)
        other = look_alike(one, name)
        assert other != name and list(one.files) == [name, other]
        assert re.fullmatch(r"log(?:[-_]\d+)?(?:_[a-z0-9]+)?\.csv", other)
        assert type(one.files[other]) is Sheet and one.files[other] != SHEET


def test_where_nothing_can_be_changed_an_unrelated_file_is_attached() -> None:
    one = draft()
    one.attach("sign.png", Lettering(("north",)))
    assert not look_alike(one, "sign.png").startswith("sign")
    assert len(one.files) == 2


def test_unrelated_files_are_of_many_kinds_and_can_stand_in_a_box() -> None:
    endings = set()
    for seed in range(40):
        one = draft(seed)
        name = unrelated(one)
        endings.add(name.rpartition(".")[2])
        assert render(name, one.files[name])
        box = Box(one, "box.zip")
        assert unrelated(one, box).startswith("box/") and len(box.members) == 1
    assert endings == {"csv", "tsv", "txt", "md", "json"}
