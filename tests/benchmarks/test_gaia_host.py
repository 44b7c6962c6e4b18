"""The benchmark of a GAIA host runs, and its numbers can be."""

import re

from benchmarks import gaia_host


def test_it_measures_a_host(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # no .env of anybody's
    monkeypatch.delenv("MCP_SERVER_URL", raising=False)
    gaia_host.main(["--sessions", "2", "--episodes", "2", "--concurrency", "2"])
    rows = dict(re.findall(r"^\| (.+) \| ([\d.e+-]+) \|$", capsys.readouterr().out, re.MULTILINE))
    assert len(rows) == 4
    assert 20 < float(rows["at the start (MiB)"]) < 1000
    assert 0 < float(rows["processor time per episode (ms)"]) < 10_000
    assert "MCP_SERVER_URL" not in gaia_host.os.environ
