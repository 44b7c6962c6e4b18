"""Settings: read, checked against what a framework knows, and said aloud where an adapter chooses them itself."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aworld_gym.errors import ConfigError, did_you_mean

log = logging.getLogger("adapters")


def read_config(config: Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    """A trainer's settings from a mapping, or a YAML or JSON file.

    Raises:
        ConfigError: no such file, or not a mapping in it.
    """
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return dict(config)
    import yaml  # every framework brings it; the package itself does not need it

    path = Path(config)
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the config file {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"the config file {path} is not YAML or JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"the config file {path} must hold a mapping of settings, got {type(found).__name__}")
    return found


def take_rollout(given: dict[str, Any], rollout: Any) -> Any:
    """The section ``rollout`` of a config, taken out of it, or the argument of that name.

    Raises:
        ConfigError: both are given.
    """
    section = given.pop("rollout", None)
    if section is not None and rollout is not None:
        raise ConfigError("rollout options are given twice: in the config and as an argument")
    return section if rollout is None else rollout


def checked(given: Mapping[str, Any], arguments: type, train: Callable[..., Any]) -> dict[str, Any]:
    """The settings, with what YAML does not read as it is meant: 1e-6 (without a dot) as text, ``no`` as False.

    Args:
        given: the user's.
        arguments: the framework's dataclass of them.
        train: the adapter's, which has arguments of its own.

    Raises:
        ConfigError: one that the dataclass does not have, or a text where it has a whole number.
    """
    known = {field.name: str(field.type) for field in dataclasses.fields(arguments)}
    own = [name for name, p in inspect.signature(train).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in given:
        if name not in known and name in own:
            raise ConfigError(
                f"{name!r} is an argument of train(), not a field of {arguments.__name__}: pass it to train() "
                f"(on the command line: --set {name}=...)"
            )
        if name not in known:
            hint = did_you_mean(name, [*known, *own])
            raise ConfigError(f"{arguments.__name__} has no field {name!r}, and train() no such argument.{hint}")
    return {name: _plain(name, value, known[name]) for name, value in given.items()}


def leaves(given: Mapping[str, Any], tree: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Settings for a framework whose own are a tree: dotted keys and values, with text for a number as one.

    Args:
        given: the user's, nested or with dotted keys. A key that the tree lacks begins with ``+``.
        tree: the framework's defaults; sections are mappings, and an empty one takes any name.
        at: the key of the section that both are of.

    Raises:
        ConfigError: a name that the tree lacks, or a text where it has a number.
    """
    for key, value in given.items():
        added, (*path, name) = key.startswith("+"), key.lstrip("+").split(".")
        section: Any = tree
        for part in path:
            section = section.get(part) if isinstance(section, Mapping) else None
        known = section if isinstance(section, Mapping) else None
        dotted = ".".join((*filter(None, [at]), *path, name))
        if not added and (known is None or (known and name not in known)):
            hint = did_you_mean(name, map(str, known or tree))
            raise ConfigError(f"the configuration has no {dotted!r} (write '+{dotted}' to add it).{hint}")
        default = (known or {}).get(name)
        if isinstance(value, Mapping) and isinstance(default, Mapping) and default and not added:
            yield from leaves(value, default, dotted)
            continue
        if isinstance(value, str) and type(default) in (int, float):
            try:
                value = type(default)(float(value))
            except ValueError as error:
                raise ConfigError(f"{dotted}={value!r}: expected a number, such as {default!r}") from error
        yield ("+" if added else "") + dotted, value


def say(settings: Mapping[str, Any]) -> None:
    """Log what an adapter sets besides what the caller gave."""
    log.info("set by the adapter: %s", ", ".join(f"{name}={value!r}" for name, value in settings.items()))


_NO_TYPE = {"class", "typing", "Optional", "Union", "None", "NoneType"}


def _plain(name: str, value: Any, declared: str) -> Any:
    """A setting as its field's type, in words, has it."""
    kinds = set(re.findall(r"\w+", declared)) - _NO_TYPE
    if value is False and name.endswith("_strategy"):
        return "no"
    if not isinstance(value, str) or not (kinds == {"int"} or "float" in kinds):
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if kinds == {"int"} and not number.is_integer():
        raise ConfigError(f"{name}={value!r}: expected a whole number")
    if math.isnan(number):
        return value  # the field takes text too; the framework judges it
    return int(number) if kinds == {"int"} else number
