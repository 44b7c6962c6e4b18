"""A chat-completions endpoint on 127.0.0.1 for tests: speaks the real format over real HTTP, and misbehaves on order.

``replies`` is a function of (request body, number of the request) that gives a :class:`Reply`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """One HTTP reply; ``raw`` is sent as it is, ``drop`` closes the connection without a word.

    With ``drip_s`` it comes byte by byte, with so many seconds between two.
    """

    body: Any = None
    status: int = 200
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    delay_s: float = 0.0
    drip_s: float = 0.0


def completion(message: dict[str, Any], *, finish: str | None = None, model: str = "stand-in-1") -> Reply:
    """A chat completion holding ``message``."""
    message = {"role": "assistant", "content": None, **message}
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return Reply(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": usage,
        }
    )


def refusal(status: int, message: str, code: str | None = None, **headers: str) -> Reply:
    """An error as OpenAI-compatible endpoints put it."""
    error = {"message": message, "type": "error", "param": None, "code": code}
    return Reply({"error": error}, status=status, headers=headers)


def call(name: str, arguments: Any, call_id: str | None = "call_a") -> dict[str, Any]:
    """A tool call; ``arguments`` that are no string are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


class ChatEndpoint:
    """The server; use it as a context manager. ``requests`` keeps every body, ``keys`` every Authorization.

    ``pages`` gives the replies to GET, by path and Authorization.
    """

    def __init__(
        self,
        replies: Callable[[dict[str, Any], int], Reply],
        pages: Callable[[str, str | None], Reply] = lambda path, key: Reply({}, status=404),
        port: int = 0,
    ):
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.most_at_once = 0
        self._lock, self._at_once = threading.Lock(), 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with endpoint._lock:
                    number = len(endpoint.requests)
                    endpoint.requests.append({"path": self.path, **body})
                    endpoint.keys.append(self.headers.get("Authorization"))
                    endpoint._at_once += 1
                    endpoint.most_at_once = max(endpoint.most_at_once, endpoint._at_once)
                try:
                    self.answer(replies(body, number))
                finally:
                    with endpoint._lock:
                        endpoint._at_once -= 1

            def do_GET(self) -> None:
                self.answer(pages(self.path, self.headers.get("Authorization")))

            def answer(self, reply: Reply) -> None:
                time.sleep(reply.delay_s)
                if reply.drop:
                    self.close_connection = True
                    self.connection.close()
                    return
                data = reply.raw if reply.raw is not None else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                step = 1 if reply.drip_s else max(1, len(data))
                for i in range(0, len(data), step):
                    self.wfile.write(data[i : i + step])
                    time.sleep(reply.drip_s)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # clients hang up here on purpose

        self._server = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ChatEndpoint:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
