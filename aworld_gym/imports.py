"""Objects named by import path, so that configurations and specs can stay JSON."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from aworld_gym.errors import ConfigError, did_you_mean


def load(path: str, short_names: Mapping[str, Any] | None = None) -> Any:
    """The object at ``package.module:name``, or the one of that short name.

    Raises:
        ConfigError: the path is malformed, or nothing stands there; close names are given.
    """
    short_names = short_names or {}
    if path in short_names:
        return short_names[path]
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        known = f" or one of {', '.join(sorted(short_names))}" if short_names else ""
        raise ConfigError(
            f"expected an import path like 'package.module:name'{known}, got {path!r}.{did_you_mean(path, short_names)}"
        )
    module = load_module(module_name, path)
    try:
        return getattr(module, name)
    except AttributeError:
        hint = did_you_mean(name, vars(module))
        raise ConfigError(f"module {module_name!r} has no {name!r} (from {path!r}).{hint}") from None


def load_module(name: str, path: str) -> ModuleType:
    """The module of that name.

    Args:
        name: such as ``package.module``.
        path: what it was taken from, for messages.

    Raises:
        ConfigError: there is none, or that is no name of one.
    """
    if not all(name.split(".")):
        raise ConfigError(f"{name!r} is no name of a module (from {path!r}): expected one like 'package.module'")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import {name!r} (from {path!r}): {error}") from error


def path_of(thing: Any) -> str | None:
    """The import path of a function or class, by which :func:`load` finds it in any process; None where there is none.

    What stands in the script that is run has none: in another process that script is another one.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str)) or module == "__main__" or not name.isidentifier():
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is thing else None
