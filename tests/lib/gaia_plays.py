"""Plans of the generator's, played against the real tool server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from aworld_gym.toolchain import Toolchain, loop
from aworld_gym.types import PlanStep
from envs.gaia.render import Content, render


def play(
    chain: Toolchain,
    public: Mapping[str, Any],
    files: Mapping[str, Content] | Callable[[Path], None],
    plan: Iterable[PlanStep],
    name: str,
) -> None:
    """Play a plan in a fresh workspace; asserts that no call fails and that each shows what it says it does.

    Args:
        chain: the GAIA toolchain.
        public: what the server may know of the task.
        files: the task's files, or what writes them into the workspace.
        plan: the calls.
        name: what the plan is of, for messages.
    """
    session = loop.run(chain.open(public=dict(public)))
    try:
        if callable(files):
            files(session.workspace)
        else:
            for path, content in files.items():
                (session.workspace / path).write_bytes(render(path, content))
        for index, step in enumerate(plan):
            assert session.check(step.tool, dict(step.arguments)) is None, (name, step)
            result = loop.run(session.call(f"c{index}", step.tool, dict(step.arguments)))
            assert result.error is None, f"{step.tool} of {name}: {result.text}"
            assert result.cut_chars == 0
            for shown in step.shows:
                assert shown in result.text, f"{step.tool} of {name} does not show {shown!r}: {result.text}"
    finally:
        loop.run(session.aclose())
