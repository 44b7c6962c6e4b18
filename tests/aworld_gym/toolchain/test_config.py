"""The mcpServers configuration: what it takes, and what it says about what it does not take."""

from __future__ import annotations

import json
import pickle
import re

import pytest

from aworld_gym.errors import ConfigError
from aworld_gym.toolchain import ServerConfig, ToolchainConfig, load_config
from aworld_gym.toolchain.config import fill


def one(entry) -> ServerConfig:
    return load_config({"mcpServers": {"it": entry}}).servers[0]


def test_the_formats_that_clients_use(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cret")
    monkeypatch.delenv("MISSING", raising=False)
    file = tmp_path / "mcp.json"
    data = {
        "globalShortcut": "Ctrl+Space",
        "mcpServers": {
            "files": {"command": "npx", "args": ["-y", "server", "${AWORLD_WORKSPACE}"], "env": {"A": "${MISSING:-d}"}},
            "typed": {"type": "stdio", "command": "./run", "cwd": "sub", "autoApprove": ["x"], "_comment": "mine"},
            "web": {"type": "streamable-http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            "plain": {"url": "http://127.0.0.1:1/mcp", "timeout": 5, "sse_read_timeout": 60.5, "scope": "episode"},
            "old": {"transport": "sse", "url": "http://h/sse"},
            "mine": {"python": "pkg.module:factory", "kwargs": {"size": 3, "name": "$${TOKEN} ${TOKEN}"}},
            "ahead": {"command": "x", "pool": 2, "reset_tool": "reset", "tools": ["a"]},
            "off": {"command": "y", "disabled": True},
        },
    }
    file.write_text(json.dumps(data))
    config = load_config(file)
    assert load_config(config) is config and load_config(str(file)) == config
    by_name = {server.name: server for server in config.servers}
    assert list(by_name) == ["files", "typed", "web", "plain", "old", "mine", "ahead"]
    assert [s.kind for s in config.servers] == ["stdio", "stdio", "http", "http", "sse", "python", "stdio"]
    assert [s.scope for s in config.servers] == [
        "episode",
        "episode",
        "shared",
        "episode",
        "shared",
        "episode",
        "episode",
    ]
    assert by_name["files"].args == ("-y", "server", "${AWORLD_WORKSPACE}") and by_name["files"].env == {"A": "d"}
    assert by_name["typed"].cwd == str(tmp_path / "sub")  # from where the file stands
    assert by_name["web"].headers == {"Authorization": "Bearer s3cret"}
    assert (by_name["plain"].timeout, by_name["plain"].sse_read_timeout) == (5.0, 60.5)
    assert by_name["mine"].kwargs == {"size": 3, "name": "${TOKEN} s3cret"}
    assert (by_name["ahead"].pool, by_name["ahead"].reset_tool, by_name["ahead"].tools) == (2, "reset", ("a",))
    assert "s3cret" not in repr(by_name["web"]) and pickle.loads(pickle.dumps(config)) == config


def test_servers_are_equal_by_what_they_are():
    a, b = (
        one({"url": "http://h", "headers": {"x": "1", "y": "2"}}),
        one({"url": "http://h", "headers": {"y": "2", "x": "1"}}),
    )
    assert a.key == b.key
    assert a.key != one({"url": "http://h", "headers": {"x": "1", "y": "3"}}).key


def test_the_episodes_variables_are_filled_later():
    server = one({"command": "x", "args": ["${AWORLD_WORKSPACE}/a", "${AWORLD_EPISODE_FILE}"]})
    values = {"AWORLD_WORKSPACE": "/w", "AWORLD_EPISODE_FILE": "/e.json"}
    assert [fill(arg, values) for arg in server.args] == ["/w/a", "/e.json"]


STDIO = {"command": "x"}
HTTP = {"url": "http://h/mcp"}


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ([], "expected an object like"),
        ({}, "exactly one of `command` (stdio), `url` (HTTP) or `python` (in process), got the keys []"),
        (STDIO | HTTP, "got ['command', 'url']"),
        ({"comand": "x"}, "exactly one of `command`"),
        (STDIO | {"arg": []}, "unknown key 'arg' for a stdio server; known are"),
        (STDIO | {"arg": []}, "Did you mean 'args'?"),
        (STDIO | {"headers": {}}, "unknown key 'headers' for a stdio server"),
        (STDIO | {"type": "http"}, "`type` is 'http', which does not go with `command`"),
        (HTTP | {"type": "streamble-http"}, "Did you mean 'streamable-http'"),
        (HTTP | {"type": 3}, "`type` must be"),
        ({"command": ""}, "`command` must be a string that is not empty, got ''"),
        ({"command": ["x"]}, "`command` must be a string"),
        (STDIO | {"args": "-y server"}, "`args` must be a list of strings, got '-y server'"),
        (STDIO | {"args": [1]}, "`args` must be a list of strings"),
        (STDIO | {"env": ["A=1"]}, "`env` must map names to strings"),
        (STDIO | {"env": {"A": 1}}, "`env.A` must be a string, got int"),
        (STDIO | {"env": []}, "`env` must map names to strings, got []"),
        (STDIO | {"env": {"A=B": "c"}}, "`env` has the name 'A=B'"),
        (STDIO | {"env": {"A": "x\0"}}, "`env.A` holds a zero character"),
        (STDIO | {"args": ["a", "b\0"]}, "`args[1]` holds a zero character"),
        (STDIO | {"args": ["\ud83d"]}, "`args[0]` holds a zero character, or half of a surrogate pair"),
        ({"command": "x\0"}, "`command` holds a zero character"),
        (STDIO | {"disabled": "yes"}, "`disabled` must be true or false, got 'yes'"),
        (STDIO | {"disabled": None}, "`disabled` must be true or false, got None"),
        (HTTP | {"headers": ""}, "`headers` must map names to strings, got ''"),
        (HTTP | {"headers": {"A": "ü"}}, "`headers.A` must be printable ASCII"),
        (HTTP | {"headers": {"A": "token\n"}}, "is there a line break at its end?"),
        (HTTP | {"headers": {"A b": "x"}}, "`headers` has the name 'A b'"),
        ({"url": "http://h:99999/mcp"}, "`url` is broken (Port out of range"),
        ({"url": "http://h/m cp"}, "`url` must be without spaces"),
        ({"python": "m:f", "kwargs": []}, "`kwargs` must map argument names to values, got []"),
        (STDIO | {"cwd": 1}, "`cwd` must be a string"),
        ({"url": "h/mcp"}, "`url` must begin with http:// or https:// and name a host, got 'h/mcp'"),
        (HTTP | {"timeout": 0}, "`timeout` must be a positive number of seconds, got 0"),
        (HTTP | {"timeout": True}, "`timeout` must be a positive number"),
        ({"python": "module"}, "`python` must look like \"package.module:factory\", got 'module'"),
        ({"python": "m:f", "kwargs": [1]}, "`kwargs` must map argument names to values"),
        (STDIO | {"scope": "global"}, '`scope` must be "episode" or "shared", got \'global\''),
        (STDIO | {"tools": []}, "`tools` must be a list of at least one tool name, got []"),
        (STDIO | {"tools": "a"}, "`tools` must be a list"),
        (STDIO | {"pool": -1}, "`pool` must be a number of sessions, 0 or more, got -1"),
        (STDIO | {"pool": True}, "`pool` must be a number"),
        (STDIO | {"pool": 1, "scope": "shared"}, '`pool` is for scope "episode"'),
        ({"python": "m:f", "pool": 1}, "`pool` is for servers that take long to start"),
        (STDIO | {"reset_tool": "r"}, "`reset_tool` lets pooled sessions be reused: it needs `pool` of at least 1"),
        (STDIO | {"pool": 1, "reset_tool": 1}, "`reset_tool` must name one of the server's tools"),
        (STDIO | {"args": ["${NO_SUCH_VARIABLE}"]}, "`args[0]` uses ${NO_SUCH_VARIABLE}, but the environment variable"),
        (HTTP | {"headers": {"X": "${NO_SUCH_VARIABLE}"}}, "`headers.X` uses ${NO_SUCH_VARIABLE}"),
        (HTTP | {"headers": {"X": "${NO_SUCH_VARIABLE}"}}, "set it, or write ${NO_SUCH_VARIABLE:-default}"),
        (HTTP | {"headers": {"X": "${AWORLD_WORKSPACE}"}}, 'only a stdio server of scope "episode" has'),
        (STDIO | {"scope": "shared", "args": ["${AWORLD_WORKSPACE}"]}, "`args[0]` uses ${AWORLD_WORKSPACE}"),
    ],
)
def test_complaints_name_the_server_and_the_fix(entry, complaint, monkeypatch):
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    with pytest.raises(ConfigError) as caught:
        load_config({"mcpServers": {"it": entry}})
    assert "server 'it': " in str(caught.value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({}, "got the keys []"),
        ({"mcpservers": {}}, "expected {\"mcpServers\": {name: {...}}}, got the keys ['mcpservers']"),
        ({"mcpServers": {}}, "at least one server name"),
        ({"mcpServers": [STDIO]}, "at least one server name"),
        ({"mcpServers": {"": STDIO}}, "name must be a string that is not empty"),
        ({"mcpServers": {"a": STDIO | {"disabled": True}}}, "every server is `disabled`"),
    ],
)
def test_complaints_about_the_whole(data, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load_config(data)


def test_complaints_about_files(tmp_path):
    with pytest.raises(ConfigError, match="cannot read .*nowhere.json"):
        load_config(tmp_path / "nowhere.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{\n  "mcpServers": {\n    "a": {"command": "x",}\n  }\n}')
    with pytest.raises(ConfigError, match=r'line 3, column .*the line reads \'"a": {"command": "x",}\''):
        load_config(broken)
    broken.write_text("[1]")
    with pytest.raises(ConfigError, match="got list"):
        load_config(broken)
    broken.write_text('{"mcpServers": {"s": {"command": "a"}, "t": {"command": "b"}, "s": {"command": "c"}}}')
    with pytest.raises(ConfigError, match="'s' stands twice in the same object; rename or remove one"):
        load_config(broken)
    broken.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(ConfigError, match="nested too deep"):
        load_config(broken)
    broken.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(broken)
    with pytest.raises(ConfigError, match="got int"):
        load_config(3)
    assert isinstance(load_config({"mcpServers": {"a": STDIO}}), ToolchainConfig)


def test_what_editors_add_to_a_file_is_taken(tmp_path):
    file = tmp_path / "mcp.json"
    file.write_text('{"//": "one", "//": "two", "mcpServers": {"a": {"command": "x", "env": null}}}', "utf-8-sig")
    assert load_config(file).servers[0].command == "x"
    assert load_config(file).servers[0].env == {}
