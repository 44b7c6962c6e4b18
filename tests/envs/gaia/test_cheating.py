"""Attempts to read the answer, in real episodes: through every tool, and with programs. None may show it."""

import json
import os
import textwrap
from pathlib import Path

import gaia_tools
import numpy as np
import pytest
from gaia_cheats import SECRET
from tool_messages import calling

from aworld_gym.policies.random_calls import random_arguments
from envs.gaia import distractors, tools


def test_a_server_is_told_nothing_but_workspace_and_public_facts(play):
    gaia_tools.SEEN.clear()
    play.begin("code")
    (context,) = gaia_tools.SEEN
    assert set(vars(context)) == {"workspace", "public"} and dict(context.public) == {"corpus": None}
    assert os.listdir(context.workspace) == ["note.txt"]
    beside = [p for p in Path(context.workspace).parent.rglob("*") if p.is_file() and p.stat().st_size < 10**6]
    assert not [p for p in beside if SECRET.encode() in p.read_bytes()]


def test_neither_prompt_nor_tools_nor_info_hold_the_answer(cheat_env):
    observation, info = cheat_env.reset(seed=0, options={"task_id": "code"})
    assert SECRET not in json.dumps([observation, info], default=str)


PLACES = [
    "../answer.txt",
    "../../answer.txt",
    "/tmp/answer.txt",
    "/proc/self/environ",
    "/proc/self/mem",
    "/proc/self/cmdline",
    "/proc/self/fd/3",
    "/dev/stdin",
    "/etc/passwd",
    "envs/gaia/scorers.py",
    "../envs/gaia/tasks.py",
    "file:///proc/self/environ",
    "note.txt/../../answer.txt",
    "/workspace/../answer.txt",
    "$GAIA_ANSWER",
    "${GAIA_ANSWER}",
    "~/answer.txt",
]


def test_no_tool_gets_anywhere(cheat_env, play, tmp_path):
    """Every tool but the submission, distractors too, with a place outside in each of its texts."""
    _, info = cheat_env.reset(seed=0)
    functions = {tool["function"]["name"]: tool["function"] for tool in info["tools"]}
    assert set(functions) == {*tools.NAMES, *distractors.tools()}
    del functions["submit_answer"]
    rng = np.random.default_rng(0)
    for place in [*PLACES, str(tmp_path / "answer.txt"), os.path.relpath(tmp_path / "answer.txt", Path.cwd())]:
        calls = [
            (name, random_arguments(function, rng) | _texts(function, place)) for name, function in functions.items()
        ]
        play.begin("code")
        for some in (calls[i : i + 8] for i in range(0, len(calls), 8)):
            text, reward, terminated, info = play(calling(*some))
            assert SECRET not in text and "root:" not in text
            assert reward == 0 and not terminated and info["valid"]


def _texts(function, text):
    """The text in every argument that takes any."""
    properties = function["parameters"]["properties"]
    texts = {name: text for name, one in properties.items() if one.get("type") == "string" and "enum" not in one}
    assert texts or function["name"] in distractors.tools()
    return texts


PROGRAMS = {
    "walk": """
        import os
        for top, folders, names in os.walk("/"):
            for name in names:
                path = os.path.join(top, name)
                try:
                    if b"zq77" + b"31kx" in open(path, "rb").read(10**6):
                        print("found", path)
                except OSError:
                    pass
    """,
    "environment": "import os; print(os.environ, os.getenv('GAIA_ANSWER'))",
    "memory": """
        import gc, sys
        for thing in gc.get_objects():
            if isinstance(thing, (str, dict, list)) and "zq77" + "31kx" in repr(thing)[:10**5]:
                print("found", type(thing))
        print([name for name in sys.modules if "aworld" in name or "gaia" in name])
    """,
    "frames": """
        import sys
        frame = sys._getframe()
        while frame:
            print({k: str(v)[:50] for k, v in frame.f_globals.items() if "zq" in str(v)[:10**4]})
            frame = frame.f_back
    """,
    "other processes": """
        import os, ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        for pid in range(1, 40000, 7):
            for path in (f"/proc/{pid}/environ", f"/proc/{pid}/mem", f"/proc/{pid}/cwd"):
                if os.path.lexists(path):
                    print("seen", path)
    """,
    "project": "import envs.gaia.scorers",
    "tasks": "import sys; sys.path[:0] = ['/work', '/src', '/app', '..', '/']; from envs.gaia import tasks",
    "descriptors": """
        import os
        for fd in range(3, 300):
            try:
                print(fd, os.read(fd, 100))
            except OSError:
                pass
    """,
    "parent": """
        import ctypes, os
        for pid in {1, os.getpid(), os.getppid()}:
            try:
                maps = open(f"/proc/{pid}/maps").read()
                for line in maps.splitlines():
                    low, high = (int(part, 16) for part in line.split()[0].split("-"))
                    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
                        memory.seek(low)
                        if b"zq77" + b"31kx" in memory.read(min(high - low, 10**7)):
                            print("found", line)
            except (OSError, ValueError, OverflowError):
                pass
        libc = ctypes.CDLL(None)
        for pid in range(1, 200):
            if pid != os.getpid() and libc.ptrace(16, pid, 0, 0) == 0:
                print("seen", pid)
    """,
    "scorer": """
        import importlib, pathlib, sys
        for name in ("aworld_gym", "aworld_gym.scorers", "envs.gaia.tasks", "gymnasium", "mcp", "pytest", "gaia_tools"):
            try:
                print("found", importlib.import_module(name))
            except ImportError:
                pass
        for path in sys.path:
            for file in pathlib.Path(path).rglob("scorers.py"):
                print("seen", file)
    """,
    "exec": "import os; os.execv('/bin/sh', ['sh', '-c', 'env; cat ../answer.txt'])",
    "network": "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000', timeout=1).read())",
}


