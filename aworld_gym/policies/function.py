"""A plain function as a policy: what a hand-written loop calls, played as concurrent episodes."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import gymnasium as gym

from aworld_gym.errors import ConfigError
from aworld_gym.imports import path_of
from aworld_gym.policies.base import Policy, Recipe
from aworld_gym.types import Message

Tools = Sequence[Mapping[str, Any]]
PolicyFunction = Callable[[list[Message], Tools], "Message | None | Awaitable[Message | None]"]
"""``(messages so far, tools) -> the next assistant message``, or None where a token budget is used up."""


class FunctionPolicy:
    """Asks a function for each message. Rollouts make one of any function that they are given as a policy.

    The function gets the whole conversation so far (system and user messages, its own messages, tool messages) and
    the OpenAI schemas of the episode's tools. An asynchronous one is awaited, many episodes at once. A synchronous
    one runs in a thread beside the event loop, one call at a time: it may block, and it need not be thread-safe.

    Args:
        function: ``policy(messages, tools) -> message``, synchronous or asynchronous.
        name: for logs and records; the function's own where None.

    Raises:
        ConfigError: it does not take two arguments.

    Example:
        >>> def say(messages, tools):
        ...     return {"role": "assistant", "content": "<answer>42</answer>"}
        >>> FunctionPolicy(say).name
        'say'
    """

    def __init__(self, function: PolicyFunction, *, name: str | None = None):
        why_not = mismatch(function, [], [])
        if why_not is not None:
            raise ConfigError(
                f"a policy function is called as {_called(function)}(messages, tools) and returns an assistant "
                f"message; this one cannot be: {why_not}"
            )
        self.function, self.name = function, name or _called(function)
        self.settings = {"function": f"{getattr(function, '__module__', '')}:{_called(function)}"}
        path = path_of(function) if self.name == _called(function) else None
        self.recipe = None if path is None else Recipe(path)
        self._asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  (an object with `async def __call__`)
        )
        self._thread: _Thread | None = None
        self._in_flight = 0

    def episode(
        self, *, obs: Any, info: Mapping[str, Any], seed: int | None, index: int, attempt: int, env: gym.Env
    ) -> FunctionAgent:
        """An agent with an empty conversation and the episode's tools."""
        return FunctionAgent(self, info["tools"])

    async def said(self, messages: list[Message], tools: Tools) -> Message | None:
        """What the function says."""
        if self._asynchronous:
            said: Any = self.function(messages, tools)
        else:
            if self._thread is None:
                self._thread = _Thread()
            self._in_flight += 1
            try:
                said = await asyncio.wrap_future(self._thread.call(partial(self._call, messages, tools)))
            finally:
                self._in_flight -= 1
        return await said if inspect.isawaitable(said) else said

    async def aclose(self) -> None:
        """Let the function's thread end; a later episode starts another.

        While episodes of another rollout wait for it, it goes on: that rollout's end will end it.
        """
        if self._thread is not None and not self._in_flight:
            thread, self._thread = self._thread, None
            thread.end()

    def _call(self, messages: list[Message], tools: Tools) -> Any:
        try:
            return self.function(messages, tools)
        except StopIteration as error:  # a future cannot carry it: who awaits it would wait for ever
            raise RuntimeError("the policy function raised StopIteration") from error


class _Thread:
    """A thread that makes one call after another, as an executor's would; but at exit nobody waits for it.

    A policy function may hang for good, in a request say: an interrupt must end the program all the same.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="aworld-gym-policy", daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """What the function will give; a call that is cancelled before its turn is not made."""
        future: Future[Any] = Future()
        self._calls.put((future, function))
        return future

    def end(self) -> None:
        """Let the thread end after the calls that wait."""
        self._calls.put(None)

    def _work(self) -> None:
        while (job := self._calls.get()) is not None:
            self._do(*job)
            del job  # an idle thread keeps nothing of an episode alive

    @staticmethod
    def _do(future: Future[Any], function: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


class FunctionAgent:
    """Holds one conversation."""

    def __init__(self, policy: FunctionPolicy, tools: Tools):
        self._policy, self._tools = policy, tools
        self._messages: list[Message] = []

    async def act(self, messages: tuple[Message, ...]) -> Message | None:
        """The function's next message."""
        self._messages.extend(messages)
        said = await self._policy.said(list(self._messages), self._tools)
        if said is not None:
            self._messages.append(said)
        return said


def as_policy(value: Any) -> Policy:
    """``value`` where it is a policy; a :class:`FunctionPolicy` of it where it is a function.

    Raises:
        ConfigError: it is neither; the message says what a policy is.
    """
    if isinstance(value, type):
        raise ConfigError(f"{value.__name__} is a class, not a policy: pass one made of it, {value.__name__}(...)")
    if isinstance(value, Policy):
        return value
    if callable(value) and not hasattr(value, "episode"):
        return FunctionPolicy(value)
    lacks = " It has episode() and lacks a name." if hasattr(value, "episode") else ""
    raise ConfigError(
        "a policy is an object with .name and .episode(...) -> agent (aworld_gym.policies.Policy), or a function "
        f"(messages, tools) -> assistant message; got {type(value).__name__}.{lacks}"
    )


def mismatch(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Why the function cannot be called with these arguments; None where nothing in its signature says so."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin that does not tell
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def _called(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
