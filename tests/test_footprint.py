"""What using the package does to a process and its machine: nothing but what docs/toolchains.md says.

Each scenario is a program of its own, with empty folders as home, working and temporary directory.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import waits
from fpdf import FPDF
from PIL import Image
from tool_servers import gone

from envs.gaia.tools import documents, images

ROOT = Path(__file__).parents[1]
DEADLINE_S = 100.0


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("footprint"))


class Place:
    """Empty folders to run programs in."""

    def __init__(self, root: Path, temporary: str = "temporary"):
        self.folders = {name: root / name for name in ("home", "here", temporary)}
        for folder in self.folders.values():
            folder.mkdir()
        self.temporary = self.folders[temporary]
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MCP_"))}
        self.env |= {"HOME": str(root / "home"), "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"}
        self.env |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests/lib'}"}

    def left(self) -> list[str]:
        """What the programs have left on the disk."""
        return [str(path) for folder in self.folders.values() for path in folder.rglob("*")]

    def start(self, program: str, *flags: str, env: dict[str, str | None] | None = None, shell: str = ""):
        """Begin to run a program; ``shell`` is put behind its command line."""
        variables = {name: value for name, value in {**self.env, **(env or {})}.items() if value is not None}
        source = Path(self.folders["home"].parent, f"{abs(hash(program))}.py")
        source.write_text(textwrap.dedent(program), encoding="utf-8")
        return subprocess.Popen(
            ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, *flags, str(source)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            cwd=self.folders["here"],
            text=True,
            encoding="utf-8",
        )

    def run(self, program: str, *flags: str, **how) -> tuple[str, str, int]:
        """Run a program to its end: what it printed, what it said on stderr, its exit status."""
        process = self.start(program, *flags, **how)
        try:
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait(20)
        return out, err, process.returncode


PLAIN = """
    import footprints

    if __name__ == "__main__":
        print(footprints.both())
"""


@pytest.fixture(scope="module")
def usual(place):
    """The digest of the episodes in a process like any other."""
    out, err, status = place.run(PLAIN)
    assert (err, status, place.left()) == ("", 0, [])
    return out


LOOKED_AT = """
    import json, sys, threading
    import anyio, docx, fpdf, gymnasium, httpx2, jsonschema, mcp.server.mcpserver, numpy, openai, openpyxl
    import PIL.ImageFile, pptx, pydantic, pypdf, segno, xlsxwriter, zxingcpp
    import footprints

    members, states = footprints.members(), [footprints.snapshot()]

    def look():
        states.append(footprints.snapshot())

    import aworld_gym
    look()
    envs = gymnasium.make("AWorld/Gaia-v0", limits={"call_timeout_s": 2}), footprints.mcp_env(call_timeout_s=1)
    look()
    footprints.both()
    look()
    for env, hung in zip(envs, (("run_python", {"code": "while True: pass"}), ("wait", {"seconds": 1000}))):
        env.reset(seed=0)
        *_, info = env.step(footprints.calls(hung))
        assert info["tool_errors"] == {"tool_timeout": 1}, info
        env.reset(seed=1)
    *_, info = envs[1].step(footprints.calls(("die", {})))
    assert info["outcome"] == "infra_failure", info
    for env in envs:
        env.close()
    look()
    print(json.dumps([footprints.changes(states[0], state) for state in states[1:]]))
    print(json.dumps(footprints.replaced(members, footprints.members())))
