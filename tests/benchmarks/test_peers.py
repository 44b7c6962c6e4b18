"""The benchmark of peers: its rows, its environments, and what it says where a peer cannot be had."""

import dataclasses

import pytest

from benchmarks import peers

OWN = [one for one in peers.SYSTEMS if not one.packages]


def test_every_peer_is_pinned_and_has_a_driver():
    assert len({one.name for one in peers.SYSTEMS}) == len(peers.SYSTEMS)
    for one in peers.SYSTEMS:
        assert (peers.common.DRIVERS / one.script).is_file(), one.name
        assert all("==" in package for package in one.packages), one.name
        assert one.against in {other.name for other in OWN}


def test_the_rows_of_this_environment_are_played_and_a_peer_that_cannot_be_had_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    absent = next(one for one in peers.SYSTEMS if one.packages)

    def refused(system, tell):
        if system.packages:
            raise peers.NotInstalled("not installed: no matching distribution")
        return peers.sys.executable

    monkeypatch.setattr(peers, "install", refused)
    chosen = [one for one in OWN if one.name in (peers.OURS, peers.ALONE, peers.STDIO)] + [absent]
    found = peers.compared(chosen, {2: 2}, 1, lambda text: None)
    for one in chosen[:-1]:
        assert len(found[one.name]["ms"][2]) == 1 and found[one.name]["ready"]
    table, missed = peers.tables(found, chosen, {2: 2})
    assert missed == [] and f"| {absent.name} | {absent.tools} | - | - | not installed: no matching" in table
    assert table.count(", 1.00 |") == 3


def test_a_peer_with_mcp_that_is_cheaper_is_named():
    ours, peer = OWN[2], next(one for one in peers.SYSTEMS if one.packages and one.mcp and one.llm)
    assert ours.name == peers.OURS
    found = {ours.name: {"ms": {1: [10.0]}, "why": ""}, peer.name: {"ms": {1: [9.0]}, "why": ""}}
    assert peers.tables(found, [ours, peer], {1: 1})[1] == [f"not ahead of {peer.name} at 1 at once: 0.90"]
    without = dataclasses.replace(peer, mcp=False)
    assert peers.tables(found, [ours, without], {1: 1})[1] == []


def test_an_environment_is_made_once_and_what_pip_refuses_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    system = dataclasses.replace(peers.SYSTEMS[0], packages=("no-such-package==1.0",))
    assert system.environment == tmp_path / "no-such-package-1.0"
    ran = []

    def run(command, **more):
        ran.append(command)
        if "pip" in command and len(ran) < 3:
            raise peers.subprocess.CalledProcessError(1, command, stderr="noise\nERROR: No matching distribution\n")
        system.environment.mkdir(exist_ok=True)

    monkeypatch.setattr(peers.subprocess, "run", run)
    with pytest.raises(peers.NotInstalled, match="not installed: ERROR: No matching distribution"):
        peers.install(system, lambda text: None)
    python = peers.install(system, lambda text: None)
    assert python == str(system.environment / "bin/python") and len(ran) == 4
    assert peers.install(system, lambda text: None) == python and len(ran) == 4
