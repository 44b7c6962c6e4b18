"""Every plan, played against the real tool server, shows the facts it promises and ends in the true answer."""

from __future__ import annotations

from functools import partial

import pytest
from gaia_plays import play

from aworld_gym.toolchain import Toolchain, load_config, loop
from aworld_gym.types import Limits
from envs.gaia.tasks import GaiaTasks
from envs.gaia.templates import templates
from envs.gaia.world import FLAVOURS, TRAINING_FLAVOURS

EVERY = [
    (one.name, flavour)
    for one in templates().values()
    for flavour in FLAVOURS
    if flavour in TRAINING_FLAVOURS or one.level < 3
]


@pytest.fixture(scope="module")
def toolchain():
    config = load_config({"mcpServers": {"gaia": {"python": "envs.gaia.server:make_server"}}})
    chain = Toolchain(config, Limits(), None)
    yield chain
    loop.run(chain.aclose())


@pytest.mark.parametrize(("template", "flavour"), EVERY)
def test_the_plan_shows_its_facts(template: str, flavour: str, toolchain: Toolchain) -> None:
    split = templates()[template].split
    source = GaiaTasks(split)
    task = source.get(f"gaia/{split}/{flavour}/{template}/000031")
    play(toolchain, task.public, partial(source.setup, task), task.plan, task.id)
    verdict = source.score(task, task.plan[-1].arguments["answer"])
    assert verdict is not None and verdict.value == 1.0