"""


def test_nothing_of_the_process_is_changed(place):
    out, err, status = place.run(LOOKED_AT)
    assert (err, status) == ("", 0)
    (imported, made, _, closed), replaced = map(json.loads, out.splitlines())
    assert imported == made == {}
    # The one thing put in the place of another's: without it each in-process server sets up the program's logging.
    assert replaced == ["mcp.server.mcpserver.server.configure_logging"]
    before, after = closed.pop("threads")
    threads = json.loads(after.replace("'", '"'))
    threads.remove("MainThread False")
    assert before == "['MainThread False']" and "aworld-gym-loop True" in threads
    assert all(thread.startswith("aworld-gym-") and thread.endswith(" True") for thread in threads)
    # A filter for what pypdf says of odd files while a tool reads one; levels and handlers are as they were.
    loggers = [closed.pop(name) for name in list(closed) if name.startswith("logger pypdf")]
    assert all(was is None and now.startswith("(0, [], [<function _no_oddities") for was, now in loggers)
    # The loop's, and the lock of the folder of workspaces.
    kinds = sorted(now.partition(":")[0] for _, now in closed.values())
    assert kinds[1:] == ["anon_inode", "socket", "socket"] and kinds[0].endswith("/lock"), closed
    assert all(name.startswith("descriptor ") and was is None for name, (was, _) in closed.items())
    assert place.left() == []


ODD = {
    "development mode, warnings are errors": (("-X", "dev", "-W", "error"), {"PYTHONHASHSEED": "1"}, ""),
    "without asserts, without a home": (("-O",), {"HOME": None, "TZ": "Pacific/Kiritimati"}, ""),
    "without docstrings, in ASCII": (
        ("-OO",),
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HOME": "/nonexistent"},
        "<&- 2>&-",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_a_process_started_oddly_plays_the_same(name, place, usual):
    flags, env, shell = ODD[name]
    out, err, status = place.run(PLAIN, *flags, env=env, shell=shell)
    # In development mode asyncio says what held its loop up, and so what else the machine had to do.
    said = [line for line in err.splitlines() if not line.startswith("Executing <")]
    assert (out, said, status, place.left()) == (usual, [], 0, [])


def test_without_standard_streams_in_a_folder_of_odd_name(tmp_path, usual):
    place = Place(tmp_path, "tempörary fôlder, 'quoted' $HOME")
    program = """
        import pathlib
        import footprints

        pathlib.Path.home().joinpath("digest").write_text(footprints.both() + "\\n")
    """
    out, err, status = place.run(program, shell="<&- >&- 2>&-")
    assert (out, err, status) == ("", "", 0)
    digest = place.folders["home"] / "digest"
    assert digest.read_text() == usual and place.left() == [str(digest)]


INSIDE = {
    "in a thread that is profiled": """
        threading.setprofile(lambda *event: None)
        thread = threading.Thread(target=play)
        thread.start()
        thread.join()
        threading.setprofile(None)
    """,
    "in a running loop, traced": """
        async def main():
            play()

        def trace(frame, event, value):
            return trace

        sys.settrace(trace)
        threading.settrace(trace)
        asyncio.run(main())
        sys.settrace(None)
        threading.settrace(None)
    """,
    "settings of other libraries, many files open": """
        resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
        kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(1200)]
        decimal.getcontext().prec = decimal.DefaultContext.prec = 2
        decimal.getcontext().traps[decimal.Inexact] = True
        numpy.seterr(all="raise")
        csv.field_size_limit(1 << 30)
        Image.MAX_IMAGE_PIXELS = None
        socket.setdefaulttimeout(0.5)
        warnings.simplefilter("error")
        sys.set_int_max_str_digits(0)
        logging.basicConfig(level=0, stream=io.StringIO())
        sys.stdin = sys.stderr = None
        os.chdir("/")
        os.umask(0o77)
        gc.disable()
        play()
    """,
    "signals blocked and ignored, few descriptors": """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        play()
    """,
    "in thirty-two threads at once": """
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            games = [pool.submit(footprints.gaia if n % 8 else footprints.both) for n in range(32)]
        told.append(games[0].result())
        assert {game.result().split()[0] for game in games} == {told[0].split()[0]}
    """,
}
IMPORTS = (
    "import asyncio, concurrent.futures, csv, decimal, gc, io, logging, os, resource, signal, socket, sys, threading"
)


@pytest.mark.parametrize("name", INSIDE)
def test_inside_an_odd_process_the_same_is_played(name, place, usual):
    program = f"""
        {IMPORTS.strip()}
        import warnings
        import numpy
        from PIL import Image
        import footprints

        told = []

        def play():
            told.append(footprints.both())

        if __name__ == "__main__":
{textwrap.indent(textwrap.dedent(INSIDE[name]), " " * 12)}
            print(*told)
    """
    out, err, status = place.run(program)
    assert (out, err, status, place.left()) == (usual, "", 0, [])


@pytest.mark.parametrize(
    "method",
    ["fork", pytest.param("forkserver", marks=pytest.mark.slow), pytest.param("spawn", marks=pytest.mark.slow)],
)
def test_workers_play_the_same_and_leave_nothing(method, place, usual):
    program = f"""
        import multiprocessing, os
        import footprints

        def work(told, close):
            told.put(footprints.both())
            if not close:
                global kept
                kept = footprints.mcp_env()
                kept.reset(seed=0)

        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            print(footprints.both())
            told = context.SimpleQueue()
            workers = [context.Process(target=work, args=(told, close)) for close in (True, False)]
            for worker in workers:
                worker.start()
            digests = {{told.get() for worker in workers}}
            for worker in workers:
                worker.join(60)
            assert [worker.exitcode for worker in workers] == [0, 0]
            print(*digests, sum(name.startswith("aworld") for name in os.listdir(os.environ["TMPDIR"])))
    """
    out, err, status = place.run(program)
    assert (out, err, status, place.left()) == (f"{usual}{usual.strip()} 1\n", "", 0, [])


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed here")
def test_workers_of_a_data_loader(place, usual):
    program = """
        import torch.utils.data
        import footprints

        class Episodes(torch.utils.data.IterableDataset):
            def __iter__(self):
                yield footprints.both()

        if __name__ == "__main__":
            footprints.both()
            print(*set(torch.utils.data.DataLoader(Episodes(), num_workers=2, batch_size=None, timeout=60)))
    """
    out, err, status = place.run(program)
    assert (out, err, status, place.left()) == (usual, "", 0, [])


ENDS = """
    import sys, threading, time
    import footprints
    import gymnasium

    servers = {"here": {"python": "small_toolchain:make_server", "tools": ["wait"]}}
    servers["there"] = {"command": sys.executable, "args": [footprints.SMALL], "tools": ["wait"]}
    env = footprints.mcp_env(call_timeout_s=1)
    both = gymnasium.make("AWorld/Mcp-v0", mcp_config={"mcpServers": servers}, limits={"call_timeout_s": 1})
    gaia = gymnasium.make("AWorld/Gaia-v0", limits={"call_timeout_s": 600})
    for one in (both, gaia):
        one.reset(seed=0)
    hung = footprints.calls(*((f"{name}__wait", {"seconds": 1000}) for name in servers))
    *_, info = both.step(hung)
    assert info["tool_errors"] == {"tool_timeout": 2}, info
    endless = footprints.calls(("run_python", {"code": "while True: print(flush=True)"}))
    threading.Thread(target=gaia.step, args=(endless,), daemon=True).start()
    time.sleep(2)
    print("playing", flush=True)
