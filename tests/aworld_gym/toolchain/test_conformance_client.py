"""Our client passes the client scenarios of MCP's own conformance suite (``@modelcontextprotocol/conformance``)."""

from __future__ import annotations

import json
import sys

import pytest
from interop_programs import REPOSITORY, SCRIPTS, conformance_client, scenarios

from aworld_gym.toolchain import compat

TRANSPORTS = {
    # how our client speaks HTTP: what is added to its `mcpServers` entry, and to its environment
    "sdk": ({"http_client": "sdk"}, {}),
    "lean": ({"http_client": "lean"}, {}),
}
SCENARIOS = {
    # scenario and protocol version: checks that must have been made, and have succeeded
    ("initialize", "2025-11-25"): ["mcp-client-initialization"],
    ("tools_call", "2025-11-25"): ["tool-add-numbers", "wire-schema-valid"],
    ("tools_call", "2026-07-28"): ["tool-add-numbers", "wire-schema-valid"],
    ("sse-retry", "2025-11-25"): [
        "client-sse-graceful-reconnect",
        "client-sse-retry-timing",
        "client-sse-last-event-id",
    ],
    ("json-schema-2020-12-preservation", "2025-11-25"): [
        f"json-schema-2020-12-client-{part}-preserved" for part in ("$schema", "$defs", "additionalProperties")
    ],
    ("json-schema-ref-no-deref", "2026-07-28"): ["sep-2106-no-network-ref-deref"],
}
DO_NOT_APPLY = {
    # beginning of the scenarios' names: why
    "auth/": "the client is given its tokens, in headers: it logs in nowhere",
    "elicitation-": "there is no user to ask, and the client says so",
    "sep-2322-client-request-state": "the same in the protocol of 2026: a tool that asks for more has failed",
    "sep-2640-": "an extension (skills) that the client does not know",
    # the sessionless protocol of 2026 from the first request on: the client begins with the handshake, which every
    # server knows, and goes on to the other only where that is refused
    "request-metadata": "begins without the handshake",
    "http-standard-headers": "begins without the handshake",
    "http-custom-headers": "begins without the handshake",
    "http-invalid-tool-headers": "begins without the handshake",
}


def test_every_scenario_of_the_suite_is_decided():
    apply = {scenario for scenario, _ in SCENARIOS}
    names = scenarios("client")
    undecided = [name for name in names if name not in apply and not name.startswith(tuple(DO_NOT_APPLY))]
    assert apply <= set(names) and not undecided
    assert all(any(name.startswith(known) for name in names) for known in DO_NOT_APPLY)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("scenario", "version"), SCENARIOS)
def test_scenario(scenario, version, transport, tmp_path):
    if version >= "2026" and not compat.api().v2:
        pytest.skip("mcp 1.x does not speak the protocol of 2026")
    if transport == "lean" and not compat.api().v2:
        pytest.skip("the lean client needs mcp 2.x")
    entry, env = TRANSPORTS[transport]
    verdict = conformance_client(
        scenario,
        ["--spec-version", version, "--command", f"{sys.executable} {SCRIPTS / 'conformance_client.py'}"],
        tmp_path,
        **{"PYTHONPATH": str(REPOSITORY), "CONFORMANCE_ENTRY": json.dumps(entry), **env},
    )
    verdict.check(*SCENARIOS[scenario, version])


def test_a_client_that_fails_a_scenario_is_found_out(tmp_path):
    """The verdict is the suite's: a client that does nothing does not pass."""
    verdict = conformance_client("tools_call", ["--command", "true"], tmp_path)
    assert not verdict.ended_well
    with pytest.raises(AssertionError, match="tool-add-numbers"):
        verdict.check("tool-add-numbers")
