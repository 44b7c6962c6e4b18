"""One episode: a policy's agent against one env, and the record of it.

Decides what ends an episode besides the env itself (the agent's token budget, the deadline, a policy that cannot
sample) and whose fault an exception is. It opens and closes nothing, and knows no other episode.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from aworld_gym import aio, tape
from aworld_gym.branch import Prefix
from aworld_gym.env import scored
from aworld_gym.episode_state import as_returned
from aworld_gym.errors import ActionError, AWorldGymError, InfraError, PolicyError, describe
from aworld_gym.identity import env_id_of, spec_json, versions
from aworld_gym.policies.base import Agent, Policy
from aworld_gym.types import Episode, Message, Outcome, StepRecord
from aworld_gym.wrappers.transcript import TranscriptObservation


@dataclass(frozen=True)
class Item:
    """One episode to play."""

    index: int
    """Its place in the rollout; unique."""
    seed: int | None
    sample: int = 0
    """Which of its group's episodes it is."""
    group_id: str | None = None
    options: Mapping[str, Any] | None = None
    """For reset; ``{"task_id": ...}`` picks a task."""
    manifest: str | None = None
    """The hash of the manifest that it is of; recorded among the episode's versions."""
    prefix: Prefix | None = None
    """For a fork: the recorded steps that are taken again before the policy plays on."""

    @property
    def task_id(self) -> str | None:
        """The task that ``options`` asks for, if they do."""
        return (self.options or {}).get("task_id")

    @property
    def parent(self) -> str | None:
        """For a fork: the key of the episode it is of."""
        return None if self.prefix is None else self.prefix.episode.key

    def label(self, attempt: int) -> tape.Label:
        """Whose recorded tool results it is given first: its own, or those of the episode that it is a fork of."""
        if self.prefix is None:
            return tape.Label(self.seed, self.sample, attempt)
        of = self.prefix.episode
        return tape.Label(of.seed, of.sample, of.attempt)


async def play(
    env: gym.Env, policy: Policy, item: Item, *, attempt: int = 0, deadline_s: float | None = None
) -> Episode:
    """Play one item and return its record; on the package's loop.

    Args:
        env: a ToolEnv, wrapped or not. After an invalid record, or ``timeout``, it is not fit for another episode.
        policy: makes the agent.
        item: what to play.
        attempt: recorded, and told to the policy.
        deadline_s: seconds until the episode is ended as ``timeout``, the policy's time included.

    Raises:
        PolicyError: the policy raised, or gave what is not an action.
        ReplayError: what was recorded does not come again (a tape without a call, a fork's step with another result).
        AWorldGymError: the caller's mistakes (an unknown task, a broken configuration).
    """
    began = time.monotonic()
    run = _Run(env, policy, item, attempt)
    try:
        async with asyncio.timeout(deadline_s) as deadline:
            await run.through()
    except TimeoutError:
        if not deadline.expired():
            raise
        if run.started:
            run.ended = Outcome.TIMEOUT
        else:
            run.fail(InfraError("env_failed", f"the env was not reset within the deadline of {deadline_s} s"))
    except InfraError as error:
        run.fail(error)
    except Exception as error:
        error.add_note(f"In {run.place()}.")
        raise
    finally:
        run.close()
    return await run.record(began)


def failed(env_id: str, policy: Policy, item: Item, error: InfraError, *, attempt: int = 0) -> Episode:
    """The record of an episode that never began, because its env could not be made or reset."""
    return Episode(
        env_id=env_id,
        task_id=item.task_id or "",
        seed=item.seed,
        attempt=attempt,
        group_id=item.group_id,
        sample=item.sample,
        parent=item.parent,
        forked_at=0 if item.prefix is None else item.prefix.steps,
        outcome=Outcome.INFRA_FAILURE,
        error=str(error),
        error_kind=error.kind,
        versions=versions(policy, item.manifest),
    )


