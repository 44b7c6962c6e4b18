"""The independent solver on a task of the generator's, with all that it needs or with something taken away."""

from __future__ import annotations

import email
import email.policy
import io
import zipfile
from pathlib import Path

from gaia_solver import Solver

from aworld_gym.types import Task
from envs.gaia.tasks import GaiaTasks
from envs.gaia.world import pages

UNSOLVED = (AssertionError, ArithmeticError, LookupError, OSError, ValueError)
"""How the solver says that something is missing."""


def answer_of(task: Task, folder: Path, *, without: str | None = None, only: str | None = None) -> str:
    """The solver's answer.

    Args:
        task: the task; its files are written to ``folder``.
        folder: an empty directory.
        without: a file, a page or an archive's member (``archive!member``) that is taken away.
        only: the one file that is left; all pages are taken away too.

    Raises:
        AssertionError, ...: :data:`UNSOLVED`, where it finds none.
    """
    GaiaTasks(task.metadata["split"]).setup(task, folder)
    web = dict(pages(task.public["corpus"]))
    if only is not None:
        web = {}
        for path in folder.iterdir():
            if path.name != only:
                path.unlink()
    elif without is not None and "://" in without:
        del web[without]
    elif without is not None:
        file, *members = without.split("!")
        path = folder / file
        remaining = _without(path.read_bytes(), members) if members else None
        path.unlink()
        if remaining is not None:
            path.write_bytes(remaining)
    return _solver(task, folder, web)


def from_memory(task: Task, folder: Path, *, files: bool = False) -> str:
    """The solver's answer where it has the real world's pages instead of the task's; ``files``: and the task's files.

    Raises:
        AssertionError, ...: :data:`UNSOLVED`, where it finds none.
    """
    if files:
        GaiaTasks(task.metadata["split"]).setup(task, folder)
    return _solver(task, folder, dict(pages({**task.public["corpus"], "world": "real"})))


def _solver(task: Task, folder: Path, web: dict) -> str:
    return Solver(task.prompt, folder, web).solve()


def _without(container: bytes, members: list[str]) -> bytes:
    """An archive or a mail but for the member at the end of that path."""
    return (_zip_without if container.startswith(b"PK") else _mail_without)(container, members)


def _zip_without(archive: bytes, members: list[str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        assert members[0] in old.namelist()
        for name in old.namelist():
            if name != members[0]:
                new.writestr(name, old.read(name))
            elif len(members) > 1:
                new.writestr(name, _without(old.read(name), members[1:]))
    return out.getvalue()


def _mail_without(mail: bytes, members: list[str]) -> bytes:
    """A mail's attachments are its members; its text is no member."""
    message = email.message_from_bytes(mail, policy=email.policy.default)
    parts = message.get_payload()
    assert isinstance(parts, list)
    (gone,) = (part for part in parts if part.get_filename() == members[0])
    if len(members) > 1:
        inner = _without(gone.get_payload(decode=True), members[1:])
        gone.set_content(inner, "application", "octet-stream", filename=members[0])
    else:
        parts.remove(gone)
    return message.as_bytes()
