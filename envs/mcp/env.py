"""``AWorld/Mcp-v0``: an ``mcpServers`` configuration and a set of tasks as an environment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError, UnknownTaskError
from aworld_gym.records import from_records
from aworld_gym.tasks import TaskSource, task_source
from aworld_gym.toolchain.config import ToolchainConfig, load_config
from aworld_gym.types import Limits, Message, Score, Task
from aworld_gym.vector import ToolVectorEnv, vector_of
from envs.mcp.submission import TOOL

SUBMISSION = "aworld_submission"
"""Name of the server that is added for its one tool."""

SYSTEM_PROMPT = (
    "You answer a question by using tools. Work step by step, and look things up or compute them with tools rather "
    "than from memory. When you are sure, {how}, with the answer alone: no sentence, no working."
)
OPEN_PROMPT = "Say what you can do here: try one of your tools, then answer in a few words what it gave."
"""What is asked where nobody gave a task or a prompt."""
MAX_PROMPTS = 1000
"""Users' prompts that an env remembers, the latest: those are tasks that can be asked for by their ids."""


class McpEnv(ToolEnv):
    """Your MCP servers, with your tasks.

    A tool ``submit_answer`` is added to your servers', so that an agent can end an episode by a call; an answer in the
    text of a message without calls (``<answer>...</answer>``) counts as ever.

    Args:
        mcp_config: an ``mcpServers`` file, or its content as a mapping.
        tasks: a list of rows or a file of them (see :func:`aworld_gym.tasks.from_records`; columns ``prompt`` and
            ``answer``), a mapping of the arguments of ``from_records`` (``rows`` among them, for other columns), or a
            task source of your own. All but the last are JSON where they hold nothing else, so that the env's spec
            survives. Without tasks a user's prompt is played, ``reset(options={"prompt": ...})``, and there is no
            reward.
        scorer: how answers are judged, a name or an import path (:mod:`aworld_gym.records.verdicts`); for tasks given
            as rows or a file. ``"strict"`` where None.
        submit_tool: the tool whose call ends an episode. The default adds one; another name is one of your servers'
            tools (its argument ``answer`` is the answer); None: answers are given in text only.
        tools: names of the tools to offer; all where None. ``submit_tool`` is always offered.
        system_prompt: the system message; a short instruction by default, none where it is an empty text.
        limits: as for :class:`~aworld_gym.env.ToolEnv`.
        render_mode: ``"ansi"`` or None.

    Raises:
        ConfigError: an argument that cannot work; the message says which, and what to do.

    Example:
        >>> import gymnasium as gym, aworld_gym
        >>> config = {"mcpServers": {"clock": {"command": "mcp-server-time"}}}
        >>> rows = [{"prompt": "It is 12:00 in UTC. What time is it in Tokyo?", "answer": "21:00"}]
        >>> env = gym.make("AWorld/Mcp-v0", mcp_config=config, tasks=rows)
        >>> env.close()
    """

    def __init__(
        self,
        *,
        mcp_config: Mapping[str, Any] | str | Path | None = None,
        tasks: Any = None,
        scorer: str | None = None,
        submit_tool: str | None = TOOL,
        tools: Sequence[str] | None = None,
        system_prompt: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ):
        if mcp_config is None:
            raise ConfigError(
                "AWorld/Mcp-v0 needs your servers: pass mcp_config=, the path of an mcpServers file or its content "
                "(on the command line -k mcp_config=mcp.json)"
            )
        if isinstance(tools, str):
            raise ConfigError(f"tools is a list of names, got the text {tools!r}: write [{tools!r}]")
        config = load_config(mcp_config)
        if submit_tool == TOOL:
            config = _with_submission(config)
        if tools is not None and submit_tool is not None and submit_tool not in tools:
            tools = [*tools, submit_tool]
        if system_prompt is None:
            how = f"call {submit_tool} once" if submit_tool else "write it as <answer>...</answer>"
            system_prompt = SYSTEM_PROMPT.format(how=how)
        super().__init__(
            config,
            _task_source(tasks, scorer),
            limits=limits,
            system_prompt=system_prompt or None,
            tools=tools,
            submit_tool=submit_tool,
            render_mode=render_mode,
        )

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """As :meth:`aworld_gym.env.ToolEnv.areset`, with one more option.

        Args:
            seed: decides the task.
            options: besides those of every tool env, ``prompt``: a user's words to be played as a task without a true
                answer.
        """
        if isinstance(options, Mapping) and "prompt" in options:
            options = dict(options)
            prompt = options.pop("prompt")
            if not isinstance(prompt, str) or not prompt.strip():
                raise ConfigError(f"the option prompt is a text, got {prompt!r:.80}")
            played = self._prompts.add(prompt)
            if options.setdefault("task_id", played) != played:  # a fork of the prompt's episode names both
                raise ConfigError("give either a prompt or a task_id, not both")
        obs, info = await super().areset(seed=seed, options=options)
        try:
            self._check_submission({tool["function"]["name"]: tool["function"] for tool in info["tools"]})
        except ConfigError:
            await self.aclose()
            raise
        return obs, info

    def _check_submission(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise ConfigError where no answer could be submitted by the tool for that."""
        if self.submit_tool is None:
            return
        if self.submit_tool not in tools:
            similar = [name for name in tools if name.endswith(f"__{self.submit_tool}")]
            raise ConfigError(
                f"no tool is called {self.submit_tool!r}, by which answers are submitted; "
                + (f"there are {', '.join(similar)}: pass one as submit_tool=" if similar else f"there are {[*tools]}")
            )
        takes = tools[self.submit_tool].get("parameters", {}).get("properties", {})
        if "answer" not in takes and self.task is not None and self.task.answer is not None:
            raise ConfigError(
                f"submit_tool={self.submit_tool!r}: an answer is submitted as the argument 'answer', and this tool "
                f"takes {', '.join(takes) or 'no arguments'}, so that no answer would be right; choose another tool, "
                "leave submit_tool out for one that is added, or pass None for answers in text"
            )

    @property
    def _prompts(self) -> _WithPrompts:
        assert isinstance(self.tasks, _WithPrompts)
        return self.tasks


def make_vec(num_envs: int, **kwargs: Any) -> ToolVectorEnv:
    """``gym.make_vec("AWorld/Mcp-v0", num_envs)``: a vector env that steps its sub-envs concurrently."""
    return vector_of("AWorld/Mcp-v0", num_envs, **kwargs)


class _WithPrompts:
    """A task source, and users' prompts besides; the prompts alone where there is no source."""

    def __init__(self, source: TaskSource | None):
        self.source = source
        self._prompts: dict[str, Task] = {}
        self._open = self.add(OPEN_PROMPT) if source is None else ""

    def __getattr__(self, name: str) -> Any:
        # What a source has beyond the protocol (its scorer's name, its list of tasks) is seen through.
        if name.startswith("_") or self.__dict__.get("source") is None:
            raise AttributeError(name)
        return getattr(self.source, name)

    def add(self, prompt: str) -> str:
        """The id of the prompt's task."""
        task = Task(id=f"prompt-{hashlib.sha256(prompt.encode('utf-8', 'replace')).hexdigest()[:16]}", prompt=prompt)
        self._prompts.pop(task.id, None)  # it becomes the latest
        self._prompts[task.id] = task
        if len(self._prompts) > MAX_PROMPTS:
            del self._prompts[next(name for name in self._prompts if name != self._open)]
        return task.id

    def sample(self, rng: np.random.Generator) -> Task:
        """One of the tasks; where there are none, an open question."""
        return self._prompts[self._open] if self.source is None else self.source.sample(rng)

    def get(self, task_id: str) -> Task:
        """The task or prompt of that id."""
        if task_id in self._prompts:
            return self._prompts[task_id]
        if self.source is None:
            raise UnknownTaskError(f"there is no task {task_id!r}: this env was made without tasks")
        return self.source.get(task_id)

    def setup(self, task: Task, workspace: Path) -> None:
        """Place the task's files; a prompt has none."""
        if self.source is not None and task.id not in self._prompts:
            self.source.setup(task, workspace)

    def score(self, task: Task, answer: str | None) -> Score | None:
        """The source's verdict; a prompt has no true answer."""
        return None if self.source is None or task.id in self._prompts else self.source.score(task, answer)


def _task_source(tasks: Any, scorer: str | None) -> TaskSource:
    if tasks is None:
        if scorer is not None:
            raise ConfigError("scorer= judges answers to tasks: pass tasks= too")
        return _WithPrompts(None)
    if isinstance(tasks, TaskSource):
        source = tasks
    elif isinstance(tasks, Mapping) and "rows" in tasks:
        if scorer is not None and tasks.get("scorer", scorer) != scorer:
            raise ConfigError(f"two scorers are given: {scorer!r}, and {tasks['scorer']!r} with the tasks")
        return _WithPrompts(task_source({**tasks, **({"scorer": scorer} if scorer is not None else {})}))
    elif isinstance(tasks, Sequence) and tasks and all(isinstance(task, Task) for task in tasks):
        source = task_source(tasks)
    else:
        return _WithPrompts(from_records(tasks, scorer=scorer))
    if scorer is not None:
        raise ConfigError(f"scorer= is for tasks given as rows or a file; a {type(tasks).__name__} scores by itself")
    return _WithPrompts(source)


def _with_submission(config: ToolchainConfig) -> ToolchainConfig:
    """The configuration with one server more, for its tool."""
    added = load_config({"mcpServers": {SUBMISSION: {"python": "envs.mcp.submission:make_server"}}}).servers
    if any(server.name == SUBMISSION for server in config.servers):
        raise ConfigError(f"{config.source} has a server {SUBMISSION!r}, the name of the one that is added; rename it")
    return ToolchainConfig((*config.servers, *added), config.source)
