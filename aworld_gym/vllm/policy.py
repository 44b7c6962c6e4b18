"""The policy ``vllm``: episodes in token ids, sampled from a server that is started here or was running before."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from aworld_gym.errors import ConfigError, InfraError, MissingDependencyError, PolicyError
from aworld_gym.generation import Sampled
from aworld_gym.policies.base import Recipe
from aworld_gym.token_policy import TokenAgent, TokenPolicy
from aworld_gym.tokens import ChatCodec
from aworld_gym.types import Message
from aworld_gym.vllm.generator import ContextOverflowError, Sampling, VllmGenerator
from aworld_gym.vllm.server import START_TIMEOUT_S, VllmServer

log = logging.getLogger(__name__)


class VllmPolicy(TokenPolicy):
    """Plays episodes with a model that vLLM serves, in token ids both ways.

    Without ``base_url`` a server is started for the rollout and ended with it (hold a
    :class:`~aworld_gym.vllm.VllmServer` to keep one for several). What is recorded of each turn are the ids that were
    sampled and their log-probabilities. Agents are not kept: for trajectories give a
    :class:`~aworld_gym.token_policy.TokenPolicy` the ``generate`` of a :class:`~aworld_gym.vllm.VllmGenerator`.

    Args:
        model: a folder or hub name: what is served, and whose tokenizer and chat template are used.
        base_url: of a running server, such as ``http://127.0.0.1:8000/v1``.
        api_key: of that server; ``LLM_API_KEY`` where None.
        tokenizer: a folder or hub name, where it is not the model's.
        served_model: the model's name on the server, where that serves several and none by the name of ``model``.
        temperature: 0 is greedy.
        top_p: the smallest set of ids with this much probability is drawn from.
        top_k: so many of the most probable ids are drawn from; 0 is no limit.
        seed: of the sampling; each draw follows from it, from the episode's number and from the ids before it.
        max_tokens: ids of a whole episode after its prompt, observations included; up to the context where None.
        max_turn_tokens: ids sampled in one turn. A turn that it cuts is not an answer: it ends as ``max_tokens``.
        max_context: ids of prompt and episode together; what the server takes where None.
        template_kwargs: of the chat template, such as ``{"enable_thinking": False}``.
        tool_format: how the model writes calls; see :class:`~aworld_gym.tokens.ChatCodec`.
        timeout_s: of one request.
        retries: of one request, after the first try.
        args: of ``vllm serve``; this and the following are for a server that is started here, see
            :class:`~aworld_gym.vllm.VllmServer`.
        command: the ``vllm`` program.
        start_timeout_s: seconds until the server has to be ready.
        log_file: for what it prints.

    Raises:
        ConfigError: arguments that cannot work, or a tokenizer that is not there.
        UnsupportedTemplateError: the chat template cannot be used token-exactly.
        MissingDependencyError: transformers, or a vLLM to start, is not here.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        tokenizer: str | None = None,
        served_model: str | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        max_tokens: int | None = None,
        max_turn_tokens: int | None = None,
        max_context: int | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        tool_format: str | None = None,
        timeout_s: float = 600.0,
        retries: int = 5,
        args: str | Sequence[str] = (),
        command: str | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        log_file: str | None = None,
    ):
        if not model:
            raise ConfigError("no model is named: pass model= (--model), a folder or a hub name")
        if base_url is not None and (args or command or log_file):
            raise ConfigError(
                "args (--vllm-args), command and log_file are for a server that is started here, and base_url "
                "(--base-url) names one that runs already: give one or the other"
            )
        self._sampling = Sampling(temperature, top_p, top_k, seed)
        self._own: VllmServer | None = None
        if base_url is None:
            self._own = VllmServer(
                model,
                args=args,
                command=command,
                tokenizer=tokenizer,
                max_context=max_context,
                log_file=log_file,
                start_timeout_s=start_timeout_s,
            )
        codec = load_codec(tokenizer or model, model, template_kwargs=template_kwargs, tool_format=tool_format)
        super().__init__(
            codec,
            self._sample,
            max_tokens=sys.maxsize if max_tokens is None else max_tokens,
            max_turn_tokens=max_turn_tokens,
            max_context=max_context,
            name=f"vllm:{model}",
        )
        # Where the server is does not matter to what the model says.
        self.settings: dict[str, Any] = {
            "model": model,
            "tokenizer": tokenizer,
            "served_model": served_model,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "seed": seed,
            "max_tokens": max_tokens,
            "max_turn_tokens": max_turn_tokens,
            "max_context": max_context,
            "template_kwargs": None if template_kwargs is None else dict(template_kwargs),
            "tool_format": tool_format,
            "args": [] if self._own is None else self._own.args,
        }
        self._elsewhere: dict[str, Any] = {
            "base_url": base_url,
            "api_key": api_key or os.environ.get("LLM_API_KEY"),
            "timeout_s": timeout_s,
            "retries": retries,
        }
        self._generator: VllmGenerator | None = None
        self._opening: asyncio.Task[None] | None = None
        self._live = 0

    @property
    def recipe(self) -> Recipe | None:
        """How other processes make it; None where the server is this one's own."""
        if self._own is not None:
            return None
        chosen = {name: value for name, value in self.settings.items() if name != "args"}
        return Recipe("vllm", {**chosen, **self._elsewhere})

    @property
    def stays(self) -> str | None:
        """Why other processes cannot make it; None where they can."""
        if self._own is None:
            return None
        return (
            "it starts a server of its own; start one (vllm serve), and name it by base_url= (--base-url), with an "
            "address that all workers reach"
        )

    def episode(
        self, *, obs: Any, info: Mapping[str, Any], seed: int | None, index: int, attempt: int, env: gym.Env
    ) -> VllmAgent:
        """An agent for the episode that was just reset."""
        self._live += 1
        return VllmAgent(self, index, attempt, info["tools"])

    async def astart(self) -> None:
        """Start the server, if it is ours, and see that it can be sampled from; done once until ``aclose``.

        A rollout awaits this before its first episode. On the package's loop.

        Raises:
            ConfigError: see :meth:`VllmServer.astart` and :meth:`VllmGenerator.connect`.
            InfraError: a server that is not ours failed, retries included.
        """
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="aworld-gym-vllm")
        await asyncio.shield(self._opening)

    async def aclose(self) -> None:
        """End the server, if it is ours, and close the connections; the policy may be used again.

        While episodes are under way (of another rollout) nothing is closed: the last one to end does it.
        """
        if self._live:
            return
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled():
                opening.exception()  # it was raised to those who waited
        generator, self._generator = self._generator, None
        try:
            if generator is not None:
                await generator.aclose()
        finally:
            if self._own is not None:
                await self._own.aclose()

    async def _open(self) -> None:
        name, where = self.settings["served_model"] or self.settings["model"], dict(self._elsewhere)
        fit: bool | None = None
        if self._own is not None:
            await self._own.astart()
            where |= {"base_url": self._own.base_url, "api_key": self._own.api_key}
            fit = self._own.processed_logprobs
        generator = VllmGenerator(codec=self.codec, model=name, sampling=self._sampling, logprobs_fit=fit, **where)
        served = await generator.connect()
        asked = self.settings["max_context"]
        if asked is not None and asked > served.max_context:
            raise ConfigError(f"max_context is {asked}, and the server takes at most {served.max_context} ids")
        self.max_context = served.max_context if asked is None else asked
        self.model_version, self._generator = served.name, generator

    async def _sample(self, key: int, ids: list[int], limit: int) -> Sampled:
        if self._generator is None:
            await self.astart()
        assert self._generator is not None
        try:
            return await self._generator.generate(key, ids, limit)
        except InfraError as error:
            if self._own is not None and self._own.exit_status is not None:
                # Every further episode would fail too; what is finished is kept, and a run can be resumed.
                raise PolicyError(
                    f"the vLLM server ended in the middle of the run. {self._own.last_words()}"
                ) from error
            raise

    def _over(self) -> None:
        self._live -= 1


