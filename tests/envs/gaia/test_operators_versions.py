"""Versions of documents: a reader who knows the rule alone finds the version that counts."""

from __future__ import annotations

import datetime
import random
import re
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.gaia.operators_versions import DOCUMENTS, Version, in_force, issued_by, latest_signed
from envs.gaia.render import Content, Doc
from envs.gaia.splits import world_seeds
from envs.gaia.terms import Draft, Reject, Term
from envs.gaia.world import world

seeds = st.integers(0, 10**6)
titles = st.sampled_from(DOCUMENTS)
counts = st.integers(3, 5)
days = st.dates(datetime.date(1950, 1, 1), datetime.date(2100, 1, 1)).map(datetime.date.isoformat)


@pytest.fixture(scope="module", autouse=True)
def _world_is_there() -> None:
    world("synthetic", world_seeds("train")[0])


def draft_of(seed: int) -> Draft:
    return Draft(random.Random(seed), world("synthetic", world_seeds("train")[0]))


def bodies(count: int) -> list[tuple[str, ...]]:
    return [(f"This is body {i}.",) for i in range(count)]


def lines(content: Content) -> Mapping[str, str]:
    """What a version says about itself."""
    assert isinstance(content, Doc)
    found = (re.fullmatch(r"([A-Z][a-z ]+): (.+)", block) for block in content.blocks if isinstance(block, str))
    return {match[1]: match[2] for match in found if match}


def check(draft: Draft, found: Version, title: str, count: int, chosen: str) -> None:
    """``chosen`` is the name of the file that an independent reader takes."""
    assert (found.path, found.need) == (chosen, chosen)
    assert len(draft.files) == count
    contents = list(draft.files.values())
    assert all(isinstance(one, Doc) and one.title == title.capitalize() for one in contents)
    assert "This is body 0." in repr(draft.files[chosen])
    assert [step.arguments["path"] for step in found.before][-count:] == sorted(draft.files)
    for step in found.before:
        assert all(shown in repr(draft.files[step.arguments["path"]]) for shown in step.shows)
    assert title in found.ref


@given(seeds, titles, counts)
def test_the_latest_signed_version(seed: int, title: str, count: int) -> None:
    draft = draft_of(seed)
    found = latest_signed(draft, title, bodies(count))
    said = {name: lines(content) for name, content in draft.files.items()}
    signed = [name for name, one in said.items() if one["Status"] == "signed"]
    check(draft, found, title, count, max(signed, key=lambda name: said[name]["Dated"]))
    assert len({one["Dated"] for one in said.values()}) == count


@given(seeds, titles, counts, days)
def test_the_version_in_force(seed: int, title: str, count: int, day: str) -> None:
    draft = draft_of(seed)
    date = Term("date", day, "the key date", needs=frozenset({"day.wav"}))
    found = in_force(draft, title, bodies(count), date)
    starts = {name: lines(content)["In force from"] for name, content in draft.files.items()}
    begun = [name for name, start in starts.items() if start <= day]
    check(draft, found, title, count, max(begun, key=lambda name: starts[name]))
    assert found.needs == {found.path, "day.wav"} and "the key date" in found.ref


@given(seeds, titles, counts)
def test_the_version_of_an_issuer(seed: int, title: str, count: int) -> None:
    draft = draft_of(seed)
    names = [row["name"] for row in draft.some(draft.world.tables["firm"].rows, count)]
    issuer = Term("text", names[0], "the candidate", needs=frozenset({"who.png"}))
    found = issued_by(draft, title, bodies(count), issuer, names[1:])
    (chosen,) = (name for name, content in draft.files.items() if lines(content)["Issued by"] == names[0])
    check(draft, found, title, count, chosen)
    assert found.needs == {found.path, "who.png"} and "the candidate" in found.ref


def test_a_place_in_time_tells_nothing_about_which_version_counts() -> None:
    """So neither "the one before the last" nor the first or last is a way around the rule."""
    day = Term("date", "2015-01-01", "the day")
    for label in ("Dated", "In force from"):
        places: Counter[int] = Counter()
        for seed in range(600):
            draft = draft_of(seed)
            three = bodies(3)
            found = (
                latest_signed(draft, "site protocol", three) if label == "Dated" else in_force(draft, "x", three, day)
            )
            order = sorted(draft.files, key=lambda name: lines(draft.files[name])[label])
            places[order.index(found.path)] += 1
        assert all(140 < places[place] < 260 for place in range(3)), places


def test_a_names_end_tells_nothing_about_which_version_counts() -> None:
    ends = {latest_signed(draft_of(seed), DOCUMENTS[0], bodies(3)).path.rpartition(".")[0][-1] for seed in range(40)}
    assert ends == {"1", "2", "3", "a", "b", "c"}


def test_too_few_versions_and_two_by_one_issuer_are_refused() -> None:
    date = Term("date", "2015-01-01", "the day")
    with pytest.raises(Reject, match="too few versions"):
        latest_signed(draft_of(0), DOCUMENTS[0], bodies(2))
    with pytest.raises(Reject, match="too few versions"):
        in_force(draft_of(0), DOCUMENTS[0], bodies(2), date)
    with pytest.raises(Reject, match="two versions by one issuer"):
        issued_by(draft_of(0), DOCUMENTS[0], bodies(2), Term("text", "A", "the firm A"), ["A"])
