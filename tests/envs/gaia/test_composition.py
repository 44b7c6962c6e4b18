"""The composer: chains of the wanted depth, definitions, an account of kinds of tools, and level 3's bar."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.gaia import composition
from envs.gaia.composition import DEEPEST, LEAST_CALLS, LEAVES, Composition, composed, holds
from envs.gaia.hops import HOPS
from envs.gaia.levels import fits, kinds_of
from envs.gaia.operators import fact, literal, plus
from envs.gaia.operators_evidence import before_last
from envs.gaia.operators_versions import DOCUMENTS
from envs.gaia.render import Doc, Sheet, render
from envs.gaia.sentences import LETS, ROLES
from envs.gaia.splits import world_seeds
from envs.gaia.terms import Draft, Reject, Term, merged
from envs.gaia.world import TRAINING_FLAVOURS, pages, world

seeds = st.integers(0, 10**6)
flavours = st.sampled_from(TRAINING_FLAVOURS)


@pytest.fixture(scope="module", autouse=True)
def _worlds_are_there() -> None:
    """Making them is no part of the time that an example may take."""
    for flavour in TRAINING_FLAVOURS:
        pages(world(flavour, world_seeds("train")[0]).corpus)


def draft_of(seed: object, flavour: str = "synthetic") -> Draft:
    return Draft(random.Random(str(seed)), world(flavour, world_seeds("train")[0]))


def drawn(make: Callable[[Composition], Term], seed: int, flavour: str, depth: int = 1) -> tuple[Composition, Term]:
    """A composition and what was made in it, at the first attempt that is not refused."""
    for attempt in range(300):
        c = Composition(draft_of((seed, attempt), flavour), depth)
        try:
            return c, make(c)
        except Reject:
            continue
    raise AssertionError("nothing was made")


def hops(steps: tuple) -> int:
    """Pages that name another entity: opened for a link or a list of one."""
    return sum(step.tool == "open_page" for step in steps)


@settings(deadline=None)
@given(seeds, flavours, st.integers(1, DEEPEST))
def test_an_entity_is_found_through_as_many_hops_as_were_wanted(seed: int, flavour: str, depth: int) -> None:
    def make(c: Composition) -> Term:
        table, row = c.pick(lambda table, row: True)
        return c.entity(depth, table, row)

    c, term = drawn(make, seed, flavour)
    assert term.kind == "text" and term.value not in " ".join([term.phrase, *c._lets])
    assert len(c._visited) <= depth  # the chain's entities, each once
    assert hops(merged(term.steps)) >= len(c._visited) - 1
    assert any("://" not in need for need in term.needs)  # it starts in a file
    assert set(kinds_of(term.steps)) <= c._kinds
    table = next(t for t in c.draft.world.tables.values() if any(term.value == row["name"] for row in t.rows))
    if depth > 1 and not [way for hop in HOPS for way in hop(c.draft, table, table.row(term.value))]:
        assert len(c._visited) == 1


def test_chains_reach_the_deepest_level_and_take_every_way() -> None:
    depths: Counter[int] = Counter()
    tools: Counter[str] = Counter()
    phrases = ""
    for seed in range(150):
        c, term = drawn(
            lambda c: c.entity(DEEPEST, *c.pick(lambda table, row: True)), seed, TRAINING_FLAVOURS[seed % 2]
        )
        depths[len(c._visited)] += 1
        tools.update(kinds_of(term.steps))
        phrases += " ".join([*c._lets, term.phrase])
    assert set(range(1, DEEPEST + 1)) <= set(depths)
    assert {"web", "document", "image", "audio", "table", "database", "code", "archive"} <= set(tools)
    for words in (
        "whose nickname is",
        "the only ",
        "is about",
        "whose reference is",
        "signed version",
        "whose name is",
    ):
        assert words in phrases, words


@settings(deadline=None)
@given(seeds, flavours, st.sampled_from(sorted(LEAVES)))
def test_a_leaf_gives_the_entity_that_it_was_asked_for(seed: int, flavour: str, name: str) -> None:
    asked = []

    def make(c: Composition) -> Term:
        table, row = c.pick(lambda table, row: LEAVES[name].holds(c, table, row))
        asked.append(row["name"])
        return LEAVES[name].make(c, table, row)

    c, term = drawn(make, seed, flavour)
    assert term.value == asked[-1] and term.steps and term.needs
    for name, content in c.draft.files.items():
        assert render(name, content)


@settings(deadline=None)
@given(seeds, flavours, st.integers(1, DEEPEST))
def test_a_plain_chain_takes_no_version_of_a_document(seed: int, flavour: str, depth: int) -> None:
    def make(c: Composition) -> Term:
        return c.entity(depth, *c.pick(lambda table, row: True), plain=True)

    c, _ = drawn(make, seed, flavour, depth=4)
    titles = {content.title.lower() for content in c.draft.files.values() if isinstance(content, Doc)}
    assert not titles & set(DOCUMENTS)


@settings(deadline=None)
@given(seeds, flavours)
def test_a_definition_names_a_term_once(seed: int, flavour: str) -> None:
    c = Composition(draft_of(seed, flavour))
    terms = [c.let("number", literal(i + 10)) for i in range(len(ROLES["number"]))]
    assert {term.phrase for term in terms} == set(ROLES["number"])
    patterns = [re.escape(one).replace(r"\{role\}", "(.+)").replace(r"\{phrase\}", r"(\d+)") for one in LETS]
    for said, term in zip(c._lets, terms, strict=True):
        (match,) = filter(None, (re.fullmatch(pattern, said) for pattern in patterns))
        assert match.groups() == (term.phrase, str(term.value))
    with pytest.raises(Reject, match="no more names"):
        c.let("number", literal(1))


def test_short_phrases_stay_as_they_are() -> None:
    c = Composition(draft_of(1))
    short, long = Term("int", 1, "the quota of ten"), Term("int", 2, " ".join(["the", *["long"] * 20, "phrase"]))
    assert c.short("number", short) is short
    assert c.short("number", long).phrase in ROLES["number"]
    assert c.short("number", short, words=2).phrase in ROLES["number"]


def test_media_of_kinds_that_are_not_used_yet_come_first() -> None:
    for seed in range(40):
        c = Composition(draft_of(seed))
        c._boxes = 0
        seen = [kinds_of(c.carried("code", "QX740K").steps) for _ in range(5)]
        assert len({kind for (kind,) in seen}) == 5, seen  # image, audio, code, table and document, in any order


@settings(deadline=None, max_examples=30)
@given(seeds, flavours, st.integers(1, 3))
def test_what_is_composed_has_level_3(seed: int, flavour: str, least: int) -> None:
    def shape(c: Composition, depth: int) -> Term:
        table, row = c.revised("int")
        base = before_last(c.draft, c.short("entity", c.entity(depth, table, row), words=5), table)
        return plus(c.draft, c.short("number", base), c.short("number", c.version("number", 417)))

    for attempt in range(100):
        draft = draft_of((seed, attempt), flavour)
        try:
            question = composed(draft, shape, least=least)
        except Reject:
            continue
        assert fits(3, question.plan) and len(question.plan) >= LEAST_CALLS
        assert not holds(question.files, question.answer["text"]) and len(question.needs) > 1
        named = {need.partition("!")[0] for need in question.needs}
        assert len(set(question.files) - named) >= 2  # decoys
        assert all(name in question.prompt for name in question.files)
        assert not draft.files  # an attempt leaves nothing behind
        return
    raise AssertionError("nothing was composed")


def test_a_shape_that_is_never_deep_enough_is_refused() -> None:
    depths = []

    def shape(c: Composition, depth: int) -> Term:
        depths.append(depth)
        table, row = c.pick(lambda table, row: bool(table.of_kind("int")))
        text = c.carried("name", row["name"])
        return fact(c.draft, composition.called(c.draft, table, text), table, table.of_kind("int")[0])

    with pytest.raises(Reject, match="not of level 3"):
        for seed in range(100):
            try:
                composed(draft_of(seed), shape)
            except Reject as refused:
                if "not of level 3" in str(refused):
                    raise
    assert depths[-DEEPEST:] == list(range(1, DEEPEST + 1))


@pytest.mark.parametrize(
    ("text", "found"),
    [("417", True), ("41", False), ("17", False), ("Amber Star", True), ("Amber", True), ("Star.5", False)],
)
def test_an_answer_is_looked_for_as_a_word(text: str, found: bool) -> None:
    files = {"a.csv": Sheet(("Ship", "Load"), (("Amber Star", 417),))}
    assert holds(files, text) is found
