"""Guards over a framework's version and over names of it that are not its public interface."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Sequence

from packaging.version import Version

from aworld_gym.errors import ConfigError, MissingDependencyError

log = logging.getLogger(__name__)


def require(
    distribution: str, extra: str, tested: Sequence[str], why: object = "it is not installed", *, least: str = "0"
) -> str:
    """The installed version of a framework; one that is not among the tested ones is warned of.

    Args:
        distribution: its name for pip.
        extra: the extra of this project that installs it.
        tested: versions that this project's tests pass with.
        why: said where there is none.
        least: an older one cannot work.

    Raises:
        MissingDependencyError: there is none.
        ConfigError: it is older than ``least``.
    """
    try:
        found = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingDependencyError(
            f"the adapter needs {distribution} {tested[-1]}: pip install 'aworld-gym[{extra}]' ({why})"
        ) from error
    if Version(found) < Version(least):
        raise ConfigError(
            f"{distribution} {found} is installed, and its adapter needs {least} or later (tested: "
            f"{', '.join(tested)}): pip install 'aworld-gym[{extra}]', in an environment of its own"
        )
    if found not in tested:
        log.warning(
            "%s %s is not among the versions that its adapter is tested with (%s)",
            distribution,
            found,
            ", ".join(tested),
        )
    return found


def require_names(holder: type, names: Sequence[str], distribution: str, tested: Sequence[str]) -> None:
    """Raises ConfigError where a framework's class lacks a method that an adapter uses or extends."""
    missing = [name for name in names if not hasattr(holder, name)]
    if missing:
        found = importlib.metadata.version(distribution)
        raise ConfigError(
            f"{distribution} {found} lacks {holder.__name__}.{missing[0]}; its adapter is tested with "
            f"{', '.join(tested)}"
        )
