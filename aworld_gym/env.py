"""The environment: one ``step()`` takes one assistant message and runs all its tool calls.

The asynchronous core (``areset``, ``astep``, ``aclose``) runs on the package's own event-loop thread; ``reset``,
``step`` and ``close`` are a facade that works from any thread, inside a running loop, and after fork. This module
knows tasks and tools only through :class:`~aworld_gym.tasks.TaskSource` and
:class:`~aworld_gym.toolchain.Toolchain`; it does not tokenise, sample, record to disk or shape rewards.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
from gymnasium.error import ResetNeeded

from aworld_gym.actions import Call, check_action, final_answer, read_calls
from aworld_gym.episode_state import Run, copied, failed, json_copy, tool_message
from aworld_gym.errors import ConfigError, InfraError, boundary, did_you_mean
from aworld_gym.spaces import AssistantMessage, Messages
from aworld_gym.tasks import TaskSource, task_source
from aworld_gym.toolchain import Toolchain, loop
from aworld_gym.toolchain.loop import SETTLE_S
from aworld_gym.toolchain.session import ToolSession
from aworld_gym.toolchain.threads import Threads
from aworld_gym.types import Episode, Limits, Message, Outcome, StepRecord, Task, ToolResult

log = logging.getLogger(__name__)

SLACK_S = 30.0
"""Seconds that the sync facade waits beyond what the limits allow before it calls the loop stuck."""

sources = Threads(min(32, (os.cpu_count() or 1) + 4), "aworld-gym-tasks")
"""For making tasks and their files: more work than waiting, so that more threads would only keep the loop waiting."""
judges = Threads(64, "aworld-gym-scores")
"""For scoring, which may wait for a model that judges."""

StepReturn = tuple[tuple[Message, ...], float, bool, bool, dict[str, Any]]


class ToolEnv(gym.Env[tuple[Message, ...], Message]):
    """A Gymnasium env over a toolchain and a task source.

    **Action**: an OpenAI-style assistant message. It may carry ``sampled`` (token ids, log-probabilities, model
    version; recorded untouched) and ``parse_errors`` (from a codec; each is answered with a tool message).

    **Observation**: a tuple of the *new* messages: system and user at reset, tool messages in call order after a
    step. The whole transcript is ``env.get_wrapper_attr("messages")``.

    **End**: ``terminated`` when an answer was submitted or too many turns in a row held no valid call;
    ``truncated`` at a limit or when infrastructure failed. ``info["outcome"]`` says which.

    Args:
        toolchain: an ``mcpServers`` config (dict or path), or a Toolchain, which stays the caller's to close.
        tasks: where tasks come from; a plain list of :class:`~aworld_gym.types.Task` or of their fields is enough, and
            so is what :func:`~aworld_gym.tasks.task_source` takes besides.
        limits: a Limits or a mapping of its fields.
        system_prompt: the system message; none where None.
        tools: names of the tools to offer; all where None.
        submit_tool: the tool whose valid call ends the episode, its ``answer`` argument being the answer.
        render_mode: ``"ansi"`` renders the transcript as text.

    Raises:
        ConfigError: the configuration cannot work.

    Example:
        >>> import gymnasium as gym, aworld_gym
        >>> env = gym.make("AWorld/Gaia-v0")
        >>> obs, info = env.reset(seed=0)
        >>> obs[-1]["role"]
        'user'
        >>> env.close()
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}
    manifests: ClassVar[Mapping[str, Path]] = {}
    """Fixed lists of tasks by name, as files (:mod:`aworld_gym.manifests`); for subclasses that have some."""

    def __init__(
        self,
        toolchain: Mapping[str, Any] | str | Path | Toolchain,
        tasks: TaskSource | Sequence[Task | Mapping[str, Any]] | Mapping[str, Any] | str | Path,
        *,
        limits: Limits | Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        tools: Sequence[str] | None = None,
        submit_tool: str | None = "submit_answer",
        render_mode: str | None = None,
    ):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(
                f"render_mode must be None or one of {self.metadata['render_modes']}, got {render_mode!r}"
            )
        if not (system_prompt is None or isinstance(system_prompt, str)):
            raise ConfigError(f"system_prompt must be a string or None, got {type(system_prompt).__name__}")
        self.limits = Limits.of(limits)
        self.tasks: TaskSource = task_source(tasks)
        self.system_prompt, self.submit_tool, self.render_mode = system_prompt, submit_tool, render_mode
        self._own_toolchain = not isinstance(toolchain, Toolchain)
        self.toolchain = toolchain if isinstance(toolchain, Toolchain) else Toolchain(toolchain, self.limits, tools)
        self.tape: Any = None
        """Where tool results are recorded to or come from (:mod:`aworld_gym.tape`); None: from the servers alone."""
        self.action_space: AssistantMessage = AssistantMessage()
        self.observation_space = Messages()
        self._run: Run | None = None
        self._busy = False

    # ---- the core, on the loop thread ------------------------------------------------------------------

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Begin an episode: a task by ``seed`` (or ``options["task_id"]``), fresh tools, the task's files in place.

        Args:
            seed: decides the task and everything else random.
            options: ``task_id`` picks a task; ``components`` overrides texts: ``system_prompt`` and
                ``tool:<name>.description``.

        Raises:
            ConfigError: unknown options or components. UnknownTaskError: no such task.
            InfraError: the tools could not be started.
        """
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(f"reset options are a mapping, got {type(options).__name__}")
        return await loop.call(self._exclusive(self._areset(seed, dict(options or {}))))

    async def astep(self, action: Message) -> StepReturn:
        """Run one assistant message and all its tool calls, concurrently.

        Never raises for what the model did, and reports a failure of the tools as ``infra_failure``.

        Raises:
            ActionError: the action is not an assistant message (the caller's mistake).
            ResetNeeded: there is no running episode.
        """
        check_action(action)
        return await loop.call(self._exclusive(self._astep(action)))

    async def aclose(self) -> None:
        """Close the episode's session and, where it is the env's own, the toolchain. Idempotent."""
        await loop.call(self._aclose())

    # ---- the facade --------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """As :meth:`areset`, from any thread."""
        return loop.run(self.areset(seed=seed, options=options), timeout=2 * self.limits.open_timeout_s + SLACK_S)

    def step(self, action: Message) -> StepReturn:
        """As :meth:`astep`, from any thread."""
        # A call may be repeated once after its session was opened again (the toolchain's retry rules).
        wait = 2 * self.limits.call_timeout_s + self.limits.open_timeout_s + SLACK_S
        return loop.run(self.astep(action), timeout=wait)

    def close(self) -> None:
        """As :meth:`aclose`, from any thread."""
        if self._run is not None or self._own_toolchain and self.toolchain.opened:
            loop.run(self.aclose(), timeout=self.limits.open_timeout_s + SLACK_S)

    def render(self) -> str | None:
        """The transcript as text (``render_mode="ansi"``)."""
        if self.render_mode is None:
            return None
        return "\n".join(f"[{m['role']}] {_readable(m)}" for m in self.messages)

    # ---- what an episode has to show ---------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """The whole transcript, as copies."""
        return [copied(m) for m in self._run.messages] if self._run else []

    @property
    def task(self) -> Task | None:
        """The running or last episode's task, answer and plan included. Not for the model."""
        return self._run.task if self._run else None

    @property
    def workspace(self) -> Path | None:
        """The running or last episode's directory; gone after the next reset or close."""
        return self._run.session.workspace if self._run else None

    @property
    def last_step(self) -> StepRecord | None:
        """The record of the last step, unshaped."""
        return self._run.steps[-1] if self._run and self._run.steps else None

    @property
    def episode(self) -> Episode | None:
        """The record of the running or last episode, with this env's own (unshaped) rewards."""
        if self._run is None:
            return None
        return self._run.record(self.spec.id if self.spec is not None else type(self).__name__)

    # ---- inside ------------------------------------------------------------------------------------------

    async def _exclusive(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._busy:
            work.close()
            raise RuntimeError("this env is in the middle of a reset or step; one env runs one episode at a time")
        self._busy = True
        try:
            return await work
        finally:
            self._busy = False

    async def _areset(self, seed: int | None, options: dict[str, Any]) -> tuple[tuple[Message, ...], dict[str, Any]]:
        super().reset(seed=seed)
        task_id, components = options.pop("task_id", None), options.pop("components", None) or {}
        if options:
            unknown = sorted(map(str, options))[0]
            hint = did_you_mean(unknown, ("task_id", "components"))
            raise ConfigError(f"unknown reset option {unknown!r}; known are 'task_id' and 'components'.{hint}")
        if not isinstance(components, Mapping):
            raise ConfigError(f"components map names to texts, got {type(components).__name__}")
        if not isinstance(task_id, str | None):  # else a source's own TypeError would pass for infrastructure
            raise ConfigError(f"the option task_id is a text, got {type(task_id).__name__}: {task_id!r:.80}")
        await self._end_run()
        rng = self.np_random  # made here, so that it is seeded even where the task is named
        with boundary("env_failed", what="no task could be had"):
            if task_id is not None:
                task = await sources.run(self.tasks.get, task_id)
            else:
                task = await sources.run(self.tasks.sample, rng)
        if self.tape is not None:
            session = await self.tape.open(self.toolchain, task)
        else:
            session = await self.toolchain.open(public=task.public)
        placing = asyncio.ensure_future(sources.run(self.tasks.setup, task, session.workspace))
        try:
            with boundary("env_failed", what=f"the files of task {task.id!r} could not be placed"):
                await asyncio.shield(placing)
                await session.deliver()
            system_prompt, tools = _overridden(self.system_prompt, session.tools, components)
        except BaseException:
            await _closed_after(placing, session)
            raise
        prompt: list[Message] = [{"role": "system", "content": system_prompt}] if system_prompt else []
        prompt.append({"role": "user", "content": task.prompt})
        self._run = Run(task, session, seed, tools, messages=prompt)
        self._run.finalizer = weakref.finalize(self, _close_abandoned, session, os.getpid())
        self._run.finalizer.atexit = False  # at exit the toolchain closes whatever is open
        self.action_space.offer(tools)
        info = self._run.info({}) | {"tools": json_copy(tools)}
        return tuple(copied(m) for m in prompt), info

    async def _astep(self, action: Message) -> StepReturn:
        run = self._run
        if run is None:
            raise ResetNeeded("call reset() before step()")
        if run.outcome is not None:
            raise ResetNeeded(f"this episode has ended ({run.outcome}); call reset() to begin another")
        started = run.seconds()
        calls = read_calls(action, run.turns, self.limits.max_calls_per_turn)
        run.messages.append(copied(action))
        run.tokens += _sampled_tokens(action)
        results: tuple[ToolResult, ...] = ()
        try:
            if run.pid != os.getpid():
                raise InfraError("session_lost", "the process was forked in the middle of an episode; reset() the copy")
            with boundary("env_failed"):
                results = await self._run_calls(run, calls)
            observation = tuple(tool_message(result) for result in results)
            outcome = run.after_turn(calls, results, self.limits)
            submitted, answer = self._answer(action, calls, results)
            if submitted:
                outcome, run.submitted = Outcome.NO_ANSWER if answer is None else Outcome.ANSWERED, answer
            reward = 0.0
            if outcome is not None:
                run.score = await scored(self.tasks, run.task, run.submitted)
                reward = run.score or 0.0
        except InfraError as error:
            observation, outcome, reward, run.score = (), Outcome.INFRA_FAILURE, 0.0, None
            run.error, run.error_kind = str(error), error.kind
            log.info("task %s ends as infra_failure: %s", run.task.id, error)
        except asyncio.CancelledError:
            run.outcome = Outcome.CANCELLED
            raise
        run.outcome = outcome
        run.messages.extend(observation)
        record = StepRecord(
            index=run.turns,
            action=copied(action),
            results=results,
            observation=tuple(copied(m) for m in observation),
            reward=reward,
            components={"task": reward},
            state_key=run.state_key(),
            started_s=started,
            duration_s=run.seconds() - started,
        )
        run.steps.append(record)
        run.turns += 1
        terminated = outcome is not None and outcome.terminated
        info = run.info(Counter(r.error for r in results if r.error is not None), reward)
        return tuple(copied(m) for m in observation), reward, terminated, outcome is not None and not terminated, info

    async def _run_calls(self, run: Run, calls: list[Call]) -> tuple[ToolResult, ...]:
        left = None if self.limits.max_tool_calls is None else self.limits.max_tool_calls - run.tool_calls
        allowed = min(self.limits.max_calls_per_turn, len(calls) if left is None else max(left, 1))

        async def one(position: int, call: Call) -> ToolResult:
            if call.error is not None:
                return failed(call, *call.error)
            if position >= allowed:
                text = f"only {allowed} tool calls are run in this message; this one was not. Call fewer at once."
                return failed(call, "call_over_limit", text)
            return await run.session.call(call.id, call.name, call.arguments)

        if len(calls) == 1:
            return (await one(0, calls[0]),)
        # gather would leave siblings running when one fails; an infrastructure failure ends the step for all.
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(k, call)) for k, call in enumerate(calls)]
        except ExceptionGroup as failures:
            infra = failures.subgroup(InfraError)
            raise (failures if infra is None else infra).exceptions[0] from failures
        return tuple(task.result() for task in tasks)

    def _answer(self, action: Message, calls: list[Call], results: tuple[ToolResult, ...]) -> tuple[bool, str | None]:
        """Whether the message ends the episode, and with which answer; the first valid submission counts."""
        if not calls:
            return True, final_answer(action)
        for call, result in zip(calls, results, strict=True):
            if call.name == self.submit_tool and result.error is None:
                return True, str(call.arguments.get("answer", ""))
        return False, None

    async def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            if run.finalizer is not None:
                run.finalizer.detach()
            if run.pid == os.getpid():  # a session inherited through fork is the parent's to close
                await run.session.aclose()

    async def _aclose(self) -> None:
        await self._end_run()
        if self._own_toolchain:
            await self.toolchain.aclose()

    def __getstate__(self) -> dict[str, Any]:
        # A copy begins without an episode: live sessions belong to the original.
        return {**self.__dict__, "_run": None, "_busy": False}


