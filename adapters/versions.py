"""Guards over a framework's version and over names of it that are not its public interface, and late imports."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packaging.version import Version

from aworld_gym.errors import ConfigError, MissingDependencyError

log = logging.getLogger(__name__)


def require(
    distribution: str,
    extra: str,
    tested: Sequence[str],
    why: object = "it is not installed",
    *,
    least: str = "0",
    needs: Sequence[str] = (),
) -> str:
    """The installed version of a framework; one that is not among the tested ones is warned of.

    Args:
        distribution: its name for pip.
        extra: the extra of this project that installs it.
        tested: versions that this project's tests pass with.
        why: said where there is none.
        least: an older one cannot work.
        needs: modules that it imports and that do not come with it.

    Raises:
        MissingDependencyError: there is none, or something is missing that it needs.
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
    missing = [name for name in needs if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"{distribution} {found} needs {', '.join(missing)}, which does not come with it: "
            f"pip install 'aworld-gym[{extra}]'"
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


def imports_late(package: str, check: Callable[[], object], places: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``: its names are imported when they are used, after a check of versions.

    Args:
        package: its ``__name__``.
        check: raises where its framework cannot be used.
        places: of each name, the module in the package that holds it.
    """

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        check()
        return getattr(importlib.import_module(f"{package}.{places[name]}"), name)

    return get
