"""Streams of events: the answer that is in one, how it goes on where it broke off, and what the server says in it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import messages, replies
from aworld_gym.toolchain.jsontext import deeper, mended
from aworld_gym.toolchain.lean.client import Client
from aworld_gym.toolchain.lean.events import Event, EventStream
from aworld_gym.toolchain.lean.incoming import Incoming

logger = logging.getLogger(__name__)

_ANY = object()  # the number of a request that another client sent
RESUME_S = 1.0
"""Seconds before a stream that broke off is asked for again, where the server names none."""
RESUME_TRIES = 2
"""Times in a row that it is asked for without an event coming."""
_SHORTEST_RESUME_S = 0.01
_STREAM = "text/event-stream"
_GET = {"accept": _STREAM, "cache-control": "no-store"}


class Resumable:
    """Where a stream can go on.

    Attributes:
        last_id: of the last event that had one.
        tries: how often in a row it was asked for, and nothing came.
        why: what was wrong last.
        wait_s: seconds before it is to be asked for.
    """

    def __init__(self, last_id: str | None = None):
        self.last_id, self.tries, self.why = last_id, 0, "there was no stream yet"
        self.wait_s = RESUME_S

    def note(self, event: Event) -> None:
        """An event came."""
        self.tries = 0
        self.last_id = event.id or self.last_id
        if event.retry_s is not None:
            self.wait_s = max(event.retry_s, _SHORTEST_RESUME_S)

    def waits(self, first_s: float | None = None) -> Iterator[float]:
        """Seconds before each attempt to go on, as long as one is worth while."""
        while self.tries < RESUME_TRIES:
            self.tries += 1
            yield self.wait_s if first_s is None else first_s
            first_s = None


class Streams:
    """The streams of one session.

    Args:
        client: the session's.
        incoming: takes what the server says by itself.
    """

    def __init__(self, client: Client, incoming: Incoming):
        self._client, self._incoming = client, incoming

    async def answer(self, response: Any, number: Any, on_token: Any = None) -> dict[str, Any]:
        """The answer to a request, whose reply is a stream; if that breaks off, the streams with which it goes on.

        Answers to other requests are passed over: an answer belongs into the stream of its request.

        Args:
            response: to the request. It is closed, or about to be.
            number: the request's.
            on_token: awaited with the id of each event that has one.

        Raises:
            InfraError: no answer came.
        """
        place = Resumable()
        answer = await self._first(response, number, place, on_token)
        return answer if answer is not None else await self.resumed(number, place, on_token)

    async def resumed(
        self, number: Any, place: Resumable, on_token: Any = None, *, first_s: float | None = None
    ) -> dict[str, Any]:
        """The answer to a request, from where its stream broke off.

        Args:
            number: the request's.
            place: where.
            on_token: as for :meth:`answer`.
            first_s: seconds to wait at first, where another client sent the request (under a number of its own).

        Raises:
            InfraError: no answer came.
        """
        number = number if first_s is None else _ANY
        if place.last_id is None:
            raise self._lost(place.why)
        for wait in place.waits(first_s):
            await asyncio.sleep(wait)
            try:
                response = await self._client.request("GET", {**_GET, "last-event-id": place.last_id})
            except InfraError as failure:
                place.why = failure.args[0]
                continue
            if response.status < 300 and is_kind(response, _STREAM):
                answer = await self._first(response, number, place, on_token)
                if answer is not None:
                    return answer
            else:
                response.close()
                place.why = f"asked for the rest of a reply, it answered {response.status} {response.reason}"
        raise self._lost(f"{place.why}; and the reply could not be resumed")

    async def hold(self) -> int:
        """Hold the stream of the server's own messages open until it ends; its status.

        Raises:
            InfraError: it broke.
        """
        response = await self._client.request("GET", _GET)
        try:
            if response.status < 300 and is_kind(response, _STREAM):
                events = EventStream(response)
                await self._heard(events, None)
                logger.debug("the stream of %s's own messages ended: %s", self._client.origin, events.why)
        finally:
            response.close()
        status: int = response.status
        return status

    async def listen(self) -> None:
        """Keep the stream of the server's own messages open, and go on where it broke off."""
        place = Resumable()
        for wait in place.waits(first_s=0.0):
            await asyncio.sleep(wait)
            more = {} if place.last_id is None else {"last-event-id": place.last_id}
            try:
                response = await self._client.request("GET", {**_GET, **more})
            except InfraError as failure:
                logger.debug("the stream of %s's own messages: %s", self._client.origin, failure)
                continue
            try:
                if response.status in (404, 405):
                    return
                if response.status < 300 and is_kind(response, _STREAM):
                    place.tries = 0
                    await self._heard(EventStream(response), None, place)
            finally:
                response.close()

    async def _first(self, response: Any, number: Any, place: Resumable, on_token: Any) -> dict[str, Any] | None:
        """The answer in a stream; None if it ends before."""
        events = EventStream(response)
        try:
            answer = await self._heard(events, number, place, on_token)
        except BaseException:
            response.close()
            raise
        if answer is not None:
            self._client.release(response)
        else:
            response.close()
            place.why = f"the stream of the reply ended before the reply ({events.why})"
        return answer

    async def _heard(
        self, events: EventStream, number: Any, place: Resumable | None = None, on_token: Any = None
    ) -> dict[str, Any] | None:
        """Take a stream's messages up to the answer to request ``number`` (None: to none), which is returned.

        Returns None at the stream's end.
        """
        while True:
            try:
                event = await events.next()
                if event is None:
                    return None
                if place is not None:
                    place.note(event)
                answer = self._taken(event, number) if event.name == "message" and event.data else None
            except (ValueError, RecursionError) as error:
                if number is None and not events.too_large:
                    logger.debug("what %s said is no message: %s", self._client.origin, error)
                    continue
                text = f"{self._client.origin} answered with an event that is no JSON-RPC: {error}"
                raise InfraError("server_protocol", text, server=self._client.server) from None
            if on_token is not None and event.id is not None:
                await on_token(event.id)
            if answer is not None:
                return answer
            await self._incoming.room()

    def _taken(self, event: Event, number: Any) -> dict[str, Any] | None:
        """Hand a message of the server on; an answer is returned.

        Raises:
            ValueError: it is none.
        """
        data = mended(event.data)
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError(f"it is no object: {replies.excerpt(str(message))}")
        method, params = message.get("method"), message.get("params")
        if method is None:
            if number is None or not ({"result", "error"} & message.keys()):
                raise ValueError(f"it answers nothing that was asked: {replies.excerpt(str(message))}")
            if number is not _ANY and message.get("id") is not None and str(message["id"]) != str(number):
                logger.debug("%s answered %r, which is not what was asked here", self._client.origin, message["id"])
                return None
            check_depth(message, data)
            return message
        if not isinstance(method, str) or not (params is None or isinstance(params, dict)):
            raise ValueError(f"it has a method or params of a wrong type: {replies.excerpt(str(message))}")
        if message.get("id") is not None:
            self._incoming.requested(message["id"], method, params)
        else:
            self._incoming.notified(method, params)
        return None

    def _lost(self, why: str) -> InfraError:
        return InfraError("session_lost", f"{self._client.origin}: {why}", server=self._client.server)


def is_kind(response: Any, kind: str) -> bool:
    """Whether a response has this ``Content-Type``."""
    found: str = response.headers.get("content-type", "")
    return found.lower().startswith(kind)


def check_depth(answer: dict[str, Any], content: bytes) -> None:
    """Refuse what is nested deeper than the SDK takes; but a list of tools is wanted even if one schema is absurd.

    Raises:
        ValueError: it is.
    """
    if content.count(b"{") + content.count(b"[") <= messages.MAX_DEPTH or not deeper(answer, messages.MAX_DEPTH):
        return
    result = answer.get("result")
    if not (isinstance(result, dict) and isinstance(result.get("tools"), list)):
        raise ValueError(f"answered with JSON nested more than {messages.MAX_DEPTH} levels deep")
