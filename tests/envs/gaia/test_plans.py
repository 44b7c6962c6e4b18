"""Every plan, played against the real tool server, shows the facts it promises and ends in the true answer."""

from __future__ import annotations

import pytest

from aworld_gym.toolchain import Toolchain, load_config, loop
from aworld_gym.types import Limits
from envs.gaia.tasks import GaiaTasks
from envs.gaia.templates import templates
from envs.gaia.world import TRAINING_FLAVOURS as FLAVOURS

EVERY = [(one.name, flavour) for one in templates().values() for flavour in FLAVOURS]


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
    for number in (31, 32):
        task = source.get(f"gaia/{split}/{flavour}/{template}/{number:06d}")
        session = loop.run(toolchain.open(public=dict(task.public)))
        try:
            source.setup(task, session.workspace)
            for index, step in enumerate(task.plan):
                assert session.check(step.tool, dict(step.arguments)) is None
                result = loop.run(session.call(f"c{index}", step.tool, dict(step.arguments)))
                assert result.error is None, result.text
                assert result.cut_chars == 0
                for shown in step.shows:
                    assert shown in result.text, f"{step.tool} of {task.id} does not show {shown!r}: {result.text}"
        finally:
            loop.run(session.aclose())
        verdict = source.score(task, task.plan[-1].arguments["answer"])
        assert verdict is not None and verdict.value == 1.0
