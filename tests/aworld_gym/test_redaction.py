"""Secrets do not reach what is written down."""

import logging

import pytest
from tape_server import CALLS, make_env
from tool_messages import calling

from aworld_gym import redaction
from aworld_gym.redaction import Secrets
from aworld_gym.tape import Recorder, Replay, attach
from aworld_gym.toolchain.config import load_config

SECRET = "sk-0123456789abcdef"


def of(entry):
    return dict(Secrets.of(load_config({"mcpServers": {"it": entry}})).values)


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
        {"url": "http://127.0.0.1:1/mcp", "headers": {"X-Anything": SECRET}},
        {"url": f"http://user:{SECRET}@127.0.0.1:1/mcp"},
        {"url": f"http://127.0.0.1:1/mcp?apiKey={SECRET}&page=12345678"},
        {"command": "server", "env": {"SERPER_API_KEY": SECRET, "PYTHONPATH": "/some/where"}},
        {"command": "server", "args": ["--token", SECRET, "--folder", "/some/where"]},
        {"command": "server", "args": [f"--client-secret={SECRET}"]},
        {"python": "a:b", "kwargs": {"accessToken": SECRET, "corpus": "/some/where"}},
    ],
    ids=lambda entry: next(iter(entry)),
)
def test_what_is_secret_of_a_configuration(entry):
    found = of(entry)
    assert SECRET in found and not {"/some/where", "12345678"} & set(found)


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "githubToken"])
def test_secrets_of_the_environment(monkeypatch, name):
    monkeypatch.setenv(name, SECRET)
    assert of({"command": "server"})[SECRET] == name


@pytest.mark.parametrize("name", ["GIT_AUTHOR_NAME", "KEYBOARD_LAYOUT", "TOKENIZERS_PARALLELISM", "MONKEY", "PATH"])
def test_ordinary_names_are_not_secret(monkeypatch, name):
    monkeypatch.setenv(name, "an ordinary value")
    assert "an ordinary value" not in of({"command": "server"})


def test_the_words_of_a_header_are_no_secrets_each():
    entry = {"url": "http://127.0.0.1:1/mcp", "headers": {"X-Note": "v1.2 of an ordinary note", "X-Word": "ordinary"}}
    assert set(of(entry)) == {"v1.2 of an ordinary note", "ordinary"}


def test_without_secrets_nothing_is_copied():
    value = {"a": ([1], {"b": "text"})}
    assert Secrets(()).removed(value) is value


def test_short_values_stay(monkeypatch):
    monkeypatch.setenv("A_KEY", "42")
    assert "42" not in of({"command": "server"})


def test_longer_secrets_go_first_wherever_they_stand():
    secrets = Secrets.of(
        load_config({"mcpServers": {"it": {"command": "x", "env": {"A_KEY": SECRET, "B_KEY": SECRET + "0000"}}}})
    )
    value = {f"k {SECRET}": [f"{SECRET}0000!", {"deep": (SECRET,)}, 1, None, True]}
    assert secrets.removed(value) == {
        "k [secret A_KEY]": ["[secret B_KEY]!", {"deep": ["[secret A_KEY]"]}, 1, None, True]
    }


def test_a_tool_that_gives_a_secret_away_is_replayed_without_it(tmp_path, caplog):
    config = {"mcpServers": {"it": {"python": "tape_server:make_server", "kwargs": {"token": SECRET}}}}
    asked = calling(("leak", {"prefix": f"{SECRET} and "}))
    redaction._said.clear()
    with caplog.at_level(logging.WARNING), Recorder(tmp_path / "t") as recorder:
        env = attach(make_env(config), recorder)
        env.reset(seed=0)
        obs, *_ = env.step(asked)
        env.step(asked)
        env.close()
    assert SECRET in obs[0]["content"], "the model that played saw what the tool gave"
    assert not [file for file in (tmp_path / "t").iterdir() if SECRET in file.read_text()]
    assert sum("a secret (token)" in record.getMessage() for record in caplog.records) == 1
    CALLS.clear()
    env = attach(make_env(config), Replay(tmp_path / "t"))
    env.reset(seed=0)
    obs, *_ = env.step(asked)
    env.close()
    assert obs[0]["content"] == "[secret token] and the token is [secret token]!" and not CALLS
