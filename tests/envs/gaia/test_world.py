"""Worlds are functions of their corpus; shifted ones contradict what anyone remembers."""

from __future__ import annotations

import dataclasses
import datetime
import time

import pytest

import envs.gaia.world as module
from aworld_gym.errors import ConfigError
from envs.gaia import names
from envs.gaia.splits import SPLITS, world_seeds
from envs.gaia.tools.search import Index
from envs.gaia.world import FLAVOURS, SOURCES, TRAINING_FLAVOURS, Page, page_url, pages, world

DIGESTS = {
    "real": "ec087b9626da1871d056e649fbf5ff1605866f0d28f38f462ab37cdf193e6430",
    "shifted": "ade46e0b80db9d5ac5e3829872cd80e5d5b43911f1b58aa20335ede76cd159dd",
    "synthetic": "bf5be716584fc797fb407878897722604e88a047c615a7992d6cd87ec8e8c9ae",
}
"""Of seed 0."""
CORPORA = [(flavour, world_seeds(split)[0]) for flavour in FLAVOURS for split in SPLITS]


@pytest.mark.parametrize(("flavour", "seed"), CORPORA)
def test_values_have_the_types_of_their_columns(flavour: str, seed: int) -> None:
    made = world(flavour, seed)
    for table in made.tables.values():
        assert table.source and table.licence
        assert len(table.rows) >= 20
        assert len({row["name"] for row in table.rows}) == len(table.rows)
        for column in table.columns:
            for row in table.rows:
                value = row[column.name]
                match column.kind:
                    case "int":
                        assert isinstance(value, int) and value > 0
                    case "float":
                        assert isinstance(value, float) and value > 0
                    case "date":
                        assert datetime.date.fromisoformat(value)
                    case "ref":
                        assert made.tables[column.to].row(value)
                    case _:
                        assert isinstance(value, str) and value.isascii() and value.strip() == value and value


@pytest.mark.parametrize(("flavour", "seed"), CORPORA)
def test_every_entity_and_every_link_has_a_page(flavour: str, seed: int) -> None:
    made, web = world(flavour, seed), pages({"world": flavour, "seed": seed})
    for table in made.tables.values():
        for row in table.rows:
            page = web[page_url(table.name, row["name"])]
            assert page.title == row["name"]
            for column in table.columns:
                assert f"\n{column.label}: {row[column.name]}" in page.text
    links = [
        line.removeprefix("See also: ") for p in web.values() for line in p.text.splitlines() if "See also" in line
    ]
    assert links and all(link in web for link in links)
    titles = [page.title for page in web.values()]
    assert len(set(titles)) == len(titles)
    assert all(isinstance(page, Page) and page.text.isascii() for page in web.values())


def test_pages_and_their_index_are_made_quickly() -> None:
    """Each world once per process, in the middle of someone's first episode."""
    for flavour in FLAVOURS:
        module._made.cache_clear()
        module._pages.cache_clear()
        start = time.process_time()
        made = world(flavour, 0)
        built = time.process_time()
        index = Index(pages(made.corpus))
        indexed = time.process_time()
        assert built - start < 1 and indexed - built < 1
        assert len(index.pages) > 1000


def test_lists_of_entities_are_complete() -> None:
    made, web = world("synthetic", 0), pages({"world": "synthetic", "seed": 0})
    ship = made.tables["ship"].rows[0]
    text = web[page_url("ship-by-port", ship["port"])].text
    members = [row["name"] for row in made.tables["ship"].rows if row["port"] == ship["port"]]
    assert text.splitlines()[1:] == members


def test_seeds_and_flavours_make_different_worlds() -> None:
    digests = {world(flavour, seed).digest for flavour in TRAINING_FLAVOURS for seed in world_seeds("train")}
    assert len(digests) == 2 * len(world_seeds("train"))


def test_real_worlds_of_a_split_are_one() -> None:
    """Nothing in them is drawn: the seed says no more than the split."""
    for split in SPLITS:
        assert len({world("real", seed).digest for seed in world_seeds(split)}) == 1


@pytest.mark.parametrize(("flavour", "digest"), DIGESTS.items())
def test_the_content_of_a_world_is_pinned(flavour: str, digest: str) -> None:
    """Manifests hold only as long as this does; whoever changes a world makes them anew."""
    assert world(flavour, 0).digest == digest


def test_a_world_is_rebuilt_the_same() -> None:
    made = world("synthetic", 2)
    module._made.cache_clear()
    again = world("synthetic", 2)
    assert again is not made and again.digest == made.digest
    assert [dict(r) for r in again.tables["firm"].rows] == [dict(r) for r in made.tables["firm"].rows]


def test_worlds_and_pages_are_read_only() -> None:
    row = world("shifted", 0).tables["country"].rows[0]
    with pytest.raises(TypeError):
        row["capital"] = "Atlantis"  # type: ignore[index]
    with pytest.raises(TypeError):
        pages({"world": "shifted", "seed": 0})["x"] = Page("x", "x")  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        world("shifted", 0).seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ({"world": "shiftd", "seed": 1}, "Did you mean 'shifted'"),
        ({"world": "shifted"}, "a corpus is"),
        ({"world": "shifted", "seed": -1}, "non-negative"),
        ({"world": "shifted", "seed": True}, "non-negative"),
        ({"world": "shifted", "seed": "1"}, "non-negative"),
        ({"world": 3, "seed": 1}, "must be one of"),
        (None, "a corpus is"),
    ],
)
def test_a_corpus_that_names_no_world_is_refused(corpus: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pages(corpus)  # type: ignore[arg-type]


def test_name_pools_are_unique_plain_and_apart() -> None:
    pools = [names.towns(), names.firms(), names.stations(), names.ships(), names.museums(), names.books()]
    pools += [names.people(), names.nicknames()]
    for pool in pools:
        assert len(set(pool)) == len(pool)
        assert all(name.replace(" ", "").isalpha() and name.isascii() for name in pool)
    assert len(set().union(*pools)) == sum(map(len, pools))


def test_every_table_of_real_names_states_its_source() -> None:
    for table in world("shifted", 0).tables.values():
        assert (table.source, table.licence) == SOURCES[table.name]
