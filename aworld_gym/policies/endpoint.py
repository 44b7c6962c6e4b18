"""A policy behind any OpenAI-compatible chat-completions endpoint, vLLM included.

One client serves all episodes (:mod:`aworld_gym.policies.client` says what it retries). What fails for good ends the
episode as ``infra_failure``, never as reward 0. An endpoint that was never reached is the caller's mistake.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from aworld_gym.errors import ConfigError
from aworld_gym.policies.base import Recipe
from aworld_gym.policies.chat_format import IMAGES, is_completion, reply_message, wire_messages
from aworld_gym.policies.client import ModelClient
from aworld_gym.types import Message

log = logging.getLogger(__name__)


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
        key = api_key or os.environ.get("LLM_API_KEY") or ("none" if self.base_url else "")
        if not key:
            raise ConfigError(
                "no endpoint is named: set LLM_BASE_URL or pass base_url= (--llm-base-url), such as "
                "http://127.0.0.1:8000/v1; or set LLM_API_KEY for OpenAI's own"
            )
        if images not in IMAGES:
            raise ConfigError(f"images must be one of {IMAGES}, got {images!r}")
        if not isinstance(extra, Mapping | None):
            raise ConfigError(f"extra is a mapping of further fields of the request, got {extra!r:.80}")
        self.images = images
        sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
        self._options = {k: v for k, v in sampling.items() if v is not None}
        self._extra = dict(extra or {})
        self._client = ModelClient(
            f"model endpoint {self.base_url or 'api.openai.com'} ({self.model})",
            base_url=self.base_url,
            api_key=key,
            timeout_s=timeout_s,
            retries=retries,
            check_refused="LLM_BASE_URL, LLM_API_KEY, LLM_MODEL_NAME and the sampling options",
            check_unreached="LLM_BASE_URL (--llm-base-url)",
        )
        self.name = f"openai:{self.model}"
        # Where the endpoint is does not matter to what the model says; a server may come back on another port.
        self.settings = {"model": self.model, **self._options, "extra": self._extra, "images": images}
        where = {"base_url": self.base_url, "api_key": key, "timeout_s": timeout_s, "retries": retries}
        self.recipe = Recipe("openai", {**self.settings, **where})

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
        # As further fields of the body: passed by name, the library would walk through every message of the
        # conversation and every schema each turn to bring them into its own form, which they have: a quarter of the
        # CPU of an episode of five short turns, and more the longer it is.
        body: dict[str, Any] = {"messages": messages}
        if tools:  # an empty list of tools is refused by some endpoints, so it is left out
            body["tools"] = list(tools)
        request: dict[str, Any] = {"model": self.model, "messages": (), **self._options}
        request["extra_body"] = {**body, **self._extra}
        return await self._client.ask(lambda client: client.chat.completions.create(**request), is_completion)

    async def aclose(self) -> None:
        """Close the client's connections; a later request opens it again."""
        await self._client.aclose()


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
