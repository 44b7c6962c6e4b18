"""``AWorld/Gaia-v0``: the GAIA world as an environment."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError, MissingDependencyError, did_you_mean
from aworld_gym.tasks import TaskSource
from aworld_gym.types import Limits
from aworld_gym.vector import ToolVectorEnv, vector_of
from envs.gaia.manifests import MANIFESTS

SYSTEM_PROMPT = (
    "You answer a question by using tools. Files that belong to the question are in your workspace; a local web can "
    "be searched. Work step by step, and compute with tools rather than in your head. When you are sure, call "
    "submit_answer once, with the answer alone: a number without units or thousands separators, a word or a few "
    "words, or a list separated by commas, exactly as the question asks."
)

DATASET_PROMPT = SYSTEM_PROMPT.replace(
    " are in your workspace; a local web can be searched.", " are in your workspace."
)
LIMITS = Limits(max_turns=40)
"""Twice as many turns as the longest plan of level 3 has calls."""
DATASET_LIMITS = Limits(max_turns=60, max_tool_calls=200, call_timeout_s=120.0, open_timeout_s=120.0)
"""Real questions take up to dozens of steps, and long documents and live web pages take their time."""
SERVERS_CALL_S = 180.0
"""What a call may take with ``servers``; each of them has deadlines of its own that are shorter."""
MINI_TOOLS = ("list_files", "read_table", "calculate", "submit_answer")
MINI_LIMITS = Limits(max_turns=5, max_calls_per_turn=4)

PACKAGES = ("docx", "fpdf", "openpyxl", "PIL", "pptx", "pypdf", "segno", "xlsxwriter", "zxingcpp")
"""What the tasks' files are made and read with, but for the preset ``mini``."""
PRESETS = ("mini",)
WHERE = ("remote", "embedded")
"""What ``toolchain`` may be besides a config."""


class GaiaEnv(ToolEnv):
    """Questions over files and a local web, answered with GAIA's kinds of tools.

    Without arguments it is endless training tasks of every level, offline: a server in this process, a workspace
    per episode, ``run_python`` confined.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``; the latter two hold out templates, entities and seeds.
        level: 1, 2 or 3 as GAIA counts them (:mod:`envs.gaia.levels`); all where None.
        world: ``"shifted"`` (real names, permuted values) or ``"synthetic"``; both where None. ``"real"`` has facts as
            they are (DATA.md), for show and evaluation: a model may know them. With ``preset="mini"``: ``"seen"`` (new
            tasks on the training words) or ``"unseen"`` words, see :class:`envs.gaia.mini.MiniTasks`.
        dataset: the folder of the real GAIA data set (:class:`envs.gaia.dataset.GaiaDataset`); its questions are
            played instead of the embedded world's, with ``split="validation"`` or ``"test"``. The test split's answers
            are not public: no reward, and a score of None. The local web is not offered; for a live one see
            ``servers``.
        templates: names of task templates to draw from; all of the split's where None.
        preset: ``"mini"`` is short prompts over small tables with four tools, for small models.
        tools: names of the embedded tools to offer; all where None.
        servers: names of servers with tools that need a network or a key, such as ``["search", "wikipedia"]``; their
            tools are added to the embedded ones. Each is a process of its own that takes its keys from the environment
            or ``.env``; :mod:`envs.gaia.servers` says which there are. Episodes with them cannot be reproduced.
        distractor_tools: how many working tools that no task needs are added (:mod:`envs.gaia.distractors`).
        scorer: ``"strict"`` (typed) or ``"official"`` (bit-compatible with the public GAIA scorer, for comparison).
            Strict where None, and official with ``dataset``.
        sandbox: how ``run_python`` is confined: ``"auto"`` (the best this system offers, else the tool refuses) or
            ``"none"`` (not at all; only for code you trust).
        toolchain: an ``mcpServers`` config to use instead of the embedded server; or ``"remote"``, the environment host
            that ``MCP_SERVER_URL`` (one or several) and ``MCP_SERVER_TOKEN`` name, in the environment or in ``.env``;
            or ``"embedded"``, the server in this process. None: the host if ``MCP_SERVER_URL`` is set, else the latter.
        system_prompt: the system message; a short instruction by default, none with ``preset="mini"``.
        limits: as for :class:`~aworld_gym.env.ToolEnv`; by default 40 turns (60 with ``dataset``, five with
            ``preset="mini"``).
        render_mode: ``"ansi"`` or None.

    Raises:
        ConfigError: an argument that cannot work; it names those that can.
    """

    manifests = MANIFESTS

    def __init__(
        self,
        *,
        split: str = "train",
        level: int | None = None,
        world: str | None = None,
        dataset: str | Path | None = None,
        templates: Sequence[str] | None = None,
        preset: str | None = None,
        tools: Sequence[str] | None = None,
        servers: Sequence[str] | None = None,
        distractor_tools: int = 0,
        scorer: str | None = None,
        sandbox: str = "auto",
        toolchain: Mapping[str, Any] | str | None = None,
        system_prompt: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ):
        from envs.gaia.sandbox import MODES

        if preset is not None and preset not in PRESETS:
            raise ConfigError(
                f"preset must be None or one of {PRESETS}, got {preset!r}.{did_you_mean(preset, PRESETS)}"
            )
        if sandbox not in MODES:
            raise ConfigError(f"sandbox must be one of {MODES}, got {sandbox!r}.{did_you_mean(sandbox, MODES)}")
        if dataset is not None and (world, templates, preset) != (None, None, None):
            raise ConfigError("dataset= plays the real questions: leave world, templates and preset out")
        mini = preset == "mini"
        if mini and not (level in (None, 1) and templates is None):
            raise ConfigError("preset='mini' has its own level-1 tasks: leave level and templates out")
        if mini:
            tools, limits = tools or MINI_TOOLS, limits or MINI_LIMITS
        remote = _host(toolchain, mini=mini)
        if not mini and (dataset is None or remote is None):
            check_installed()
        server: dict[str, Any] = remote or {
            "python": "envs.gaia.server:make_server",
            "kwargs": {"sandbox": sandbox, "compact": mini},
        }
        toolchain = None if toolchain in WHERE else toolchain
        if dataset is not None:
            server["tools"] = _without_local_web()
        added, names = _added(servers, distractor_tools, on_host=remote is not None)
        if remote is not None:
            server["servers"] = ["gaia", *(servers or ())]
            if servers and "tools" in server:
                server["tools"] = [*server["tools"], *names[: len(names) - distractor_tools]]
        if added and toolchain is not None:
            raise ConfigError(
                "servers and distractor_tools add to the embedded server, which toolchain= replaces: put what you want "
                "into your own config (python -m envs.gaia.servers --config NAME prints entries for it)"
            )
        prompt = None if mini else SYSTEM_PROMPT if dataset is None else DATASET_PROMPT
        default_limits = LIMITS if dataset is None else DATASET_LIMITS
        if servers:
            default_limits = replace(default_limits, call_timeout_s=SERVERS_CALL_S, open_timeout_s=120.0)
        super().__init__(
            toolchain if toolchain is not None else {"mcpServers": {"gaia": server, **added}},
            _tasks(dataset, split, level=level, world=world, templates=templates, scorer=scorer, mini=mini),
            limits=limits if limits is not None else default_limits,
            system_prompt=system_prompt if system_prompt is not None else prompt,
            tools=tools if tools is None or not names else [*tools, *(name for name in names if name not in tools)],
            render_mode=render_mode,
        )


