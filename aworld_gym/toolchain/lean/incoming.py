"""What a server says by itself: its requests, which are answered, and its notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import anyio

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import compat

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 1.0
"""Seconds that what runs in the background may take to end."""
MOST_AT_ONCE = 64
"""Messages of the server that are being handled; while there are more, its streams are not read on."""
_INVALID_PARAMS, _INTERNAL_ERROR = -32602, -32603


def key_of(number: Any) -> Any:
    """What an id is known by: both lines of the SDK take "7" for 7."""
    if isinstance(number, str) and number.isascii() and number.isdigit():
        return int(number[:20])
    return number if isinstance(number, int | str) and not isinstance(number, bool) else None


@dataclass(slots=True, eq=False)
class Context:
    """What the SDK's handlers are told with a message of the server (its ``DispatchContext``)."""

    transport: Any
    dispatcher: Any
    request_id: Any = None
    progress_token: Any = None
    message_metadata: Any = None
    task: asyncio.Task[None] | None = None
    closed: bool = False
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    @property
    def can_send_request(self) -> bool:
        """Whether the server can be asked something meanwhile."""
        return not self.closed

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        """Ask the server something meanwhile."""
        if self.closed:
            raise compat.api().Error(code=_INTERNAL_ERROR, message=f"{method}: the request it belongs to has ended")
        result: dict[str, Any] = await self.dispatcher.send_raw_request(method, params, opts)
        return result

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        """Tell the server something meanwhile."""
        if not self.closed:
            await self.dispatcher.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the server how far its request is, if it wants to know."""
        if self.progress_token is not None:
            values = {"progress": progress, "total": total, "message": message}
            told = {k: v for k, v in values.items() if v is not None}
            await self.notify("notifications/progress", {"progressToken": self.progress_token, **told})


class Incoming:
    """Takes a server's messages, in the order in which they came.

    Args:
        dispatcher: whose they are.
        tell: sends an answer.
        progress_of: what wants to know of the progress of one of our requests, by its token.
    """

    def __init__(
        self,
        dispatcher: Any,
        tell: Callable[[dict[str, Any]], Awaitable[None]],
        progress_of: Callable[[Any], Callable[..., Awaitable[None]] | None],
    ):
        self._dispatcher, self._tell, self._progress_of = dispatcher, tell, progress_of
        self._open: dict[Any, Context] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._room = asyncio.Event()
        self._room.set()
        self.on_request: Any = None
        self.on_notify: Any = None
        self.intercept: Callable[[str, Any], bool] | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in the background, until :meth:`aclose`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        if len(self._tasks) > MOST_AT_ONCE:
            self._room.clear()
        task.add_done_callback(self._ended)
        return task

    async def room(self) -> None:
        """Wait until more of the server's messages can be taken: each of its requests is answered by one of ours."""
        await self._room.wait()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if len(self._tasks) <= MOST_AT_ONCE:
            self._room.set()

    async def aclose(self) -> None:
        """End what runs in the background, however often it is cancelled."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(list(self._tasks), timeout=CLOSE_TIMEOUT_S)

    def notified(self, method: str, params: dict[str, Any] | None) -> None:
        """A notification came."""
        told = params or {}
        if method == "notifications/cancelled":
            self._cancelled(told.get("requestId"))
        elif method == "notifications/progress":
            self._progressed(told)
        try:
            if self.intercept is not None and self.intercept(method, params):
                return
        except Exception:
            logger.exception("an intercept of %s failed", method)
        self.spawn(_contained(self.on_notify(self._context(), method, params), method))

    def requested(self, number: Any, method: str, params: dict[str, Any] | None) -> None:
        """A request came."""
        meta = (params or {}).get("_meta")
        context = self._context(number, meta.get("progressToken") if isinstance(meta, dict) else None)
        self._open[key_of(number)] = context
        context.task = self.spawn(self._answer(context, method, params))

    def _context(self, number: Any = None, token: Any = None) -> Context:
        from mcp.shared.transport_context import TransportContext

        return Context(TransportContext(kind="streamable-http", can_send_request=True), self._dispatcher, number, token)

    def _cancelled(self, number: Any) -> None:
        context = self._open.get(key_of(number))
        if context is not None:
            context.cancel_requested.set()
            if context.task is not None:
                context.task.cancel()

    def _progressed(self, told: dict[str, Any]) -> None:
        progress, total, text = told.get("progress"), told.get("total"), told.get("message")
        callback = self._progress_of(key_of(told.get("progressToken")))
        if callback is not None and _is_number(progress):
            said = (float(total) if _is_number(total) else None, text if isinstance(text, str) else None)
            self.spawn(_contained(callback(float(progress), *said), "notifications/progress"))

    async def _answer(self, context: Context, method: str, params: Any) -> None:
        """Answer a request of the server, unless it takes the request back."""
        key = key_of(context.request_id)
        answer: dict[str, Any]
        try:
            answer = {"result": await self.on_request(context, method, params)}
        except Exception as error:
            answer = {"error": _error(error, method)}
        finally:
            context.closed = True
            if self._open.get(key) is context:
                del self._open[key]
        try:
            await self._tell({"jsonrpc": "2.0", "id": context.request_id, **answer})
        except InfraError as failure:
            logger.debug("the answer to %s was not taken: %s", method, failure)


def _error(error: Exception, method: str) -> dict[str, Any]:
    """What a server is answered if its request failed here."""
    known = compat.protocol_error(error)
    if known is not None:
        code, message, data = known
        return {"code": code, "message": message} | ({} if data is None else {"data": data})
    if isinstance(error, ValueError):  # the request does not have the form that its method asks for
        return {"code": _INVALID_PARAMS, "message": "Invalid request parameters"}
    logger.exception("the handler of %s failed", method)
    return {"code": _INTERNAL_ERROR, "message": "the client's handler failed"}


async def _contained(handling: Awaitable[None], method: str) -> None:
    try:
        await handling
    except Exception:
        logger.exception("the handler of %s failed", method)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
