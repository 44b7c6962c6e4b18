"""The calls of ``train`` that pages show are ones that the adapters of this environment take."""

import importlib
import inspect
import re
from pathlib import Path

import importable_adapters
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def shown(name):
    """Blocks that import this adapter."""
    blocks = [b for page in PAGES for b in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
    return [block for block in blocks if f"from adapters import {name}\n" in block]


@pytest.mark.parametrize("name", importable_adapters.here())
def test_calls_that_are_shown_are_taken(name, monkeypatch, tmp_path):
    adapter, calls = importlib.import_module(f"adapters.{name}"), []
    signature = inspect.signature(adapter.train)

    class Done:
        checkpoint = metrics = episodes = None

    def train(*args, **kwargs):
        calls.append(signature.bind(*args, **kwargs).arguments)
        return Done

    monkeypatch.setattr(adapter, "train", train, raising=False)
    for block in shown(name):
        exec(compile(block, "page", "exec"), {})
    assert calls
    for call in calls:
        SETTINGS[name](call, tmp_path)


def trl_takes(call, folder):
    from adapters.trl.run import arguments

    args, _ = arguments(call["config"], folder, call.get("rollout"))
    assert args.max_completion_length == call["config"]["max_completion_length"]


def verl_takes(call, folder):
    from adapters.verl.run import verl_config

    cfg, _ = verl_config(call["model"], folder, call["config"], credit=call["credit"])
    assert cfg.data.max_response_length == 4096 and cfg.actor_rollout_ref.rollout.n == 8


def swift_takes(call, folder):
    from adapters.swift.run import arguments

    given = arguments(call["config"], call["model"], folder, [folder / "tasks.jsonl"])
    assert given["max_completion_length"] == 4096


SETTINGS = {"trl": trl_takes, "verl": verl_takes, "swift": swift_takes}