@cache
def check_installed() -> None:
    """Say at once what is missing; in an episode it would be taken for a failure of the infrastructure.

    Raises:
        MissingDependencyError: of the packages that make the tasks' files, or read them for the tools.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"AWorld/Gaia-v0 needs: pip install 'aworld-gym[gaia]' (cannot import {', '.join(missing)})"
        )


def make_vec(num_envs: int, **kwargs: Any) -> ToolVectorEnv:
    """``gym.make_vec("AWorld/Gaia-v0", num_envs)``: a vector env that steps its sub-envs concurrently."""
    return vector_of("AWorld/Gaia-v0", num_envs, **kwargs)


def _tasks(
    dataset: str | Path | None,
    split: str,
    *,
    level: int | None,
    world: str | None,
    templates: Sequence[str] | None,
    scorer: str | None,
    mini: bool,
) -> TaskSource:
    """The tasks that the arguments ask for."""
    if dataset is not None:
        from envs.gaia.dataset import GaiaDataset

        return GaiaDataset(dataset, split, level, scorer or "official")
    if mini:
        from envs.gaia.mini import MiniTasks

        return MiniTasks(split, world=world, scorer=scorer or "strict")
    from envs.gaia.tasks import GaiaTasks

    return GaiaTasks(split, level=level, world=world, templates=templates, scorer=scorer or "strict")


def _host(toolchain: Any, *, mini: bool) -> dict[str, Any] | None:
    """The entry of the environment host, if one is to be used."""
    from envs.gaia.servers.settings import Settings

    if toolchain is not None and toolchain != "remote":
        return None
    settings = Settings.load()
    url, token = settings.get("MCP_SERVER_URL"), settings.get("MCP_SERVER_TOKEN")
    if not url:
        if toolchain is None:
            return None
        raise ConfigError("toolchain='remote' needs MCP_SERVER_URL, the address of an environment host (and its token)")
    if mini:
        raise ConfigError(
            "preset='mini' has terse tools of its own, which no host serves: say toolchain='embedded', or unset "
            "MCP_SERVER_URL"
        )
    if not token:
        raise ConfigError("MCP_SERVER_URL is set and MCP_SERVER_TOKEN is not: a host prints its token when it starts")
    return {"type": "aworld-host", "url": url, "token": token, "toolchain": "gaia"}


def _added(
    servers: Sequence[str] | None, distractor_tools: int, *, on_host: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """The entries of the servers beside the embedded one, and the names of their tools; a host has its own entries."""
    entries: dict[str, Any] = {}
    names: list[str] = []
    if servers is not None:
        from envs.gaia.servers import catalog

        names = catalog.tool_names(servers)
        entries = {} if on_host else catalog.config(servers)
    if distractor_tools != 0:
        from envs.gaia import distractors

        chosen = distractors.chosen(distractor_tools)
        entries["extras"] = {"python": "envs.gaia.distractors:make_server", "kwargs": {"names": chosen}}
        names += chosen
    return entries, names


def _without_local_web() -> list[str]:
    """The embedded server's tools but for those over the generated web, which knows nothing of real questions."""
    from envs.gaia.levels import TOOL_KINDS
    from envs.gaia.tools import NAMES

    return [name for name in NAMES if TOOL_KINDS.get(name) != "web"]
