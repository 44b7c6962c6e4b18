"""run_python's sandbox under attack, for real: every test runs the attacking program."""

import concurrent.futures
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from gaia_tools import REPOSITORY, everything_below, needs_sandbox, served

from envs.gaia import processes, sandbox, seccomp
from envs.gaia.sandbox import Rules, Run, run

pytestmark = needs_sandbox
QUICK = Rules(cpu_s=1, wall_s=3.0, memory_bytes=256 << 20, workspace_bytes=16 << 20, workspace_entries=300)


def go(folder: Path, code: str, rules: Rules = QUICK, **options) -> Run:
    return run(textwrap.dedent(code).encode(), folder, rules=rules, **options)


def printed(folder: Path, code: str, **options) -> str:
    result = go(folder, code, **options)
    assert result.ok, result
    return result.output.strip()


# --- what it is for --------------------------------------------------------------------------------------------


def test_a_program_prints_and_writes(tmp_path):
    (tmp_path / "in.csv").write_text("1\n2\n")
    code = """
        import csv, json, sqlite3, zoneinfo, decimal
        total = sum(int(row[0]) for row in csv.reader(open("in.csv")))
        open("out.txt", "w").write(str(total))
        print(json.dumps({"total": total}))
    """
    assert printed(tmp_path, code) == '{"total": 3}'
    assert (tmp_path / "out.txt").read_text() == "3"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("1+1", "2"),
        ("x = 5\nx * 2", "10"),
        ("print('a')\nNone", "a"),
        ("'text'", "'text'"),
        ("", ""),
        ("import sys\nprint('out'); print('err', file=sys.stderr); print('out2')", "out\nerr\nout2"),
        ("exit()", ""),
        ("print(__name__, __file__, len(__import__('sys').argv))", "__main__ /run/main.py 1"),
        ("def f(n):\n    return n if n < 2 else f(n-1) + f(n-2)\nf(10)", "55"),
        ("import helper\nhelper.value", "7"),
        ("print('ü', '😀')", "ü 😀"),
        ("open('/tmp/x','w').write('1'); open('/tmp/x').read()", "'1'"),
    ],
)
def test_last_expressions_are_shown(tmp_path, code, output):
    (tmp_path / "helper.py").write_text("value = 7")
    assert printed(tmp_path, code, echo=True) == output


def test_a_script_is_main_and_shows_no_expressions(tmp_path):
    result = go(tmp_path, "1 + 1\nif __name__ == '__main__': print(__file__)", name="/workspace/s.py")
    assert result.output == "/workspace/s.py\n"


def test_failures_are_told_as_python_tells_them(tmp_path):
    result = go(tmp_path, "def f():\n    return 1/0\n\nf()")
    assert result.returncode == 1 and not result.ok
    assert result.output == (
        'Traceback (most recent call last):\n  File "/run/main.py", line 4, in <module>\n    f()\n'
        '  File "/run/main.py", line 2, in f\n    return 1/0\n           ~^~\nZeroDivisionError: division by zero\n'
    )
    assert "SyntaxError" in go(tmp_path, "def f(:\n  pass").output
    assert go(tmp_path, "import sys; sys.exit(3)").returncode == 3
    assert go(tmp_path, "import sys; sys.exit('bye')").output == "bye\n"
    assert "EOFError" in go(tmp_path, "input()").output
    assert go(tmp_path, "import os; os.abort()").returncode < 0


def test_runs_are_the_same_every_time(tmp_path):
    code = "print({str(i) for i in range(20)}, hash('x'), __import__('time').tzname, __import__('os').getcwd())\n1/0"
    first = go(tmp_path, code)
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert first == go(tmp_path, code) == go(other, code)
    assert str(tmp_path) not in first.output


def test_long_output_is_cut_in_the_middle(tmp_path):
    output = printed(tmp_path, "print('a' * 30000 + 'b' * 30000)")
    assert output.startswith("aaa") and output.endswith("bbb") and len(output) < 8100
    assert "[52,001 bytes left out]" in output


# --- what it can see -------------------------------------------------------------------------------------------

HIDDEN = [
    "/etc/passwd",
    "/etc/hostname",
    "/proc",
    "/proc/self/environ",
    "/proc/1/root",
    "/sys",
    "/var",
    "/home",
    "/root/.bashrc",
    "/boot",
    "/opt",
    "/srv",
    "/mnt",
    "/dev/sda",
    "/dev/mem",
    "/dev/kmsg",
    "/dev/tty",
    "/dev/shm",
    "/dev/fd",
    "/usr/bin",
    "/usr/local",
    "/bin/sh",
    str(REPOSITORY),
    str(REPOSITORY / "envs/gaia/scorers.py"),
    str(Path(pytest.__file__).parent),
]


@pytest.mark.parametrize("path", HIDDEN)
def test_nothing_else_is_there(tmp_path, path):
    assert printed(tmp_path, f"import os; os.path.lexists({path!r})", echo=True) == "False"


