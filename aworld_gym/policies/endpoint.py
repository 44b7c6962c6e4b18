"""A policy behind any OpenAI-compatible chat-completions endpoint, vLLM included.

One client serves all episodes. What may be retried (connection errors, time-outs, 408, 409, 429, 5xx, replies that
are not a completion) is, with exponential backoff or as ``Retry-After`` says. What is left then is nobody's answer: it
ends the episode as ``infra_failure``, never as reward 0. An endpoint that was never reached is the caller's mistake.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import gymnasium as gym

from aworld_gym.errors import ConfigError, InfraError, describe
from aworld_gym.policies.chat_format import IMAGES, is_completion, reply_message, wire_messages
from aworld_gym.types import Message

if TYPE_CHECKING:
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)

# Endpoints agree on no code for a prompt that is too long; OpenAI has one, others only say so in the message.
_OVERFLOW_CODES = ("context_length_exceeded",)
_OVERFLOW_TEXT = ("maximum context length", "context length", "context window", "too many tokens", "prompt is too long")

BACKOFF_S, MAX_BACKOFF_S = 0.5, 8.0
"""Seconds before the first retry of a request (doubled for each further one), and at most."""
MAX_RETRY_AFTER_S = 120.0
"""An endpoint that asks for a longer wait is not waited for."""
CONNECT_TIMEOUT_S = 5.0
FIRST_CONTACTS = 3
"""Tries to connect to an endpoint that has not yet answered anything."""
_LEAST_SECRET = 8
"""Characters of the shortest key that is looked for in texts: stand-ins such as ``none`` stand in ordinary ones."""
_JITTER = random.Random(0)


class OpenAIPolicy:
    """Samples each message from a chat-completions endpoint.

    Args:
        model: the model's name there; ``LLM_MODEL_NAME`` where None.
        base_url: such as ``http://127.0.0.1:8000/v1``; ``LLM_BASE_URL`` where None, else OpenAI's own.
        api_key: ``LLM_API_KEY`` where None. A local endpoint (``base_url`` given) needs none.
        temperature: passed on where given.
        top_p: passed on where given.
        max_tokens: of one message; passed on where given. A message that it cuts short is not an answer: without
            tool calls it ends the episode as ``max_tokens``.
        extra: further fields of the request body, for example ``{"chat_template_kwargs": {...}}``.
        images: where image parts of tool results go. ``"user"``: into a user message after the results, which
            every vision endpoint takes; ``"tool"``: left in the tool message; ``"omit"``: replaced by a remark,
            for models that take none.
        timeout_s: of one request, from its first byte to the last of the reply.
        retries: of one request, after the first try.

    Raises:
        ConfigError: no model or no key is named, or (from an agent) the endpoint refuses the very first request
            for good (a wrong key, an unknown model, an unknown option) or cannot be reached at all.

    Example:
        >>> policy = OpenAIPolicy("Qwen/Qwen3-0.6B", base_url="http://127.0.0.1:8000/v1")
        >>> policy.name
        'openai:Qwen/Qwen3-0.6B'
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
        images: str = "user",
        timeout_s: float = 300.0,
        retries: int = 5,
    ):
        self.model = model or os.environ.get("LLM_MODEL_NAME") or ""
        if not self.model:
            raise ConfigError("no model is named: set LLM_MODEL_NAME, or pass model= (--llm-model-name)")
        self.base_url = base_url or os.environ.get("LLM_BASE_URL") or None
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"base_url (LLM_BASE_URL, --llm-base-url) must start with http:// or https://, got {self.base_url!r}"
            )
        self._api_key = api_key or os.environ.get("LLM_API_KEY") or ("none" if self.base_url else "")
        if not self._api_key:
            raise ConfigError(
                "no endpoint is named: set LLM_BASE_URL or pass base_url= (--llm-base-url), such as "
                "http://127.0.0.1:8000/v1; or set LLM_API_KEY for OpenAI's own"
            )
        if images not in IMAGES:
            raise ConfigError(f"images must be one of {IMAGES}, got {images!r}")
        self.images, self.timeout_s, self.retries = images, timeout_s, retries
        sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
        self._options = {k: v for k, v in sampling.items() if v is not None}
        self._extra = dict(extra or {})
        self._client: tuple[tuple[int, int], AsyncOpenAI] | None = None
        self._served = False
        self._in_flight = 0
        self.name = f"openai:{self.model}"
        # Where the endpoint is does not matter to what the model says; a server may come back on another port.
        self.settings = {"model": self.model, **self._options, "extra": self._extra, "images": images}

    def episode(
        self, *, obs: Any, info: Mapping[str, Any], seed: int | None, index: int, attempt: int, env: gym.Env
    ) -> OpenAIAgent:
        """An agent with an empty conversation and the episode's tools."""
        return OpenAIAgent(self, info.get("tools", ()))

    async def complete(self, messages: list[Message], tools: Sequence[Mapping[str, Any]]) -> Any:
        """One chat completion (the library's object); None where the conversation does not fit the context.

        Raises:
            InfraError: the endpoint failed, retries included.
            ConfigError: the endpoint refused, and has not yet answered anything.
        """
        # An empty list of tools is refused by some endpoints, so it is left out.
        request: dict[str, Any] = {"model": self.model, "messages": messages, **self._options}
        if tools:
            request["tools"] = list(tools)
        self._in_flight += 1
        try:
            return await self._tried(request)
        finally:
            self._in_flight -= 1

    async def aclose(self) -> None:
        """Close the client's connections; a later request opens it again.

        While requests are under way (of another rollout with the same policy) nothing is closed: the last one
        to end does it.
        """
        if self._client is not None and not self._in_flight:
            (_, client), self._client = self._client, None
            await client.close()

    async def _tried(self, request: dict[str, Any]) -> Any:
        import openai

        failure: InfraError | ConfigError
        cause: Exception | None
        for attempt in range(self.retries + 1):
            wait: float | None = min(BACKOFF_S * 2**attempt, MAX_BACKOFF_S) * _JITTER.uniform(0.75, 1.0)
            try:
                # The client's own limit is for the time between two bytes: one that sends a byte now and then has none.
                async with asyncio.timeout(self.timeout_s):
                    completion = await self._connected().chat.completions.create(
                        **request, extra_body=self._extra or None
                    )
            except TimeoutError as error:
                failure, cause = self._late(), error
            except openai.APIStatusError as error:
                if _is_overflow(error):
                    return None
                failure, cause = self._refusal(error), error
                wait = _retry_after(error.response.headers, wait) if isinstance(failure, InfraError) else None
            except openai.APIConnectionError as error:  # time-outs included
                failure, cause = self._unreached(error), error
                if isinstance(failure, ConfigError) and attempt + 1 >= FIRST_CONTACTS:
                    wait = None
            except (openai.OpenAIError, ValueError, RecursionError) as error:  # not a JSON body that can be read
                failure, cause = self._nonsense(describe(error)), error
            else:
                if is_completion(completion):
                    self._served = True
                    return completion
                failure, cause = self._no_completion(completion), None
            if wait is None or attempt == self.retries:
                break
            log.info("%s (try %d of %d)", failure, attempt + 1, self.retries + 1)
            await asyncio.sleep(wait)
        raise failure from cause

    def _connected(self) -> AsyncOpenAI:
        # A client belongs to one event loop of one process.
        key = (os.getpid(), id(asyncio.get_running_loop()))
        if self._client is None or self._client[0] != key:
            from openai import AsyncOpenAI, Timeout  # here: importing the client takes a second

            timeout = Timeout(self.timeout_s, connect=min(self.timeout_s, CONNECT_TIMEOUT_S))
            client = AsyncOpenAI(api_key=self._api_key, base_url=self.base_url, timeout=timeout, max_retries=0)
            self._client = (key, client)
        return self._client[1]

    def _refusal(self, error: Any) -> InfraError | ConfigError:
        said = f"{self._where()} answered {error.status_code}: {self._clean(_reason(error))[:500]}"
        said = self._clean(said)
        transient = error.status_code in (408, 409, 429) or error.status_code >= 500
        if transient or self._served:
            return InfraError("host_refused", said, server="llm")
        return ConfigError(f"{said}. Check LLM_BASE_URL, LLM_API_KEY, LLM_MODEL_NAME and the sampling options.")

    def _unreached(self, error: Exception) -> InfraError | ConfigError:
        said = self._clean(f"{self._where()}: {_innermost(error)}")
        if self._served or not _never_connected(error):
            return InfraError("host_unreachable", said, server="llm")
        return ConfigError(f"{said}. Check LLM_BASE_URL (--llm-base-url), and that the server is up.")

    def _nonsense(self, said: str) -> InfraError:
        return InfraError("server_protocol", self._clean(f"{self._where()}: {said}"), server="llm")

    def _no_completion(self, reply: Any) -> InfraError:
        return self._nonsense(f"the reply is not a chat completion: {self._clean(str(reply))[:200]!r}")

    def _late(self) -> InfraError:
        text = f"{self._where()}: no whole reply within {self.timeout_s:g} s"
        return InfraError("host_unreachable", self._clean(text), server="llm")

    def _where(self) -> str:
        return f"model endpoint {self.base_url or 'api.openai.com'} ({self.model})"

    def _clean(self, text: str) -> str:
        """Text for messages, before it is cut: without the key, which endpoints repeat, and the URL's password."""
        secrets = [self._api_key] if len(self._api_key) >= _LEAST_SECRET else []
        if self.base_url is not None and "@" in (place := urlsplit(self.base_url).netloc):
            secrets.append(place.rpartition("@")[0])
        for secret in secrets:
            text = text.replace(secret, "[secret]")
        return text