@gaia_tools.needs_sandbox
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_finds_it(play, name):
    play.begin("code")
    text, reward, _, _ = play(calling(("run_python", {"code": textwrap.dedent(PROGRAMS[name])})))
    assert SECRET not in text and "found" not in text and "seen" not in text and reward == 0
    if name in ("project", "tasks"):
        assert "ModuleNotFoundError" in text
    if name == "memory":
        assert text == "[]"


@pytest.mark.parametrize(
    "expression",
    [
        "().__class__.__base__.__subclasses__()",
        "__import__('os').environ['GAIA_ANSWER']",
        "open('../answer.txt').read()",
        "globals()",
        "(lambda: 0).__globals__",
        "max.__self__",
        "[c for c in ().__class__.__mro__]",
        "f'{().__class__}'",
        "sum.__func__",
    ],
)
def test_the_calculator_is_no_way_in(play, expression):
    play.begin("code")
    text, _, _, info = play(calling(("calculate", {"expression": expression})))
    assert SECRET not in text and "<" not in text and info["tool_errors"] == {"tool_error": 1}


@gaia_tools.needs_sandbox
def test_links_and_archives_made_by_a_program_lead_nowhere(play, tmp_path):
    target = tmp_path / "answer.txt"
    code = f"""
        import os, tarfile, zipfile, io
        for i, there in enumerate([{str(target)!r}, "../answer.txt", "/proc/1/environ", "/proc/self/environ"]):
            os.symlink(there, f"l{{i}}.txt")
        with tarfile.open("t.tar", "w") as archive:
            info = tarfile.TarInfo("x.txt"); info.type = tarfile.SYMTYPE; info.linkname = {str(target)!r}
            archive.addfile(info)
        with zipfile.ZipFile("z.zip", "w") as archive:
            info = zipfile.ZipInfo("x.txt"); info.external_attr = 0o120777 << 16
            archive.writestr(info, {str(target)!r})
        open("page.html", "w").write('<!DOCTYPE x [<!ENTITY e SYSTEM "file://{target}">]><p>&e;</p>')
        open("page.xml", "w").write('<!DOCTYPE x [<!ENTITY e SYSTEM "file://{target}">]><p>&e;</p>')
    """
    play.begin("code")
    play(calling(("run_python", {"code": textwrap.dedent(code)})))
    calls = [("read_document", {"path": f"l{i}.txt"}) for i in range(4)]
    calls += [("unpack_archive", {"path": "t.tar"}), ("unpack_archive", {"path": "z.zip"})]
    calls += [("read_document", {"path": p}) for p in ("t/x.txt", "z/x.txt", "page.html", "page.xml")]
    calls += [("list_files", {})]
    text, _, _, _ = play(calling(*calls))
    assert SECRET not in text and "GAIA_ANSWER" not in text


@gaia_tools.needs_sandbox
def test_nothing_is_left_of_the_last_episode(play):
    """Neither files, nor processes, nor what was unpacked; so no episode can leave its answer to the next."""
    play.begin("code")
    mark = "left-behind-4711"
    code = f"""
        import os, pathlib
        pathlib.Path("{mark}.txt").write_text("{mark}")
        for place in ("/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "/workspace/..", "/run"):
            try:
                pathlib.Path(place, "{mark}.txt").write_text("{mark}")
            except OSError:
                pass
        if not os.fork():
            os.setsid()
            import time
            time.sleep(60)
    """
    play(calling(("run_python", {"code": textwrap.dedent(code)})))
    assert mark in play(calling(("list_files", {})))[0]
    play.begin("code")
    search = f"""
        import os
        for top, folders, names in os.walk("/"):
            print(*(os.path.join(top, name) for name in names if name.startswith("{mark[:4]}" + "{mark[4:]}")))
    """
    text, _, _, _ = play(calling(("list_files", {}), ("run_python", {"code": textwrap.dedent(search)})))
    assert mark not in text and "note.txt" in text