async def scored(tasks: TaskSource, task: Task, answer: str | None) -> float | None:
    """The score of an answer; None where the task has no true one. On the package's loop, and beside it.

    Raises:
        InfraError: the task source failed.
    """
    with boundary("env_failed", what=f"the answer to task {task.id!r} could not be scored"):
        verdict = await judges.run(tasks.score, task, answer)
        return None if verdict is None else float(verdict.value)


async def _closed_after(placing: asyncio.Future[None], session: ToolSession) -> None:
    """Close a session whose task's files may still be being written.

    A thread cannot be stopped, and the workspace would go to another episode, or come back after it was removed. One
    that takes long is not waited for: the session then stays open until it has ended.
    """

    async def close() -> None:
        await asyncio.wait((placing,))
        await session.aclose()

    closing = asyncio.create_task(close())
    _closing.add(closing)  # the loop itself holds tasks but weakly
    closing.add_done_callback(_closing.discard)
    await asyncio.wait((closing,), timeout=SETTLE_S)
    if closing.done():
        closing.result()


_closing: set[asyncio.Task[None]] = set()


def _sampled_tokens(action: Message) -> int:
    ids = (action.get("sampled") or {}).get("token_ids")
    return 0 if ids is None else len(ids)


def _overridden(
    system_prompt: str | None, tools: Sequence[Mapping[str, Any]], components: Mapping[str, str]
) -> tuple[str | None, list[dict[str, Any]]]:
    named = json_copy([dict(tool) for tool in tools])
    places = {f"tool:{tool['function']['name']}.description": tool["function"] for tool in named}
    for name, text in components.items():
        if not isinstance(text, str):
            raise ConfigError(f"component {name!r} must be a string, got {type(text).__name__}")
        if name == "system_prompt":
            system_prompt = text
        elif name in places:
            places[name]["description"] = text
        else:
            known = ("system_prompt", *places)
            raise ConfigError(f"unknown component {name!r}; known are {', '.join(known)}.{did_you_mean(name, known)}")
    return system_prompt, named


def _readable(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list | tuple):
        content = " ".join(part.get("text", f"<{part['type']}>") for part in content)
    calls = (f"{c['function']['name']}({c['function'].get('arguments', '')})" for c in message.get("tool_calls") or ())
    return " ".join(filter(None, [content, *calls]))


def _close_abandoned(session: Any, pid: int) -> None:
    """Close the session of an env that was dropped without close()."""
    if pid == os.getpid():
        loop.submit(session.aclose())
