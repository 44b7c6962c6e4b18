"""What the doctor says of the environment hosts that are named, over real ones."""

import socket

import pytest
from hosts import host_here, host_process

from envs.gaia.servers import catalog


@pytest.fixture
def told(monkeypatch, tmp_path):
    """The rows about hosts, for these settings."""
    monkeypatch.chdir(tmp_path)

    def told(url, token="x"):
        monkeypatch.setenv("MCP_SERVER_URL", url)
        monkeypatch.setenv("MCP_SERVER_TOKEN", token)
        return [row for row in catalog.doctor() if row["what"].startswith("host ")]

    return told


def test_a_host_that_can_be_used(told, tmp_path):
    with host_process("gaia", "--port", "0", log=tmp_path / "log") as running:
        (row,) = told(running.url, running.token)
        assert row == {
            "what": f"host {running.url}", "ready": True, "detail": "it answers, accepts the token, and serves gaia",
        }  # fmt: skip
        assert '"session opened"' not in running.logged()
        rows = told(f"{running.url},{running.address}", running.token)
        assert [row["ready"] for row in rows] == [True, False] and "ends with /mcp" in rows[1]["detail"]


def test_hosts_that_cannot(told):
    with host_here() as running:
        (row,) = told(running.url, running.token)
        assert not row["ready"] and row["detail"] == "it answers, and does not serve gaia: it has basic"
        (row,) = told(running.url, "abc")
        assert not row["ready"] and "does not accept MCP_SERVER_TOKEN: the token is not a JSON Web" in row["detail"]
        (row,) = told(running.url, "")
        assert not row["ready"] and "MCP_SERVER_TOKEN is not set" in row["detail"]
        (row,) = told(running.url.replace("http:", "https:"), running.token)
        assert not row["ready"] and "no environment host answers there" in row["detail"]
    (row,) = told("10.0.0.7:8000/mcp")
    assert not row["ready"] and "must begin with http:// or https://" in row["detail"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (row,) = told(f"http://127.0.0.1:{free.getsockname()[1]}/mcp")
    assert not row["ready"] and "is it up, and is MCP_SERVER_URL right?" in row["detail"]


def test_without_a_host_nothing_is_said_of_one(told):
    assert told("") == []
