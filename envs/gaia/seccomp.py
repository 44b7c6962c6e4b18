"""A system-call filter for the sandbox, assembled here: no new processes, and less of the kernel to talk to.

The filter is classic BPF, as ``bwrap --seccomp`` takes it. It refuses ``fork`` and ``clone`` without
``CLONE_THREAD`` (process limits do not bind root, this does; nothing can outlive the program), memory outside
the address-space limit (``memfd_create``, System V segments), FIFOs and devices, and the calls that only
debuggers, containers and drivers need. It is a second wall: the first is namespaces.
"""

from __future__ import annotations

import errno
import functools
import platform
import struct

_TABLE = """
fork 57 -1
vfork 58 -1
mknod 133 -1
mknodat 259 33
ptrace 101 117
process_vm_readv 310 270
process_vm_writev 311 271
memfd_create 319 279
memfd_secret 447 447
shmget 29 194
mount 165 40
umount2 166 39
pivot_root 155 41
chroot 161 51
unshare 272 97
setns 308 268
open_tree 428 428
move_mount 429 429
fsopen 430 430
fsconfig 431 431
fsmount 432 432
fspick 433 433
mount_setattr 442 442
add_key 248 217
request_key 249 218
keyctl 250 219
bpf 321 280
perf_event_open 298 241
io_uring_setup 425 425
io_uring_enter 426 426
io_uring_register 427 427
userfaultfd 323 282
kexec_load 246 104
kexec_file_load 320 294
init_module 175 105
finit_module 313 273
delete_module 176 106
name_to_handle_at 303 264
open_by_handle_at 304 265
quotactl 179 60
swapon 167 224
reboot 169 142
syslog 103 116
acct 163 89
personality 135 92
"""
_MACHINES = ("x86_64", "aarch64")
"""The columns of the table: names and numbers are the kernel's, -1 where an architecture has no such call."""
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000
"""Set in the numbers of x86-64's second ABI, which would slip past the list."""

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in ``struct seccomp_data``."""


def numbers(machine: str | None = None) -> dict[str, int]:
    """Call numbers of what is refused, by name, on a machine type (by default this one); empty where not known."""
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        return {}
    rows = (line.split() for line in _TABLE.strip().splitlines())
    found = {name: int(columns[_MACHINES.index(machine)]) for name, *columns in rows}
    return {name: number for name, number in found.items() if number >= 0}


@functools.cache
def program(machine: str | None = None) -> bytes | None:
    """The filter for a machine type (by default this one); None where its call numbers are not known."""
    machine = machine or platform.machine()
    if machine not in _AUDIT:
        return None
    denied = sorted(numbers(machine).values())
    # Jump distances count instructions, so the returns stand at the end, at fixed places from it.
    body: list[tuple[int, int, int, str]] = [(_LOAD, 0, _ARCH, ""), (_EQUAL, 0, _AUDIT[machine], "kill unless")]
    body += [(_LOAD, 0, _NUMBER, ""), (_AT_LEAST, 0, _X32, "deny if")]
    body += [(_EQUAL, 0, _CLONE3, "absent if")]
    body += [(_EQUAL, 0, number, "deny if") for number in denied]
    body += [(_EQUAL, 0, _CLONE[machine], "allow unless")]
    body += [(_LOAD, 0, _FIRST_ARGUMENT, ""), (_AND, 0, _CLONE_THREAD, ""), (_EQUAL, 0, 0, "deny if")]
    returns = {
        "allow": _ALLOW,
        "deny": _ERRNO | errno.EPERM,
        "absent": _ERRNO | errno.ENOSYS,  # the C library then falls back to clone, whose flags can be seen
        "kill": _KILL,
    }
    targets = {name: len(body) + place for place, name in enumerate(returns)}
    out = []
    for here, (code, _, value, rule) in enumerate(body):
        yes = no = 0
        if rule:
            name, when = rule.split()
            distance = targets[name] - here - 1
            yes, no = (distance, 0) if when == "if" else (0, distance)
        out.append(struct.pack("=HBBI", code, yes, no, value))
    out += [struct.pack("=HBBI", _RETURN, 0, 0, value) for value in returns.values()]
    return b"".join(out)
