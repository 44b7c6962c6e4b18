"""Episode directories: a workspace for the tools, and beside it the file that tells servers of the episode."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aworld_gym.errors import InfraError
from aworld_gym.toolchain import loop, threads
from aworld_gym.toolchain.config import EPISODE_FILE_VAR, WORKSPACE_VAR
from aworld_gym.types import EpisodeContext

logger = logging.getLogger(__name__)

_PREFIX = "aworld-gym-"
_root: Path | None = None
_lock_fd: int | None = None
_count = 0


class Episode:
    """One episode's place on disk: ``workspace/``, and ``episode.json`` beside it.

    It may be made before the episode is known, so that servers can start ahead: :meth:`begin` fills it in.

    Raises:
        InfraError: the disk has no room for it, or may not be written to.
    """

    def __init__(self) -> None:
        global _count
        _count += 1
        try:
            self._home = _process_root() / str(_count)
            self.workspace = self._home / "workspace"
            self.workspace.mkdir(parents=True)
        except OSError as error:
            raise InfraError("env_failed", f"there can be no workspace in {tempfile.gettempdir()}: {error}") from error
        self._file = self._home / "episode.json"
        self.public: Mapping[str, Any] = {}

    @property
    def context(self) -> EpisodeContext:
        """What in-process servers are given."""
        return EpisodeContext(workspace=self.workspace, public=self.public)

    @property
    def variables(self) -> dict[str, str]:
        """What stdio servers are given, in ``${...}`` and in their environment."""
        return {WORKSPACE_VAR: str(self.workspace), EPISODE_FILE_VAR: str(self._file)}

    def begin(self, public: Mapping[str, Any], *, write: bool = True) -> None:
        """Say what servers may know of the episode that begins; ``write`` it down for those out of process.

        Raises:
            InfraError: it cannot be written.
        """
        self.public = dict(public)
        if not write:
            return
        temporary = self._file.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps({"public": self.public}), encoding="utf-8")
            temporary.replace(self._file)
        except OSError as error:
            raise InfraError("env_failed", f"the episode cannot be written to {self._file}: {error}") from error

    async def clear(self) -> None:
        """Empty the workspace, for the next episode."""
        await threads.files.run(self._clear)

    async def remove(self) -> None:
        """Delete everything."""
        await threads.files.run(_remove, self._home)

    def _clear(self) -> None:
        _remove(self.workspace)
        self.workspace.mkdir()
        self._file.unlink(missing_ok=True)
        self.public = {}


def _process_root() -> Path:
    global _root, _lock_fd
    if _root is None:
        _sweep()
        hidden = Path(tempfile.mkdtemp(prefix="." + _PREFIX))  # not swept before it is locked
        _lock_fd = os.open(hidden / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(_lock_fd, fcntl.LOCK_EX)
        _root = hidden.rename(hidden.with_name(hidden.name[1:]))
    return _root


def _sweep() -> None:
    """Delete what killed processes have left. A living one holds the lock of its directory."""
    for root in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        try:
            fd = os.open(root / "lock", os.O_RDWR)
        except OSError:  # somebody else's
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(root)
        except OSError:
            pass  # in use
        finally:
            os.close(fd)


def _remove(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        pass
    except OSError:  # a tool may have made directories read-only
        os.chmod(path, 0o700)
        for folder, names, _ in os.walk(path):
            for name in names:
                os.chmod(os.path.join(folder, name), 0o700, follow_symlinks=True)
        try:
            shutil.rmtree(path)
        except OSError as error:
            logger.warning("cannot delete %s: %s", path, error)


async def _remove_root() -> None:
    if _root is not None:
        _remove(_root)


@loop.after_fork
def _forget() -> None:
    global _root, _lock_fd, _count
    _root, _lock_fd, _count = None, None, 0  # the lock stays held through the inherited descriptor


loop.at_shutdown(_remove_root)