"""


@pytest.mark.parametrize(("end", "status", "said"), [("sys.exit(7)", 7, ""), ("1 / 0", 1, "ZeroDivisionError: ")])
def test_a_program_that_ends_with_calls_under_way_ends_soon_and_as_it_would(end, status, said, place):
    process = place.start(f"{ENDS}\n    {end}\n")
    try:
        assert waits.first_line(process) == "playing\n", process.stderr.read()
        out, err = process.communicate(timeout=30)  # the tools would go on for ten minutes and more
    finally:
        waits.kill(process)
    last = (err.splitlines() or [""])[-1]
    assert (process.returncode, out, last.startswith(said), place.left()) == (status, "", True, [])
    assert said or not err


def test_nothing_outlives_a_program_that_is_killed_but_a_folder_that_the_next_one_removes(place):
    process = place.start(f"{ENDS}\n    time.sleep(1000)\n")
    try:
        assert waits.first_line(process) == "playing\n", process.stderr.read()
        below = psutil.Process(process.pid).children(recursive=True)
        assert len(below) >= 4  # a server and its supervisor, the sandbox and what it runs
    finally:
        waits.kill(process)
        process.communicate(timeout=20)
    assert all(gone(child.pid) for child in below)
    assert len(list(place.temporary.iterdir())) == 1
    assert place.run("import footprints; footprints.mcp()")[1:] == ("", 0)
    assert place.left() == []


def test_images_that_are_read_side_by_side_leave_the_filters_of_warnings_alone():
    out = io.BytesIO()
    Image.new("RGB", (4, 4)).save(out, "PNG")
    before = list(warnings.filters)
    readers = [_SlowFile(out.getvalue()) for _ in range(2)]
    threads = [threading.Thread(target=images.load, args=(file, "a.png"), daemon=True) for file in readers]
    for thread, file in zip(threads, readers, strict=True):
        thread.start()
        assert file.read_from.wait(20)
    for thread, file in zip(threads, readers, strict=True):  # the first that came leaves first
        file.go_on.set()
        thread.join(20)
        assert not thread.is_alive()
    assert list(warnings.filters) == before


class _SlowFile(io.BytesIO):
    def __init__(self, data: bytes):
        super().__init__(data)
        self.read_from, self.go_on = threading.Event(), threading.Event()

    def read(self, *size: int) -> bytes:
        self.read_from.set()
        self.go_on.wait(20)
        return super().read(*size)


def test_what_pypdf_says_of_a_file_is_kept_from_the_log_for_tools_alone(caplog):
    import pypdf

    pdf = FPDF()
    pdf.add_page()
    odd = bytes(pdf.output()).replace(b"startxref\n", b"startxref\n9")

    def read_by_the_program() -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            pypdf.PdfReader(io.BytesIO(odd))
        return caplog.messages

    said = read_by_the_program()
    assert said
    caplog.clear()
    documents.text_of(io.BytesIO(odd), "a.pdf")
    assert caplog.messages == []
    assert read_by_the_program() == said
