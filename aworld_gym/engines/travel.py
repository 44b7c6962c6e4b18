"""What of a rollout goes to another process, and what comes back: JSON, and never a live object.

An env goes as its spec, a policy as its recipe, a factory or a policy function as its import path. Code does not
travel: both processes import the same modules.
"""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from aworld_gym.branch import Prefix
from aworld_gym.engines.envs import EnvLike, maker
from aworld_gym.errors import ConfigError, describe
from aworld_gym.imports import load, path_of
from aworld_gym.play import Item
from aworld_gym.policies import Policy, make
from aworld_gym.policies.base import Recipe
from aworld_gym.types import Episode

log = logging.getLogger(__name__)


def pack_env(env: EnvLike) -> dict[str, str]:
    """The env as JSON.

    Raises:
        ConfigError: there is no such env, or it cannot travel; the message says why and what to do.
    """
    maker(env)  # says what is wrong with what is no env at all
    try:
        spec = gym.spec(env) if isinstance(env, str) else env.spec if isinstance(env, gym.Env) else env
    except gym.error.Error as error:
        raise ConfigError(f"no env {env!r}: {error}") from error
    if isinstance(spec, EnvSpec):
        try:
            return {"spec": spec.to_json()}
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"env {spec.id} cannot be sent to another process, because its spec holds what JSON lacks: {error}. "
                "Register it with an entry point by import path ('package.module:function') and arguments that are JSON"
            ) from error
    path = path_of(spec)
    if path is None:
        raise ConfigError(
            f"the function {getattr(spec, '__qualname__', spec)!r} that makes the env cannot be sent to another "
            "process: it must stand at the top of an importable module (not of the script that is run); "
            "or register the env and pass its id"
        )
    return {"factory": path}


def unpack_env(packed: dict[str, str]) -> EnvLike:
    """What :func:`pack_env` packed, in another process."""
    if "spec" in packed:
        return EnvSpec.from_json(packed["spec"])
    made: Callable[[], gym.Env] = load(packed["factory"])
    return made


def pack_policy(policy: Policy) -> dict[str, Any]:
    """The policy as JSON: secrets that it needs to play are among its options.

    Raises:
        ConfigError: it cannot travel; the message says how to make one that can.
    """
    recipe: Recipe | None = getattr(policy, "recipe", None)
    stays: str | None = getattr(policy, "stays", None)
    if stays is not None:
        raise ConfigError(f"policy {policy.name!r} cannot be sent to another process: {stays}")
    if recipe is None:
        raise ConfigError(
            f"policy {policy.name!r} cannot be sent to another process, because it is not known how to make it there: "
            "pass aworld_gym.policies.make('package.module:name', **options) of a factory, or a policy function that "
            "stands at the top of an importable module (not of the script that is run), or give the policy a `recipe`"
        )
    try:
        return {"name": recipe.name, "options": json.loads(json.dumps(dict(recipe.options)))}
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"policy {policy.name!r} cannot be sent to another process: its options must be JSON ({error})"
        ) from error


def unpack_policy(packed: dict[str, Any]) -> Policy:
    """What :func:`pack_policy` packed, in another process."""
    return make(packed["name"], **packed["options"])


def pack_item(item: Item) -> str:
    """The item as JSON.

    Raises:
        ConfigError: its options are not JSON.
    """
    fork = None if item.prefix is None else {"episode": item.prefix.episode.to_dict(), "steps": item.prefix.steps}
    plain = {"index": item.index, "seed": item.seed, "sample": item.sample, "group_id": item.group_id}
    options = None if item.options is None else dict(item.options)
    try:
        return json.dumps(plain | {"options": options, "manifest": item.manifest, "prefix": fork})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"item {item.index} cannot be sent to another process: its options must be JSON ({error})"
        ) from error


def unpack_item(text: str) -> Item:
    """What :func:`pack_item` packed, in another process."""
    data = json.loads(text)
    fork = data.pop("prefix")
    return Item(**data, prefix=None if fork is None else Prefix(Episode.from_dict(fork["episode"]), fork["steps"]))


@dataclass(frozen=True)
class Failure:
    """An exception of another process."""

    text: str
    trace: str = field(repr=False)
    pickled: bytes | None = field(default=None, repr=False)
    """None where it cannot be pickled."""
    notes: tuple[str, ...] = ()
    """Apart, since an exception that says itself how it is pickled leaves them behind."""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The exception, so that it can be raised elsewhere."""
        trace = "".join(traceback.format_exception(error))
        try:
            pickled: bytes | None = pickle.dumps(error)
            pickle.loads(pickled or b"")  # some can be written and not read
        except Exception as why:  # whatever an exception of whatever library does when it is pickled
            log.info("%s cannot be sent as it is: %s", type(error).__name__, describe(why))
            pickled = None
        return cls(describe(error), trace, pickled, tuple(getattr(error, "__notes__", ())))

    def error(self) -> BaseException:
        """The exception, its cause being the traceback there; a RuntimeError where it cannot be had."""
        try:
            error = None if self.pickled is None else pickle.loads(self.pickled)
        except Exception as why:  # its class may not be importable here
            log.info("an exception cannot be read here: %s", describe(why))
            error = None
        if not isinstance(error, BaseException):
            error = RuntimeError(self.text)
        error.__notes__ = list(self.notes)
        error.__cause__ = RemoteTraceback(self.trace)
        return error


class RemoteTraceback(Exception):
    """Where an exception was raised in another process; the cause of the one that is raised here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"
