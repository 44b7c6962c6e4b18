"""All servers together: their names, their settings, how an env and the doctor offer them, over real processes."""

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest
import waits
from gaia_tools import Session
from web_stand_in import Answer, StandIn

import aworld_gym  # noqa: F401
from aworld_gym.env import ToolEnv
from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.toolchain import compat
from aworld_gym.types import EpisodeContext
from envs.gaia import distractors
from envs.gaia.env import GaiaEnv
from envs.gaia.servers import catalog
from envs.gaia.servers.__main__ import main
from envs.gaia.servers.settings import Settings
from envs.gaia.tools import NAMES

ROOT = Path(__file__).parents[4]
EVERY_KEY = {
    "MCP_LLM_BASE_URL": "http://127.0.0.1:1/v1",
    "MCP_LLM_API_KEY": "key-of-the-model",
    "MCP_LLM_MODEL_NAME": "m",
    "TAVILY_API_KEY": "secret-of-tavily",
    "DATALAB_API_KEY": "secret-of-datalab",
    "E2B_API_KEY": "secret-of-e2b",
    "JINA_API_KEY": "secret-of-jina",
    "BROWSER_EXECUTABLE": sys.executable,
}


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """No key of this machine's."""
    known = {variable.name for spec in catalog.SERVERS.values() for variable in spec.variables}
    for name in (*known, *(variable.name for variable in catalog.GENERAL), "AWORLD_ENV_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def wiki(request):
    return Answer({"batchcomplete": True, "query": {"search": [{"title": "Grey River", "snippet": "a river"}]}})


def test_the_template_lists_every_setting():
    text = (ROOT / ".env_template").read_text(encoding="utf-8")
    assert text == catalog.template(), "run: python -m envs.gaia.servers --env-template > .env_template"
    listed = re.findall(r"^([A-Z0-9_]+)=$", text, re.MULTILINE)
    assert len(listed) == len(set(listed))
    named = re.findall(r"""get\("(MCP_SERVER_\w+)"\)""", (ROOT / "envs/gaia/env.py").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(variable.name for variable in catalog.HOST) and set(named) <= set(listed)
    needed = {name for spec in catalog.SERVERS.values() for group in spec.needs for name in group}
    assert needed <= set(listed)
    for name in "JINA_API_KEY TAVILY_API_KEY GOOGLE_API_KEY GOOGLE_CSE_ID DATALAB_API_KEY E2B_API_KEY".split():
        assert name in listed
    read = {
        name
        for path in (ROOT / "envs/gaia/servers").glob("*.py")
        for name in re.findall(r"""(?:get|url|has)\(\s*"([A-Z][A-Z0-9_]+)\"""", path.read_text(encoding="utf-8"))
    }
    others = {"AWORLD_WORKSPACE", "PLAYWRIGHT_BROWSERS_PATH"}  # where a process runs, rather than what it is to do
    assert read - others <= set(listed), f"read and not listed: {sorted(read - others - set(listed))}"


@pytest.mark.parametrize("name", catalog.SERVERS)
async def test_each_server_lists_the_tools_it_promises(name, tmp_path):
    spec = catalog.SERVERS[name]
    pytest.importorskip("playwright") if name == "browser" else None
    server = spec.make_server(EpisodeContext(tmp_path, {}), settings=Settings(EVERY_KEY))
    async with compat.in_process(server) as client:
        tools = await Session(client).tools()
    assert tuple(tools) == spec.tools
    for tool in tools.values():
        schema = tool["inputSchema"]
        assert schema["additionalProperties"] is False and "title" not in schema and "outputSchema" not in tool
        assert 20 < len(tool["description"]) < 160 and tool["annotations"]["openWorldHint"] is True
        for argument, inner in schema["properties"].items():
            bounded = {"maxLength", "maximum", "enum", "pattern", "minimum", "minLength"} & set(inner)
            assert bounded or inner["type"] == "boolean", f"{tool['name']}.{argument} has no bound"


def test_no_name_of_a_tool_stands_twice():
    names = [*NAMES, *distractors.tools(), *catalog.tool_names(list(catalog.SERVERS))]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", [name for name, spec in catalog.SERVERS.items() if spec.needs])
def test_a_server_that_lacks_something_says_so_and_does_not_start(name, capsys):
    spec = catalog.SERVERS[name]
    with pytest.raises(ConfigError, match=spec.needs[0][0]) as caught:
        gym.make("AWorld/Gaia-v0", servers=[name])
    assert spec.how in str(caught.value)
    with pytest.raises(SystemExit) as ended:
        spec.run(["--workspace", "."] if spec.scope == "episode" else [])
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and out == "" and err.strip() == str(caught.value)


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        (["wikipdia"], "unknown server 'wikipdia'; there are .* Did you mean 'wikipedia'"),
        ("wikipedia", "servers must be a list of names"),
        ([3], "servers must be a list of names"),
        (["wikipedia", "e2b"], "E2B_API_KEY is not set. Get a key at"),
    ],
)
def test_broken_choices_name_the_fix(servers, message):
    with pytest.raises(ConfigError, match=message):
        gym.make("AWorld/Gaia-v0", servers=servers)


