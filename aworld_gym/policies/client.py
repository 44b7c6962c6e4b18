"""The HTTP client of a model server: which failures are tried again, and whose fault the others are.

What may be retried (connection errors, time-outs, 408, 409, 429, 5xx, replies that are not what was asked for) is, with
exponential backoff or as ``Retry-After`` says. What is left then is nobody's answer: an infrastructure failure. A
server that was never reached, or refused the very first request, is the caller's mistake. What is asked, and what a
reply has to look like, its user says.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aworld_gym.errors import ConfigError, InfraError, describe

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
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_JITTER = random.Random(0)


class ModelClient:
    """Requests to one server, from any number of episodes at once.

    Args:
        where: what is said of the server in errors, its address included.
        base_url: None for the client library's own default.
        api_key: sent with every request; removed from what errors repeat of a reply.
        timeout_s: of one request, from its first byte to the last of the reply.
        retries: of one request, after the first try.
        check_refused: what the caller is to check where the first request is refused.
        check_unreached: what the caller is to check where the server was never reached.

    Raises:
        ConfigError: a time or a number of retries that cannot be.
    """

    def __init__(
        self,
        where: str,
        *,
        base_url: str | None,
        api_key: str,
        timeout_s: float,
        retries: int,
        check_refused: str,
        check_unreached: str,
    ):
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
            raise ConfigError(f"timeout_s must be a positive number of seconds, got {timeout_s!r}")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ConfigError(f"retries must be a whole number of at least 0, got {retries!r}")
        self.where, self.base_url, self.timeout_s, self.retries = where, base_url, timeout_s, retries
        self._api_key = api_key
        self._check_refused, self._check_unreached = check_refused, check_unreached
        self._client: tuple[tuple[int, int], AsyncOpenAI] | None = None
        self._served = False
        self._in_flight = 0

    @property
    def is_open(self) -> bool:
        """Whether it holds connections."""
        return self._client is not None

    async def ask(
        self,
        request: Callable[[AsyncOpenAI], Awaitable[Any]],
        fits: Callable[[Any], bool],
        *,
        trial: bool = False,
    ) -> Any:
        """A reply that ``fits``; None where the server says that the prompt is too long for the model.

        Args:
            request: makes the request, with the library's client; called again for each try.
            fits: whether a reply is what was asked for; if not, the request is tried again.
            trial: this tries out whether the server can be used at all, so that a refusal is the caller's mistake even
                where it has answered something else.

        Raises:
            InfraError: the server failed, retries included.
            ConfigError: it refused, or was not reached, and has not yet answered anything.
        """
        self._in_flight += 1
        try:
            return await self._tried(request, fits, trial)
        finally:
            self._in_flight -= 1

    async def aclose(self) -> None:
        """Close the connections; a later request opens them again.

        While requests are under way (of another rollout) nothing is closed: the last one to end does it.
        """
        if self._client is not None and not self._in_flight:
            (_, client), self._client = self._client, None
            await client.close()

    async def _tried(
        self, request: Callable[[AsyncOpenAI], Awaitable[Any]], fits: Callable[[Any], bool], trial: bool
    ) -> Any:
        import openai

        failure: InfraError | ConfigError
        cause: Exception | None
        for attempt in range(self.retries + 1):
            wait: float | None = min(BACKOFF_S * 2**attempt, MAX_BACKOFF_S) * _JITTER.uniform(0.75, 1.0)
            try:
                # The client's own limit is for the time between two bytes: one that sends a byte now and then has none.
                async with asyncio.timeout(self.timeout_s):
                    reply = await request(self._connected())
            except TimeoutError as error:
                failure, cause = self._late(), error
            except openai.APIStatusError as error:
                if _is_overflow(error):
                    return None
                failure, cause = self._refusal(error, trial), error
                wait = _retry_after(error.response.headers, wait) if isinstance(failure, InfraError) else None
            except openai.APIConnectionError as error:  # time-outs included
                failure, cause = self._unreached(error), error
                if isinstance(failure, ConfigError) and attempt + 1 >= FIRST_CONTACTS:
                    wait = None
            except (openai.OpenAIError, ValueError, RecursionError) as error:  # not a JSON body that can be read
                failure, cause = self._nonsense(describe(error)), error
            else:
                if fits(reply):
                    self._served = True
                    return reply
                said = f"the reply is not what was asked for: {self._clean(str(reply))[:200]!r}"
                failure, cause = self._nonsense(said), None
            if wait is None or attempt == self.retries:
                break
            log.info("%s (try %d of %d)", failure, attempt + 1, self.retries + 1)
            await asyncio.sleep(wait)
        raise failure from cause

    def _connected(self) -> AsyncOpenAI:
        # A client belongs to one event loop of one process.
        key = (os.getpid(), id(asyncio.get_running_loop()))
        if self._client is None or self._client[0] != key:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout  # here: the import takes a second

            timeout = Timeout(self.timeout_s, connect=min(self.timeout_s, CONNECT_TIMEOUT_S))
            # No proxy of the environment's is on the way to this machine itself.
            near = self.base_url is not None and urlsplit(self.base_url).hostname in _LOOPBACK
            http = DefaultAsyncHttpxClient(trust_env=False) if near else None
            client = AsyncOpenAI(
                api_key=self._api_key, base_url=self.base_url, timeout=timeout, max_retries=0, http_client=http
            )
            self._client = (key, client)
        return self._client[1]

    def _refusal(self, error: Any, trial: bool) -> InfraError | ConfigError:
        said = f"{self.where} answered {error.status_code}: {self._clean(_reason(error))[:500]}"
        said = self._clean(said)
        transient = error.status_code in (408, 409, 429) or error.status_code >= 500
        if transient or (self._served and not trial):
            return InfraError("host_refused", said, server="llm")
        return ConfigError(f"{said}. Check {self._check_refused}.")

    def _unreached(self, error: Exception) -> InfraError | ConfigError:
        said = self._clean(f"{self.where}: {_innermost(error)}")
        if self._served or not _never_connected(error):
            return InfraError("host_unreachable", said, server="llm")
        return ConfigError(f"{said}. Check {self._check_unreached}, and that the server is up.")

    def _nonsense(self, said: str) -> InfraError:
        return InfraError("server_protocol", self._clean(f"{self.where}: {said}"), server="llm")

    def _late(self) -> InfraError:
        text = f"{self.where}: no whole reply within {self.timeout_s:g} s"
        return InfraError("host_unreachable", self._clean(text), server="llm")

    def _clean(self, text: str) -> str:
        """Text for messages, before it is cut: without the key, which endpoints repeat, and the URL's password."""
        secrets = [self._api_key] if len(self._api_key) >= _LEAST_SECRET else []
        if self.base_url is not None and "@" in (place := urlsplit(self.base_url).netloc):
            secrets.append(place.rpartition("@")[0])
        for secret in secrets:
            text = text.replace(secret, "[secret]")
        return text


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
