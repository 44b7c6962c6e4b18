"""What holds where there is no sandbox: code is refused, or runs within limits where that was asked for."""

import struct
import subprocess
import textwrap
from pathlib import Path

import pytest
import waits
from gaia_tools import needs_sandbox, served

from envs.gaia import bubblewrap, processes, sandbox, seccomp
from envs.gaia.sandbox import Rules, Run, SandboxError, run


def go(folder: Path, code: str, rules: Rules, **options) -> Run:
    return run(textwrap.dedent(code).encode(), folder, rules=rules, **options)


def test_the_sandbox_works_where_namespaces_do():
    """Otherwise every test of the sandbox would be left out in silence."""
    if bubblewrap.binary() is None:
        pytest.skip("bubblewrap is not installed")
    plain = subprocess.run([bubblewrap.binary(), "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True)
    found = sandbox.isolation()
    assert found.confined == (plain.returncode == 0), found.detail


def test_opening_up_never_follows_a_link(tmp_path):
    (tmp_path / "ws").mkdir()
    (tmp_path / "theirs").mkdir(mode=0o500)
    (tmp_path / "ws/link").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="(symbolic links|Not a directory)"):
        processes._open_up(str(tmp_path / "ws/link"))
    processes.remove_new(tmp_path / "ws", {"link": 0})
    processes.files_of(tmp_path / "ws")
    assert (tmp_path / "theirs").stat().st_mode & 0o777 == 0o500


def test_mending_touches_files_of_the_directory_only(tmp_path):
    (tmp_path / "ws").mkdir()
    (tmp_path / "theirs").write_text("x")
    (tmp_path / "theirs").chmod(0o400)
    (tmp_path / "ws/link").symlink_to(tmp_path / "theirs")
    (tmp_path / "ws/mine").write_text("x")
    (tmp_path / "ws/mine").chmod(0o055)
    processes.files_of(tmp_path / "ws", mend=True)
    assert (tmp_path / "theirs").stat().st_mode & 0o777 == 0o400
    assert (tmp_path / "ws/mine").stat().st_mode & 0o777 == 0o655


def fake_bwrap(tmp_path, script):
    path = tmp_path / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "bubblewrap is not installed"),
        ("echo 'bwrap: No permissions to create a new namespace' >&2; exit 1", "No permissions to create"),
        ("exit 0", "could not start"),
    ],
)
async def test_without_confinement_code_is_refused(tmp_path, monkeypatch, script, reason):
    monkeypatch.setattr(sandbox, "_kept", [])
    found = fake_bwrap(tmp_path, script) if script else None
    monkeypatch.setattr(bubblewrap, "binary", lambda: found)
    workspace = tmp_path / "ws"
    workspace.mkdir()
    assert not sandbox.isolation().confined and reason in sandbox.isolation().detail
    async with served(workspace) as session:
        text = await session.refused("run_python", code="open('ran', 'w')")
    assert text.startswith("run_python is off") and reason in text and "sandbox='none'" in text
    assert not (workspace / "ran").exists()
    with pytest.raises(SandboxError):
        run(b"open('ran', 'w')", workspace)
    async with served(workspace, sandbox="none") as session:
        assert await session.ok("run_python", code="print(1)") == "1"


@needs_sandbox
def test_a_sandbox_that_works_again_is_used_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "_kept", [])
    real = bubblewrap.binary()
    monkeypatch.setattr(bubblewrap, "binary", lambda: None)
    assert not sandbox.isolation().confined
    monkeypatch.setattr(bubblewrap, "binary", lambda: real)
    assert sandbox.isolation().confined


def test_an_unknown_mode_is_refused(tmp_path):
    with pytest.raises(SandboxError, match="one of"):
        run(b"1", tmp_path, mode="off")


@pytest.mark.parametrize(
    ("code", "stopped"),
    [
        ("while True: pass", "over 1 s of processor time"),
        ("import time; time.sleep(60)", "stopped after 1.5 s"),
        ("while True: print('x' * 1000)", "bytes of output"),
        ("for i in range(10**6): open(f'f{i}', 'w').write('x' * 10**6)", "workspace is full"),
    ],
)
def test_limits_hold_without_confinement_too(tmp_path, code, stopped):
    wall_s = 1.5 if "sleep" in code else 20
    rules = Rules(cpu_s=1, wall_s=wall_s, output_bytes=100_000, workspace_bytes=8 << 20)
    assert stopped in go(tmp_path, code, rules, mode="none").stopped


def test_children_die_without_confinement_too(tmp_path):
    code = """
        import subprocess, sys, time
        beat = "import time\\nwhile True:\\n  open('beat','a').write('x')\\n  time.sleep(0.01)"
        subprocess.Popen([sys.executable, "-S", "-c", beat])
        time.sleep(60)
    """
    assert go(tmp_path, code, Rules(wall_s=4), mode="none").stopped
    assert waits.still(lambda: (tmp_path / "beat").stat().st_size) > 0


def test_the_filter_is_sound():
    """Every jump of the filter lands on a return or the next check; unknown processors get none."""
    for machine in ("x86_64", "aarch64"):
        program = seccomp.program(machine)
        instructions = list(struct.iter_unpack("=HBBI", program))
        assert len(instructions) < 256
        for here, (code, yes, no, _) in enumerate(instructions):
            if code & 0x07 == 0x05:
                assert here + 1 + max(yes, no) < len(instructions)
        assert all(code == 0x06 for code, *_ in instructions[-4:])
    assert seccomp.program("riscv64") is None
