"""Whole episodes through a host in a process of its own."""

import gymnasium as gym
import pytest
from hosts import host_process

import aworld_gym  # noqa: F401
from aworld_gym import policies
from aworld_gym.errors import ConfigError
from aworld_gym.rollout import rollout


def test_an_oracle_plays_gaia_through_a_host_as_it_does_without_one(tmp_path, monkeypatch):
    with host_process("gaia", "--port", "0", log=tmp_path / "log") as running:
        monkeypatch.setenv("MCP_SERVER_URL", running.url)
        monkeypatch.setenv("MCP_SERVER_TOKEN", running.token)
        away = rollout("AWorld/Gaia-v0", policies.make("oracle"), episodes=10, concurrency=5)
        assert gym.make("AWorld/Gaia-v0").unwrapped.toolchain.config.servers[0].kind == "host"
        running.process.terminate()
        assert running.process.wait(20) == 0
    here = rollout(
        lambda: gym.make("AWorld/Gaia-v0", toolchain="embedded"), policies.make("oracle"), episodes=10, concurrency=5
    )
    assert [e.score for e in away] == [1.0] * 10
    assert {e.task_id for e in away} == {e.task_id for e in here}
    for one, other in zip(away, here, strict=True):
        assert (one.prompt, one.tools) == (other.prompt, other.tools)
        assert [s.observation for s in one.steps] == [s.observation for s in other.steps]
        assert [s.state_key for s in one.steps] == [s.state_key for s in other.steps]
    assert running.token not in running.logged() and '"exception"' not in running.logged()


def test_the_mini_preset_says_that_no_host_serves_it(monkeypatch):
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:1/mcp")
    monkeypatch.setenv("MCP_SERVER_TOKEN", "x")
    with pytest.raises(ConfigError, match="mini"):
        gym.make("AWorld/Gaia-v0", preset="mini")
    gym.make("AWorld/Gaia-v0", preset="mini", toolchain="embedded").close()


def test_a_host_needs_its_token(monkeypatch):
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:1/mcp")
    monkeypatch.delenv("MCP_SERVER_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="MCP_SERVER_TOKEN"):
        gym.make("AWorld/Gaia-v0")
    monkeypatch.delenv("MCP_SERVER_URL")
    with pytest.raises(ConfigError, match="MCP_SERVER_URL"):
        gym.make("AWorld/Gaia-v0", toolchain="remote")
