"""run_python's sandbox under attack: every test runs a program that writes, forks, fills, floods or will not end."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
import waits
from gaia_tools import REPOSITORY, everything_below, needs_sandbox, served
from sandbox_runs import go, printed

from envs.gaia import processes, seccomp
from envs.gaia.sandbox import Rules, run

pytestmark = needs_sandbox


@pytest.mark.parametrize(
    "path", ["/x", "/run/x", "/run/main.py", "/dev/x", "/etc/x", "/usr/lib/x", "/python/lib/x", "/python/bin/python3"]
)
def test_nothing_else_can_be_written(tmp_path, path):
    assert "Error" in go(tmp_path, f"open({path!r}, 'a').write('x')").output


def test_packages_cannot_be_planted(tmp_path):
    code = """
        import os, sys
        for folder in {*sys.path, *(f"{p}/site-packages" for p in sys.path)} - {"/workspace"}:
            if os.path.isdir(folder):
                assert not folder.endswith("-packages") or not os.listdir(folder), folder
                try:
                    open(f"{folder}/planted.py", "w")
                    print("planted in", folder)
                except OSError as error:
                    print(error.strerror)
    """
    assert set(printed(tmp_path, code).splitlines()) == {"Read-only file system"}


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import os; os.fork()", "Operation not permitted"),
        ("import os; print(os.system('id'))", "32512"),
        ("import subprocess; subprocess.run(['/python/bin/python3', '-c', '1'])", "Operation not permitted"),
        ("import multiprocessing as m; p = m.Process(target=print); p.start()", "Operation not permitted"),
        ("import os; os.posix_spawn('/python/bin/python3', ['x'], {})", "Operation not permitted"),
        ("import pty; pty.fork()", "out of pty devices"),
    ],
)
def test_no_other_process_can_be_started(tmp_path, code, output):
    assert output in go(tmp_path, code).output


def test_a_fork_bomb_is_a_dud(tmp_path):
    before = len(psutil.pids())
    code = """
        import os
        made = 0
        for _ in range(5000):
            try:
                os.fork()
                made += 1
            except OSError:
                pass
        print(made)
    """
    assert printed(tmp_path, code) == "0"
    assert len(psutil.pids()) < before + 50


def test_fork_by_the_bare_system_call_is_refused(tmp_path):
    code = """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        clone, clone3, fork, vfork = CALLS
        for number, arguments in ((clone, (17, 0, 0, 0, 0)), (clone3, (0, 64)), (fork, ()), (vfork, ())):
            if number >= 0:
                print(libc.syscall(number, *arguments), ctypes.get_errno())
    """
    machine = os.uname().machine
    calls = {"x86_64": (56, 435, 57, 58), "aarch64": (220, 435, -1, -1)}.get(machine)
    if calls is None:
        pytest.skip(f"call numbers of {machine} are not known")
    lines = printed(tmp_path, code.replace("CALLS", str(calls))).splitlines()
    assert lines[0] == "-1 1" and lines[1] == "-1 38" and set(lines[2:]) <= {"-1 1"}


@pytest.mark.parametrize(
    "name", ["ptrace", "mount", "unshare", "setns", "bpf", "keyctl", "memfd_create", "io_uring_setup"]
)
def test_calls_for_debuggers_and_containers_are_refused(tmp_path, name):
    number = seccomp.numbers()[name]
    call = f"c.syscall({number}, 0, 0, 0, 0), ctypes.get_errno()"
    assert printed(tmp_path, f"import ctypes; c = ctypes.CDLL(None, use_errno=True); print({call})") == "-1 1"


def test_the_other_abi_is_refused(tmp_path):
    if os.uname().machine != "x86_64":
        pytest.skip("only x86-64 has a second ABI")
    code = "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.syscall(0x40000000 + 39), ctypes.get_errno())"
    assert printed(tmp_path, code) == "-1 1"


def test_threads_work_up_to_a_number(tmp_path):
    code = """
        import concurrent.futures, asyncio
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            print(sum(pool.map(lambda n: n * n, range(100))))
        async def f():
            return await asyncio.gather(*(asyncio.sleep(0, i) for i in range(5)))
        print(asyncio.run(f()))
    """
    assert printed(tmp_path, code, rules=Rules()) == "328350\n[0, 1, 2, 3, 4]"


def test_a_thread_bomb_is_stopped(tmp_path):
    code = """
        import threading, time
        threading.stack_size(32768)
        while True:
            try:
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            except RuntimeError:
                break
        time.sleep(60)
    """
    result = go(tmp_path, code)
    assert not result.ok
    assert result.stopped in ("stopped with over 64 threads", "stopped after 3 s")


@pytest.mark.parametrize(
    "code",
    [
        "x = bytearray(1 << 30)",
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "import mmap; mmap.mmap(-1, 1 << 30)",
        "x = 'a' * (1 << 40)",
        "import os; fd = os.memfd_create('x')",
        "import itertools; list(itertools.count())",
    ],
)
def test_memory_is_bounded(tmp_path, code):
    result = go(tmp_path, code, Rules(memory_bytes=256 << 20, cpu_s=5))
    assert any(word in result.output for word in ("MemoryError", "Cannot allocate", "not permitted")), result


def test_scratch_space_is_bounded(tmp_path):
    code = """
        import os
        total = 0
        try:
            for i in range(1000):
                with open(f"/tmp/{i}", "wb") as file:
                    total += file.write(b"x" * (1 << 20))
        except OSError as error:
            print(total >> 20, error.strerror)
    """
    assert printed(tmp_path, code) == "32 No space left on device"


BURIED = """import os, time
for i in range(40):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
for i in range(10**6):
    open(f"f{i}", "w").write("x" * 10**6)
