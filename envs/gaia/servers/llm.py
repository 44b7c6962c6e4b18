"""Asking a language model, for the servers that do: one OpenAI-compatible endpoint, bounded, its failures in words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.settings import Settings, llm_variables
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.tools.base import ToolFault, clip

TIMEOUT_S = 120.0
MAX_TOKENS = 4000
"""Tokens that a model may answer with."""
MAX_INPUT = 24000
"""Characters that a tool may send to a model."""
REPEATS = 2

HOW = (
    "Set MCP_LLM_BASE_URL, MCP_LLM_API_KEY and MCP_LLM_MODEL_NAME to any OpenAI-compatible endpoint (a local one needs "
    "a made-up key), or the tool's own three."
)


def needs(prefix: str) -> tuple[tuple[str, ...], ...]:
    """What a server with this prefix needs."""
    return ((f"{prefix}_LLM_BASE_URL", f"{prefix}_LLM_API_KEY", f"{prefix}_LLM_MODEL_NAME"),)


class Endpoint:
    """An OpenAI-compatible endpoint.

    Args:
        settings: hold its base URL, key and model.
        prefix: of the three variables.
        timeout_s: seconds for one answer, repeats included.
    """

    def __init__(self, settings: Settings, prefix: str, *, timeout_s: float = TIMEOUT_S):
        from openai import AsyncOpenAI

        self._prefix, self._timeout_s = prefix, timeout_s
        self.model = settings.get(f"{prefix}_LLM_MODEL_NAME")
        self._made = lambda: AsyncOpenAI(
            base_url=settings.url(f"{prefix}_LLM_BASE_URL"),
            api_key=settings.get(f"{prefix}_LLM_API_KEY"),
            timeout=timeout_s,
            max_retries=REPEATS,
        )
        self._made()  # so that settings that cannot be used are told at the start

    async def ask(self, system: str, text: str) -> str:
        """The model's answer.

        Raises:
            ToolFault: no answer, in words for the model that called the tool.
        """
        if len(text) > MAX_INPUT:
            raise ToolFault(f"this is too long: at most {MAX_INPUT:,} characters, got {len(text):,}")

        async def call(client: Any) -> str:
            done = await client.chat.completions.create(
                model=self.model,
                messages=[{"role": "system", "content": system}, {"role": "user", "content": text}],
                max_tokens=MAX_TOKENS,
            )
            choices = getattr(done, "choices", None)
            content = choices[0].message.content if choices else None
            if not isinstance(content, str) or not content.strip():
                raise ToolFault(f"the model behind {self._prefix}_LLM_BASE_URL gave an empty answer; ask another way")
            return content.strip()

        return await self.use(call)

    async def use(self, call: Any) -> Any:
        """What ``await call(client)`` gives, failures turned into words."""
        import openai

        try:
            async with asyncio.timeout(self._timeout_s), self._made() as client:
                return await call(client)
        except (openai.APITimeoutError, TimeoutError):
            raise ToolFault(f"the model did not answer within {self._timeout_s:g} s; ask for less") from None
        except openai.APIConnectionError:
            raise ToolFault(f"the endpoint of {self._prefix}_LLM_BASE_URL cannot be reached; try again later") from None
        except openai.APIStatusError as error:
            raise ToolFault(self._refusal(error.status_code, error.body)) from None
        except (openai.OpenAIError, ValueError, AttributeError, TypeError, LookupError):  # what came is no completion
            raise ToolFault(f"the endpoint of {self._prefix}_LLM_BASE_URL answered in an unexpected form") from None

    def _refusal(self, status: int, body: object) -> str:
        if status in (401, 403):
            return f"the endpoint refused {self._prefix}_LLM_API_KEY (HTTP {status}); use another tool"
        if status == 429:
            return "the endpoint is limiting requests (HTTP 429); try again later"
        if status >= 500:
            return f"the endpoint has a failure of its own (HTTP {status}); try again later"
        said = body.get("message") if isinstance(body, dict) else None
        return f"the endpoint refused the request (HTTP {status})" + (f": {clip(str(said), 200)}" if said else "")


def helper(name: str, prefix: str, summary: str, tools: Sequence[str], build: Any, what: str) -> ServerSpec:
    """The spec of a server whose tools ask a language model."""

    def checked(setup: Setup) -> Sequence[Tool]:
        made: Sequence[Tool] = build(Endpoint(setup.settings, prefix))
        return made

    return ServerSpec(
        name=name,
        summary=summary,
        tools=tuple(tools),
        build=checked,
        variables=llm_variables(prefix, what),
        needs=needs(prefix),
        how=HOW,
    )