class VllmAgent(TokenAgent):
    """One attempt at one episode."""

    _policy: VllmPolicy

    async def act(self, messages: tuple[Message, ...]) -> Message | None:
        """The model's next message; None once its token budget or the context is used up, or its turn was cut."""
        await self._policy.astart()  # how long the context is, the server says
        try:
            return await super().act(messages)
        except ContextOverflowError as error:
            log.info("%s: %s", self._policy.name, error)
            return None

    def close(self) -> None:
        """The episode is over."""
        self._policy._over()


def load_codec(
    tokenizer: str, model: str, *, template_kwargs: Mapping[str, Any] | None = None, tool_format: str | None = None
) -> ChatCodec:
    """The codec of a tokenizer by folder or hub name, checked. What the model declares as ends, end a turn too.

    Raises:
        ConfigError: there is no such tokenizer.
        UnsupportedTemplateError: its chat template cannot be used token-exactly.
        MissingDependencyError: transformers is not here.
    """
    try:
        from transformers import AutoTokenizer, GenerationConfig
    except ImportError as error:
        raise MissingDependencyError(
            "the policy vllm tokenises with transformers: pip install 'aworld-gym[vllm]', or transformers alone where "
            "the server runs elsewhere"
        ) from error
    try:
        loaded = AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot load the tokenizer of {tokenizer!r} (--model, -p tokenizer=...): {error}") from error
    try:
        ends = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:  # a model need not have such a file, and its name may be the server's own
        ends = None
    codec = ChatCodec(loaded, template_kwargs=template_kwargs, tool_format=tool_format)
    also = {ends} if isinstance(ends, int) else set(ends or ())
    if not also <= codec.stop_ids:
        codec = ChatCodec(
            loaded, stop_ids=codec.stop_ids | also, template_kwargs=template_kwargs, tool_format=tool_format
        )
    codec.self_check()
    return codec
