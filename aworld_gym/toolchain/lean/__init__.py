"""A lean streamable HTTP transport: a dispatcher for the SDK's own ``ClientSession``, over ``aiohttp``.

The SDK's transport takes every message through three tasks, two streams and two validations before it meets the
wire. Here a request is asked and answered in the task of its caller. The rest is as there: replies in JSON and in
events, sessions, resumption with ``Last-Event-ID``, progress, cancellation, and requests and notifications of the
server. What differs: OpenTelemetry spans are not made, and a stream of events lets its connection be used again.

Failures become the same JSON-RPC error answers as those that :mod:`aworld_gym.toolchain.http` makes of them. Needs
mcp 2.x, of which the dispatcher's interface is part.
"""

from __future__ import annotations

from aworld_gym.toolchain.lean.dispatcher import connect, unusable

__all__ = ["connect", "unusable"]
