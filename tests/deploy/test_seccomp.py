"""The containers' system-call filter, as the kernel enforces it: compiled by libseccomp, as container runtimes do."""

import ctypes.util
import json
import os
import subprocess
import sys
import textwrap

import pytest
from deploy_files import ROOT, SECCOMP

from envs.gaia import sandbox, seccomp

BUBBLEWRAP_NEEDS = {"mount", "umount2", "pivot_root", "unshare"}
"""What the filter within the sandbox refuses, and the sandbox is made with."""
ALSO_LEFT = {"mknod", "mknodat", "memfd_create", "shmget"}
"""Held off by capabilities, or harmless outside the sandbox's limits."""
UNDER_FILTER = """
import json, sys
import pyseccomp

ACTIONS = {"SCMP_ACT_ALLOW": pyseccomp.ALLOW}
profile, more = json.load(open(sys.argv[1])), json.loads(sys.argv[2])
assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
filter_ = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
refused = 0
for rule in [*profile["syscalls"], *more]:
    assert rule["action"] == "SCMP_ACT_ERRNO"
    arguments = [pyseccomp.Arg(one["index"], pyseccomp.EQ, one["value"]) for one in rule.get("args", [])]
    for name in rule["names"]:
        try:
            filter_.add_rule(pyseccomp.ERRNO(rule["errnoRet"]), name, *arguments)
            refused += 1
        except (ValueError, OSError) as error:  # no such call on this processor
            print("unknown here:", name, error, file=sys.stderr)
filter_.load()
"""


def profile():
    return json.loads(SECCOMP.read_text())


def refused():
    return {name for rule in profile()["syscalls"] if "args" not in rule for name in rule["names"]}


def test_it_refuses_what_the_sandbox_refuses_but_for_what_makes_a_sandbox():
    own = set(seccomp.numbers("x86_64")) - {"fork", "vfork"}
    assert own - refused() == BUBBLEWRAP_NEEDS | ALSO_LEFT


def test_it_is_of_the_form_that_runtimes_read():
    assert set(profile()) == {"defaultAction", "syscalls"} and profile()["defaultAction"] == "SCMP_ACT_ALLOW"
    for rule in profile()["syscalls"]:
        assert set(rule) <= {"comment", "names", "action", "errnoRet", "args"} and rule["action"] == "SCMP_ACT_ERRNO"
    names = [name for rule in profile()["syscalls"] if "args" not in rule for name in rule["names"]]
    assert len(names) == len(set(names))


@pytest.fixture
def under():
    """Run a program under the profile, and under further rules."""
    if ctypes.util.find_library("seccomp") is None and not os.path.exists("/lib/x86_64-linux-gnu/libseccomp.so.2"):
        pytest.skip("libseccomp is not installed")

    def run(code, more=()):
        program = UNDER_FILTER + textwrap.dedent(code)
        command = [sys.executable, "-c", program, str(SECCOMP), json.dumps(list(more))]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    return run


SANDBOXED = """
from envs.gaia import sandbox
print(sandbox.isolation().confined, sandbox.isolation().detail)
"""


@pytest.mark.skipif(not sandbox.isolation().confined, reason="no sandbox on this machine")
def test_the_sandbox_works_under_it(under):
    done = under(SANDBOXED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True"), done.stdout


@pytest.mark.parametrize("name", sorted(BUBBLEWRAP_NEEDS - {"unshare"}))
def test_the_sandbox_refuses_where_one_more_call_is_refused(under, name):
    """As under a container runtime's own profile; so that the profile allows no more than is needed."""
    done = under(SANDBOXED, [{"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False") and "docs/deploy.md" in done.stdout


def test_the_kernel_enforces_it(under):
    code = """
    import ctypes, errno, os, socket
    libc = ctypes.CDLL(None, use_errno=True)
    for number in (101, 321, 298, 425, 323):  # ptrace, bpf, perf_event_open, io_uring_setup, userfaultfd
        assert libc.syscall(number, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM, number
    for family in (38, 40):
        try:
            socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            assert error.errno == errno.EAFNOSUPPORT, error
        else:
            raise AssertionError(family)
    print("refused", refused)
    """
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86-64")
    done = under(code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 50