def test_the_whole_tree_holds_libraries_and_the_workspace(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    code = """
        import os
        print(sorted(os.listdir("/")))
        for top in ("/dev", "/run", "/etc", "/tmp", "/workspace", "/usr", "/usr/share"):
            print(top, sorted(os.listdir(top)))
    """
    lines = printed(tmp_path, code).splitlines()
    assert set(eval(lines[0])) <= {"dev", "etc", "lib", "lib32", "lib64", "libx32", "python", "run", "tmp", "usr"} | {
        "workspace",
    }
    assert lines[1] == "/dev ['full', 'null', 'random', 'urandom', 'zero']"
    assert lines[2] == "/run ['main.py']" and lines[4] == "/tmp []" and lines[5] == "/workspace ['mine.txt']"
    assert set(eval(lines[3].split(" ", 1)[1])) <= {"ld.so.cache"}


@pytest.mark.parametrize("module", ["aworld_gym", "envs", "envs.gaia.scorers", "numpy", "pydantic", "pip"])
def test_no_installed_package_is_there(tmp_path, module):
    assert "ModuleNotFoundError" in go(tmp_path, f"import {module}").output


def test_no_scorer_or_generator_lies_anywhere(tmp_path):
    """Every name below / is looked through for this project's own."""
    code = """
        import os
        for top, _, names in os.walk("/"):
            for name in names:
                if name in ("scorers.py", "operators.py", "templates", "aworld_gym") or "gaia" in name:
                    print(os.path.join(top, name))
            if any(part in top for part in ("gaia", "aworld")):
                print(top)
    """
    assert printed(tmp_path, code, rules=Rules()) == ""


def test_the_environment_is_empty(tmp_path, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", "sk-secret")
    names = set(eval(printed(tmp_path, "import os; print(dict(os.environ))")))
    assert names <= {"HOME", "LANG", "PATH", "TZ", "PYTHONHASHSEED", "PYTHONHOME", "PWD", "LC_CTYPE"} | {
        "MALLOC_ARENA_MAX",
        "LD_LIBRARY_PATH",
    }
    assert "sk-secret" not in go(tmp_path, "import os; print(os.environ)", mode="none").output


def test_no_descriptor_of_the_parent_is_open(tmp_path):
    with open(__file__):
        code = """
            import os, stat
            for fd in range(200):
                try:
                    mode = os.fstat(fd).st_mode
                except OSError:
                    continue
                kind = "file" if stat.S_ISREG(mode) else "pipe" if stat.S_ISFIFO(mode) else "other"
                print(fd, kind, os.read(fd, 40) if kind == "file" else "")
        """
        lines = printed(tmp_path, code).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["0", "1", "2"]
    assert len(lines) <= 4 and not any("file" in line for line in lines)


def test_it_is_alone(tmp_path):
    code = """
        import os, signal, errno
        print(os.getpid(), os.getppid())
        for pid in [*range(2, 3000), PARENT]:
            try:
                os.kill(pid, 0)
                print("seen", pid)
            except OSError as error:
                assert error.errno in (errno.ESRCH, errno.EPERM), error
    """.replace("PARENT", str(os.getpid()))
    assert printed(tmp_path, code) == "1 0"


def test_there_is_no_network(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        code = f"""
            import socket
            targets = [("127.0.0.1", {server.getsockname()[1]}), ("1.1.1.1", 53), ("::1", 80), ("10.0.0.1", 80)]
            for target in targets:
                try:
                    socket.create_connection(target, 0.5)
                    print("connected", target)
                except OSError as error:
                    pass
            try:
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53))
                print("sent")
            except OSError:
                pass
            try:
                print(socket.getaddrinfo("example.org", 80))
            except OSError:
                pass
            print(socket.if_nameindex())
        """
        assert printed(tmp_path, code) == "[(1, 'lo')]"
        with pytest.raises(TimeoutError):
            server.accept()


def test_abstract_sockets_of_the_host_are_not_reachable(tmp_path):
    name = f"\0aworld-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert "Connection refused" in go(tmp_path, code).output


# --- what it can do --------------------------------------------------------------------------------------------


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
    result = go(tmp_path, code, Rules(cpu_s=1, wall_s=20))
    assert result.returncode is None and "over 1 s of processor time" in result.stopped
    assert time.monotonic() - start < 10


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
    assert time.monotonic() - start < 3


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
    result = go(tmp_path, code, Rules(wall_s=1))
    assert result.stopped == "stopped after 1 s"
    size = (tmp_path / "beat").stat().st_size
    time.sleep(0.2)
    assert (tmp_path / "beat").stat().st_size == size > 0
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
    deadline = time.monotonic() + 30
    while not marker.exists():
        assert parent.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    parent.kill()
    parent.wait(20)
    time.sleep(0.3)
    size = marker.stat().st_size
    time.sleep(0.3)
    assert marker.stat().st_size == size


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


# --- how it is run ---------------------------------------------------------------------------------------------


def test_a_run_can_be_cancelled(tmp_path):
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    start = time.monotonic()
    assert go(tmp_path, "import time; time.sleep(60)", Rules(), cancelled=cancelled).stopped == "cancelled"
    assert time.monotonic() - start < 3


def test_runs_at_once_leave_nothing_behind(tmp_path):
    folders = [tmp_path / str(i) for i in range(12)]
    for folder in folders:
        folder.mkdir()
    run(b"1", tmp_path)
    fds = len(os.listdir("/proc/self/fd"))

    def one(i):
        result = go(folders[i], f"import os, time; time.sleep(0.05); open('me','w').write('{i}'); print({i})", Rules())
        return result.output

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(one, range(12))) == [f"{i}\n" for i in range(12)]
    assert [f.joinpath("me").read_text() for f in folders] == [str(i) for i in range(12)]
    assert len(os.listdir("/proc/self/fd")) == fds
    assert not [c for c in psutil.Process().children(recursive=True) if "bwrap" in c.name()]


def test_isolation_tells_what_is_in_force():
    found = sandbox.isolation()
    assert found.mechanism == "bubblewrap" and found.confined and "no network" in found.detail
