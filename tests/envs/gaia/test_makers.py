"""Makers and carriers: what they make is found out by the tools that they name, from the files that they need."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from gaia_plays import play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aworld_gym.toolchain import Toolchain, load_config, loop
from aworld_gym.types import Limits
from envs.gaia.carriers import CARRIERS, carriers, carry, what_of
from envs.gaia.levels import TOOL_KINDS, kinds_of
from envs.gaia.makers import all_makers, choose
from envs.gaia.render import Text
from envs.gaia.sources_documents import KINDS, mail_box
from envs.gaia.splits import world_seeds
from envs.gaia.terms import Box, Draft, Reject, Term, merged
from envs.gaia.world import TRAINING_FLAVOURS, world

EVERY = [(kind, name) for kind, registry in all_makers().items() for name in registry]
OF_KIND = {
    "number": lambda term: term.kind == "int",
    "entity": lambda term: term.kind == "text",
    "code": lambda term: term.kind == "code",
    "date": lambda term: term.kind == "date",
}

BOXES: dict[str, Callable[[Draft], Box | None]] = {
    "": lambda draft: None,
    "zip": lambda draft: Box(draft, "box.zip"),
    "eml": lambda draft: mail_box(draft, ()),
}


@pytest.fixture(scope="module")
def toolchain():
    config = load_config({"mcpServers": {"gaia": {"python": "envs.gaia.server:make_server"}}})
    chain = Toolchain(config, Limits(), None)
    yield chain
    loop.run(chain.aclose())


def drawn(make: Callable[[Draft], Term], seed: str, flavour: str = "synthetic") -> tuple[Draft, Term]:
    """A term, and the draft that it was made in."""
    for attempt in range(500):
        draft = Draft(random.Random(f"{seed} {attempt}"), world(flavour, world_seeds("train")[0]))
        try:
            return draft, make(draft)
        except Reject:
            continue
    raise AssertionError(f"nothing was made for {seed}")


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_a_makers_term_is_found_out_by_its_plan(kind: str, name: str, toolchain: Toolchain) -> None:
    maker = all_makers()[kind][name]
    for flavour, box in zip(itertools.cycle(TRAINING_FLAVOURS), ("", "", "zip", "eml"), strict=False):

        def make(draft: Draft, box: str = box) -> Term:
            table = (draft.table_with("code"),) if kind == "entity" else ()
            return maker.make(draft, *table, BOXES[box](draft))

        draft, term = drawn(make, f"{kind} {name} {box}", flavour)
        term = term.settled()
        assert OF_KIND[kind](term)
        kinds = kinds_of(term.steps)
        assert maker.tool in kinds and (not box or not draft.files or "archive" in kinds or maker.tool == "web")
        assert kind == "entity" or any(term.text in shown for shown in term.steps[-1].shows)
        needed = [need for need in term.needs if "://" not in need]
        assert {need.split("!")[0] for need in needed} <= set(draft.files)
        if box:
            assert len(draft.files) == 1 and all("!" in need for need in needed)
        play(toolchain, {"corpus": draft.world.corpus}, draft.files, merged(term.steps), f"{kind} {name}")


@pytest.mark.parametrize("kind", list(all_makers()))
def test_makers_are_chosen_by_their_tool(kind: str) -> None:
    registry = all_makers()[kind]
    draft = Draft(random.Random(1), world("synthetic", 0))
    assert {maker.tool for maker in registry.values()} <= set(TOOL_KINDS.values())
    for _ in range(20):
        assert choose(draft, registry, "image").tool == "image"
        assert choose(draft, registry, but=("qr",)).name != "qr"
    with pytest.raises(Reject):
        choose(draft, registry, "archive")


CARRIED = st.one_of(
    st.tuples(st.just("number"), st.integers(10, 10**9).map(str)),
    st.tuples(st.just("code"), st.from_regex(r"[A-Z0-9]{2}[A-Z0-9-]{0,8}[A-Z0-9]", fullmatch=True)),
    st.tuples(st.just("word"), st.from_regex(r"[a-z]{3,12}", fullmatch=True)),
    st.tuples(st.just("name"), st.from_regex(r"[A-Z][a-z]{1,8}( [A-Z][a-z]{1,8})?", fullmatch=True)),
    st.tuples(st.just("date"), st.dates().map(lambda date: date.isoformat())),
)


@pytest.mark.parametrize("carrier", list(CARRIERS))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(carried=CARRIED, seed=st.integers(0, 10**6))
def test_what_is_carried_is_read(carrier: str, toolchain: Toolchain, carried: tuple[str, str], seed: int) -> None:
    what, value = carried
    draft = Draft(random.Random(seed), world("synthetic", 0))
    if carrier not in carriers(what, value):
        with pytest.raises(Reject, match="cannot carry"):
            carry(draft, carrier, what, value)
        return
    term = carry(draft, carrier, what, value)
    assert (term.kind, term.value) == (KINDS[what], value)
    assert kinds_of(term.steps) == [CARRIERS[carrier].tool]
    assert value not in term.phrase.split()
    play(toolchain, {"corpus": draft.world.corpus}, draft.files, term.steps, f"{carrier} {value}")


def test_every_kind_of_value_has_carriers_of_several_tools() -> None:
    for what, value in (("number", "4120"), ("code", "QX74K"), ("date", "2019-04-03"), ("name", "Quiet Heron")):
        assert len({CARRIERS[name].tool for name in carriers(what, value)}) >= 3
    assert set(carriers("number", 4120, tools=frozenset({"audio"}))) == {"morse", "dialled"}
    assert [what_of(value) for value in (7, "salt", "road works", "Sales")] == ["number", "word", "name", "name"]


def test_boxes_within_boxes() -> None:
    draft = Draft(random.Random(0), world("synthetic", 0))
    mail = mail_box(draft, ("The deposit is 12 crowns.",))
    inner = Box(draft, "inner.zip", within=mail)
    term = carry(draft, "qr", "number", 4120, inner)
    (name,) = draft.files
    stem, (member,) = name.removesuffix(".eml"), inner.members
    assert term.needs == {f"{name}!inner.zip!{member}"}
    assert (
        term.phrase.endswith(f"{member} inside inner.zip inside {name}") or f"{member} inside inner.zip" in term.phrase
    )
    assert [step.arguments["path"] for step in term.steps] == [name, f"{stem}/inner.zip", f"{stem}/inner/{member}"]
    with pytest.raises(Reject, match="one name"):
        inner.put(member, inner.members[member])
    with pytest.raises(Reject, match="one folder"):
        Box(draft, f"{stem}.zip")


def test_two_files_of_one_name_are_refused() -> None:
    draft = Draft(random.Random(0), world("synthetic", 0))
    draft.attach("a.txt", Text("a"))
    with pytest.raises(Reject, match="one name"):
        draft.put("a.txt", Text("b"))