"""
CLOSED = """import os
for i in range(50):
    os.makedirs(f"a{i}/b/c")
    open(f"a{i}/b/c/x", "w").write("x" * 10**6)
    os.chmod(f"a{i}/b/c", 0)
"""


@pytest.mark.parametrize(
    "code",
    [
        "for i in range(10**6): open(f'f{i}', 'w').write('x' * 10**6)",
        "for i in range(10**6): open(f'f{i}', 'w').close()",
        "import os\nfor i in range(10**6): os.mkdir(f'd{i}')",
        "import os\nfor i in range(10**6): os.symlink('/etc', f'l{i}')",
        CLOSED,
        "import os\nfor i in range(10**6):\n    os.mkdir('d')\n    os.chdir('d')",
        "import os\nfor i in range(40):\n    os.mkdir('d' * 250)\n    os.chdir('d' * 250)\n    open('x', 'w').close()",
        BURIED,
    ],
    ids=["large files", "many files", "directories", "links", "closed directories", "depth", "long depth", "buried"],
)
def test_a_disk_filler_is_stopped_and_cleaned_up(tmp_path, code):
    (tmp_path / "mine.txt").write_text("mine")
    result = go(tmp_path, code)
    assert result.stopped and "workspace is full" in result.stopped
    assert everything_below(tmp_path) == {"mine.txt": b"mine"} and os.listdir(tmp_path) == ["mine.txt"]


def test_one_file_is_bounded(tmp_path):
    result = go(tmp_path, "open('x', 'wb').write(b'x' * (1 << 30))", Rules(memory_bytes=4 << 30, file_bytes=1 << 20))
    assert "File too large" in result.output
    assert (tmp_path / "x").stat().st_size <= 1 << 20


def test_what_was_over_the_limit_before_is_no_fault(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * (20 << 20))
    assert printed(tmp_path, "import time; time.sleep(0.2); print('fine')") == "fine"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "try:\n    while True: pass\nexcept BaseException:\n    while True: pass",
        "10 ** 10 ** 8",
    ],
)
def test_processor_time_is_bounded(tmp_path, code):
    start = time.monotonic()
    result = go(tmp_path, code, Rules(cpu_s=1, wall_s=120))
    assert result.returncode is None and "over 1 s of processor time" in result.stopped
    assert time.monotonic() - start < 60


DEAF = """import signal, time
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
time.sleep(60)
"""


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(60)",
        "import os, time\nos.close(0); os.close(1); os.close(2)\ntime.sleep(60)",
        DEAF,
        "import threading\nthreading.Event().wait()",
        "import os\nr, w = os.pipe()\nos.read(r, 1)",
    ],
)
def test_wall_clock_time_is_bounded(tmp_path, code):
    start = time.monotonic()
    result = go(tmp_path, code, Rules(wall_s=0.5))
    assert result.stopped == "stopped after 0.5 s" and result.returncode is None
    assert time.monotonic() - start < 20


def test_an_output_flood_is_stopped(tmp_path):
    result = go(tmp_path, "while True: print('x' * 1000)", Rules(output_bytes=100_000))
    assert result.stopped == "stopped after 100,000 bytes of output" and len(result.output) < 9000


def test_open_files_are_bounded(tmp_path):
    assert "Too many open files" in go(tmp_path, "x = [open('/dev/null') for _ in range(1000)]").output


def test_limits_cannot_be_raised(tmp_path):
    code = """
        import resource
        for name in ("CPU", "AS", "FSIZE", "NOFILE"):
            kind = getattr(resource, f"RLIMIT_{name}")
            try:
                resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                print("raised", name)
            except (ValueError, OSError):
                pass
    """
    assert printed(tmp_path, code) == ""


def test_nothing_survives_the_run(tmp_path):
    """A daemon thread, an exec into something else, and a handler at exit: all end with the run."""
    marker = f"survivor-{os.getpid()}"
    code = f"""
        import os, threading, time
        def beat():
            while True:
                open("beat", "a").write("x")
                time.sleep(0.01)
        threading.Thread(target=beat, daemon=True).start()
        time.sleep(0.1)
        os.execv("/python/bin/python3", ["{marker}", "-S", "-c", "import time; time.sleep(60)"])
    """
    result = go(tmp_path, code, Rules(wall_s=4))
    assert result.stopped == "stopped after 4 s"
    assert waits.still(lambda: (tmp_path / "beat").stat().st_size) > 0
    assert not [p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or [""])[:1]]


def test_the_parent_is_left_alone(tmp_path):
    seen = []
    old = {s: signal.signal(s, lambda n, f: seen.append(n)) for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)}
    try:
        code = f"""
            import os, signal
            for pid in (0, -1, {os.getpid()}, {os.getppid()}, os.getppid()):
                for number in (signal.SIGUSR1, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                    try:
                        os.kill(pid, number)
                    except OSError:
                        pass
            print("done")
        """
        assert printed(tmp_path, code) == "done"
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    assert not seen


def test_a_killed_parent_takes_its_programs_along(tmp_path):
    """Also when the parent gets no chance to clean up (kill -9)."""
    marker = tmp_path / "beat"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import pathlib; from envs.gaia.sandbox import run\n"
            "run(b\"import time\\nwhile True:\\n  open('beat','a').write('x')\\n  time.sleep(0.01)\", "
            f"pathlib.Path({str(tmp_path)!r}))",
        ],
        cwd=REPOSITORY,
    )
    try:
        waits.until(lambda: marker.exists() or parent.poll() is not None)
        assert parent.poll() is None
    finally:
        waits.kill(parent)
    waits.still(lambda: marker.stat().st_size)


async def test_links_left_behind_lead_nowhere(tmp_path):
    """The program writes links out of the workspace; every tool is then asked to follow them."""
    root = tmp_path / "ws"
    root.mkdir()
    (tmp_path / "secret.csv").write_text("the-answer,42\n")
    code = f"""
        import os
        os.symlink({str(tmp_path / "secret.csv")!r}, "a.csv")
        os.symlink("../secret.csv", "b.csv")
        os.symlink({str(tmp_path)!r}, "d")
        os.symlink("/etc/passwd", "e.txt")
        os.symlink("/proc/self/environ", "f.txt")
        os.makedirs("real/sub"); os.symlink("../../..", "real/sub/up")
        try:
            os.link({str(tmp_path / "secret.csv")!r}, "hard.csv")
        except OSError as error:
            print(type(error).__name__)
    """
    async with served(root) as session:
        assert await session.ok("run_python", code=textwrap.dedent(code)) == "FileNotFoundError"
        for path in ("a.csv", "b.csv", "d/secret.csv", "e.txt", "f.txt", "real/sub/up/secret.csv", "hard.csv"):
            for tool in ("read_document", "read_table", "view_image", "describe_image", "run_python", "unpack_archive"):
                text = await session.refused(tool, path=path)
                assert "42" not in text and "root:" not in text
        assert "secret.csv" not in (await session.refused("list_files", path="d")).replace("b.csv", "")
        assert await session.ok("list_files", path="real") == "real/sub/up (link, cannot be read)"


def test_special_files_cannot_be_made(tmp_path):
    code = """
        import os, stat
        for make in (lambda: os.mkfifo("p"), lambda: os.mknod("n", stat.S_IFCHR | 0o666, os.makedev(1, 3))):
            try:
                make()
                print("made")
            except OSError as error:
                print(error.strerror)
    """
    assert printed(tmp_path, code) == "Operation not permitted\nOperation not permitted"


def test_paths_longer_than_the_system_takes_are_no_trouble(tmp_path):
    root = tmp_path / "ws"
    root.mkdir()
    code = "import os\nfor i in range(25):\n    os.mkdir('d' * 250)\n    os.chdir('d' * 250)\nopen('x', 'w').write('1')"
    assert go(root, code).ok
    assert len(processes.files_of(root)) == 26
    shutil.rmtree(root)


def test_directories_that_were_closed_can_be_removed(tmp_path):
    inner = tmp_path / "ws"
    inner.mkdir()
    printed(inner, "import os\nos.makedirs('a/b')\nopen('a/b/x','w').close()\nos.chmod('a/b', 0)\nos.chmod('a', 0o500)")
    assert (inner / "a").stat().st_mode & 0o700 == 0o700
    assert (inner / "a/b").stat().st_mode & 0o700 == 0o700


CLOSERS = {
    "the workspace": "os.chmod('.', 0)",
    "the workspace, searchable only": "os.chmod('.', 0o100)",
    "a file that was there": "os.chmod('old.txt', 0)",
    "a file that it made": "open('new.txt', 'w').write('new'); os.chmod('new.txt', 0o444)",
    "everything": "os.mkdir('d'); open('d/x', 'w'); [os.chmod(p, 0) for p in ('d/x', 'd', 'old.txt', '.')]",
}


@pytest.mark.parametrize("code", CLOSERS.values(), ids=CLOSERS)
@pytest.mark.parametrize("mode", ["auto", "none"])
def test_a_program_cannot_close_the_workspace_to_what_comes_after(tmp_path, code, mode):
    (tmp_path / "old.txt").write_text("old")
    assert run(f"import os; {code}".encode(), tmp_path, mode=mode).ok
    for path in (tmp_path, *tmp_path.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert path.stat().st_mode & wanted == wanted, path
    after = "open('old.txt', 'a').write('er'); print(open('old.txt').read(), open('made', 'w').write('1'))"
    assert printed(tmp_path, after, mode=mode) == "older 1"


def test_a_stopped_program_cannot_close_the_workspace_either(tmp_path):
    assert go(tmp_path, "import os\nwhile True: os.chmod('/workspace', 0)", Rules(cpu_s=1)).stopped
    assert printed(tmp_path, "print(1)") == "1"


def test_a_program_that_closes_the_workspace_is_still_counted(tmp_path):
    code = "import os\nfor i in range(10**6):\n    os.mkdir(f'd{i}', 0)\n    os.chmod('.', 0o300)"
    assert "workspace is full" in go(tmp_path, code).stopped
