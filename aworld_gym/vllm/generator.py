"""Sampling from a vLLM server: token ids in, token ids and log-probabilities out.

Prompts go to ``/v1/completions`` as ids and ids come back (``return_token_ids``), so nothing that was sampled is ever
text on the way. Every sampling parameter is sent with each request: a server's own defaults, or those that it reads
from the model's folder, change nothing. It renders and parses nothing, and knows of no episode but its number.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aworld_gym.errors import ConfigError, did_you_mean
from aworld_gym.generation import Sampled
from aworld_gym.policies.client import ModelClient
from aworld_gym.tokens import ChatCodec
from aworld_gym.vllm.replies import Reply

log = logging.getLogger(__name__)

_PROBE = "Is 12 + 30 = 42? Größe, 你好 🙂, <b>x</b>.\n\n"
_PROBE_CONTROLS = 16
_LISTED = 5
"""Log-probabilities that are compared: a temperature or a cut shows in the less probable ones."""
_LEAST_SHIFT = 0.02
"""How much (nats, or share of the whole) a log-probability differs by more than rounding."""


class ContextOverflowError(Exception):
    """The server says that a prompt is longer than its context."""


@dataclass(frozen=True)
class Sampling:
    """How ids are drawn."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is no limit."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"temperature must be at least 0, got {self.temperature!r}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must be above 0 and at most 1, got {self.top_p!r}")
        for name, value in (("top_k", self.top_k), ("seed", self.seed)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"{name} must be a whole number of at least 0, got {value!r}")

    @property
    def plain(self) -> bool:
        """Whether what is drawn from is the model's own distribution, or its most probable id."""
        return self.temperature == 0 or (self.temperature == 1 and self.top_p == 1 and self.top_k == 0)

    def fields(self) -> dict[str, Any]:
        """All that shapes the distribution, as fields of a request."""
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }


@dataclass(frozen=True)
class Served:
    """What a server serves."""

    name: str
    """By which requests name the model."""
    max_context: int
    """Ids of prompt and continuation together."""
    logprobs_fit: bool
    """Whether its log-probabilities are those of what is drawn from, temperature and cuts included."""


