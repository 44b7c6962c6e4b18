"""A host passes those server scenarios of MCP's own conformance suite that apply to it.

The suite's program runs against ``aworld-gym serve`` as it is, bearer token included, once for each version of the
protocol that has sessions. Every scenario that the suite has is in one of the tables below, so that a new version of
the suite asks for a decision.
"""

from __future__ import annotations

import conformance_tools
import pytest
from foreign_hosts import foreign_host
from interop_programs import conformance_server, node, scenarios

WIRE = "wire-schema-valid"
"""The suite's check of every message that the host sent against the protocol's schema."""
APPLY = {
    # scenario: checks that must have been made, and have succeeded (nothing else may have failed, or be warned of)
    "server-initialize": ["server-initialize", "server-session-id-visible-ascii", WIRE],
    "server-session-lifecycle": ["server-session-delete-accepted", "server-session-terminated-returns-404"],
    "ping": ["ping", WIRE],
    "tools-list": ["tools-list", WIRE],
    "tools-call-simple-text": ["tools-call-simple-text", WIRE],
    "tools-call-image": ["tools-call-image", WIRE],
    "tools-call-audio": ["tools-call-audio", WIRE],
    "tools-call-embedded-resource": ["tools-call-embedded-resource", WIRE],
    "tools-call-mixed-content": ["tools-call-mixed-content", WIRE],
    "tools-call-error": ["tools-call-error", WIRE],
    "tools-call-with-progress": ["tools-call-with-progress", WIRE],
    "json-schema-2020-12": ["json-schema-2020-12-$schema", "json-schema-2020-12-$defs", WIRE],
    "server-sse-multiple-streams": ["server-accepts-multiple-post-streams"],
    "dns-rebinding-protection": ["localhost-host-rebinding-rejected", "localhost-host-valid-accepted"],
}
TOOLS_ONLY = "a host offers tools, and says so in its capabilities: it has no prompts, resources, completions or logs"
NOBODY = "a tool can ask nothing of the client's user or model: an episode has neither; the tool gets an error"
DO_NOT_APPLY = {
    # scenario: why, and what the host answers instead
    **{
        scenario: (TOOLS_ONLY, "Method not found")
        for scenario in (
            "logging-set-level",
            "tools-call-with-logging",
            "completion-complete",
            "resources-list",
            "resources-read-text",
            "resources-read-binary",
            "resources-templates-read",
            "resources-subscribe",
            "resources-unsubscribe",
            "prompts-list",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
        )
    },
    "tools-call-sampling": (NOBODY, "no back-channel for server-initiated requests"),
    "tools-call-elicitation": (NOBODY, "no back-channel for server-initiated requests"),
    "elicitation-sep1034-defaults": (NOBODY, "Unknown tool: 'test_elicitation_sep1034_defaults'"),
    "elicitation-sep1330-enums": (NOBODY, "Unknown tool: 'test_elicitation_sep1330_enums'"),
    "server-sse-polling": ("short replies are JSON, which has nothing to poll", "application/json"),
}
OF_OTHER_PROTOCOLS = {
    # beginning of the scenarios' names: why none of them applies
    **dict.fromkeys(
        ("server-stateless", "sep-2164-", "caching", "http-header-", "http-custom-header-", "input-required-result-"),
        "only in 2026-07-28, which has no sessions",
    ),
    "sep-2640-": "an extension (skills)",
    "tasks-": "an extension (tasks)",
}
VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")
"""Of 2026-07-28 no scenario applies: it has no sessions, and a session is an episode. Clients are told so, and shake
hands instead (``test_foreign_clients``)."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    node()  # skips where there is none
    with foreign_host(conformance_tools.CONFIG, tmp_path_factory.mktemp("host"), "conformance") as running:
        yield running


def test_every_scenario_of_the_suite_is_decided():
    decided = APPLY.keys() | DO_NOT_APPLY.keys()
    names = scenarios("server")
    assert decided <= set(names)
    assert not [name for name in names if name not in decided and not name.startswith(tuple(OF_OTHER_PROTOCOLS))]
    assert all(any(name.startswith(known) for name in names) for known in OF_OTHER_PROTOCOLS)


@pytest.mark.parametrize("version", VERSIONS)
def test_server_scenarios(running, version, tmp_path):
    verdicts = conformance_server(running.url, version, running.token, tmp_path)
    undecided = verdicts.keys() - APPLY.keys() - DO_NOT_APPLY.keys()
    assert not undecided, f"scenarios that are in no table: {undecided}"
    if version == VERSIONS[-1]:
        assert verdicts.keys() == APPLY.keys() | DO_NOT_APPLY.keys()
    for scenario in verdicts.keys() & APPLY.keys():
        verdicts[scenario].check(*APPLY[scenario])
    for scenario in verdicts.keys() & DO_NOT_APPLY.keys():  # -32099 would be a failure of the host's own
        _, answer = DO_NOT_APPLY[scenario]
        assert answer in verdicts[scenario].said and "-32099" not in verdicts[scenario].said, verdicts[scenario].report
        if WIRE in verdicts[scenario].checks:  # what is refused is refused in the protocol's way
            assert verdicts[scenario].checks[WIRE] == {"SUCCESS"}, verdicts[scenario].report
    assert '"level": "error"' not in running.logged()


def test_without_the_token_no_scenario_passes(running, tmp_path):
    verdicts = conformance_server(running.url, "2025-06-18", "not.a.token", tmp_path)
    tried = [verdicts[scenario] for scenario in verdicts.keys() & APPLY.keys()]
    assert tried and all(verdict.wrong for verdict in tried)
