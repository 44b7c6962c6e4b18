"""run_python's sandbox, for real: what it is for, what a program in it can see, and how it is run."""

import concurrent.futures
import os
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest
from gaia_tools import REPOSITORY, needs_sandbox
from sandbox_runs import go, printed

from envs.gaia import sandbox
from envs.gaia.sandbox import Rules, run

pytestmark = needs_sandbox

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


# --- how it is run ---------------------------------------------------------------------------------------------


def test_a_run_can_be_cancelled(tmp_path):
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    start = time.monotonic()
    assert go(tmp_path, "import time; time.sleep(60)", Rules(), cancelled=cancelled).stopped == "cancelled"
    assert time.monotonic() - start < 20


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