class VllmGenerator:
    """Samples from one model of a vLLM server, for any number of episodes at once.

    :meth:`generate` is what :class:`~aworld_gym.token_policy.TokenPolicy` asks for. An id's random draw depends on the
    seed, on the episode's number and on all ids before it, so equal episodes are sampled equally, whatever else the
    server does meanwhile (up to the rounding of its kernels, which may depend on the batch).

    Args:
        base_url: such as ``http://127.0.0.1:8000/v1``.
        codec: whose ids are spoken; a server with another tokenizer is refused.
        model: the model's name there, or the folder or hub name that it was started with; where the server has
            only one model that is the one.
        sampling: how ids are drawn.
        api_key: where the server asks for one.
        logprobs_fit: whether the server is known to give log-probabilities of what is drawn from
            (``--logprobs-mode processed_logprobs``); where None it is tried out.
        timeout_s: of one request.
        retries: of one request, after the first try.

    Example:
        >>> generator = VllmGenerator("http://127.0.0.1:8000/v1", codec)                    # doctest: +SKIP
        >>> policy = TokenPolicy(codec, generator.generate, max_tokens=4096)                 # doctest: +SKIP
        >>> episodes = rollout("AWorld/Gaia-v0", policy, episodes=8)                         # doctest: +SKIP
        >>> policy.agents[0].trajectory().logprobs                                           # doctest: +SKIP
    """

    def __init__(
        self,
        base_url: str,
        codec: ChatCodec,
        *,
        model: str | None = None,
        sampling: Sampling | None = None,
        api_key: str | None = None,
        logprobs_fit: bool | None = None,
        timeout_s: float = 600.0,
        retries: int = 5,
    ):
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"base_url must start with http:// or https://, such as http://127.0.0.1:8000/v1, got {base_url!r}"
            )
        if not timeout_s > 0 or retries < 0:
            raise ConfigError(f"expected timeout_s above 0 and retries of at least 0, got {timeout_s} and {retries}")
        self.base_url, self.codec, self.model = base_url, codec, model
        self.sampling = sampling or Sampling()
        self._stops: Collection[int] = codec.stop_ids
        self._known_fit = logprobs_fit
        self._said = False
        self._served: Served | None = None
        self._connecting = asyncio.Lock()
        self._client = ModelClient(
            f"vLLM server {base_url}" + (f" ({model})" if model else ""),
            base_url=base_url,
            api_key=api_key or "none",
            timeout_s=timeout_s,
            retries=retries,
            check_refused="--base-url, --model, the API key and the sampling options",
            check_unreached="--base-url",
        )

    async def connect(self) -> Served:
        """See that the server can be sampled from token-exactly; done once, and by :meth:`generate` too.

        Raises:
            ConfigError: it is not reached, has no such model, another tokenizer, gives no ids, or refuses the sampling
                parameters.
            InfraError: it failed, retries included.
        """
        async with self._connecting:
            if self._served is None:
                name, context = self._choose(await self._get("/models", "data"))
                await self._check_ids(name)
                self._served = Served(name, context, await self._logprobs_fit(name))
        return self._served

    async def generate(self, key: int, ids: list[int], limit: int) -> Sampled:
        """Sample after ``ids``, up to a stop id (included), ``limit`` ids or the end of the context.

        Args:
            key: the episode's number; part of the random seed.
            ids: all ids so far; not empty.
            limit: the most ids to sample.

        Returns:
            The sampled ids, and of each its log-probability in what it was drawn from (temperature and cuts included;
            at temperature 1 where sampling is greedy). None for all of them where the server gives others.

        Raises:
            ContextOverflowError: ``ids`` alone are more than the server takes.
            InfraError: the server failed, retries included.
            ConfigError: as :meth:`connect`.
        """
        served = self._served or await self.connect()
        request = {**self.sampling.fields(), "seed": self._seed(key, ids), "logprobs": 0}
        reply = await self._complete(served.name, ids, limit, request)
        if reply is None:
            raise ContextOverflowError(f"{len(ids)} ids are more than the server takes")
        if reply.finish == "stop" and reply.ids[-1] not in self._stops and not self._said:
            self._said = True
            log.warning(
                "the server ended a turn at id %d, which is none of the template's stop ids %s: it counts as cut. "
                "Pass stop_ids to ChatCodec if the model ends its turns so.",
                reply.ids[-1],
                sorted(self._stops),
            )
        return reply.ids, reply.logprobs if served.logprobs_fit else None

    async def aclose(self) -> None:
        """Close the connections; they open again at need."""
        await self._client.aclose()

    # ---- requests ------------------------------------------------------------------------------------------------

    async def _get(self, path: str, needed: str) -> Any:
        return await self._client.ask(
            lambda client: client.get(path, cast_to=object),
            lambda reply: isinstance(reply, dict) and isinstance(reply.get(needed), list),
            trial=True,
        )

    async def _complete(self, name: str, prompt: Sequence[int], limit: int, more: Mapping[str, Any]) -> Reply | None:
        """A continuation; None where the prompt is too long."""
        read: list[Reply] = []

        def fits(body: Any) -> bool:
            reply = Reply.read(body, prompt, limit)
            read.extend([reply] if reply is not None else [])
            return reply is not None

        await self._post(name, prompt, limit, more, fits)
        return read[0] if read else None

    async def _post(
        self, name: str, prompt: Sequence[int] | str, limit: int, more: Mapping[str, Any], fits: Callable[[Any], bool]
    ) -> Any:
        body = {
            "model": name,
            "prompt": prompt,
            "max_tokens": limit,
            "return_token_ids": True,
            # Turns end where the codec says: what else the model's own settings would stop at is off.
            "stop_token_ids": sorted(self._stops),
            "ignore_eos": True,
            "skip_special_tokens": False,
            **more,
        }
        return await self._client.ask(
            lambda client: client.post("/completions", cast_to=object, body=body), fits, trial=self._served is None
        )

    def _seed(self, key: int, ids: Sequence[int]) -> int:
        """A seed (63 bits) of its own for each place of each episode."""
        digest = hashlib.blake2b(f"{self.sampling.seed} {key} ".encode(), digest_size=8)
        digest.update(np.asarray(ids, "<i8").tobytes())
        return int.from_bytes(digest.digest(), "little") >> 1

    # ---- what is checked before anything is sampled -----------------------------------------------------------------

    def _choose(self, listing: Mapping[str, Any]) -> tuple[str, int]:
        """The name and the context of the model to ask for."""
        models = [model for model in listing["data"] if isinstance(model, dict) and isinstance(model.get("id"), str)]
        names = [model["id"] for model in models]
        chosen = [model for model in models if self.model in (model["id"], model.get("root"))]
        if len(models) == 1 or (chosen and chosen[0]["id"] != self.model):
            # One that was started from the same folder, by whatever name; or the only one, whose tokenizer will tell.
            chosen = chosen or models
        if not chosen:
            hint = did_you_mean(self.model or "", names)
            raise ConfigError(f"{self.base_url} serves {', '.join(names) or 'nothing'}, not {self.model!r}.{hint}")
        context = chosen[0].get("max_model_len")
        if not isinstance(context, int) or context < 2:
            raise ConfigError(
                f"{self.base_url} does not say how long a context {chosen[0]['id']!r} takes (max_model_len): "
                "expected a vLLM server"
            )
        return chosen[0]["id"], context

    async def _check_ids(self, name: str) -> None:
        """Text becomes the same ids there as here, and ids come back."""
        controls = [literal for literal in self.codec.vocabulary.control if literal in self.codec.template]
        text = _PROBE + " ".join(controls[:_PROBE_CONTROLS])
        ours = [int(i) for i in self.codec.tokenizer.encode(text, add_special_tokens=False)]
        asked = {**Sampling(temperature=0.0).fields(), "logprobs": 0, "add_special_tokens": False}
        body = await self._post(name, text, 1, asked, lambda reply: isinstance(reply, dict) and "choices" in reply)
        if body is None:
            raise ConfigError(f"{self.base_url} takes fewer than the {len(ours)} ids by which its tokenizer is checked")
        reply = Reply.read(body, None, 1)
        if reply is None:
            raise ConfigError(
                f"{self.base_url} gives no token ids with its completions (return_token_ids) or no log-probabilities: "
                f"expected a vLLM server of version 0.11 or later, which answers with them; got {str(body)[:300]}"
            )
        if reply.prompt_ids != ours:
            raise ConfigError(
                f"the model that {self.base_url} serves as {name!r} has another tokenizer than {self.model!r}: "
                f"{text!r} is {ours} here and {reply.prompt_ids} there; name the same model (--model), or its "
                "tokenizer (-p tokenizer=...)"
            )

    async def _logprobs_fit(self, name: str) -> bool:
        """Whether log-probabilities are of what is drawn from, and not of the model's bare distribution."""
        ids = [int(i) for i in self.codec.tokenizer.encode(_PROBE, add_special_tokens=False)]
        asked = {**self.sampling.fields(), "seed": 0, "logprobs": _LISTED}
        shaped = await self._complete(name, ids, 1, asked)  # the first time that the parameters themselves are sent
        if self._known_fit is not None or self.sampling.plain:
            return self._known_fit is not False
        bare = await self._complete(name, ids, 1, {**asked, **Sampling(temperature=0.0).fields()})
        pairs = [(shaped.listed.get(text), p) for text, p in bare.listed.items()] if shaped and bare else []
        fit = any(q is not None and abs(p - q) > _LEAST_SHIFT * max(1.0, abs(p)) for q, p in pairs)
        if not fit:
            log.warning(
                "%s seems to give log-probabilities of the model's bare distribution, and not of what is drawn from: "
                "they are not recorded. Start it with --logprobs-mode processed_logprobs, or sample at temperature 1.",
                self.base_url,
            )
        return fit
