"""Revisions, outdated news, nicknames, look-alikes: what makes a search need care, and how it still ends well."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator

import pytest

from envs.gaia import names
from envs.gaia.splits import SPLITS, world_seeds
from envs.gaia.tools.search import Index
from envs.gaia.world import (
    FLAVOURS,
    TRAINING_FLAVOURS,
    Revision,
    Table,
    World,
    alias_line,
    alias_url,
    history_line,
    history_title,
    history_url,
    news_line,
    news_title,
    news_url,
    page_url,
    pages,
    world,
)

TRAINING = [(flavour, seed) for flavour in TRAINING_FLAVOURS for split in SPLITS for seed in world_seeds(split)[:2]]


def entities(made: World) -> Iterator[tuple[Table, str]]:
    return ((table, row["name"]) for table in made.tables.values() for row in table.rows)


def histories(made: World) -> Iterator[tuple[Table, str, tuple[Revision, ...]]]:
    for table, name in entities(made):
        if found := made.history(table.name, name):
            yield table, name, found


@pytest.mark.parametrize(("flavour", "seed"), TRAINING)
def test_a_history_is_dated_contradicts_itself_and_ends_with_what_stands(flavour: str, seed: int) -> None:
    made = world(flavour, seed)
    web = pages(made.corpus)
    for table, name, revisions in histories(made):
        (column,) = {table.column(revision.column) for revision in revisions}
        assert not column.steady and column.askable
        assert 2 <= len(revisions) <= 4
        values = [revision.value for revision in revisions]
        assert len(set(values)) == len(values)
        assert values[-1] == table.row(name)[column.name]
        dates = [datetime.date.fromisoformat(revision.date) for revision in revisions]
        assert all((later - earlier).days >= 60 for earlier, later in itertools.pairwise(dates))
        if column.kind == "int":
            pairs = itertools.combinations(values, 2)
            assert all(abs(a - b) > 0.03 * max(a, b) and min(a, b) > 0 for a, b in pairs)
        if column.kind == "date":
            assert max(values) < revisions[0].date
        text = web[history_url(table.name, name)].text.splitlines()
        assert [line for line in text if line[:4].isdigit()] == [history_line(column, one) for one in revisions]


@pytest.mark.parametrize("flavour", TRAINING_FLAVOURS)
@pytest.mark.parametrize("split", SPLITS)
def test_every_table_has_entities_with_and_without_stories(split: str, flavour: str) -> None:
    made = world(flavour, world_seeds(split)[0])
    for table in made.tables.values():
        each = [row["name"] for row in table.rows]
        for told in (made.history, made.news, made.alias):
            some = sum(bool(told(table.name, name)) for name in each)
            assert 0 < some < len(each), (table.name, told)


@pytest.mark.parametrize(("flavour", "seed"), TRAINING)
def test_no_page_but_the_history_says_that_a_value_was_revised(flavour: str, seed: int) -> None:
    made = world(flavour, seed)
    web = pages(made.corpus)
    for table, name, _ in histories(made):
        url = history_url(table.name, name)
        page = web[page_url(table.name, name)]
        assert "evision" not in page.text and "Entries" not in page.text and url not in page.text
        assert len(page.text.splitlines()) == 1 + len(table.columns) + len(table.of_kind("ref"))
    assert sum("Revision history" in page.text for page in web.values()) == 0


@pytest.mark.parametrize(("flavour", "seed"), TRAINING)
def test_news_quote_what_no_longer_stands(flavour: str, seed: int) -> None:
    made = world(flavour, seed)
    web = pages(made.corpus)
    for table, name in entities(made):
        quoted = made.news(table.name, name)
        assert (news_url(table.name, name) in web) == (quoted is not None)
        if quoted:
            assert quoted in made.history(table.name, name)[:-1]
            assert news_line(table, name, quoted) in web[news_url(table.name, name)].text.splitlines()
            assert quoted.date in news_line(table, name, quoted) and str(quoted.value) in news_line(table, name, quoted)


@pytest.mark.parametrize(("flavour", "seed"), TRAINING)
def test_a_nickname_is_of_one_entity_and_stands_on_its_page_alone(flavour: str, seed: int) -> None:
    made = world(flavour, seed)
    web = pages(made.corpus)
    known = {(table.name, name): made.alias(table.name, name) for table, name in entities(made)}
    nicknames = [nickname for nickname in known.values() if nickname]
    assert len(set(nicknames)) == len(nicknames)
    assert not set(nicknames) & {name for _, name in known}
    for (table, name), nickname in known.items():
        if nickname:
            page = web[alias_url(made, table, name)]
            assert page.title == nickname
            assert alias_line(made.tables[table], name, nickname) in page.text.splitlines()
            assert nickname not in web[page_url(table, name)].text
        else:
            with pytest.raises(KeyError, match="no nickname"):
                alias_url(made, table, name)


def test_splits_share_no_nickname() -> None:
    owned = []
    for split in SPLITS:
        worlds = [world(flavour, seed) for flavour in TRAINING_FLAVOURS for seed in world_seeds(split)]
        owned.append({nickname for made in worlds for nickname in made.aliases.values()})
    for one, other in itertools.combinations(owned, 2):
        assert one and other and not one & other


def test_the_real_world_has_no_invented_stories() -> None:
    for split in SPLITS:
        made = world("real", world_seeds(split)[0])
        assert not made.histories and not made.quoted and not made.aliases
        assert all(column.origin == "" for table in made.tables.values() for column in table.columns)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_who_asks_about_nobody_is_told_who_there_is(flavour: str) -> None:
    made = world(flavour, 0)
    table = next(iter(made.tables.values()))
    wrong = table.rows[0]["name"] + "x"
    for told in (made.history, made.news, made.alias, made.descriptions):
        with pytest.raises(KeyError, match=f"Did you mean '{table.rows[0]['name']}'"):
            told(table.name, wrong)


# --- the search ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("split", SPLITS)
def test_everything_is_found_by_search(split: str, flavour: str) -> None:
    """An entity by its name, its history and news by their titles, and by a description what resolves it."""
    made = world(flavour, world_seeds(split)[-1])
    web = pages(made.corpus)
    index = Index(web)
    kinds: set[str] = set()
    for table, name in entities(made):
        assert index.search(name, 1)[0][0] == page_url(table.name, name)
        if made.history(table.name, name):
            assert index.search(history_title(name), 1)[0][0] == history_url(table.name, name)
        if quoted := made.news(table.name, name):
            assert index.search(news_title(name, quoted), 1)[0][0] == news_url(table.name, name)
        for one in made.descriptions(table.name, name):
            kinds.add(one.kind)
            assert one.url in [url for url, _, _ in index.search(one.query, 5)], one
            assert one.shows in web[one.url].text.splitlines()
    assert kinds >= {"code", "ref"} | ({"alias"} if flavour != "real" else set())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_description_fits_one_entity(flavour: str) -> None:
    made = world(flavour, world_seeds("validation")[0])
    for table in made.tables.values():
        seen: set[tuple[str, str]] = set()
        for row in table.rows:
            for one in made.descriptions(table.name, row["name"]):
                assert one.kind == "alias" or row[one.column] == one.value
                assert (one.column, one.value) not in seen
                seen.add((one.column, one.value))


def test_outdated_news_come_up_when_one_searches_for_the_value() -> None:
    """They are there to mislead who does not look at the date."""
    made = world("synthetic", world_seeds("test")[0])
    index = Index(pages(made.corpus))
    found = total = 0
    for table, name in entities(made):
        if quoted := made.news(table.name, name):
            total += 1
            query = f"{table.column(quoted.column).phrase} of {name}"
            found += news_url(table.name, name) in [url for url, _, _ in index.search(query, 5)]
    assert total > 50 and found > 0.8 * total


# --- look-alikes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
def test_synthetic_worlds_have_look_alikes(split: str) -> None:
    made = world("synthetic", world_seeds(split)[0])
    for table, rest in (("town", lambda name: name.split()[-1]), ("firm", lambda name: name.split()[0])):
        each = [rest(row["name"]) for row in made.tables[table].rows]
        alike = len(each) - len(set(each))
        assert 5 <= alike < len(each) / 2


def test_look_alikes_are_other_names_of_the_same_kind() -> None:
    pools = {"town": names.towns(), "firm": names.firms(), "station": names.stations(), "museum": names.museums()}
    for table, pool in pools.items():
        for name in pool[:50]:
            others = names.lookalikes(table, name)
            assert len(set(others)) == len(others) > 5 and name not in others
            assert all(other.isascii() and other.replace(" ", "").isalpha() for other in others)
    assert names.lookalikes("ship", "Quiet Heron") == ()
