"""``AWorld/Gaia-v0``: the GAIA world as an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.types import Limits

SYSTEM_PROMPT = (
    "You answer a question by using tools. Files that belong to the question are in your workspace; a local web can "
    "be searched. Work step by step, and compute with tools rather than in your head. When you are sure, call "
    "submit_answer once, with the answer alone: a number without units or thousands separators, a word or a few "
    "words, or a list separated by commas, exactly as the question asks."
)

LIMITS = Limits(max_turns=40)
"""Twice as many turns as the longest plan of level 3 has calls."""
MINI_TOOLS = ("list_files", "read_table", "calculate", "submit_answer")
MINI_LIMITS = Limits(max_turns=5, max_calls_per_turn=4)

PRESETS = ("mini",)


class GaiaEnv(ToolEnv):
    """Questions over files and a local web, answered with GAIA's kinds of tools.

    Without arguments it is endless training tasks of every level, offline: a server in this process, a workspace
    per episode, ``run_python`` confined.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``; the latter two hold out templates, entities and seeds.
        level: 1, 2 or 3 as GAIA counts them (:mod:`envs.gaia.levels`); all where None.
        world: ``"shifted"`` (real names, permuted values) or ``"synthetic"``; both where None. With ``preset="mini"``:
            ``"seen"`` (new tasks on the training words) or ``"unseen"`` words, see :class:`envs.gaia.mini.MiniTasks`.
        templates: names of task templates to draw from; all of the split's where None.
        preset: ``"mini"`` is short prompts over small tables with four tools, for small models.
        tools: names of the tools to offer; all where None.
        scorer: ``"strict"`` (typed) or ``"official"`` (bit-compatible with the public GAIA scorer, for comparison).
        sandbox: how ``run_python`` is confined: ``"auto"`` (the best this system offers, else the tool refuses) or
            ``"none"`` (not at all; only for code you trust).
        toolchain: an ``mcpServers`` config to use instead of the embedded server.
        system_prompt: the system message; a short instruction by default, none with ``preset="mini"``.
        limits: as for :class:`~aworld_gym.env.ToolEnv`; by default 40 turns, with ``preset="mini"`` five.
        render_mode: ``"ansi"`` or None.

    Raises:
        ConfigError: an argument that cannot work; it names those that can.
    """

    def __init__(
        self,
        *,
        split: str = "train",
        level: int | None = None,
        world: str | None = None,
        templates: Sequence[str] | None = None,
        preset: str | None = None,
        tools: Sequence[str] | None = None,
        scorer: str = "strict",
        sandbox: str = "auto",
        toolchain: Mapping[str, Any] | str | None = None,
        system_prompt: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ):
        from envs.gaia.mini import MiniTasks
        from envs.gaia.sandbox import MODES
        from envs.gaia.tasks import GaiaTasks

        if preset is not None and preset not in PRESETS:
            raise ConfigError(
                f"preset must be None or one of {PRESETS}, got {preset!r}.{did_you_mean(preset, PRESETS)}"
            )
        if sandbox not in MODES:
            raise ConfigError(f"sandbox must be one of {MODES}, got {sandbox!r}.{did_you_mean(sandbox, MODES)}")
        mini = preset == "mini"
        if mini and not (level in (None, 1) and templates is None):
            raise ConfigError("preset='mini' has its own level-1 tasks: leave level and templates out")
        if mini:
            tools, limits = tools or MINI_TOOLS, limits or MINI_LIMITS
        server = {
            "python": "envs.gaia.server:make_server",
            "kwargs": {"sandbox": sandbox, "compact": mini},
        }
        super().__init__(
            toolchain if toolchain is not None else {"mcpServers": {"gaia": server}},
            MiniTasks(split, world=world, scorer=scorer)
            if mini
            else GaiaTasks(split, level=level, world=world, templates=templates, scorer=scorer),
            limits=limits if limits is not None else LIMITS,
            system_prompt=system_prompt if system_prompt is not None or mini else SYSTEM_PROMPT,
            tools=tools,
            render_mode=render_mode,
        )
