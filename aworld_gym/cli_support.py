"""What the command line makes of its options: envs, settings, tool listings, adapters. Nothing is printed here."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from aworld_gym.doctor import TRAINERS
from aworld_gym.errors import ConfigError, MissingDependencyError, did_you_mean
from aworld_gym.imports import load_module
from aworld_gym.types import Limits

if TYPE_CHECKING:
    from aworld_gym.engines.ray import Ray
    from aworld_gym.manifests import Manifest
    from aworld_gym.tape import Tape


ALL_TASKS = "all"
"""What ``--manifest`` takes for every task once."""


@dataclass(frozen=True)
class EnvChoice:
    """An env and the arguments it is made with."""

    spec: EnvSpec
    kwargs: Mapping[str, Any]
    """Those given here; the spec may hold more."""
    scorer: str | None = None
    """By what its task source scores, where that has a name."""

    def setting(self, name: str) -> Any:
        """The value of an argument that the env is made with, defaults included; None where it takes no such one."""
        if name in self.spec.kwargs:
            return self.spec.kwargs[name]
        parameter = _parameters(self.spec).get(name)
        return None if parameter is None or parameter.default is parameter.empty else parameter.default


def choose_env(env_id: str, kwargs_json: str | None, pairs: Sequence[str] | None) -> EnvChoice:
    """The env of that id with its arguments, from a JSON object and ``key=value`` pairs (which win).

    It is made once, so that what cannot work is said before anything begins.

    Raises:
        ConfigError: no such env, it takes no such argument (those that exist are named) or not this value, or it is
            no tool env.
    """
    from aworld_gym.making import make_tool_env  # here, so that `doctor` runs where the MCP client does not

    kwargs = _json_object(kwargs_json, "--env-kwargs") | key_values(pairs)
    module, colon, _ = env_id.partition(":")
    if colon:  # Gymnasium's own way to name the module that registers an env
        load_module(module, env_id)
        env_id = env_id.partition(":")[2]
    try:
        spec = copy.deepcopy(gym.spec(env_id))
    except gym.error.Error as error:
        ours = ", ".join(sorted(name for name in gym.registry if name.startswith("AWorld/")))
        known = f" Envs of this package: {ours}. One of yours is named with the module that registers it: module:id"
        raise ConfigError(f"{str(error).rstrip('.')}.{known}") from error
    parameters = _parameters(spec)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in kwargs:
            if name not in parameters:
                hint = did_you_mean(name, parameters)
                raise ConfigError(f"{spec.id} takes no argument {name!r}; it takes {', '.join(parameters)}.{hint}")
    spec.kwargs.update(kwargs)
    env = make_tool_env(spec)
    scorer = getattr(env.get_wrapper_attr("tasks"), "scorer", None)
    env.close()
    return EnvChoice(spec, kwargs, scorer if isinstance(scorer, str) else None)


def choose_manifest(choice: EnvChoice, named: str | None) -> tuple[EnvChoice, Manifest | None]:
    """The manifest of that name or file, and the env as it is made to have its tasks; as it was where None.

    ``all`` is every task of an env that has a list of them, once; unless the env has a manifest of that name.

    Raises:
        ConfigError: no such manifest, or the env's arguments ask for other tasks.
    """
    if named is None:
        return choice, None
    from aworld_gym import manifests  # here, so that `doctor` runs where the MCP client does not

    if named == ALL_TASKS and named not in manifests.names(choice.spec):
        return choice, _all_tasks(choice.spec)
    manifest = manifests.find(choice.spec, named)
    return replace(choice, spec=manifest.applied(choice.spec)), manifest


def _all_tasks(spec: EnvSpec) -> Manifest:
    from aworld_gym import manifests
    from aworld_gym.making import make_tool_env

    env = make_tool_env(spec)
    try:
        source = env.get_wrapper_attr("tasks")
        tasks = getattr(source, "tasks", None)
        if not isinstance(tasks, Sequence) or not tasks:
            named = ", ".join(manifests.names(spec)) or "none"
            raise ConfigError(
                f"--manifest {ALL_TASKS}: {spec.id} as it is made here has no list of tasks, it draws them one by one; "
                f"its manifests: {named}"
            )
        return manifests.Manifest.of(source, [task.id for task in tasks], name=ALL_TASKS, env_id=spec.id)
    finally:
        env.close()


def choose_engine(engine: str, **ray: Any) -> str | Ray:
    """The engine of that name, with the settings of Ray that are not None.

    Raises:
        ConfigError: settings of Ray for another engine, or such that cannot be.
        MissingDependencyError: Ray is not installed.
    """
    given = {name: value for name, value in ray.items() if value not in (None, [])}
    if engine != "ray":
        if given:
            raise ConfigError(f"the --ray-... options are for --engine ray, and this is --engine {engine}")
        return engine
    from aworld_gym.engines.ray import Ray
    from aworld_gym.engines.ray_cluster import load_ray

    load_ray(given.get("address"))  # says now that it is missing
    if "resources" in given:
        given["resources"] = key_values(given["resources"])
    if "env" in given:
        given["env"] = tuple(given["env"])
    return Ray(**given)


@contextmanager
def open_tape(record: Path | None, replay: Path | None, cache: Path | None, *, resume: bool) -> Iterator[Tape | None]:
    """The tape that was asked for, if one was, closed after the block.

    Raises:
        ConfigError: more than one is asked for, or it cannot be used.
    """
    if (record, replay, cache).count(None) < 2:
        raise ConfigError("give one of --record, --replay and --cache, not several")
    from aworld_gym import tape  # here, so that `doctor` runs where the MCP client does not

    if replay is not None:
        yield tape.Replay(replay)
    elif record is not None or cache is not None:
        with tape.Recorder(record, extend=resume) if record is not None else tape.Cache(cache or "") as opened:
            yield opened
    else:
        yield None


def check_output(folder: Path) -> None:
    """Say at once, and not after the model was loaded, that a folder cannot be written. Nothing is made.

    Raises:
        ConfigError: it, or the folder that it would be made in, is not a folder or may not be written.
    """
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    what = None if place.is_dir() else "is not a folder"
    if what is None and not os.access(place, os.W_OK | os.X_OK):
        what = "may not be written"
    if what is not None:
        raise ConfigError(f"cannot write to --output {folder}: {place} {what}; choose another place")


def see_current_folder() -> None:
    """Let modules in the current folder be named by import path.

    They come last, so that a folder called ``envs`` there does not hide this project's own. Nothing is done where
    Python was told not to look there (``-P``, ``PYTHONSAFEPATH``).
    """
    here = os.getcwd()
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def key_values(pairs: Sequence[str] | None) -> dict[str, Any]:
    """``["level=1", "split=test"]`` as a dict; a value that is not JSON is text."""
    out: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise ConfigError(f"expected KEY=VALUE, got {pair!r}")
        try:
            out[name] = json.loads(text)
        except (ValueError, RecursionError):
            out[name] = text
    return out


def load_settings(path: Path) -> dict[str, Any]:
    """A settings file: a YAML or JSON mapping.

    Raises:
        ConfigError: it is not there, not readable, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the settings file {path}: {error}") from error
    if path.suffix == ".json":
        return _json_object(text, str(path))
    try:
        import yaml
    except ImportError as error:
        raise MissingDependencyError(
            f"{path} is taken for YAML, which needs the package pyyaml: install it, or write the settings as .json"
        ) from error
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a mapping of settings, got {type(value).__name__}")
    return value