def test_they_add_to_the_embedded_server_only():
    with pytest.raises(ConfigError, match="put what you want into your own config"):
        GaiaEnv(servers=["wikipedia"], toolchain={"mcpServers": {"x": {"command": "x"}}})


def called(env, name, **arguments):
    call = {"id": "a", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    obs, _, _, truncated, info = env.step({"role": "assistant", "content": None, "tool_calls": [call]})
    assert not truncated, info
    return obs[0]["content"]


def test_an_env_with_servers_in_processes_of_their_own(monkeypatch, tmp_path):
    """Made, described, rebuilt from its spec, played; the keys stay in the servers' processes."""

    def tavily(request):
        if request.headers["authorization"] != "Bearer tvly-secret-of-the-file":
            return Answer({"detail": "bad key"}, 401)
        return Answer(
            {"results": [{"url": "https://example.org", "title": "T tvly-secret-of-the-file", "content": "c"}]}
        )

    with StandIn(wiki) as wikipedia, StandIn(tavily) as search, StandIn(lambda r: Answer(b"data")) as web:
        (tmp_path / ".env").write_text(f"TAVILY_API_KEY=tvly-secret-of-the-file\nTAVILY_BASE_URL={search.url}\n")
        monkeypatch.setenv("WIKIPEDIA_BASE_URL", wikipedia.url)
        monkeypatch.setenv("WEB_ALLOW_HOSTS", web.host)
        made = gym.make("AWorld/Gaia-v0", servers=["search", "wikipedia", "download"])
        text = made.spec.to_json()
        assert "secret" not in text and wikipedia.url not in text
        assert json.loads(text)["kwargs"] == {"servers": ["search", "wikipedia", "download"]}
        assert b"secret" not in pickle.dumps(made.unwrapped.toolchain)
        assert made.unwrapped.limits.call_timeout_s > 150
        env = gym.make(gym.envs.registration.EnvSpec.from_json(text))
        _, info = env.reset(seed=4)
        offered = [tool["function"]["name"] for tool in info["tools"]]
        assert offered == [*NAMES, "web_search", "wikipedia_search", "wikipedia_page", "download_file"]
        assert called(env, "wikipedia_search", query="x") == "Grey River | a river"
        assert called(env, "web_search", query="x") == "https://example.org | T [TAVILY_API_KEY] | c"
        assert "Saved as downloads/a.txt: 4 bytes" in called(env, "download_file", url=f"{web.url}/a.txt")
        assert "downloads/a.txt" in called(env, "list_files")
        assert called(env, "calculate", expression="2+2") == "4"
        env.close()
        made.close()


def test_a_server_reads_the_file_of_the_folder_it_was_asked_for_in(monkeypatch, tmp_path):
    """Not one that lies where the package is, which is where it runs."""
    env = catalog.config(["wikipedia"])["wikipedia"]["env"]
    assert env["AWORLD_ENV_FILE"] == os.devnull
    (tmp_path / ".env").write_text("WEB_USER_AGENT=mine\n")
    env = catalog.config(["wikipedia"])["wikipedia"]["env"]
    assert env["AWORLD_ENV_FILE"] == str(tmp_path / ".env") and "WEB_USER_AGENT" not in env


def test_a_server_also_runs_in_process(monkeypatch):
    with StandIn(wiki) as stand_in:
        monkeypatch.setenv("WIKIPEDIA_BASE_URL", stand_in.url)
        config = {"mcpServers": {"w": {"python": "envs.gaia.servers.wikipedia:SERVER.make_server"}}}
        env = ToolEnv(config, [{"id": "a", "prompt": "?"}])
        env.reset(seed=0)
        assert called(env, "wikipedia_search", query="x") == "Grey River | a river"
        env.close()


def test_tools_restricts_the_embedded_ones(monkeypatch):
    env = gym.make("AWorld/Gaia-v0", servers=["wikipedia"], tools=["submit_answer"])
    _, info = env.reset(seed=4)
    assert [t["function"]["name"] for t in info["tools"]] == ["submit_answer", "wikipedia_search", "wikipedia_page"]
    env.close()


def test_a_server_that_lacks_its_key_in_the_worker_ends_the_reset_with_its_words(monkeypatch, tmp_path):
    (tmp_path / ".env").write_text("E2B_API_KEY=e2b-secret-1\n")
    env = gym.make("AWorld/Gaia-v0", servers=["e2b"])
    (tmp_path / ".env").write_text("")
    with pytest.raises(InfraError, match="E2B_API_KEY is not set. Get a key"):
        env.reset(seed=1)
    env.close()


def test_the_command_lists_servers_and_prints_configs(monkeypatch, capsys):
    monkeypatch.setenv("E2B_API_KEY", "e2b-secret-1")
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^wikipedia +ready +wikipedia_search, wikipedia_page$", listed, re.MULTILINE)
    assert re.search(r"^e2b +ready", listed, re.MULTILINE) and re.search(r"^documents +off", listed, re.MULTILINE)
    assert "DATALAB_API_KEY is not set. Get a key at https://www.datalab.to/app/keys." in listed
    assert main(["--config", "e2b", "wikipedia"]) == 0
    printed = capsys.readouterr().out
    config = json.loads(printed)["mcpServers"]
    assert list(config) == ["e2b", "wikipedia"] and "secret" not in printed
    assert config["e2b"]["env"]["E2B_API_KEY"] == "${E2B_API_KEY}" and config["wikipedia"]["scope"] == "shared"
    assert config["e2b"]["args"] == ["-m", "envs.gaia.servers.e2b", "--workspace", "${AWORLD_WORKSPACE}"]
    assert main(["--config", "documents"]) == 1
    assert "DATALAB_API_KEY is not set" in capsys.readouterr().err
    assert main(["--env-template"]) == 0
    assert capsys.readouterr().out == catalog.template()


def test_the_doctor_tells_of_them(tmp_path):
    (tmp_path / ".env").write_text("E2B_API_KEY=e2b-secret-1\n")
    env = {**os.environ, "DATALAB_API_KEY": ""}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "aworld_gym", "doctor", "--fast", "--json"],
        capture_output=True, text=True, cwd=tmp_path, timeout=120, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {row["what"]: row for row in json.loads(done.stdout)["services"]}
    assert list(rows) == [f"server {name}" for name in catalog.SERVERS]
    assert rows["server e2b"]["ready"] and rows["server wikipedia"]["ready"]
    assert not rows["server documents"]["ready"] and "DATALAB_API_KEY is not set" in rows["server documents"]["detail"]
    assert "e2b-secret-1" not in done.stdout + done.stderr


