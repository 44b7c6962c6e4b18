"""The world ``real``: facts as they are, played when asked for and not otherwise."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import aworld_gym  # noqa: F401
from aworld_gym.errors import ConfigError, UnknownTaskError
from aworld_gym.metrics import summarize
from aworld_gym.policies import OraclePolicy
from aworld_gym.rollout import rollout
from envs.gaia.splits import SPLITS, world_seeds
from envs.gaia.tasks import GaiaTasks
from envs.gaia.templates import templates
from envs.gaia.world import TRAINING_FLAVOURS, page_url, pages, world

KNOWN = (
    ("country", "Japan", "Capital: Tokyo"),
    ("country", "Peru", "Area: 1285216 square kilometres"),
    ("airport", "Narita International Airport", "IATA code: NRT"),
    ("element", "Gold", "Atomic number: 79"),
    ("element", "Gold", "Symbol: Au"),
    ("holiday", "Madaraka Day", "Date in 2025: 2025-06-01"),
)


@pytest.mark.parametrize(("table", "name", "fact"), KNOWN)
def test_pages_state_facts(table: str, name: str, fact: str) -> None:
    url = page_url(table, name)
    (page,) = (web[url] for split in SPLITS if url in (web := pages({"world": "real", "seed": world_seeds(split)[0]})))
    assert fact in page.text.splitlines()


def test_a_reference_leads_to_an_entity_of_the_same_split() -> None:
    for split in SPLITS:
        made = world("real", world_seeds(split)[0])
        for table in made.tables.values():
            for column in table.of_kind("ref"):
                assert all(made.tables[column.to].row(row[column.name]) for row in table.rows)


def test_it_is_drawn_only_where_it_is_asked_for() -> None:
    rng = np.random.default_rng(3)
    drawn = GaiaTasks()
    assert {drawn.sample(rng).metadata["world"] for _ in range(40)} == set(TRAINING_FLAVOURS)
    asked = GaiaTasks(world="real")
    assert {asked.sample(rng).metadata["world"] for _ in range(10)} == {"real"}


@pytest.mark.parametrize("split", SPLITS)
def test_the_oracle_succeeds(split: str) -> None:
    env = gym.make("AWorld/Gaia-v0", split=split, world="real")
    report = summarize(rollout(env, OraclePolicy(), episodes=20, concurrency=4))
    assert (report["success_rate"], report["valid"], report["tool_errors"]) == (1.0, 20, 0)


def test_a_world_that_is_almost_named_is_suggested() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'real'"):
        GaiaTasks(world="reel")


def test_what_it_lacks_is_not_asked_about() -> None:
    """It has no revisions, so the templates about them are not drawn from, and their ids are refused."""
    for split in SPLITS:
        lacking = [one for one in templates().values() if one.split == split and "real" not in one.worlds]
        assert lacking
        offered = {one.name for one in GaiaTasks(split, world="real").templates}
        assert offered and not offered & {one.name for one in lacking}
        assert {one.name for one in lacking} <= {one.name for one in GaiaTasks(split).templates}
        name = lacking[0].name
        with pytest.raises(UnknownTaskError, match="is of the worlds shifted, synthetic"):
            GaiaTasks(split).get(f"gaia/{split}/real/{name}/000000")
        with pytest.raises(ConfigError, match="no template of split .* is left"):
            GaiaTasks(split, world="real", templates=[name])


@pytest.mark.parametrize("split", SPLITS)
def test_every_other_template_makes_tasks(split: str) -> None:
    source = GaiaTasks(split, world="real")
    for one in source.templates:
        task = source.get(f"gaia/{split}/real/{one.name}/000042")
        assert task.metadata["world"] == "real" and task.level == one.level
