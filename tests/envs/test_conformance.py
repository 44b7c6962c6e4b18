"""All envs of this repository keep the contract: :func:`aworld_gym.testing.check_toolchain_env`."""

import gymnasium as gym
import pytest

import aworld_gym  # noqa: F401 - registers envs
from aworld_gym.testing import ENV_RULES, check_toolchain_env, reference
from aworld_gym.wrappers import RewardShaping, TranscriptObservation


def mcp(folder):
    rows = [{"id": str(k), "prompt": f"How much is {k} + 2?", "answer": str(k + 2)} for k in range(4)]
    servers = {"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}
    return gym.make("AWorld/Mcp-v0", mcp_config=servers, tasks=rows, tools=["echo", "add", "write"], submit_tool=None)


QUICK = ["look", "submit_answer"]
"""Random calls of the third tool of the reference env would wait for minutes."""

ENVS = {
    "gaia": lambda folder: gym.make("AWorld/Gaia-v0"),
    "gaia-mini": lambda folder: gym.make("AWorld/Gaia-v0", preset="mini"),
    "gaia-shaped": lambda folder: RewardShaping(gym.make("AWorld/Gaia-v0", preset="mini"), "plan_progress", amount=0.5),
    "mcp": mcp,
    "reference": lambda folder: gym.make(reference.ENV_ID, tools=QUICK),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ENVS)
def test_env(name, tmp_path):
    env = ENVS[name](tmp_path)
    # A plan earns shaping too: the task's score is looked at, and that is 1 all the same.
    assert set(check_toolchain_env(env, seeds=(0, 1))) == ENV_RULES.keys()
    env.close()


def test_what_a_wrapper_changes_is_seen():
    """A transcript is another observation than the contract's, and says so."""
    env = TranscriptObservation(gym.make(reference.ENV_ID, tools=QUICK))
    with pytest.raises(AssertionError, match="^observation: "):
        check_toolchain_env(env, skip=["gymnasium_checker"], processes=False)
    env.close()
