"""A streamable HTTP server written without any SDK, that misbehaves as told: ``raw_http.py [MODE ...] --port N``.

It prints its port when it listens. Replies are JSON, or event streams in mode ``sse``.
"""

import argparse
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("modes", nargs="*")
parser.add_argument("--port", type=int, default=0)
options = parser.parse_args()
MODES = set(options.modes)
OBJECT = {"type": "object", "properties": {}}
READ_ONLY = {"readOnlyHint": True}
TOOLS = [
    {"name": "count", "inputSchema": OBJECT},  # changes something: says how often it was called
    {"name": "look", "inputSchema": OBJECT, "annotations": READ_ONLY},
    {"name": "slow", "inputSchema": {"type": "object", "properties": {"seconds": {"type": "number"}}}},
    {"name": "huge", "inputSchema": {"type": "object", "properties": {"chars": {"type": "integer"}}}},
    {"name": "session", "inputSchema": OBJECT, "annotations": READ_ONLY},
    {"name": "gets", "inputSchema": OBJECT, "annotations": READ_ONLY},
    {"name": "half", "description": "Half an emoji, \ud83d.", "inputSchema": OBJECT},
]
state = {"count": 0, "sessions": 0, "calls": 0, "gets": 0}
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self):
        self.close_connection = True
        self.connection.close()

    def do_GET(self):
        state["gets"] += 1
        self.reply(405)

    def do_DELETE(self):
        if "slow-delete" in MODES:
            time.sleep(30)
        self.reply(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "401" in MODES and self.headers.get("authorization") != "Bearer right":
            body = b'{"error": "invalid_token", "error_description": "The token has expired"}'
            return self.reply(401, body, www_authenticate='Bearer realm="tools"')
        if "html" in MODES:
            return self.reply(200, b"<html>It works!</html>", "text/html")
        if "500" in MODES:
            return self.reply(500, b"Traceback: the database is gone", "text/plain")
        number = message.get("id")
        if number is None:
            return self.reply(202)
        answer = self.answer(message, number)
        if answer is not None:
            self.send(number, answer)

    def send(self, number, answer, headers=None):
        body = json.dumps({"jsonrpc": "2.0", "id": number, **answer})
        if "sse" in MODES:
            data = f"event: message\ndata: {body}\n\n".encode()
            self.reply(200, data, "text/event-stream", **(headers or {}))
        else:
            self.reply(200, body.encode(), **(headers or {}))

    def answer(self, message, number):
        method, params = message["method"], message.get("params") or {}
        if "modern" in MODES:
            if method == "initialize":
                error = {"code": -32020, "message": "Missing MCP-Protocol-Version header"}
                return self.reply(400, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())
            if method == "server/discover":
                extra = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
                return {"result": extra | {"ttlMs": 0, "cacheScope": "public"}}
        if method == "initialize":
            with lock:
                state["sessions"] += 1
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "0"},
            }
            return self.send(number, {"result": result}, {"mcp_session_id": f"s{state['sessions']}"})
        if method == "tools/list":
            extra = {"ttlMs": 0, "cacheScope": "public"} if "modern" in MODES else {}
            return {"result": {"tools": TOOLS, "resultType": "complete"} | extra}
        if method == "ping":
            return time.sleep(30) if "no-ping" in MODES else {"result": {}}
        return self.call(number, params["name"], params.get("arguments") or {})

    def call(self, number, name, arguments):
        with lock:
            state["calls"] += 1
            first = state["calls"] == 1
            state["count"] += name == "count" and not (first and MODES & {"busy-once", "forget-once"})
        if first and "busy-once" in MODES:
            return self.reply(503, b"try later", "text/plain")
        if first and "forget-once" in MODES:
            return self.reply(404, b'{"error": "Session not found"}')
        if (first and "drop-once" in MODES) or "drop" in MODES:
            return self.hang_up()
        if first and "broken-json-once" in MODES:
            return self.reply(200, b'{"jsonrpc": "2.0", "id": 1, "resu')
        if first and "accept-once" in MODES:
            return self.reply(202)
        if first and "break-off-once" in MODES:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b'event: message\ndata: {"jsonrpc": ')
            self.wfile.flush()
            return self.hang_up()
        if name == "slow":
            time.sleep(arguments["seconds"])
        text = {
            "count": lambda: str(state["count"]),
            "look": lambda: "seen",
            "slow": lambda: "late",
            "huge": lambda: "x" * arguments["chars"],
            "session": lambda: str(self.headers.get("mcp-session-id")),
            "gets": lambda: str(state["gets"]),
            "half": lambda: "Smile \ud83d, \ud83d\ude00",
        }[name]()
        return {"result": {"content": [{"type": "text", "text": text}], "resultType": "complete"}}


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


server = Server(("127.0.0.1", options.port), Handler)
print(server.server_address[1], flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit()