def env_tools(spec: EnvSpec, seed: int) -> list[dict[str, Any]]:
    """The OpenAI tool schemas that an env offers for the task of ``seed``."""
    from aworld_gym.making import make_tool_env

    env = make_tool_env(spec)
    try:
        _, info = env.reset(seed=seed)
        return list(info["tools"])
    finally:
        env.close()


def server_tools(config: Path) -> list[dict[str, Any]]:
    """The OpenAI tool schemas of the servers of an ``mcpServers`` file."""
    from aworld_gym.toolchain import Toolchain, loop  # here, so that `doctor` runs where the MCP client does not

    async def listing() -> list[dict[str, Any]]:
        toolchain = Toolchain(config, Limits(), None)
        try:
            session = await toolchain.open(public={})
            try:
                return copy.deepcopy([dict(tool) for tool in session.tools])
            finally:
                await session.aclose()
        finally:
            await toolchain.aclose()

    return loop.run(listing())


def adapter(trainer: str) -> ModuleType:
    """The adapter module of a trainer, imported.

    Raises:
        ConfigError: there is no such adapter in this version.
        MissingDependencyError: (from the adapter) its framework is not installed.
    """
    known = [known.extra for known in TRAINERS]
    if trainer not in known:
        raise ConfigError(f"unknown trainer {trainer!r}; known are {', '.join(known)}.{did_you_mean(trainer, known)}")
    try:
        return importlib.import_module(f"adapters.{trainer}")
    except ModuleNotFoundError as error:
        if error.name != f"adapters.{trainer}":
            raise
        raise ConfigError(f"this version has no adapter for {trainer}; see `aworld-gym doctor`") from error


def _json_object(text: str | None, where: str) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a JSON object, got {type(value).__name__}")
    return value


def _parameters(spec: EnvSpec) -> dict[str, inspect.Parameter]:
    entry = spec.entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    if creator is None:
        raise ConfigError(f"{spec.id} has no entry point and cannot be made")
    return {name: p for name, p in inspect.signature(creator).parameters.items() if name != "self"}
