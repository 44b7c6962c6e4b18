"""What a refusal's status and body mean."""

from __future__ import annotations

import json

import pytest

from aworld_gym.toolchain import replies


def rpc_error(message):
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32003, "message": message}})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (rpc_error("the token has expired"), "the token has expired"),
        (rpc_error(" "), rpc_error(" ")),
        (rpc_error(7), rpc_error(7)),
        ('{"error": "invalid_token"}', '{"error": "invalid_token"}'),
        ("<h1>No</h1>", "<h1>No</h1>"),
        ("[" * 100_000, "[" * 500 + "…"),
        (rpc_error("x" * 1000), "x" * 500 + "…"),
        ("", "(no body)"),
    ],
)
def test_what_a_server_said(body, words):
    kind, text, delivered = replies.refusal(
        "http://there/mcp", 401, "Unauthorized", body, challenge='Bearer realm="r"', in_session=False
    )
    assert (kind, delivered) == ("host_refused", False)
    assert text == (
        f'http://there/mcp answered 401 Unauthorized: {words} (it asks for Bearer realm="r"); '
        "check the credentials in `headers`, or an environment host's `token` (MCP_SERVER_TOKEN)"
    )


@pytest.mark.parametrize(
    ("status", "body", "in_session", "kind", "delivered"),
    [
        (403, "", False, "host_refused", False),
        (429, "", True, "host_refused", False),
        (503, "", True, "host_refused", False),
        (404, rpc_error("Session not found"), True, "session_lost", False),
        (400, rpc_error("Bad Request: no valid session"), True, "session_lost", False),
        (400, rpc_error("the params are wrong"), True, "server_protocol", None),
        (404, "", False, "server_protocol", None),
        (502, "", True, "host_unreachable", None),
        (500, "", True, "server_protocol", None),
    ],
)
def test_what_a_status_means(status, body, in_session, kind, delivered):
    found = replies.refusal("http://there/mcp", status, "No", body, challenge=None, in_session=in_session)
    assert (found[0], found[2]) == (kind, delivered)
