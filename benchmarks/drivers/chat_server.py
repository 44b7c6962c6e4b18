"""A chat-completions endpoint that answers at once (or after ``--latency-s``): the model of workload noop-4.

Its answer depends on the request alone: a call of the tool whose name ends in ``noop`` as long as the conversation has
fewer than ``--turns`` tool messages, then ``<answer>done</answer>``. It prints its port. The standard library alone,
on one event loop, so that it takes as little as can be of the cores that are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

ANSWER = "<answer>done</answer>"
_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def reply(request: dict[str, Any], turns: int) -> dict[str, Any]:
    """The assistant message that answers a request."""
    done = sum(message["role"] == "tool" for message in request["messages"])
    if done >= turns:
        return {"role": "assistant", "content": ANSWER}
    names = [tool["function"]["name"] for tool in request.get("tools") or ()]
    name = next((name for name in names if name.endswith("noop")), "noop")
    function = {"name": name, "arguments": json.dumps({"x": done})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{done}", "type": "function", "function": function}],
    }


def body(request: dict[str, Any], turns: int) -> tuple[str, bytes]:
    """Content type and body of the answer, whole or as a stream of events."""
    message = reply(request, turns)
    reason = "tool_calls" if "tool_calls" in message else "stop"
    outer = {"id": "chatcmpl-0", "created": 0, "model": request.get("model", "mock")}
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return "application/json", json.dumps(
            {**outer, "object": "chat.completion", "usage": _USAGE, "choices": [choice]}
        ).encode()
    calls = [{"index": k, **call} for k, call in enumerate(message.get("tool_calls", ()))]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    parts: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": _USAGE},
    ]
    lines = [json.dumps({**outer, "object": "chat.completion.chunk", **part}) for part in parts]
    return "text/event-stream", "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()


class Chat(asyncio.Protocol):
    """One connection: HTTP/1.1 with Content-Length, requests one after another."""

    def __init__(self, turns: int, latency_s: float):
        self._turns, self._latency_s, self._read = turns, latency_s, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._read[:end]).decode("latin-1").lower()
            size = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
            if len(self._read) < end + 4 + size:
                return
            content, path = bytes(self._read[end + 4 : end + 4 + size]), head.split(" ", 2)[1]
            del self._read[: end + 4 + size]
            if path.endswith("/models"):
                self._answer("application/json", b'{"object":"list","data":[{"id":"mock","object":"model"}]}')
            else:
                kind, text = body(json.loads(content), self._turns)
                if self._latency_s:
                    asyncio.get_running_loop().call_later(self._latency_s, self._answer, kind, text)
                else:
                    self._answer(kind, text)

    def _answer(self, kind: str, text: bytes) -> None:
        if not self._transport.is_closing():
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(text)}\r\n\r\n"
            self._transport.write(head.encode() + text)


async def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--latency-s", type=float, default=0.0)
    options = parser.parse_args()
    server = await asyncio.get_running_loop().create_server(
        lambda: Chat(options.turns, options.latency_s), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
