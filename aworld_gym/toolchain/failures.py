"""What the exceptions and results of an MCP session mean: whose failure it is, and what the model may read.

Knows no session: exceptions, JSON and names of servers only.
"""

from __future__ import annotations

from typing import Any

from aworld_gym.errors import AWorldGymError, InfraError, describe, leaves
from aworld_gym.toolchain import compat, messages


def known(error: BaseException, server: str) -> AWorldGymError | None:
    """The failure that an exception, or one within its groups, is or carries in its data; None if it says nothing."""
    for leaf in leaves(error):
        if isinstance(leaf, AWorldGymError):
            return leaf
        protocol = compat.protocol_error(leaf)
        found = messages.failure(protocol[2], server) if protocol else None
        if found is not None:
            return found
    return None


def meaning(error: BaseException, server: str, *, of_call: bool = False) -> InfraError | None:
    """The infrastructure failure that an exception of a request stands for; None if the server answered."""
    protocol = compat.protocol_error(error)
    if protocol is None:
        return InfraError("session_lost", describe(error), server=server)
    code, message, data = protocol
    found = messages.failure(data, server)
    if found is not None:
        return found
    if code == compat.CONNECTION_CLOSED and (message == "Connection closed" or message.startswith("SSE stream")):
        return InfraError("session_lost", message, server=server)
    # a call is "invalid" also where its tool asked for what this client does not offer: a user, a model, roots
    if code == -32700 or (code == -32600 and not of_call):
        return InfraError("server_protocol", f"it answered {code}: {message}", server=server)
    return None


def refusal(error: BaseException) -> dict[str, Any]:
    """The result of a call that the server answered with a JSON-RPC error: its way, if not the best, to refuse one."""
    protocol = compat.protocol_error(error)
    assert protocol is not None
    return {"content": [{"type": "text", "text": protocol[1]}], "isError": True}


def result(raw: Any) -> dict[str, Any]:
    """The result of a call, whatever the server took for one."""
    if not isinstance(raw, dict):
        return {"content": [{"type": "text", "text": str(raw)}]}
    if raw.get("resultType") == "input_required":
        text = "the tool asks for further input from a user, which cannot be given here"
        return {"content": [{"type": "text", "text": text}], "isError": True}
    return raw