class _Run:
    """The state of one episode while it is played."""

    def __init__(self, env: gym.Env, policy: Policy, item: Item, attempt: int):
        self.env, self.policy, self.item, self.attempt = env, policy, item, attempt
        self.agent: Agent | None = None
        self.steps: list[StepRecord] = []
        self.started = False
        self.ended: Outcome | None = None
        self.error: InfraError | None = None

    async def through(self) -> None:
        """Reset, then act and step until something ends the episode."""
        env, item, policy = self.env, self.item, self.policy
        tape.PLAYING.set(item.label(self.attempt))
        obs, info = await aio.areset(env, seed=item.seed, options=None if item.options is None else dict(item.options))
        self.started = True
        with self.policys_fault("episode"):
            self.agent = policy.episode(
                obs=obs, info=info, seed=item.seed, index=item.index, attempt=self.attempt, env=env
            )
        observe = getattr(self.agent, "observe", None)
        whole = _observes_transcript(env)
        new, done = obs, False
        if item.prefix is not None:
            obs, new, info = await self.again(item.prefix, obs, info, whole)
            done = info["outcome"] is not None  # infrastructure failed
        while not done:
            with self.policys_fault("act"):
                action = await self.said(new)
            if action is None:
                self.ended = Outcome.MAX_TOKENS
                return
            seen = len(obs) + 1 if whole else 0  # a transcript holds what was shown before, and the action
            obs, reward, terminated, truncated, info = await self.step(action)
            new, done = obs[seen:], terminated or truncated
            self.steps.append(as_returned(env.get_wrapper_attr("last_step"), float(reward), info))
            if observe is not None:
                with self.policys_fault("observe"):
                    observe(float(reward), info, done)
        if info["outcome"] is None:
            self.ended = Outcome.MAX_TURNS  # cut by a wrapper such as TimeLimit, of which the env knows nothing

    async def again(
        self, prefix: Prefix, obs: Any, info: dict[str, Any], whole: bool
    ) -> tuple[Any, tuple[Message, ...], dict[str, Any]]:
        """Take a fork's recorded steps; the last observation and info, and between them what the agent was not told.

        An agent with ``follow`` is told of each step as if it had been its own. Any other is given the conversation so
        far, its recorded messages included, when it is first asked.
        """
        prefix.check_reset(self.env.get_wrapper_attr("episode").prompt, info["tools"])
        follow = getattr(self.agent, "follow", None)
        new: tuple[Message, ...] = obs
        for step in prefix.episode.steps[: prefix.steps]:
            seen = len(obs) + 1 if whole else 0
            try:
                obs, reward, terminated, truncated, info = await aio.astep(self.env, step.action)
            except ActionError as error:
                prefix.refuse(f"its env does not take the recorded action of step {step.index}: {error}")
            record = self.env.get_wrapper_attr("last_step")
            self.steps.append(as_returned(record, float(reward), info))
            if info["outcome"] == Outcome.INFRA_FAILURE:
                break
            prefix.check_step(record, (info["outcome"] or "a wrapper") if terminated or truncated else None)
            if follow is None:
                new = (*new, step.action, *obs[seen:])
                continue
            with self.policys_fault("follow"):
                follow(new, step.action)
            new = obs[seen:]
        return obs, new, info

    async def said(self, new: tuple[Message, ...]) -> Message | None:
        """The agent's next action; what is not an agent is the policy's fault."""
        act = getattr(self.agent, "act", None)
        if not callable(act):
            raise PolicyError(
                f"policy {self.policy.name!r}: episode() gave a {type(self.agent).__name__}, which is no agent; "
                "an agent has `async def act(self, messages)`"
            )
        said = act(new)
        if not inspect.isawaitable(said):
            raise PolicyError(
                f"policy {self.policy.name!r}: act() must be asynchronous (`async def act(self, messages)`), "
                f"and it returned a {type(said).__name__}"
            )
        return await said

    async def step(self, action: Message) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; an action that is none is the policy's fault."""
        try:
            return await aio.astep(self.env, action)
        except ActionError as error:
            raise PolicyError(f"policy {self.policy.name!r} gave what is not an action: {error}") from error

    def fail(self, error: InfraError) -> None:
        """The episode is not a measurement."""
        self.ended, self.error = Outcome.INFRA_FAILURE, error

    def close(self) -> None:
        """Tell the agent, exactly once, that its episode is over."""
        agent, self.agent = self.agent, None
        close = getattr(agent, "close", None)
        if close is not None:
            with self.policys_fault("close"):
                close()

    async def record(self, began: float) -> Episode:
        """The env's own record, with the rewards that came out of the outermost wrapper."""
        score: float | None = None
        if self.ended is not None and self.ended.valid:
            try:
                score = await scored(self.env.get_wrapper_attr("tasks"), self.env.get_wrapper_attr("task"), None)
            except InfraError as failure:
                self.fail(failure)
        seconds = time.monotonic() - began
        if not self.started:
            assert self.error is not None  # what leaves through() before the reset is an InfraError or raises
            base = failed(env_id_of(self.env), self.policy, self.item, self.error, attempt=self.attempt)
            return dataclasses.replace(base, spec=spec_json(self.env), duration_s=seconds)
        base = self.env.get_wrapper_attr("episode")
        if self.ended is not None:
            said, kind = (None, None) if self.error is None else (str(self.error), self.error.kind)
            base = dataclasses.replace(base, outcome=self.ended, score=score, error=said, error_kind=kind)
        return dataclasses.replace(
            base,
            attempt=self.attempt,
            group_id=self.item.group_id,
            sample=self.item.sample,
            parent=self.item.parent,
            forked_at=0 if self.item.prefix is None else self.item.prefix.steps,
            steps=tuple(self.steps),
            spec=spec_json(self.env),
            versions=versions(self.policy, self.item.manifest),
            duration_s=seconds,
        )

    def place(self) -> str:
        """Which episode this is, for error messages."""
        task = getattr(self.env.unwrapped, "task", None) if self.started else None
        where = f", task {task.id!r}, turn {len(self.steps)}" if task is not None else ", at reset"
        return f"the episode with seed {self.item.seed} (sample {self.item.sample}, attempt {self.attempt}{where})"

    @contextmanager
    def policys_fault(self, what: str) -> Iterator[None]:
        """Exceptions of the block are the policy's, but for this package's own and a cancellation asked for."""
        try:
            yield
        except AWorldGymError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self._fault(what, error) from error
        except Exception as error:
            raise self._fault(what, error) from error

    def _fault(self, what: str, error: BaseException) -> PolicyError:
        return PolicyError(f"policy {self.policy.name!r} raised in {what}(): {describe(error)}")


def _observes_transcript(env: gym.Env) -> bool:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TranscriptObservation):
            return True
        env = env.env
    return False
