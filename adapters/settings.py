"""Settings: read, checked against what a framework knows, and said aloud where an adapter chooses them itself."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
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


def check_names(given: Mapping[str, Any], arguments: type, train: Callable[..., Any]) -> None:
    """Raises ConfigError for a setting that a framework's dataclass of arguments does not have."""
    known = [field.name for field in dataclasses.fields(arguments)]
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


def numbers(given: Mapping[str, Any], arguments: type) -> dict[str, Any]:
    """The settings, with text that stands for a number as one: YAML reads 1e-6 (without a dot) as text."""
    kinds = {field.name: str(field.type) for field in dataclasses.fields(arguments)}
    return {name: _number(value) if "float" in kinds.get(name, "") else value for name, value in given.items()}


def say(settings: Mapping[str, Any]) -> None:
    """Log what an adapter sets besides what the caller gave."""
    log.info("set by the adapter: %s", ", ".join(f"{name}={value!r}" for name, value in settings.items()))


def say_what_is_trained(env_id: str, tasks: int, group_size: int, max_tokens: int, credit: str) -> None:
    """Log what a run is."""
    log.info(
        "training on %s: %d tasks an epoch, %d episodes a group, at most %d tokens an episode after its prompt; "
        "the reward of %s",
        env_id,
        tasks,
        group_size,
        max_tokens,
        "an episode is the sum of its steps' rewards" if credit == "episode" else "each turn is its own and the later",
    )


def task_seeds(tasks: int | Sequence[int], first: int) -> list[int]:
    """The seeds of that many tasks from ``first`` on, or those given."""
    seeds = range(first, first + tasks) if isinstance(tasks, int) else tasks
    if len(seeds) == 0 or isinstance(tasks, bool):
        raise ConfigError(f"expected a positive number of tasks or a list of seeds, got {tasks!r}")
    return [int(seed) for seed in seeds]


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value  # the field takes text too; the framework judges it
