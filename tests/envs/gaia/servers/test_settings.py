"""Where settings come from, which stand in for which, and that secrets are not said."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.errors import ConfigError
from envs.gaia.servers.settings import Settings, env_file


def test_the_environment_comes_before_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(
        '\ufeff# a comment\nexport TAVILY_API_KEY="tvly-file"\nJINA_API_KEY=jina-file # said of it\nGOOGLE_CSE_ID=\n'
        "THINK_LLM_BASE_URL=${MCP_LLM_BASE_URL}\nMCP_LLM_BASE_URL=http://127.0.0.1:1/v1\n",
        encoding="utf-8",
    )
    settings = Settings.load({"TAVILY_API_KEY": "tvly-environment", "GOOGLE_CSE_ID": " "})
    assert settings.get("TAVILY_API_KEY") == "tvly-environment"
    assert settings.get("JINA_API_KEY") == "jina-file"
    assert not settings.has("GOOGLE_CSE_ID") and settings.get("GOOGLE_CSE_ID", "none") == "none"
    assert settings.get("THINK_LLM_BASE_URL") == "http://127.0.0.1:1/v1"
    assert settings.source == "the environment or .env"


def test_without_a_file_there_is_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert env_file({}) is None and Settings.load({"A": "b"}).get("A") == "b"


def test_the_file_can_be_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text("E2B_API_KEY=e2b-1\n")
    assert Settings.load({"AWORLD_ENV_FILE": "keys"}).get("E2B_API_KEY") == "e2b-1"
    with pytest.raises(ConfigError, match="AWORLD_ENV_FILE names 'none', which is no file"):
        Settings.load({"AWORLD_ENV_FILE": "none"})
    (tmp_path / "keys").write_bytes(b"E2B_API_KEY=\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        Settings.load({"AWORLD_ENV_FILE": "keys"})


def test_the_file_can_be_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("E2B_API_KEY=e2b-1\n")
    assert Settings.load({}).has("E2B_API_KEY") and not Settings.load({"AWORLD_ENV_FILE": os.devnull}).has(
        "E2B_API_KEY"
    )


def test_a_file_in_a_folder_above_is_not_read(tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("E2B_API_KEY=e2b-1\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert env_file({}) is None


MCP = {"MCP_LLM_BASE_URL": "http://a/v1", "MCP_LLM_API_KEY": "key-of-a", "MCP_LLM_MODEL_NAME": "model-a"}


def test_the_default_model_stands_in():
    settings = Settings(MCP | {"GUARD_LLM_MODEL_NAME": "model-b"})
    assert [settings.get(f"THINK_LLM_{n}") for n in ("BASE_URL", "API_KEY", "MODEL_NAME")] == list(MCP.values())
    assert settings.get("GUARD_LLM_MODEL_NAME") == "model-b" and settings.get("GUARD_LLM_API_KEY") == "key-of-a"
    assert not Settings({}).has("MCP_LLM_API_KEY")


def test_a_key_is_never_sent_to_another_tools_host():
    settings = Settings(MCP | {"CODE_LLM_BASE_URL": "http://b/v1"})
    assert not settings.has("CODE_LLM_API_KEY") and settings.get("CODE_LLM_MODEL_NAME") == "model-a"


@pytest.mark.parametrize("value", ["two words", "line\nbreak", "ünïcode", "tab\there", "null\0"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(value):
    with pytest.raises(ConfigError, match="TAVILY_API_KEY must be printable ASCII") as caught:
        Settings({"TAVILY_API_KEY": value}).get("TAVILY_API_KEY")
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    "value", ["example.org", "ftp://example.org", "http://", "http://[", "http://a:port", "http://u:p@example.org"]
)
def test_addresses_are_checked_and_not_shown(value):
    with pytest.raises(ConfigError, match="JINA_READER_BASE_URL must be an address") as caught:
        Settings({"JINA_READER_BASE_URL": value}).url("JINA_READER_BASE_URL", "https://r.jina.ai")
    assert "u:p" not in str(caught.value)
    assert Settings({}).url("JINA_READER_BASE_URL", "https://r.jina.ai/") == "https://r.jina.ai"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=60), st.text(), st.text())
def test_secrets_are_taken_out_of_any_text(secret, before, after):
    settings = Settings({"E2B_API_KEY": secret, "WEB_USER_AGENT": "nothing secret"})
    told = settings.redact(f"{before}{secret}{after}")
    assert secret not in told or secret in before + after or secret in "[E2B_API_KEY]"


def test_escaped_secrets_are_taken_out_too():
    settings = Settings({"E2B_API_KEY": "a+b/c=d'e", "GOOGLE_API_KEY": "short"})
    assert settings.redact("?key=a%2Bb%2Fc%3Dd%27e&x") == "?key=[E2B_API_KEY]&x"
    assert settings.redact("a short text") == "a short text"