class OpenAIAgent:
    """Holds one conversation."""

    def __init__(self, policy: OpenAIPolicy, tools: Sequence[Mapping[str, Any]]):
        self._policy, self._tools = policy, tools
        self._conversation: list[Message] = []
        self._turn = 0

    async def act(self, messages: tuple[Message, ...]) -> Message | None:
        """The endpoint's next message; None where it was cut short, or the conversation has outgrown the context."""
        self._conversation += wire_messages(messages, images=self._policy.images)
        completion = await self._policy.complete(self._conversation, self._tools)
        if completion is None:
            return None
        message = reply_message(completion, turn=self._turn)
        if message["sampled"]["finish_reason"] == "length" and "tool_calls" not in message:
            log.info("%s: a message was cut by max_tokens", self._policy.name)
            return None
        self._turn += 1
        self._conversation += wire_messages((message,), images=self._policy.images)
        return message

    def follow(self, messages: tuple[Message, ...], action: Message) -> None:
        """Take a turn over as the endpoint's own."""
        self._turn += 1
        self._conversation += wire_messages((*messages, action), images=self._policy.images)


def _reason(error: Any) -> str:
    """The endpoint's own words."""
    body = error.body
    said = body.get("message") if isinstance(body, Mapping) else body
    return str(said or error.message)


def _is_overflow(error: Any) -> bool:
    if error.status_code not in (400, 413, 422):
        return False
    text = json.dumps(error.body, default=str).lower() if error.body is not None else str(error.message).lower()
    return error.code in _OVERFLOW_CODES or any(sign in text for sign in _OVERFLOW_TEXT)


def _retry_after(headers: Mapping[str, str], otherwise: float | None) -> float | None:
    """Seconds that the endpoint asks to wait; None where that is too long."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            asked = float(headers[name]) * unit_s
        except (KeyError, ValueError):  # a date is legal too, and no endpoint in use sends one
            continue
        if asked > 0:
            return asked if asked <= MAX_RETRY_AFTER_S else None
    return otherwise


def _never_connected(error: BaseException) -> bool:
    # By name: the client library is built on httpx or on its successor, by version.
    names = {kind.__name__ for kind in type(error.__cause__).__mro__}
    return bool(names & {"ConnectError", "ConnectTimeout"})


def _innermost(error: BaseException) -> str:
    """The last cause in a chain of them: the operating system's words rather than each library's own."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return describe(error)