def test_the_doctor_tells_of_a_file_that_cannot_be_read(monkeypatch):
    monkeypatch.setenv("AWORLD_ENV_FILE", "/no/such/file")
    (row,) = catalog.doctor()
    assert not row["ready"] and "AWORLD_ENV_FILE names '/no/such/file', which is no file" in row["detail"]


def test_a_server_with_an_episodes_files_needs_its_folder(capsys):
    for arguments in ([], ["--workspace", "/no/such/folder"], ["--http", "80"]):
        with pytest.raises(SystemExit):
            catalog.SERVERS["download"].run(arguments)
        assert "--workspace" in capsys.readouterr().err


def test_one_without_state_serves_http_too():
    port = waits.free_port()
    with StandIn(wiki) as stand_in:
        process = subprocess.Popen(
            [sys.executable, "-m", "envs.gaia.servers.wikipedia", "--http", str(port)],
            cwd=ROOT,
            env={**os.environ, "WIKIPEDIA_BASE_URL": stand_in.url, "AWORLD_ENV_FILE": os.path.abspath(_empty_file())},
        )
        try:
            waits.for_port(port, process)
            env = ToolEnv({"mcpServers": {"w": {"url": f"http://127.0.0.1:{port}/mcp"}}}, [{"id": "a", "prompt": "?"}])
            env.reset(seed=0)
            assert called(env, "wikipedia_search", query="x") == "Grey River | a river"
            env.close()
        finally:
            waits.end(process)


def _empty_file():
    path = Path("no-keys")
    path.touch()
    return path


def test_the_page_names_every_server_and_tool():
    text = (ROOT / "docs/gaia.md").read_text(encoding="utf-8")
    for spec in catalog.SERVERS.values():
        assert f"| `{spec.name}` |" in text
    for name in (*NAMES, *catalog.tool_names(list(catalog.SERVERS))):
        assert f"`{name}`" in text, f"docs/gaia.md does not name {name}"
